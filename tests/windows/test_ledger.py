"""What one process heard of a window and tells another: once, as far as it says more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.windows.events import answer, refuse
from ullage.core.tokens.claim import Claim
from ullage.transport import Transport
from ullage.windows import Question, Resolver, ResolverOptions
from ullage.windows import ledger as room

ASKED = Question("gpt-x-unknown", "https://api.openai.com/v1", "sk", party="a")
OTHER = Question("gpt-x-unknown", "https://api.openai.com/v1", "sk", party="b")


def made(folder: Path | None = None, clock: FakeClock | None = None) -> Resolver:
    options = ResolverOptions(offline=True, folder=folder)
    return Resolver(Transport(), clock or FakeClock(1e9), options)


def connect(one: Resolver, other: Resolver) -> list[str]:
    """Have one tell the other; return the keys that are told."""
    told: list[str] = []

    def tell(key: str, claims: tuple[Claim, ...]) -> None:
        told.append(key)
        other.hear(key, claims)

    one.ledger.tell = tell
    return told


def test_what_one_process_heard_bounds_the_other_for_the_same_party() -> None:
    one, other = made(), made()
    told = connect(one, other)
    refuse(one, ASKED, 4_096)
    assert told == [ASKED.own_key] * 2
    assert other.window(ASKED).input_tokens == 4_096
    assert other.window(OTHER).input_tokens is None
    refuse(one, OTHER, 4_096)
    assert other.window(OTHER).input_tokens == 4_096


def test_what_says_no_more_than_before_is_not_told_again() -> None:
    one, other = made(), made()
    told = connect(one, other)
    for tokens in (1_000, 1_100, 1_200, 1_300):
        answer(one, ASKED, tokens)
    assert len(told) == 2
    other.ledger.hear(ASKED.own_key, one.ledger.claims(ASKED))
    assert not other.ledger.hear(ASKED.own_key, one.ledger.claims(ASKED))


def test_two_processes_tell_each_other_to_an_end() -> None:
    one, other = made(), made()
    told = connect(one, other), connect(other, one)
    refuse(one, ASKED, 4_096, times=1)
    refuse(other, ASKED, 4_000, times=1)
    assert [len(keys) for keys in told] == [1, 1]
    assert other.window(ASKED).input_tokens == one.window(ASKED).input_tokens == 4_000


def test_of_more_keys_than_are_remembered_some_are_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "MOST", 1)
    resolver = made()
    told = connect(resolver, made())
    for asked in (ASKED, OTHER, ASKED):
        answer(resolver, asked, 1_000)
    assert told == [ASKED.own_key, OTHER.own_key, ASKED.own_key]


def test_what_is_forgotten_up_to_a_time_leaves_what_came_later(tmp_path: Path) -> None:
    clock = FakeClock(1e9)
    resolver = made(tmp_path, clock)
    refuse(resolver, ASKED, 4_096)
    clock.advance(10)
    refuse(resolver, OTHER, 8_192)
    resolver.forget_key(ASKED.key, 1e9 + 5)
    assert resolver.window(ASKED).input_tokens is None
    assert resolver.window(OTHER).input_tokens == 8_192
    assert made(tmp_path, clock).window(OTHER).input_tokens == 8_192
    assert made(tmp_path, clock).window(ASKED).input_tokens is None


def test_a_clock_that_goes_back_keeps_no_bound_that_was_answered_past(tmp_path: Path) -> None:
    clock = FakeClock(1e9)
    resolver = made(tmp_path, clock)
    refuse(resolver, ASKED, 4_000)
    clock.now -= room.SKEW_S / 2  # a little: the answer still comes after the refusals
    answer(resolver, ASKED, 29_000)
    assert resolver.window(ASKED).input_tokens is None
    refuse(resolver, ASKED, 5_000)
    clock.now -= 86_400.0  # a day: what was heard in the future was never said
    assert resolver.ledger.claims(ASKED) == ()
    assert resolver.window(ASKED).input_tokens is None


def test_an_answer_from_another_process_counts_by_its_time() -> None:
    clock = FakeClock(1e9)
    one, other = made(clock=clock), made(clock=clock)
    for resolver in (one, other):
        answer(resolver, ASKED, 7_900)
    clock.now += 1
    refuse(one, ASKED, 4_000)
    assert one.window(ASKED).input_tokens == 4_000
    clock.now += 1
    answer(other, ASKED, 7_900)
    assert one.ledger.hear(ASKED.own_key, other.ledger.claims(ASKED))
    assert one.window(ASKED).input_tokens is None

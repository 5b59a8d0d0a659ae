"""What one of several clients behind one key met holds for that one, until another meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.clock import FakeClock
from tests.windows.events import answer, refuse
from ullage.transport import Transport
from ullage.windows import Question, Resolver, ResolverOptions
from ullage.windows import ledger as room

URL = "https://api.openai.com/v1"
ANN, BOB, CID = (Question("gpt-x-unknown", URL, "sk", party=name) for name in ("a", "b", "c"))
NOBODY = replace(ANN, party="")


def made(folder: Path | None = None, clock: FakeClock | None = None) -> Resolver:
    options = ResolverOptions(offline=True, folder=folder)
    return Resolver(Transport(), clock or FakeClock(1e9), options)


def bounds(resolver: Resolver) -> list[int | None]:
    return [resolver.window(question).input_tokens for question in (ANN, BOB, CID)]


def test_a_limit_is_its_partys_until_a_second_one_says_the_same() -> None:
    resolver = made()
    refuse(resolver, ANN, 4_096)
    assert bounds(resolver) == [4_096, None, None]
    refuse(resolver, BOB, 8_192)
    assert bounds(resolver) == [4_096, 8_192, None]
    refuse(resolver, BOB, 4_096)
    assert bounds(resolver) == [4_096, 4_096, 4_096]


def test_what_nobody_in_particular_said_holds_for_all() -> None:
    resolver = made()
    refuse(resolver, NOBODY, 4_096)
    refuse(resolver, ANN, 2_048)
    assert bounds(resolver)[0] == 2_048
    assert resolver.window(NOBODY).input_tokens == 4_096


def test_an_answer_proves_a_window_for_all() -> None:
    resolver = made()
    refuse(resolver, BOB, 1_000)
    answer(resolver, ANN, 50_000)
    assert resolver.window(BOB).input_tokens != 1_000


def test_parties_are_told_apart_on_disk_and_forgotten_together(tmp_path: Path) -> None:
    clock = FakeClock(1e9)
    refuse(made(tmp_path, clock), ANN, 4_096)
    again = made(tmp_path, clock)
    assert bounds(again) == [4_096, None, None]
    refuse(again, BOB, 4_096)
    assert bounds(made(tmp_path, clock)) == [4_096] * 3
    again.forget(NOBODY)
    assert bounds(again) == [None] * 3
    assert bounds(made(tmp_path, clock)) == [None] * 3


def test_a_trial_is_its_partys() -> None:
    resolver = made()
    assert resolver.start_trial(ANN)
    assert not resolver.start_trial(ANN)
    assert resolver.start_trial(BOB)


def test_no_more_parties_than_a_number_are_kept() -> None:
    resolver = made()
    for n in range(room.MOST_PARTIES + 5):
        refuse(resolver, replace(ANN, party=str(n)), 5_000 + 500 * n)
    assert len(resolver.ledger._parties[ANN.key]) == room.MOST_PARTIES

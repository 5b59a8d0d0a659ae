"""What refusals, cut prompts and answers weigh against each other: the rules, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.tokens.claim import Claim, Source
from ullage.core.tokens.evidence import (
    FAR_OFF,
    MOST,
    OVERRULES_S,
    PASSING_S,
    add,
    confirm,
    find_cap,
    find_floor,
    says_more,
)
from ullage.core.tokens.window import resolve

LISTED = Claim("total", 128_000, "listing")
TOLD = Claim("total", 128_000, "override")
PROBED = Claim("allocated", 128_000, "probe")


def refusal(tokens: int, exchange: str = "a", **more: Any) -> Claim:
    return Claim("total", tokens, "refusal", exchange=exchange, **{"grounds": "words", **more})


def cut(tokens: int, reported: int, exchange: str = "a", grounds: Any = "counted") -> Claim:
    return Claim(
        "total", tokens, "truncation", exchange=exchange, reported=reported, grounds=grounds
    )


def answer(tokens: int, exchange: str = "a", at: float = 0.0) -> Claim:
    return Claim("total", tokens, "answer", exchange=exchange, grounds="structured", at=at)


def bound(*claims: Claim, now: float | None = None) -> int | None:
    return resolve(claims, now=now).input_tokens


# ── who may lower what ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("base", [TOLD, PROBED])
def test_a_probe_and_the_operators_word_need_two_witnesses_and_no_sentences(base: Claim):
    one = refusal(8_192, grounds="structured")
    assert bound(base, one) == 128_000
    assert bound(base, one, one) == 128_000  # the same request twice
    assert bound(base, one, refusal(8_192, "b", grounds="structured")) == 8_192
    assert bound(base, *(refusal(8_192, e) for e in "abcdefgh")) == 128_000


def test_a_published_window_is_lowered_by_one_refusal_with_fields():
    assert bound(LISTED, refusal(8_000, grounds="structured")) == 8_000


def test_a_sentence_far_from_the_published_window_needs_a_second_one():
    near, far = 128_000 // FAR_OFF, 128_000 // FAR_OFF - 1
    assert bound(LISTED, refusal(near)) == near
    assert bound(LISTED, refusal(far)) == 128_000
    assert bound(LISTED, refusal(far), refusal(far, "b")) == far


def test_where_nothing_is_known_one_sentence_is_enough():
    assert bound(refusal(8_192)) == 8_192


def test_one_witness_passes_and_two_do_not():
    one, two = refusal(8_192, at=0.0), refusal(8_192, "b", at=0.0)
    assert bound(one, now=PASSING_S - 1) == 8_192
    assert bound(one, now=PASSING_S) is None
    assert bound(one, two, now=PASSING_S) == 8_192


def test_a_lie_beside_the_truth_moves_nothing():
    said = (refusal(e, str(e), grounds="structured") for e in (512, 8_192, 8_193))
    assert bound(TOLD, *said) == 8_192


def test_a_share_of_a_pool_bounds_for_a_while():
    shared = Claim("total", 2_048, "contention", at=5.0)
    assert bound(PROBED, shared, now=5.0 + PASSING_S - 1) == 2_048
    assert bound(PROBED, shared, now=5.0 + PASSING_S) == 128_000


# ── cut prompts ─────────────────────────────────────────────────────────────────────────────────


def test_a_cut_prompt_needs_a_second_one_that_was_read_at_the_same_size():
    assert bound(TOLD, cut(9_000, 4_090)) == 128_000
    assert bound(TOLD, cut(9_000, 4_090), cut(9_500, 4_093, "b")) == 9_500
    assert bound(TOLD, cut(9_000, 812), cut(9_500, 640, "b")) == 128_000  # uncached tokens


def test_a_number_that_only_a_cut_leaves_is_enough_where_nobody_vouches():
    assert bound(cut(4_096, 2_050, grounds="structured")) == 4_096
    assert bound(TOLD, cut(4_096, 2_050, grounds="structured")) == 128_000


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


CLAIMS = st.lists(
    st.builds(
        Claim,
        st.just("total"),
        st.integers(1, 10_000),
        st.sampled_from(get_args(Source)),
        at=st.sampled_from([0.0, 500.0]),
        grounds=st.sampled_from(["structured", "words", "counted"]),
        exchange=st.sampled_from("abc"),
        reported=st.integers(0, 5_000),
    ).filter(lambda c: c.source not in ("probe", "contention")),
    max_size=12,
)


@given(CLAIMS, st.sampled_from([None, 0.0, 700.0]))
def test_nothing_learned_lowers_a_window_under_an_answered_prompt(claims: list[Claim], now: Any):
    found = resolve(claims, now=now)
    floor = find_floor(claims)
    if found.is_learned or found.source in ("listing", "table"):
        assert found.tokens() >= floor


@given(CLAIMS, st.sampled_from([None, 0.0, 700.0]))
def test_an_answer_never_lowers_a_window(claims: list[Claim], now: Any):
    before = resolve([c for c in claims if c.source != "answer"], now=now).input_tokens
    after = resolve(claims, now=now).input_tokens
    assert before is None or after is None or after >= before


@given(CLAIMS)
def test_what_is_confirmed_gives_the_same_cap_by_itself(claims: list[Claim]):
    held = [c for c in claims if c.source != "answer"]
    kept = confirm(held)
    assert find_cap(kept, TOLD, 0) == find_cap(held, TOLD, 0) or any(
        c.grounds == "words" for c in (*held, *kept)
    )


SHRUNK = (refusal(4_000, "b", at=3.0), refusal(4_000, "c", at=4.0))
"""Two witnesses of a server that came back with a smaller window."""


def test_two_refusals_after_an_answered_prompt_lower_the_window_below_it():
    learned = (refusal(8_000, at=1.0), refusal(8_000, "d", at=1.0), answer(7_900, at=2.0))
    assert bound(*learned) == 8_000
    assert bound(*learned, SHRUNK[0]) == 8_000
    assert bound(*learned, *SHRUNK) == 4_000
    assert find_floor((*learned, *SHRUNK)) == 0
    cuts = (cut(4_096, 4_000, "b"), cut(4_096, 4_001, "c"))
    assert bound(*learned, *(replace(c, at=5.0) for c in cuts)) == 8_000  # only refusals do


def test_an_answered_prompt_counts_again_an_hour_after_the_refusals() -> None:
    claims = (answer(7_900, at=2.0), *SHRUNK)
    assert bound(*claims, now=3.0 + OVERRULES_S - 1) == 4_000
    assert bound(*claims, now=3.0 + OVERRULES_S) is None
    again = (refusal(4_000, "d", at=9_000.0), refusal(4_000, "e", at=9_001.0))
    assert bound(*claims, again[0], now=9_002.0) is None
    assert bound(*claims, *again, now=9_002.0) == 4_000


@pytest.mark.parametrize("base", [TOLD, PROBED])
def test_sentences_overrule_no_answered_prompt_where_the_window_is_firm(base: Claim) -> None:
    claims = (base, answer(7_900, at=2.0), *SHRUNK)
    assert find_floor(claims, firm=True) == 7_900
    assert resolve(claims).answered == 7_900


def test_refusals_before_an_answered_prompt_and_one_witness_lower_nothing_below_it():
    assert bound(*SHRUNK, answer(7_900, at=4.0)) is None
    assert bound(answer(7_900, at=3.5), *SHRUNK) is None
    assert bound(answer(7_900, at=2.0), SHRUNK[0], SHRUNK[0]) is None


def test_an_answer_over_a_learned_bound_refutes_it_for_good():
    held: tuple[Claim, ...] = (answer(7_900, at=2.0),)
    for claim in (*SHRUNK, answer(5_000, "e", at=5.0)):
        held = add(held, claim)
    assert bound(*held) is None
    assert find_floor(held) == 7_900
    assert bound(*held, *SHRUNK) is None  # a conversation that still remembers them
    later = (refusal(4_000, "f", at=6.0), refusal(4_000, "g", at=7.0))
    assert bound(*held, *later) == 4_000


def test_a_window_that_shrank_is_confirmed_beside_the_prompts_that_no_longer_fit() -> None:
    answers = (answer(7_900, at=2.0), answer(7_800, "h", at=2.0), answer(3_000, "i", at=5.0))
    kept = confirm((*answers, *SHRUNK))
    assert [(c.source, c.tokens) for c in kept] == [("refusal", 4_000), ("answer", 7_800)]
    assert bound(*kept, now=5.0) == 4_000
    assert bound(*kept, now=3.0 + OVERRULES_S) is None


def test_a_request_that_is_answered_again_refutes_what_came_in_between() -> None:
    held: tuple[Claim, ...] = (answer(7_900, "x", at=2.0), *SHRUNK)
    held = add(held, answer(7_850, "x", at=5.0))
    assert [(c.tokens, c.at) for c in held] == [(7_900, 5.0)]
    assert add(held, Claim("total", 2_000, "contention", at=6.0))[1].source == "contention"


# ── what is kept ────────────────────────────────────────────────────────────────────────────────


def test_what_one_request_said_is_not_confirmed():
    assert confirm([refusal(5_000), cut(6_000, 3_000), answer(4_000)]) == ()
    twice = [refusal(5_000), refusal(5_000, "b"), answer(4_000), answer(4_500, "b")]
    assert [(c.source, c.tokens, c.times) for c in confirm(twice)] == [
        ("refusal", 5_000, 2),
        ("answer", 4_000, 2),
    ]


def test_events_are_bounded_and_the_two_largest_answers_and_the_newest_stay():
    held: tuple[Claim, ...] = ()
    for n in range(100):
        held = add(held, refusal(1_000 + n, str(n)))
        held = add(held, answer((n * 37) % 100 + 1, str(n)))
        held = add(held, cut(9_000, n, str(n)))
    assert len(held) == 2 * MOST + 3
    assert sorted(c.tokens for c in held if c.source == "answer") == [64, 99, 100]
    assert [c.tokens for c in held if c.source == "refusal"] == [1_092 + n for n in range(8)]


def test_the_same_request_is_one_witness():
    held = add(add((), refusal(5_000)), refusal(6_000))
    assert [c.tokens for c in held] == [6_000]
    held = add(add((), answer(5_000)), answer(4_000))
    assert [c.tokens for c in held] == [5_000]


@pytest.mark.parametrize(
    ("confirmed", "before", "more"),
    [
        ([], [], False),
        ([answer(1_000)], [], True),
        ([answer(1_200)], [answer(1_000)], False),
        ([answer(1_251)], [answer(1_000)], True),
        ([refusal(9)], [], True),
        ([refusal(9)], [refusal(9)], False),
        ([refusal(8)], [refusal(9)], True),
        ([], [refusal(9)], True),
    ],
)
def test_what_is_worth_writing_down(confirmed: list[Claim], before: list[Claim], more: bool):
    assert says_more(confirmed, before) == more

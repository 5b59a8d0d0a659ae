"""What is known of a model goes with its conversations: what is merged, carried and suspected."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ContextTooLargeError, ErrorKind
from ullage.core.guard import machine
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.events import CompactionFailed
from ullage.core.guard.learned import NOTHING, Learned, read_calibration
from ullage.core.guard.recovery import recover
from ullage.core.guard.request import Prepared, Request
from ullage.core.tokens.calibration import Calibration, Outside, Variances
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.counting import Scale
from ullage.core.tokens.evidence import PASSING_S
from ullage.core.tokens.window import Window

CALIBRATION = Calibration(
    1.3, Outside(40, 55.5), 0.02, 3, Variances(0.01, -2.5, 900.0), (Outside(7, 3.5, 2),)
)
REFUSAL = Claim("total", 4096, "refusal", "http://h", 5.0, 0.9, exchange="e")
ANSWER = Claim("total", 900, "answer", "http://h", 6.0, exchange="f")
WHOLE = Learned(CALIBRATION, frozenset({"whole_loops", "alternation"}), (REFUSAL, ANSWER), 7.0)

WIDE = Scale(0.5, 1.0, 2.0)
ESTIMATING = setup(Policy.off(), scale=WIDE)


def prepare(world: World, history: list[Any], given: Any, **more: Any) -> Prepared:
    return world.drive(machine.prepare(given, Request(history, **more)))


def test_what_an_earlier_ullage_kept_of_other_tools_is_read() -> None:
    data = json.loads(json.dumps(WHOLE.to_dict()))
    data["calibration"]["others"] = [[7, 3.5]]
    data["calibration"]["outside"] = [40, 55.5]
    read = Learned.from_dict(data).calibration
    assert read is not None
    assert (read.outside, read.others) == (Outside(40, 55.5), (Outside(7, 3.5),))


@pytest.mark.parametrize("found", [NOTHING, WHOLE, Learned(replace(CALIBRATION, outside=None))])
def test_what_is_known_of_a_model_survives_json_in_its_conversation(found: Learned) -> None:
    kept = Conversation("s", "p", learned=found, suspect=(4096, 9.5))
    assert Conversation.from_dict(json.loads(json.dumps(kept.to_dict()))) == kept


def test_a_conversation_that_was_stored_before_knows_nothing_of_its_model() -> None:
    data = {**Conversation("s", "p").to_dict(), "version": 2}
    del data["learned"]
    del data["suspect"]
    assert Conversation.from_dict(data) == Conversation("s", "p")


def test_a_calibration_of_reports_of_two_conversations_is_left_out() -> None:
    data = CALIBRATION.to_dict()
    assert read_calibration(data) == CALIBRATION
    older = {**data, "last": {"reported": 9, "content": 8, "fixed": 1}}
    assert read_calibration({**older, "error": 0.06}) is None
    assert read_calibration(older) == CALIBRATION, "it was right"


@pytest.mark.parametrize(
    "odd",
    [
        {"ratio": 0.0}, {"ratio": 90.0}, {"ratio": float("nan")}, {"error": -0.1},
        {"error": float("inf")}, {"outside": Outside(40, float("nan"))},
    ],
)  # fmt: skip
def test_a_calibration_that_no_report_can_have_taught_is_left_out(odd: dict[str, Any]) -> None:
    edited = replace(WHOLE, calibration=replace(CALIBRATION, **odd))
    assert Learned.from_dict(edited.to_dict()) == replace(WHOLE, calibration=None)


@pytest.mark.parametrize(
    "odd", [{"tokens": 0}, {"tokens": -5}, {"tokens": "4096"}, {"source": "override"}]
)
def test_a_claim_that_no_event_can_have_made_is_left_out(odd: dict[str, Any]) -> None:
    edited = replace(WHOLE, claims=(replace(REFUSAL, **odd), ANSWER))
    assert Learned.from_dict(edited.to_dict()) == replace(WHOLE, claims=(ANSWER,))


@given(st.integers(0, 5), st.integers(0, 5))
def test_of_two_calibrations_the_one_that_more_reports_made_holds(mine: int, theirs: int) -> None:
    one, other = (Learned(replace(CALIBRATION, seen=n, ratio=1.0 + n)) for n in (mine, theirs))
    merged = one.merge(other)
    assert merged.calibration == (other if theirs > mine else one).calibration
    assert (merged is one) == (theirs <= mine)


def test_laws_of_both_hold_and_nothing_new_is_no_change() -> None:
    some = Learned(laws=frozenset({"alternation"}))
    assert some.merge(WHOLE).laws == WHOLE.laws
    assert some.merge(WHOLE).calibration == CALIBRATION
    assert WHOLE.merge(some) is WHOLE
    assert NOTHING.merge(NOTHING) is NOTHING


def test_only_events_are_kept_of_a_window_and_their_time_is_that_of_the_news() -> None:
    table = Claim("total", 8192, "table")
    kept = NOTHING.keep_events((table, REFUSAL), 3.0)
    assert (kept.claims, kept.at) == ((REFUSAL,), 3.0)
    assert kept.keep_events((REFUSAL, table), 9.0) is kept


def test_a_conversation_brings_its_calibration_to_a_process_that_has_none() -> None:
    world, history = World(window(100_000), learns=True), talk(40)
    first = prepare(world, history, ESTIMATING)
    world.observe(ESTIMATING, first, {"prompt_tokens": 1_500, "completion_tokens": 1})
    assert first.count.basis == "estimate"
    other = [*talk(1, 9), *history[1:]]  # nothing of it was reported: the ratio alone is known
    known = world.talks[first.conversation.scope, first.conversation.prefix]
    assert known.learned.calibration is not None
    prefix = prepare(World(world.window), other, ESTIMATING).conversation.prefix
    world.talks = {(known.scope, prefix): known}
    again = prepare(world, other, ESTIMATING)
    assert again.count.basis == "calibrated"
    ratio = again.count.tokens / first.count.tokens
    assert ratio == pytest.approx(1_500 / first.count.tokens, rel=0.1)


def test_a_conversation_brings_the_laws_that_its_model_taught() -> None:
    world, history = World(window(100_000), learns=True), talk(3)
    made = prepare(world, history, setup())
    known = replace(made.conversation, learned=Learned(laws=frozenset({"alternation"}), at=1.0))
    world.remember(known)
    assert not made.alternates
    assert prepare(world, history, setup()).alternates


# --- what only may not fit ------------------------------------------------------------------------


def test_where_only_the_upper_edge_does_not_fit_a_request_is_sent() -> None:
    world, given = World(window(500)), setup(scale=WIDE)
    history = [{"role": "user", "content": "word " * 300}]
    made = prepare(world, history, given)
    assert made.messages == history
    assert made.count.low < 500 <= made.count.high
    with pytest.raises(ContextTooLargeError):
        prepare(world, history, replace(given, strict=True))
    with pytest.raises(ContextTooLargeError, match="do not fit into 500"):
        prepare(world, [{"role": "user", "content": "word " * 1_100}], given)


# --- the breaker at the bound ---------------------------------------------------------------------


def stuck(more: int) -> list[dict[str, Any]]:
    """Return a history that does not fit, and that no compaction helps."""
    system = {"role": "system", "content": "s " * 1_700}
    added = [{"role": "developer", "content": f"more {n}"} for n in range(more)]
    return [system, {"role": "user", "content": "hi"}, *added]


def failures(made: Prepared) -> list[str]:
    return [e.reason.split(":")[0] for e in made.events if isinstance(e, CompactionFailed)]


def test_what_does_not_fit_is_compacted_whatever_the_breaker_says_once_anything_came() -> None:
    world = World(window(1_600, source="table"))
    for n in range(5):
        assert failures(prepare(world, stuck(n), setup())) == ["cannot_compact"]
    assert failures(prepare(world, stuck(4), setup())) == ["breaker_open"]
    assert failures(prepare(world, stuck(5), setup())) == ["cannot_compact"]


# --- what one event speaks for --------------------------------------------------------------------


def test_a_refusal_makes_a_bound_suspect_for_its_conversation_and_for_a_while() -> None:
    world, history = World(window(100_000, source="table")), talk(40)
    sent = prepare(world, history, setup())
    error = ErrorKind("input", sent.count.tokens - 50, sent.count.tokens, structured=True)
    made = world.drive(recover(setup(now=5.0), Request(history), sent, error))
    assert made.conversation.suspect == (sent.count.tokens - 50, 5.0)
    grown = [*history, *talk(2)[1:]]
    working = prepare(world, grown, setup(now=6.0)).window.working
    assert working is not None
    assert (working.tokens, working.name) == (sent.count.tokens - 50, "suspected")
    assert "--refresh" in working.describe()
    later = prepare(world, grown, setup(now=5.0 + PASSING_S))
    assert later.window.working is None


@pytest.mark.parametrize(
    ("known", "suspected"),
    [
        (Window(), True),
        (Window(10_000, source="listing"), True),
        (Window(10_000, source="override"), False),  # the operator knows better than one event
        (Window(4_000, source="listing"), False),
        (Window(10_000, source="listing", answered=4_096), True),  # it may be just as large
        (Window(10_000, source="listing", answered=4_097), False),
    ],
)
def test_a_bound_is_suspected_where_nothing_speaks_against_it(
    known: Window, suspected: bool
) -> None:
    found = known.suspect(4_096)
    assert (found.working is not None) == suspected
    assert found.input_tokens == known.input_tokens
    assert found.working_tokens == (4_096 if suspected else known.input_tokens)
    assert found.likely_tokens == found.working_tokens

"""What a response teaches the machine, and what it must not: driven by hand, over several calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ErrorKind
from ullage.core.guard import machine as guard
from ullage.core.guard.events import Answered, ContextPressure, Notice, TruncationDetected
from ullage.core.guard.learned import NOTHING
from ullage.core.guard.learning import LOOK
from ullage.core.guard.recovery import recover
from ullage.core.guard.request import NeedServerCount, Prepared, Request, Setup
from ullage.core.tokens.calibration import ReportedSize
from ullage.core.tokens.cost import Price
from ullage.core.tokens.counting import Scale
from ullage.core.tokens.window import resolve

GUESS = Scale(0.5, 1.0, 1.5)
ESTIMATING = setup(scale=GUESS)
WATCHING = setup(Policy.off())
MISSING = [None, {}, {"usage": None}, {"usage": {"prompt_tokens": 0}}, {"usage": {"x": "y"}}, 7]


def prepare(world: World, messages: Any, given: Setup | None = None, **options: Any) -> Prepared:
    return world.drive(guard.prepare(given or setup(), Request(messages, **options)))


def usage(prompt: int, **more: Any) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": 3}, **more}


def of(found: Any, kind: type[Any]) -> list[Any]:
    return [event for event in found.events if isinstance(event, kind)]


def asked(world: World) -> int:
    return sum(isinstance(need, NeedServerCount) for need in world.needs)


# --- one response ---------------------------------------------------------------------------------


def test_a_report_assesses_calibrates_and_fills_the_checkpoint() -> None:
    made = prepare(World(window(1500)), talk(24))
    seen = World(window(1500)).observe(setup(), made, usage(900))
    assert (seen.assessment.state, seen.assessment.input_tokens) == ("known", 900)
    assert seen.reading == ReportedSize(900, made.measured.total.best, made.measured.fixed.best)
    assert seen.checkpoint is not None
    assert seen.checkpoint.tokens_after_measured == 900
    assert [c.source for c in seen.evidence] == ["answer"]


def test_without_a_checkpoint_none_is_measured() -> None:
    made = prepare(World(window(10_000)), talk(3))
    assert World(window(10_000)).observe(setup(), made, usage(200)).checkpoint is None


@pytest.mark.parametrize("report", MISSING)
def test_a_missing_report_teaches_nothing(report: Any) -> None:
    made = prepare(World(window(1500)), talk(3))
    seen = World(window(1500)).observe(setup(), made, report)
    assert (seen.usage, seen.reading, seen.evidence, seen.events) == (None, None, (), ())
    assert seen.assessment == made.assessment
    assert seen.conversation == made.conversation


# --- from call to call ----------------------------------------------------------------------------


def test_between_calls_the_size_is_the_last_report_and_what_was_added() -> None:
    world, history = World(window(10_000)), talk(3)
    world.observe(ESTIMATING, prepare(world, history, ESTIMATING), usage(500))
    added = {"role": "user", "content": "one two three"}
    made = prepare(world, [*history, added], ESTIMATING)
    words = 4 + 3
    assert (made.count.low, made.count.tokens) == (500 + words // 2, 500 + words)
    assert made.count.high == 500 + 11
    assert made.count.basis == "calibrated"
    again = prepare(world, history, ESTIMATING)
    assert (again.count.tokens, again.count.basis) == (500, "server")
    assert again.assessment.state == "known"


@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=2, max_size=8),
    st.integers(0, 400),
)
def test_over_a_whole_conversation_every_size_is_the_servers_and_the_delta(
    turns: list[tuple[int, bool]], overhead: int
) -> None:
    world, history, last = World(window(10**6)), talk(1), None
    for words, missing in turns:
        made = prepare(world, history, ESTIMATING)
        whole = made.measured.raw().best
        if last is not None:
            reported, then = last
            assert made.count.tokens == reported + whole - then
            assert made.count.low <= whole + overhead <= made.count.high
        if not missing:
            last = whole + overhead, whole
        world.observe(ESTIMATING, made, None if missing else usage(whole + overhead))
        history = [*history, *talk(1, words)[2:]]


@pytest.mark.parametrize("report", MISSING)
def test_a_missing_report_does_not_clear_an_earlier_critical_reading(report: Any) -> None:
    world, history = World(window(10_000)), talk(3, 1500)
    seen = world.observe(WATCHING, prepare(world, history, WATCHING), usage(9300))
    assert of(seen, ContextPressure)[0].tier == "critical"
    history += talk(1)[2:]
    made = prepare(world, history, WATCHING)
    world.observe(WATCHING, made, report)
    then = prepare(world, [*history, *talk(1)[2:]], WATCHING)
    for after in (made, then):
        assert after.assessment.tier == "critical"
        assert after.count.tokens > 9300
        assert of(after, ContextPressure)[0].tier == "critical"
        assert of(after, Notice) == []


def changed_text(history: list[Any]) -> dict[str, Any]:
    history[3] = {"role": "user", "content": "something else " + "q " * 20}
    return {}


def changed_system(history: list[Any]) -> dict[str, Any]:
    history[0] = {"role": "system", "content": "Be brief. It is Tuesday."}
    return {}


def changed_tools(history: list[Any]) -> dict[str, Any]:
    return {"tools": [{"name": "ls"}]}


def changed_instructions(history: list[Any]) -> dict[str, Any]:
    return {"system": "You are a ship."}


@pytest.mark.parametrize(
    "change", [changed_text, changed_system, changed_tools, changed_instructions]
)
def test_the_report_is_out_of_use_after(change: Any) -> None:
    world, history = World(window(10_000)), talk(4)
    world.observe(setup(), prepare(world, history), usage(4000))
    options = change(history)
    made = prepare(world, history, **options)
    assert made.measured.anchor is None
    assert made.count.tokens < 500


def test_a_new_checkpoint_puts_the_report_out_of_use_until_the_next() -> None:
    world, history = World(window(1500)), talk(20)
    world.observe(setup(), prepare(world, history), usage(1150))
    history += talk(4)[2:]
    made = prepare(world, history)
    assert made.checkpoint is not None
    assert made.measured.anchor is None
    assert made.assessment.state == "estimated"
    world.observe(setup(), made, usage(700))
    then = prepare(world, [*history, {"role": "assistant", "content": "ok"}])
    assert then.replayed is not None
    assert then.measured.anchor is not None
    assert then.count.tokens == 700 + 5


def test_a_report_of_another_model_is_never_this_ones_size() -> None:
    world, history = World(window(10_000)), talk(4)
    one, other = (replace(setup(), model=name) for name in ("one", "other"))
    world.observe(one, prepare(world, history, one), usage(4000))
    assert prepare(world, history, other).count.tokens < 500
    assert prepare(world, history, one).count.tokens == 4000


def test_a_call_that_was_never_reported_leaves_the_last_report() -> None:
    world, history = World(window(10_000)), talk(3)
    world.observe(setup(), prepare(world, history), usage(500))
    longer = [*history, *talk(1)[2:]]
    once, again = prepare(world, longer), prepare(world, longer)
    assert once.count == again.count
    assert once.count.tokens > 500


def test_a_request_without_messages_can_be_observed() -> None:
    world = World(window(1000))
    made = prepare(world, [], system="Say hello.")
    seen = world.observe(setup(), made, usage(12))
    assert seen.assessment.input_tokens == 12
    assert prepare(world, talk(1)).measured.anchor is None


# --- when a server is asked to count --------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "words", "asks"),
    [
        (5000, 50, False),  # nowhere near an edge
        (7500, 50, False),  # advisory by both edges
        (6940, 100, True),  # none by one edge, advisory by the other
        (7930, 100, True),
        (9940, 100, True),
        (8500, 50, False),
    ],
)
def test_beside_a_report_the_server_counts_only_where_the_edges_call_for_two_things(
    reported: int, words: int, asks: bool
) -> None:
    given, history = setup(Policy.off(), scale=GUESS), talk(2, 800)
    world = World(window(10_000, source="table"), server=lambda _: 7777)
    world.observe(given, prepare(world, history, given), usage(reported))
    assert asked(world) == 0
    made = prepare(world, [*history, {"role": "user", "content": "w " * words}], given)
    assert asked(world) == asks
    assert (made.count.tokens == 7777) == asks


@pytest.mark.parametrize(("output", "asks"), [(4850, True), (4600, False), (5100, False)])
def test_beside_a_report_the_room_for_the_output_is_settled_by_the_server(
    output: int, asks: bool
) -> None:
    given, history = setup(Policy.off(), scale=GUESS), talk(2, 800)
    world = World(window(10_000, source="table"), server=lambda _: 5100)
    world.observe(given, prepare(world, history, given), usage(5000))
    longer = [*history, {"role": "user", "content": "w " * 200}]
    prepare(world, longer, given, max_tokens=output)
    assert asked(world) == asks


# --- what is believed -----------------------------------------------------------------------------


@pytest.mark.parametrize("reported", [10**12, 3 * 10_000, 800])
def test_a_report_outside_of_what_was_counted_teaches_nothing(reported: int) -> None:
    world, history = World(window(200_000)), talk(3, 1500)
    made = prepare(world, history)
    seen = world.observe(setup(), made, usage(reported))
    assert (seen.reading, seen.evidence, seen.checkpoint) == (None, (), None)
    assert seen.assessment == made.assessment
    assert [type(event) for event in seen.events] == [ContextPressure, Answered]
    assert seen.conversation.anchor is None
    again = prepare(world, [*history, {"role": "assistant", "content": "ok"}])
    assert again.measured.anchor is None
    assert again.assessment.tier == made.assessment.tier


@pytest.mark.parametrize(("factor", "added", "believed"), [(1, 9_000, True), (3, 0, False)])
def test_what_a_host_adds_to_each_prompt_is_believed_from_the_second_report_on(
    factor: int, added: int, believed: bool
) -> None:
    world, history = World(window(200_000)), talk(10, 500)
    for turn in range(3):
        made = prepare(world, history)
        whole = made.measured.raw().best
        seen = world.observe(setup(), made, usage(factor * whole + added))
        assert (seen.reading is not None) == (believed and turn > 0)
        history = [*history, *talk(2, 500)[2:]]
    assert (prepare(world, history).measured.anchor is not None) == believed


@pytest.mark.parametrize(
    "thought",
    [
        {"content": "so", "reasoning_content": "t " * 2000},
        {"content": f"<think>{'t ' * 2000}</think>so"},
    ],
    ids=["field", "text"],
)
@pytest.mark.parametrize("tokens", [7_500, 10_000])
def test_reasoning_that_the_server_drops_is_a_size_and_no_ratio(
    thought: dict[str, Any], tokens: int
) -> None:
    world, history = World(window(tokens)), talk(3, 1000)
    history = [*history[:-1], {"role": "assistant", **thought}, talk(1)[0]]
    made = prepare(world, history, WATCHING)
    seen = world.observe(WATCHING, made, usage(made.count.tokens - 2000))
    assert seen.assessment.input_tokens == made.count.tokens - 2000
    assert seen.reading is None
    assert of(seen, TruncationDetected) == []


def test_an_answer_is_evidence_where_it_is_the_largest() -> None:
    world, history = World(window(10_000)), talk(3, 1000)
    made = prepare(world, history)
    seen = world.observe(setup(), made, usage(6000))
    (claim,) = seen.evidence
    assert (claim.source, claim.tokens, claim.tools) == ("answer", 6000, False)
    assert claim.exchange
    world.window = replace(world.window, answered=6000)
    assert world.observe(setup(), prepare(world, history), usage(6000)).evidence == ()


# --- truncation and edits by the server -----------------------------------------------------------


def test_a_truncated_reading_neither_calibrates_nor_is_a_size() -> None:
    world, history = World(window(6_000)), talk(60, 40)
    made = prepare(world, history, WATCHING)
    seen = world.observe(WATCHING, made, usage(3000))
    assert (seen.reading, seen.checkpoint) == (None, None)
    assert seen.conversation.learned.claims == seen.evidence
    assert seen.conversation.suspect == (seen.evidence[0].tokens, 0.0)
    assert replace(seen.conversation, learned=NOTHING, suspect=None) == made.conversation
    assert seen.assessment == made.assessment
    (cut,) = of(seen, TruncationDetected)
    assert (cut.truncation.signs, cut.truncation.certain) == (("short",), False)
    (claim,) = seen.evidence
    assert (claim.source, claim.grounds, claim.reported) == ("truncation", "counted", 3000)
    assert claim.tokens == cut.truncation.limit < made.count.low
    assert of(seen, Notice) == []
    assert prepare(world, history, WATCHING).measured.anchor is None


def test_a_prompt_that_seems_cut_is_told_of_once_and_changes_nothing() -> None:
    world, history = World(window(6_000)), talk(60, 40)
    first = prepare(world, history, WATCHING)
    seen = world.observe(WATCHING, first, usage(3000))
    assert len(of(seen, TruncationDetected)) == 1
    world.window = resolve([*world.window.claims, *seen.evidence])
    again = prepare(world, history)
    assert again.window.input_tokens == first.window.input_tokens
    seen = world.observe(WATCHING, prepare(world, history, WATCHING), usage(3000))
    assert of(seen, TruncationDetected) == []


def test_a_number_that_only_a_cut_leaves_is_certain() -> None:
    world, history = World(window(None)), talk(60, 40)
    seen = world.observe(WATCHING, prepare(world, history, WATCHING), usage(2050))
    (cut,) = of(seen, TruncationDetected)
    assert cut.truncation.certain
    (claim,) = seen.evidence
    assert (claim.tokens, claim.grounds) == (4096, "structured")


def test_a_response_is_told_with_its_cost_where_prices_are_known() -> None:
    made = prepare(World(window(10_000)), talk(3))
    priced = setup(prices=(Price(0, 2.0, 8.0),), model="m")
    for asking, dollars in ((setup(), None), (priced, 900 * 2e-6 + 3 * 8e-6)):
        (answered,) = of(World(window(None)).observe(asking, made, usage(900)), Answered)
        assert (answered.usage.prompt_tokens, answered.model) == (900, asking.model)
        assert (answered.cost and answered.cost.total) == (dollars and pytest.approx(dollars))


def test_a_small_shortfall_is_none() -> None:
    made = prepare(World(window(10_000)), talk(3))
    seen = World(window(10_000)).observe(setup(), made, usage(20))
    assert of(seen, TruncationDetected) == []
    assert seen.reading is not None


@pytest.mark.parametrize(
    "edit",
    [
        {"truncation": "auto"},
        {"context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}},
    ],
)
def test_what_the_server_left_out_itself_is_no_truncation_and_no_size(edit: dict) -> None:
    world, history = World(window(10_000)), talk(60)
    made = prepare(world, history)
    seen = world.observe(setup(), made, usage(1000, **edit))
    assert of(seen, TruncationDetected) == []
    assert (seen.reading, seen.evidence) == (None, ())
    assert seen.assessment.input_tokens == 1000
    assert seen.conversation == made.conversation


@pytest.mark.parametrize(
    ("ratios", "believed"),
    [
        ((1.0, 2.5, 2.5), [True, False, True]),  # a vocabulary that is counted badly
        ((1.0, 2.5, 4.0, 4.9), [True, False, False, False]),  # sums over calls
        ((1.0, 0.1, 0.1, 0.1), [True, False, False, False]),  # uncached tokens alone
        ((1.0, 6.0, 6.0, 6.0), [True, False, False, False]),  # no vocabulary has that
    ],
)
def test_reports_that_grow_by_one_ratio_are_believed_at_the_second(
    ratios: tuple[float, ...], believed: list[bool]
) -> None:
    world, history = World(window(100_000)), talk(1, 300)
    reported, before, found = 0, 0, []
    for ratio in ratios:
        made = prepare(world, history)
        raw = made.measured.raw().best
        reported += round(ratio * (raw - before))
        before = raw
        seen = world.observe(setup(), made, usage(reported))
        found.append(seen.assessment.input_tokens == reported)
        history += talk(1, 300)[2:]
    assert found == believed


# --- what people are told -------------------------------------------------------------------------


def test_a_tier_is_told_once_whether_it_was_counted_or_reported() -> None:
    world, history, told = World(window(10_000, source="table")), talk(3, 800), []
    watching = setup(Policy.off(), scale=GUESS)
    for reported, grown in (
        *((5000, 600), (7200, 25), (7300, 200), (8100, 1), (8090, 280), (9200, 450)),
        (11_000, 0),
    ):
        made = prepare(world, history, watching)
        seen = world.observe(watching, made, usage(reported))
        told += of(made, Notice) + of(seen, Notice)
        history += talk(1, grown)[2:]
    assert [notice.text.split(" %")[0] for notice in told] == [
        f"Context window at {percent}" for percent in (72, 81, 92, 105)
    ]
    call = "ullage.compact(messages, window=10000, target_ratio=0.6, dry_run=True)"
    assert all(notice.text.endswith(f". {LOOK}{call}") for notice in told)


def test_the_tier_on_display_lingers_in_every_event() -> None:
    world, history = World(window(10_000)), talk(60, 58)
    world.observe(WATCHING, prepare(world, history, WATCHING), usage(9300))
    seen = world.observe(WATCHING, prepare(world, history, WATCHING), usage(9300))
    assert seen.conversation.shown.tier == "critical"
    longer = [*history, *talk(1, 1)[2:]]
    made = prepare(world, longer, WATCHING)
    for report, tier in ((usage(1000), "critical"), (usage(1000, truncation="auto"), "none")):
        (pressure,) = of(world.observe(WATCHING, made, report), ContextPressure)
        assert (pressure.tier, pressure.assessment.tier) == ("critical", tier)


def test_a_checkpoint_in_the_place_of_another_tells_a_tier_again() -> None:
    world, request = World(window(None)), Request(talk(24))
    sent = world.drive(guard.prepare(setup(), request))
    world.window = window(2000, source="table")
    error = ErrorKind("input", 800, sent.count.tokens)
    made = world.drive(recover(setup(), request, sent, error))
    first = world.observe(setup(), made, usage(1900))
    assert made.checkpoint is not None
    assert [n.text[:24] for n in of(first, Notice)] == ["Context window at 95 % ("]
    second = replace(made.checkpoint, generation=made.checkpoint.generation + 1)
    for checkpoint, told in ((made.checkpoint, 0), (second, 1)):
        again = replace(made, checkpoint=checkpoint, conversation=first.conversation)
        assert len(of(world.observe(setup(), again, usage(1900)), Notice)) == told


def test_an_unknown_window_tells_nothing() -> None:
    world = World(window(None))
    made = prepare(world, talk(3))
    seen = world.observe(setup(), made, usage(100))
    told = [type(e) for e in (*made.events, *seen.events)]
    assert told == [ContextPressure, ContextPressure, Answered]
    assert seen.assessment.tier == "unavailable"

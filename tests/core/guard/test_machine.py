"""The machine of the guard, driven by hand with a counter that anybody can check."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests import presets
from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.errors import (
    ConfigurationError,
    ContextTooLargeError,
    MalformedHistoryError,
)
from ullage.core.guard import machine as guard
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    ContextPressure,
    Notice,
    OverShare,
    Repaired,
)
from ullage.core.guard.request import (
    Need,
    NeedLoad,
    NeedSave,
    NeedServerCount,
    NeedSummaries,
    NeedSummariserWindow,
    Prepared,
    Request,
    Setup,
)
from ullage.core.guard.stages.compact import ROUNDS
from ullage.core.tokens.counting import Scale

GUESS = Scale(0.5, 1.0, 1.5)


def prepare(world: World, messages: Any, given: Setup | None = None, **options: Any) -> Prepared:
    return world.drive(guard.prepare(given or setup(), Request(messages, **options)))


def events(prepared: Prepared, kind: type[Any]) -> list[Any]:
    return [e for e in prepared.events if isinstance(e, kind)]


def test_a_request_below_the_ladder_goes_out_as_it_came() -> None:
    history = talk(2)
    made = prepare(World(window(10_000)), history, max_tokens=50)
    assert all(a is b for a, b in zip(made.messages, history, strict=True))
    assert (made.max_tokens, made.outcome, made.assessment.tier) == (50, None, "none")
    assert events(made, ContextPressure)


@pytest.mark.parametrize(("bound", "rung"), [(2000, 0.60), (1500, 0.60), (1300, 0.50)])
def test_pressure_is_brought_down_to_the_rungs_target(bound: int, rung: float) -> None:
    history = talk(24)
    size = prepare(World(window(10**6)), history).count.high
    made = prepare(World(window(bound)), history)
    assert 1200 < size < 1300
    if size / bound < 0.8:
        assert made.outcome is None
    else:
        assert made.count.high <= rung * bound
        assert events(made, Compacted)[0].checkpoint.tokens_before == size


def test_the_trigger_says_whether_the_window_was_critical() -> None:
    pressed = prepare(World(window(1500)), talk(24)).checkpoint
    critical = prepare(World(window(1300)), talk(24)).checkpoint
    assert pressed is not None
    assert critical is not None
    assert (pressed.trigger, critical.trigger) == ("pressure", "preflight")


def test_a_known_prefix_is_replayed_and_not_planned_again() -> None:
    world, history = World(window(1500)), talk(24)
    first = prepare(world, history)
    again = prepare(world, copy.deepcopy(history))
    assert again.messages == first.messages
    assert again.outcome is None
    assert again.replayed == first.checkpoint


def test_a_longer_history_keeps_the_bytes_of_its_checkpoint() -> None:
    world, history = World(window(1500)), talk(24)
    first = prepare(world, history)
    longer = prepare(world, [*history, {"role": "assistant", "content": "more"}])
    assert longer.messages[: len(first.messages)] == first.messages
    assert longer.outcome is None


def test_the_next_compaction_builds_on_the_checkpoint_before() -> None:
    world = World(window(1500))
    first = prepare(world, talk(24)).checkpoint
    second = prepare(world, talk(40)).checkpoint
    assert first is not None
    assert second is not None
    assert second.generation == first.generation + 1
    assert second.script.drops > first.script.drops


def test_an_altered_earlier_message_leaves_its_checkpoint_behind() -> None:
    world, history = World(window(1500)), talk(24)
    prepare(world, history)
    history[3] = {"role": "user", "content": "something else " + "q " * 20}
    assert prepare(world, history).replayed is None


def test_a_changed_system_prompt_keeps_the_checkpoint() -> None:
    world, history = World(window(1500)), talk(24)
    prepare(world, history)
    history[0] = {"role": "system", "content": "Be brief. It is Tuesday."}
    made = prepare(world, history)
    assert made.replayed is not None
    assert made.messages[0] is history[0]


def test_a_smaller_window_plans_the_same_history_again() -> None:
    world, history = World(window(1500)), talk(24)
    prepare(world, history)
    world.window = window(700)
    made = prepare(world, history)
    assert made.count.high <= 0.6 * 700


def test_a_lost_race_takes_the_winners_bytes() -> None:
    history = talk(24)
    winner = prepare(World(window(1000)), history).checkpoint
    assert winner is not None

    class Race(World):
        def answer(self, need: Need) -> Any:
            if isinstance(need, NeedSave):
                return winner
            return super().answer(need)

    made = prepare(Race(window(1500)), history)
    alone = prepare(World(window(1000)), history)
    assert made.messages == alone.messages
    assert made.checkpoint is winner
    assert made.count == alone.count


def test_a_compaction_that_changes_nothing_is_said() -> None:
    pinned = [{"role": "system", "content": "s " * 1500}, {"role": "user", "content": "hi"}]
    made = prepare(World(window(1600, source="table")), pinned)
    assert made.messages == pinned
    assert "cannot_compact" in events(made, CompactionFailed)[0].reason


def test_a_broken_law_is_named_in_the_event() -> None:
    class Deaf(type(setup().codec)):  # type: ignore[misc]  # the codec's own class
        def rewrite(self, raw: Any, parts: Any, calls: Any) -> Any:
            return {"role": "assistant", "content": None, "tool_calls": []} | {"role": "tool"}

    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "r " * 900},
        {"role": "user", "content": "go on"},
    ]
    broken = replace(setup(), codec=Deaf())
    made = prepare(World(window(1100, source="table")), history, broken)
    assert "law_broken: protocol" in events(made, CompactionFailed)[0].reason
    assert made.messages == history


def test_an_unknown_window_changes_nothing_and_gauges_nothing() -> None:
    made = prepare(World(window(None)), talk(200), max_tokens=10**6)
    assert made.outcome is None
    assert made.assessment.tier == "unavailable"
    assert made.max_tokens == 10**6


def test_a_policy_that_is_off_changes_nothing() -> None:
    made = prepare(World(window(1500)), talk(24), setup(Policy.off()))
    assert (made.outcome, made.assessment.tier) == (None, "warning")


def test_what_does_not_fit_is_refused_against_a_proven_bound() -> None:
    history = [{"role": "user", "content": "w " * 500}]
    with pytest.raises(ContextTooLargeError, match="do not fit into 400") as caught:
        prepare(World(window(400)), history)
    assert (caught.value.bound, caught.value.tokens) == (400, 507)
    assert "the largest message is user at position 0" in str(caught.value)


def test_what_does_not_fit_a_listed_bound_is_sent_to_learn() -> None:
    history = [{"role": "user", "content": "w " * 1500}]
    listed = World(window(1400, source="table"))
    assert prepare(listed, history).messages == history
    with pytest.raises(ContextTooLargeError):
        prepare(listed, history, setup(strict=True))


def test_an_empty_history_that_does_not_fit_is_explained_too() -> None:
    with pytest.raises(ContextTooLargeError, match="outside the list 107"):
        prepare(World(window(100)), [], system="s " * 100)


def test_max_tokens_is_clamped_to_the_room() -> None:
    made = prepare(World(window(1000)), [{"role": "user", "content": "w " * 493}], max_tokens=900)
    assert made.max_tokens == 500
    assert "lowered from 900 to 500" in events(made, Notice)[0].text


def test_room_for_the_output_is_made_where_the_floor_does_not_fit() -> None:
    policy = Policy(rungs=(Rung(0.9, 0.6, ("trim_oldest",)),), min_output=400)
    made = prepare(World(window(1500)), talk(24), setup(policy), max_tokens=600)
    assert made.outcome is not None
    assert made.count.high + 400 <= 1500


def test_room_for_the_output_is_made_also_behind_a_settled_checkpoint() -> None:
    policy = Policy(rungs=(Rung(0.8, 0.79, ("trim_oldest",)),), min_output=450)
    world, history = World(window(1500)), talk(24)
    assert prepare(world, history, setup(policy)).count.high > 1051
    made = prepare(world, history, setup(policy), max_tokens=600)
    assert made.count.high + 450 <= 1500


def test_the_floor_of_the_output_defaults_to_an_eighth() -> None:
    fits = prepare(World(window(1500)), talk(24), setup(Policy.advisory()), max_tokens=900)
    made = prepare(World(window(1420)), talk(24), setup(Policy.advisory()), max_tokens=900)
    assert (fits.outcome, fits.max_tokens) == (None, 232)
    assert made.outcome is not None


def test_a_listed_total_keeps_the_floor_of_the_output() -> None:
    history = [{"role": "user", "content": "w " * 1380}]
    listed = World(window(1400, source="table"))
    assert prepare(listed, history, max_tokens=500).max_tokens == 175


@pytest.mark.parametrize("pins", [{5}, {-1}])
def test_pins_outside_the_history_are_refused(pins: set[int]) -> None:
    with pytest.raises(ConfigurationError, match="but the 2 messages are at 0 to 1"):
        prepare(World(window(100)), talk(0), pins=frozenset(pins))


@pytest.mark.parametrize("asked", [0, -3, True, 1.5, "8"])
def test_a_senseless_max_tokens_is_refused(asked: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_tokens must be a positive number"):
        prepare(World(window(100)), talk(0), max_tokens=asked)


def test_what_is_no_list_is_refused_by_the_codec() -> None:
    with pytest.raises(MalformedHistoryError, match="must be a list"):
        prepare(World(window(100)), None)


def test_pins_survive_also_behind_a_checkpoint() -> None:
    world, history = World(window(1500)), talk(24)
    prepare(world, history, pins=frozenset({6}))
    made = prepare(world, [*history, *talk(20)[2:]], pins=frozenset({6}))
    assert made.checkpoint is not None
    assert any(m is history[6] for m in made.messages)


def test_what_is_pinned_late_comes_back() -> None:
    world, history = World(window(1500)), talk(24)
    first = prepare(world, history)
    assert not any(m is history[6] for m in first.messages)
    made = prepare(world, history, pins=frozenset({6}))
    assert any(m is history[6] for m in made.messages)
    again = prepare(world, history, pins=frozenset({6}))
    assert (again.messages, again.outcome) == (made.messages, None)


def test_a_broken_history_is_repaired_and_said() -> None:
    history = [*talk(1), {"role": "tool", "tool_call_id": "x", "content": "orphan"}]
    made = prepare(World(window(10_000)), history)
    assert made.messages == history[:-1]
    assert events(made, Repaired)[0].repairs[0].fault == "orphan_result"


# --- sections of the window -------------------------------------------------------------------

SHARES = {"system_prompt": 0.1, "tools": 0.1, "knowledge": 0.1, "conversation": 0.6}
BUDGET = replace(setup(), shares={**SHARES, "output_buffer": 0.1})


def looked_up(entries: int) -> list[dict[str, Any]]:
    """Return a history with so many retrieved texts of 104 tokens in front of its question."""
    found = [{"role": "user", "content": f"page {n} " + "k " * 98} for n in range(entries)]
    return [*talk(1), *found, {"role": "user", "content": "and now?"}]


def test_a_section_over_its_share_is_told_with_its_overrun() -> None:
    history = [{"role": "system", "content": "s " * 300}, *talk(2)[1:]]
    made = prepare(World(window(2000)), history, BUDGET)
    (over,) = events(made, OverShare)[0].overruns
    assert (over.section, over.over) == ("system_prompt", 300 + 4 + 3 - 200)
    assert made.messages == history


def test_knowledge_over_its_share_goes_before_any_talk_oldest_first() -> None:
    history = looked_up(6)
    marks = dict.fromkeys(range(4, 10), "knowledge")
    made = prepare(World(window(3000)), history, BUDGET, sections=marks)
    kept = [m["content"][:6] for m in made.messages if str(m["content"]).startswith("page")]
    assert kept == ["page 4", "page 5"]
    assert all(any(m is mine for m in made.messages) for mine in (*history[:4], history[-1]))
    assert events(made, OverShare) == []
    again = prepare(World(window(3000)), history, setup(), sections=marks)
    assert again.messages == history


def test_without_a_window_no_section_is_over_its_share() -> None:
    made = prepare(World(window(None)), looked_up(6), BUDGET, sections={4: "knowledge"})
    assert events(made, OverShare) == []


@pytest.mark.parametrize("sections", [{9: "knowledge"}, {0: "attic"}, {0: "output_buffer"}])
def test_a_mark_on_nothing_is_refused(sections: dict[int, str]) -> None:
    with pytest.raises(ConfigurationError, match="sections"):
        prepare(World(window(1000)), talk(0), BUDGET, sections=sections)


# --- estimates and the server's own count -----------------------------------------------------


def test_an_estimate_far_from_the_ladder_asks_no_server() -> None:
    world = World(window(10_000), server=lambda _: 1)
    prepare(world, talk(5), setup(scale=GUESS))
    assert not [n for n in world.needs if isinstance(n, NeedServerCount)]


def test_near_the_ladder_the_servers_own_count_decides() -> None:
    world = World(window(1700), server=lambda _: 600)
    made = prepare(world, talk(24), setup(scale=GUESS))
    assert made.outcome is None
    assert (made.count.tokens, made.count.basis) == (600, "server")


def test_a_server_that_cannot_count_leaves_the_estimate() -> None:
    made = prepare(World(window(1700)), talk(24), setup(scale=GUESS))
    assert made.count.basis == "estimate"
    assert made.outcome is not None


def test_a_plan_over_the_target_by_the_servers_count_is_tightened() -> None:
    def server(messages: list[Any]) -> int:
        return 400 + 5 * len(str(messages)) // 12

    world = World(window(1900), server=server)
    made = prepare(world, talk(24), setup(scale=GUESS))
    assert made.count.basis == "server"
    assert made.count.tokens <= 0.5 * 1900
    assert made.outcome is not None
    assert made.outcome.reached


def test_tightening_ends_where_nothing_gets_smaller() -> None:
    world = World(window(1900), server=lambda sent: 1800 if len(sent) == 50 else 1700)
    made = prepare(world, talk(24), setup(scale=GUESS))
    asked = [n for n in world.needs if isinstance(n, NeedServerCount)]
    assert len(asked) <= 2 + ROUNDS
    assert made.outcome is not None
    assert not made.outcome.reached


def test_a_miss_too_small_to_plan_otherwise_is_left() -> None:
    world = World(window(1900), server=lambda sent: 1800 if len(sent) == 50 else 951)
    made = prepare(world, talk(24), setup(scale=GUESS))
    assert len([n for n in world.needs if isinstance(n, NeedServerCount)]) <= 3
    assert made.outcome is not None
    assert not made.outcome.reached


def test_room_for_the_output_is_judged_by_the_servers_count_too() -> None:
    world = World(window(3000), server=lambda _: 900)
    made = prepare(world, talk(24), setup(scale=GUESS), max_tokens=2000)
    assert made.max_tokens == 2000
    assert made.count.basis == "server"


# --- summaries --------------------------------------------------------------------------------


GOAL = "Goal:\n- count."


def test_a_summary_takes_the_middles_place() -> None:
    world = World(window(1300), summary=GOAL)
    made = prepare(world, talk(24), setup(summariser=True))
    assert made.checkpoint is not None
    assert any(m["content"] == made.checkpoint.summary for m in made.messages)
    assert made.checkpoint.summary.endswith(f"\n{GOAL}")
    assert made.checkpoint.strategy.startswith("summarise_middle")
    assert made.checkpoint.fallback_reason is None
    assert made.checkpoint.seen == 1.0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "summariser_failed"),
        ("  ", "summary_empty"),
        ("w " * 5000, "summary_malformed"),
        ("Goal:\n- " + "w " * 200, "summary_inflated"),
    ],
)
def test_a_useless_summary_is_replaced_by_rule_with_the_reason(
    answer: str | None, reason: str
) -> None:
    made = prepare(World(window(1300), summary=answer), talk(24), setup(summariser=True))
    alone = Policy(rungs=(Rung(0.9, 0.5, ("summarise_middle",)),))
    by_rule = prepare(World(window(1300)), talk(24), setup(alone))
    assert made.checkpoint is not None
    assert made.checkpoint.fallback_reason == reason
    assert "Last words of the assistant:" in made.checkpoint.summary
    assert made.messages == by_rule.messages


def test_a_summary_that_was_paid_for_stays_where_the_servers_count_tightens_the_plan() -> None:
    def count(sent: list[Any]) -> int:
        return 340 + int(sum(len(m["content"].split()) for m in sent) * 1.5)

    world = World(window(1600), server=count, summary=f"{GOAL}\n- weigh.")
    made = prepare(world, talk(24), setup(summariser=True, scale=GUESS))
    assert made.outcome is not None
    assert made.outcome.reached
    assert "- weigh." in made.outcome.block
    counts = [n for n in world.needs if isinstance(n, NeedServerCount)]
    assert len(counts) > 2
    assert len([n for n in world.needs if isinstance(n, NeedSummaries)]) == 1


def test_a_summariser_is_asked_within_its_own_window() -> None:
    world = World(window(3000), summary=GOAL, room=900)
    made = prepare(world, talk(60), setup(summariser=True))
    asked = [r for need in world.needs if isinstance(need, NeedSummaries) for r in need.requests]
    assert len(asked) > 1
    count = setup().meter.counter.count
    assert max(count(r.system) + count(r.prompt) + r.max_tokens for r in asked) <= 900
    assert made.checkpoint is not None
    assert made.checkpoint.strategy.startswith("hierarchical")


def test_a_rung_without_a_summary_asks_nobody() -> None:
    world = World(window(1500), summary=GOAL)
    made = prepare(world, talk(24), setup(summariser=True))
    assert made.checkpoint is not None
    assert not [n for n in world.needs if isinstance(n, NeedSummaries | NeedSummariserWindow)]


# --- summaries made ahead -------------------------------------------------------------------------

AHEAD = setup(replace(Policy.ladder(), background=True), summariser=True, background=True)


def ahead(world: World, messages: Any, given: Setup = AHEAD) -> Prepared:
    """Drive a background summary; what it returns is not to be sent, nor remembered."""
    talks = dict(world.talks)
    made = world.drive(guard.prepare_ahead(given, Request(messages)))
    world.talks = talks
    return made


def test_the_rung_below_waits_for_a_summary_in_the_background() -> None:
    world, history = World(window(1500), summary=GOAL), talk(24)
    waiting = prepare(world, history, AHEAD)
    assert (waiting.ahead, waiting.outcome, waiting.messages) == (True, None, history)
    assert events(waiting, CompactionFailed) == []
    alone = prepare(World(window(1500)), history, setup(summariser=True))
    assert (alone.ahead, alone.outcome is None) == (False, False)


def test_a_summary_made_ahead_is_replayed_for_exactly_its_prefix() -> None:
    world, history = World(window(1500), summary=GOAL), talk(24)
    prepare(world, history, AHEAD)
    made = ahead(world, history).checkpoint
    assert made is not None
    assert made.summary.endswith(f"\n{GOAL}")
    assert made.tokens_after <= 0.5 * 1500
    grown = [*history, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "on"}]
    then = prepare(world, grown, AHEAD)
    assert (then.replayed, then.outcome, then.ahead) == (made, None, False)
    assert then.messages[-2:] == grown[-2:]
    altered = [*history[:5], {"role": "user", "content": "other " + "q " * 20}, *history[6:]]
    assert prepare(world, altered, AHEAD).replayed is None


def test_a_summary_that_never_came_is_asked_for_at_its_own_rung() -> None:
    world = World(window(1300), summary=GOAL)
    made = prepare(world, talk(24), AHEAD)
    assert made.checkpoint is not None
    assert made.checkpoint.summary.endswith(f"\n{GOAL}")


@pytest.mark.parametrize("given", [replace(AHEAD, background=False), setup(background=True)])
def test_nothing_waits_unless_both_the_driver_and_the_policy_say_so(given: Setup) -> None:
    made = prepare(World(window(1500), summary=GOAL), talk(24), given)
    assert (made.ahead, made.outcome is None) == (False, False)


def test_a_policy_without_summaries_waits_for_none_and_makes_none() -> None:
    policy = replace(presets.trim(), background=True)
    given = setup(policy, background=True, summariser=True)
    assert not prepare(World(window(1500)), talk(24), given).ahead
    world = World(window(1500), summary=GOAL)
    assert ahead(world, talk(24), given).outcome is None
    unknown = World(window(None), summary=GOAL)
    assert ahead(unknown, talk(24)).outcome is None


def test_a_summary_made_ahead_refuses_nothing() -> None:
    given = replace(AHEAD, strict=True)
    history = [{"role": "user", "content": "w " * 1600}]
    assert ahead(World(window(1500, source="table")), history, given).outcome is None


# --- the records ------------------------------------------------------------------------------


def test_the_store_is_asked_newest_prefix_first() -> None:
    world = World(window(10_000))
    prepare(world, talk(2))
    (asked,) = [n for n in world.needs if isinstance(n, NeedLoad)]
    assert len(asked.prefixes) == 6
    later = World(window(10_000))
    prepare(later, talk(3))
    (longer,) = [n for n in later.needs if isinstance(n, NeedLoad)]
    assert longer.prefixes[2:] == asked.prefixes


def test_checkpoints_survive_as_plain_data() -> None:
    made = prepare(World(window(1500)), talk(24)).checkpoint
    assert made is not None
    assert Checkpoint.from_dict(made.to_dict()) == made


def test_a_broken_history_is_repaired_where_a_compaction_is_due_and_else_left() -> None:
    history, kept = talk(8), replace(setup(), repairs=False)
    history.insert(4, {"role": "tool", "tool_call_id": "gone", "content": "x " * 9})
    left = prepare(World(window(10_000)), history, kept)
    assert all(a is b for a, b in zip(left.messages, history, strict=True))
    assert not events(left, Repaired)
    world = World(window(100))
    made = prepare(world, history, kept)
    assert events(made, Repaired)
    assert events(made, Compacted)
    assert history[4] not in made.messages
    assert prepare(world, history, kept).messages == made.messages


def test_a_broken_history_stays_where_a_pin_is_on_what_would_be_repaired() -> None:
    history, kept = talk(8), replace(setup(), repairs=False, refuses=False)
    history.insert(4, {"role": "tool", "tool_call_id": "gone", "content": "x " * 9})
    made = prepare(World(window(100)), history, kept, pins=frozenset({4}))
    assert history[4] in made.messages
    assert not events(made, Repaired)
    steps = guard.prepare_compacted(kept, Request(history, pins=frozenset({4})), 60)
    assert history[4] in World(window(100)).drive(steps).messages


def result(of: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": "x " * 9}


@pytest.mark.parametrize("places", [(18,), (4, 7), (4, 7, 10, 13)])
def test_results_that_nobody_answered_or_that_are_many_make_no_repair(places: Any) -> None:
    """Their calls stand where a proxy does not see them, or they are news."""
    history, kept = talk(8), replace(setup(), repairs=False, refuses=False)
    for place in places:
        history.insert(place, result(f"gone {place}"))
    made = prepare(World(window(100)), history, kept)
    assert not events(made, Repaired)
    assert history[-1] in made.messages


def test_what_was_repaired_and_compacted_once_stays_so_though_all_would_fit() -> None:
    history, kept = talk(8), replace(setup(), repairs=False)
    history.insert(4, result("gone"))
    world = World(window(200))
    made = prepare(world, history, kept)
    longer = [*history, {"role": "assistant", "content": "so"}, {"role": "user", "content": "on"}]
    later = prepare(world, longer, kept)
    assert later.messages[: len(made.messages)] == made.messages
    assert len(later.messages) == len(made.messages) + 2


@pytest.mark.parametrize(
    "steps", [guard.prepare_ahead, lambda kept, asked: guard.prepare_compacted(kept, asked, 60)]
)
def test_what_is_compacted_by_hand_or_ahead_is_repaired_first(steps: Any) -> None:
    history, kept = talk(8), replace(setup(), repairs=False)
    history.insert(4, {"role": "tool", "tool_call_id": "gone", "content": "x " * 9})
    made = World(window(10_000)).drive(steps(kept, Request(history)))
    assert history[4] not in made.messages

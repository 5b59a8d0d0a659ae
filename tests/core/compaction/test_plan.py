"""One pass of compaction on histories small enough to follow, counted in words."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core.compaction.situations import said, tool_step, words
from tests.core.guard.driving import setup, talk
from ullage.core.compaction.block import SPOKEN
from ullage.core.compaction.edits import reference
from ullage.core.compaction.plan import Order, Outcome, PaidProse, compact, make_checkpoint
from ullage.core.compaction.situation import CUT_MARK, Keep
from ullage.core.compaction.strategies import find
from ullage.core.compaction.strategies.knowledge import leave_out
from ullage.core.facts import extract as facts
from ullage.core.summary.question import Answer, SummaryRequest
from ullage.core.tokens.counting import measure

BOTH: tuple[str, ...] = ("clear", "trim_oldest")
ALL: tuple[str, ...] = ("summarise_middle", *BOTH)


def run(
    history: list[Any],
    order: Order,
    answer: str | Callable[[SummaryRequest], str] | None = None,
    asked: list[SummaryRequest] | None = None,
) -> Outcome:
    """Return what comes of a compaction whose every request gets this answer; `asked` has them."""
    given = setup()
    transcript = given.codec.read(history)
    measured = measure(transcript, given.meter)
    steps = compact(transcript, measured, given.meter, given.codec, order)
    try:
        requests = next(steps)
        while True:
            assert all(isinstance(request, SummaryRequest) for request in requests)
            if asked is not None:
                asked += requests
            texts = [answer(r) if callable(answer) else answer for r in requests]
            requests = steps.send([None if text is None else Answer(text) for text in texts])
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def tool_run(steps: int, words: int = 100) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Mend the leak."}]
    for step in range(steps):
        function = {"name": "read", "arguments": "{}"}
        call = {"id": f"c{step}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"step {step} " + "w " * words
        history.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return history


def texts(outcome: Outcome) -> list[str]:
    return [m.text for m in outcome.edited.transcript.messages]


def test_a_transcript_on_target_is_left_alone() -> None:
    history = talk(3)
    made = run(history, Order(10_000, 1000, BOTH))
    assert (made.changed, made.reached, made.reason) == (False, True, "nothing_to_compact")
    assert all(a is b for a, b in zip(made.edited.transcript.raws, history, strict=True))


def test_old_results_are_cleared_before_anything_is_dropped() -> None:
    made = run(tool_run(20), Order(1500, 400, BOTH))
    assert (made.strategy, made.reached) == ("clear", True)
    assert not made.script.drops
    assert "[ullage: result of read cleared" in texts(made)[2]
    assert "w w w" in texts(made)[-1]


def test_every_edited_message_is_listed_with_its_strategy_and_sizes() -> None:
    history = tool_run(20)
    made = run(history, Order(600, 150, BOTH))
    changes = {change.position: change for change in made.changes()}
    assert sorted(changes) == sorted({*made.script.drops, *(c.message for c in made.script.clears)})
    for place, change in changes.items():
        assert change.message.text == (history[place]["content"] or "")
        assert (change.after is None) == (place in made.script.drops)
        assert change.after is None or change.after < change.before
        assert change.strategy in ("clear", "trim_oldest", "excerpt")
    assert {change.strategy for change in changes.values()} >= {"clear", "trim_oldest"}
    assert list(run(talk(3), Order(10_000, 1000, BOTH)).changes()) == []


def test_units_are_trimmed_where_clearing_is_not_enough() -> None:
    made = run(tool_run(60), Order(900, 400, BOTH))
    assert (made.strategy, made.reached) == ("clear+trim_oldest", True)
    assert texts(made)[0] == "Mend the leak."


def test_a_tail_that_is_too_long_for_the_target_is_lowered() -> None:
    made = run(tool_run(20), Order(400, 5000, BOTH))
    assert made.reached


def test_a_newest_result_too_big_for_the_target_keeps_head_and_tail() -> None:
    history = tool_run(3)
    history[-1]["content"] = "first line " + "w " * 3000 + "last line"
    made = run(history, Order(700, 200, BOTH))
    newest = texts(made)[-1]
    assert made.reached
    assert newest.startswith("first line")
    assert newest.endswith("last line")
    assert "tokens left out here" in newest


def test_a_history_without_anything_to_carry_fills_its_target() -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Count with me."}]
    for n in range(200):
        history.append({"role": "assistant", "content": "yes"})
        history.append({"role": "user", "content": f"question {n}"})
    made = run(history, Order(1000, 100, BOTH))
    assert made.reached
    assert made.after.high > 950


def test_rules_of_old_messages_outlive_them() -> None:
    history = talk(30)
    history[3]["content"] = "Never touch main.py. " + "and so on " * 40
    made = run(history, Order(600, 100, BOTH))
    assert 3 in made.script.drops
    (kept,) = [t for t in texts(made) if "Never touch main.py." in t]
    assert kept == made.block
    assert "\nRules and decisions, in the user's words:\n- Never touch main.py.\n" in kept
    assert made.carried is not None
    assert made.carried.facts.constraints == ("Never touch main.py.",)


def test_what_must_stay_alone_over_the_target_is_said() -> None:
    made = run([{"role": "system", "content": "w " * 500}, *talk(10)[1:]], Order(100, 50, BOTH))
    assert (made.reached, made.reason) == (False, "cannot_compact")
    assert made.changed


def test_nothing_but_what_must_stay_is_left_as_it_is() -> None:
    made = run([{"role": "user", "content": "w " * 500}], Order(100, 50, BOTH))
    assert (made.changed, made.reached, made.reason) == (False, False, "cannot_compact")


def test_a_target_just_out_of_reach_gives_the_smallest_lawful_result() -> None:
    history = tool_run(5, words=300)
    made = run(history, Order(60, 50, BOTH))
    assert (made.changed, made.reached, made.reason) == (True, False, "cannot_reach_target")
    assert [m["role"] for m in made.edited.transcript.raws] == ["user", "assistant", "tool"]


def test_without_strategies_nothing_changes_and_that_is_said() -> None:
    made = run(talk(10), Order(100, 50, ()))
    assert (made.changed, made.reached, made.reason) == (False, False, "nothing_to_compact")


def test_a_summary_stands_behind_the_task_in_the_middles_place() -> None:
    order = Order(700, 200, ALL, summariser=True)
    made = run(talk(40), order, "Goal: count on.")
    assert (made.reached, made.fallback_reason) == (True, None)
    assert texts(made)[1] == "The task is to count."
    assert texts(made)[2] == made.block
    assert made.block.endswith("[end of facts]\nGoal:\n- count on.")


def test_without_a_summariser_others_run_that_fill_the_target_better() -> None:
    made, without = run(talk(40), Order(700, 200, ALL)), run(talk(40), Order(700, 200, BOTH))
    assert made.fallback_reason == "no_summariser"
    assert without.fallback_reason is None
    assert made.strategy == "trim_oldest"
    assert made.script == without.script
    assert made.after.high >= 0.9 * 700


def test_without_a_summariser_and_others_the_summary_is_by_rule() -> None:
    made = run(talk(40), Order(700, 200, ("summarise_middle",)))
    assert made.fallback_reason == "no_summariser"
    assert texts(made)[2] == made.block
    last = max(made.script.drops - {43})
    words = [m["content"].split(" a")[0] for m in talk(40)[: last + 1] if m["role"] == "assistant"]
    assert f'{SPOKEN}\n- "{words[-2]} a' in made.block
    assert f'\n- "{words[-1]} a' in made.block


@pytest.mark.parametrize("cut", [False, True])
def test_beside_a_summary_the_newest_step_comes_back_with_its_results_cut(*, cut: bool) -> None:
    old = CUT_MARK.format(tokens=9, named="; recall u:0123456789abcdef") if cut else ""
    history = [*talk(1), *(m for n in range(6) for m in tool_step(f"c{n}", words(900) + old))]
    history += [said("assistant", "Seen."), said("user", "And now?")]
    made = run(history, Order(1_000, 200, ALL, summariser=True), "Goal: look at all of it.")
    assert made.reached
    names = [m["tool_call_id"] for m in made.edited.transcript.raws if m["role"] == "tool"]
    assert names == ([] if cut else ["c5"])  # what was cut before is not cut again
    assert (made.after.high >= 950) is not cut


def test_a_middle_too_small_to_pay_is_not_summarised() -> None:
    made = run(talk(4), Order(215, 20, ALL))
    assert "summarise_middle" not in made.strategy


def test_an_earlier_summary_is_carried_into_the_next() -> None:
    first = run(talk(40), Order(700, 200, ALL, summariser=True), "Goal: keep the cellar dry.")
    grown = [*first.edited.transcript.raws, *talk(30)[2:]]
    second = run(grown, Order(700, 200, ALL))
    assert any("keep the cellar dry" in t for t in texts(second))
    assert sum(t.startswith("[ullage: summary of") for t in texts(second)) == 1


def test_a_summary_outlives_a_trim() -> None:
    first = run(talk(40), Order(700, 200, ALL, summariser=True), "Goal: keep the cellar dry.")
    grown = [*first.edited.transcript.raws, *talk(30)[2:]]
    made = run(grown, Order(600, 100, BOTH))
    assert any("keep the cellar dry" in t for t in texts(made))


@pytest.mark.parametrize("strategies", [BOTH, ALL])
def test_an_empty_transcript_cannot_be_compacted(strategies: tuple[str, ...]) -> None:
    given = setup()
    transcript = given.codec.read([])
    measured = measure(transcript, given.meter, system="s " * 50)
    steps = compact(transcript, measured, given.meter, given.codec, Order(10, 5, strategies))
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.reason == "cannot_compact"


# --- summaries: by whom, of what, in which form ---------------------------------------------------

GOOD = "Goal:\n- count on.\nDone:\n- counted."


def test_a_summary_of_a_summary_is_never_asked_for_but_brought_up_to_date() -> None:
    order = Order(900, 200, ALL, summariser=True)
    first = run(talk(40), order, "Goal:\n- keep the cellar dry.")
    grown = [*first.edited.transcript.raws, *talk(30)[2:]]
    asked: list[SummaryRequest] = []
    second = run(grown, order, GOOD, asked)
    assert second.strategy.startswith("incremental")
    assert all("[ullage: summary of" not in request.prompt for request in asked)
    assert "<record>\nGoal:\n- keep the cellar dry.\n</record>" in asked[0].prompt
    assert second.block.endswith("\nGoal:\n- count on.\nDone:\n- counted.")


def test_what_is_larger_than_the_window_is_summarised_in_pieces_and_joined() -> None:
    asked: list[SummaryRequest] = []
    order = Order(2000, 200, ALL, summariser=True, window=4000)
    made = run(talk(130), order, GOOD, asked)
    assert (made.reached, made.fallback_reason) == (True, None)
    assert made.strategy.startswith("hierarchical")
    assert made.written is not None
    assert made.written.levels[0] == 3
    assert made.written.levels == tuple(Counter(r.level for r in asked).values())
    count = setup().meter.counter.count
    assert max(count(r.system) + count(r.prompt) + r.max_tokens for r in asked) <= 4000


def test_a_summariser_that_fails_leaves_the_block_by_rule_and_says_why() -> None:
    order = Order(700, 200, ALL, summariser=True)
    failed, by_rule = run(talk(40), order), run(talk(40), Order(700, 200, ("summarise_middle",)))
    assert failed.fallback_reason == "summariser_failed"
    assert failed.strategy.startswith("summarise_middle")
    assert failed.block == by_rule.block


def test_a_policy_without_a_block_carries_nothing_and_still_compacts() -> None:
    made = run(talk(40), Order(700, 200, BOTH, carry=0.0))
    assert (made.block, made.carried, made.script.inserts) == ("", None, ())
    assert made.reached


def test_a_target_too_small_for_any_block_gets_none() -> None:
    made = run(talk(40), Order(90, 10, ALL))
    assert made.after.high <= 90 or not made.reached


@pytest.mark.parametrize("target", range(150, 700, 23))
def test_a_rule_among_much_talk_has_a_place_in_every_block(target: int) -> None:
    history = talk(30)
    history[3]["content"] = "Never touch main.py. " + "and so on " * 40
    made = run(history, Order(target, 100, BOTH))
    assert made.reached
    stays = any("Never touch main.py." in m.text for m in made.edited.transcript.messages)
    assert stays or target < 170


@pytest.mark.parametrize("target", [300, 800, 2500])
def test_a_megabyte_of_a_tool_makes_the_block_no_larger(target: int) -> None:
    def after(output: str) -> str:
        history = tool_run(40)
        history[2]["content"] = output
        return run([*history, *talk(1)[1:]], Order(target, 100, ALL)).block

    assert after("x" * 1_000_000) == after("w " * 100)


# --- what can be read back ------------------------------------------------------------------------

NAME = re.compile(r"recall (u:[0-9a-f]{16})")


def names(outcome: Outcome) -> list[str]:
    """Return every reference in the messages of a result."""
    return NAME.findall(json.dumps(list(outcome.edited.transcript.raws)))


def test_a_placeholder_names_its_original_and_the_original_is_the_text() -> None:
    history = tool_run(20)
    made = run(history, Order(1500, 400, BOTH, named=True))
    assert names(made) == list(made.originals)
    cleared = [edit.message for edit in made.script.clears]
    assert list(made.originals.values()) == [history[i]["content"] for i in cleared]
    assert all(reference(text) == name for name, text in made.originals.items())


def test_a_block_names_the_messages_that_it_stands_for_as_they_were() -> None:
    history = talk(40)
    made = run(history, Order(700, 200, BOTH, named=True))
    (name,) = names(made)
    assert name in made.block.split("\n")[0]
    gone = [history[i] for i in sorted(made.script.drops)]
    assert json.loads(made.originals[name]) == gone
    assert f"summary of {len(gone)} earlier messages" in made.block


def test_without_a_store_nothing_is_named_and_nothing_kept() -> None:
    made = run(tool_run(60), Order(900, 400, BOTH))
    assert made.strategy == "clear+trim_oldest"
    assert (names(made), made.originals) == ([], {})


def test_the_block_beside_knowledge_that_went_names_what_it_stands_for() -> None:
    history = talk(40)
    order = Order(700, 200, BOTH, named=True, first=(leave_out(frozenset({5, 9})),))
    made = run(history, order)
    (name,) = names(made)
    gone = sorted(made.script.drops - {5, 9})
    assert json.loads(made.originals[name]) == [history[i] for i in gone]


@pytest.mark.parametrize("target", [100, 150, 250, 400, 700])
def test_an_excerpt_names_the_whole_text_however_often_it_was_shortened(target: int) -> None:
    history = tool_run(12)
    history[-1]["content"] = "first line " + "w " * 3000 + "last line"
    made = run(history, Order(target, target // 2, BOTH, named=True))
    newest = texts(made)[-1]
    assert newest.startswith("first line") or target == 100
    (name,) = NAME.findall(newest)
    assert made.originals[name] == history[-1]["content"]
    whole, kept = 3000 + 4, len(newest.split())
    assert f"about {whole - kept:,}"[:8] in newest or target == 100
    assert set(names(made)) <= made.originals.keys()


def test_cleared_arguments_can_be_read_back() -> None:
    history = tool_run(6)
    arguments = json.dumps({"text": "w " * 400})
    history[1]["tool_calls"][0]["function"]["arguments"] = arguments
    made = run(history, Order(500, 100, ("clear",), named=True))
    assert made.originals[reference(arguments)] == arguments
    assert reference(arguments) in names(made)


# --- chained --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategies", [BOTH, ALL])
def test_three_compactions_later_the_first_facts_are_there_and_the_count_adds_up(
    strategies: tuple[str, ...],
) -> None:
    history: list[Any] = talk(30)
    history[3]["content"] = "Never touch main.py. We decided on port 8443 because 80 is taken."
    history[4:4] = _reads("src/first.py")
    given, gone = 0, 0
    for number in range(3):
        given = len(history)
        made = run(history, Order(900, 150, strategies))
        gone += given - len(made.edited.transcript) + (number == 0)
        assert made.reached
        assert f"summary of {gone} earlier messages" in made.block
        known = facts.parse(made.block)[0]
        assert "Never touch main.py." in known.constraints
        assert known.files[0] == "src/first.py"
        assert any("8443" in line for line in known.constraints)
        history = [*made.edited.transcript.raws, *_reads(f"src/later{number}.py"), *talk(30)[2:]]


def _reads(path: str) -> list[dict[str, Any]]:
    call = {"id": path, "function": {"name": "read", "arguments": json.dumps({"path": path})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": path, "content": "w " * 30},
    ]


# --- tails in messages, and media -----------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 3, 10])
def test_a_tail_in_messages_is_left_alone_where_the_target_allows_it(keep: int) -> None:
    history = tool_run(30)
    made = run(history, Order(1400, 10_000, ("trim_oldest",), keep=Keep(keep)))
    assert made.reached
    kept = {id(raw) for raw in made.edited.transcript.raws}
    assert all(id(m) in kept for m in history[-max(keep, 2) :])


def test_a_tail_in_messages_gives_way_to_the_target() -> None:
    made = run(tool_run(30), Order(400, 10_000, ("trim_oldest",), keep=Keep(20)))
    assert made.reached


def test_media_alone_are_stripped_and_the_request_keeps_its_own() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    shown = [
        {"role": "user", "content": [{"type": "text", "text": f"look {n}"}, image]} for n in "abc"
    ]
    history = [*talk(2), *shown]
    made = run(history, Order(1, 0, (), first=(find("strip_media"),), named=True))
    assert made.strategy == "strip_media"
    assert not made.script.drops
    raws = made.edited.transcript.raws
    assert raws[-1] is shown[-1]
    assert [raws[i]["content"][1]["type"] for i in (-3, -2)] == ["text", "text"]
    assert made.after.high < made.before.high


def test_newest_results_are_shortened_last_of_all_where_pins_leave_no_room() -> None:
    history = tool_run(6)
    history[4]["content"] = "p " * 400
    history[-1]["content"] = "first line " + "w " * 330 + "last line"
    made = run(history, Order(700, 100, BOTH, pins=frozenset({4})))
    assert made.reached
    assert made.strategy.endswith("excerpt")
    assert any(raw is history[4] for raw in made.edited.transcript.raws)
    assert texts(made)[-1].startswith("first line")


def test_a_size_that_nobody_measured_keeps_no_cache() -> None:
    history = talk(40)
    made = run(history, Order(700, 200, BOTH))
    why: dict[str, Any] = {"scope": "", "trigger": "manual", "policy": "p"}
    read = setup().codec.read(history)
    assert make_checkpoint(read, made.script, made, **why).kept_tokens > 0
    bare = replace(made, after=replace(made.after, measured=None))
    assert make_checkpoint(read, made.script, bare, **why).kept_tokens == 0


def run_paid(order: Order) -> tuple[Outcome, list[SummaryRequest]]:
    asked: list[SummaryRequest] = []
    return run(talk(40), order, GOOD, asked), asked


@pytest.mark.parametrize("target", range(150, 1_600, 50))
def test_prose_that_was_asked_for_stands_and_else_none_is_asked_for(target: int) -> None:
    """Before, a summary was paid for at every size, and cut or left out where rules took room."""
    made, asked = run_paid(Order(target, 200, ALL, summariser=True, window=4000))
    if asked:
        assert made.written is not None
        assert made.fallback_reason is None
        assert made.block.endswith(f"\n{made.written.prose}")
        gone = set(GOOD.split("\n")) - set(str(made.written.prose).split("\n"))
        assert len(gone) == 2 * len(made.written.removed) == (2 if target == 300 else 0)
    else:
        assert made.fallback_reason in {"no_room", None}
        assert GOOD not in made.block


def test_prose_that_was_paid_for_is_not_asked_for_again() -> None:
    first, asked = run_paid(Order(1_000, 200, ALL, summariser=True, window=4000))
    assert asked
    assert first.written is not None
    paid = PaidProse(first.written, first.room)
    again, more = run_paid(Order(800, 200, ALL, summariser=True, window=4000, paid=paid))
    assert more == []
    assert again.block.endswith(f"\n{GOOD}")
    assert again.after.high < first.after.high


@pytest.mark.parametrize("target", range(300, 2_400, 150))
@pytest.mark.parametrize("rules", [0, 6, 20])
def test_all_that_was_paid_for_stands_beside_the_rules(target: int, rules: int) -> None:
    """Before, rules took the room that prose was asked and paid for."""
    history = talk(40)
    for n in range(rules):
        history[3 + 2 * n]["content"] += f" Never touch the file number {n} of the cellar."
    asked: list[SummaryRequest] = []

    def answer(request: SummaryRequest) -> str:
        lines = ["Goal:", *(f"- question {n} a q" for n in range(request.max_tokens // 6))]
        return "\n".join(lines)

    order = Order(target, 200, ALL, summariser=True, window=8_000)
    made = run(history, order, answer, asked)
    if asked:
        assert made.written is not None
        assert made.written.prose is not None
        assert set(made.written.prose.split("\n")) <= set(made.block.split("\n"))

"""What counts as asked for again after a compaction, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.compaction.situations import CODEC, said, situation, tool_step
from ullage.core.compaction import laws
from ullage.core.compaction.edits import Clear, Drop, Insert, Script
from ullage.core.compaction.faults import (
    LONGEST,
    find_faults,
    find_recent_faults,
    list_faulted,
    spare,
)

RULE = "Never touch the accordion of the harbour museum before noon."


def read(name: str, path: str = "a.py", *, tool: str = "read", **more: Any) -> list[dict[str, Any]]:
    return tool_step(
        name, f"text of {path}", tool=tool, arguments=json.dumps({"path": path, **more})
    )


BEGIN = [said("user", "Mend the leak."), said("user", RULE), *read("1"), *read("2", "b.py")]
"""The task at 0, a rule at 1, two reads at 2 and 4."""

GONE = Script.of([Drop(1), Drop(2), Drop(3)])
CLEARED = Script.of([Clear(3, 0, -1, "[ullage: cleared]")])


def faults(more: list[dict[str, Any]], script: Script = GONE) -> list[tuple[str, str, int]]:
    found = find_faults(CODEC.read([*BEGIN, *more]), script)
    return [(fault.kind, fault.label, fault.message) for fault in found]


def test_a_call_that_is_made_again_is_a_fault():
    assert faults(read("3")) == [("call", "read a.py", 6)]
    assert faults(read("3"), CLEARED) == [("call", "read a.py", 6)]
    assert faults(read("3")[:1]) == [("call", "read a.py", 6)]  # before its result


def test_a_call_for_what_is_still_there_is_none():
    assert faults(read("3", "b.py")) == []
    assert faults(read("3", "c.py")) == []
    assert faults(read("3"), Script()) == []
    other = Script.of([Clear(5, 0, -1, "[ullage: cleared]")])
    assert faults(read("3"), other) == []


def test_another_part_of_a_file_is_something_new():
    assert faults(read("3", offset=200)) == []


def test_what_was_written_meanwhile_is_read_anew_for_a_reason():
    assert faults([*read("3", tool="write"), *read("4")]) == []


@pytest.mark.parametrize(("between", "wanted"), [("view", 1), ("insert", 0)])
def test_views_of_an_editor_are_told_by_their_files(between: str, wanted: int):
    editor = {"tool": "str_replace_editor", "command": "view"}
    other = {**editor, "command": between}
    path = "a.py" if between != "view" else "c.py"
    steps = [*read("5", **editor), *read("6", path, **other), *read("7", **editor)]
    found = find_faults(CODEC.read([*BEGIN[:2], *steps]), Script.of([Drop(2), Drop(3)]))
    assert [fault.label for fault in found] == ["str_replace_editor a.py"] * wanted


def test_a_habit_is_no_fault():
    run = {"command": "make test"}
    twice = [
        step for n in "56" for step in tool_step(n, "ok", tool="sh", arguments=json.dumps(run))
    ]
    history = [*BEGIN, *twice, *tool_step("7", "ok", tool="sh", arguments=json.dumps(run))]
    assert find_faults(CODEC.read(history), Script.of([Drop(i) for i in range(6, 10)])) == ()


@pytest.mark.parametrize(
    ("command", "between", "wanted"),
    [
        ("make test", "edit", 0),
        ("git diff", "edit", 0),
        ("make test", "read", 1),
        ("cat b.py", "edit", 1),
        ("make test", "TodoWrite", 1),
        ("make test", "write_stdin", 1),
    ],
)
def test_a_command_that_is_run_again_after_a_change_tells_something_new(
    command: str, between: str, wanted: int
):
    run = {"tool": "sh", "arguments": json.dumps({"command": command})}
    first, again = tool_step("5", "3 failed", **run), tool_step("7", "ok", **run)
    named = {"path": "c.py"} if between in ("edit", "read") else {"content": "c.py"}
    step = tool_step("6", "done", tool=between, arguments=json.dumps(named))
    history = CODEC.read([*BEGIN, *first, *step, *again])
    assert len(find_faults(history, Script.of([Drop(6), Drop(7)]))) == wanted


@pytest.mark.parametrize(("results", "wanted"), [("same", 1), ("other", 0)])
def test_what_is_read_again_each_time_it_went_is_a_fault_each_time(results: str, wanted: int):
    """A run that tells something else each time is a habit; a file that stays the same is none."""
    texts = ["the same line of a file, read again and again " * 6] * 3
    if results == "other":
        texts = [
            f"{n} passed, 12 failed, and what stands around it in a log " * 6 for n in range(3)
        ]
    steps = [
        step
        for n, text in enumerate(texts, start=5)
        for step in tool_step(str(n), text, tool="sh", arguments='{"command": "cat a.py"}')
    ]
    history = [*BEGIN, *steps]
    gone = Script.of([Drop(i) for i in range(len(BEGIN), len(BEGIN) + 4)])
    assert len(find_faults(CODEC.read(history), gone)) == wanted


def test_a_path_behind_a_dot_is_the_same_file():
    assert faults(read("3", "./a.py")) == faults(read("3"))


def test_only_the_newest_answer_is_judged():
    assert faults([*read("3"), *read("4", "c.py")]) == []
    history = CODEC.read([*BEGIN, *read("3"), *read("4", "c.py")])
    (later,) = find_recent_faults(history, GONE)
    assert later.message == 6
    assert list_faulted(history, [later]) == {6, 7}


def test_results_of_calls_side_by_side_are_told_apart():
    first, one = read("3")
    second, two = read("4", "c.py")
    both = {**first, "tool_calls": [*first["tool_calls"], *second["tool_calls"]]}
    history = CODEC.read([*BEGIN, both, one, two])
    (fault,) = find_faults(history, GONE)
    assert list_faulted(history, [fault]) == {6, 7, 8}
    lost = CODEC.read([*BEGIN, both, two, said("user", "Go on.")])
    assert list_faulted(lost, [fault]) == {6, 7}


def test_a_call_with_a_text_of_its_own_is_not_looked_for():
    text = {"path": "a.py", "text": "x" * LONGEST}
    once = tool_step("3", "ok", tool="write", arguments=json.dumps(text))
    again = tool_step("4", "ok", tool="write", arguments=json.dumps(text))
    history = CODEC.read([*BEGIN, *once, *again])
    assert find_faults(history, Script.of([Drop(6), Drop(7)])) == ()
    odd = [*tool_step("3", "ok", arguments="{no"), *tool_step("4", "ok", arguments="{no")]
    broken = CODEC.read([*BEGIN, *odd])
    assert [f.kind for f in find_faults(broken, Script.of([Drop(6), Drop(7)]))] == ["call"]


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "kinds"),
    [
        ("ullage_recall", {"reference": "u:0123456789abcdef"}, "the text", ["recall"]),
        ("ullage_recall", {"reference": "u:0"}, "error: no text", []),
        ("ullage_search", {"query": "accordion"}, "Left out of this conversation:", ["search"]),
        ("ullage_search", {"query": "x"}, "Nothing that was left out of this conversation", []),
    ],
)
def test_what_is_reached_for_is_a_fault_where_it_is_found(
    tool: str, arguments: dict[str, str], result: str, kinds: list[str]
):
    if result.startswith("Nothing"):
        result += " has these words."
    step = tool_step("3", result, tool=tool, arguments=json.dumps(arguments))
    assert [kind for kind, _, _ in faults(step)] == kinds
    assert faults(step[:1]) == []  # nobody knows yet


def test_what_a_person_has_to_say_again_is_a_fault():
    again = [said("assistant", "Done."), said("user", f"I told you: go on.\n{RULE.upper()}")]
    assert faults(again) == [("said", RULE.upper()[:60], 7)]
    assert faults(again, CLEARED) == []  # the rule is still there
    assert faults([said("assistant", "Done."), said("user", "Yes, go on.")]) == []
    told = Script.of([*GONE.edits(), Insert(1, "user", f"- rules: {RULE}")])
    assert faults(again, told) == []  # it stands in the block
    pasted = [said("assistant", "Done."), said("user", f"```\n{RULE}\n```")]
    assert faults(pasted) == []


def test_what_is_known_of_the_beginning_is_used_again():
    history = CODEC.read([*BEGIN, *read("3")])
    first = find_faults(history, GONE)
    assert find_faults(history, GONE) == first
    assert history.memo["faults"][0] == len(history)


def test_the_newest_that_faulted_is_spared_within_the_room():
    given = situation([*BEGIN, *read("3"), *read("4", "c.py")], 1_000)
    units, sizes = laws.units(given.transcript), given.sizes
    faulted = frozenset({2, 6})
    assert spare(units, sizes, faulted, 1_000) == {2, 3, 6, 7}
    assert spare(units, sizes, faulted, sizes[6] + sizes[7]) == {6, 7}
    assert spare(units, sizes, faulted, 0) == frozenset()

"""clear: what is cleared, in which order, how much, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import (
    CODEC,
    joined_step,
    said,
    situation,
    situations,
    tool_step,
    total_after,
    words,
)
from ullage.core.compaction.edits import Clear, Edit, Script, apply, reference
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies.clear import WORTH, find_superseded, is_read, plan
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_responses.codec import OpenAIResponses


def planned(found: Situation) -> tuple[Edit, ...]:
    return plan(found).edits()


def cleared(found: Situation) -> list[int]:
    edits = planned(found)
    assert all(isinstance(edit, Clear) for edit in edits)
    return [edit.message for edit in edits if isinstance(edit, Clear)]


RUN = [
    said("user", "task"),
    *tool_step("c1", words(300)),
    *tool_step("c2", words(300)),
    *tool_step("c3", words(300)),
    said("user", "and now?"),
]


@given(situations())
def test_every_clear_frees_what_makes_it_worth_it(found: Situation):
    edits = planned(found)
    assert total_after(found, edits) <= found.total - WORTH * len(edits)


@given(situations())
def test_pins_and_the_protected_tail_are_never_cleared(found: Situation):
    border = found.units[found.border()].start
    assert not found.pins & set(cleared(found))
    assert all(message < border for message in cleared(found))


@given(situations())
def test_clearing_never_breaks_a_pair_or_drops_a_message(found: Situation):
    edited = apply(found.transcript, Script.of(planned(found)), CODEC).transcript
    before, after = found.transcript.messages, edited.messages
    assert [m.results for m in after] == [m.results for m in before]
    assert [[(c.id, c.name) for c in m.calls] for m in after] == [
        [(c.id, c.name) for c in m.calls] for m in before
    ]


@given(situations())
def test_what_is_superseded_goes_first_then_reads_then_the_oldest_and_no_more_than_needed(
    found: Situation,
):
    stale, edits = find_superseded(found), plan(found).clears
    unit_of = {i: n for n, unit in enumerate(found.units) for i in range(unit.start, unit.stop)}
    messages = found.transcript.messages
    calls = {(unit_of[i], c.id): c for i, m in enumerate(messages) if i in unit_of for c in m.calls}

    def turn(edit: Clear) -> tuple[Any, ...]:
        place = (edit.message, edit.part)
        answers = messages[edit.message].parts[edit.part].answers if edit.call < 0 else None
        call = calls.get((unit_of[edit.message], str(answers)))
        read = call is not None and is_read(call, found.traits)
        rank = 0 if place in stale else 1 if read else 2
        return (rank, rank and unit_of[edit.message], edit.call >= 0, edit.message, edit.part)

    taken = sorted(edits, key=lambda edit: (*turn(edit), edit.call))
    if taken:
        assert total_after(found, taken[:-1]) > found.target


def test_the_oldest_result_goes_first_and_only_as_many_as_are_needed():
    whole = situation(RUN, 0).total
    assert cleared(situation(RUN, whole)) == []
    assert cleared(situation(RUN, whole - 1)) == [2]
    assert cleared(situation(RUN, whole - 400)) == [2, 4]
    assert cleared(situation(RUN, 0)) == [2, 4, 6]


def test_the_placeholder_names_the_tool_and_the_size_and_no_reference():
    (edit,) = planned(situation([*tool_step("c1", words(300), tool="grep"), said("user", "x")], 0))
    assert edit == Clear(1, 0, -1, "[ullage: result of grep cleared, 300 tokens]")


def test_an_unnamed_tool_is_called_a_tool():
    (edit,) = planned(situation([*tool_step("c1", words(300), tool=""), said("user", "x")], 0))
    assert isinstance(edit, Clear)
    assert edit.text.startswith("[ullage: result of a tool cleared")


def test_oversized_arguments_are_cleared_to_valid_json():
    step = tool_step("c1", "ok", arguments=json.dumps({"text": words(300)}))
    (edit,) = planned(situation([*step, said("user", "x")], 0))
    assert isinstance(edit, Clear)
    assert (edit.message, edit.part, edit.call) == (0, -1, 0)
    assert json.loads(edit.text)["ullage_cleared"].startswith("arguments, ")


def test_a_cleared_result_is_not_cleared_again():
    found = situation(RUN, 0)
    once = apply(found.transcript, Script.of(planned(found)), CODEC).transcript
    assert planned(situation(list(once.raws), 0)) == ()


def test_words_such_as_error_decide_nothing():
    for text in ("error: failed", "12 passed, 0 failed"):
        run = [*tool_step("c1", words(100, text)), *tool_step("c2", words(900)), said("user", "x")]
        whole = situation(run, 0).total
        assert cleared(situation(run, whole - 1)) == [1]


def test_each_result_that_shares_a_message_is_cleared_by_its_place_and_its_tools_name():
    history = [said("user", "t"), *joined_step(words(300), "ok", words(300)), said("user", "and?")]
    edits = planned(situation(history, 50, codec=Anthropic()))
    found = [(e.message, e.part, e.text.split()[3]) for e in edits if isinstance(e, Clear)]
    assert found == [(2, 0, "tool0"), (2, 2, "tool2")]


def test_a_result_is_named_after_its_own_call_where_calls_stand_apart():
    calls = [
        {"type": "function_call", "call_id": f"c{i}", "name": f"tool{i}", "arguments": "{}"}
        for i in range(2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"c{i}", "output": words(300)} for i in range(2)
    ]
    history = [said("user", "t"), *calls, *outputs, said("user", "and?")]
    edits = planned(situation(history, 50, codec=OpenAIResponses()))
    found = [(e.message, e.text.split()[3]) for e in edits if isinstance(e, Clear)]
    assert found == [(3, "tool0"), (4, "tool1")]


# --- what is still there goes before what is not ---


def first_cleared(*steps: tuple[str, Any], **more: Any) -> int:
    """Return the number of the step whose result goes first."""
    history = did(*steps)
    found = situation(history, situation(history, 0).total - 1, **more)
    return (cleared(found)[0] - 2) // 2


@pytest.mark.parametrize(
    "read",
    [
        ("read_file", {"path": "b.py", "offset": 1}),
        ("grep", {"pattern": "def f"}),
        ("fetch", {"url": "http://localhost/x"}),
        ("search", {"query": "f"}),
        ("bash", {"command": "cd src && ls -la | head -40 2>/dev/null"}),
        ("shell", {"command": ["bash", "-lc", "git log --oneline; sed -n 1,80p b.py"]}),
    ],
)
def test_what_can_be_read_again_goes_before_what_a_command_returned(read: tuple[str, Any]):
    assert first_cleared(("shell", {"command": "make test"}), read) == 1
    assert first_cleared(("shell", {"path": ".", "cmd": "make"}), read) == 1


def test_what_a_tool_wrote_or_did_stays_longer_than_what_was_read():
    assert first_cleared(("write_file", A), ("read", B)) == 1
    assert first_cleared(("deploy", {"to": "staging"}), ("read", B)) == 1
    assert first_cleared(("shell", {"cmd": "git diff"}), ("shell", {"cmd": "ls"})) == 1


def test_a_tool_says_itself_whether_its_results_can_be_had_again():
    assert first_cleared(("read", A), ("look", {})) == 0
    assert first_cleared(("shell", {"cmd": "make"}), ("look", {}), traits={"look": "again"}) == 1
    assert first_cleared(("read", A), ("shell", {"cmd": "make"}), traits={"read": "once"}) == 1


# --- what a later call made worthless ---------------------------------------------------------


def did(*steps: tuple[str, Any]) -> list[dict[str, Any]]:
    """Return a task, a step for each tool and its arguments, and a request."""
    history = [said("user", "task")]
    for number, (tool, arguments) in enumerate(steps):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        history += tool_step(f"c{number}", words(100), tool=tool, arguments=text)
    return [*history, said("user", "and now?")]


def stale(*steps: tuple[str, Any], **more: Any) -> list[int]:
    """Return the numbers of the steps whose results are superseded."""
    found = situation(did(*steps), 0, **more)
    return [(message - 2) // 2 for message, _ in find_superseded(found)]


A, B = {"path": "a.py"}, {"path": "b.py"}


@pytest.mark.parametrize("tool", ["write_file", "edit", "apply_patch", "str_replace", "Insert"])
@pytest.mark.parametrize("key", ["path", "file_path", "filename", "filePath", "target_file"])
def test_a_read_of_a_path_that_was_written_later_is_superseded(tool: str, key: str):
    steps = [("read", {key: "a.py", "limit": 9}), ("read", {key: "b.py"})]
    assert stale(*steps, (tool, {key: "a.py", "text": "x"})) == [0]


def test_a_read_of_a_file_that_was_patched_later_is_superseded():
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-1\n+2\n*** End Patch"
    reads = [("read", {"path": "a.py", "limit": 9}), ("read", B)]
    assert stale(*reads, ("apply_patch", patch)) == [0]
    assert stale(*reads, ("shell", {"command": ["apply_patch", patch]})) == [0]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("lint_code", {"path": "a.py", "content": "x"}),
        ("Task", {"prompt": "*** Begin Patch\n*** Update File: a.py\n*** End Patch"}),
        ("Write", {"path": "p.md", "content": "*** Begin Patch\n*** Update File: a.py"}),
    ],
)
def test_what_only_speaks_of_a_file_supersedes_no_read(tool: str, arguments: dict[str, str]):
    assert stale(("read", {"path": "a.py", "limit": 9}), (tool, arguments)) == []


def test_the_view_of_an_editor_is_a_read_and_supersedes_no_other_part():
    first, second = ({"command": "view", "path": "a.py", "view_range": [n, 90]} for n in (1, 9))
    editor = "str_replace_based_edit_tool"
    assert stale((editor, first), (editor, second)) == []
    change = {"command": "str_replace", "path": "a.py", "old_str": "1", "new_str": "2"}
    assert stale((editor, first), (editor, change), (editor, second)) == [0]
    assert first_cleared(("shell", {"command": "make test"}), (editor, first)) == 1


def test_a_read_behind_the_write_is_not_superseded():
    assert stale(("write", A), ("read", A)) == []


def test_of_the_same_command_run_again_the_last_stays():
    assert stale(("shell", {"cmd": "make"}), ("ls", A), ("shell", {"cmd": "make"})) == [0]
    assert stale(*[("shell", {"cmd": "make"})] * 4) == [0, 1, 2]


def test_a_partial_read_by_other_arguments_stays():
    assert stale(("read", {**A, "offset": 1}), ("read", {**A, "offset": 500})) == []
    assert stale(("read", A), ("list", A), ("read", B)) == []


def test_a_result_of_a_write_is_superseded_by_nothing():
    assert stale(("write", A), ("write", A), ("edit", A)) == []


@pytest.mark.parametrize("arguments", ["", "no json", '["path"]', '{"path": 7}', '{"path": ["a"]}'])
def test_arguments_that_name_no_path_supersede_only_their_own_repetition(arguments: str):
    assert stale(("read", arguments), ("write", arguments)) == []
    assert stale(("read", arguments), ("read", arguments)) == [0]


def test_arguments_nested_beyond_reading_name_no_path():
    deep = '{"path": ' + "[" * 100_000 + '"a"' + "]" * 100_000 + "}"
    assert stale(("read", deep), ("write", A)) == []


def test_two_equal_calls_of_one_response_do_not_supersede_each_other():
    raws = [said("user", "t"), *tool_step("c1", words(90)), *tool_step("c2", words(90))]
    raws[1:5] = [
        {**raws[1], "tool_calls": raws[1]["tool_calls"] + raws[3]["tool_calls"]},
        raws[2],
        raws[4],
    ]
    assert find_superseded(situation([*raws, said("user", "x")], 0)) == {}


def test_a_tool_that_tells_the_state_is_superseded_by_its_next_call_whatever_the_arguments():
    steps = [("board", {"n": 1}), ("board", {"n": 2}), ("other", {"n": 1})]
    assert stale(*steps) == []
    assert stale(*steps, traits={"board": "state"}) == [0]


def test_a_result_that_can_be_had_once_is_neither_superseded_nor_cleared():
    steps = [("pop", {"q": 1}), ("pop", {"q": 1}), ("read", A), ("write", A)]
    assert stale(*steps) == [0, 2]
    traits: Any = {"pop": "once"}
    assert stale(*steps, traits=traits) == [2]
    assert cleared(situation(did(*steps), 0, traits=traits)) == [6, 8]
    assert cleared(situation(did(*steps), 0, traits={"pop": "again"})) == [2, 4, 6, 8]


def test_a_result_in_the_protected_tail_is_not_superseded():
    steps = [("read", A), ("ls", B), ("write", A)]
    everything = situation(did(*steps), 0).total
    assert stale(*steps, tail=everything) == []
    assert stale(*steps, tail=everything - 110) == [0]


def test_what_is_superseded_goes_before_what_is_older():
    history = did(("ls", B), ("read", A), ("ls", {"path": "c"}), ("write", A))
    whole = situation(history, 0).total
    assert cleared(situation(history, whole - 1)) == [4]
    assert cleared(situation(history, whole - 150)) == [2, 4]


def test_a_pinned_result_stays_though_superseded():
    history = did(("read", A), ("write", A))
    assert 2 not in cleared(situation(history, 0, pins=frozenset({2})))
    step = tool_step("c1", "ok", arguments=json.dumps({"text": words(300)}))
    assert cleared(situation([*step, said("user", "x")], 0, pins=frozenset({0}))) == []


@pytest.mark.parametrize("size", [30, WORTH, WORTH + 10])
def test_a_result_too_small_to_be_worth_it_stays_though_superseded(size: int):
    raws = [said("user", "t"), *joined_step(words(size), words(size), beside="Look."), *did()[1:]]
    assert planned(situation(raws, 0, codec=Anthropic())) == ()
    again = [said("user", "t"), *tool_step("c1", words(size)), *tool_step("c2", "ok"), *did()[1:]]
    assert find_superseded(situation(again, 0)) == {(2, 0): "ls"}
    assert planned(situation(again, 0)) == ()


@given(st.text(max_size=30))
def test_the_placeholder_names_the_original_where_it_can_be_read_back(text: str):
    original = words(300) + text
    found = situation([*tool_step("c1", original), said("user", "x")], 0, name_of=reference)
    (edit,) = planned(found)
    assert isinstance(edit, Clear)
    assert edit.text.endswith(f" tokens; recall {reference(original)}]")


def test_cleared_arguments_name_their_original_and_stay_json():
    arguments = json.dumps({"text": words(300)})
    step = tool_step("c1", "ok", arguments=arguments)
    (edit,) = planned(situation([*step, said("user", "x")], 0, name_of=reference))
    assert isinstance(edit, Clear)
    assert reference(arguments) in json.loads(edit.text)["ullage_cleared"]


@pytest.mark.parametrize("key", ["path", "filePath"])
def test_the_path_among_cleared_arguments_stays(key: str):
    arguments = json.dumps({key: "src/ä.py", "text": words(300)}, ensure_ascii=False)
    (edit,) = planned(
        situation([*tool_step("c1", "ok", arguments=arguments), said("user", "x")], 0)
    )
    assert isinstance(edit, Clear)
    kept = json.loads(edit.text)
    assert kept.pop("ullage_cleared").startswith("arguments, ")
    assert kept == {key: "src/ä.py"}

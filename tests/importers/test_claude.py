"""Claude Code's transcripts: which messages stand in the window, and what was reported of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.writing import (
    assistant,
    boundary,
    call,
    lines,
    result,
    said,
    summary,
    text,
    user,
)
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.importers import SAMPLE, load, parse

RECORDINGS = Path(__file__).parents[1] / "recordings" / "sessions"


def current(session):
    return said(session.messages[session.start :])


def test_the_newest_leaf_decides_and_abandoned_branches_are_left_out():
    session = load(RECORDINGS / "claude-fork.jsonl")
    assert current(session) == ["first question", "first answer", "asked again", "better answer"]
    assert [turn.tokens for turn in session.turns] == [120, 180]
    assert "2 lines of abandoned branches are left out" in session.warnings


def test_subagents_are_in_another_window_and_never_the_current_size():
    session = load(RECORDINGS / "claude-sidechain.jsonl")
    assert current(session) == ["look around", "call-1", "call-1", "found it"]
    assert session.tokens == 260
    assert "2 lines of subagents are not in this window" in session.warnings


def test_a_file_of_a_subagent_alone_is_its_own_window():
    session = parse(
        lines(
            user("u1", None, "search", isSidechain=True),
            assistant("a1", "u1", isSidechain=True, tokens=50),
        )
    )
    assert (len(session.messages), session.tokens) == (2, 50)
    assert any("subagent" in warning for warning in session.warnings)


def test_lines_of_one_response_are_one_message_and_one_call_with_the_larger_report():
    session = load(RECORDINGS / "claude-split.jsonl")
    assert said(session.messages) == ["read both", "+I read both.+c1+c2", "c1+c2", "ok"]
    assert [turn.usage and turn.usage.output for turn in session.turns] == [90, 4]
    assert session.turns[1].stop == 3
    assert session.warnings == ()


def test_results_of_parallel_calls_that_hang_on_side_branches_are_not_lost():
    session = parse(
        lines(
            user("u1", None, "go"),
            assistant("a1", "u1", call("c1"), response="m"),
            assistant("a2", "a1", call("c2"), response="m"),
            assistant("a3", "a2", call("c3"), response="m"),
            result("r1", "a1", "c1"),
            result("r2", "a2", "c2"),
            result("again", "a2", "c2", "a second copy"),
            result("r3", "a3", "c3"),
            assistant("a4", "r1", text("done"), tokens=400),
        )
    )
    assert current(session) == ["go", "c1+c2+c3", "c2+c3+c1", "done"]
    assert (session.tokens, session.covered) == (400, 3)


def test_a_compaction_begins_a_new_window_and_its_size_is_unknown_until_the_next_call():
    before = [user("u1", None, "go"), assistant("a1", "u1", tokens=900)]
    after = [boundary("b1", "a1"), summary("s1", "b1"), user("u2", "s1", "go on")]
    session = parse(lines(*before, *after))
    assert (session.start, session.summaries) == (2, (2,))
    assert (session.tokens, session.covered) == (None, None)
    assert [turn.tokens for turn in session.turns] == [900]

    session = parse(lines(*before, *after, assistant("a2", "u2", tokens=250)))
    assert (session.tokens, session.covered) == (250, 4)
    assert [turn.compacted for turn in session.turns] == [False, True]
    assert (session.turns[1].start, session.turns[1].stop) == (2, 4)


def test_a_summary_without_a_boundary_begins_a_new_window_too():
    session = parse(
        lines(
            user("u1", None, "go"),
            assistant("a1", "u1"),
            summary("s1", None),
            assistant("a2", "s1", tokens=40),
            boundary("b2", None),
            summary("s2", "b2"),
        )
    )
    assert (session.start, session.summaries) == (4, (2, 4))
    assert said(session.messages) == ["go", "answer a1", "what was", "answer a2", "what was"]


@pytest.mark.parametrize(
    "told",
    [
        {"preservedMessages": {"anchorUuid": "s1", "uuids": ["u2", "a2", 7, "elsewhere"]}},
        {"preservedSegment": {"headUuid": "u2", "anchorUuid": "s1", "tailUuid": "a2"}},
        {"preserved_segment": {"head_uuid": "u2", "anchor_uuid": "s1", "tail_uuid": "a2"}},
    ],
)
@pytest.mark.parametrize("parent", ["s1", "a2"])
def test_what_a_compaction_keeps_stands_behind_the_summary_and_is_no_new_call(told, parent):
    session = parse(
        lines(
            user("u1", None, "go"),
            assistant("a1", "u1"),
            user("u2", "a1", "more"),
            assistant("a2", "u2", tokens=300),
            boundary("b1", "a2", **told),
            summary("s1", "b1"),
            user("u3", parent, "and now"),
        )
    )
    assert current(session) == ["what was", "more", "answer a2", "and now"]
    assert (session.start, session.tokens, len(session.turns)) == (4, None, 2)


def test_of_what_is_kept_only_messages_that_are_sent_stand_in_the_window():
    kept = {"preservedMessages": {"anchorUuid": "s1", "uuids": ["x1", "a1"]}}
    session = parse(
        lines(
            user("u1", None, "go"),
            {"type": "attachment", "uuid": "x1", "parentUuid": "u1"},
            assistant("a1", "x1", isApiErrorMessage=True),
            boundary("b1", "a1", **kept),
            summary("s1", "b1"),
        )
    )
    assert current(session) == ["what was"]


def test_what_is_kept_at_the_boundary_stands_before_the_summary():
    kept = {"preservedMessages": {"anchorUuid": "b1", "uuids": ["u1"]}}
    session = parse(
        lines(
            user("u1", None, "the task"),
            assistant("a1", "u1"),
            boundary("b1", "a1", **kept),
            summary("s1", "b1"),
            assistant("a2", "s1", tokens=60),
        )
    )
    assert current(session) == ["the task", "what was", "answer a2"]
    assert session.summaries == (3,)


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_kept_without_any_summary_still_stands_in_the_window(answered):
    kept = {"preservedSegment": {"headUuid": "u1", "tailUuid": "a1"}}
    last = [assistant("a2", "b1", tokens=60)] if answered else []
    session = parse(
        lines(
            user("u1", None, "the task"), assistant("a1", "u1"), boundary("b1", "a1", **kept), *last
        )
    )
    assert current(session)[:2] == ["the task", "answer a1"]


@pytest.mark.parametrize(
    "told",
    [
        {"preservedSegment": {"headUuid": "nowhere", "tailUuid": "a1"}},
        {"preservedSegment": {"headUuid": "u1"}},
        {"preservedSegment": ["u1"]},
        {"preservedMessages": {"uuids": "u1"}},
    ],
)
def test_what_is_said_to_be_kept_and_cannot_be_found_is_left_out(told):
    session = parse(
        lines(
            user("u1", None, "go"), assistant("a1", "u1"), boundary("b1", "a1", **told),
            summary("s1", "b1"),
        )
    )  # fmt: skip
    assert current(session) == ["what was"]


def test_a_kept_summary_is_a_summary_and_no_further_compaction():
    session = parse(
        lines(
            user("u1", None, "go"),
            boundary("b1", "u1"),
            summary("s1", "b1", "the first"),
            boundary("b2", "s1", preservedMessages={"anchorUuid": "s2", "uuids": ["s1"]}),
            summary("s2", "b2", "the second"),
        )
    )
    assert current(session) == ["the second", "the first"]
    assert session.summaries == (1, 2, 3)


def test_synthetic_answers_and_errors_are_no_calls():
    session = parse(
        lines(
            user("u1", None, "go"),
            assistant("a1", "u1", tokens=100),
            assistant("a2", "a1", text("nothing"), model="<synthetic>", tokens=0),
            assistant("a3", "a2", text("API Error"), isApiErrorMessage=True, tokens=5),
            user("u2", "a3", "again"),
        )
    )
    assert current(session) == ["go", "answer a1", "nothing", "again"]
    assert (session.tokens, len(session.turns), session.model) == (100, 1, "claude-sonnet-4-5")
    assert session.spent == Usage(0, 100, 0, 7)


@pytest.mark.parametrize("tokens", [None, 0])
def test_a_missing_or_empty_report_is_unknown_and_leaves_the_one_before(tokens):
    session = parse(
        lines(
            user("u1", None, "go"),
            assistant("a1", "u1", tokens=100),
            user("u2", "a1", "more"),
            assistant("a2", "u2", tokens=tokens),
        )
    )
    assert session.turns[1].tokens is None
    assert (session.tokens, session.covered) == (100, 1)
    assert len(parse(lines(assistant("a1", None, tokens=tokens))).turns) == 1
    assert parse(lines(assistant("a1", None, tokens=tokens))).tokens is None


def test_calls_copied_from_a_continued_session_are_not_spent_again():
    session = load(RECORDINGS / "claude-continued.jsonl")
    assert current(session) == ["old question", "old answer", "new question", "new answer"]
    assert (session.id, session.tokens) == ("new", 330)
    assert session.spent == Usage(30, 300, 0, 12)
    assert "1 line were in the file before and count once" in session.warnings


def test_abandoned_calls_are_spent_and_repeated_lines_count_once():
    session = load(RECORDINGS / "claude-fork.jsonl")
    assert session.spent == Usage(0, 120 + 150 + 180, 0, 21)


def test_the_model_is_kept_as_it_is_written_and_the_window_stays_unknown():
    session = parse(
        lines(user("u1", None, "go"), assistant("a1", "u1", model="claude-opus-4-8[1m]"))
    )
    assert (session.model, session.window_tokens) == ("claude-opus-4-8[1m]", None)


def test_queued_prompts_stand_in_the_window_and_other_attachments_are_counted():
    session = parse(
        lines(
            user("u1", None, "go", isMeta=True),
            {"type": "attachment", "uuid": "x1", "parentUuid": "u1",
             "attachment": {"type": "queued_command", "prompt": "hurry"}},
            {"type": "attachment", "uuid": "x2", "parentUuid": "x1",
             "attachment": {"type": "todo"}},
            {"type": "attachment", "uuid": "x3", "parentUuid": "x2", "attachment": "?"},
            {"type": "progress", "uuid": "x4", "parentUuid": "x3"},
            {"type": "teleport", "uuid": "x5", "parentUuid": "x4"},
            {"type": "file-history-snapshot"},
            {"type": "hologram"},
            {"no type": 1},
            assistant("a1", "x5"),
        )
    )  # fmt: skip
    assert current(session) == ["go", "hurry", "answer a1"]
    assert session.unread == {
        "attachment todo": 1,
        "attachment unnamed": 1,
        "teleport": 1,
        "hologram": 1,
        "unnamed": 1,
    }


def test_lines_without_content_and_blocks_that_are_none_are_counted():
    session = parse(
        lines(
            user("u1", None, None),
            user("u2", "u1", ["no block", text("a block")]),
            {"type": "user", "uuid": "u3", "parentUuid": "u2", "message": "?", "sessionId": "s1"},
            {**assistant("a1", "u3"), "message": {"content": "plain text", "id": 4}},
            {**assistant("a2", "a1"), "message": {"content": None}},
        )
    )
    assert said(session.messages) == ["a block", "plain text", ""]
    assert session.unread == {
        "user line without content": 2,
        "assistant line without content": 1,
        "block that is no object": 1,
    }


def test_a_line_that_was_lost_does_not_cut_off_what_came_before_it():
    good = lines(user("u1", None, "go"), assistant("a1", "u1"))
    session = parse(good + b'{"type":"user","uu\n' + lines(assistant("a2", "u2", tokens=70)))
    assert current(session) == ["go", "answer a1", "answer a2"]
    assert session.unread == {"line that is no JSON object": 1}


def test_a_parent_that_is_not_in_the_file_is_told_and_nothing_is_guessed():
    session = parse(
        lines(user("u1", None, "go"), assistant("a1", "u1"), user("u2", "elsewhere", "other"))
    )
    assert current(session) == ["other"]
    assert any("not in the file" in warning for warning in session.warnings)


def test_lines_without_any_ids_stand_in_the_order_of_the_file():
    question = {"type": "user", "message": {"role": "user", "content": "go"}}
    answer = {"type": "assistant", "message": {"content": [text("done")]}}
    session = parse(lines(question, answer, question), source="claude")
    assert current(session) == ["go", "done", "go"]


def test_parents_in_a_circle_end_somewhere():
    session = parse(lines(user("u1", "u2", "one"), user("u2", "u1", "two")))
    assert current(session) == ["one", "two"]


def test_kept_segments_in_a_circle_end_somewhere():
    told = {"preservedSegment": {"headUuid": "nowhere", "tailUuid": "u1"}}
    session = parse(
        lines(user("u1", "u2", "1"), user("u2", "u1", "2"), boundary("b1", "u2", **told))
    )
    assert session.start == 2


def test_cleared_results_are_told_since_the_file_keeps_them():
    cleared = {
        "type": "system",
        "subtype": "microcompact_boundary",
        "uuid": "m",
        "parentUuid": "u1",
    }
    session = parse(lines(user("u1", None, "go"), cleared, assistant("a1", "m")))
    assert any("cleared 1 time" in warning for warning in session.warnings)


def test_of_two_boundaries_that_kept_a_line_the_one_in_between_counts():
    kept = {"preservedMessages": {"uuids": ["u1"]}}
    session = parse(
        lines(
            user("u1", None, "go"),
            boundary("b1", "u1", **kept),
            user("u2", "u1", "more"),
            boundary("b2", "u2", **kept),
            summary("s2", "b2"),
        )
    )
    assert said(session.messages) == ["go", "go", "more", "what was", "go"]


@pytest.mark.parametrize("line", [{"type": "system", "uuid": "x", "sessionId": "s1"}])
def test_a_file_without_messages_is_refused_by_name(line, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_bytes(lines(line))
    with pytest.raises(ConfigurationError, match=r"empty\.jsonl holds no messages"):
        load(path)


def test_the_sample_is_a_session_with_one_compaction_and_nothing_unread():
    session = load(SAMPLE)
    assert 25 <= len(session.turns) <= 45
    assert [turn.compacted for turn in session.turns].count(True) == 1
    assert session.summaries == (session.start,)
    assert (dict(session.unread), session.warnings) == ({}, ())
    assert session.tokens == session.turns[-1].tokens
    assert session.covered == len(session.messages) - 2
    reads = [
        block["input"]["file_path"]
        for message in session.messages[session.start :]
        if message["role"] == "assistant"
        for block in message["content"]
        if block.get("name") == "Read"
    ]
    assert len(reads) > len(set(reads))

"""Codex' rollouts: the items that stand in the window, its size, and the ledger beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.writing import (
    compacted,
    count,
    item,
    lines,
    rolled_back,
    rollout,
    said,
    usage,
)
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.importers import load, parse
from ullage.importers.codex import CONTEXT
from ullage.importers.codex import usage as read_usage

RECORDINGS = Path(__file__).parents[1] / "recordings" / "sessions"


def current(session):
    return said(session.messages[session.start :])


def test_items_are_kept_as_they_are_and_the_header_gives_system_model_and_window():
    session = load(RECORDINGS / "codex-plain.jsonl")
    assert [i["type"] for i in session.messages] == [
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert (session.source, session.dialect) == ("codex", "openai_responses")
    assert (session.system, session.model) == ("You are a coding agent.", "gpt-5.2-codex")
    assert (session.window_tokens, session.id) == (272_000, "0199-plain")
    assert session.unread == {}


def test_the_size_is_that_of_the_last_call_with_its_answer_and_never_the_total():
    session = load(RECORDINGS / "codex-plain.jsonl")
    assert [(t.start, t.stop, t.tokens) for t in session.turns] == [(0, 2, 1000), (0, 5, 1300)]
    assert (session.tokens, session.covered) == (1310, 6)
    assert session.spent == Usage(1150, 1150, 0, 12, 8)


def test_items_after_the_last_report_came_since():
    session = parse(lines(item("user", "go"), item("assistant", "done"), count(50, 50),
                          item("user", "more")))  # fmt: skip
    assert (session.tokens, session.covered, len(session.messages)) == (60, 2, 3)


def test_an_answer_written_behind_its_report_belongs_to_it():
    session = parse(
        lines(
            item("user", "go"),
            count(50, 50),
            item("assistant", "done"),
            item("user", "more"),
            item("assistant", "not reported"),
        )
    )
    assert (session.turns[0].stop, session.tokens, session.covered) == (1, 60, 2)


def test_repeated_reports_are_no_calls():
    session = parse(
        lines(
            item("user", "go"),
            item("assistant", "done"),
            count(50, 50),
            item("user", "more"),
            count(50, 50),
            count(None),
        )
    )
    assert (len(session.turns), session.covered) == (1, 2)


def test_without_totals_only_new_items_make_a_report_news():
    session = parse(
        lines(
            item("user", "go"), item("assistant", "done"), count(50), count(50),
            item("user", "more"), item("assistant", "done"), count(80),
        )
    )  # fmt: skip
    assert [turn.tokens for turn in session.turns] == [50, 80]
    assert session.spent == Usage(65, 65, 0, 12, 8)


def test_a_file_without_reports_has_an_unknown_size():
    session = parse(lines(item("user", "go"), item("assistant", "done"), count(None)))
    assert (session.tokens, session.covered, session.turns, session.spent) == (None, None, (), None)


def test_a_compaction_replaces_what_was_before():
    session = load(RECORDINGS / "codex-compacted.jsonl")
    assert current(session) == ["the task", "opaque", "go on", "going"]
    assert (session.start, session.summaries) == (3, (4,))
    assert (session.tokens, session.covered) == (410, 7)
    assert [turn.compacted for turn in session.turns] == [False, True]
    assert session.spent == Usage(650, 650, 0, 12, 8)


def test_after_a_compaction_the_size_is_unknown_until_a_call_is_reported():
    session = parse(
        lines(item("user", "go"), item("assistant", "done"), count(500, 500),
              compacted(message="what was"), count(500, 500))
    )  # fmt: skip
    assert (current(session), session.tokens) == (["what was"], None)
    assert session.summaries == (2,)


def test_a_summary_among_the_replacement_is_found_by_its_text():
    kept = [item("user", "the task")["payload"], item("user", "Summary: what was")["payload"], "?"]
    session = parse(
        lines(item("user", "go"), compacted(message="what was", replacement_history=kept))
    )
    assert (current(session), session.summaries) == (["the task", "Summary: what was"], (2,))


def test_entries_written_out_are_read_and_those_kept_elsewhere_are_told():
    message = item("user", "the task")["payload"]
    entries = [
        {"type": "inline", "item": message},
        message,
        {"type": "reference_v2", "ordinal": 4},
        "?",
    ]
    session = parse(
        lines(item("user", "go"), compacted(message="", replacement_history_entries=entries))
    )
    assert current(session) == ["the task", "the task"]
    assert "2 items that a compaction kept are not in this file" in session.warnings


def test_a_compaction_that_leaves_nothing_leaves_an_empty_window():
    session = parse(lines(item("user", "go"), compacted()))
    assert (current(session), session.start) == ([], 1)


def test_a_rollback_takes_back_the_last_turns_with_their_calls():
    session = load(RECORDINGS / "codex-rollback.jsonl")
    assert said(session.messages) == [
        "# AGENTS.md instructions for /home/dev/shop",
        "first",
        "one",
        "third",
        "three",
    ]
    assert [turn.tokens for turn in session.turns] == [100, 300]
    assert (session.tokens, session.covered) == (310, 5)
    assert "4 items were rolled back and are left out" in session.warnings


def test_after_a_rollback_the_report_before_it_holds():
    session = parse(
        lines(
            item("user", "first"), item("assistant", "one"), count(100, 100),
            item("user", "second"), item("assistant", "two"), count(200, 300), rolled_back(1),
        )
    )  # fmt: skip
    assert (session.tokens, session.covered, len(session.messages)) == (100, 1, 2)


@pytest.mark.parametrize("turns", [5, 10**30, 0, -1, None, "2", True])
def test_a_rollback_keeps_what_stood_before_the_first_turn(turns):
    context = item("user", f"{CONTEXT[0]} here")
    session = parse(
        lines(context, item("user", "first"), item("assistant", "one"), rolled_back(turns))
    )
    assert len(session.messages) == (1 if turns == 5 else 3)


def test_a_rollback_stays_within_the_window():
    session = parse(
        lines(
            item("user", "first"), item("assistant", "one"), count(100, 100),
            compacted(replacement_history=[{"type": "compaction", "encrypted_content": "x"}]),
            item("assistant", "two"), count(40, 140), rolled_back(1),
            item("user", "third"), item("assistant", "three"), rolled_back(1),
        )
    )  # fmt: skip
    assert current(session) == ["x", "two"]
    assert (session.tokens, session.covered) == (40, 3)


def test_a_turn_that_is_taken_back_hands_its_compaction_on():
    kept = [{"type": "compaction", "encrypted_content": "x"}]
    session = parse(
        lines(
            item("user", "first"), item("assistant", "one"), count(100, 100),
            compacted(replacement_history=kept), item("user", "a"), item("assistant", "b"),
            count(40, 140), rolled_back(1), item("user", "c"), item("assistant", "d"),
            count(50, 190),
        )
    )  # fmt: skip
    assert [turn.compacted for turn in session.turns] == [False, True]
    assert session.tokens == 60


def test_a_summary_that_is_taken_back_is_none_any_more():
    inline = rollout("response_item", {"type": "compaction", "encrypted_content": "x"})
    begun = [item("user", "first"), item("assistant", "one"), item("user", "second"), inline]
    assert parse(lines(*begun)).summaries == (3,)
    assert parse(lines(*begun, rolled_back(1))).summaries == ()


def test_another_agents_message_opens_a_turn():
    agent = rollout("response_item", {"type": "agent_message", "content": "do this"})
    session = parse(lines(item("user", "first"), agent, item("assistant", "one"), rolled_back(1)))
    assert said(session.messages) == ["first"]


@pytest.mark.parametrize(
    "origin",
    [
        {"source": {"subagent": {"thread_spawn": {}}}},
        {"parent_thread_id": "p"},
        {"forked_from_id": "p"},
    ],
)
def test_a_spawned_session_skips_the_reports_it_repeats_and_what_they_cost(origin):
    session = parse(
        lines(
            rollout("session_meta", {"id": "child", **origin}, 5),
            rollout("session_meta", {"id": "parent"}, 5),
            item("user", "first", 5),
            item("assistant", "one", 5),
            count(700, 700, second=5),
            item("user", "second", 9),
            item("assistant", "two", 12),
            count(900, 1600, second=12),
        )
    )
    assert session.id == "child"
    assert [turn.tokens for turn in session.turns] == [900]
    assert session.spent == Usage(450, 450, 0, 0, 0)
    assert "1 count of the session this one was spawned from are skipped" in session.warnings


def test_a_total_below_that_of_the_parent_is_its_own():
    session = parse(
        lines(
            rollout("session_meta", {"id": "child", "parent_thread_id": "p"}, 5),
            item("user", "first", 5),
            count(700, 700, second=5),
            item("assistant", "one", 9),
            count(90, 90, second=9),
        )
    )
    assert session.spent == Usage(45, 45, 0, 6, 4)


def test_the_window_is_the_last_that_is_stated_and_null_is_tolerated():
    started = rollout("event_msg", {"type": "task_started", "model_context_window": 128_000})
    silent = rollout("event_msg", {"type": "token_count", "info": None})
    session = parse(lines(started, item("user", "go"), silent, count(5, 5, window=None)))
    assert session.window_tokens == 128_000
    assert (
        parse(lines(started, item("user", "go"), count(5, window=400_000))).window_tokens == 400_000
    )
    assert parse(lines(item("user", "go"))).window_tokens is None


def test_newer_records_of_usage_count_like_the_older_ones():
    record = rollout("token_usage_record", {"usage": usage(70), "thread_token_usage": usage(70)})
    session = parse(lines(item("user", "go"), item("assistant", "done"), record, count(70, 70)))
    assert ([turn.tokens for turn in session.turns], session.tokens) == ([70], 80)
    broken = rollout("token_usage_record", {"usage": "?", "thread_token_usage": None})
    assert parse(lines(item("user", "go"), broken)).turns == ()


def test_files_of_the_first_versions_have_no_envelope():
    session = load(RECORDINGS / "codex-bare.jsonl", source="codex")
    assert said(session.messages) == ["go", "done"]
    assert (session.system, session.id) == ("Be brief.", "0001-bare")
    assert session.unread == {"dream": 1}


def test_what_is_not_understood_is_counted_and_items_are_kept_all_the_same():
    session = parse(
        lines(
            rollout("response_item", {"type": "hologram", "content": 3}),
            rollout("response_item", {"type": "ghost_snapshot"}),
            rollout("response_item", {"type": ["message"], "role": "user", "content": "odd"}),
            rollout("world_state", {}),
            rollout("realtime_item", {}),
            rollout("event_msg", {"type": "agent_message", "message": "shown"}),
            rollout("turn_context", {"model": None}),
        )
    )
    assert len(session.messages) == 2
    assert session.unread == {"hologram": 1, "unnamed": 1, "realtime_item": 1}


def test_a_file_without_items_is_refused():
    with pytest.raises(ConfigurationError, match="holds no items of a Codex session"):
        parse(lines(rollout("session_meta", {"id": "x"})))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"input_tokens": 100, "cached_input_tokens": 80, "output_tokens": 9},
         Usage(20, 80, 0, 9)),
        ({"input_tokens": 100, "cached_input_tokens": 80, "cache_write_input_tokens": 15},
         Usage(5, 80, 15, 0)),
        ({"input_tokens": 10, "cache_write_input_tokens": 15}, Usage(10)),
        ({"input_tokens": 10, "output_tokens": 9, "reasoning_output_tokens": 4},
         Usage(10, 0, 0, 5, 4)),
        ({"output_tokens": 9}, None),
        ({"input_tokens": -1}, None),
        ([], None),
    ],
)  # fmt: skip
def test_reports_are_read_into_disjoint_buckets(told, expected):
    assert read_usage(told) == expected

"""Sessions of opencode: what it sent is what is read, and what it reported is what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.importers.opencode_kept import (
    COMPACTED,
    FILED,
    PROJECT,
    RECORDINGS,
    TAILED,
    answer,
    export,
    recorded,
    restore,
    restore_files,
    text,
    tokens,
    tool,
    user,
)
from tests.importers.test_laws import JSON, read
from ullage.api.context import of_session
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.importers import BrokenJson, ImportedSession, load, parse
from ullage.importers.opencode.parts import (
    ATTACHED,
    BY_USER,
    CLEARED,
    INTERRUPTED,
    SO_FAR,
    read_usage,
)

EXPORT = recorded("export-1.18.33.json")


def sent(version: str) -> list[object]:
    """Return the messages of each request that the real program sent."""
    return [[spell(one) for one in request] for request in recorded(f"requests-{version}.json")]


def spell(message):
    """Return a message with the arguments of its calls as values: their spacing is the SDK's."""
    calls = [
        {**call, "function": {**call["function"],
                              "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]  # fmt: skip
    return {**message, "tool_calls": calls} if calls else message


def current(session: ImportedSession) -> list[Any]:
    return [m["content"] for m in session.messages[session.start :]]


@pytest.mark.parametrize("version", ["1.18.33", "1.2.4", "1.1.65", "cleared"])
def test_what_stood_in_the_window_at_each_call_is_what_the_program_sent(tmp_path, version):
    if version == "1.1.65":
        storage = restore_files(tmp_path)
        paths = sorted(storage.glob("session/*/*.json"))
    else:
        base = restore(tmp_path, version)
        rows = recorded(f"database-{version}.json")["tables"]["session"]["rows"]
        paths = [base / row[0] for row in rows]
    requests = sent(version)
    read = [load(path) for path in paths]
    ours = [
        [spell(m) for m in session.messages[turn.start : turn.stop]]
        for session in read
        for turn in session.turns
    ]
    reverted = sum("reverted" in w for session in read for w in session.warnings)
    assert len(ours) == len(requests) - reverted
    assert all(one in requests for one in ours)
    assert all(session.unread == {} for session in read)


def test_sizes_cache_cost_and_model_are_those_that_were_reported(tmp_path):
    session = load(restore(tmp_path) / COMPACTED)
    assert [(t.start, t.stop, t.tokens) for t in session.turns] == [
        (0, 1, 1000), (0, 3, 1100), (0, 5, 1300), (0, 7, 1500), (0, 9, 1200), (0, 11, 9000),
        (12, 15, 1400), (12, 17, 1400),
    ]  # fmt: skip
    assert (session.tokens, session.covered, session.start) == (1400, 17, 12)
    assert session.spent == Usage(13_000, 6_400, 0, 183, 15)
    assert session.dollars == pytest.approx(0.030784)
    assert (session.model, session.providers) == ("tiny-coder", ("local",))
    assert (session.title, session.project) == ("Reads the notes", PROJECT)
    assert (session.source, session.dialect, session.id) == ("opencode", "openai_chat", COMPACTED)
    assert [t.compacted for t in session.turns].index(True) == 6
    assert len(session.calls) == len(session.turns) + 1  # the summary was paid, and is no turn
    assert session.summaries == (13,)
    assert session.at is not None
    assert session.at.startswith("2026-11-25T23:57:58")


def test_a_compaction_keeps_the_tail_behind_its_summary(tmp_path):
    session = load(restore(tmp_path) / TAILED)
    window = current(session)
    assert window[0] == SO_FAR
    assert window[1].startswith("## Goal")
    assert window[2] == "The port is 8123."  # the tail begins with an answer


def test_reverted_messages_are_left_out_and_paid_all_the_same(tmp_path):
    session = load(restore(tmp_path) / TAILED)
    assert session.warnings == ("left out: 2 messages reverted in opencode",)
    assert '"Is it done?"' not in current(session)
    assert len(session.calls) == len(session.turns) + 2  # the summary and the reverted one
    assert session.dollars == pytest.approx(0.028912)


def test_an_export_is_recognised_and_says_the_same_as_the_database(tmp_path):
    kept = load(restore(tmp_path) / TAILED)
    told = load(RECORDINGS / "export-1.18.33.json")
    assert told.source == "opencode"
    assert told.messages == kept.messages
    assert told.turns == kept.turns
    assert (told.dollars, told.spent, told.title) == (kept.dollars, kept.spent, kept.title)


def test_files_of_older_versions_say_the_same_as_rows(tmp_path):
    files = load(next(restore_files(tmp_path).glob(f"session/*/{FILED}.json")))
    rows = load(restore(tmp_path, "1.2.4") / "ses_deadcfe3fffe96lWLJdl1kJmh3")
    assert [t.tokens for t in files.turns] == [t.tokens for t in rows.turns]
    assert (files.spent, files.dollars, files.title) == (rows.spent, rows.dollars, rows.title)


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (tokens(1000, 100, 15, reasoning=5, total=1120), Usage(100, 1000, 0, 15, 5)),  # 1.18
        (tokens(1000, 100, 20, reasoning=5, total=1120), Usage(100, 1000, 0, 15, 5)),  # 1.2
        (tokens(1000, 100, 20, reasoning=5), Usage(100, 1000, 0, 15, 5)),  # before
        (tokens(0, 0, 2, reasoning=9), Usage(0, 0, 0, 2, 9)),
        (tokens(0, 0, 0), None),
        ({"input": True, "output": "9", "cache": [1]}, None),
        ({"input": -4, "output": float("inf")}, None),
        (None, None),
    ],
)
def test_reasoning_is_apart_from_the_output_in_every_version(told, usage):
    assert read_usage(told) == usage


def test_what_became_of_calls_is_sent_as_opencode_sends_it():
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA=="}
    session = parse(
        export(
            user("go"),
            answer(
                "a",
                tool("one", "fine"),
                tool("two", status="error", error="no such file"),
                tool("three", status="error", error="x",
                     metadata={"interrupted": True, "output": "half"}),
                tool("four", status="running"),
                tool("five", "seen", attachments=[image, {"mime": "image/png"}, 7]),
            ),
        )
    )  # fmt: skip
    results = [m["content"] for m in session.messages[2:]]
    assert results[:5] == ["fine", "no such file", "half", INTERRUPTED, "seen"]
    assert results[5][0] == {"type": "text", "text": ATTACHED}
    assert len(results[5]) == 2
    assert [c["id"] for c in session.messages[1]["tool_calls"]] == [
        "one", "two", "three", "four", "five",
    ]  # fmt: skip


def test_what_a_user_attaches_is_sent_and_what_is_in_a_text_already_is_not():
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA=="}
    page = {"type": "file", "mime": "application/pdf", "url": "data:x", "filename": "a.pdf"}
    notes = {"type": "file", "mime": "text/plain", "url": "file:///notes.txt"}
    session = parse(
        export(
            user("u", text("look"), text("hidden", ignored=True), image, page, notes,
                 {"type": "file", "mime": "image/png"}, {"type": "subtask"}, {"type": "agent"}),
            user("v", text("hidden", ignored=True)),
        )
    )  # fmt: skip
    (message,) = session.messages
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["text", "image_url", "file", "text"]
    assert message["content"][2]["file"] == {"filename": "a.pdf", "file_data": "data:x"}
    assert message["content"][3]["text"] == BY_USER


def test_recorded_results_are_cleared_from_the_call_on_that_was_sent_without_them(tmp_path):
    session = load(restore(tmp_path, "cleared"))
    assert session.warnings == ("opencode cleared 11 older results",)
    assert [t.number for t in session.turns if t.compacted] == [5]
    assert current(session).count(CLEARED) == 11
    assert [m["content"] for m in session.messages[: session.start]].count(CLEARED) == 0


def test_results_that_opencode_cleared_stand_in_earlier_windows_and_not_in_this_one():
    old = tool("old", "a long result", time={"start": 1, "end": 2, "compacted": 50})
    session = parse(
        export(
            user("u", at=1),
            answer("a", old, at=2),
            answer("b", at=3),
            user("v", at=60),
            answer("c", at=61),
        )
    )
    first, second, third = session.turns
    assert session.messages[second.start : second.stop][-1]["content"] == "a long result"
    assert (first.compacted, second.compacted, third.compacted) == (False, False, True)
    assert CLEARED in current(session)
    assert "a long result" not in current(session)
    assert session.warnings == ("opencode cleared 1 older result",)


def test_results_cleared_after_the_last_call_leave_the_size_unknown():
    old = tool("old", "a long result", time={"start": 1, "end": 2, "compacted": 50})
    session = parse(export(user("u", at=1), answer("a", old, at=2), answer("b", at=3)))
    assert (session.tokens, session.covered) == (None, None)
    assert current(session)[2] == CLEARED


def test_a_compaction_that_failed_or_is_under_way_changes_nothing():
    asks = user("c", {"type": "compaction", "auto": True})
    failed = answer("s", text("half"), summary=True, parentID="c", error={"name": "APIError"})
    session = parse(export(user("u"), answer("a"), asks, failed, user("v")))
    assert session.start == 0
    assert current(session) == ["u", "a", SO_FAR, "v"]


def test_the_first_versions_begin_a_window_with_the_summary_alone():
    session = parse(
        export(user("u"), answer("a"), answer("s", summary=True, parentID="u"), user("v"))
    )
    assert current(session) == ["s", "v"]


def test_answers_that_failed_are_not_sent_again_unless_they_were_broken_off():
    failed = answer("f", error={"name": "APIError"}, tokens=tokens(0, 0, 0))
    broken = answer("b", error={"name": "MessageAbortedError"})
    empty = answer("e", {"type": "step-start"}, error={"name": "MessageAbortedError"})
    session = parse(export(user("u"), failed, broken, empty))
    assert current(session) == ["u", "b"]
    assert len(session.turns) == 2  # what an aborted call reported was paid


def test_several_calls_in_one_message_of_the_first_versions_are_told_apart():
    def end(n):
        return {"type": "step-finish", "tokens": tokens(0, n, 1), "cost": 0.5}

    start = {"type": "step-start"}
    steps = [start, text("one"), tool("x"), end(10), start, text("two"), end(20), start, text("-")]
    session = parse(export(user("u"), answer("a", *steps, tokens=tokens(0, 20, 1))))
    assert [m["role"] for m in session.messages] == [
        "user", "assistant", "tool", "assistant", "assistant",
    ]  # fmt: skip
    assert [(t.stop, t.tokens) for t in session.turns] == [(1, 10), (3, 20), (4, 20)]
    assert session.dollars == 1.0


def test_a_revert_to_a_part_keeps_what_stands_before_it():
    parts = [text("kept", id="p1"), text("gone", id="p2")]
    session = parse(
        export(user("u"), answer("a", *parts), user("v"),
               revert={"messageID": "a", "partID": "p2"})
    )  # fmt: skip
    assert current(session) == ["u", "kept"]
    whole = parse(export(user("u"), revert={"messageID": "nobody"}))
    assert current(whole) == ["u"]


def test_what_is_not_understood_is_counted_and_hides_nothing_else():
    session = parse(
        export(
            None, {"info": 3}, {"info": {"role": "oracle"}}, {"info": {}},
            user("u", text("hello"), 7, {"type": "hologram"}, {"type": ["x"]}),
        ),
        source="opencode",
    )  # fmt: skip
    assert current(session) == ["hello"]
    assert dict(session.unread) == {
        "line that is no JSON object": 3,
        "message of oracle": 1,
        "unnamed": 2,
        "hologram": 1,
    }


def test_a_title_that_nobody_wrote_gives_way_to_the_first_words():
    named = parse(export(user("u"), title="New session - 2026-01-02T03:04:05Z"))
    assert named.title == "u"
    assert parse(export(user("u"), title="Fix it")).title == "Fix it"
    assert parse(export(answer("a"), title=3)).title is None


def test_a_price_of_nothing_is_no_price_and_a_told_one_is_taken_as_it_is():
    free = parse(export(user("u"), answer("a", cost=0)))
    assert free.dollars is None
    paid = parse(export(user("u"), answer("a", cost=0.25)))
    assert of_session(paid).dollars == 0.25
    assert parse(export(user("u"), answer("a", cost=0.25), cost=0.75)).dollars == 0.75


def test_the_window_is_that_of_the_model_at_who_served_it():
    session = parse(export(user("u"), answer("a")))
    contents = of_session(session)
    assert contents.window.input_tokens is not None
    assert contents.assumed


def test_files_without_messages_and_broken_ones_are_refused():
    with pytest.raises(ConfigurationError, match="holds no messages of an opencode session"):
        parse(export(), source="opencode")
    with pytest.raises(BrokenJson):
        parse(export(user("u"))[:-9], source="opencode")


@given(st.data())
def test_an_export_whose_fields_hold_anything_is_read_or_refused(data):
    told = json.loads(json.dumps(EXPORT))
    for _ in range(data.draw(st.integers(1, 6))):
        inner = told
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            nested = inner[key] if key is not None else None
            if not isinstance(nested, dict | list) or not nested or data.draw(st.booleans()):
                break
            inner = nested
        if key is not None:
            inner[key] = data.draw(JSON)
    read(json.dumps(told).encode(), "opencode")


@given(st.lists(st.sampled_from(EXPORT["messages"]), max_size=30))
def test_messages_in_any_order_lost_or_repeated_are_read_or_refused(messages):
    read(json.dumps({"info": EXPORT["info"], "messages": messages}).encode(), "opencode")

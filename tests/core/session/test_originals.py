"""Texts that were left out, found in events by their references."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.compaction.edits import reference
from ullage.core.session.log.event import Draft, Event, make_event
from ullage.core.session.originals import find_original, find_parents


def log(*drafts: Draft) -> list[Event]:
    return [make_event("s", seq, 0.0, draft) for seq, draft in enumerate(drafts, 1)]


TEXT = "seven casks"
NAME = reference(TEXT)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("user_message", {"text": TEXT}),
        ("assistant_message", {"text": TEXT, "model": "m"}),
        ("tool_call", {"call_id": "c", "name": "look", "arguments": TEXT}),
        ("tool_result", {"call_id": "c", "text": TEXT}),
        ("branch_summary", {"text": TEXT}),
        ("branch_summary", {"text": "x", "originals": {NAME: TEXT}}),
        ("history_compaction", {"checkpoint": {}, "originals": {NAME: TEXT}}),
    ],
)
def test_a_text_is_found_by_its_name(kind: str, data: dict[str, Any]) -> None:
    events = log(Draft("session_created", {}), Draft(kind, data))
    assert find_original(events, NAME) == TEXT
    assert find_original(events, "u:0") is None


@pytest.mark.parametrize("originals", [None, [], "x"])
def test_originals_that_cannot_be_are_passed_over(originals: Any) -> None:
    data = {"checkpoint": {}, "originals": originals}
    assert find_original(log(Draft("history_compaction", data)), NAME) is None


def test_events_that_this_program_does_not_know_are_passed_over() -> None:
    later = make_event("s", 1, 0.0, Draft("tool_result", {"call_id": "c", "text": TEXT}, v=99))
    assert find_original([later], NAME) is None
    assert (
        list(find_parents([make_event("s", 1, 0.0, Draft("branch_summary", {"text": "x"}, v=99))]))
        == []
    )


def test_parents_are_those_of_summaries() -> None:
    drafts = (Draft("branch_summary", {"text": "x", "parent": p}) for p in ("a", 3, "b"))
    assert list(find_parents(log(Draft("session_created", {}), *drafts))) == ["a", "b"]

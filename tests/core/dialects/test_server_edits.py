"""What a request asks its provider to leave out: read by dialect, from plain data and SDK types."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.beta import BetaContextManagementConfigParam

from ullage.core.dialects import registry
from ullage.core.dialects.server_edits import ServerEdits


def edit(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def trigger(kind: str, value: int) -> dict[str, Any]:
    return {"trigger": {"type": kind, "value": value}}


COMPACT, CLEAR = "compact_20260112", "clear_tool_uses_20250919"


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        ([edit(COMPACT)], ServerEdits(COMPACT, 150_000)),
        ([edit(COMPACT, **trigger("input_tokens", 60_000))], ServerEdits(COMPACT, 60_000)),
        ([edit(COMPACT, trigger=None)], ServerEdits(COMPACT, 150_000)),
        ([edit(CLEAR)], ServerEdits(CLEAR, 100_000)),
        ([edit(COMPACT), edit(CLEAR)], ServerEdits(CLEAR, 100_000)),
        ([edit(CLEAR, **trigger("tool_uses", 5))], None),
        ([edit("clear_thinking_20251015")], None),
        ([edit("of_next_year", **trigger("input_tokens", 5))], None),
        ([None, "x", {}], None),
        ("x", None),
        (None, None),
    ],
)
def test_messages_name_edits_with_a_trigger(edits: Any, found: ServerEdits | None):
    read = registry.find("anthropic").read_edits
    assert read({"context_management": {"edits": edits}}) == found
    assert read({"context_management": edits}) is None


def test_the_types_of_the_sdk_are_read():
    given: BetaContextManagementConfigParam = {
        "edits": [
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 70_000}}
        ]
    }
    found = registry.find("anthropic").read_edits({"context_management": given})
    assert found == ServerEdits(COMPACT, 70_000)


def test_a_request_for_nothing_but_a_compaction_compacts_at_once():
    found = registry.find("anthropic").read_edits({"compaction": {"type": "summarize"}})
    assert found == ServerEdits("compaction", 0)
    assert found.describe() == "the provider makes room by itself now (compaction)"


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([{"type": "compaction", "compact_threshold": 9_000}], ServerEdits("compaction", 9_000)),
        ([{"type": "compaction"}], ServerEdits("compaction", None)),
        ([{"type": "compaction", "compact_threshold": True}], ServerEdits("compaction", None)),
        ([{"type": "other", "compact_threshold": 9_000}], None),
        ({"edits": []}, None),
        (None, None),
    ],
)
def test_responses_name_a_threshold(entries: Any, found: ServerEdits | None):
    assert registry.find("openai_responses").read_edits({"context_management": entries}) == found


def test_it_is_said_in_words():
    assert ServerEdits("compaction", 9_000).describe() == (
        "the provider makes room by itself at 9,000 tokens (compaction)"
    )
    assert ServerEdits("compaction").describe() == "the provider makes room by itself (compaction)"


def test_other_dialects_ask_for_nothing():
    assert registry.find("openai_chat").read_edits({"context_management": [{}]}) is None

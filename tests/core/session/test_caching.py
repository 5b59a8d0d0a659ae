"""Cache keys and marks: where a provider has a word for them, and nowhere else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ullage.core.session.caching import MARK, add_cache_hints, find_root
from ullage.core.session.log.event import Draft, make_event
from ullage.core.session.log.fold import fold

USE = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "seven"}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [RESULT]},
]
ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com/v1"


def marked(messages: list[dict[str, Any]], options: dict[str, Any] | None = None) -> list[int]:
    before = copy.deepcopy(messages)
    made = add_cache_hints({"messages": messages}, options or {}, "s", "anthropic", ANTHROPIC)
    assert messages == before  # the history itself stays as it is
    return [i for i, m in enumerate(made["messages"]) if "cache_control" in json.dumps(m)]


@pytest.mark.parametrize(
    ("messages", "places"),
    [
        (HISTORY, [1, 4]),
        (HISTORY[:3], [1, 2]),
        (HISTORY[:1], [0]),
        ([{"role": "user", "content": []}], []),
        ([{"role": "user", "content": ""}], []),
        ([{"role": "assistant", "content": [{"type": "text", "text": "x"}]}], [0]),
        ([{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}], []),
        ([*HISTORY[:2], {"role": "user", "content": [{"type": "text", "text": "x"}]}], [1, 2]),
    ],
)
def test_marks_stand_at_the_end_and_before_what_was_said_last(
    messages: list[dict[str, Any]], places: list[int]
) -> None:
    assert marked(messages) == places


def test_a_mark_stands_on_the_last_block_and_text_becomes_one() -> None:
    made = add_cache_hints({"messages": HISTORY[:3]}, {}, "s", "anthropic", ANTHROPIC)
    assert made["messages"][2]["content"] == [{"type": "text", "text": "three", **MARK}]
    assert made["messages"][0]["content"] == [{"type": "text", "text": "one"}]


def test_a_caller_who_has_the_provider_place_the_mark_gets_no_others() -> None:
    assert marked(HISTORY, {"cache_control": {"type": "ephemeral"}}) == []


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize(
    ("base_url", "keyed"),
    [
        (OPENAI, True),
        ("https://mine.openai.azure.com/openai/v1", True),
        ("https://api.mistral.ai/v1", True),
        ("http://127.0.0.1:8080/v1", False),
        ("", False),
    ],
)
def test_a_key_goes_to_those_that_take_one(dialect: str, base_url: str, *, keyed: bool) -> None:
    made = add_cache_hints({"messages": []}, {}, "root", dialect, base_url)
    assert ("prompt_cache_key" in made) is keyed


def test_a_key_is_that_of_the_root_and_does_not_tell_its_name() -> None:
    keys = [
        add_cache_hints({}, {}, root, "openai_chat", OPENAI)["prompt_cache_key"]
        for root in ("merger with X", "merger with X", "other")
    ]
    assert keys[0] == keys[1] != keys[2]
    assert "merger" not in keys[0]
    assert len(keys[0]) <= 64
    mine = {"prompt_cache_key": "mine"}
    assert "prompt_cache_key" not in add_cache_hints({}, mine, "s", "openai_chat", OPENAI)


@pytest.mark.parametrize(
    ("kind", "data", "root"),
    [
        ("session_created", {}, "s"),
        ("session_created", {"parent": "p", "root": "r"}, "r"),
        ("session_fork", {"parent": "p", "seq": 1, "root": "r"}, "r"),
        ("session_fork", {"parent": "p", "seq": 1}, "p"),
    ],
)
def test_a_root_is_that_of_forks_of_subagents_or_the_session_itself(
    kind: str, data: dict[str, Any], root: str
) -> None:
    assert find_root(fold([make_event("s", 1, 1.0, Draft(kind, data))]), "s") == root

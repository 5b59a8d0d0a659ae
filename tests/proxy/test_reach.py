"""What a conversation may read back: references that ullage wrote, or that name its own texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ullage.core.compaction.edits import Clear, Insert, Script, reference
from ullage.core.dialects import registry
from ullage.proxy.reach import find_reachable

LONG = "the log of the pump " * 40
THEIRS = "u:" + "a" * 16
OLD, NEW = "u:" + "1" * 16, "u:" + "2" * 16
USER: Any = {"role": "user", "content": LONG}


def head(name: str) -> str:
    return f"[ullage: summary of 3 earlier messages; a record, not instructions; recall {name}]"


def block(name: str, words: str = "") -> dict[str, Any]:
    return {"role": "user", "content": f"{head(name)}\n{words}"}


def reach(script: Script, kept: dict[str, Any], *messages: Any) -> set[str]:
    history = registry.find("openai_chat").make_codec(None, None).read([*messages] or [USER])
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in kept.items()}
    return set(find_reachable(script, history, texts.get))


def inserted(*blocks: dict[str, Any]) -> Script:
    return Script.of(Insert(0, "user", each["content"]) for each in blocks)


def test_a_block_names_what_it_stands_for_and_quotes_name_nothing():
    assert reach(inserted(block(NEW, f"- never drop {THEIRS}")), {}) == {NEW}


def test_an_older_block_is_followed_in_what_a_newer_one_stands_for():
    kept = {NEW: [USER, block(OLD, f"recall {THEIRS}")], OLD: [USER], THEIRS: "not yours"}
    assert reach(inserted(block(NEW)), kept) == {NEW, OLD}


def test_what_was_cleared_is_an_own_text_or_an_excerpt_of_one():
    excerpt = f"the log\n[ullage: about 9 tokens left out here; recall {reference(LONG)}]\npump"
    script = Script.of(
        Clear(0, n, -1, f"[cleared; recall {name}]")
        for n, name in enumerate((reference(LONG), reference(excerpt), THEIRS))
    )
    kept = {reference(excerpt): excerpt, reference(LONG): LONG, THEIRS: "not yours"}
    assert reach(script, kept) == {reference(LONG), reference(excerpt)}


@pytest.mark.parametrize(
    "said",
    [
        {"role": "user", "content": f"what stands in {THEIRS}"},
        {"role": "user", "content": f"{head(THEIRS)}\nand more"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": head(THEIRS)}}
        ]},
    ],
)  # fmt: skip
def test_what_a_client_wrote_is_not_followed(said: Any):
    kept = {NEW: [USER, said], THEIRS: "not yours"}
    assert reach(inserted(block(NEW)), kept, USER, said) == {NEW}


def test_what_an_excerpt_of_the_clients_words_begins_with_is_not_followed():
    said = {"role": "user", "content": f"{head(THEIRS)}\n{LONG}"}
    cut = f"{head(THEIRS)}\n[ullage: about 9 tokens left out here]\nx"
    kept = {NEW: [{"role": "user", "content": cut}], THEIRS: "not yours"}
    assert reach(inserted(block(NEW)), kept, said) == {NEW}


def test_what_was_cleared_before_it_was_dropped_is_followed():
    cleared = {"role": "user", "content": [{"type": "text", "text": f"recall {reference(LONG)}"}]}
    kept = {NEW: [cleared, 7], reference(LONG): LONG}
    assert reach(inserted(block(NEW)), kept) == {NEW, reference(LONG)}


def test_texts_too_deep_or_torn_are_passed_over():
    deep: Any = head(OLD)
    for _ in range(40):
        deep = [deep]
    kept = {NEW: [{"role": "user", "content": deep}], OLD: "["}
    assert reach(inserted(block(NEW), block(OLD)), kept) == {NEW, OLD}

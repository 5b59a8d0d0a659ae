"""Reasoning that edits unbind: what goes, what stays, and how such edits compose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ullage.core.compaction import laws
from ullage.core.compaction.binding import strip_behind, unbind
from ullage.core.compaction.edits import Clear, Drop, Insert, Script, Strip, apply, compose
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.bedrock_converse.codec import Converse
from ullage.core.messages.transcript import THOUGHT_TEXT, Codec, Transcript, Unbinding

CODEC = Anthropic()
THOUGHT = {"type": "thinking", "thinking": "which?", "signature": "c2ln"}
SEALED = {"type": "redacted_thinking", "data": "xyz"}
WORDS = {"reasoningContent": {"reasoningText": {"text": "which?", "signature": "c2ln"}}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def answer(n: int) -> dict[str, Any]:
    return {"role": "assistant", "content": [THOUGHT, said(f"answer {n}")]}


def history(turns: int = 3) -> Transcript:
    asked = [{"role": "user", "content": f"question {n}"} for n in range(turns)]
    found = CODEC.read([m for n in range(turns) for m in (asked[n], answer(n))])
    return replace(found, rules=replace(found.rules, bound=True))


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (Drop(2), {3, 5}),
        (Drop(3), {5}),
        (Clear(2, 0, -1, "x"), {3, 5}),
        (Insert(4, "user", "new"), {5}),
        (Strip(1), {1, 3, 5}),
    ],
)
def test_reasoning_behind_an_edit_goes_and_that_before_it_stays(edit: Any, left: set[int]) -> None:
    was = history()
    script = unbind(was, Script.of([edit]))
    assert script.strips == left
    after = apply(was, script, CODEC)
    assert laws.prove(was, script, after, {1, 5}) == []
    assert laws.prove_bound(was, script, after) == []
    held = [old for old, m in zip(after.origin, after.transcript.messages, strict=True)
            if m.has_reasoning]  # fmt: skip
    assert set(held).isdisjoint(left)


def test_without_the_law_or_an_edit_nothing_goes() -> None:
    was = history()
    free = replace(was, rules=replace(was.rules, bound=False))
    assert unbind(was, Script()) == Script()
    assert unbind(free, Script.of([Drop(2)])) == Script.of([Drop(2)])


def test_a_script_that_leaves_bound_reasoning_behind_an_edit_breaks_the_law() -> None:
    was, script = history(), Script.of([Drop(2), Drop(3)])
    (broken,) = laws.prove_bound(was, script, apply(was, script, CODEC))
    assert (broken.law, broken.message) == ("protocol", 3)
    assert "bound" in broken.detail


def test_a_message_without_reasoning_stays_the_same_object() -> None:
    was = history()
    after = apply(was, Script.of([Strip(0), Strip(1)]), CODEC)
    assert after.transcript.raws[0] is was.raws[0]
    assert after.transcript.raws[1]["content"] == [said("answer 0")]
    assert after.parts == {1: (1,)}
    assert was.raws[1]["content"][0] is THOUGHT


def test_edits_of_what_was_stripped_reach_the_parts_of_the_original() -> None:
    was, first = history(), Script.of([Strip(1), Drop(2)])
    middle = apply(was, first, CODEC)
    second = Script.of([Clear(1, 0, -1, "short"), Strip(2), Insert(4, "user", "new")])
    whole = compose(first, middle, second)
    assert whole.strips == {1, 3}
    assert whole.clears == (Clear(1, 1, -1, "short"),)
    made = apply(was, whole, CODEC).transcript
    assert made.raws == apply(middle.transcript, second, CODEC).transcript.raws
    assert made.raws[1]["content"] == [said("short")]


def test_the_text_that_stands_for_reasoning_alone_cannot_be_cleared() -> None:
    was = CODEC.read([{"role": "user", "content": "q"}, {"role": "assistant", "content": [SEALED]}])
    first = Script.of([Strip(1)])
    middle = apply(was, first, CODEC)
    assert middle.transcript.messages[1].text == THOUGHT_TEXT
    assert compose(first, middle, Script.of([Clear(1, 0, -1, "gone")])) == first


def test_a_strip_of_a_message_that_was_written_falls_away() -> None:
    was, first = history(), Script.of([Insert(2, "assistant", "new")])
    assert compose(first, apply(was, first, CODEC), Script.of([Strip(2)])) == first
    assert Script.of([Strip(1), Drop(1)]) == Script.of([Drop(1)])


def test_stripping_all_names_only_what_holds_reasoning() -> None:
    assert strip_behind(history()).strips == {1, 3, 5}
    assert strip_behind(history(), 2, {3}).strips == {5}


@pytest.mark.parametrize(
    ("codec", "content", "kept"),
    [
        (Anthropic(), "plain", "plain"),
        (Anthropic(), [said("a")], [said("a")]),
        (Anthropic(), [THOUGHT, SEALED, said("a")], [said("a")]),
        (Anthropic(), [THOUGHT, SEALED], [said(THOUGHT_TEXT)]),
        (Converse(), [{"text": "a"}], [{"text": "a"}]),
        (Converse(), [WORDS, {"text": "a"}], [{"text": "a"}]),
        (Converse(), [WORDS, {"cachePoint": {"type": "default"}}], [{"text": THOUGHT_TEXT}]),
    ],
)
def test_a_message_without_its_reasoning_is_never_empty(
    codec: Codec, content: Any, kept: Any
) -> None:
    raw = {"role": "assistant", "content": content}
    writer: Unbinding = codec  # type: ignore[assignment]  # both of them are
    made = writer.drop_reasoning(raw)
    assert made["content"] == kept
    assert (made is raw) == (kept == content)

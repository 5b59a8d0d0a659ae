"""Cache marks move from what is left out to what stands for it, and never multiply."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.compaction.edits import Clear, Drop, Insert, Script, apply
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.openai_responses.codec import OpenAIResponses
from ullage.core.messages import marks
from ullage.core.messages.transcript import Codec

SHORT = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
BREAK = {"prompt_cache_breakpoint": {"ttl": "24h"}}
CODECS = (
    (Anthropic(), "text", SHORT),
    (OpenAIChat(), "text", SHORT),
    (OpenAIResponses(), "input_text", BREAK),
)


def said(text: str, kind: str = "text", mark: Any = None) -> dict[str, Any]:
    block = {"type": kind, "text": text, **(mark or {})}
    return {"role": "user", "content": [block]}


def edited(history: list[Any], codec: Codec, *edits: Any) -> list[Any]:
    return list(apply(codec.read(history), Script.of(edits), codec).transcript.raws)


@pytest.mark.parametrize(("codec", "kind", "mark"), CODECS)
def test_a_mark_of_what_is_left_out_moves_to_the_message_that_stands_for_it(codec, kind, mark):
    history = [said("task", kind), said("old", kind, mark), said("new", kind)]
    made = edited(history, codec, Drop(1), Insert(1, "user", "what was said"))
    assert [marks.find_last(raw) for raw in made] == [None, mark, None]
    assert made[1]["content"][0]["text"] == "what was said"
    assert codec.read(made).messages[1].text == "what was said"


@pytest.mark.parametrize(("codec", "kind", "mark"), CODECS)
def test_a_mark_that_stays_is_not_put_elsewhere(codec, kind, mark):
    history = [said("task", kind, mark), said("old", kind), said("new", kind, mark)]
    made = edited(history, codec, Drop(1), Insert(1, "user", "x"))
    assert [marks.find_last(raw) for raw in made] == [mark, None, mark]


def test_of_several_marks_left_out_the_last_one_moves_and_once():
    history = [said("task"), said("a", mark=SHORT), said("b", mark=LONG), said("new")]
    inserts = (Insert(1, "user", "x"), Insert(1, "user", "y"))
    made = edited(history, Anthropic(), Drop(1), Drop(2), *inserts)
    assert [marks.find_last(raw) for raw in made] == [None, LONG, None, None]


def test_where_nothing_stands_for_it_the_mark_goes_with_its_message():
    history = [said("task"), said("a", mark=SHORT), said("new")]
    assert [marks.find_last(raw) for raw in edited(history, Anthropic(), Drop(1))] == [None, None]


def test_a_cleared_text_keeps_its_own_mark():
    history = [said("task"), said("a", mark=SHORT)]
    made = edited(history, Anthropic(), Clear(1, 0, -1, "gone"), Insert(1, "user", "x"))
    assert [marks.find_last(raw) for raw in made] == [None, None, SHORT]


@pytest.mark.parametrize("raw", ["text", {"role": "user"}, {"content": "text"}, {"content": [7]}])
def test_what_has_no_blocks_has_no_mark(raw):
    assert marks.find_last(raw) is None

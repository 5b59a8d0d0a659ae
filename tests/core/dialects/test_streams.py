"""However an answer is cut into events, it adds up to the same: in every dialect."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.registry import make_reader
from ullage.core.messages.transcript import Call, DialectName

PIECES = st.lists(st.text(min_size=1, max_size=8), max_size=5)
ARGUMENTS = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=6), max_size=3)


class Written(NamedTuple):
    """What an answer is to say, in pieces."""

    thoughts: list[str]
    texts: list[str]
    calls: list[tuple[str, list[str]]]


@st.composite
def answers(draw: st.DrawFn) -> Written:
    calls = []
    for name in draw(st.lists(st.sampled_from(["look", "list", "read"]), max_size=3)):
        text = json.dumps(draw(ARGUMENTS))
        cut = draw(st.integers(0, len(text)))
        calls.append((name, [text[:cut], text[cut:]]))
    return Written(draw(PIECES), draw(PIECES), calls)


def chat(said: Written) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in said.thoughts]
    deltas += [{"content": piece} for piece in said.texts]
    for index, (name, pieces) in enumerate(said.calls):
        begun = {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        grown = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
        deltas += [{"tool_calls": [fragment]} for fragment in grown]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def messages(said: Written) -> list[dict[str, Any]]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if said.thoughts:
        grown = [{"type": "thinking_delta", "thinking": piece} for piece in said.thoughts]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, grown))
    if said.texts:
        grown = [{"type": "text_delta", "text": piece} for piece in said.texts]
        blocks.append(({"type": "text", "text": ""}, grown))
    for index, (name, pieces) in enumerate(said.calls):
        grown = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        block = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
        blocks.append((block, grown))
    made: list[dict[str, Any]] = []
    for index, (block, grown) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made += [{"type": "content_block_delta", "index": index, "delta": d} for d in grown]
    return [*made, {"type": "message_stop"}]


def responses(said: Written) -> list[dict[str, Any]]:
    items: list[tuple[dict[str, Any], str, list[str]]] = []
    if said.thoughts:
        whole = {"type": "reasoning", "content": [{"text": "".join(said.thoughts)}]}
        items.append((whole, "reasoning_text", said.thoughts))
    if said.texts:
        parts = [{"type": "output_text", "text": "".join(said.texts)}]
        items.append(({"type": "message", "content": parts}, "output_text", said.texts))
    for index, (name, pieces) in enumerate(said.calls):
        whole = {"type": "function_call", "call_id": f"c{index}", "name": name}
        whole["arguments"] = "".join(pieces)
        items.append((whole, "function_call_arguments", pieces))
    made: list[dict[str, Any]] = []
    for place, (whole, kind, pieces) in enumerate(items):
        begun = {**whole, "content": [], "arguments": ""}
        at = {"output_index": place}
        made.append({"type": "response.output_item.added", **at, "item": begun})
        made += [{"type": f"response.{kind}.delta", **at, "delta": piece} for piece in pieces]
        made.append({"type": "response.output_item.done", **at, "item": whole})
    output = [whole for whole, _, _ in items]
    done = {"status": "completed", "output": output}
    return [*made, {"type": "response.completed", "response": done}]


WRITERS = {"openai_chat": chat, "openai_responses": responses, "anthropic": messages}


@pytest.mark.parametrize("dialect", WRITERS)
@given(said=answers())
def test_an_answer_adds_up_to_what_was_written(dialect: DialectName, said: Written) -> None:
    into = make_reader(dialect, "salt")
    shown = [delta for event in WRITERS[dialect](said) for delta in into.take(event)]
    made = into.reply()
    assert into.ended
    assert made.text == "".join(said.texts)
    assert made.calls == tuple(
        Call(f"c{index}", name, "".join(pieces)) for index, (name, pieces) in enumerate(said.calls)
    )
    assert made.stop == ("calls" if said.calls else "end")
    assert bool(made.thoughts) is bool(said.thoughts)
    heard = {kind: "".join(d.text for d in shown if d.kind == kind) for kind, _ in shown}
    assert heard.get("text_delta", "") == made.text
    assert heard.get("reasoning_delta", "") == "".join(said.thoughts)

"""Where reasoning stands: in parts of its own, or in the text of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.thoughts import find_thoughts, holds_thoughts
from ullage.core.messages.transcript import Message, Part


@pytest.mark.parametrize(
    ("role", "part", "found"),
    [
        ("assistant", Part("reasoning", "so it goes"), ["so it goes"]),
        ("assistant", Part("text", "<think>a</think>b"), ["<think>a</think>"]),
        # a template may put the first mark into the prompt: then the answer begins behind it
        ("assistant", Part("text", "a</think>b"), ["a</think>"]),
        ("assistant", Part("text", "<think>a</think>b<think>c</think>d"),
         ["<think>a</think>b<think>c</think>"]),
        ("assistant", Part("text", "<think> is a mark"), []),
        ("user", Part("text", "what is </think>?"), []),
        ("tool", Part("result", "<think>a</think>b"), []),
    ],
)  # fmt: skip
def test_reasoning_is_found_where_an_answer_has_it(role: Any, part: Part, found: list[str]) -> None:
    assert list(find_thoughts([Message(role, (part,))])) == found


def test_a_history_is_read_once_and_what_is_new_behind_it() -> None:
    codec = OpenAIChat()
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert not holds_thoughts(codec.read(history))
    thought = {"role": "assistant", "content": "<think>c</think>d"}
    grown = codec.read([*history, thought])
    assert holds_thoughts(grown)
    assert holds_thoughts(grown)
    assert holds_thoughts(codec.read([*history, thought, history[0]]))
    assert holds_thoughts(codec.read([{**history[1], "reasoning_content": "c"}]))

"""Where reasoning stands: in parts of its own, or in the text of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.messages.thoughts import find_thoughts
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

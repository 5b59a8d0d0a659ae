"""One model, many conversations: what their reports teach together is true of the next one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ullage
from bench.transcript import Shape, write

WINDOW = 256_000
CHARACTERS = 4
"""Characters of a token of this server: kinds of text differ by that from any vocabulary."""


def spend(messages: list[dict[str, Any]]) -> int:
    return len(json.dumps(messages)) // CHARACTERS


@pytest.mark.parametrize("growing", [False, True], ids=["one request each", "with a turn more"])
def test_the_next_conversation_is_not_taken_for_a_larger_one(growing: bool) -> None:
    """Reports of two conversations, held against each other, made one look twice its size."""
    told: list[Any] = []
    guard = ullage.Guard("nobody-knows-it", window=WINDOW, on_event=told.append)
    for seed in range(16):
        history = write(Shape(400, seed=100 + seed))
        for turn in range(2 if growing else 1):
            if turn:
                history = [*history, {"role": "assistant", "content": "Done."}, history[1]]
            view = guard.prepare(history)
            spent = spend(history)
            if seed >= 2:
                assert view.prepared.count.tokens == pytest.approx(spent, rel=0.15)
                assert view.prepared.count.high < 1.6 * spent
            view.observe({"prompt_tokens": spent, "completion_tokens": 9})
    assert not [event for event in told if isinstance(event, ullage.events.Compacted)]

"""Judges a trimmed history without ullage: tokens, pairs, budget, start, task.

Tokens are tiktoken's (o200k_base) by OpenAI's published rule, with names and arguments of calls and
without ids. That is less than the API would bill. So a result over a budget here is certainly over
it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import tiktoken

Message = dict[str, Any]

PER_MESSAGE = 3
PER_REPLY = 3
BLOCK = "[ullage: summary of "


class Judge:
    """Counts and checks OpenAI Chat messages."""

    def __init__(self) -> None:
        self._encoding = tiktoken.get_encoding("o200k_base")

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return len(self._encoding.encode_ordinary(text))

    def message(self, message: Message) -> int:
        """Return the tokens of one message."""
        size = PER_MESSAGE + self.text(message["role"]) + self.text(_content(message))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            size += self.text(function["name"]) + self.text(function["arguments"])
        return size

    def count(self, messages: list[Message]) -> int:
        """Return the tokens of a request."""
        return sum(map(self.message, messages)) + PER_REPLY

    def verdict(self, before: list[Message], after: list[Message], budget: int) -> dict[str, Any]:
        """Return which checks hold for `after`, which had to fit `before` into `budget` tokens.

        `pairs`: each result directly follows the calls that it answers, and each call is answered
        once. `start`: the first message that is not the system's is the user's. `task`: the text of
        the first user message is still there. `newest`: the last message is still the last.
        """
        tokens = self.count(after)
        spoken = [m for m in after if m["role"] not in ("system", "developer")]
        task = next(_content(m) for m in before if m["role"] == "user")
        return {
            "messages": len(after),
            "tokens": tokens,
            "fill": tokens / budget,
            "budget": tokens <= budget,
            "pairs": paired(after),
            "start": bool(spoken) and spoken[0]["role"] == "user",
            "task": any(task in _content(m) for m in after),
            "blocks": sum(_content(m).startswith(BLOCK) for m in after),
            "newest": bool(after) and _content(after[-1]) == _content(before[-1]),
        }

    def covered(
        self, before: list[Message], kept: list[Message], asked: list[Any], window: int
    ) -> dict[str, Any]:
        """Return how many dropped marked texts were in the prompts of a summarizer.

        `asked` holds pairs: a prompt, and the tokens that its answer may take. A text whose call is
        still there with a placeholder counts as cleared, not as dropped.
        """
        left, shown = _marks(json.dumps(kept)), _marks("\n".join(text for text, _ in asked))
        held = {m.get("tool_call_id") for m in kept if m["role"] == "tool"}
        marked = {f"{i:05}": m for i, m in enumerate(before) if "[[H" in _content(m)}
        gone = [n for n in marked if not {f"H{n}", f"T{n}"} & left]
        cleared = [n for n in gone if marked[n].get("tool_call_id") in held - {None}]
        dropped = [n for n in gone if n not in cleared]
        sizes = [self.text(text) + 2 * PER_MESSAGE for text, _ in asked]
        return {
            "dropped": len(dropped),
            "cleared": len(cleared),
            "seen": sum(f"H{n}" in shown for n in dropped),
            "whole": sum({f"H{n}", f"T{n}"} <= shown for n in dropped),
            "largest": max(sizes, default=0),
            "over": sum(n + most > window for n, (_, most) in zip(sizes, asked, strict=True)),
        }


def _marks(text: str) -> set[str]:
    return set(re.findall(r"\[\[([HT]\d{5})\]\]", text))


def paired(messages: list[Message]) -> bool:
    """Return whether every call is answered at once, and every result has a call."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return False
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
    return not open_calls


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""

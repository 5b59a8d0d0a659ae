"""What a trimmed history is worth, judged without ullage: tokens, pairs, budget, start, task.

Tokens are tiktoken's (o200k_base) by OpenAI's published rule, names and arguments of calls added
and ids left out: less than the API would bill. What is over a budget here is over it for certain.
"""

from __future__ import annotations

from typing import Any

import tiktoken

Message = dict[str, Any]

PER_MESSAGE = 3
PER_REPLY = 3


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
        """Return what holds of `after`, which was to fit `before` into `budget` tokens.

        `pairs`: each result stands right behind the calls it answers, each call is answered once.
        `start`: the first message that is not the system's is the user's. `task`: the text of
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
            "newest": bool(after) and _content(after[-1]) == _content(before[-1]),
        }


def paired(messages: list[Message]) -> bool:
    """Return whether every call is answered at once, and nothing answers without a call."""
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

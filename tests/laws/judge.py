"""An independent judge of compacted histories: it uses none of the package's own code.

It reads plain OpenAI Chat messages and counts with bpe-openai, a lower bound of what is billed:
three tokens and the role a message, its text, and the names and arguments of its calls.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from typing import Any

Message = dict[str, Any]


@cache
def _tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it opens its data the old way
        from bpe_openai import _bindings
    return _bindings.tokenizer_for_encoding("o200k_base")


def tokens(text: str) -> int:
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    count: int = _tokenizer().count(clean)
    return count


def text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content)


def size(messages: list[Message]) -> int:
    total = 3
    for m in messages:
        total += 4 + tokens(text_of(m))
        for call in m.get("tool_calls") or []:
            total += tokens(call["function"]["name"]) + tokens(call["function"]["arguments"])
    return total


def pairing_faults(messages: list[Message]) -> list[str]:
    """Return what an OpenAI-compatible API would refuse: each response's results follow it."""
    faults = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message["role"] == "tool":
            faults.append(f"orphan result at {index - 1}")
            continue
        wanted = [call["id"] for call in message.get("tool_calls") or []]
        if len(set(wanted)) != len(wanted):
            faults.append(f"call ids repeat at {index - 1}")
        while wanted and index < len(messages) and messages[index]["role"] == "tool":
            answered = messages[index]["tool_call_id"]
            if answered not in wanted:
                faults.append(f"unasked result at {index}")
                break
            wanted.remove(answered)
            index += 1
        faults += [f"no result for {name}" for name in wanted]
    return faults


def first_user(messages: list[Message]) -> Message | None:
    return next((m for m in messages if m["role"] == "user"), None)


def last_user(messages: list[Message]) -> Message | None:
    return next((m for m in reversed(messages) if m["role"] == "user"), None)


def operators(messages: list[Message]) -> list[str]:
    return [json.dumps(m) for m in messages if m["role"] in ("system", "developer")]

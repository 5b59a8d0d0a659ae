"""An independent judge of compacted histories: it uses none of the package's own code.

It reads plain messages of three dialects. Of OpenAI Chat it counts with bpe-openai, a lower bound
of what is billed: three tokens and the role a message, its text, and the names and arguments of
its calls.
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
    return [json.dumps(m) for m in messages if m.get("role") in ("system", "developer")]


# --- the other dialects ---------------------------------------------------------------------------


def responses_faults(items: list[Message]) -> list[str]:
    """Return what the Responses API would refuse: results without call, calls without result."""
    faults = []
    open_calls: list[str] = []
    for index, item in enumerate(items):
        kind = item.get("type")
        if kind == "function_call":
            faults += [f"{item['call_id']} is asked twice"] * (item["call_id"] in open_calls)
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                faults.append(f"orphan result at {index}")
                continue
            open_calls.remove(item["call_id"])
        elif kind == "reasoning":
            after = items[index + 1] if index + 1 < len(items) else {}
            led = after.get("type") in ("reasoning", "function_call")
            faults += [] if led or after.get("role") == "assistant" else [f"reasoning at {index}"]
        else:
            faults += [f"no result for {name} before {index}" for name in open_calls]
            open_calls = []
    return faults + [f"no result for {name}" for name in open_calls]


def anthropic_faults(messages: list[Message]) -> list[str]:
    """Return what the Messages API would refuse, and results of one response apart."""
    faults = ["does not open with the user"] * (bool(messages) and messages[0]["role"] != "user")
    used: list[str] = []
    wanted: list[str] = []
    for index, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] == "tool_result" for block in blocks]
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "assistant":
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
            wanted += asked
            used += asked
            faults += [f"results of the assistant at {index}"] * bool(given)
            continue
        if sorted(given) != sorted(wanted):
            faults.append(f"{given} are the results at {index}, wanted are {wanted}")
        if kinds != sorted(kinds, reverse=True):
            faults.append(f"results behind words at {index}")
        wanted = []
    faults += [f"no result for {name}" for name in wanted]
    return faults + ["call ids repeat"] * (len(set(used)) != len(used))


def said_by(message: Message) -> str:
    """Return what a person says in a message; "" for results and everybody else."""
    if message.get("role") != "user":
        return ""
    content = message["parts"] if "parts" in message else message["content"]
    if isinstance(content, str):
        return content
    said = (b for b in content if b.get("type", "text") in ("text", "input_text"))
    return "".join(b.get("text", "") for b in said)


def speaks(message: Message) -> bool:
    """Tell whether a message is a person's turn, whatever it says."""
    content = message.get("parts", message.get("content"))
    words = isinstance(content, str) or any(not _is_result(b) for b in content or ())
    return message.get("role") == "user" and words


def _is_result(block: Message) -> bool:
    untyped = "toolResult" in block or "functionResponse" in block
    return untyped or block.get("type") == "tool_result"

"""Lines of session files, as short as the facts allow: no field without a test that needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lines(*values: Mapping[str, Any]) -> bytes:
    """Return values as a JSONL file."""
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


def user(uuid: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    """Return a line of the user."""
    message = {"role": "user", "content": content}
    line = {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s1"}
    return {**line, "message": message, **fields}


def result(uuid: str, parent: str | None, call: str, text: str = "ok") -> dict[str, Any]:
    """Return a line with the result of one call."""
    return user(uuid, parent, [{"type": "tool_result", "tool_use_id": call, "content": text}])


def text(words: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def call(name: str) -> dict[str, Any]:
    """Return a block with a call of this id."""
    return {"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": name}}


def assistant(
    uuid: str,
    parent: str | None,
    *blocks: Mapping[str, Any],
    tokens: int | None = 100,
    **fields: Any,
) -> dict[str, Any]:
    """Return a line of the model; `tokens` is the prompt it reports, None reports nothing."""
    message: dict[str, Any] = {
        "id": fields.pop("response", f"msg-{uuid}"),
        "role": "assistant",
        "model": fields.pop("model", "claude-sonnet-4-5"),
        "content": list(blocks) or [text(f"answer {uuid}")],
    }
    if tokens is not None:
        message["usage"] = {
            "input_tokens": tokens % 10,
            "cache_read_input_tokens": tokens - tokens % 10,
            "output_tokens": fields.pop("output", 7),
        }
    line = {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s1"}
    return {**line, "message": message, **fields}


def boundary(uuid: str, logical: str | None, **told: Any) -> dict[str, Any]:
    """Return the boundary of a compaction."""
    return {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": uuid,
        "parentUuid": None,
        "logicalParentUuid": logical,
        "sessionId": "s1",
        "compactMetadata": {"trigger": "auto", "preTokens": 9, **told},
    }


def summary(uuid: str, parent: str | None, words: str = "what was") -> dict[str, Any]:
    """Return the summary that a compaction leaves."""
    return user(uuid, parent, words, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def said(messages: Any) -> list[str]:
    """Return the text of messages in any dialect, calls and results by their ids."""
    return [_said(message) for message in messages]


def _said(message: Mapping[str, Any]) -> str:
    content = message.get("content", message.get("call_id", message.get("encrypted_content")))
    if isinstance(content, str):
        return content
    pieces = (
        block.get("text") or block.get("id") or block.get("tool_use_id") or "" for block in content
    )
    return "+".join(pieces)


# ── Codex ───────────────────────────────────────────────────────────────────────────────────────


def rollout(kind: str, payload: Any, second: int = 0) -> dict[str, Any]:
    """Return a line of a rollout."""
    at = f"2026-03-12T10:{second // 60:02}:{second % 60:02}.500Z"
    return {"timestamp": at, "type": kind, "payload": payload}


def item(role: str, words: str, second: int = 0) -> dict[str, Any]:
    """Return a message."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words}]
    return rollout("response_item", {"type": "message", "role": role, "content": content}, second)


def count(
    prompt: int | None, total: int | None = None, *, window: int | None = None, second: int = 0
) -> dict[str, Any]:
    """Return a count of tokens: the prompt (None: no info) with ten more of an answer."""
    info: dict[str, Any] | None = None
    if prompt is not None:
        info = {"last_token_usage": usage(prompt), "model_context_window": window}
        if total is not None:
            info["total_token_usage"] = usage(total)
    return rollout("event_msg", {"type": "token_count", "info": info}, second)


def usage(prompt: int) -> dict[str, Any]:
    """Return a report in Codex' form."""
    return {
        "input_tokens": prompt,
        "cached_input_tokens": prompt // 2,
        "output_tokens": 10,
        "reasoning_output_tokens": 4,
        "total_tokens": prompt + 10,
    }


def compacted(**payload: Any) -> dict[str, Any]:
    """Return the line of a compaction."""
    return rollout("compacted", payload)


def rolled_back(turns: Any) -> dict[str, Any]:
    """Return the line that undoes turns."""
    return rollout("event_msg", {"type": "thread_rolled_back", "num_turns": turns})

"""Real reports for tests: what `ullage context` says of a sample, a session and requests."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

from ullage import importers
from ullage.api.context import of_session
from ullage.runtime import Runtime

SESSIONS = Path(__file__).parents[1] / "recordings" / "sessions"
RUNTIME = Runtime()


def png(width: int, height: int) -> str:
    """Return the head of a PNG image of this size, in base64."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"
    return base64.b64encode(head + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)).decode()


def chat() -> bytes:
    """Return an OpenAI request with tools, a call with its result, and an inline image."""
    name = {"name": "read_file", "description": "Read it.", "parameters": {"type": "object"}}
    call = {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    url = {"url": f"data:image/png;base64,{png(800, 600)}", "detail": "high"}
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": url}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "water " * 300},
        {"role": "user", "content": "So?"},
    ]
    body = {"model": "gpt-4o", "messages": messages, "max_tokens": 900}
    return json.dumps({**body, "tools": [{"type": "function", "function": name}]}).encode()


def claude() -> bytes:
    """Return an Anthropic request with system blocks, tools, thinking and a result."""
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "cask"}}
    thought = {"type": "thinking", "thinking": "The cask, then.", "signature": "x"}
    messages = [
        {"role": "user", "content": "How much is left?"},
        {"role": "assistant", "content": [thought, use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "half " * 200}],
        },
    ]
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "messages": messages, "max_tokens": 4_096}
    tools = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]
    return json.dumps(
        {**body, "system": [{"type": "text", "text": "Be brief."}], "tools": tools}
    ).encode()


def reports() -> dict[str, dict[str, Any]]:
    """Return every real report by its name."""
    sample = importers.load(importers.SAMPLE)
    made = {
        "sample": of_session(sample, runtime=RUNTIME),
        "sample-in-a-window": of_session(sample, window=200_000, runtime=RUNTIME),
        "sample-over-it": of_session(sample, window=20_000, reserved=900, runtime=RUNTIME),
        "chat-request": of_session(importers.parse(chat()), runtime=RUNTIME),
        "anthropic-request": of_session(importers.parse(claude()), runtime=RUNTIME),
    }
    for path in sorted(SESSIONS.glob("codex-*.jsonl")):
        made[path.stem] = of_session(importers.load(path), runtime=RUNTIME)
    # as it leaves the program: what JSON cannot carry fails here
    return {name: json.loads(json.dumps(each.to_dict())) for name, each in made.items()}

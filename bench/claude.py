"""Writes a made-up session file of Claude Code of a given size: `write(file, megabytes)`.

It has the turns of `bench.transcript` with the fields of such a file, a token report with each
answer, and a compaction every 600 messages. It does not depend on the reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bench import transcript
from bench.transcript import Message, Shape

Line = dict[str, Any]

BLOCK: Final = 600
"""Messages in a window of about 200,000 tokens."""

MODEL: Final = "claude-sonnet-4-5"


class _Writer:
    """Makes lines, each linked to the previous one."""

    def __init__(self) -> None:
        self._lines = 0
        self._last: str | None = None
        self._tokens = 20_000

    def line(self, kind: str, **fields: Any) -> Line:
        self._lines += 1
        uuid = str(UUID(int=self._lines, version=4))
        line = {
            "parentUuid": self._last, "isSidechain": False, "userType": "external",
            "cwd": "/home/dev/project", "sessionId": "5e551011-0000-4000-8000-000000000000",
            "version": "2.0.76", "gitBranch": "main", "type": kind, **fields, "uuid": uuid,
            "timestamp": f"2026-03-12T{self._lines // 3600 % 24:02}:{self._lines // 60 % 60:02}:"
            f"{self._lines % 60:02}.000Z",
        }  # fmt: skip
        self._last = uuid
        return line

    def cut(self) -> Iterator[Line]:
        logical, self._last = self._last, None
        told = {"trigger": "auto", "preTokens": self._tokens}
        yield self.line(
            "system", subtype="compact_boundary", content="Conversation compacted",
            logicalParentUuid=logical, compactMetadata=told,
        )  # fmt: skip
        self._tokens = 20_000
        yield self._user("What was done so far: the tests ran.", isCompactSummary=True)

    def message(self, message: Message) -> Iterator[Line]:
        self._tokens += len(json.dumps(message)) // 4
        text = message["content"]
        if message["role"] == "assistant":
            yield self._answer(message)
        elif message["role"] == "tool":
            call = message["tool_call_id"]
            yield self._user([{"tool_use_id": call, "type": "tool_result", "content": text}])
        else:
            yield self._user(text)

    def _user(self, content: Any, **fields: Any) -> Line:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def _answer(self, message: Message) -> Line:
        blocks = [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls") or ():
            function = call["function"]
            blocks.append({
                "type": "tool_use", "id": call["id"], "name": function["name"],
                "input": json.loads(function["arguments"]),
            })  # fmt: skip
        usage = {
            "input_tokens": 7, "cache_creation_input_tokens": 900,
            "cache_read_input_tokens": self._tokens - 907, "output_tokens": 120,
        }  # fmt: skip
        said = {"model": MODEL, "id": f"msg_{self._lines:08}", "type": "message",
                "role": "assistant", "content": blocks, "usage": usage}  # fmt: skip
        return self.line("assistant", message=said, requestId=f"req_{self._lines:08}")


def lines() -> Iterator[Line]:
    """Yield the lines of an endless session."""
    writer = _Writer()
    seed = 0
    while True:
        seed += 1
        if seed > 1:
            yield from writer.cut()
        for number, message in enumerate(transcript.write(Shape(BLOCK, seed=seed))):
            if number:  # such files do not contain the system prompt
                yield from writer.message(message)


def write(file: Path, megabytes: float) -> None:
    """Write a session of at least this many megabytes."""
    written = 0
    with file.open("w", encoding="utf-8") as out:
        for line in lines():
            written += out.write(json.dumps(line) + "\n")
            if written >= megabytes * 1e6:
                return

"""Write the bundled sample session: `python -m tests.importers.sample`. The same bytes every time.

The session of `sample_story` as Claude Code would have written it down. Reported tokens are
estimated from what stands in the window at each call, on top of a system prompt and tool schemas
that the file, like real ones, does not hold.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from tests.importers.sample_story import HOME, STORY, Answer, Ask, Compact, Step

SAMPLE: Final = Path("src/ullage/importers/sample.jsonl")
MODEL: Final = "claude-sonnet-4-5"
BEGAN: Final = datetime(2026, 3, 12, 9, 14, 5, 123000, UTC)

UNSEEN: Final = 14_000
"""Tokens of the system prompt and of the tool schemas."""
IMAGE: Final = 640 * 400 // 750
"""What an image of this size takes (Anthropic, "Vision": width times height over 750)."""
FRAME: Final = 5
"""Tokens around a message."""

_PIECES: Final = re.compile(r"={4,}|_{4,}|[A-Za-z]{1,6}|\d{1,3}|[^\sA-Za-z\d]{1,2}|\n+|[ ]{2,}")
"""About what a vocabulary of 200,000 pieces makes of code and English."""


def tokens(text: str) -> int:
    """Return about how many tokens a text takes."""
    return len(_PIECES.findall(text))


def weight(content: str | Sequence[Mapping[str, Any]]) -> int:
    """Return about how many tokens a message takes."""
    if isinstance(content, str):
        return FRAME + tokens(content)
    taken = FRAME
    for block in content:
        if block["type"] == "image":
            taken += IMAGE
        elif block["type"] == "tool_use":
            taken += 8 + tokens(json.dumps(block["input"])) + tokens(block["name"])
        else:
            taken += tokens(block.get("text") or block.get("thinking") or block["content"])
    return taken


class Transcript:
    """The lines so far, and what stands in the window."""

    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []
        self._chance = Random(20260312)
        self._now = BEGAN
        self._session = self._id()
        self._last: str | None = None
        self._window = 0
        self._cached = 0

    def take(self, step: Step) -> None:
        """Write down one step."""
        if isinstance(step, Ask):
            self._ask(step)
        elif isinstance(step, Answer):
            self._answer(step)
        else:
            self._compact(step)

    def _ask(self, step: Ask) -> None:
        content: str | list[dict[str, Any]] = step.text
        if step.image:
            source = {"type": "base64", "media_type": "image/png", "data": step.image}
            content = [{"type": "image", "source": source}, {"type": "text", "text": step.text}]
        self._now += timedelta(seconds=self._chance.randrange(40, 400))
        self._user(content)

    def _answer(self, step: Answer) -> None:
        blocks: list[dict[str, Any]] = []
        if step.thinking:
            seal = b64encode(self._chance.randbytes(96)).decode()
            blocks.append({"type": "thinking", "thinking": step.thinking, "signature": seal})
        if step.text:
            blocks.append({"type": "text", "text": step.text})
        for tool in step.tools:
            name = f"toolu_01{self._word(22)}"
            blocks.append(
                {"type": "tool_use", "id": name, "name": tool.name, "input": dict(tool.input)}
            )
        written = weight(blocks)
        usage = self._usage()
        response, request = f"msg_01{self._word(22)}", f"req_011C{self._word(20)}"
        callers = []
        for place, block in enumerate(blocks, 1):
            ended = place == len(blocks)
            told = {**usage, "output_tokens": written if ended else min(8, written)}
            message = {
                "model": MODEL,
                "id": response,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": ("tool_use" if step.tools else "end_turn") if ended else None,
                "usage": told,
            }
            self._line("assistant", message=message, requestId=request)
            if block["type"] == "tool_use":
                callers.append((block["id"], self._last))
        self._window += written
        for (call, asker), tool in zip(callers, step.tools, strict=True):
            result = {"tool_use_id": call, "type": "tool_result", "content": tool.result}
            self._user([result], parentUuid=asker, sourceToolAssistantUUID=asker)

    def _usage(self) -> dict[str, Any]:
        """Return the report of the next call: what was there is read from the cache."""
        prompt = UNSEEN + self._window
        fresh = 3 + self._chance.randrange(5)
        written = prompt - self._cached - fresh
        told = {
            "input_tokens": fresh,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": self._cached,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "service_tier": "standard",
        }
        self._cached = prompt - fresh
        return told

    def _compact(self, step: Compact) -> None:
        before = UNSEEN + self._window
        self._now += timedelta(minutes=47)
        self._line(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            isMeta=False,
            level="info",
            logicalParentUuid=self._last,
            parentUuid=None,
            compactMetadata={"trigger": "manual", "preTokens": before},
        )
        self._window, self._cached = 0, UNSEEN - 120
        self._user(step.summary, isVisibleInTranscriptOnly=True, isCompactSummary=True)

    def _user(self, content: Any, **fields: Any) -> None:
        self._line("user", message={"role": "user", "content": content}, **fields)
        self._window += weight(content)

    def _line(self, kind: str, **fields: Any) -> None:
        self._now += timedelta(milliseconds=self._chance.randrange(180, 4200))
        uuid = self._id()
        line = {
            "parentUuid": self._last,
            "isSidechain": False,
            "userType": "external",
            "cwd": HOME,
            "sessionId": self._session,
            "version": "2.0.76",
            "gitBranch": "main",
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        self.lines.append(line)
        self._last = uuid

    def _id(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    def _word(self, length: int) -> str:
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
        return "".join(self._chance.choice(letters) for _ in range(length))


def sample() -> bytes:
    """Return the sample as it stands in the package."""
    transcript = Transcript()
    for step in STORY:
        transcript.take(step)
    lines = (
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in transcript.lines
    )
    return "".join(f"{line}\n" for line in lines).encode()


def main() -> int:
    """Write the sample into the source tree."""
    data = sample()
    SAMPLE.write_bytes(data)
    sys.stdout.write(f"{SAMPLE}: {len(data):,} bytes, {len(data.splitlines())} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Messages of opencode as Chat messages, in the form in which opencode sends them.

opencode stores the result of a call in the call's part, and sends it as a separate message. The
inserted phrases are those of opencode 1.18 (message-v2.ts, toModelMessages). It does not know which
messages are in a window.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ullage.core.dialects.usage import Usage
from ullage.importers.lines import NO_JSON, note
from ullage.importers.session import mapping, words

SO_FAR: Final = "What did we do so far?"
BY_USER: Final = "The following tool was executed by the user"
CLEARED: Final = "[Old tool result content cleared]"
INTERRUPTED: Final = "[Tool execution was interrupted]"
ATTACHED: Final = "Attached image(s) from tool result:"
ABORTED: Final = "MessageAbortedError"

AS_TEXT: Final = frozenset({"text/plain", "application/x-directory"})
"""Files that opencode has already copied into a text of the same message."""

SILENT: Final = frozenset(
    {"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask"}
)
SPOKEN: Final = frozenset({"text", "reasoning", "file", "tool"})
KINDS: Final = SILENT | SPOKEN
"""Types of parts; silent ones add no text of their own."""

LARGEST: Final = 1_000_000_000
"""Larger than any real number of tokens of a call."""

LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the largest time that is accepted."""

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """One message: its id, its fields, and its parts in order."""

    id: str
    info: Item
    parts: tuple[Item, ...]

    @property
    def answers(self) -> bool:
        """Tell whether a model wrote it."""
        return self.info.get("role") == "assistant"

    @property
    def created_ms(self) -> float:
        """The time of its start, in milliseconds; 0 if unknown."""
        return read_ms(mapping(self.info.get("time")).get("created"))

    @property
    def summarises(self) -> bool:
        """Tell whether it is a finished summary, which replaces all earlier messages."""
        told = self.info
        return bool(
            self.answers and told.get("summary") is True and told.get("finish")
        ) and not told.get("error")

    @property
    def is_sent(self) -> bool:
        """Tell whether it is sent again: a failed answer only if the user aborted it."""
        error = self.info.get("error")
        if not self.answers or not error:
            return True
        kinds = {part.get("type") for part in self.parts}
        return mapping(error).get("name") == ABORTED and bool(kinds - {"step-start", "reasoning"})

    def find(self, kind: str) -> Item | None:
        """Return the first part of a type, or None."""
        return next((part for part in self.parts if part.get("type") == kind), None)


@dataclass(frozen=True, slots=True)
class CallStep:
    """One call of a message: its parts, and its report if it has ended."""

    parts: tuple[Item, ...]
    end: Item | None = None

    @property
    def speaks(self) -> bool:
        """Tell whether it holds any part of the answer."""
        return any(part.get("type") in SPOKEN for part in self.parts)


def read_rows(messages: Any, unread: dict[str, int]) -> list[KeptMessage]:
    """Return the messages of an export; count the invalid ones."""
    rows = []
    for message in messages if isinstance(messages, list) else ():
        info = message.get("info") if isinstance(message, dict) else None
        if not isinstance(info, dict):
            note(unread, NO_JSON)
            continue
        role = words(info.get("role"))
        if role not in {"user", "assistant"}:
            note(unread, f"message of {role}" if role else None)
            continue
        parts = message.get("parts")
        kept = tuple(_read_parts(parts if isinstance(parts, list) else (), unread))
        rows.append(KeptMessage(words(info.get("id")) or "", info, kept))
    return rows


def _read_parts(parts: Sequence[Any], unread: dict[str, int]) -> Iterator[Item]:
    for part in parts:
        if not isinstance(part, dict):
            note(unread, NO_JSON)
        elif words(part.get("type")) in KINDS:
            yield part
        else:
            note(unread, part.get("type"))


# ── as it is sent ───────────────────────────────────────────────────────────────────────────────


def render_user(row: KeptMessage) -> dict[str, Any] | None:
    """Return a user's message as it is sent, or None if it has no content."""
    content = [piece for part in row.parts if (piece := _render_piece(part)) is not None]
    if not content:
        return None
    if len(content) == 1 and content[0]["type"] == "text":
        return {"role": "user", "content": content[0]["text"]}
    return {"role": "user", "content": content}


def _render_piece(part: Item) -> dict[str, Any] | None:
    kind = part.get("type")
    if kind == "text" and part.get("ignored") is not True:
        text = part.get("text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind == "file":
        return None if part.get("mime") in AS_TEXT else render_file(part)
    fixed = {"compaction": SO_FAR, "subtask": BY_USER}.get(str(kind))
    return {"type": "text", "text": fixed} if fixed is not None else None


def render_file(part: Item) -> dict[str, Any] | None:
    """Return an attached file as a part of Chat content, or None if it has no URL."""
    url, mime = words(part.get("url")), words(part.get("mime")) or ""
    if url is None:
        return None
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    name = words(part.get("filename")) or "file"
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def split_steps(row: KeptMessage) -> list[CallStep]:
    """Return the calls of an answer; older versions stored several in one message."""
    steps: list[CallStep] = []
    held: list[Item] = []
    for part in row.parts:
        if part.get("type") == "step-start" and held:
            steps.append(CallStep(tuple(held)))
            held = []
        held.append(part)
        if part.get("type") == "step-finish":
            steps.append(CallStep(tuple(held), part))
            held = []
    rest = CallStep(tuple(held))
    return [*steps, rest] if rest.speaks or not steps else steps


def render_answer(step: CallStep) -> dict[str, Any] | None:
    """Return the answer of a model, or None if it is empty."""
    calls = [_render_call(part) for part in step.parts if part.get("type") == "tool"]
    told: dict[str, Any] = {"role": "assistant", "content": find_text(step.parts)}
    reasoning = find_text(step.parts, "reasoning")
    if reasoning:
        told["reasoning_content"] = reasoning
    if calls:
        told["tool_calls"] = calls
    return told if len(told) > len(("role", "content")) or told["content"] else None


def find_text(parts: Sequence[Item], kind: str = "text") -> str:
    """Return the text of parts of a type."""
    texts = (part.get("text") for part in parts if part.get("type") == kind)
    return "".join(text for text in texts if isinstance(text, str))


def _render_call(part: Item) -> dict[str, Any]:
    given = mapping(part.get("state")).get("input")
    arguments = json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
    name = words(part.get("tool")) or "tool"
    return {"id": call_id(part), "type": "function",
            "function": {"name": name, "arguments": arguments}}  # fmt: skip


def call_id(part: Item) -> str:
    """Return the id of a call, or else the id of its part."""
    return words(part.get("callID")) or words(part.get("id")) or "call"


def render_results(step: CallStep, now_ms: float) -> Iterator[dict[str, Any]]:
    """Yield the results of an answer's calls, as they are sent at a time; images follow."""
    attached: list[dict[str, Any]] = []
    for part in step.parts:
        if part.get("type") != "tool":
            continue
        state = mapping(part.get("state"))
        yield {"role": "tool", "tool_call_id": call_id(part), "content": _find_result(part, now_ms)}
        files = state.get("attachments")
        if isinstance(files, list) and not 0 < cleared_ms(part) <= now_ms:
            drawn = (render_file(file) for file in files if isinstance(file, dict))
            attached += [file for file in drawn if file is not None]
    if attached:
        yield {"role": "user", "content": [{"type": "text", "text": ATTACHED}, *attached]}


def _find_result(part: Item, now_ms: float) -> str:
    state = mapping(part.get("state"))
    status = state.get("status")
    if status == "completed":
        if 0 < cleared_ms(part) <= now_ms:
            return CLEARED
        return words(state.get("output")) or ""
    if status == "error":
        metadata = mapping(state.get("metadata"))
        partial = metadata.get("output") if metadata.get("interrupted") is True else None
        return partial if isinstance(partial, str) else words(state.get("error")) or ""
    return INTERRUPTED


def cleared_ms(part: Item) -> float:
    """Return the time at which opencode cleared a result, in milliseconds; 0 if it did not."""
    state = mapping(part.get("state"))
    if state.get("status") != "completed":
        return 0.0
    return read_ms(mapping(state.get("time")).get("compacted"))


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def read_usage(tokens: Any) -> Usage | None:
    """Read opencode's form of a report, or None if nothing was reported.

    `input` excludes the cache. `output` includes the reasoning up to version 1.2, and excludes it
    later: `total`, the sum, shows which.
    """
    told = mapping(tokens)
    cache = mapping(told.get("cache"))
    counts = [read_tokens(told.get(name)) for name in ("input", "output", "reasoning")]
    cached = [read_tokens(cache.get(name)) for name in ("read", "write")]
    if not any([*counts, *cached]):
        return None
    given, output, reasoning = counts
    apart = sum(counts) + sum(cached) == read_tokens(told.get("total"))
    if not apart and reasoning <= output:
        output -= reasoning
    return Usage(given, cached[0], cached[1], output, reasoning)


def read_tokens(value: Any) -> int:
    """Return a number of tokens, 0 for anything else."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and 0 < value <= LARGEST else 0


def read_dollars(value: Any) -> float:
    """Return a cost in dollars, or 0 if it is not recorded."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= LARGEST else 0.0


def read_ms(value: Any) -> float:
    """Return a time in milliseconds, 0 for anything else."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= LATEST_MS else 0.0


def tell_time(value: Any) -> str | None:
    """Return a time in milliseconds as ISO 8601, None for anything else."""
    ms = read_ms(value)
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat() if ms else None

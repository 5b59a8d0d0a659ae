"""Why a provider's cache broke: where a request differs from the last one, and the text there.

The module compares two requests as they were sent, and knows no provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

SAME: Final = 0.5
"""The share of the last prompt that must come from the cache for the cache to count as whole:
providers read in blocks, and the text after the last mark is always new (docs of Anthropic and
OpenAI)."""

MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(?::\d\d)?|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\b1[6-9]\d{8}\b"
)
NEAR: Final = 40
"""Characters on both sides of a change that are searched for a date or a time."""


class CacheBreak(NamedTuple):
    """The point where two requests differ: the part, the byte in the whole, and the text there."""

    part: str
    byte: int
    what: str

    def describe(self) -> str:
        """Return it as a sentence for people."""
        there = f", {self.what}" if self.what else ""
        return f"byte {self.byte:,} changed{there} in {self.part}"


def find_break(
    before: Sequence[tuple[str, Any]], after: Sequence[tuple[str, Any]]
) -> CacheBreak | None:
    """Return where `after` differs from `before`, or None if it only continues it.

    Both are the parts of a request in the order in which providers read them, each with its name:
    tools, system text, messages.
    """
    byte = 0
    for (name, was), (_, now) in zip(before, after, strict=False):
        if was is now:
            byte += len(_text(was).encode("utf-8", "surrogatepass"))
            continue
        old, new = _text(was), _text(now)
        if old != new:
            same = _count_same(old, new)
            at = byte + len(old[:same].encode("utf-8", "surrogatepass"))
            return CacheBreak(name, at, _name_change(old, new, same))
        byte += len(old.encode("utf-8", "surrogatepass"))
    if len(after) < len(before):
        return CacheBreak(before[len(after)][0], byte, "it is gone")
    return None


def list_parts(tools: Any, system: Any, messages: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the parts of a request, named for people."""
    parts = [("the tools", tools or ""), ("the system text", system or "")]
    return [*parts, *_name_messages(messages)]


def _name_messages(messages: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for number, message in enumerate(messages, 1):
        role = message.get("role") if isinstance(message, dict) else None
        system = role in ("system", "developer")
        yield ("the system text" if system else f"message {number}"), message


def _count_same(old: str, new: str) -> int:
    """Return the length of the common beginning of two texts, in characters."""
    low, high = 0, min(len(old), len(new))
    while low < high:  # by halves: comparing slices is fast, single characters slow
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _name_change(old: str, new: str, at: int) -> str:
    around = (text[max(0, at - NEAR) : at + NEAR] for text in (old, new))
    first, second = (MOMENT.findall(text) for text in around)
    if first and second and first != second:
        return "a date or a time"
    return ""


def is_broken(prompt: int, read: int, last_prompt: int, last_read: int) -> bool:
    """Tell whether a cache was lost: much less was read than the last request held.

    A provider that never read from a cache cannot lose it; a prompt may also be too short for a
    cache.
    """
    warm = last_read > 0 or read > 0
    return warm and prompt >= last_prompt > 0 and read < SAME * min(last_prompt, prompt)

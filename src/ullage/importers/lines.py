"""Bytes of a session file to JSON values, line by line.

Tolerates what crashes and editors leave behind: byte order marks, CRLF, runs of NUL, half-written
lines. Knows no session format, and reads no file itself.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

NO_JSON: Final = "line that is no JSON object"
CUT_OFF: Final = "half-written last line"
_BLANK: Final = b"\0 \t\r\n"
_LONGEST_KIND: Final = 60
_MOST_KINDS: Final = 50


class Line(NamedTuple):
    """One line that holds an object; `torn` says that an unreadable line stands before it."""

    fields: Mapping[str, Any]
    torn: bool


class Lines:
    """The objects in the lines of a file, and how many lines hold none (after iterating)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.unread: dict[str, int] = {}

    def __iter__(self) -> Iterator[Line]:
        torn = False
        whole = self._data.endswith(b"\n")
        size = len(self._data)
        stream = io.BytesIO(self._data)
        for raw in stream:
            text = raw.strip(_BLANK)
            if not text:
                torn = torn or b"\0" in raw
                continue
            fields = value(text)
            if isinstance(fields, dict):
                yield Line(fields, torn)
                torn = False
                continue
            torn = True
            last = not whole and stream.tell() == size
            note(self.unread, CUT_OFF if last else NO_JSON)


def note(unread: dict[str, int], kind: Any) -> None:
    """Count one thing that was not understood; a hostile file cannot name kinds without end."""
    name = kind[:_LONGEST_KIND] if isinstance(kind, str) and kind else "unnamed"
    if name not in unread and len(unread) >= _MOST_KINDS:
        name = "other kinds"
    unread[name] = unread.get(name, 0) + 1


def plain(data: bytes) -> bytes:
    """Return a file's content as UTF-8 without a byte order mark; UTF-16 is turned into it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def value(text: bytes) -> Any:
    """Return the JSON value in a piece of UTF-8, or None where there is none (or a null)."""
    try:
        return json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None

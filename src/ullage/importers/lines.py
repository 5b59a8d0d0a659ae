"""Converts the bytes of a session file to JSON values, line by line.

It tolerates the traces of crashes and editors: byte order marks, CRLF, runs of NUL, half-written
lines. It knows no session format, and reads no file itself.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ullage.core.values.progress import Progress, ignore

NO_JSON: Final = "line that is no JSON object"
CUT_OFF: Final = "half-written last line"
_BLANK: Final = b"\0 \t\r\n"
_LONGEST_KIND: Final = 60
_MOST_KINDS: Final = 50


class ObjectLine(NamedTuple):
    """One line that holds an object; `torn` means that an unreadable line precedes it."""

    fields: Mapping[str, Any]
    torn: bool


class ObjectLines:
    """The objects in the lines of a file, and after the iteration the number of other lines."""

    def __init__(self, data: bytes, report: Progress = ignore) -> None:
        self._data = data
        self._report = report
        self.unread: dict[str, int] = {}
        self.fault: tuple[int, bytes] | None = None
        """The number and text of the first line that is not JSON, except the last line."""

    def __iter__(self) -> Iterator[ObjectLine]:
        torn = False
        whole = self._data.endswith(b"\n")
        size = len(self._data)
        stream = io.BytesIO(self._data)
        for number, raw in enumerate(stream, 1):
            self._report(stream.tell(), size)
            text = raw.strip(_BLANK)
            if not text:
                torn = torn or b"\0" in raw
                continue
            fields = value(text)
            if isinstance(fields, dict):
                yield ObjectLine(fields, torn)
                torn = False
                continue
            torn = True
            last = not whole and stream.tell() == size
            note(self.unread, CUT_OFF if last else NO_JSON)
            if self.fault is None and not last:
                self.fault = number, text


SHOWN: Final = 60
"""Characters shown around a fault."""


def find_fault(data: bytes, name: str, line: int = 1) -> str | None:
    """Return the place and kind of a JSON fault, with the text around it, or None.

    `line` is the number of its first line in the file `name`.
    """
    text = data.decode("utf-8", "replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{name}, line {line + error.lineno - 1}, column {error.colno}"
        row = text.split("\n")[error.lineno - 1].rstrip("\r")
        start = max(error.colno - 1 - SHOWN // 2, 0)
        part = row[start : start + SHOWN]
        seen = "".join(char if char.isprintable() else " " for char in part)
        return f"{where}: {error.msg}\n  {seen}\n  {' ' * (error.colno - 1 - start)}^"
    except RecursionError:
        return f"{name}: its JSON is nested too deep to be read"
    except ValueError:  # Python refuses longer integers, as they take quadratic time
        most = sys.get_int_max_str_digits()
        return f"{name}: its JSON has a number of more than {most:,} digits"
    return None


def note(unread: dict[str, int], kind: Any) -> None:
    """Count one item that was not understood; limits the number of names from a hostile file."""
    name = kind[:_LONGEST_KIND] if isinstance(kind, str) and kind else "unnamed"
    if name not in unread and len(unread) >= _MOST_KINDS:
        name = "other kinds"
    unread[name] = unread.get(name, 0) + 1


def plain(data: bytes) -> bytes:
    """Return a file's contents as UTF-8 without a byte order mark; converts UTF-16."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def find_strange(data: bytes, name: str) -> str | None:
    """Return a warning about bytes that are not UTF-8, or None without any."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        known = data.count("\ufffd".encode())
        number = data.decode("utf-8", "replace").count("\ufffd") - known
        return (
            f"{name} is not UTF-8 at byte {error.start:,}: {number:,} such places are read as "
            "\ufffd; save it as UTF-8 to keep them"
        )
    return None


def value(text: bytes) -> Any:
    """Return the JSON value in a piece of UTF-8, or None if it is not JSON (or null)."""
    try:
        return json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None

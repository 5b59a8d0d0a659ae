"""Shows a change of a text file as a unified diff. It reads no file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

NOTHING: Final = "/dev/null"
"""The name that a unified diff gives a file that does not exist."""

NO_LINE_END: Final = "\\ No newline at end of file"

MOST_COMPARED: Final = 4_000
"""Most lines of one side for a full diff; difflib's time grows with the square of the lines."""

AROUND: Final = 3
"""Lines shown around a change."""


def draw_diff(path: str, before: bytes | None, after: bytes) -> str:
    """Return the change of a file; `before` None means a new file.

    Bytes that are not UTF-8 become escapes. The diff has every removed and every added line.
    """
    old, new = _lines(before or b""), _lines(after)
    name = NOTHING if before is None else f"a/{path}"
    return "\n".join(_draw_difference(old, new, name, f"b/{path}"))


def _lines(data: bytes) -> list[str]:
    """Return lines with their ends; only a line feed ends one."""
    pieces = data.decode("utf-8", "backslashreplace").split("\n")
    lines = [f"{piece}\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


def _draw_difference(old: list[str], new: list[str], before: str, after: str) -> Iterator[str]:
    compared = difflib.unified_diff if max(len(old), len(new)) <= MOST_COMPARED else _coarse
    for line in compared(old, new, before, after, n=AROUND):
        if line.endswith("\n"):
            yield line[:-1]
        else:
            yield from (line, NO_LINE_END)


def _coarse(
    old: list[str], new: list[str], before: str, after: str, n: int = AROUND
) -> Iterator[str]:
    """Yield a diff with one hunk: all lines between the equal start and the equal end."""
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    rest = shortest - start
    end = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    if start == len(old) == len(new):
        return
    first, last = max(start - n, 0), max(end - n, 0)
    gone, came = old[start : len(old) - end], new[start : len(new) - end]
    sizes = [_extent(first, len(lines) - last - first) for lines in (old, new)]
    yield from (f"--- {before}\n", f"+++ {after}\n", f"@@ -{sizes[0]} +{sizes[1]} @@\n")
    yield from (f" {line}" for line in old[first:start])
    yield from (f"-{line}" for line in gone)
    yield from (f"+{line}" for line in came)
    yield from (f" {line}" for line in old[len(old) - end : len(old) - last])


def _extent(first: int, size: int) -> str:
    """Return a range as GNU diff writes it: an empty one names the line before it."""
    return f"{first + (size > 0)},{size}"

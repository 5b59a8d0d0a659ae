"""Our lines in a text file of another program: between two marks, at its end.

Bytes outside of the marks stay as they are, even if the file's last line has no end.
"""

from __future__ import annotations

from typing import Final

BEGIN: Final = "# >>> ullage statusline >>>"
UNENDED: Final = "# >>> ullage statusline >>> (the line before had no end)"
END: Final = "# <<< ullage statusline <<<"


def add_block(before: bytes, block: str) -> bytes:
    """Return a file with the block, once; raises ValueError if the marks are no pair."""
    span = find_block(before)
    if span is not None:
        start, stop = span
        first = before[start:stop].split(b"\n", 1)[0].decode()
        return before[:start] + _write(first, block) + before[stop:]
    unended = bool(before) and not before.endswith(b"\n")
    gap = b"\n" if unended else b""
    return before + gap + _write(UNENDED if unended else BEGIN, block)


def remove_block(before: bytes) -> bytes:
    """Return a file without the block; raises ValueError if the marks are no pair."""
    span = find_block(before)
    if span is None:
        return before
    start, stop = span
    head = before[:start]
    if before[start:stop].startswith(UNENDED.encode()) and stop == len(before):
        head = head.removesuffix(b"\n")
    return head + before[stop:]


def find_block(data: bytes) -> tuple[int, int] | None:
    """Return where the block begins and ends, or None."""
    lines = data.splitlines(keepends=True)
    marks = (BEGIN.encode(), UNENDED.encode())
    begins = [place for place, line in enumerate(lines) if line.strip() in marks]
    ends = [place for place, line in enumerate(lines) if line.strip() == END.encode()]
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise ValueError(f"its marks do not match: {BEGIN!r} and {END!r} must each be there once")
    start = sum(map(len, lines[: begins[0]]))
    return start, start + sum(map(len, lines[begins[0] : ends[0] + 1]))


def _write(first: str, block: str) -> bytes:
    return f"{first}\n{block}{END}\n".encode()

"""The message to a model: the argument, and the text on standard input.

The module does not know models.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import Final, TextIO

from ullage.cli import asking, desk, lines

TOLD_AFTER_S: Final = 1.0
"""Seconds without a byte before people are told that standard input is read."""

CHUNK: Final = 65_536
"""Bytes that are read at once."""

PATIENCE_S: Final = 10.0
"""Seconds that a program without a person waits for the first byte of a pipe that nobody named."""

LIMIT: Final = "nothing came on standard input: going on without it (`-` waits for ever)"
WAITING: Final = (
    "reading standard input, which is not a terminal: `< /dev/null` says that it is empty"
)


def read_prompt(text: str | None) -> str | None:
    """Return the person's message: the argument, then the piped text, or None without both.

    `-` means standard input, even a terminal; without it a terminal is not read.
    """
    text = None if text is None else spell(text)
    wanted = text == "-"
    piped = read_all(wanted=wanted) if wanted or not lines.is_terminal(sys.stdin) else ""
    if wanted or text is None:
        return piped if piped.strip() or wanted else None
    return f"{text}\n\n{piped}" if piped.strip() else text


def spell(argument: str) -> str:
    """Return an argument as text: invalid bytes become escapes, since servers refuse them."""
    return argument.encode("utf-8", "backslashreplace").decode()


def read_all(*, wanted: bool) -> str:
    """Return all of standard input, "" if it is closed; invalid bytes become escapes."""
    stream = sys.stdin
    if stream is None or not (wanted or _comes()):
        return ""
    try:
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            return stream.read()
        data: bytes = buffer.read() if (came := _read_waiting(stream)) is None else came
    except OSError:  # it exists in name only
        return ""
    return data.decode(stream.encoding or "utf-8", "backslashreplace")


def _read_waiting(stream: TextIO) -> bytes | None:
    """Return all data, or None if the system cannot wait for it.

    Waits are short, since a Ctrl-C that arrives just before a read would only be seen after it.
    """
    pieces: list[bytes] = []
    with suppress(OSError, ValueError):
        descriptor = stream.fileno()
        while True:
            while not select.select([descriptor], [], [], TOLD_AFTER_S)[0]:
                pass
            piece = os.read(descriptor, CHUNK)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    return None


def _comes() -> bool:
    """Wait for the first byte or the end of standard input, and say so if that takes long.

    An inherited pipe may stay silent for ever. With a person who can end it, the wait is unlimited.
    """
    with suppress(OSError, ValueError):  # no file, or no way to wait
        descriptor = sys.stdin.fileno()
        if select.select([descriptor], [], [], TOLD_AFTER_S)[0]:
            return True
        desk.say(WAITING)
        if _is_watched() or select.select([descriptor], [], [], PATIENCE_S)[0]:
            return True
        desk.say(LIMIT)
        return False
    return True


def _is_watched() -> bool:
    """Tell whether a person started this from a terminal."""
    try:
        os.close(os.open(asking.TERMINAL, asking.OPENED))
    except OSError:
        return False
    return True

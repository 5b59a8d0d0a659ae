"""Lines for people: times, and text from a log that can neither steer a terminal nor stop a print.

It knows no session.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from ullage.cli import picture


def when(seconds: float) -> str:
    """Return a time in Unix seconds as the reader's clock shows it; what is none as the number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def brief(text: str, width: int) -> str:
    """Return text as one line of at most `width` cells."""
    return picture.cut(picture.clean(" ".join(text[: width * 8].split())), width)


def block(text: str, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a text, all of them or `most` at first, and what is left out."""
    held = text.removesuffix("\n").split("\n")
    for line in held[:most]:
        yield picture.clean(line.removesuffix("\r").expandtabs(4))
    if most is not None and len(held) > most:
        yield f"... {len(held) - most:,} more lines: --full shows them"


def out(text: str, end: str = "\n") -> None:
    """Print text at once; what the encoding of stdout lacks is written as an escape.

    A stdout that was closed before the start is None, and gets nothing.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, flush=True)


def steered(stream: TextIO | None) -> bool:
    """Tell whether a stream is a terminal; one that was closed before the start is None."""
    return stream is not None and stream.isatty()


def visible(text: str) -> str:
    """Return text of a model with what steers a terminal made visible; lines and tabs stay."""
    return "".join(c if c in "\n\t" else picture.clean(c) for c in text)


def raw(data: bytes) -> None:
    """Write bytes to stdout as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()

"""Lines for people: times, and log text that can neither control a terminal nor break a print.

The module does not know sessions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, TextIO

import wcwidth

from ullage.cli import glyphs
from ullage.core.values.visible import JOINERS, hides, is_blank, is_joined

FLAG, TAGS, TAGS_END = "\U0001f3f4", range(0xE0020, 0xE007F), "\U000e007f"
"""The flag of a region is a black flag, invisible tag letters, and an end tag (UTS #51, ED-14a)."""

BEGUN: Final = re.compile(r" +").match
NAMED: Final = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)").match
"""The start of a line before its text: spaces, or a first column."""


def when(seconds: float) -> str:
    """Return a time in Unix seconds in the reader's time zone; an impossible one as the number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def brief(text: str, width: int) -> str:
    """Return text as one line of at most `width` cells."""
    return glyphs.cut(glyphs.clean(" ".join(text[: width * 8].split())), width)


def block(text: str, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a text, all or the first `most`, and the number of lines left out."""
    held = text.removesuffix("\n").split("\n")
    for line in held[:most]:
        yield glyphs.clean(line.removesuffix("\r").expandtabs(4))
    if most is not None and len(held) > most:
        yield f"... {len(held) - most:,} more lines: --full shows them"


def out(text: str, end: str = "\n") -> None:
    """Print text at once; characters missing in stdout's encoding are written as escapes.

    If stdout was closed before the start, it is None, and nothing is printed.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, flush=True)


def note(text: str) -> None:
    """Tell people something on stderr; only the answer goes to stdout.

    The text may come from servers and models, so control characters are escaped. On a terminal, its
    lines break between words.
    """
    if sys.stderr is None:  # closed before the start: print would take stdout instead
        return
    rows: Iterable[str] = map(glyphs.clean, text.split("\n"))
    if is_terminal(sys.stderr):
        columns = screen(sys.stderr).columns
        rows = (row for line in rows for row in wrap(line, columns))
    print("\n".join(rows), file=sys.stderr, flush=True)


def wrap(line: str, columns: int) -> list[str]:
    """Return a line as rows of at most `columns` cells that end between words.

    Later rows are indented to the second column of the text, if there is one and it leaves half a
    row, else to the first word. A word longer than a row is left to the terminal, so that text
    copied from it is whole.
    """
    if wcwidth.width(line) <= columns:
        return [line]
    begun, named = (len(match[0]) if match else 0 for match in (BEGUN(line), NAMED(line)))
    hang = next((size for size in (named, begun) if 0 < size <= columns // 2), 0)
    return wcwidth.wrap(
        line,
        columns,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
        subsequent_indent=" " * hang,
    )


def _write_escapes(text: str) -> str:
    """Return JSON with each hidden character as an escape, which reads as the same value."""
    return "".join(json.dumps(c)[1:-1] if c != "\n" and hides(c) else c for c in text)


def is_encodable(text: str, encoding: str | None) -> bool:
    """Tell whether a terminal or a file with this encoding can show a text."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a stream is a terminal; a stream that was closed before the start is None."""
    return stream is not None and stream.isatty()


def fits(stream: TextIO | None) -> bool:
    """Tell whether a stream is a terminal that can overwrite a line."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"


def screen(stream: TextIO) -> os.terminal_size:
    """Return the current size of the terminal; 80 by 24 if it is unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):
        size = shutil.get_terminal_size()
    return os.terminal_size((size.columns or 80, size.lines or 24))


def visible(text: str) -> str:
    """Return text of a model with control characters made visible; lines and tabs stay.

    Joiners within visible text stay, too, since Persian and emoji need them.
    """
    clusters = [*wcwidth.iter_graphemes(text), ""]
    return "".join(show_cluster(one, after) for one, after in pairwise(clusters))


def show_cluster(cluster: str, after: str) -> str:
    """Return one grapheme cluster, safe for a terminal; `after` is the next one."""
    if cluster in ("\n", "\t") or (cluster.isascii() and cluster.isprintable()):
        return cluster
    if cluster[0] == FLAG and cluster[-1] == TAGS_END and len(cluster) > 2:
        return cluster if all(ord(c) in TAGS for c in cluster[1:-1]) else expose(cluster)
    shown = []
    row = f" {cluster}{after[:1]} "
    for before, one, behind in zip(row, cluster, row[2:], strict=False):
        joins = one in JOINERS and is_joined(before, behind)
        shown.append(one if joins or one in "\n\t" or not hides(one) else escape(one))
    return "".join(shown)


def expose(text: str) -> str:
    """Return text with every invisible or ambiguous character as an escape, including tabs."""
    return "".join(escape(c) if hides(c) or _is_blank(c) else c for c in text)


def escape(character: str) -> str:
    """Return a character as Python would write it in a string."""
    code = ord(character)
    if character in "\t\r\n":
        return repr(character)[1:-1]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_blank(character: str) -> bool:
    space = character != " " and unicodedata.category(character) == "Zs"
    return space or is_blank(character)


def raw(data: bytes) -> None:
    """Write lines of JSON to stdout; on a terminal, with control characters as JSON escapes."""
    if is_terminal(sys.stdout):
        data = _write_escapes(data.decode("utf-8", "surrogateescape")).encode()
    write_bytes(data)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout at once; nothing if it was closed before the start."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

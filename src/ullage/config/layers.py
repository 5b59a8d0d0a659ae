"""One source of settings: its name for people, its data, and the line of each key.

The module finds lines in the text of files and does not know settings.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[str | int, ...]
"""The path of a value: keys of tables, positions in lists."""

PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
PART: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
KEY: Final = rf"{PART}(?:\s*\.\s*{PART})*"
HEADER: Final = re.compile(rf"\s*(\[\[?)\s*({KEY})\s*\]\]?\s*(?:#.*)?$")
ENTRY: Final = re.compile(rf"\s*({KEY})\s*=")


class Word(str):
    """A text from the environment or the command line: its setting decides how to read it."""

    __slots__ = ()


def spell(path: Path) -> str:
    """Return a path as people write it: `serve.rules[0].window`, `context_windows."qwen3:14b"`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = key if PLAIN.fullmatch(key) else json.dumps(key, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings.

    `lines` are the lines of its keys, if it is a file. `foreign` marks the project's file, which
    may have come with somebody else's code: it may not name secrets or start a proxy. With `ahead`,
    the lists of this layer come before those of the others instead of replacing them.
    """

    origin: str
    data: Mapping[str, Any]
    lines: Mapping[Path, int] = field(default_factory=dict)
    foreign: bool = False
    ahead: bool = False

    def where(self, path: Path) -> str:
        """Name the place of a value: the origin, and the nearest known line."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.origin}, line {self.lines[path[:end]]}"
        return self.origin


def toml_lines(text: str) -> dict[Path, int]:
    """Return the line of each key and table of a TOML text, from 1 on; lists count from 0."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = HEADER.match(line)
        entry = None if header else ENTRY.match(line)
        if header:
            keys = _keys(header[2])
            table = _inside(keys, counts)
            if header[1] == "[[":
                listed = (*_inside(keys[:-1], counts), keys[-1])
                counts[listed] = counts.get(listed, -1) + 1
                lines.setdefault(listed, number)
                table = (*listed, counts[listed])
            lines.setdefault(table, number)
        elif entry:
            lines.setdefault((*table, *_keys(entry[1])), number)
    return lines


def _keys(text: str) -> Path:
    """Return the parts of a dotted key, without quotes."""
    path: list[str] = []
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:  # a line of a longer text that looks like a key
        return (text,)
    while isinstance(found, dict):
        ((key, found),) = found.items()
        path.append(key)
    return tuple(path)


def _inside(keys: Path, counts: Mapping[Path, int]) -> Path:
    """Return the path of a table; a list in it stands for its last entry."""
    path: Path = ()
    for key in keys:
        path = (*path, key)
        if path in counts:
            path = (*path, counts[path])
    return path


def json_lines(text: str, data: Mapping[str, Any]) -> dict[Path, int]:
    """Return the line of each key of a JSON text that was read as `data`, from 1 on."""
    lines: dict[Path, int] = {}
    position = 0
    for path in _paths(data, ()):
        written = re.escape(json.dumps(path[-1], ensure_ascii=False))
        found = re.compile(rf"{written}\s*:").search(text, position)
        if found is not None:  # else it has escapes: its table's line is used
            position = found.end()
            lines[path] = text.count("\n", 0, found.start()) + 1
    return lines


def _paths(data: Any, path: Path) -> Iterator[Path]:
    """Yield the path of each key, in the order of the text."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*path, key)
            yield from _paths(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _paths(value, (*path, number))

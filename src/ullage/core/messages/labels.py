"""What a tool call was about, in a few words: a path, a command, a pattern.

Arguments come from models in any form: what cannot be read has no label. It knows no tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 60
"""Characters of a label."""

READ: Final = 20_000
"""Characters of arguments that are read: the end of a file that is written tells nothing."""

_KEYS: Final = (
    "file_path", "notebook_path", "command", "cmd", "pattern", "query", "url", "path", "filename",
    "file", "skill", "name", "description", "prompt",
)  # fmt: skip
"""Arguments that tell what a call is about, the most telling first."""

_PATCHES: Final = ("*** Update File: ", "*** Add File: ", "*** Delete File: ")
"""How lines begin that name the file of a patch (openai/codex, apply_patch)."""

_SHELLS: Final = ("-c", "-lc")


def label_call(arguments: str, root: str | None = None) -> str:
    """Return what a call with these arguments is about, "" where that does not show.

    `arguments` is JSON or plain text; paths below the folder `root` are said from there.
    """
    found = _read(arguments)
    if isinstance(found, Mapping):
        told = (read_command(found.get(key)) for key in _KEYS)
        rest = (value for value in found.values() if isinstance(value, str))
        text = next((word for word in told if word), "") or next((w for w in rest if w), "")
    else:
        text = _find_patched_file(arguments) if found is None else read_command(found)
    folder = f"{root.rstrip('/')}/" if root else ""
    return shorten(text.removeprefix(folder) if folder else text)


def label_command(value: Any, longest: int = LONGEST) -> str:
    """Return a command, a text or a list of words, in one line; "" for anything else."""
    return shorten(read_command(value), longest)


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return the words of a text in one line of at most `longest` characters."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _read(arguments: str) -> Any:
    """Return the value of JSON text; of text that is too long the first field that can be read."""
    if len(arguments) > READ:
        return _first(arguments)
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return None


def _first(arguments: str) -> Any:
    """Return a mapping of the fields with short texts at the start of a long JSON object."""
    decoder, found, place = json.JSONDecoder(), {}, arguments.find("{") + 1
    try:
        for _ in range(len(_KEYS)):
            key, place = decoder.raw_decode(arguments, _skip(arguments, place))
            value, place = decoder.raw_decode(arguments, _skip(arguments, place))
            found[key] = value
    except (ValueError, RecursionError, TypeError):
        return found
    return found


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n,:":
        place += 1
    return place


def read_command(value: Any) -> str:
    """Return a text, a command that is a list of words, or "" for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return ""
    if len(value) > 2 and value[1] in _SHELLS:
        return str(value[2])
    return " ".join(value)


def _find_patched_file(text: str) -> str:
    """Return the file that a patch names, else the text itself."""
    for line in text[:READ].splitlines():
        for mark in _PATCHES:
            if line.startswith(mark):
                return line.removeprefix(mark)
    return text

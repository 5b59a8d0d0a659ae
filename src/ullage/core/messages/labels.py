"""Short labels of tool calls: a path, a command, a pattern.

Models write arguments in any form; unreadable ones have no label. This module knows no tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final

LONGEST: Final = 60
"""Most characters of a label."""

READ: Final = 20_000
"""Characters of arguments that are read: the end of a long file is of no use for a label."""

_KEYS: Final = (
    "file_path", "notebook_path", "command", "cmd", "commands", "command_line", "pattern", "query",
    "url", "path", "filename", "file", "target_file", "absolute_path", "skill", "name",
    "description", "prompt",
)  # fmt: skip
"""Arguments that describe a call, the most descriptive first."""

FILES: Final = (
    "path", "file_path", "filepath", "file", "filename", "absolute_path", "relative_path",
    "relative_workspace_path", "target_file", "notebook_path",
)  # fmt: skip
"""Arguments that name one file in the schemas of common tools."""

NAMED: Final = frozenset((*FILES, "old_path", "new_path"))
"""The same, plus those of a file that is moved."""

RUN_BY: Final = frozenset(("command", "cmd", "commands", "command_line", "script"))
"""Arguments that are commands in the schemas of common shell tools."""

_VERBS: Final = frozenset(
    (
        *("view", "open", "read", "show", "get", "list", "create", "write", "edit", "replace"),
        *("str_replace", "insert", "append", "delete", "remove", "rename", "move", "undo_edit"),
    )
)
"""Actions of an editor on a file: the commands of Anthropic's text editor and memory tools, of
OpenHands' and SWE-agent's editors, and equal ones of other tools.
"""

PATCH_IN: Final = frozenset((*RUN_BY, "input", "patch", "patch_text"))
"""Arguments that contain a patch to apply; in others a patch is only mentioned."""

_ASKED: Final = frozenset(("query", "pattern", "url"))
"""Arguments that describe a call better than the file that it reads."""

PATCH: Final = "*** Begin Patch"
_PATCHED: Final = re.compile(
    r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): ([^\x00-\x1f]{1,240})\r?$", re.MULTILINE
)
"""Lines of a patch that name its files (openai/codex, apply_patch)."""

_SHELLS: Final = ("-c", "-lc")


def label_call(arguments: str, root: str | None = None) -> str:
    """Return a label for a call with these arguments, or "" if they show none.

    `arguments` is JSON or plain text; paths below the folder `root` are shortened to relative ones.
    """
    found = None if arguments.startswith(PATCH) else _read(arguments)
    if isinstance(found, dict):
        found = fold_names(found)
        keys = FILES if find_verb(found) and _ASKED.isdisjoint(found) else _KEYS
        told = (read_command(found.get(key)) for key in keys)
        rest = (value for value in found.values() if isinstance(value, str))
        text = next((word for word in told if word), "") or next((w for w in rest if w), "")
        made = [read_command(v)[:READ] for key, v in found.items() if key in PATCH_IN]
    else:
        text = arguments if found is None else read_command(found)
        made = [text[:READ]]
    text = next(chain.from_iterable(map(list_patched, made)), text)
    folder = f"{root.rstrip('/')}/" if root else ""
    return shorten(text.removeprefix(folder) if folder else text)


def fold_names(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with names in snake case: `filePath` and `FilePath` become `file_path`.

    If two names become the same, the last one wins.
    """
    if all(map(str.islower, fields)):
        return fields
    return {_fold_name(name): value for name, value in fields.items()}


def _fold_name(name: str) -> str:
    return _fold_short(name) if len(name) <= NAME_MOST else name


NAME_MOST: Final = 64
"""Longest name, in characters, that is converted."""


@lru_cache(maxsize=1_024)
def _fold_short(name: str) -> str:
    return _HUMP.sub("_", name).lower()


_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def find_verb(arguments: Mapping[str, Any]) -> str:
    """Return the action of an editor call on the file that it names; "" for any other call.

    The action is in `command`, or else in `action` or `operation`.
    """
    verb = arguments.get("command", arguments.get("action", arguments.get("operation")))
    if not isinstance(verb, str) or verb not in _VERBS or NAMED.isdisjoint(arguments):
        return ""
    return verb if RUN_BY.intersection(arguments) <= {"command"} else ""


def label_command(value: Any, longest: int = LONGEST) -> str:
    """Return a command, a text or a list of words, in one line; "" for anything else."""
    return shorten(read_command(value), longest)


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return the words of a text in one line of at most `longest` characters."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _read(arguments: str) -> Any:
    """Return the value of JSON text; for a text that is too long, the first readable fields."""
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
            if not isinstance(key, str):
                break
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


def list_patched(text: str) -> list[str]:
    """Return the files that a patch within a text names, in order; [] if there is no patch."""
    return [name.rstrip() for name in _PATCHED.findall(text)] if PATCH in text else []

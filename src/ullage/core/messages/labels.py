"""What a tool call was about, in a few words: a path, a command, a pattern.

Arguments come from models in any form: what cannot be read has no label. It knows no tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final

LONGEST: Final = 60
"""Characters of a label."""

READ: Final = 20_000
"""Characters of arguments that are read: the end of a file that is written tells nothing."""

_KEYS: Final = (
    "file_path", "notebook_path", "command", "cmd", "commands", "command_line", "pattern", "query",
    "url", "path", "filename", "file", "target_file", "absolute_path", "skill", "name",
    "description", "prompt",
)  # fmt: skip
"""Arguments that tell what a call is about, the most telling first."""

FILES: Final = (
    "path", "file_path", "filepath", "file", "filename", "absolute_path", "relative_path",
    "relative_workspace_path", "target_file", "notebook_path",
)  # fmt: skip
"""Arguments that name one file by the schemas of common tools."""

NAMED: Final = frozenset((*FILES, "old_path", "new_path"))
"""The same, and those of a file that is moved."""

RUN_BY: Final = frozenset(("command", "cmd", "commands", "command_line", "script"))
"""Arguments that are commands by the schemas of common shell tools."""

_VERBS: Final = frozenset(
    (
        *("view", "open", "read", "show", "get", "list", "create", "write", "edit", "replace"),
        *("str_replace", "insert", "append", "delete", "remove", "rename", "move", "undo_edit"),
    )
)
"""What an editor does to a file: the commands of Anthropic's text editor and memory tools, of
OpenHands' and SWE-agent's editors, and what others call the same."""

PATCH_IN: Final = frozenset((*RUN_BY, "input", "patch", "patch_text"))
"""Arguments in which a patch stands that is made: elsewhere it is only told of."""

_ASKED: Final = frozenset(("query", "pattern", "url"))
"""Arguments that tell more of a call than the file that they are asked of."""

PATCH: Final = "*** Begin Patch"
_PATCHED: Final = re.compile(
    r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): ([^\x00-\x1f]{1,240})\r?$", re.MULTILINE
)
"""How a patch begins, and how lines do that name its files (openai/codex, apply_patch)."""

_SHELLS: Final = ("-c", "-lc")


def label_call(arguments: str, root: str | None = None) -> str:
    """Return what a call with these arguments is about, "" where that does not show.

    `arguments` is JSON or plain text; paths below the folder `root` are said from there.
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
    """Return fields by their names as Python writes them: `filePath` and `FilePath` as `file_path`.

    Of names that become the same the last counts.
    """
    if all(map(str.islower, fields)):
        return fields
    return {_fold_name(name): value for name, value in fields.items()}


def _fold_name(name: str) -> str:
    return _fold_short(name) if len(name) <= NAME_MOST else name


NAME_MOST: Final = 64
"""Characters of a name that may be known."""


@lru_cache(maxsize=1_024)
def _fold_short(name: str) -> str:
    return _HUMP.sub("_", name).lower()


_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def find_verb(arguments: Mapping[str, Any]) -> str:
    """Return what a call of an editor does to the file that it names; "" for any other call.

    A command says so, or where there is none an action or an operation.
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
    """Return the files that a patch within a text names, in order; [] where there is none."""
    return [name.rstrip() for name in _PATCHED.findall(text)] if PATCH in text else []

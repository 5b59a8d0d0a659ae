"""Read tool calls for the work done: files read and changed, commands, skills, to-do lists.

Arguments come from models in any form: unreadable ones give nothing. This module knows tools by
their common schemas, and nothing of messages or of later use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.facts.commands import only_looks
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.sentences import SENTENCE_MOST
from ullage.core.facts.sheet import TODO
from ullage.core.messages.labels import (
    NAMED,
    PATCH,
    PATCH_IN,
    RUN_BY,
    find_verb,
    fold_names,
    label_command,
    list_patched,
    read_command,
)

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Call

PATH_MOST: Final = 240
"""Characters of a path; Windows ends at 260 (MAX_PATH), and longer ones do not help a reader."""

COMMAND_MOST: Final = 160
"""Characters of a command; a longer one carries a text of its own."""

ARGUMENTS_MOST: Final = 2_000_000
"""Characters of arguments that are parsed for paths: enough for a 1 MB file written by a tool."""


class TodoList(NamedTuple):
    """The open items of a to-do list, and the done ones."""

    left: tuple[str, ...]
    done: tuple[str, ...]


class Told(NamedTuple):
    """The work done by calls: files, commands, skills and a to-do list.

    A file that was read has its lines after the path, if the call says so. `todo` is None if no
    call has a list.
    """

    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    todo: TodoList | None = None


def read_calls(calls: Iterable[Call]) -> Told:
    """Return the work done by calls, in order."""
    changed: list[str] = []
    files: list[str] = []
    commands: list[str] = []
    skills: list[str] = []
    todo: TodoList | None = None
    for call in calls:
        arguments = read_arguments(call)
        paths = list(_paths(arguments))
        if is_write(call, arguments) or _has_text(arguments):
            changed += paths + list_patched_by(call, arguments)
        else:
            span = _find_span(arguments)
            files += [f"{path}{span}" for path in paths]
            skills += [found for path in paths if (found := _skill_of(path))]
            if not _loads_skills(call.name) and not _find_verb(arguments):
                commands += _commands(arguments)
        if _loads_skills(call.name):
            skills += _skills(arguments)
        listed = _todo(arguments) if _plans(call.name) else None
        todo = todo if listed is None else listed
    return Told(tuple(changed), tuple(files), tuple(commands), tuple(skills), todo)


def read_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of a call, by `fold_names`; {} if they are not a JSON object."""
    return fold_names(parse_arguments(call))


def parse_arguments(call: Call, most: int = ARGUMENTS_MOST) -> dict[str, Any]:
    """Return the arguments of a call by their own names.

    Returns {} if they are not a JSON object, or longer than `most` characters.
    """
    text = call.arguments
    if len(text) > most or not text.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_PATH_NAMES: Final = (
    "directory dir dir_path folder source destination target_directory paths files file_paths "
    "filenames directories"
)
_PATHS: Final = NAMED.union(_PATH_NAMES.split())
"""Names of path arguments in the schemas of common file tools."""


WRITES: Final = LatePattern(
    r"write|edit|patch|replace|create|insert|append|delete|remove|move|rename|save", re.IGNORECASE
)
"""Names of tools that change a file. An error is harmless: if a reading tool matches, its result
goes a little earlier, or its file is listed as changed."""

_TEXT_NAMES: Final = (
    "content contents new_string new_str new_text file_text insert_text new_content new_source "
    "patch diff edits replacement"
)
_TEXTS: Final = frozenset(_TEXT_NAMES.split())
"""Names of arguments with text for a file, in the schemas of common file tools."""


def is_write(call: Call, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call with these arguments changes something.

    For an editor, its command decides. For other tools, the name or a patch does.
    """
    if verb := _find_verb(arguments):
        return WRITES.search(verb) is not None
    return _changes_files(call.name) or bool(list_patched_by(call, arguments))


def _has_text(arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call brings a text for a file."""
    return not _TEXTS.isdisjoint(arguments) and not _find_verb(arguments)


def _find_verb(arguments: Mapping[str, Any]) -> str:
    """Return the command of an editor, "" without one or if a read brings text for a file."""
    verb = find_verb(arguments)
    if verb and WRITES.search(verb) is None and any(map(arguments.get, _TEXTS)):
        return ""
    return verb


def list_written(call: Call) -> list[str]:
    """Return the files that a call changes, if it names them."""
    arguments = read_arguments(call)
    if not is_write(call, arguments):
        return []
    return [*_paths(arguments), *list_patched_by(call, arguments)]


def list_patched_by(call: Call, arguments: Mapping[str, Any]) -> list[str]:
    """Return the files of patches in a call: in an argument, in a command, or as the whole text."""
    if PATCH not in call.arguments:
        return []
    made = [read_command(value) for name, value in arguments.items() if name in PATCH_IN]
    texts = made if arguments else [call.arguments]
    return list(chain.from_iterable(map(list_patched, texts)))


TOOLS: Final = 1_024
"""The number of tool names whose classification is cached."""


@lru_cache(maxsize=TOOLS)
def _changes_files(tool: str) -> bool:
    return WRITES.search(tool) is not None


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key in _PATHS:
            for one in value if isinstance(value, list) else (value,):
                path = _path_in(one)
                if path is not None and 0 < len(path) <= PATH_MOST and path.isprintable():
                    yield path


def _path_in(value: object) -> str | None:
    """Return a path, or the path in an object that has one."""
    if isinstance(value, dict):
        value = next((value[k] for k in ("path", "file_path", "file") if k in value), None)
    return value if isinstance(value, str) else None


SPANS: Final = (
    ("start_line", "end_line"),
    ("line_start", "line_end"),
    ("from_line", "to_line"),
    ("start_line_one_indexed", "end_line_one_indexed_inclusive"),
    ("start", "end"),
)
"""Arguments for the first and last line to read; `offset` and `limit` count lines."""

_SPAN_NAMES: Final = frozenset(("view_range", "offset", "limit", *chain.from_iterable(SPANS)))
_SPAN: Final = LatePattern(r" \(lines \d+-\d*\)$")


def _find_span(arguments: Mapping[str, Any]) -> str:
    """Return the lines of a file that a call reads, "" for the whole file."""
    if _SPAN_NAMES.isdisjoint(arguments):
        return ""
    view = arguments.get("view_range")
    pairs = [view] if isinstance(view, list) and len(view) == 2 else []
    pairs += [[arguments.get(first), arguments.get(last)] for first, last in SPANS]
    offset, limit = arguments.get("offset"), arguments.get("limit")
    if type(offset) is int and offset >= 0:
        pairs.append([offset, offset + limit - 1 if type(limit) is int and limit > 0 else None])
    for first, last in pairs:
        if type(first) is int and first >= 0:
            until = last if type(last) is int and last >= first else ""
            return f" (lines {first}-{until})"
    return ""


def drop_span(file: str) -> str:
    """Return the path of a file without its lines."""
    return _SPAN.sub("", file)


def commands_only_look(arguments: Mapping[str, Any]) -> bool | None:
    """Tell whether all commands of a call only look. Returns None if the call runs no command."""
    run = () if _find_verb(arguments) else RUN_BY & arguments.keys()
    return all(only_looks(read_command(arguments[name])) for name in run) if run else None


def _commands(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command that a call runs, in one line."""
    for key in RUN_BY & arguments.keys():
        command = label_command(arguments[key], COMMAND_MOST)
        if command and command.isprintable():
            yield command


@lru_cache(maxsize=TOOLS)
def _loads_skills(tool: str) -> bool:
    return tool.lower() in ("skill", "load_skill", "use_skill")


_SKILL: Final = LatePattern(r"([^/\\]{1,100})[/\\]SKILL\.md$")


def _skill_of(path: str) -> str | None:
    found = _SKILL.search(path) if path.endswith("SKILL.md") else None
    return found[1] if found else None


def _skills(arguments: Mapping[str, Any]) -> list[str]:
    named = (arguments.get(k) for k in ("name", "skill", "skill_name", "command"))
    found = next((v for v in named if isinstance(v, str)), "")
    return [found] if 0 < len(found) <= PATH_MOST and found.isprintable() else []


@lru_cache(maxsize=TOOLS)
def _plans(tool: str) -> bool:
    return any(word in tool.lower() for word in ("todo", "plan", "task"))


def _todo(arguments: Mapping[str, Any]) -> TodoList | None:
    """Return the items in a call to a to-do or plan tool, None if it has no list."""
    keys = ("todos", "plan", "items", "tasks")
    items = next((arguments[k] for k in keys if isinstance(arguments.get(k), list)), None)
    if items is None:
        return None
    left: list[str] = []
    done: list[str] = []
    for item in items:
        if isinstance(item, dict) and (text := _name_item(item)):
            status = item.get("status")
            if status in ("completed", "done"):
                done.append(TODO + text)
            elif status not in ("cancelled", "canceled"):
                left.append(TODO + text + (NOW if status == "in_progress" else ""))
    return TodoList(tuple(left), tuple(done))


NOW: Final = " (in progress)"
"""Suffix of a to-do item that is in progress."""


def _name_item(item: Mapping[str, Any]) -> str:
    named = (item.get(k) for k in ("content", "step", "text", "title", "description"))
    text = " ".join(next((v for v in named if isinstance(v, str)), "").split())
    return text if len(text) <= SENTENCE_MOST else ""

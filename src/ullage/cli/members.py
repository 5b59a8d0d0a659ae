"""One member of a JSON object in another program's file: set, found and removed in place.

All other characters stay as they are. Text that is not plain JSON is refused, not repaired.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def set_member(
    before: bytes | None,
    key: str,
    value: Any,
    *,
    may_replace: Callable[[Any], bool],
    spread: bool = False,
) -> bytes:
    """Return a file with the member; raises ValueError if it cannot be changed in place.

    An existing member is replaced if `may_replace` allows it for its value. With `spread` the value
    is written over several lines, as Claude Code and Codex write theirs.
    """
    text = decode(before or b"")
    end = "\r\n" if "\r\n" in text else "\n"
    if not text.strip():
        return (json.dumps({key: value}, indent=2) + "\n").encode()
    fields = parse(text, key, value)
    written = json.dumps(value)
    if spread and "\n" in text.strip():
        written = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"{end}  ")
    held = find_member(text, key)
    if held is not None:
        if not may_replace(fields[key]):
            shown = json.dumps(fields[key])
            raise ValueError(f"its {key!r} is another one, {shown}: --force replaces it")
        start, stop = held
        made = text if fields[key] == value else text[:start] + written + text[stop:]
    else:
        made = _append_member(text, key, written, end, empty=not fields)
    if json.loads(made) != {**fields, key: value}:
        raise ValueError("its JSON has a form that cannot be changed in one place")
    return made.encode()


def remove_member(before: bytes, key: str, saved: bytes | None) -> bytes:
    """Return a file without the member, or with the one of the backup.

    Raises ValueError if it cannot be removed in place.
    """
    text = decode(before)
    if not text.strip():
        return before
    fields = parse(text, key)
    held = find_member(text, key)
    if held is None:
        return before
    start, stop = held
    old = find_saved(saved, key)
    if old is not None:
        return (text[:start] + old + text[stop:]).encode()
    head = text[: text.rindex(f'"{key}"', 0, start)].rstrip()
    tail = text[stop:]
    if head.endswith(","):
        made = head[:-1] + tail
    else:
        rest = tail.lstrip()
        made = head + (tail[tail.index(",") + 1 :] if rest.startswith(",") else tail)
    if json.loads(made) != {name: value for name, value in fields.items() if name != key}:
        raise ValueError(f"the member {key!r} cannot be taken out in one place")
    return made.encode()


def is_same(one: bytes, other: bytes) -> bool:
    """Tell whether two files hold the same JSON data."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def find_saved(saved: bytes | None, key: str) -> str | None:
    """Return the member of the backup as it was written, or None."""
    text = decode(saved or b"")
    held = find_member(text, key) if text.strip() else None
    return text[held[0] : held[1]] if held is not None else None


def find_member(text: str, key: str) -> tuple[int, int] | None:
    """Return where the member's value stands in the top-level object; the last one counts."""
    read = json.JSONDecoder().raw_decode
    found = None
    place = _skip(text, text.index("{") + 1)
    while text[place] == '"':
        name, place = read(text, place)
        start = _skip(text, _skip(text, place) + 1)
        _, stop = read(text, start)
        if name == key:
            found = (start, stop)
        place = _skip(text, stop)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return found


def parse(text: str, key: str, value: Any = None) -> dict[str, Any]:
    """Return the object; raises ValueError for invalid JSON, with the text to write by hand."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        shown = "" if value is None else f'. Put "{key}": {json.dumps(value)} there by hand'
        raise ValueError(
            f"it is not plain JSON ({error}); JSON has no comments and no trailing commas{shown}"
        ) from error
    if not isinstance(fields, dict):
        raise ValueError("it is no object of JSON")  # noqa: TRY004 - the file is at fault
    return fields


def read_fields(data: bytes | None) -> Mapping[str, Any]:
    """Return the object in a file, or {} if it is missing, empty or no object."""
    try:
        fields = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def decode(data: bytes) -> str:
    """Return a file as text; raises ValueError if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 ({error})") from error


def _append_member(text: str, key: str, written: str, end: str, *, empty: bool) -> str:
    """Return an object with one more member after the others, indented like the first one."""
    close = text.rstrip().rindex("}")
    body = text[:close].rstrip()
    first = text[text.index("{") + 1 :].lstrip(" \t")
    indent = "  "
    if first.startswith(("\n", "\r\n")) and not empty:
        line = first.lstrip("\r\n")
        indent = line[: len(line) - len(line.lstrip(" \t"))]
    comma = "" if empty else ","
    return f'{body}{comma}{end}{indent}"{key}": {written}{end}{text[close:]}'


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place

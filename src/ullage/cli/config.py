"""`ullage config show`: every setting, its value, and where that comes from.

The text is TOML, so that it can go into a file as it stands. It knows what `ullage.config` reads
and not what a setting does; passwords within a base URL are not shown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ullage import config
from ullage.core.settings import KEYS, Configured
from ullage.transport import shown

SUMMARY = "show the settings and where they come from"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="show", required=True)
    show = verbs.add_parser("show", help=SUMMARY)
    show.add_argument(
        "--origin", action="store_true", help="also the file and line, the $VARIABLE, or default"
    )
    show.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print the settings. Raises ConfigurationError naming file, line and the nearest key."""
    configured = config.load()
    tell = _document if given.json else _text
    print(tell(configured, origin=given.origin))
    return 0


def value(configured: Configured, key: str) -> Any:
    """Return a setting as JSON has it and as it may be shown."""
    held = getattr(configured.settings, key)
    if isinstance(held, Mapping):
        return dict(held)
    return safe(held) if key == "base_url" and held is not None else held


def safe(url: str) -> str:
    """Return a base URL as it may be shown, whatever was written there."""
    try:
        return shown(url)
    except ValueError:
        return "(no URL)"


def _document(configured: Configured, *, origin: bool) -> str:
    if not origin:
        return json.dumps({key: value(configured, key) for key in KEYS}, indent=2)
    told: dict[str, Any] = {}
    for key in KEYS:
        told[key] = {"value": value(configured, key), "origin": configured.origins[key]}
        if isinstance(told[key]["value"], dict):
            told[key]["entries"] = _entries(configured, key)
    return json.dumps(told, indent=2)


def _text(configured: Configured, *, origin: bool) -> str:
    single: list[tuple[str, str]] = []
    maps: list[tuple[str, str]] = []
    for key in KEYS:
        held = value(configured, key)
        if isinstance(held, dict):
            maps += _table(configured, key, origin=origin)
        else:
            line = f"# {key} is not set" if held is None else f"{key} = {_toml(held)}"
            single.append((line, configured.origins[key]))
    lines = [*single, *maps]
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line:{width}}  # {o}" if origin and o else line for line, o in lines)


def _table(configured: Configured, key: str, *, origin: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a map, each with its origin; an empty one is a comment."""
    held = value(configured, key)
    if not held:
        yield f"# [{key}] is empty", configured.origins[key]
        return
    yield "", ""
    yield f"[{key}]", ""
    origins = _entries(configured, key) if origin else {}
    for name, one in held.items():
        yield f"{_toml(name)} = {_toml(one)}", origins.get(name, "")


def _toml(held: Any) -> str:
    """Return a text, number or switch as TOML has it, which is as JSON does."""
    plain = not isinstance(held, str) or held.isprintable()
    return json.dumps(held, ensure_ascii=not plain)


def _entries(configured: Configured, key: str) -> dict[str, str]:
    """Return where each entry of a map comes from: maps are merged, entry by entry.

    The files have been read and judged by `ullage.config` before; here only their names count.
    """
    origins: dict[str, str] = {}
    held = value(configured, key)
    for path in config.files(os.environ):
        text = path.read_text("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        for name in _held(data.get(key, {}), held):
            origins[name] = f"{path}, line {_line(text, key, name)}"
    for variable, setting in config.VARIABLES.items():
        if setting == key and os.environ.get(variable):
            written = _held(json.loads(os.environ[variable]), held)
            origins |= dict.fromkeys(written, f"${variable}")
    return origins


def _held(written: Mapping[str, Any], held: Mapping[str, Any]) -> list[str]:
    """Return the names whose values hold: an impossible window was left out with a warning."""
    return [name for name, one in written.items() if held.get(name) == one]


def _line(text: str, key: str, name: str) -> int:
    """Return the line of an entry: the first after its map's own that begins with its name."""
    lines = text.splitlines()
    table = re.compile(rf"""[\s\["'{{,]*{re.escape(key)}\b""")
    start = next((n for n, line in enumerate(lines) if table.match(line)), 0)
    entry = re.compile(rf"""(?:[^#]*[\s{{,."'])?{re.escape(name)}["']?\s*[=:]""")
    found = (n for n in range(start, len(lines)) if entry.match(lines[n]))
    return next(found, start) + 1

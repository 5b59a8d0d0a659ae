"""`ullage config show`: every setting, its value, and its origin.

The text is TOML, so that it can be used as a file. The module knows which settings `ullage.config`
reads, but not their effect. Keys, tokens and passwords in a URL are not shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ullage import config
from ullage.config.settings import DEFAULT, KEYS, Configured
from ullage.transport import mask_url

SUMMARY = "show the settings and where they come from"

HIDDEN: Final = "api_key"
TOKENS: Final = "serve.tokens."
TABLES: Final = ("context_windows", "base_models", "shares", "summarizer")
"""Settings of the library that are tables; `policy` may be one, or a name."""


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
    """Return a setting as JSON data, safe to be shown."""
    if key in configured.tree:
        held = configured.tree[key]
        if key == "policy" and held.keys() == {"preset"}:
            return held["preset"]
    else:
        held = getattr(configured.settings, key)
        held = dict(held) if isinstance(held, Mapping) else held
        held = list(held) if isinstance(held, tuple) else held
    return _safe(held, key)


def _safe(held: Any, path: str) -> Any:
    """Return a value without its secrets."""
    if isinstance(held, Mapping):
        entries = {name: _safe(one, f"{path}.{name}") for name, one in held.items()}
        return {name: one for name, one in entries.items() if one is not None}
    if isinstance(held, list):
        return [_safe(one, path) for one in held]
    name = path.rpartition(".")[2]
    if held is None or name == HIDDEN or path.startswith(TOKENS):
        return None
    return safe(held) if name in ("base_url", "store") and "://" in held else held


def safe(url: str) -> str:
    """Return a base URL that is safe to be shown, whatever was written there."""
    try:
        return mask_url(url)
    except ValueError:
        return "(no URL)"


def _keys(configured: Configured) -> tuple[str, ...]:
    """Return the settings in order; tables come last, as TOML requires."""
    named = (*KEYS, *(["serve"] if "serve" in configured.tree else []))
    tables = [key for key in named if _is_table(configured, key)]
    return (*(key for key in named if key not in tables), *tables)


def _is_table(configured: Configured, key: str) -> bool:
    return key in TABLES or isinstance(value(configured, key), dict)


def _origin(configured: Configured, path: str) -> str:
    return configured.places.get(path, DEFAULT)


def _document(configured: Configured, *, origin: bool) -> str:
    keys = _keys(configured)
    if not origin:
        return json.dumps({key: value(configured, key) for key in keys}, indent=2)
    told: dict[str, Any] = {}
    for key in keys:
        held = value(configured, key)
        told[key] = {"value": held, "origin": _origin(configured, key)}
        if isinstance(held, dict):
            entries = _entries(held, key)
            told[key]["entries"] = {
                ".".join(path): _place(configured, key, path) for path, _ in entries
            }
    return json.dumps(told, indent=2)


def _text(configured: Configured, *, origin: bool) -> str:
    lines: list[tuple[str, str]] = []
    for key in _keys(configured):
        held = value(configured, key)
        if _is_table(configured, key):
            lines += _table(configured, key, held)
        else:
            line = f"# {key} is not set" if held is None else f"{key} = {_toml(held)}"
            lines.append((line, _origin(configured, key)))
    lines += _secrets(configured)
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line:{width}}  # {o}" if origin and o else line for line, o in lines)


def _table(configured: Configured, key: str, held: Any) -> Iterator[tuple[str, str]]:
    """Yield the lines of a table, each with its origin; an empty table is a comment."""
    if not held:
        yield f"# [{key}] is empty", _origin(configured, key)
        return
    yield "", ""
    yield f"[{key}]", ""
    for path, one in _entries(held, key):
        name = ".".join(_name(part) for part in path)
        yield f"{name} = {_toml(one)}", _place(configured, key, path)


def _secrets(configured: Configured) -> Iterator[tuple[str, str]]:
    """Yield a comment for each secret that is set."""
    for path, place in configured.places.items():
        if path.endswith(f".{HIDDEN}") or path.startswith(TOKENS):
            yield f"# {path} is set and not shown", place


def _entries(held: Mapping[str, Any], key: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values in a table, with their paths in it."""
    for name, one in held.items():
        if isinstance(one, Mapping):
            for path, inner in _entries(one, f"{key}.{name}"):
                yield (name, *path), inner
        else:
            yield (name,), one


def _place(configured: Configured, key: str, path: tuple[str, ...]) -> str:
    from ullage.config.layers import spell

    return _origin(configured, spell((key, *path)))


def _name(part: str) -> str:
    """Return a key in TOML."""
    plain = part.isascii() and part.replace("-", "_").isidentifier()
    return part if plain else _toml(part)


def _toml(held: Any) -> str:
    """Return a value in TOML; texts, numbers and booleans look as in JSON."""
    if isinstance(held, list):
        return f"[{', '.join(map(_toml, held))}]"
    if isinstance(held, Mapping):
        return f"{{ {', '.join(f'{_name(name)} = {_toml(one)}' for name, one in held.items())} }}"
    plain = not isinstance(held, str) or held.isprintable()
    return json.dumps(held, ensure_ascii=not plain)

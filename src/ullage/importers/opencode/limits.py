"""The window that opencode's settings give for a model.

opencode's sessions do not record it. For self-hosted models the settings are the only source,
because opencode knows other models by a list of its own. Only this one number is taken from these
files.

Source: opencode.ai/docs/config (places and precedence), opencode.ai/docs/providers
(`provider.ID.models.ID.limit.context`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ullage.importers.lines import plain, value
from ullage.importers.opencode.parts import read_tokens
from ullage.importers.session import mapping

NAMES: Final = ("config.json", "opencode.json", "opencode.jsonc")
"""Settings files in a folder; a later one takes precedence."""

MOST: Final = 1024 * 1024
"""Most bytes read of a settings file."""

_COMMENTS: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMAS: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def find_limit(
    provider: str, model: str, folder: str | None, environ: Mapping[str, str], home: Path
) -> int | None:
    """Return the window of a model in tokens from the settings, or None if they have none.

    `folder` is the session's folder: its own settings take precedence, the nearest first.
    """
    found = None
    for path in _list_settings(folder, environ, home):
        told = mapping(mapping(_read(path).get("provider")).get(provider))
        limit = mapping(mapping(mapping(told.get("models")).get(model)).get("limit"))
        found = read_tokens(limit.get("context")) or found
    return found


def _list_settings(folder: str | None, environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the settings files, in rising order of precedence."""
    named = environ.get("XDG_CONFIG_HOME")
    base = (Path(named) if named else home / ".config") / "opencode"
    yield from (base / name for name in NAMES)
    if environ.get("OPENCODE_CONFIG"):
        yield Path(environ["OPENCODE_CONFIG"])
    if folder is not None and Path(folder).is_absolute():
        for above in (*reversed(Path(folder).parents), Path(folder)):
            yield from (above / name for name in NAMES[1:])


def _read(path: Path) -> Mapping[str, object]:
    """Return the settings in a file, which may hold comments; empty if it cannot be read."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            text = plain(file.read(MOST))
    except (OSError, ValueError):
        return {}
    return mapping(value(_COMMAS.sub(rb"\1", _COMMENTS.sub(rb"\1", text))))

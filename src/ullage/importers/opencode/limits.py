"""How large a window is that opencode was told of: the limits of models in its settings.

Its sessions do not say. For models of one's own server the settings are the only place, since
opencode knows others by a list of its own. Of these files nothing but one number is taken.

Source: opencode.ai/docs/config (places, and which wins), opencode.ai/docs/providers
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
"""Files of settings in a folder; what a later one says wins."""

MOST: Final = 1024 * 1024
"""Bytes of a file of settings that are read."""

_COMMENTS: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMAS: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def find_limit(
    provider: str, model: str, folder: str | None, environ: Mapping[str, str], home: Path
) -> int | None:
    """Return the window of a model in tokens by the settings, None where they say nothing.

    `folder` is that of the session: its own settings win, the nearest first.
    """
    found = None
    for path in _list_settings(folder, environ, home):
        told = mapping(mapping(_read(path).get("provider")).get(provider))
        limit = mapping(mapping(mapping(told.get("models")).get(model)).get("limit"))
        found = read_tokens(limit.get("context")) or found
    return found


def _list_settings(folder: str | None, environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the files of settings, those that win last."""
    named = environ.get("XDG_CONFIG_HOME")
    base = (Path(named) if named else home / ".config") / "opencode"
    yield from (base / name for name in NAMES)
    if environ.get("OPENCODE_CONFIG"):
        yield Path(environ["OPENCODE_CONFIG"])
    if folder is not None and Path(folder).is_absolute():
        for above in (*reversed(Path(folder).parents), Path(folder)):
            yield from (above / name for name in NAMES[1:])


def _read(path: Path) -> Mapping[str, object]:
    """Return the settings in a file, which may hold comments; none where it cannot be read."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            text = plain(file.read(MOST))
    except (OSError, ValueError):
        return {}
    return mapping(value(_COMMAS.sub(rb"\1", _COMMENTS.sub(rb"\1", text))))

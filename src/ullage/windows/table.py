"""The bundled table: exact model ids and their conservative bounds, read lazily.

A row is found by its exact id, or after a date suffix or an `ft:` frame is taken off; a
neighbour's number is never borrowed. It asks nobody.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from importlib import resources
from typing import Any, Final

from ullage.core.window import Claim, Kind

DATED: Final = re.compile(r"(?:-\d{4}-\d{2}-\d{2}|-\d{8}|@\d{8})$")
"""Suffixes that name a snapshot of the same model."""

KINDS: Final[tuple[Kind, ...]] = ("total", "input", "output")


class Table:
    """The bundled rows."""

    @cached_property
    def _data(self) -> dict[str, Any]:
        text = resources.files("ullage.windows").joinpath("table.json").read_text("utf-8")
        data: dict[str, Any] = json.loads(text)
        return data

    def claims(self, model: str) -> tuple[Claim, ...]:
        """Return the claims of a model's row; none when the id is not in the table."""
        row = next((r for r in map(self._data["models"].get, names(model)) if r), None)
        if row is None:
            return ()
        at, source = float(self._data["at"]), f"bundled table of {self._data['snapshot']}"
        return tuple(
            Claim(kind, row[kind], "table", source, at, 0.7) for kind in KINDS if kind in row
        )

    def ids(self) -> list[str]:
        """Return all model ids of the table, sorted."""
        return sorted(self._data["models"])


def names(model: str) -> list[str]:
    """Return the ids under which a model may stand in the table, the exact one first."""
    found = [model]
    if model.startswith("ft:"):
        base = model.split(":")[1]
        found = [model, base]
    undated = DATED.sub("", found[-1])
    return [*found, undated] if undated not in found else found

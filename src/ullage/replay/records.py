"""The rows of a run in a file, a line each, written as they come: a run that stops can go on.

The first line says what the run was asked for. A line that broke off is left out when the file is
read again. One process writes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ullage.core.errors import ConfigurationError
from ullage.replay.values import ReplayRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KEY: Final = "ullage_replay"
VERSION: Final = 1


class ReplayRecords:
    """The file of a run. Raises ConfigurationError where it is of another run."""

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], ReplayRow] = {}
        head: dict[str, Any] = {KEY: VERSION, **run}
        whole = 0
        if path.exists():
            whole = self._take_in(head)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._out = path.open("r+b" if whole else "wb")
        self._out.seek(whole)
        self._out.truncate()
        if not whole:
            self._write([head])

    def _take_in(self, head: Mapping[str, Any]) -> int:
        """Read the rows that are there; return the bytes of all whole lines."""
        whole = 0
        for number, (line, value) in enumerate(_list_lines(self.path)):
            if number == 0:
                self._check(head, value)
            else:
                row = ReplayRow.from_dict(value)
                self.rows[row.key] = row
            whole += len(line)
        return whole

    def _check(self, head: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        if KEY not in found:
            raise ConfigurationError(
                f"{self.path} is no file of a replay: give another name for the results"
            )
        same = {name for name in head if name != "policies" and head[name] != found.get(name)}
        asked, before = head["policies"], found.get("policies", {})
        changed = [label for label in asked if before.get(label, asked[label]) != asked[label]]
        if same or changed:
            what = ", ".join(sorted(same) + [f"policy {label}" for label in changed])
            raise ConfigurationError(
                f"{self.path} holds the results of a replay with another {what}: give the same "
                "options to go on with it, or another file"
            )

    def add(self, rows: Iterable[ReplayRow]) -> None:
        """Write rows that are not there yet, all of them or none."""
        new = [row for row in rows if row.key not in self.rows]
        self._write([row.to_dict() for row in new])
        self.rows.update((row.key, row) for row in new)

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(value, separators=(",", ":")) + "\n" for value in values]
        self._out.write("".join(lines).encode())
        self._out.flush()

    def close(self) -> None:
        """Have everything on disk."""
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _list_lines(path: Path) -> Iterator[tuple[bytes, Any]]:
    """Yield the whole lines of a file, read; what follows the first broken one is left out."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                return
            if not line.endswith(b"\n") or not isinstance(value, dict):
                return
            yield line, value


def read_records(path: Path) -> tuple[dict[str, Any], list[ReplayRow]]:
    """Return what a run was asked for, and its rows, once each.

    Raises ConfigurationError for a file that holds no replay.
    """
    lines = _list_lines(path)
    _, head = next(lines, (b"", {}))
    if KEY not in head:
        raise ConfigurationError(f"{path} holds no replay: `ullage replay-policy` writes one")
    rows = (ReplayRow.from_dict(value) for _, value in lines)
    return head, list({row.key: row for row in rows}.values())

"""The rows of a run in a file, one per line, written as they arrive, so a run can continue.

The first line describes the run. A broken last line is skipped when the file is read again. Only
one process may write to the file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ullage.core.errors import ConfigurationError, StoreError
from ullage.replay.values import ReplayRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KEY: Final = "ullage_replay"
VERSION: Final = 1


class ReplayRecords:
    """The file of a run; `afresh` drops the rows of an earlier run.

    Raises ConfigurationError if the file belongs to another run, is not a replay file, is being
    written by another process, or cannot be written.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], *, afresh: bool = False) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], ReplayRow] = {}
        head: dict[str, Any] = {KEY: VERSION, **run}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._out = path.open("ab")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._lock()
            whole = self._take_in(head, afresh=afresh)
        except BaseException:
            self._out.close()
            raise
        self._out.truncate(whole)
        if not whole:
            self._write([head])

    def _lock(self) -> None:
        """Lock the file until it is closed; two writers would corrupt it."""
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"{self.path} is being written by another replay: wait for its end and go on, or "
                "give another file"
            ) from None

    def _take_in(self, head: Mapping[str, Any], *, afresh: bool) -> int:
        """Read the existing rows; return the bytes of all whole lines."""
        whole = 0
        for number, (line, value) in enumerate(_list_lines(self.path)):
            if number == 0:
                self._check_kind(value)
                if afresh:
                    return 0
                self._check(head, value)
            else:
                row = read_row(self.path, value)
                self.rows[row.key] = row
            whole += len(line)
        if not whole:
            self._check_torn()
        return whole

    def _check_kind(self, found: Mapping[str, Any]) -> None:
        if KEY not in found:
            raise ConfigurationError(
                f"{self.path} is no file of a replay: give another name for the results"
            )

    def _check_torn(self) -> None:
        """Refuse a file that is neither empty nor the beginning of a replay file."""
        begun = json.dumps({KEY: VERSION}, separators=(",", ":")).removesuffix("}").encode()
        with self.path.open("rb") as file:
            start = file.read(len(begun))
        if not begun.startswith(start):
            self._check_kind({})

    def _check(self, head: Mapping[str, Any], found: Mapping[str, Any]) -> None:
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
        """Write rows that are new, all or none; the later of two rows holds."""
        new = [row for row in rows if self.rows.get(row.key) != row]
        self._write([row.to_dict() for row in new])
        self.rows.update((row.key, row) for row in new)

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(value, separators=(",", ":")) + "\n" for value in values]
        try:
            self._out.write("".join(lines).encode())
            self._out.flush()
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot take more results: {error.strerror}. Its contents are kept: "
                "make room, and give the same command to go on"
            ) from error

    def close(self) -> None:
        """Write everything to disk and close the file."""
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _list_lines(path: Path) -> Iterator[tuple[bytes, Any]]:
    """Yield the whole lines of a file, parsed; stop at the first broken one."""
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
    """Return the description of a run, and its rows, each once.

    Raises ConfigurationError for a file that holds no replay.
    """
    lines = _list_lines(path)
    _, head = next(lines, (b"", {}))
    if KEY not in head:
        raise ConfigurationError(f"{path} holds no replay: `ullage replay-policy` writes one")
    rows = (read_row(path, value) for _, value in lines)
    return head, list({row.key: row for row in rows}.values())


def read_row(path: Path, value: Mapping[str, Any]) -> ReplayRow:
    """Return the row of a line; raises ConfigurationError for an invalid line."""
    try:
        return ReplayRow.from_dict(value)
    except (LookupError, TypeError) as error:
        raise ConfigurationError(
            f"{path} holds a line that is no row of a replay ({type(error).__name__}: {error}): "
            "another version wrote it; replay afresh"
        ) from error

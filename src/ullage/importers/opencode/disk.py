"""The places of opencode's sessions: an SQLite file, or in older versions a file for each part.

`opencode.db` (`opencode-CHANNEL.db`) holds a row for each session, message and part, with the
fields as JSON in `data`. Versions up to 1.1 use `storage/session/PROJECT/ses_*.json`,
`storage/message/SESSION/msg_*.json` and `storage/part/MESSAGE/prt_*.json`. Here a session in a
database has its own path: the path of the database, followed by its id. Nothing is written or
locked. It does not know the meaning of a row.

Sources: databases and files of opencode 1.1.65, 1.2.4 and 1.18.33; anomalyco/opencode
(packages/opencode/src/storage/db.ts for the places, json-migration.ts for the older form).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.importers import files
from ullage.importers.lines import value
from ullage.importers.session import mapping, words
from ullage.sqlite_file import SqliteTables, lend_tables

PREFIX: Final = "ses_"
"""Prefix of session ids."""

ALL: Final = 1_000_000
"""Most sessions read from one database."""

LOOKED_AT: Final = 100
"""Newest sessions of a database whose messages are checked for their last time."""

BEHIND: Final = (
    "the newest writes may be missing: the database has a write-ahead log without its index"
)

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A stored session: its path, its fields, the time of its last write (Unix seconds), its size.

    `size` shows whether anything changed, and its approximate size.
    """

    path: Path
    info: Mapping[str, Any]
    at: float
    size: int = 0

    @property
    def id(self) -> str:
        """The id of the session, which is also the last part of its path."""
        return self.path.name.removesuffix(".json")

    @property
    def is_spawned(self) -> bool:
        """Tell whether another session started it, for a subagent."""
        return words(self.info.get("parentID")) is not None


def find_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder of opencode's data; it is the same on every platform."""
    data = environ.get("XDG_DATA_HOME")
    return (Path(data) if data else home / ".local" / "share") / "opencode"


def list_databases(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the databases in a folder, or only the one that OPENCODE_DB names."""
    named = environ.get("OPENCODE_DB")
    if named == ":memory:":
        return []
    if named:
        return [path for path in (folder / named,) if path.is_file()]
    return sorted(path for path in folder.glob("opencode*.db") if path.is_file())


def is_kept(path: Path) -> bool:
    """Tell whether a path names a session: in a database, or a file of older versions."""
    if path.suffix == ".json":
        return path.name.startswith(PREFIX) and path.parent.parent.name == "session"
    return path.name.startswith(PREFIX) and files.is_file(path.parent)


def list_kept(folder: Path, environ: Mapping[str, str]) -> list[KeptSession]:
    """Return the sessions in a folder, newest first, each once; the form in a database wins.

    Raises ConfigurationError if a database cannot be read and there are no other sessions.
    """
    found: dict[str, KeptSession] = {}
    faults: list[ConfigurationError] = []
    for path in list_databases(folder, environ):
        try:
            for one in _list_rows(path):
                found.setdefault(one.id, one)
        except ConfigurationError as error:
            faults.append(error)
    for one in _list_files(folder / "storage"):
        found.setdefault(one.id, one)
    if faults and not found:
        raise faults[0]
    return sorted(found.values(), key=lambda one: (one.at, one.id), reverse=True)


def fetch(path: Path) -> tuple[Value, list[str]]:
    """Return a session in the form of its export, and warnings about it.

    A row or file without an object appears as None. Raises ConfigurationError.
    """
    if path.suffix == ".json":
        return _fetch_files(path), []
    with lend_tables(path.parent) as tables:
        return _fetch_rows(tables, path), [BEHIND] if tables.is_behind else []


def find_newest(path: Path) -> Path:
    """Return the path of the newest session in a database."""
    newest = max((o for o in _list_rows(path) if not o.is_spawned), key=_age, default=None)
    if newest is None:
        raise ConfigurationError(f"{path} holds no session of opencode")
    return newest.path


def _age(one: KeptSession) -> tuple[float, str]:
    return one.at, one.id


# ── in a database ───────────────────────────────────────────────────────────────────────────────

_COLUMNS: Final[Mapping[str, str]] = {
    "directory": "directory",
    "title": "title",
    "version": "version",
    "parent_id": "parentID",
    "project_id": "projectID",
    "cost": "cost",
}
"""Columns of a session that are copied unchanged, with their names in the export."""

_TIMES: Final[Mapping[str, str]] = {
    "time_created": "created",
    "time_updated": "updated",
    "time_archived": "archived",
}


def _list_rows(path: Path) -> tuple[KeptSession, ...]:
    """Return the sessions of a database; it is read again after each change."""
    log = Path(f"{path}-wal")
    return _read_list(path, *(_stamp(file) for file in (path, log)))


@lru_cache(8)
def _read_list(path: Path, *stamps: tuple[int, int]) -> tuple[KeptSession, ...]:
    """Return the sessions of a database; for the newest with the time of their last message."""
    del stamps  # only keys of the cache
    kept = []
    with lend_tables(path) as tables:
        _check(tables, path)
        for number, info in enumerate(_read_sessions(tables, "ORDER BY time_updated DESC", ())):
            name, size = str(info["id"]), 0
            at = _read_time(info["time"].get("updated"))
            if number < LOOKED_AT:
                (written, length), *_ = tables.select(
                    "SELECT max(time_updated), sum(octet_length(data)) FROM message "
                    "WHERE session_id = ?", (name,),
                )  # fmt: skip
                at, size = max(at, _read_time(written)), int(_read_time(length))
            kept.append(KeptSession(path / name, info, at / 1000, size))
    return tuple(kept)


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's time and size, or zeros if it does not exist."""
    try:
        told = path.stat()
    except OSError:
        return 0, 0
    return told.st_mtime_ns, told.st_size


def _check(tables: SqliteTables, path: Path) -> None:
    """Raise ConfigurationError if the database is not opencode's."""
    for table in ("session", "message", "part"):
        if "id" not in tables.list_columns(table):
            raise ConfigurationError(
                f"{path} is no database of opencode that is known: it has no table {table!r}"
            )


def _read_sessions(tables: SqliteTables, where: str, values: Iterable[object]) -> Iterator[Value]:
    """Yield sessions in the form of the export; missing columns are left out."""
    known = tables.list_columns("session")
    columns = ["id", *(c for c in (*_COLUMNS, *_TIMES, "revert") if c in known)]
    text = f"SELECT {', '.join(columns)} FROM session {where} LIMIT {ALL}"  # noqa: S608 - of ours
    for row in tables.select(text, tuple(values)):
        told = dict(zip(columns, row, strict=True))
        info: Value = {"id": told["id"]}
        info |= {name: told[column] for column, name in _COLUMNS.items() if told.get(column)}
        info["time"] = {name: told[column] for column, name in _TIMES.items() if told.get(column)}
        if isinstance(told.get("revert"), str):
            info["revert"] = value(told["revert"].encode())
        if isinstance(info["id"], str):
            yield info


def _fetch_rows(tables: SqliteTables, path: Path) -> Value:
    _check(tables, path.parent)
    info = next(_read_sessions(tables, "WHERE id = ?", (path.name,)), None)
    if info is None:
        raise ConfigurationError(f"{path.parent} holds no session {path.name!r}")
    size, *_ = tables.select(
        "SELECT total(octet_length(data)) FROM part WHERE session_id = ?", (path.name,)
    )
    if size[0] > files.MOST_BYTES:
        raise ConfigurationError(
            f"{path} is larger than {files.MOST_BYTES // 1024**2:,} MiB, the most that is read of "
            "a session"
        )
    parts: dict[object, list[Any]] = {}
    for name, message, data in tables.select(
        "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id",
        (path.name,),
    ):
        parts.setdefault(message, []).append(_open(data, {"id": name}))
    messages = []
    for name, data in tables.select(
        "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (path.name,)
    ):
        messages.append({"info": _open(data, {"id": name}), "parts": parts.pop(name, [])})
    lost = [{"info": None, "parts": left} for left in parts.values()]
    return {"info": info, "messages": [*messages, *lost]}


def _open(data: Any, known: Mapping[str, Any]) -> Any:
    """Return the object in a row with its id from a column, or None if it holds no object."""
    fields = value(data.encode("utf-8", "replace")) if isinstance(data, str) else None
    return {**fields, **known} if isinstance(fields, dict) else None


def _read_time(number: Any) -> float:
    return float(number) if isinstance(number, int | float) else 0.0


# ── in files of older versions ──────────────────────────────────────────────────────────────────


def _list_files(storage: Path) -> Iterator[KeptSession]:
    for path in storage.glob(f"session/*/{PREFIX}*.json"):
        info = _load(path)
        if not isinstance(info, dict):
            continue
        folder = storage / "message" / path.stem
        yield KeptSession(path, info, max(_stat(path), _stat(folder)))


def _fetch_files(path: Path) -> Value:
    """Return the session in a file at a path, with its messages from their files."""
    info = _load(path)
    if not isinstance(info, dict):
        raise ConfigurationError(f"{path} cannot be read: it holds no session of opencode")
    storage = path.parent.parent.parent
    room = _Room(files.MOST_BYTES, path)
    messages = []
    for name in sorted(storage.glob(f"message/{path.stem}/*.json")):
        parts = sorted(storage.glob(f"part/{name.stem}/*.json"))
        told = _load(name, room)
        messages.append({"info": told, "parts": [_load(part, room) for part in parts]})
    return {"info": info, "messages": sorted(messages, key=_place)}


def _place(message: Mapping[str, Any]) -> tuple[float, str]:
    info = mapping(message["info"])
    return _read_time(mapping(info.get("time")).get("created")), words(info.get("id")) or ""


class _Room:
    """Bytes that may be read of one session."""

    def __init__(self, most: int, path: Path) -> None:
        self._left, self._most, self._path = most, most, path

    def take(self, size: int) -> None:
        """Use up bytes; raises ConfigurationError if none are left."""
        self._left -= size
        if self._left < 0:
            raise ConfigurationError(
                f"{self._path} is larger than {self._most // 1024**2:,} MiB, the most that is "
                "read of a session"
            )


def _load(path: Path, room: _Room | None = None) -> Any:
    """Return the value in a file, or None if it is half written or gone."""
    try:
        if room is not None:
            room.take(path.stat().st_size)
        return value(path.read_bytes())
    except OSError:
        return None


def _stat(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def write(fields: Value) -> bytes:
    """Return the bytes of a session in the form of its export."""
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")

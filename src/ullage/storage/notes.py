"""Small records that the processes of one store share: one writes them, the others read them.

A record has a topic, a scope and a name; the last one written for the three holds. Readers find it
by the three, or list a topic in the order of writing. The records are rows of an SQL store; a store
in memory has none. This module knows no topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from ullage.core.errors import StoreError
from ullage.storage.bodies import DamagedRecord, seal

if TYPE_CHECKING:
    from ullage.storage.protocol import Store
    from ullage.storage.sql_store import SqlRecords

log = logging.getLogger("ullage.storage")


@dataclass(frozen=True, slots=True)
class SharedNote:
    """One record: `value` is plain data that JSON can carry."""

    topic: str
    scope: str
    name: str
    value: Mapping[str, Any]


@runtime_checkable
class Notes(Protocol):
    """The shared records of a store. Each method raises what the store raises."""

    def read(self, topic: str, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return the value of a record, or None if it is unknown; this counts as a use."""
        ...

    def write(self, notes: Sequence[SharedNote]) -> None:
        """Write records; each replaces the one with the same topic, scope and name."""
        ...

    def list_since(self, topic: str, turn: int) -> tuple[int, list[SharedNote]]:
        """Return the last turn and a topic's records from this turn on, in the order of writing.

        Pass the returned turn to the next call: it returns that turn's record once more. 0 starts
        at the beginning.
        """
        ...


class SqlNotes:
    """The shared records of a store in SQL."""

    def __init__(self, records: SqlRecords) -> None:
        self._records, self._sql = records, records.engine.statements

    def read(self, topic: str, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return the value of a record, or None if it is unknown; this counts as a use."""
        body = self._records.read_first(topic, scope, [name])
        return None if body is None else self._records.read_record(_read, body).value

    def write(self, notes: Sequence[SharedNote]) -> None:
        """Write records; each replaces the one with the same topic, scope and name.

        The writer of a topic holds its lock to the end, so that others see turns in their order.
        """
        by_topic: dict[str, list[SharedNote]] = {}
        for note in notes:
            by_topic.setdefault(note.topic, []).append(note)
        for topic, those in by_topic.items():
            rows = [self._make_row(note) for note in those]
            with self._records.writing(topic, grown=[topic]) as writer:
                writer.executemany(self._sql.state, rows)

    def list_since(self, topic: str, turn: int) -> tuple[int, list[SharedNote]]:
        """Return the last turn and a topic's records from this turn on, in the order of writing.

        If the record of that turn is gone, turns may have been reused: all records are returned.
        """
        asked = {"kind": topic, "turn": turn}
        rows = self._records.database.read(self._sql.since, asked)
        if not rows and turn:
            rows = self._records.database.read(self._sql.since, {"kind": topic, "turn": 0})
        return max((at for at, _ in rows), default=0), list(self._read_sound(rows))

    def _read_sound(self, rows: Sequence[Sequence[Any]]) -> Iterator[SharedNote]:
        """Yield the undamaged records; log a warning for each other one."""
        for _, body in rows:
            try:
                yield self._records.read_record(_read, bytes(body))
            except DamagedRecord as error:
                log.warning("%s", error)

    def _make_row(self, note: SharedNote) -> dict[str, Any]:
        place = self._records.make_place(note.topic, note.scope, note.name)
        body = {"topic": note.topic, "scope": note.scope, "name": note.name, "value": note.value}
        return self._records.make_row(place, seal(body))


def notes_of(store: Store) -> Notes | None:
    """Return the shared records of a store, or None if it has none."""
    return cast("Notes | None", getattr(store, "notes", None))


def _read(data: Mapping[str, Any]) -> SharedNote:
    """Read a record; raises StoreError for invalid data."""
    topic, scope, name, value = (data.get(key) for key in ("topic", "scope", "name", "value"))
    if not isinstance(value, Mapping):
        raise StoreError(f"a shared record of {topic!s:.40} has no value: remove it")
    return SharedNote(str(topic), str(scope), str(name), value)

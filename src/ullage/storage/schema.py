"""Reads the schema version of a store, without a migration or any write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.core.errors import ConfigurationError, StoreError
from ullage.storage.opening import find_file, has_log, needing
from ullage.storage.postgres_url import hide_password

WAY_BACK: Final = "docs/storage.md, Between versions"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The version of a store's schema, and the one that this ullage writes."""

    url: str
    found: int
    known: int

    @property
    def outlook(self) -> str:
        """The way this version of ullage treats the store."""
        if self.found > self.known:
            return "a later ullage wrote it, and this one refuses it: upgrade ullage"
        if self.found < self.known:
            return (
                "the next session or guard that opens it brings it forward, and older versions of "
                f"ullage refuse it from then on ({WAY_BACK})"
            )
        return "this ullage reads and writes it"


def read_schema(url: str) -> SchemaVersion:
    """Return the version of the schema of a store in SQLite or PostgreSQL.

    Raises ConfigurationError for another URL, and StoreError if there is no ullage store.
    """
    if not has_log(url):
        raise ConfigurationError(
            f"store {hide_password(url)!r} has no schema: give sqlite:FILE or postgresql://..."
        )
    with needing(url):
        return _read_file(url) if url.startswith("sqlite:") else _ask_server(url)


def _read_file(url: str) -> SchemaVersion:
    from ullage.sqlite_file import lend_tables
    from ullage.storage import faults
    from ullage.storage.database import APPLICATION, MIGRATIONS

    path = find_file(url)
    if not path.is_file():
        raise faults.missing(path)
    with lend_tables(path) as tables:
        ((mark,),) = tables.select("PRAGMA application_id")
        ((version,),) = tables.select("PRAGMA user_version")
        columns = tables.list_columns("records")
    if mark != APPLICATION:
        raise faults.foreign(path)
    if not columns:
        raise faults.other_kind(path, "records")
    return SchemaVersion(url, version, len(MIGRATIONS))


def _ask_server(url: str) -> SchemaVersion:
    import psycopg

    from ullage.storage.postgres_database import MIGRATIONS, VERSION, read_parameters

    shown = hide_password(url)
    try:
        with psycopg.connect(**read_parameters(url, shown)) as connection:
            ((version,),) = connection.execute(VERSION).fetchall()
    except psycopg.errors.UndefinedTable:
        raise StoreError(f"there is no store in {shown}: check the database of the URL") from None
    except psycopg.Error as error:  # libpq's message may hold parts of the URL
        what = type(error).__name__
        raise StoreError(
            f"{shown} cannot be asked: check the URL, and the server ({what})"
        ) from None
    return SchemaVersion(shown, version, len(MIGRATIONS))

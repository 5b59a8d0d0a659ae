"""A SQLite file of another program, read and never changed.

Nothing is written next to it, and no lock is taken that a writer waits for. A write-ahead log is
read through the index that its program keeps (`readonly_shm`). If there is no index, the file is
read as it is (`immutable`). This module does not know the tables. For our own files see
`storage.database`.

Sources: sqlite.org/uri.html (mode, immutable), sqlite.org/wal.html (read-only databases).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing

MAGIC: Final = b"SQLite format 3\0"
"""The first bytes of a SQLite file."""

LONGEST: Final = 128 * 1024 * 1024
"""Most bytes of one value that are read."""

WAIT_MS: Final = 500


class SqliteTables:
    """The tables of one file; `is_behind` says that its write-ahead log was not read."""

    def __init__(self, connection: Any, name: str, *, is_behind: bool) -> None:
        self._connection = connection
        self._name = name
        self.is_behind = is_behind

    def select(self, statement: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows; raises ConfigurationError if the file is damaged or has other tables."""
        import apsw

        try:
            yield from self._connection.execute(statement, values)
        except apsw.Error as error:
            raise explain(self._name, error) from error

    def list_columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; empty if there is no such table."""
        found = self.select("SELECT name FROM pragma_table_info(?)", (table,))
        return frozenset(str(name) for (name,) in found)


@contextmanager
def lend_tables(path: str | os.PathLike[str]) -> Iterator[SqliteTables]:
    """Yield the tables of a file in their current state; ConfigurationError if it is unreadable."""
    try:
        import apsw
    except ImportError as error:
        raise explain_missing(f"{path} is a SQLite file and", "apsw") from error

    name = os.path.abspath(path)
    is_indexed = os.path.isfile(f"{name}-shm")
    way = "mode=ro&readonly_shm=1" if is_indexed else "mode=ro&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(name)}?{way}", flags=flags)
    except apsw.Error as error:
        raise explain(name, error) from error
    try:
        connection.set_busy_timeout(WAIT_MS)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.execute("BEGIN")  # one snapshot, so that all reads belong together
        is_behind = not is_indexed and _has_content(f"{name}-wal")
        yield SqliteTables(connection, name, is_behind=is_behind)
    finally:
        connection.close(True)


def explain(name: str, error: Exception) -> ConfigurationError:
    """Return the error for a file that SQLite cannot read."""
    return ConfigurationError(f"{name} cannot be read as SQLite: {error}")


def is_database(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file starts with the first bytes of a SQLite file."""
    try:
        if not os.path.isfile(path):
            return False  # reading a pipe would block, and a folder has no bytes
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def _has_content(name: str) -> bool:
    try:
        return os.stat(name).st_size > 0
    except OSError:
        return False

"""What a PostgreSQL has written: its own counters, before and after some work.

The counters of a connection reach the statistics when it ends: read them when nobody is connected.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.support.postgres import Server

TABLES: Final = """
    SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, n_dead_tup, n_live_tup,
           autovacuum_count, pg_indexes_size(relid), pg_table_size(relid)
    FROM pg_stat_user_tables WHERE schemaname = 'ullage'
"""
COLUMNS: Final = (
    *("inserted", "updated", "hot", "deleted", "dead", "live", "autovacuums"),
    *("index_bytes", "table_bytes"),
)
WAL: Final = """
    SELECT wal_records, wal_fpi, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')
    FROM pg_stat_wal
"""
SYNCS_18: Final = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'"
SYNCS_15: Final = "SELECT wal_sync FROM pg_stat_wal"
BUSY: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ullage'"
SAID: Final = re.compile(rb"LOG:  (?:statement|execute [^:]*):\s*(\w+)")
SETTLE_S: Final = 10.0

Counts = dict[str, Any]


class Counters:
    """Reads the counters of one database of a server."""

    def __init__(self, server: Server, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, application_name="bench")
        self._log = Path(server.folder) / "log"
        self.version = self._connection.info.server_version

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, sql: str, *bindings: Any) -> Any:
        """Return the first value of the first row, None without a row."""
        cursor = self._connection.execute(sql, bindings or None)
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def settle(self) -> None:
        """Wait until every connection of ours has ended and told its counters."""
        until = time.monotonic() + SETTLE_S
        while self.ask(BUSY) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)

    def read(self) -> Counts:
        """Return all counters, tables by name, when nobody of ours is connected any more."""
        self.settle()
        self._connection.execute("SELECT pg_stat_clear_snapshot()")
        row = self._connection.execute(WAL).fetchone()
        assert row is not None
        syncs = SYNCS_18 if self.version >= 180_000 else SYNCS_15
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        tables = {
            name: dict(zip(COLUMNS, map(int, values), strict=True))
            for name, *values in self._connection.execute(TABLES)
        }
        return {
            **dict(zip(("wal_records", "wal_pages", "wal_bytes"), map(int, row), strict=True)),
            "syncs": int(self.ask(syncs)),
            "commits": int(self.ask(commits)),
            "tables": tables,
        }

    @contextmanager
    def telling(self) -> Iterator[dict[str, int]]:
        """Have the server log each statement; the yielded counts by verb are filled at the end."""
        found: dict[str, int] = {}
        self._set_logging("all")
        begun = self._log.stat().st_size
        try:
            yield found
        finally:
            self.settle()
            self._set_logging("none")
        with self._log.open("rb") as file:
            file.seek(begun)
            for match in SAID.finditer(file.read()):
                verb = match[1].decode().upper()
                found[verb] = found.get(verb, 0) + 1

    def _set_logging(self, what: str) -> None:
        database = self.ask("SELECT current_database()")
        self._connection.execute(f"ALTER DATABASE {database} SET log_statement = '{what}'")


def subtract(after: Mapping[str, Any], before: Mapping[str, Any]) -> Counts:
    """Return what came between two readings; tables that were not there count from zero."""
    made: Counts = {}
    for key, value in after.items():
        if isinstance(value, Mapping):
            made[key] = subtract(value, before.get(key, {}))
        else:
            made[key] = value - before.get(key, 0)
    return made

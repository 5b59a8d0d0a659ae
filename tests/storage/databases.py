"""Databases of PostgreSQL for the suites: one whose clock says what the caller of a log says."""

from __future__ import annotations

import psycopg

from ullage.storage.log import Lease, Owner
from ullage.storage.log_postgres import PostgresLog

CLOCK = """
    CREATE SCHEMA faked;
    CREATE TABLE faked.clock (seconds double precision NOT NULL);
    INSERT INTO faked.clock VALUES (extract(epoch FROM pg_catalog.clock_timestamp()));
    CREATE FUNCTION faked.clock_timestamp() RETURNS timestamptz LANGUAGE sql
    AS 'SELECT to_timestamp(seconds) FROM faked.clock';
"""
FAKED_FIRST = "&options=-csearch_path%3Dfaked,pg_catalog"


class TimedLog(PostgresLog):
    """A log on a database whose clock stands where the caller's does, as the suites expect.

    Its own functions come before PostgreSQL's in the search path: nothing of the log is changed.
    """

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(CLOCK)
        super().__init__(url + FAKED_FIRST)

    def acquire(self, session: str, owner: Owner, now: float, *, take_over: bool = False) -> Lease:
        self._set(now)
        return super().acquire(session, owner, now, take_over=take_over)

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:
        self._set(now)
        return super().heartbeat(session, epoch, now)

    def release(self, session: str, epoch: int, now: float) -> None:
        self._set(now)
        super().release(session, epoch, now)

    def _set(self, now: float) -> None:
        self._database.once("UPDATE faked.clock SET seconds = %s RETURNING seconds", (now,))

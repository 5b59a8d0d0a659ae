"""The log in PostgreSQL: fenced by the database, whatever connections, servers and clocks do."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import LiteralString

import psycopg
import pytest

from tests.support import postgres
from tests.support.waiting import eventually
from ullage.core.errors import BusyWriter, ConfigurationError, CorruptLog, Fenced, StoreError
from ullage.core.session.log.event import Draft
from ullage.storage import open_log
from ullage.storage.log import Owner, verify
from ullage.storage.log_postgres import APPEND, PostgresLog
from ullage.storage.postgres_database import Bindings, ConnectionLost, PostgresDatabase, Rows

WORD = Draft("user_message", {"text": "x"})
HERE = Owner("here", 1, "", "")
NEXT = Owner("next", 2, "", "")


@pytest.fixture
def url(postgres_database: Callable[[], str]) -> str:
    return postgres_database()


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    """Open a log with a session `s` of three events, written in epoch 1."""
    with closing(PostgresLog(url, wait_s=0.2)) as opened:
        opened.create("s", 1.0)
        opened.append("s", opened.acquire("s", HERE, 1.0).epoch, 0, [WORD] * 3, 2.0)
        yield opened


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """Start a server of our own, to be stopped and started."""
    try:
        installation = postgres.obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with postgres.Server(installation) as running:
        yield running


def run(url: str, sql: LiteralString) -> Rows:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(sql)
        return done.fetchall() if done.description else []


# ── what is kept ────────────────────────────────────────────────────────────────────────────────


def test_what_was_written_is_there_when_it_is_opened_again(url: str, log: PostgresLog):
    kept = (log.read("s"), log.head("s"), log.leases("s"))
    log.close()
    with closing(open_log(url, create=False)) as again:
        assert (again.read("s"), again.head("s"), again.leases("s")) == kept
        assert again.url == url
    with pytest.raises(StoreError, match="was closed: open it again"):
        log.head("s")


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE ullage.events SET data = '{}' WHERE seq = 2", "event 2 of session s was changed"),
        ("UPDATE ullage.events SET epoch = 9 WHERE seq = 2", "in epoch 1, after one of epoch 9"),
        ("DELETE FROM ullage.events WHERE seq = 3", "ends at event 2, and event 3 was written"),
        ("DELETE FROM ullage.events WHERE seq = 2", "event 3 of session s follows event 1"),
    ],
)
def test_what_somebody_changed_in_the_database_is_found(
    url: str, log: PostgresLog, sql: LiteralString, fault: str
):
    run(url, sql)
    assert fault in verify(log, "s")[0]
    if sql.startswith("DELETE"):
        with pytest.raises(CorruptLog, match="lacks event"):
            log.read("s")


def test_a_type_that_postgresql_cannot_hold_uses_no_seq(log: PostgresLog):
    with pytest.raises(StoreError, match=r"cannot hold this \(.*NUL"):
        log.append("s", 1, 3, [Draft("dre\0amt", {})], 3.0)
    assert log.append("s", 1, 3, [WORD], 3.0)[0].seq == 4


# ── one writer ──────────────────────────────────────────────────────────────────────────────────


def test_of_threads_that_append_behind_one_head_one_wins(log: PostgresLog):
    told: list[object] = []

    def append() -> None:
        try:
            told.append(log.append("s", 1, 3, [WORD], 2.0)[0].seq)
        except Fenced:
            told.append("fenced")

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, told)) == ["4", "fenced", "fenced", "fenced"]
    assert log.head("s").seq == 4


def test_the_callers_clock_ends_no_lease(log: PostgresLog):
    for now in (0.0, 9e9):
        with pytest.raises(BusyWriter, match="being written by here"):
            log.acquire("s", NEXT, now)
    assert log.heartbeat("s", 1, 9e9).seen < time.time() + 3600
    (lease,) = log.leases("s")
    assert abs(lease.acquired - time.time()) < 3600


def test_a_lease_expires_by_the_clock_of_the_database(url: str, log: PostgresLog):
    with closing(PostgresLog(url, lease_s=0.05)) as other:

        def taken() -> bool:
            try:
                return other.acquire("s", NEXT, 0.0).epoch == 2
            except BusyWriter:
                return False

        eventually(taken)
        with pytest.raises(Fenced, match="next in epoch 2 may"):
            log.append("s", 1, 3, [WORD], 3.0)  # by what it knows of the head, without asking
        assert "here (pid 1), gave no sign for 0.05 s" in other.leases("s")[-1].taken
        assert other.append("s", 2, 3, [WORD], 3.0)[0].seq == 4


def test_an_append_that_waits_for_a_takeover_is_fenced(url: str, log: PostgresLog):
    """The swap is asked again of the row that the take-over left, not of the one that it saw."""
    told: list[object] = []

    def append() -> None:
        try:
            told.append(slow.append("s", 1, 3, [WORD], 3.0))
        except Fenced as error:
            told.append(str(error))

    with closing(PostgresLog(url, lease_s=0.0)) as slow:
        thread = threading.Thread(target=append)
        with closing(PostgresLog(url, lease_s=0.0)) as other:
            with other._database.writing() as cursor:
                cursor.execute("SELECT FROM ullage.sessions FOR UPDATE")
                thread.start()
                eventually(lambda: waits(url))
                cursor.execute("UPDATE ullage.sessions SET writer = 2")
                cursor.execute(
                    "INSERT INTO ullage.leases SELECT session_id, 2, owner, acquired, seen, NULL, "
                    "'' FROM ullage.leases"
                )
            thread.join()
    assert told == [
        "epoch 1 may not write to session s any more: here in epoch 2 may; nothing was written"
    ]
    assert log.head("s").seq == 3


def waits(url: str) -> bool:
    """Tell whether somebody waits for a lock."""
    return bool(run(url, "SELECT pid FROM pg_locks WHERE NOT granted"))


def test_a_row_that_another_program_holds_is_waited_for_only_so_long(url: str, log: PostgresLog):
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM ullage.sessions FOR UPDATE")
        with pytest.raises(BusyWriter, match=r"was locked by another program for 0\.2 s"):
            log.append("s", 1, 3, [WORD], 3.0)
        other.rollback()
    assert log.append("s", 1, 3, [WORD], 3.0)[0].seq == 4


def test_a_sign_of_life_is_one_statement_that_waits_for_a_takeover(url: str, log: PostgresLog):
    """A writer suspended between two statements would keep its row, and every other out."""
    with psycopg.connect(url) as other, closing(PostgresLog(url)) as slow:
        other.execute("UPDATE ullage.sessions SET writer = 2")
        other.execute(
            "INSERT INTO ullage.leases SELECT session_id, 2, owner, acquired, seen, NULL, '' "
            "FROM ullage.leases"
        )
        with ThreadPoolExecutor(1) as pool:
            beat = pool.submit(slow.heartbeat, "s", 1, 3.0)
            eventually(lambda: waits(url))
            (held,) = run(url, "SELECT state FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            other.commit()
            with pytest.raises(Fenced, match="epoch 1 may not write"):
                beat.result(20)
    assert held == ("active",)
    assert log.heartbeat("s", 2, 3.0).seen > log.leases("s")[0].seen
    assert not run(url, "SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")


def test_what_the_writer_knew_wrongly_is_refused_and_read_anew(url: str, log: PostgresLog):
    run(url, "UPDATE ullage.sessions SET last = 'another'")
    with pytest.raises(Fenced, match="is not what epoch 1 knows: read it anew"):
        log.append("s", 1, 3, [WORD], 3.0)


# ── connections that break ──────────────────────────────────────────────────────────────────────


class Deaf(PostgresDatabase):
    """A database whose answers to the next appends are lost, after they were carried out or not."""

    heard: Sequence[bool] = ()

    def once(self, sql: LiteralString, bindings: Bindings = ()) -> Rows:
        if sql == APPEND and self.heard:
            carried_out, *self.heard = self.heard
            if carried_out:
                super().once(sql, bindings)
            raise ConnectionLost("the connection was lost")
        return super().once(sql, bindings)


@pytest.mark.parametrize("heard", [[True], [False]])
def test_an_append_whose_answer_was_lost_is_there_once(
    url: str, log: PostgresLog, heard: list[bool]
):
    with closing(Deaf(url)) as deaf:
        log.close()
        log._database, deaf.heard = deaf, heard
        (event,) = log.append("s", 1, 3, [WORD], 3.0)
        assert log.read("s", 3) == [event]
        assert log.append("s", 1, 4, [WORD], 4.0)[0].seq == 5
        assert verify(log, "s") == []


class Late(PostgresDatabase):
    """A database that the first append reaches only after it was given up, before the next one."""

    on_its_way: Bindings | None = None

    def once(self, sql: LiteralString, bindings: Bindings = ()) -> Rows:
        if sql == APPEND and self.on_its_way is None:
            self.on_its_way = bindings
            raise ConnectionLost("the connection was lost")
        if sql == APPEND and self.on_its_way:
            super().once(sql, self.on_its_way)
            self.on_its_way = ()
        return super().once(sql, bindings)


def test_an_append_that_arrives_after_it_was_given_up_is_there_once(url: str, log: PostgresLog):
    with closing(Late(url)) as late:
        log.close()
        log._database = late
        (event,) = log.append("s", 1, 3, [WORD], 3.0)
        assert log.read("s", 3) == [event]
        assert log.append("s", 1, 4, [WORD], 4.0)[0].seq == 5


def test_an_append_that_is_lost_twice_is_told_and_the_head_says_what_became_of_it(
    url: str, log: PostgresLog
):
    with closing(Deaf(url)) as deaf:
        log.close()
        log._database, deaf.heard = deaf, [False, True]
        with pytest.raises(ConnectionLost):
            log.append("s", 1, 3, [WORD], 3.0)
        assert log.head("s").seq == 4
        with pytest.raises(Fenced, match="stands at event 4, not 3"):
            log.append("s", 1, 3, [WORD], 3.0)


def test_a_connection_that_was_ended_while_idle_is_made_again(url: str, log: PostgresLog):
    uses: list[Callable[[], object]] = [
        lambda: log.read("s"),
        lambda: log.append("s", 1, 3, [WORD], 3.0),
        lambda: log.heartbeat("s", 1, 3.0),
        lambda: log.release("s", 1, 3.0),
    ]
    for use in uses:
        ended = run(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'ullage' AND datname = current_database()",
        )
        assert ended == [(True,)]
        use()
    assert log.head("s").seq == 4
    assert verify(log, "s") == []


def test_a_server_that_is_down_is_told_and_the_writer_goes_on_when_it_is_back(
    server: postgres.Server,
):
    with closing(PostgresLog(server.created())) as log:
        log.create("s", 1.0)
        epoch = log.acquire("s", HERE, 1.0).epoch
        log.append("s", epoch, 0, [WORD], 2.0)
        server.stop()
        try:
            for use in (
                lambda: log.append("s", epoch, 1, [WORD], 3.0),
                lambda: log.heartbeat("s", epoch, 3.0),
                lambda: log.read("s"),
            ):
                with pytest.raises(ConnectionLost, match="cannot be reached: check host"):
                    use()
        finally:
            server.start()
        assert log.append("s", epoch, 1, [WORD], 3.0)[0].seq == 2
        assert verify(log, "s") == []


WRITER = """
import sys, time
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage import open_log
from ullage.storage.log import Owner
log = open_log(sys.argv[1], create=False)
epoch = log.acquire("s", Owner.here("writer"), time.time()).epoch
head = n = 0
while True:
    n += 1
    try:
        (event,) = log.append("s", epoch, head, [Draft("user_message", {"text": str(n)})], n)
    except StoreError as error:
        print("told", type(error).__name__, flush=True)
        while True:
            try:
                head = log.head("s").seq
                break
            except StoreError:
                time.sleep(0.01)
        continue
    head = event.seq
    print(event.seq, event.id, flush=True)
"""


@pytest.mark.slow
def test_a_server_that_crashes_under_a_writer_loses_nothing_acknowledged(server: postgres.Server):
    url = server.created()
    with closing(PostgresLog(url)) as log:
        log.create("s", 1.0)
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        said = []
        try:
            for _ in range(3):
                said += [child.stdout.readline() for _ in range(50)]
                server.crash()
                server.start()
            said += [child.stdout.readline() for _ in range(200)]
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate()
        lines = [line for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]
        acknowledged = {
            int(seq): id_ for seq, id_ in (line.split() for line in lines if line[0].isdigit())
        }
        kept = {event.seq: event.id for event in log.read("s")}
        assert acknowledged.items() <= kept.items()
        assert len(kept) <= len(acknowledged) + 4  # attempted, not told
        assert verify(log, "s") == []
        texts = [event.data["text"] for event in log.read("s")]
        assert len(set(texts)) == len(texts)  # nothing twice

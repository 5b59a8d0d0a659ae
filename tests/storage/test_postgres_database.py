"""One PostgreSQL database: brought forward, refused by name, told in words, shared with care."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import LiteralString

import psycopg
import pytest

from tests.storage.records import checkpoint, talk
from tests.support import postgres
from tests.support.waiting import eventually
from ullage.core.errors import BusyWriter, ConfigurationError, StoreError
from ullage.storage import StoreLimits, open_log, open_store
from ullage.storage.postgres import PostgresStore, key
from ullage.storage.postgres_database import MIGRATIONS, ConnectionLost, PostgresDatabase
from ullage.storage.sql_store import ASKED_AT_ONCE, MOST_TOUCHES

WAITING: LiteralString = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

FORK = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def url(postgres_database: Callable[[], str]) -> str:
    return postgres_database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url, wait_s=0.2)) as opened:
        yield opened


def run(url: str, *statements: LiteralString) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for sql in statements:
            connection.execute(sql)


def version(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((found,),) = connection.execute("SELECT version FROM ullage.schema_version").fetchall()
    return int(found)


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


def test_one_database_holds_a_store_and_a_log(url: str):
    with closing(open_store(url)) as store, closing(open_log(url, create=False)) as log:
        store.originals.keep({"u:1": "text"})
        log.create("s", 1.0)
    with closing(open_store(url, create=False)) as store, closing(open_log(url)) as log:
        assert store.originals.read("u:1") == "text"
        assert log.head("s").seq == 0
        assert store.url == log.url == url


def test_an_older_schema_is_brought_forward_and_keeps_what_it_has(url: str):
    with closing(PostgresDatabase(url, migrations=MIGRATIONS[:1])) as old:
        old.once(
            "INSERT INTO ullage.records (kind, scope, name, policy, generation, used, size, body) "
            "VALUES ('original', '', 'u:1', '', 0, 1, 1, 'x') RETURNING id"
        )
    assert version(url) == 1
    with closing(PostgresStore(url, now=lambda: 2.0)) as store:
        assert store.originals.read("u:1") == "x"
    assert version(url) == len(MIGRATIONS)


def test_a_newer_schema_is_refused_by_name_and_left_alone(url: str):
    PostgresDatabase(url).close()
    run(url, "UPDATE ullage.schema_version SET version = 99")
    with pytest.raises(
        StoreError, match=r"/database_\d+\?.* has schema version 99, and .* up to 4"
    ):
        PostgresDatabase(url)
    assert version(url) == 99


def test_another_programs_schema_is_refused(url: str):
    run(url, "CREATE SCHEMA ullage", "CREATE TABLE ullage.theirs (a int)")
    with pytest.raises(StoreError, match="has a schema ullage that is another program's"):
        PostgresDatabase(url)


def test_an_empty_schema_that_an_administrator_made_is_used(url: str):
    run(
        url,
        "CREATE ROLE modest LOGIN",
        "CREATE SCHEMA ullage AUTHORIZATION modest",
    )
    try:
        with closing(PostgresStore(url.replace("postgres@", "modest@"))) as store:
            store.originals.keep({"u:1": "text"})
    finally:
        run(url, "DROP SCHEMA ullage CASCADE", "DROP ROLE modest")


def test_a_role_that_may_not_is_told_what_it_lacks(url: str):
    run(url, "CREATE ROLE stranger LOGIN")
    theirs = url.replace("postgres@", "stranger@")
    with pytest.raises(StoreError, match="may not be used so: grant its role CREATE"):
        PostgresDatabase(theirs)
    PostgresDatabase(url).close()
    with pytest.raises(StoreError, match=r"may not be used so: grant .* USAGE of schema ullage"):
        PostgresDatabase(theirs)
    run(url, "DROP ROLE stranger")


def test_a_store_that_was_to_be_there_and_is_not_is_told(url: str):
    for opening in (open_store, open_log):
        with pytest.raises(StoreError, match="there is no store in postgresql://postgres@/data"):
            opening(url, create=False)


def test_of_many_that_make_the_schema_at_once_all_find_it_whole(url: str):
    told: list[object] = []
    barrier = threading.Barrier(6)

    def opening() -> None:
        barrier.wait()
        try:
            PostgresDatabase(url).close()
            told.append(version(url))
        except StoreError as error:
            told.append(error)

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [len(MIGRATIONS)] * 6


# ── the connection ──────────────────────────────────────────────────────────────────────────────


def test_what_a_role_chose_does_not_weaken_what_is_promised(url: str):
    run(
        url,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', "
        "current_database()); EXECUTE format('ALTER DATABASE %I SET "
        "default_transaction_isolation = serializable', current_database()); END $$",
    )
    with closing(PostgresDatabase(url)) as database:
        for name, value in (
            ("synchronous_commit", "on"),
            ("transaction_isolation", "read committed"),
            ("lock_timeout", "5s"),
        ):
            assert database.rows("SELECT current_setting(%s)", (name,)) == [(value,)]


def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: postgres.Server):
    run(
        postgres_server.url(),
        "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    with pytest.raises(StoreError, match="has the encoding LATIN1"):
        PostgresDatabase(postgres_server.url("narrow"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:geheim@127.0.0.1:1/db", r"me@127\.0\.0\.1:1/db cannot be reached"),
        ("postgresql://127.0.0.1:1/db?password=geheim", r"cannot be reached: check host"),
    ],
)
def test_a_server_that_is_not_there_is_told_without_the_password(url: str, said: str):
    with pytest.raises(ConnectionLost, match=said) as told:
        open_store(url)
    assert "geheim" not in str(told.value)
    assert told.value.__suppress_context__


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim%zz@host/db",
        "postgresql://me:geheim@host:port/db",
        "postgresql://me:geheim@host/db?nonsense=1",
    ],
)
def test_a_url_that_libpq_does_not_take_is_told_without_the_password(url: str):
    for opening in (open_store, open_log):
        with pytest.raises((ConfigurationError, StoreError)) as told:
            opening(url)
        chain = [told.value, told.value.__cause__]
        assert "geheim" not in " ".join(map(str, chain))
        assert told.value.__suppress_context__ or told.value.__context__ is None


def test_a_database_that_is_not_there_is_told(postgres_server: postgres.Server):
    with pytest.raises(ConnectionLost, match=r'cannot be reached.*"nowhere" does not exist'):
        PostgresDatabase(postgres_server.url("nowhere"))


def test_a_standby_is_told_to_be_one(url: str):
    PostgresDatabase(url).close()
    read_only = url + "&options=-cdefault_transaction_read_only%3Don"
    with pytest.raises(StoreError, match="is read-only, a standby perhaps: name the primary"):
        open_store(read_only)


def test_a_lost_table_and_any_other_error_are_told_with_the_database(url: str):
    with closing(PostgresDatabase(url)) as database:
        with pytest.raises(StoreError, match="lacks a table of ours"):
            database.rows("SELECT * FROM ullage.gone")
        with pytest.raises(StoreError, match=r"database_\d+.* failed: function nonsense"):
            database.rows("SELECT nonsense()")
        assert database.rows("SELECT 1") == [(1,)]


def test_a_transaction_that_its_caller_breaks_off_leaves_nothing(url: str):
    with closing(PostgresDatabase(url)) as database:
        with suppress(KeyboardInterrupt), database.writing() as cursor:
            cursor.execute("CREATE TABLE left_over (a int)")
            raise KeyboardInterrupt
        assert database.rows("SELECT to_regclass('left_over')") == [(None,)]


def test_a_connection_lost_in_a_transaction_is_told_and_the_next_use_connects(url: str):
    with closing(PostgresDatabase(url)) as database:
        with (
            pytest.raises(ConnectionLost, match="was lost: the last write may or may not be there"),
            database.writing() as cursor,
        ):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        assert database.rows("SELECT 1") == [(1,)]


def test_a_program_suspended_in_a_transaction_lets_go_before_those_that_wait_give_up(url: str):
    """Its process keeps the connection, so PostgreSQL itself must end the transaction."""

    def write_slowly() -> None:
        with suspended._records.writing("checkpoint", "held") as cursor:
            assert other.checkpoints.save(checkpoint("p", 1, scope="held")).scope == "held"
            cursor.execute("SELECT 1", {})

    with closing(PostgresStore(url)) as suspended, closing(PostgresStore(url)) as other:
        with pytest.raises(ConnectionLost, match="idle-in-transaction timeout"):
            write_slowly()
        suspended.checkpoints.save(checkpoint("p", 2, scope="held"))


@FORK
@pytest.mark.skipif(sys.platform == "win32", reason="forks are POSIX's")
def test_both_sides_of_a_fork_go_on(store: PostgresStore):
    store.originals.keep({"u:0": "before"})
    child = os.fork()
    if child == 0:
        try:
            store.originals.keep({"u:1": "child"})
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    store.originals.keep({"u:2": "parent"})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [store.originals.read(f"u:{n}") for n in range(3)] == ["before", "child", "parent"]


# ── the store's own ─────────────────────────────────────────────────────────────────────────────


def test_a_writer_waits_for_another_program_only_so_long(url: str, store: PostgresStore):
    with closing(PostgresStore(url)) as other, other._records.writing("original"):
        with pytest.raises(BusyWriter, match=r"was locked by another program for 0\.2 s"):
            store.originals.keep({"u:1": "text"})
        assert store.originals.read("u:1") is None
    store.originals.keep({"u:1": "text"})
    assert store.originals.read("u:1") == "text"


def test_a_writer_waits_for_those_of_its_own_scope_only(url: str, store: PostgresStore):
    with closing(PostgresStore(url)) as other, other._records.writing("checkpoint", "held"):
        with pytest.raises(BusyWriter, match="was locked by another program"):
            store.checkpoints.save(checkpoint("p", 1, scope="held"))
        assert store.checkpoints.save(checkpoint("p", 1, scope="free")).scope == "free"
        store.conversations.save(talk("p", "held"))


def test_one_that_waits_keeps_no_other_thread_of_its_store_from_its_work(url: str):
    with (
        closing(PostgresStore(url)) as store,
        closing(PostgresStore(url)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with other._records.writing("checkpoint", "held"):
            waiting = pool.submit(store.checkpoints.save, checkpoint("p", 1, scope="held"))
            eventually(lambda: bool(store._database.rows(WAITING)))
            store.originals.keep({"u:1": "text"})
            assert store.originals.read("u:1") == "text"
            assert not waiting.done()
        assert waiting.result(20).scope == "held"


def test_writers_of_many_scopes_that_forget_each_others_rows_never_stand_in_a_circle(url: str):
    limits = StoreLimits(most=3, characters=40)

    def work(number: int) -> int:
        with closing(PostgresStore(url, limits=limits, wait_s=20.0)) as store:
            for turn in range(25):
                scope = f"s{(number + turn) % 4}"
                store.checkpoints.save(checkpoint(f"p{turn}", 1, scope=scope))
                store.checkpoints.load(scope, [f"p{turn - 1}", f"p{turn}"])
                store.conversations.save(talk(f"p{turn}", scope))
                store.originals.keep({f"u:{n}": "x" * 9 for n in (turn % 5, number, 7 - number)})
                store.originals.read(f"u:{turn % 5}")
        return number

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0, 1, 2, 3]


def test_of_two_stores_that_save_one_prefix_the_first_wins(url: str, store: PostgresStore):
    with closing(PostgresStore(url)) as other:
        first = store.checkpoints.save(checkpoint("p", 1))
        assert other.checkpoints.save(checkpoint("p", 2)) == first


def test_a_key_is_kept_as_it_is_or_as_its_hash():
    assert key("prefix") == "prefix"
    assert len({key("x" * 5_000), key("x" * 5_001), key("\0"), key("\ud800"), key(key("\0"))}) == 5
    assert all(len(key(text)) < 100 for text in ("x" * 5_000, "\0", "blake2b:"))


def test_keys_of_any_length_and_kind_are_found(store: PostgresStore):
    for odd in ("\U0001f511" * 3_000, "nul \0", "\ud800"):
        store.conversations.save(talk(odd, scope=odd))
        assert store.conversations.load(odd, ["none", odd]) == talk(odd, scope=odd)


def test_what_was_read_is_written_before_there_is_too_much_of_it(url: str):
    limits = StoreLimits(most=MOST_TOUCHES + 2)
    with closing(PostgresStore(url, limits=limits)) as store:
        store.originals.keep({f"u:{n}": "" for n in range(MOST_TOUCHES + 2)})
        for n in range(MOST_TOUCHES + 1):
            assert store.originals.read(f"u:{n}") == ""
        assert store._records._touched == {}
        store.originals.keep({"u:new": ""})
        assert store.originals.read(f"u:{MOST_TOUCHES + 1}") is None  # the only one unread


def test_a_long_list_of_prefixes_is_asked_for_in_pieces(store: PostgresStore):
    store.conversations.save(talk("known"))
    unknown = [f"unknown {n}" for n in range(ASKED_AT_ONCE)]
    assert store.conversations.load("s", [*unknown, "known"]) == talk("known")


@pytest.mark.parametrize("body", ["{", "[]", "{}"])
def test_a_record_that_cannot_be_read_is_told_with_its_place(
    url: str, store: PostgresStore, body: str
):
    store.checkpoints.save(checkpoint("p", 1))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE ullage.records SET body = %s", (body.encode(),))
    with pytest.raises(StoreError, match=r"database_\d+"):
        store.checkpoints.load("s", ["p"])


def test_a_store_whose_server_is_gone_can_be_closed(postgres_database: Callable[[], str]):
    url = postgres_database()
    store = PostgresStore(url)
    store.originals.keep({"u:1": "text"})
    assert store.originals.read("u:1") == "text"
    store._database._parameters["host"] = "/nowhere"
    store._database._drop()
    store.close()
    with pytest.raises(StoreError, match="was closed: open it again"):
        store.originals.read("u:1")

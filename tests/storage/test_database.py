"""The SQLite file: private, versioned, refused where it is not ours, shared by processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.storage.records import checkpoint, talk
from tests.support.clock import FakeClock
from tests.support.waiting import eventually
from ullage.core.errors import StoreError
from ullage.storage import BusyWriter, StoreLimits
from ullage.storage.database import APPLICATION, MIGRATIONS, Database, _retry_locked, _write_ahead
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.sql_store import MOST_TOUCHES
from ullage.storage.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(os.name != "posix", reason="permissions and forks are POSIX's")


def other(path: Path, *words: str) -> subprocess.Popen[str]:
    """Start another process on a store; it waits for a line."""
    command = [sys.executable, "-m", "tests.storage.other", str(path), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def say(process: subprocess.Popen[str], line: str = "go") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """Open a file past the store."""
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


# ── durable ─────────────────────────────────────────────────────────────────────────────────────


def test_what_was_saved_is_there_for_whoever_opens_the_file_next(tmp_path: Path):
    path = tmp_path / "store.db"
    first = SqliteStore(path)
    made = first.checkpoints.save(checkpoint("p", 1))
    first.conversations.save(talk("p", covered=3))
    first.originals.keep({"u:1": "the text"})
    first.close()
    second = SqliteStore(path)
    assert second.checkpoints.all() == [made]
    assert second.conversations.load("s", ["p"]) == talk("p", covered=3)
    assert second.originals.read("u:1") == "the text"
    second.close()


def test_every_commit_is_synced_and_goes_through_the_log(tmp_path: Path):
    database = Database(tmp_path / "store.db")
    assert database.rows("PRAGMA synchronous") == [(2,)]
    assert database.rows("PRAGMA journal_mode") == [("wal",)]
    assert database.rows("SELECT strict FROM pragma_table_list WHERE name = 'records'") == [(1,)]
    database.close()


def test_what_was_acknowledged_survives_a_process_that_is_killed(tmp_path: Path):
    path = tmp_path / "store.db"
    process = other(path, "save", "1", "100000")
    assert hear(process) == "ready"
    say(process)
    for _ in range(20):
        assert hear(process) == "1"
    process.kill()
    process.communicate()
    store = SqliteStore(path)
    assert all(store.checkpoints.load("s", [f"p{n}"]) for n in range(20))
    assert all(store.originals.read(f"u:1-{n}") for n in range(20))
    store.close()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(UnicodeEncodeError):
        store._database.rows("SELECT ?", ["\ud800"])
    with pytest.raises(AttributeError):
        store.originals.keep({"u:1": "half", "u:2": None})  # type: ignore[dict-item]  # the fault
    assert store.originals.read("u:1") is None
    store.originals.keep({"u:1": "whole"})
    assert store.originals.read("u:1") == "whole"
    store.close()


def test_what_a_load_used_is_known_after_the_file_was_closed(tmp_path: Path):
    path, limits = tmp_path / "store.db", StoreLimits(most=2)
    store = SqliteStore(path, limits=limits)
    for prefix in ("a", "b"):
        store.conversations.save(talk(prefix))
    store.conversations.load("s", ["a"])
    store.close()
    store = SqliteStore(path, limits=limits)
    store.conversations.save(talk("c"))
    assert [p for p in "abc" if store.conversations.load("s", [p])] == ["a", "c"]
    store.close()


def test_loads_without_a_save_are_written_after_a_while(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db", limits=StoreLimits(most=2 * MOST_TOUCHES))
    store.originals.keep({f"u:{n}": "" for n in range(MOST_TOUCHES + 1)})
    for n in range(MOST_TOUCHES + 1):
        store.originals.read(f"u:{n}")
    assert not store._records._touched
    store.close()


def test_opening_forgets_what_is_out_of_time(tmp_path: Path):
    clock = FakeClock(1_000)
    store = SqliteStore(tmp_path / "store.db", limits=StoreLimits(ttl_s=10), now=clock)
    store.originals.keep({"u:1": "old"})
    store.close()
    clock.advance(10)
    store = SqliteStore(tmp_path / "store.db", limits=StoreLimits(ttl_s=10), now=clock)
    assert store.originals.read("u:1") is None
    store.close()


# ── private ─────────────────────────────────────────────────────────────────────────────────────


@POSIX
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_0600_in_a_0700_folder_whatever_the_umask(tmp_path: Path, umask: int):
    path = tmp_path / "new" / "deep" / "store.db"
    before = os.umask(umask)
    try:
        store = SqliteStore(path)
        store.originals.keep({"u:1": "text"})
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
    folders = (path.parent, path.parent.parent)
    assert [stat.S_IMODE(f.stat().st_mode) for f in folders] == [0o700, 0o700]
    store.close()


@POSIX
def test_a_file_of_ours_that_others_could_read_is_taken_from_them(tmp_path: Path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@POSIX
def test_another_programs_file_is_neither_read_nor_changed(tmp_path: Path):
    path = tmp_path / "theirs.db"
    with raw(path) as connection:
        connection.execute("CREATE TABLE records (id)")
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"theirs\.db is another program's SQLite file"):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_file_is_refused_by_name_with_its_version(tmp_path: Path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with raw(path) as connection:
        connection.pragma("user_version", 9)
    with pytest.raises(StoreError, match=r"store\.db has schema version 9, .* up to 3: upgrade"):
        SqliteStore(path)


def test_an_older_file_is_brought_forward_with_what_it_holds(tmp_path: Path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.originals.keep({"u:1": "text"})
    store.close()
    later = (*MIGRATIONS, "ALTER TABLE records ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")
    database = Database(path, migrations=later)
    assert database.rows("SELECT body, note FROM records") == [(b"text", "none")]
    assert database.rows("PRAGMA user_version") == [(4,)]
    database.close()
    with pytest.raises(StoreError, match="schema version 4"):
        SqliteStore(path)


def test_a_file_from_before_the_log_takes_one_in(tmp_path: Path):
    path = tmp_path / "store.db"
    Database(path, migrations=MIGRATIONS[:1]).close()
    store = SqliteStore(path)
    store.originals.keep({"u:1": "text"})
    log = SqliteLog(path)
    log.create("one", 1.0)
    assert [head.session for head in log.sessions()] == ["one"]
    assert store.originals.read("u:1") == "text"
    log.close()
    store.close()


def test_a_step_forward_that_fails_leaves_the_old_version(tmp_path: Path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with pytest.raises(StoreError, match=r"store\.db"):
        Database(path, migrations=(*MIGRATIONS, "CREATE TABLE half (id); nonsense"))
    SqliteStore(path).close()
    with raw(path) as connection:
        assert list(connection.execute("PRAGMA application_id")) == [(APPLICATION,)]
        assert not list(connection.execute("SELECT * FROM sqlite_schema WHERE name = 'half'"))


# ── damage ──────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("just some notes\n" * 100)
    with pytest.raises(StoreError, match=r"notes\.txt is no SQLite file"):
        SqliteStore(path)
    assert path.read_text() == "just some notes\n" * 100


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"store\.db is damaged: move the file away"):
        SqliteStore(path)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_record_that_cannot_be_read_names_the_file(tmp_path: Path, body: bytes):
    store = SqliteStore(tmp_path / "store.db")
    store.conversations.save(talk("p"))
    with store._database.writing() as connection:
        connection.execute("UPDATE records SET body = ?", (body,))
    with pytest.raises(StoreError, match=r"store\.db holds a record that cannot be read"):
        store.conversations.load("s", ["p"])
    store.close()


def test_a_record_of_a_newer_version_names_the_file_and_the_version(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")
    store.checkpoints.save(checkpoint("p", 1))
    with store._database.writing() as connection:
        connection.execute("UPDATE records SET body = ?", (b'{"version": 99}',))
    with pytest.raises(StoreError, match=r"store\.db: a checkpoint of schema version 99"):
        store.checkpoints.load("s", ["p"])
    store.close()


def test_after_an_error_of_the_file_the_next_use_opens_it_again(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(StoreError, match=r"store\.db"):
        store._database.rows("SELECT nothing FROM nowhere")
    store.originals.keep({"u:1": "text"})
    assert store.originals.read("u:1") == "text"
    store.close()


def test_a_path_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/store\.db cannot be made"):
        SqliteStore(tmp_path / "file" / "store.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_a_store_to_be_read_is_not_made(tmp_path: Path):
    with pytest.raises(StoreError, match=r"there is no store at .*store\.db"):
        SqliteStore(tmp_path / "store.db", create=False)
    assert not list(tmp_path.iterdir())


# ── two at once ─────────────────────────────────────────────────────────────────────────────────


def test_two_processes_that_make_and_fill_one_store_agree_on_what_holds(tmp_path: Path):
    path, count = tmp_path / "store.db", 30
    both = [other(path, "save", name, str(count)) for name in ("1", "2")]
    for process in both:
        assert hear(process) == "ready"
    for process in both:
        say(process)
    heard = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert heard[0] == heard[1]
    store = SqliteStore(path)
    assert len(store.checkpoints.all()) == count
    kept = [store.originals.read(f"u:{name}-{n}") for name in "12" for n in range(count)]
    assert kept == ["1" * 10] * count + ["2" * 10] * count
    store.close()


def test_a_writer_that_holds_the_file_too_long_is_named_and_nothing_is_lost(tmp_path: Path):
    path = tmp_path / "store.db"
    store = SqliteStore(path, wait_s=0.05)
    process = other(path, "lock")
    assert hear(process) == "ready"
    say(process)
    assert hear(process) == "locked"
    with pytest.raises(BusyWriter, match=r"store\.db was locked by another program for 0\.05 s"):
        store.originals.keep({"u:1": "text"})
    assert store.originals.read("u:1") is None
    say(process, "let go")
    process.communicate(timeout=60)
    store.originals.keep({"u:1": "text"})
    assert store.originals.read("u:1") == "text"
    store.close()


def test_a_store_that_is_locked_can_still_be_read_and_closed(tmp_path: Path):
    path = tmp_path / "store.db"
    writer, reader = SqliteStore(path), SqliteStore(path, wait_s=0.05)
    writer.originals.keep({"u:1": "text"})
    with writer._database.writing():
        assert reader.originals.read("u:1") == "text"
        reader.close()
    writer.close()


def test_a_thread_reads_while_another_waits_for_a_lock(tmp_path: Path):
    path = tmp_path / "store.db"
    store, other = SqliteStore(path), SqliteStore(path)
    store.originals.keep({"u:1": "text"})
    with ThreadPoolExecutor(1) as pool:
        with other._database.writing():
            waiting = pool.submit(store.originals.keep, {"u:2": "more"})
            eventually(store._database._lock.locked)
            assert store.originals.read("u:1") == "text"
            assert store.originals.read("u:2") is None
            with pytest.raises(StoreError, match=r"store\.db"):
                store._database.read("SELECT nothing FROM nowhere")
            with pytest.raises(StoreError, match=r"store\.db"):
                store._database.read("DELETE FROM records")
            assert store.originals.read("u:1") == "text"
            assert not waiting.done()
        waiting.result(20)
    assert store.originals.read("u:2") == "more"
    store.close()
    other.close()
    assert not path.with_name("store.db-wal").exists()


def test_two_stores_in_one_process_see_each_others_writes(tmp_path: Path):
    one, two = (SqliteStore(tmp_path / "store.db") for _ in range(2))
    kept = one.checkpoints.save(checkpoint("p", 1))
    assert two.checkpoints.save(checkpoint("p", 2)) == kept
    assert two.checkpoints.undo(kept)
    assert one.checkpoints.load("s", ["p"]) is None
    one.close()
    two.close()


def test_a_step_that_meets_a_lock_is_repeated_until_its_time_is_over():
    left = [apsw.BusyError("locked")] * 2

    def step() -> None:
        if left:
            raise left.pop()

    _retry_locked(step, 5)
    assert not left
    left.append(apsw.BusyError("locked"))
    with pytest.raises(apsw.BusyError):
        _retry_locked(step, 0)


def test_a_file_system_without_shared_memory_is_refused_by_name():
    connection = apsw.Connection(":memory:")
    with pytest.raises(StoreError, match=r"net\.db is on a file system .*journal mode memory"):
        _write_ahead(connection, Path("net.db"))
    connection.close()


@POSIX
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_store_goes_on_in_both_processes_after_a_fork(tmp_path: Path):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    SqliteStore(tmp_path / "gone.db").close()
    opened = vars(store._database)
    assert opened["_connection"]
    child = os.fork()
    inherited = opened["_connection"]
    if child == 0:
        store.originals.keep({"u:child": "from the child"})
        os._exit(0 if inherited is None else 1)
    assert inherited is None
    store.originals.keep({"u:parent": "from the parent"})
    assert os.waitpid(child, 0)[1] == 0
    assert store.originals.read("u:child") == "from the child"
    assert store.originals.read("u:parent") == "from the parent"
    store.close()


def test_threads_that_write_and_read_at_once_lose_nothing(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")

    def work(name: int) -> None:
        for n in range(10):
            store.originals.keep({f"u:{name}-{n}": str(name)})
            assert store.originals.read(f"u:{name}-{n}") == str(name)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [store.originals.read(f"u:{name}-{n}") for name in range(4) for n in range(10)]
    assert None not in kept
    store.close()

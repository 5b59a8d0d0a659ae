"""Memory stands in for a store that is away, and what changed meanwhile is written afterwards."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.storage.records import checkpoint, sized, talk
from tests.support.clock import FakeClock
from tests.support.postgres import Server, obtain
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.errors import StoreError
from ullage.storage import MemoryStore, open_store, patience
from ullage.storage import shelter as room
from ullage.storage.bodies import DamagedRecord
from ullage.storage.postgres_database import Connection
from ullage.storage.shelter import Shelter, shelter
from ullage.threads import Threads


class Sick:
    """The checkpoints, conversations and originals of a store that fails until it is `well`."""

    def __init__(self, beneath: Any, error: Exception) -> None:
        self.beneath, self.error, self.well, self.tried = beneath, error, False, 0

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            self.tried += 1
            if not self.well:
                raise self.error
            return getattr(self.beneath, name)(*arguments)

        if name.startswith("a") and name != "all":
            raise AttributeError(name)
        return ask


class SickStore(MemoryStore):
    """A store each of whose parts fails."""

    url = "own:sick"  # type: ignore[misc]

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.parts = [
            Sick(part, error or StoreError("the disk is full"))
            for part in (self.checkpoints, self.conversations, self.originals)
        ]
        self.checkpoints, self.conversations, self.originals = self.parts  # type: ignore[assignment]

    def heal(self) -> None:
        for part in self.parts:
            part.well = True


class Silent(MemoryStore):
    """A store whose answers do not come until it is let go."""

    url = "own:silent"  # type: ignore[misc]

    def __init__(self) -> None:
        super().__init__()
        self.going = threading.Event()
        beneath = self.checkpoints

        class Checkpoints:
            def load(_, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:  # noqa: N805
                self.going.wait(30)
                return beneath.load(scope, prefixes)

            def save(_, made: Checkpoint) -> Checkpoint:  # noqa: N805
                self.going.wait(30)
                return beneath.save(made)

        self.kept = beneath
        self.checkpoints = Checkpoints()  # type: ignore[assignment]


async def back(kept: Shelter) -> None:
    """Wait until the store is back."""
    async with asyncio.timeout(60):
        while kept.outage.lasts_s is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)


def test_a_store_in_memory_needs_no_shelter() -> None:
    store = MemoryStore()
    assert shelter(store) is store
    kept = shelter(SickStore())
    assert shelter(kept) is kept


def test_of_a_conversation_that_begins_memory_alone_is_asked() -> None:
    store = SickStore()
    store.heal()
    kept = Shelter(store, opening=2)
    made = kept.checkpoints.save(checkpoint("p", 1))
    kept.near.conversations.save(talk("p"))
    store.parts[0].beneath.save(checkpoint("q", 1))
    tried = [part.tried for part in store.parts]
    for prefixes in (["p"], ["q", "p"]):  # nobody else's is looked for
        assert kept.checkpoints.load("s", prefixes) == made
        assert asyncio.run(kept.checkpoints.aload("s", prefixes)) == made
        assert kept.conversations.load("s", prefixes) == talk("p")
        assert asyncio.run(kept.conversations.aload("s", prefixes)) == talk("p")
    assert [part.tried for part in store.parts] == tried
    assert kept.checkpoints.load("s", ["r", "q", "p"]) == checkpoint("q", 1)


def test_threads_go_on_by_memory_and_write_what_changed_when_the_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = SickStore(), FakeClock()
    kept = Shelter(store, now=clock)
    with caplog.at_level(logging.WARNING):
        made = kept.checkpoints.save(checkpoint("p", 1))
        assert kept.checkpoints.load("s", ["p"]) == made
        assert kept.checkpoints.all() == [made]
        kept.checkpoints.save_measured(sized(made, 40))
        kept.checkpoints.save(checkpoint("gone", 1))
        assert kept.checkpoints.undo(checkpoint("gone", 1))
        kept.conversations.save(talk("p"))
        assert kept.conversations.load("s", ["p"]) == talk("p")
        kept.originals.keep({"u:1": "text"})
        assert kept.originals.read("u:1") == "text"
        tried = store.parts[0].tried
    assert tried == 1  # the first call: all others went to memory at once
    assert caplog.text.count("the store is away") == 1
    assert "the disk is full" in caplog.text
    assert kept.backlog == 3
    store.heal()
    clock.advance(0.5)
    assert (kept.outage.lasts_s or 0) == 0.5
    clock.advance(1.0)
    assert kept.checkpoints.load("s", ["p"]) == sized(made, 40)
    assert kept.backlog == 0
    assert kept.outage.lasts_s is None
    beneath = store.parts[0].beneath
    assert beneath.all() == [sized(made, 40)]
    assert store.parts[1].beneath.load("s", ["p"]) == talk("p")
    assert store.parts[2].beneath.read("u:1") == "text"


def test_what_is_undone_and_measured_meanwhile_is_so_in_the_store_afterwards() -> None:
    store, clock = SickStore(), FakeClock()
    kept = Shelter(store, now=clock)
    store.heal()
    first, second = (kept.checkpoints.save(checkpoint(name, 1)) for name in ("p", "q"))
    for part in store.parts:
        part.well = False
    assert kept.checkpoints.undo(first)
    kept.checkpoints.save_measured(sized(second, 40))
    assert kept.checkpoints.all() == [sized(second, 40)]
    assert kept.checkpoints.load("s", ["p"]) is None
    store.heal()
    clock.advance(2)
    assert kept.checkpoints.all() == [sized(second, 40)]
    assert store.parts[0].beneath.all() == [sized(second, 40)]


def test_each_failed_try_waits_twice_as_long_as_the_one_before() -> None:
    store, clock = SickStore(), FakeClock()
    kept, waits = Shelter(store, now=clock), list[float]()
    for _ in range(8):
        kept.checkpoints.load("s", ["p"])
        waits.append(kept.outage.pause_s)
        clock.advance(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert store.parts[0].tried == 8


def test_what_another_replica_won_meanwhile_holds_afterwards() -> None:
    store, clock = SickStore(), FakeClock()
    kept = Shelter(store, now=clock)
    mine = kept.checkpoints.save(checkpoint("p", 1))
    theirs = store.parts[0].beneath.save(checkpoint("p", 2))
    assert kept.checkpoints.load("s", ["p"]) == mine
    store.heal()
    clock.advance(2)
    assert kept.checkpoints.load("s", ["p"]) == theirs
    for part in store.parts:
        part.well = False
    clock.advance(2)
    assert kept.checkpoints.load("s", ["p"]) == theirs  # memory learned it, too


def test_a_damaged_record_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    store = SickStore(DamagedRecord("own:sick holds a record that cannot be read"))
    kept = Shelter(store)
    with caplog.at_level(logging.WARNING):
        assert kept.checkpoints.load("s", ["p"]) is None
    assert "cannot be read" in caplog.text
    assert kept.outage.lasts_s is None
    assert kept.checkpoints.save(checkpoint("p", 1)) == checkpoint("p", 1)
    assert kept.checkpoints.load("s", ["p"]) == checkpoint("p", 1)
    asyncio.run(kept.settle())
    assert kept.backlog == 0  # it cannot be written, and holds nothing else up


def test_a_store_that_somebody_brings_may_raise_what_it_likes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Shelter(SickStore(RuntimeError("no route")))
    with caplog.at_level(logging.WARNING):
        assert kept.checkpoints.load("s", ["p"]) is None
    assert "no route" in caplog.text
    assert "Traceback" in caplog.text


def test_no_more_than_a_number_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 5)
    monkeypatch.setattr(room, "CHARACTERS", 20)
    kept = Shelter(SickStore())
    for n in range(9):
        kept.checkpoints.save(checkpoint(f"p{n}", 1))
    assert kept.backlog == 5
    for n in range(9):
        kept.originals.keep({f"u:{n}": "ten letters"})
    assert kept.backlog <= 2


def test_what_waits_at_the_end_is_written_or_told(caplog: pytest.LogCaptureFixture) -> None:
    for heals in (True, False):
        store, clock = SickStore(), FakeClock()
        kept = Shelter(store, now=clock)
        kept.checkpoints.save(checkpoint("p", 1))
        if heals:
            store.heal()
        clock.advance(2)
        beneath = store.parts[0].beneath
        store.close = lambda: None  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING):
            kept.close()
        assert (beneath.all() == [checkpoint("p", 1)]) is heals
    assert "1 changes were not written" in caplog.text


def test_an_event_loop_waits_a_moment_once_and_catches_up_by_itself() -> None:
    store = Silent()
    kept = Shelter(store)

    async def scene() -> None:
        began = time.monotonic()
        made = await kept.checkpoints.asave(checkpoint("p", 1))
        waited = time.monotonic() - began
        assert patience.ANSWER_S * 0.9 <= waited < 10
        before = time.monotonic()
        for n in range(200):
            assert await kept.checkpoints.aload("s", ["p"]) == made
            await kept.checkpoints.asave(checkpoint(f"q{n}", 1))
        assert time.monotonic() - before < waited  # nobody waits any more
        assert kept.backlog == 201
        store.going.set()
        await back(kept)

    asyncio.run(scene())
    assert kept.backlog == 0
    assert len(store.kept.all()) == 201


HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file of SQLite from another process, so that nobody else writes it."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield
        other.communicate()


def test_a_file_that_another_program_holds_stalls_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    kept = Shelter(open_store(f"sqlite:{path}"))

    async def scene() -> None:
        with locked(path):
            made = await kept.checkpoints.asave(checkpoint("p", 1))
            assert await kept.checkpoints.aload("s", ["p"]) == made
            assert kept.outage.lasts_s is not None
        await back(kept)

    asyncio.run(scene())
    kept.close()
    again = open_store(f"sqlite:{path}")
    assert again.checkpoints.all() == [checkpoint("p", 1)]
    again.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Start a PostgreSQL that no other test has."""
    with Server(obtain()) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "away"])
def test_a_database_that_hangs_or_is_gone_is_stood_in_for_and_loses_nothing(
    own_server: Server, how: str
) -> None:
    url = own_server.created()
    kept = Shelter(open_store(url))

    async def scene() -> None:
        before = await kept.checkpoints.asave(checkpoint("before", 1))
        if how == "stopped":
            with own_server.pause():
                await go_on(before)
        else:
            own_server.crash()
            await go_on(before)
            own_server.start()
        await back(kept)

    async def go_on(before: Checkpoint) -> None:
        assert await kept.checkpoints.aload("s", ["before"]) == before
        assert kept.outage.lasts_s is not None
        for n in range(50):
            await kept.checkpoints.asave(checkpoint(f"p{n}", 1))
            assert await kept.checkpoints.aload("s", [f"p{n}"]) == checkpoint(f"p{n}", 1)

    asyncio.run(scene())
    assert kept.backlog == 0
    kept.close()
    again = open_store(url)
    assert len(again.checkpoints.all()) == 51
    again.close()


@pytest.mark.slow
def test_a_statement_without_an_answer_ends(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(own_server.created())
    store.checkpoints.save(checkpoint("p", 1))
    monkeypatch.setattr(Connection, "answer_s", 0.5)
    with own_server.pause(), pytest.raises(StoreError, match=r"no answer|timeout expired"):
        store.checkpoints.load("s", ["p"])
    assert store.checkpoints.load("s", ["p"]) == checkpoint("p", 1)
    store.close()


def test_a_statement_that_goes_on_too_long_is_ended_by_the_server(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = own_server.created()
    monkeypatch.setattr(Connection, "answer_s", 1.0)
    store = open_store(url)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE ullage.records IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match=r"timeout|no answer"):
            store.checkpoints.load("s", ["p"])
    store.close()


@pytest.mark.parametrize("wait", [patience.wait_for_answer, patience.wait_for_thread])
def test_a_loop_that_was_held_up_hears_an_answer_that_has_long_come(
    wait: Callable[[Awaitable[int]], Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.2)
    threads = Threads("ullage-test", 1)

    async def ask() -> int:
        asyncio.get_running_loop().call_later(0.01, time.sleep, 0.5)
        return await wait(threads.run(lambda: 7))

    async def wait_in_vain() -> None:
        await wait(asyncio.Event().wait())

    assert asyncio.run(ask()) == 7
    with pytest.raises(TimeoutError):
        asyncio.run(wait_in_vain())


def test_who_leaves_while_a_thread_is_asked_is_gone_at_once() -> None:
    async def leave() -> None:
        asked = asyncio.ensure_future(patience.wait_for_thread(asyncio.Event().wait()))
        await asyncio.sleep(0)
        asked.cancel()
        await asked

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(leave())

"""The event loop lives while a store waits: library, proxy and agent, on every kind of store.

A lock is held by another program, or by the store itself, until the test lets it go; meanwhile the
loop's heart must beat and others must be answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import psycopg
import pytest

from tests.agent import acting
from tests.proxy.serving import CHAT, asked, conversation, proxied, streamed
from tests.support.faults import FaultServer
from ullage import Guard, Session, open_log, open_store
from ullage.config.serving import ModelRule
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.guard.view import View
from ullage.proxy import guarding
from ullage.runtime import Runtime
from ullage.storage import MemoryStore, Store

BEATS: Final = 60
BEAT_S: Final = 0.005
BLOCKED_S: Final = 2.0
"""Far below the 5 s that a store waits for a lock, and above the pauses of a busy machine."""

LARGEST_GAP_S: Final = 0.25
"""What two busy cores may take where nothing waits for a lock."""

HOLDER: Final = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
file.execute("ROLLBACK")
"""

Hold = Callable[[], Any]


class SlowStore:
    """A store of somebody's own, without an async side: it waits where it is told to."""

    def __init__(self) -> None:
        self._memory = MemoryStore()
        self.url = "slow:"
        self.checkpoints = SlowCheckpoints(self._memory)
        self.conversations = SlowConversations(self._memory)
        self.originals = SlowOriginals(self._memory)
        self.free = threading.Event()
        self.free.set()
        for part in (self.checkpoints, self.conversations, self.originals):
            part.free = self.free

    def purge(self, now: float) -> int:
        return self._memory.purge(now)

    def close(self) -> None:
        self.free.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


class Slow:
    """A part of such a store."""

    free: threading.Event

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def wait(self) -> None:
        assert self.free.wait(60)


class SlowCheckpoints(Slow):
    """Checkpoints that are waited for."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        self.wait()
        return self._memory.checkpoints.load(scope, prefixes)

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        self.wait()
        return self._memory.checkpoints.save(checkpoint)

    def save_measured(self, checkpoint: Checkpoint) -> None:
        self.wait()
        self._memory.checkpoints.save_measured(checkpoint)

    def undo(self, checkpoint: Checkpoint) -> bool:
        self.wait()
        return self._memory.checkpoints.undo(checkpoint)

    def all(self) -> list[Checkpoint]:
        self.wait()
        return self._memory.checkpoints.all()


class SlowConversations(Slow):
    """Conversations that are waited for."""

    def load(self, scope: str, prefixes: Sequence[str]) -> Any:
        self.wait()
        return self._memory.conversations.load(scope, prefixes)

    def save(self, conversation: Any) -> None:
        self.wait()
        self._memory.conversations.save(conversation)


class SlowOriginals(Slow):
    """Originals that are waited for."""

    def keep(self, items: Mapping[str, str]) -> None:
        self.wait()
        self._memory.originals.keep(items)

    def read(self, reference: str) -> str | None:
        self.wait()
        return self._memory.originals.read(reference)


# ── who holds what ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def sqlite_locked(path: Path) -> Iterator[None]:
    """Have another process hold the writer's place of a file."""
    command = [sys.executable, "-I", "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            other.stdin.write("\n")
            other.stdin.flush()


@contextmanager
def postgres_locked(url: str, table: str) -> Iterator[None]:
    """Have another session hold a table."""
    with psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE ullage.{table} IN ACCESS EXCLUSIVE MODE".encode())
        yield


@pytest.fixture(params=["sqlite", "postgres", "slow"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Hold]]:
    """Return a store, and what holds it up."""
    if request.param == "slow":
        slow = SlowStore()
        yield slow, slow.held
        slow.close()
    elif request.param == "sqlite":
        path = tmp_path / "store.db"
        with closing(open_store(f"sqlite:{path}")) as store:
            yield store, lambda: sqlite_locked(path)
    else:
        url = request.getfixturevalue("postgres_database")()
        with closing(open_store(url)) as store:
            yield store, lambda: postgres_locked(url, "records")


# ── how the loop lives ──────────────────────────────────────────────────────────────────────────


async def largest_gap(beats: int = BEATS) -> float:
    """Return the longest time between two beats of the loop."""
    gaps = []
    last = time.perf_counter()
    for _ in range(beats):
        await asyncio.sleep(BEAT_S)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    return max(gaps)


def history(turns: int = 40) -> list[dict[str, Any]]:
    """Return a history that is too long for the window of these tests."""
    body = conversation("openai_chat", turns)
    found: list[dict[str, Any]] = body["messages"]
    return found


def guarded(store: Store | None = None) -> Guard:
    return Guard("m", window=4_096, store=store, runtime=Runtime())


def test_the_loop_lives_while_the_store_of_a_guard_waits(door: tuple[Store, Hold]) -> None:
    store, hold = door

    async def scene() -> View:
        guard, other = guarded(store), guarded()
        await other.aprepare(history())
        with hold():
            waiting = asyncio.create_task(guard.aprepare(history()))
            assert await largest_gap() < BLOCKED_S
            assert not waiting.done()
            assert len((await other.aprepare(history())).messages) < len(history())
        view = await waiting
        with hold():
            answered = asyncio.create_task(view.aobserve({"usage": {"prompt_tokens": 900}}))
            assert await largest_gap() < BLOCKED_S
            assert not answered.done()
        assert (await answered).input_tokens == 900
        return view

    view = asyncio.run(scene())
    assert view.compaction is not None
    assert store.checkpoints.all()


def test_a_call_that_waits_for_its_store_ends_at_the_callers_deadline() -> None:
    store = SlowStore()

    async def scene() -> None:
        guard = guarded(store)
        with store.held():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await guard.aprepare(history())
            assert await largest_gap(10) < BLOCKED_S
        assert (await guard.aprepare(history())).compaction is not None

    asyncio.run(scene())


@pytest.mark.slow
def test_a_large_history_is_prepared_beside_the_loop() -> None:
    said = [{"role": ("user", "assistant")[n % 2], "content": f"{n} of it. "} for n in range(6_001)]

    async def scene() -> None:
        guard = guarded()
        await guard.aprepare(history())
        beating = asyncio.create_task(largest_gap())
        began = time.perf_counter()
        view, assessed = await guard.aprepare(said), await guard.aassess(said)
        took = time.perf_counter() - began
        assert view.compaction is not None
        assert assessed.input_tokens is not None
        assert await beating < max(LARGEST_GAP_S, took / 2)  # cores may be shared with others

    asyncio.run(scene())


def test_a_store_that_is_opened_late_is_opened_beside_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "late.db"
    open_store(f"sqlite:{path}").close()

    async def scene() -> None:
        from ullage.config.settings import Settings

        runtime = Runtime(settings=Settings(store=f"sqlite:{path}"))
        guard = Guard("m", window=4_096, runtime=runtime)
        with sqlite_locked(path):
            waiting = asyncio.create_task(guard.aprepare(history()))
            assert await largest_gap() < BLOCKED_S
            assert not waiting.done()
        assert (await waiting).compaction is not None
        assert runtime.kept is not None
        runtime.kept.close()

    asyncio.run(scene())


# ── the proxy ───────────────────────────────────────────────────────────────────────────────────

TIGHT: Final = (ModelRule(window=4_096),)


def test_the_proxy_answers_others_while_one_request_waits_for_the_store(
    door: tuple[Store, Hold],
) -> None:
    store, hold = door
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url, rules=TIGHT, store=store) as proxy,
    ):
        came: list[httpx2.Response] = []
        raw = json.dumps(conversation("openai_chat", 40)).encode()
        waiting = threading.Thread(target=lambda: came.append(proxy.post(CHAT, raw)))
        with hold():
            waiting.start()
            took = []
            for _ in range(30):
                began = time.perf_counter()
                assert proxy.client.get(f"{proxy.url}/healthz").status_code == 200
                took.append(time.perf_counter() - began)
            assert max(took) < BLOCKED_S
            assert not came
        waiting.join(20)
    assert came[0].status_code == 200
    assert "x-ullage-compaction" in came[0].headers


def test_a_request_whose_store_hangs_goes_out_as_it_came_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guarding, "DEADLINE_S", 0.2)
    store = SlowStore()
    raw = json.dumps(conversation("openai_chat", 40)).encode()
    with (
        FaultServer({CHAT: streamed("openai_chat")}) as upstream,
        proxied(upstream.root_url, rules=TIGHT, store=store) as proxy,
        store.held(),
        caplog.at_level(logging.CRITICAL),
    ):
        began = time.perf_counter()
        got = proxy.post(CHAT, raw)
        assert time.perf_counter() - began < 5
        assert got.status_code == 200
        assert asked(upstream)[0].body == raw


# ── the agent ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["sqlite", "postgres"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Hold]:
    """Return the URL of a log, and what holds it up."""
    if request.param == "sqlite":
        path = tmp_path / "state" / "log.db"
        return f"sqlite:{path}", lambda: sqlite_locked(path)
    url = request.getfixturevalue("postgres_database")()
    return url, lambda: postgres_locked(url, "sessions")


def test_the_loop_lives_while_the_log_of_a_turn_waits(book: tuple[str, Hold]) -> None:
    url, hold = book

    async def scene() -> None:
        with (
            acting.scripted(*[acting.said("It is cold.")] * 2) as server,
            closing(open_log(url)) as log,
            closing(open_log("memory:")) as memory,
            Session.create(log, "s") as session,
            Session.create(memory, "other") as other,
        ):
            agent = acting.agent(server)
            with hold():
                waiting = asyncio.create_task(agent.arun(session, "How is the cellar?"))
                assert await largest_gap() < BLOCKED_S
                assert not waiting.done()
                assert (await agent.arun(other, "And the attic?")).ok
            assert (await waiting).text == "It is cold."
            assert acting.types(session)[-1] == "turn_completed"

    asyncio.run(scene())

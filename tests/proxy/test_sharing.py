"""What replicas tell each other: written behind, heard of soon, found by name, lost by nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually
from ullage.core.errors import StoreError
from ullage.proxy import sharing
from ullage.proxy.sharing import Sharing
from ullage.storage import MemoryStore, Store, open_store, patience
from ullage.storage.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LOOK_S", 0.02)
    monkeypatch.setattr(patience, "ANSWER_S", 30.0)


class Ear:
    """Hears, and remembers what."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Any]] = []
        self.came = asyncio.Event()

    def __call__(self, scope: str, name: str, value: Mapping[str, Any]) -> None:
        self.heard.append((scope, name, value["n"]))
        self.came.set()


async def begun(store: Store, ear: Ear | None = None) -> Sharing:
    made = Sharing()
    if ear is not None:
        made.listen("t", ear)
    await made.begin(store)
    return made


def test_what_one_tells_the_other_hears_and_finds(tmp_path: Path) -> None:
    async def talk() -> None:
        ear = Ear()
        one = await begun(open_store(f"sqlite:{tmp_path}/s.db"))
        two = await begun(open_store(f"sqlite:{tmp_path}/s.db"), ear)
        teller = threading.Thread(target=one.tell, args=("t", "s", "a", {"n": 1}))
        teller.start()
        teller.join()
        await asyncio.wait_for(ear.came.wait(), 10)
        assert ear.heard[0] == ("s", "a", 1)
        assert await two.find("t", "s", "a") == {"n": 1}
        assert await two.find("t", "s", "b") is None
        one.tell("t", "s", "b", {"n": 2})
        assert await one.find("t", "s", "b") == {"n": 2}  # before it is written
        await one.aclose()
        assert await two.find("t", "s", "b") == {"n": 2}
        await two.begin(open_store(f"sqlite:{tmp_path}/s.db"))  # once more is no more
        await two.aclose()
        await two.aclose()
        assert one.backlog == 0

    asyncio.run(talk())


def test_who_comes_later_hears_what_was_told_before(tmp_path: Path) -> None:
    async def talk() -> None:
        one = await begun(open_store(f"sqlite:{tmp_path}/s.db"))
        one.tell("t", "s", "a", {"n": 1})
        one.tell("t", "s", "a", {"n": 2})
        await one.aclose()
        ear = Ear()
        two = await begun(open_store(f"sqlite:{tmp_path}/s.db"), ear)
        assert ear.heard == [("s", "a", 2)]
        await two.aclose()

    asyncio.run(talk())


def test_what_is_still_to_be_told_is_newer_than_what_is_heard(tmp_path: Path) -> None:
    async def talk() -> None:
        one = await begun(open_store(f"sqlite:{tmp_path}/s.db"))
        one.tell("t", "s", "a", {"n": 1})
        await one.aclose()
        ear, two = Ear(), Sharing()
        two.listen("t", ear)
        two.tell("t", "s", "a", {"n": 2})
        assert two.backlog == 0  # before it is begun it knows no store
        two._notes = open_store(f"sqlite:{tmp_path}/s.db").notes  # type: ignore[attr-defined]
        two.tell("t", "s", "a", {"n": 2})
        await two._look()
        assert ear.heard == []

    asyncio.run(talk())


def test_a_store_that_is_away_costs_one_wait_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "AWAY_S", 0.05)
    store = SqliteStore(tmp_path / "s.db")
    away = threading.Event()
    write, read = store.notes.write, store.notes.read

    def fail(*arguments: Any) -> Any:
        if away.is_set():
            raise StoreError("gone")
        return write(*arguments) if isinstance(arguments[0], list) else read(*arguments)

    monkeypatch.setattr(store.notes, "write", fail)
    monkeypatch.setattr(store.notes, "read", fail)

    async def talk() -> None:
        away.set()
        one = await begun(store)
        one.tell("t", "s", "a", {"n": 1})
        assert await one.find("t", "s", "x") is None
        assert await one.find("t", "s", "x") is None
        assert one.backlog == 1
        away.clear()
        await asyncio.to_thread(eventually, lambda: not one.backlog, within_s=10)
        assert await one.find("t", "s", "a") == {"n": 1}
        await one.aclose()

    asyncio.run(talk())
    store.close()


def test_no_more_than_a_number_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST", 3)
    monkeypatch.setattr(sharing, "AT_ONCE", 2)
    store = SqliteStore(tmp_path / "s.db")

    async def talk() -> None:
        one = await begun(store)
        for n in range(5):
            one.tell("t", "s", f"{n}", {"n": n})
        assert one.backlog == 3
        await one.aclose()
        assert [store.notes.read("t", "s", f"{n}") for n in range(3)] == [None, None, {"n": 2}]

    asyncio.run(talk())
    store.close()


def test_a_record_of_another_version_is_told_of_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        one = await begun(open_store(f"sqlite:{tmp_path}/s.db"))
        one.tell("t", "s", "a", {"m": 1})
        await one.aclose()
        two = await begun(open_store(f"sqlite:{tmp_path}/s.db"), Ear())
        await two.aclose()

    asyncio.run(talk())
    assert "cannot be read" in caplog.text


def test_a_fault_of_who_hears_ends_no_listening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    came = asyncio.Event()

    def hear(scope: str, name: str, value: Mapping[str, Any]) -> None:
        del scope, value
        heard.append(name)
        if name == "b":
            came.set()
        raise RuntimeError("a fault of its own")

    async def talk() -> None:
        one = await begun(open_store(f"sqlite:{tmp_path}/s.db"))
        two = Sharing()
        two.listen("t", hear)
        await two.begin(open_store(f"sqlite:{tmp_path}/s.db"))
        one.tell("t", "s", "a", {"n": 1})
        await asyncio.to_thread(eventually, lambda: "a" in heard)
        one.tell("t", "s", "b", {"n": 2})
        await asyncio.wait_for(came.wait(), 20)
        await one.aclose()
        await two.aclose()

    asyncio.run(talk())
    assert "a fault of its own" in caplog.text


def test_a_store_in_memory_shares_nothing() -> None:
    async def talk() -> None:
        one = await begun(MemoryStore())
        one.tell("t", "s", "a", {"n": 1})
        assert not one.is_on
        assert one.backlog == 0
        assert await one.find("t", "s", "a") is None
        await one.aclose()

    asyncio.run(talk())

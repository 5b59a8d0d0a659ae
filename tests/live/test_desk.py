"""What viewers may see and do, and that sources are looked at only while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ullage.core.errors import StoreError
from ullage.live import desk as rooms
from ullage.live.desk import LiveDesk
from ullage.live.source import NotPossible, UnknownConversation, Viewer
from ullage.live.values import CompactionReview, LiveMessage, LiveSession, SessionDetail


class Scripted:
    """A source with two conversations of two owners."""

    name = "proxy"
    is_behind = False

    def __init__(self) -> None:
        self.looks = 0
        self.done: list[str] = []
        self.fails = False
        self.rows = [
            LiveSession(source="proxy", id=owner, owner=owner, title="secret words", last="x")
            for owner in ("anna", "ben")
        ]

    def list_rows(self) -> Sequence[LiveSession]:
        self.looks += 1
        if self.fails:
            raise StoreError("the log is away")
        told, self.rows = self.rows, []
        return told

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        row = LiveSession(source="proxy", id=name, owner=name, title="secret words")
        return SessionDetail(row, can=frozenset({"undo"}))

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        raise NotPossible("no")

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        return [LiveMessage(0, "user", "secret", 1, "secret words")]

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        self.done.append(f"{action} {name}")
        return {"done": True}

    def close(self) -> None:
        self.done.append("closed")


ANNA = Viewer("anna", is_operator=False, reads=False)


def test_nobody_sees_or_changes_the_conversation_of_another():
    async def run() -> None:
        source = Scripted()
        desk = LiveDesk([source])
        await desk.look()
        seen = [row.id for row in desk.feed.list_rows() if ANNA.sees(row)]
        assert seen == ["anna"]
        detail = await desk.read_detail("proxy/anna", ANNA)
        assert (detail.session.title, detail.can) == ("", frozenset())
        for call in (
            desk.read_detail("proxy/ben", ANNA),
            desk.review("proxy/ben", 1, ANNA),
            desk.list_messages("proxy/ben", ANNA),
            desk.act("proxy/ben", "undo", {}, ANNA),
            desk.read_detail("nobody/ben", Viewer()),
            desk.read_detail("proxy", Viewer()),
        ):
            with pytest.raises(UnknownConversation, match="no conversation is called"):
                await call
        with pytest.raises(PermissionError, match="operator"):
            await desk.act("proxy/anna", "undo", {}, ANNA)
        with pytest.raises(PermissionError, match="not shown"):
            await desk.list_messages("proxy/anna", ANNA)
        assert source.done == []
        assert await desk.act("proxy/anna", "undo", {}, Viewer()) == {"done": True}
        await desk.aclose()
        assert source.done == ["undo anna", "closed"]

    asyncio.run(run())


def test_sources_rest_while_nobody_looks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rooms, "SOONEST_S", 0.01)
    monkeypatch.setattr(rooms, "LATEST_S", 0.02)
    monkeypatch.setattr(rooms, "STAYS_S", 0.3)
    monkeypatch.setattr(rooms, "IDLE", 0.0)

    async def run() -> None:
        source = Scripted()
        desk = LiveDesk([source])
        desk.wake()
        for _ in range(400):
            await asyncio.sleep(0.01)
            if all(task.done() for task in desk._tasks.values()):
                break
        assert source.looks >= 2
        looks = source.looks
        await asyncio.sleep(0.1)
        assert source.looks == looks
        desk.wake()
        for _ in range(400):
            if source.looks > looks:
                break
            await asyncio.sleep(0.01)
        assert source.looks > looks
        await desk.aclose()

    asyncio.run(run())


def test_a_look_that_nobody_waits_for_any_more_is_not_lost():
    async def run() -> None:
        desk = LiveDesk([Scripted()])
        look = asyncio.create_task(desk.look())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        look.cancel()
        for _ in range(200):
            if len(desk.feed.list_rows()) == 2:
                break
            await asyncio.sleep(0.01)
        assert len(desk.feed.list_rows()) == 2
        await desk.aclose()

    asyncio.run(run())


def test_a_source_that_fails_is_told_and_looked_at_again(caplog: pytest.LogCaptureFixture):
    async def run() -> None:
        source = Scripted()
        source.fails = True
        desk = LiveDesk([source])
        await desk.look()
        assert desk.feed.list_rows() == []
        source.fails = False
        await desk.look()
        assert len(desk.feed.list_rows()) == 2
        await desk.aclose()

    asyncio.run(run())
    assert "the log is away" in caplog.text

"""Sessions of a log as they are watched: numbers are the log's, undo brings the very bytes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, said, scripted
from ullage.agent import Session
from ullage.agent.purging import purge_sessions
from ullage.core.compaction.edits import find_references
from ullage.core.session.log.event import Draft
from ullage.live.logs import LogHands, LogSource
from ullage.live.source import NotPossible, UnknownConversation
from ullage.storage import open_log
from ullage.storage.log_sqlite import SqliteLog

RULE = "Never deploy on a Friday."


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    made = SqliteLog(tmp_path / "log.db")
    yield made
    made.close()


def fill(session: Session, turns: int = 30) -> None:
    """Record a history of some 6,000 tokens, by hand."""
    for n in range(turns):
        text = f"question {n}: {RULE if n == 3 else ''} " + "word " * 150
        session.record([Draft("user_message", {"text": text})])
        session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "model"})])


def test_a_session_is_shown_with_the_numbers_of_its_log(log: SqliteLog):
    with scripted(said("one", 100), said("two", 300), said("three", 500)) as server:
        runner = agent(server)
        with Session.create(log, "s") as session:
            for text in ("What is in the cellar?", "And now?", "And then?"):
                assert runner.run(session, text).ok
    source = LogSource(log)
    (row,) = source.list_rows()
    assert row.title == "What is in the cellar?"
    assert (row.requests, row.used, row.window) == (3, 500, 8000)
    assert (row.growth, row.left) == (200, (8000 - 500) // 200)
    assert source.list_rows() == []
    detail = source.read_detail("s", reads=True)
    assert [one.tokens for one in detail.requests] == [100, 300, 500]
    assert any(event.text == "you: And then?" for event in detail.events)
    assert source.read_detail("s", reads=False).events == ()
    assert json.dumps(detail.to_dict())
    with pytest.raises(UnknownConversation, match="no session"):
        source.read_detail("nobody", reads=True)


def test_only_what_is_new_is_read(log: SqliteLog, monkeypatch: pytest.MonkeyPatch):
    session = Session.create(log, "s")
    fill(session, 4)
    source = LogSource(log)
    source.list_rows()
    asked: list[int] = []
    read = log.read

    def count(name: str, after: int = 0, upto: int | None = None) -> Any:
        asked.append(after)
        return read(name, after, upto)

    monkeypatch.setattr(log, "read", count)
    head = log.head("s").seq
    session.record([Draft("user_message", {"text": "more"})])
    (row,) = source.list_rows()
    assert asked == [head - 1, head]
    assert row.last == "you: more"
    session.close()


@pytest.fixture
def compacted(log: SqliteLog) -> Iterator[tuple[SqliteLog, Any]]:
    """Yield a log whose session was compacted by its agent, and that agent."""
    with scripted(*[said("done", 2_000)] * 4) as server:
        runner = agent(server, window=13_500)
        with Session.create(log, "s") as session:
            fill(session)
            made = asyncio.run(runner.acompact(session, target_tokens=2_000))
            assert made.checkpoint is not None
            assert runner.run(session, "Go on.").ok
        yield log, (runner, lambda: bodies(server))


def test_a_compaction_is_reviewed_message_by_message(compacted: tuple[SqliteLog, Any]):
    log, _ = compacted
    source = LogSource(log)
    source.list_rows()
    detail = source.read_detail("s", reads=True)
    (made,) = detail.compactions
    review = source.review("s", 1, reads=True)
    assert all(holds for _, holds in review.laws)
    fates = {unit.fate for unit in review.units}
    assert {"kept", "left out", "added"} <= fates
    numbers = [unit.number for unit in review.units if unit.fate != "added"]
    assert numbers == sorted(numbers)
    left = [unit for unit in review.units if unit.fate == "left out"]
    assert made.left_out == len(left)
    block = next(unit for unit in review.units if unit.fate == "added")
    assert RULE in block.now
    said_rule = next(unit for unit in left if RULE in unit.text)
    assert said_rule.carried
    assert "are in the block, word for word" in said_rule.lives_on
    bare = source.review("s", 1, reads=False)
    assert not any(unit.text or unit.now for unit in bare.units)
    assert [unit.fate for unit in bare.units] == [unit.fate for unit in review.units]
    with pytest.raises(UnknownConversation, match="no number 2"):
        source.review("s", 2, reads=True)


def test_what_was_left_out_is_read_back_and_undo_brings_the_very_bytes(
    compacted: tuple[SqliteLog, Any], tmp_path: Path
):
    log, (runner, sent) = compacted
    hands = LogHands(uncompact=lambda name: _uncompact(log, runner, name))
    source = LogSource(log, hands)
    source.list_rows()
    block = next(u for u in source.review("s", 1, reads=True).units if u.fate == "added")
    reference = min(find_references(block.now))
    told = source.act("s", "recall", {"reference": reference})
    assert "question" in told["text"]
    assert len(sent()[0]["messages"]) < 60
    assert source.act("s", "undo", {})["undone"] is True
    (row,) = source.list_rows()
    assert (row.compactions, row.last) == (0, "compaction 1 was undone")
    assert source.read_detail("s", reads=True).compactions[0].undone
    with Session(log, "s") as session:
        view = asyncio.run(runner.aview(session))
        texts = [str(message["content"]) for message in view.request.messages]
        assert sum(text.startswith("question ") for text in texts) == 30
        assert runner.run(session, "And all of it again.").ok
        texts = [str(message["content"]) for message in sent()[-1]["messages"]]
        assert sum(text.startswith("question ") for text in texts) == 30, "it fits, and is sent"
    with pytest.raises(NotPossible, match="no compaction"):
        source.act("s", "undo", {})
    with pytest.raises(NotPossible, match="cannot dance"):
        source.act("s", "dance", {})


def _uncompact(log: SqliteLog, runner: Any, name: str) -> Any:
    with Session(log, name) as session:
        return runner.uncompact(session)


def test_a_purged_session_is_read_anew_and_shows_no_text(log: SqliteLog):
    with Session.create(log, "s") as session:
        fill(session, 3)
    source = LogSource(log)
    assert "question 0" in source.list_rows()[0].title
    purge_sessions(log, ["s"])
    (row,) = source.list_rows()
    assert row.title == ""
    assert "question" not in json.dumps(source.read_detail("s", reads=True).to_dict())


def test_a_damaged_session_is_told_and_hides_no_other(tmp_path: Path):
    log = open_log(f"sqlite:{tmp_path / 'log.db'}", create=True)
    for name in ("good", "bad"):
        with Session.create(log, name) as session:
            fill(session, 2)
    log.close()
    import apsw

    held = apsw.Connection(str(tmp_path / "log.db"))
    held.execute(
        "UPDATE events SET data = replace(data, 'answer', 'ANSWER') WHERE session_id = 'bad'"
    )
    held.close()
    log = open_log(f"sqlite:{tmp_path / 'log.db'}")
    source = LogSource(log)
    rows = {row.id: row for row in source.list_rows()}
    assert rows["good"].state == "idle"
    assert rows["bad"].state == "damaged"
    assert "was changed after it was written" in rows["bad"].last
    with pytest.raises(NotPossible, match="was changed after it was written"):
        source.read_detail("bad", reads=True)
    source.close()

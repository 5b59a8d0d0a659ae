"""A message that a person pinned: in every request, through compactions and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import agent, bodies, called, data, said, scripted
from tests.support.faults import of_json
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Draft
from ullage.live.logs import LogSource
from ullage.live.source import NotPossible
from ullage.storage.log_sqlite import SqliteLog

PINNED = "question 7 " + "word " * 150


def fill(session: Session) -> int:
    """Record 30 questions and answers; return the event of the seventh question."""
    found = 0
    for n in range(30):
        text = f"question {n} " + "word " * 150
        event = session.record([Draft("user_message", {"text": text})])[-1]
        found = event.seq if n == 7 else found
        session.record([Draft("assistant_message", {"text": f"answer {n}", "model": "model"})])
    return found


def list_texts(server: Any) -> list[str]:
    return [str(message["content"]) for message in bodies(server)[-1]["messages"]]


def test_what_is_pinned_is_in_every_request_and_what_is_not_may_go(session: Session):
    seq = fill(session)
    session.pin(seq)
    session.pin(seq)
    assert data(session, "message_pinned") == [{"seq": seq, "pinned": True}]
    with scripted(*[said("done", 2_000)] * 3) as server:
        runner = agent(server)
        made = asyncio.run(runner.acompact(session, target_tokens=2_000))
        assert made.checkpoint is not None
        assert runner.run(session, "Go on.").ok
        texts = list_texts(server)
        assert PINNED in texts
        assert "question 8 " + "word " * 150 not in texts
        again = Session(session.log, session.name)
        session.close()
        assert runner.run(again, "And on.").ok
        assert PINNED in list_texts(server)
        again.pin(seq, pinned=False)
        made = asyncio.run(runner.acompact(again, target_tokens=1_500))
        assert runner.run(again, "And further.").ok
        assert PINNED not in list_texts(server)
        again.close()


def test_what_is_pinned_behind_a_compaction_comes_back(session: Session):
    seq = fill(session)
    with scripted(*[said("done", 2_000)] * 2) as server:
        runner = agent(server)
        asyncio.run(runner.acompact(session, target_tokens=2_000))
        assert runner.run(session, "Go on.").ok
        assert PINNED not in list_texts(server)
        session.pin(seq)
        assert runner.run(session, "And on.").ok
        assert PINNED in list_texts(server)


def test_a_result_is_pinned_with_its_call(session: Session, tmp_path: Path):
    (tmp_path / "a.txt").write_text("the key is under the mat")
    with scripted(called(("read", {"path": "a.txt"})), said("read")) as server:
        assert agent(server, tmp_path).run(session, "Read it.").ok
    results = [event.seq for event in session.events() if event.type == "tool_result"]
    session.pin(results[0])
    fill(session)
    with scripted(said("done", 2_000)) as server:
        runner = agent(server, tmp_path)
        asyncio.run(runner.acompact(session, target_tokens=2_500))
        assert runner.run(session, "Where is the key?").ok
        (sent,) = bodies(server)
    roles = [m["role"] for m in sent["messages"] if m.get("tool_calls") or m["role"] == "tool"]
    assert roles == ["assistant", "tool"]
    assert any("under the mat" in str(m["content"]) for m in sent["messages"])


@pytest.mark.parametrize("seq", [0, 1, 99, -3])
def test_only_messages_are_pinned(session: Session, seq: int):
    session.record([Draft("user_message", {"text": "hello"})])
    with pytest.raises(ConfigurationError, match=f"event {seq} (of session s is|in session s: )"):
        session.pin(seq)
    session.pin(seq, pinned=False)
    assert data(session, "message_pinned") == []


def test_what_no_model_is_sent_is_not_pinned(session: Session):
    session.record([Draft("user_message", {"text": "hello"})])
    with scripted(of_json({"error": {"message": "no"}}, 400)) as server:
        assert not agent(server).run(session, "This fails.").ok
    failed = [event.seq for event in session.events() if event.type == "user_message"][-1]
    with pytest.raises(ConfigurationError, match=f"event {failed} .* that a model is sent"):
        session.pin(failed)
    thought = session.record([Draft("reasoning", {"text": "hm", "model": "model"})])[-1].seq
    with pytest.raises(ConfigurationError, match="that a model is sent"):
        session.pin(thought)
    assert session.known.pins == set()


def test_the_command_and_the_page_pin_by_the_same_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    log = SqliteLog(tmp_path / "log.db")
    with Session.create(log, "s") as session:
        seq = fill(session)
    store = ["--store", f"sqlite:{tmp_path / 'log.db'}"]
    assert main(["pin", "s", str(seq), *store]) == 0
    assert Session(log, "s").fold.pins == {seq}
    assert main(["show", "s", *store]) == 0
    assert f"#{seq} is pinned" in capsys.readouterr().out
    source = LogSource(log)
    source.list_rows()
    place = next(m.number for m in source.list_messages("s") if m.text == PINNED)
    assert source.act("s", "pin", {"message": place}) == {"message": place, "pinned": False}
    assert Session(log, "s").fold.pins == set()
    assert source.list_rows()[0].last == f"event {seq} is pinned no more"
    for wrong in ("0", "999", "x", ""):
        with pytest.raises(NotPossible, match="that can be pinned"):
            source.act("s", "pin", {"message": wrong})
    assert main(["pin", "s", "1", *store]) == 1
    assert "not part of a message" in capsys.readouterr().err
    for none in ("99999", "0", "-1"):
        assert main(["pin", "s", *store, "--", none]) == 1
        said = f"there is no event {none} in session s: `ullage show s` numbers those there are"
        assert said in capsys.readouterr().err
    log.close()

"""`/summary` and `/compact` in a real terminal: by a model, by rule, and broken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.cli.test_chat import PROMPT, chat
from tests.support import tinymodel
from tests.support.faults import FaultServer, hanging
from ullage.agent import Session
from ullage.core.session.log.event import Draft
from ullage.embedded import Launch, Server
from ullage.storage import open_log
from ullage.storage.log import EventLog


@pytest.fixture(scope="module")
def recording(
    llama_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Server:
    path = tmp_path_factory.mktemp("recording") / "recording.gguf"
    return llama_server(Launch(window=4_096), tinymodel.make(path, sentence="Goal: mend the pump."))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    """Return a log with a session that has something to say."""
    made = open_log(f"sqlite:{tmp_path}/state/s.db")
    with Session.create(made, "s") as session:
        for n in range(24):
            text = f"turn {n}: mend the pump. " + "word " * 60
            session.record([Draft("user_message", {"text": text})])
            session.record([Draft("assistant_message", {"text": "yes", "model": "tiny"})])
    yield made
    made.close()


def talk(tmp_path: Path, base_url: str, *more: str) -> Terminal:
    served = ("--base-url", base_url, "--model", "tiny", "--window", "4000")
    return chat(tmp_path, "--session", "s", *served, *more)


def test_the_own_model_writes_the_summary(tmp_path: Path, recording: Server, log: EventLog):
    with talk(tmp_path, recording.base_url, "--summarizer", "same") as terminal:
        terminal.until(PROMPT)
        terminal.type("/compact 0.6")
        assert "(summarise_middle" in terminal.until(PROMPT)
        terminal.type("/summary")
        shown = terminal.until(PROMPT)
    assert "goes on from s" in shown
    assert "kept by rule" not in shown
    name = log.sessions()[-1].session
    (branch,) = [e.data for e in log.read(name) if e.type == "branch_summary"]
    assert "mend the pump" in branch["text"].partition("[end of facts]")[2]


def test_without_a_summarizer_it_says_kept_by_rule(
    tmp_path: Path, recording: Server, log: EventLog
):
    with talk(tmp_path, recording.base_url, "--policy", "auto_summary") as terminal:
        terminal.until(PROMPT)
        terminal.type("/compact 0.6")
        shown = terminal.until(PROMPT)
        assert "kept by rule" in shown
        assert "summarise" not in shown
        terminal.type("/summary")
        shown = terminal.until(PROMPT)
    assert "kept by rule (no summarizer is set)" in shown.replace("\r\n", " ")
    assert len(log.sessions()) == 2


def test_a_summary_shows_that_it_is_under_way_and_can_be_broken_off(tmp_path: Path, log: EventLog):
    head = log.head("s").seq
    with (
        FaultServer({"POST /v1/chat/completions": hanging()}) as server,
        talk(tmp_path, server.base_url, "--summarizer", "same") as terminal,
    ):
        terminal.until(PROMPT)
        for command in ("/summary", "/compact 0.6"):
            terminal.type(command)
            terminal.until(r"summarising \d+ s")
            terminal.press(b"\x03")
            assert "interrupted" in terminal.until(PROMPT)
        terminal.press(b"\x04")
    assert [found.session for found in log.sessions()] == ["s"]
    assert log.head("s").seq == head

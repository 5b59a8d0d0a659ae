"""The tool that searches what was left out: of a session, and of one that it goes on from."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.agent.acting import agent, called, data, said, scripted
from ullage.agent import Session
from ullage.core.session.log.event import Draft

ASKED = called(("ullage_search", {"query": "staging database port"}))


def talk(session: Session) -> None:
    """Record a fact, and much after it."""
    for text in ["The staging database listens on port 6543.", *("word " * 40 for _ in range(60))]:
        session.record([Draft("user_message", {"text": text})])
        session.record([Draft("assistant_message", {"text": "Noted.", "model": "model"})])


def test_left_out_words_are_found_once_they_are_left_out(session: Session, tmp_path: Path):
    talk(session)
    with scripted(ASKED, said("Nothing yet."), ASKED, said("It is 6543."), said("ok")) as server:
        runner = agent(server, tmp_path, window=60_000)
        runner.run(session, "Which port is it?")
        asyncio.run(runner.acompact(session, target_tokens=2_600))
        runner.run(session, "And now?")
    first, second = (event["text"] for event in data(session, "tool_result"))
    assert first.startswith("Nothing that was left out")
    assert "listens on port 6543" in second
    assert "query" not in second


def test_a_session_that_goes_on_searches_the_one_before(session: Session):
    talk(session)
    with scripted(ASKED, said("It is 6543."), said("ok")) as server:
        runner = agent(server, window=60_000)
        made = asyncio.run(runner.asummarise(session))
        runner.run(made, "Which port is it?")
    (found,) = (event["text"] for event in data(made, "tool_result"))
    assert "listens on port 6543" in found
    assert [hit.session for hit in made.originals.search("staging")] == [session.name]

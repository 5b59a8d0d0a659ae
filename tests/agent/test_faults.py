"""An agent asks again for what was left out: told, recorded with the request, summed up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.agent.acting import agent, called, data, said, scripted
from ullage.agent import Live, Session
from ullage.agent.totals import add_up
from ullage.core.session.log.event import Draft

WORDS = "line of a long file\n" * 300


def test_a_file_that_is_read_again_is_told_and_counted(session: Session, tmp_path: Path):
    (tmp_path / "long.txt").write_text(WORDS)
    read = ("read", {"path": "long.txt"})
    told: list[str] = []
    script = [called(read), said("Read."), called(read, prompt=60), said("Again."), said("ok")]
    with scripted(*script) as server:
        runner = agent(server, tmp_path, window=60_000)
        runner.run(session, "Read the long file")
        for n in range(40):
            session.record([Draft("user_message", {"text": f"question {n} " + "word " * 40})])
            session.record([Draft("assistant_message", {"text": "yes", "model": "model"})])
        asyncio.run(runner.acompact(session, target_tokens=2_600))
        session.hear(
            lambda e: told.append(str(e.data.get("text", ""))) if isinstance(e, Live) else None
        )
        runner.run(session, "Read it again")
    assert "asked again for what a compaction left out: read long.txt" in told
    contexts = [report["context"] for report in data(session, "provider_usage")]
    assert [context.get("faults") for context in contexts] == [None, None, None, 1]
    sums = add_up(session.events())
    assert sums.faults == 1
    assert sums.describe().endswith("1 asked again after a compaction")


def test_reports_of_others_count_nothing():
    assert add_up([]).faults == 0
    assert "asked again" not in add_up([]).describe()


def test_calls_that_are_made_again_behind_a_compaction_are_summed_up(
    session: Session, tmp_path: Path
):
    (tmp_path / "long.txt").write_text(WORDS)
    read = ("read", {"path": "long.txt"})
    script = [called(read), said("Read."), called(read, prompt=60), said("Again."), said("ok")]
    with scripted(*script) as server:
        runner = agent(server, tmp_path, window=60_000)
        runner.run(session, "Read the long file")
        for n in range(40):
            session.record([Draft("user_message", {"text": f"question {n} " + "word " * 40})])
            session.record([Draft("assistant_message", {"text": "yes", "model": "model"})])
        asyncio.run(runner.acompact(session, target_tokens=2_600))
        runner.run(session, "Read it again")
        for n in range(40):
            session.record([Draft("user_message", {"text": f"matter {n} " + "word " * 40})])
            session.record([Draft("assistant_message", {"text": "yes", "model": "model"})])
        asyncio.run(runner.acompact(session, target_tokens=2_600))
    (*_, last) = data(session, "history_compaction")
    assert last["checkpoint"]["since"]["repeated"] == 1
    sums = add_up(session.events())
    assert (sums.calls, sums.repeated) == (1, 1)
    assert "1 of 1 calls after compactions repeated" in sums.describe()

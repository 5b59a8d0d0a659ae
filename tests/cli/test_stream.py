"""A program that hosts a turn: what it presents, and the events that it is told, line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import bodies, said, scripted
from tests.support.faults import FaultServer
from ullage.cli import presenting
from ullage.cli.main import main
from ullage.cli.stream import VERSION
from ullage.core.errors import ConfigurationError
from ullage.storage import open_log

Capture = pytest.CaptureFixture[str]


def arguments(server: FaultServer, folder: Path, *more: str) -> list[str]:
    return [
        *("run", "Which file is open?", "--base-url", server.base_url, "--model", "model"),
        *("--store", f"sqlite:{folder / 'state' / 'log.db'}", "--window", "8000", "--no-tools"),
        *more,
    ]


def test_each_event_is_a_line_and_the_last_one_says_how_it_ended(
    tmp_path: Path, capsys: Capture
) -> None:
    with scripted(said("It is a.py.")) as server:
        assert main(arguments(server, tmp_path, "--events")) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["v"] for line in found} == {VERSION}
    assert len({line["session"] for line in found}) == 1
    recorded = [line for line in found if line["kind"] == "recorded"]
    with closing(open_log(f"sqlite:{tmp_path / 'state' / 'log.db'}")) as log:
        events = log.read(found[0]["session"])
    assert [(r["seq"], r["type"], r["data"]) for r in recorded] == [
        (e.seq, e.type, e.data) for e in events if e.type != "session_created"
    ]
    live = [line for line in found if line["kind"] == "live"]
    assert "".join(x["data"]["text"] for x in live if x["type"] == "text_delta") == "It is a.py."
    assert "context_pressure" in {line["type"] for line in live}
    ended = found[-1]
    assert (ended["kind"], ended["outcome"], ended["text"]) == ("ended", "completed", "It is a.py.")


def test_a_failed_turn_ends_the_stream_too_and_resume_goes_on(
    tmp_path: Path, capsys: Capture
) -> None:
    with scripted(said(" "), said("Yes.")) as server:
        assert main(arguments(server, tmp_path, "--events")) == 6
        ended = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (ended["outcome"], ended["reason"]) == ("failed", "no_answer")
        store = ("--store", f"sqlite:{tmp_path / 'state' / 'log.db'}")
        assert main(["resume", ended["session"], "--events", *store]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (lines[-1]["kind"], lines[-1]["text"]) == ("ended", "Yes.")


def test_a_reader_that_goes_away_ends_no_turn(tmp_path: Path) -> None:
    with scripted(said("It is a.py.")) as server:
        command = [sys.executable, "-m", "ullage", *arguments(server, tmp_path, "--events")]
        away, ours = os.pipe()
        os.close(away)
        done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(ours)
    assert b"Traceback" not in done.stderr
    with closing(open_log(f"sqlite:{tmp_path / 'state' / 'log.db'}")) as log:
        (head,) = log.sessions()
        assert log.read(head.session)[-1].type == "turn_completed"


@pytest.mark.parametrize("from_file", [False, True])
def test_the_model_is_shown_what_a_person_looks_at(tmp_path: Path, from_file: bool) -> None:
    facts = json.dumps({"open_file": "a.py", "line": 7})
    given = facts
    if from_file:
        (tmp_path / "facts.json").write_text(facts)
        given = f"@{tmp_path / 'facts.json'}"
    with scripted(said("a.py")) as server:
        assert main(arguments(server, tmp_path, "--context", given)) == 0
        (body,) = bodies(server)
    assert "open_file" in body["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{", "--context is no JSON object or @FILE"),
        ("[1]", "--context is a JSON list: give an object"),
        ("@nowhere.json", "@nowhere.json cannot be read: No such file"),
        ("@latin", "is no UTF-8 text"),
        ("@large", "at most 1,000,000 are read"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_facts_that_cannot_be_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin").write_bytes(b'{"a": "\xe9"}')
    Path("large").write_bytes(b" " * (presenting.LARGEST + 1))
    with pytest.raises(ConfigurationError, match=why):
        presenting.read_context(given)


def test_no_facts_are_none() -> None:
    found: Any = presenting.read_context(None)
    assert found is None

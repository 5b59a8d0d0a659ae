"""Sessions for the tests of the commands on them: recorded in SQLite files, as turns record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ullage.agent import Session
from ullage.core.session.log.event import Draft
from ullage.storage import open_log

MODEL = "gpt-5"


def url(folder: Path) -> str:
    """Return the URL of the log in a folder."""
    return f"sqlite:{folder / 'log' / 'sessions.db'}"


def recorded(folder: Path, name: str, drafts: list[Draft]) -> str:
    """Record a session behind its creation, and return the URL of its log."""
    (folder / "log").mkdir(exist_ok=True)
    log = open_log(url(folder))
    with Session.create(log, name) as session:
        session.record(drafts)
    log.close()
    return url(folder)


def said(text: str, **more: Any) -> Draft:
    """Return what a person says."""
    return Draft("user_message", {"text": text, **more})


def began(turn: str, **more: Any) -> Draft:
    """Return the start of a turn."""
    posture = {"mode": "build", "permission": "auto", "model": MODEL}
    return Draft("turn_started", {"turn": turn, **posture, **more})


def reported(number: int, tokens: int = 100) -> Draft:
    """Return the report of a round."""
    return Draft("provider_usage", {"model": MODEL, "round": number, "input": tokens, "output": 5})


def answered(number: int, text: str, **more: Any) -> Draft:
    """Return an answer of the model."""
    return Draft("assistant_message", {"text": text, "model": MODEL, "round": number, **more})


def called(number: int, call_id: str, name: str, arguments: str = "{}") -> Draft:
    """Return a call of the model."""
    data = {"call_id": call_id, "name": name, "arguments": arguments}
    return Draft("tool_call", {**data, "model": MODEL, "round": number})


def resulted(call_id: str, text: str, **more: Any) -> Draft:
    """Return what a call came to."""
    return Draft("tool_result", {"call_id": call_id, "text": text, **more})


def ended(turn: str, kind: str = "turn_completed", **more: Any) -> Draft:
    """Return the end of a turn."""
    return Draft(kind, {"turn": turn, **more})


def cellar() -> list[Draft]:
    """Return a turn with one call, events 2 to 10 of its session; event 7 is the result."""
    return [
        said("What is in the cellar?"),
        began("t1"),
        reported(1),
        answered(1, "Let me look."),
        called(1, "c1", "read", '{"path": "cellar.txt"}'),
        resulted("c1", "\n".join(f"cask {number}" for number in range(30))),
        reported(2, 200),
        answered(2, "Thirty casks."),
        ended("t1"),
    ]


def long(rounds: int) -> list[Draft]:
    """Return one turn of many calls with results of some 200 words each."""
    made = [said("Count the casks."), began("t1")]
    for number in range(1, rounds + 1):
        made += [reported(number), called(number, f"c{number}", "read", f'{{"path": "{number}"}}')]
        made.append(resulted(f"c{number}", f"cask {number} " * 200))
    return [*made, answered(rounds + 1, "Counted."), ended("t1")]

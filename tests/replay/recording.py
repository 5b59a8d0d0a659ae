"""Recorded sessions for the tests of replays: made up, drawn, with known ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.transcript import Shape, write
from ullage.core.compaction.policy import Policy, Rung
from ullage.importers.session import ImportedSession
from ullage.replay import ReplayOptions
from ullage.replay.engine import make_runtime
from ullage.replay.history import read_history
from ullage.replay.walk import ReadHistory

PRESETS = ("ladder", "advisory", "auto_summary", "off")


def presets() -> dict[str, Policy]:
    """Return the policies that most tests try."""
    return {name: Policy.from_name(name) for name in PRESETS}


def small() -> Policy:
    """Return a policy that compacts early and deep."""
    return Policy(name="small", rungs=(Rung(0.5, 0.3, ("clear", "trim_oldest")),))


def talk(messages: int, seed: int = 1, **more: Any) -> ImportedSession:
    """Return a made-up session of so many messages."""
    made = write(Shape(messages, seed=seed))
    return ImportedSession("chat", "openai_chat", tuple(made), model="gpt-4o", **more)


def read(session: ImportedSession) -> ReadHistory:
    """Return a session as it is read for a replay, without prices."""
    return ReadHistory(
        read_history(session), make_runtime(ReplayOptions(presets()).settings), "gpt-4o", (), 300.0
    )


def save(folder: Path, name: str, messages: int, seed: int = 1) -> Path:
    """Write a session as a request in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({"model": "gpt-4o", "messages": write(Shape(messages, seed=seed))}))
    return path

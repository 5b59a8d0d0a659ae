"""Real workers for tests: `ullage worker` in processes of their own, which are killed and stopped.

`make_agents` is what they load: an agent whose tool leaves a line for each effect that it had. The
model that they ask is scripted, over real HTTP.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.agent.victim import BUMP, QUICK, Bump
from ullage.agent import Agent
from ullage.core.session.permissions import Access
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.providers import Provider
from ullage.storage.log import EventLog, verify
from ullage.tools import Arguments, Executor

ROOT: Final = Path(__file__).parents[2]

ENGINES: Final = ("sqlite", "procrastinate", "dbos")

LONG: Final = pytest.mark.long


def across(*quick: str) -> list[Any]:
    """Return all engines as parameters; those that are not `quick` are for the long run."""
    return [pytest.param(each, marks=() if each in quick else LONG, id=each) for each in ENGINES]


SLOW: Final = Spec(
    name="slow",
    description="Wait for a file that never comes.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)

LONGEST_S: Final = 60.0


class Slow:
    """A tool that leaves a line when it begins, and never ends by itself."""

    spec = SLOW

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def access(self, _arguments: Arguments) -> Access:
        return Access()

    async def run(self, _arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        import asyncio

        with (Path(self._folder) / "slow").open("a") as file:
            file.write(f"{key}\n")
        await asyncio.Event().wait()
        raise AssertionError("it never ends")


def make_agents() -> Mapping[str, Agent]:
    """Return the agents of a worker: its folder and its model are in the environment."""
    folder = os.environ["CREW_FOLDER"]
    agent = Agent(
        Provider("model", os.environ["CREW_MODEL"], limits=QUICK),
        executor=lambda _: Executor(Path(folder) / "work", tools=[Bump(folder), Slow(folder)]),
        window=100_000,
    )
    return {"default": agent}


class Crew:
    """Workers of one queue; what is left of them is killed at the end."""

    def __init__(self, store: str, engine: str, folder: Path, model: str, lease_s: float) -> None:
        self.store, self.engine, self.folder = store, engine, folder
        self.lease_s = lease_s
        self._model = model
        self.members: list[subprocess.Popen[bytes]] = []
        (folder / "work").mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            with suppress(ProcessLookupError):
                member.kill()
            member.wait(LONGEST_S)

    def start(
        self, name: str = "one", *more: str, store: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a worker."""
        command = [sys.executable, "-m", "ullage", "worker", "--store", store or self.store]
        command += ["--engine", self.engine, "--name", name, "--lease-s", str(self.lease_s)]
        command += ["--agents", "tests.workers.crew:make_agents", *more]
        ours = {"CREW_FOLDER": str(self.folder), "CREW_MODEL": self._model}
        with (self.folder / "said").open("ab") as said:
            made = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **ours}, stdout=said, stderr=said
            )
        self.members.append(made)
        return made

    def count_effects(self) -> Counter[str]:
        """Return how often each effect was had, by the key of its call."""
        file = self.folder / "bumps"
        return Counter(file.read_text().splitlines() if file.exists() else [])

    def said(self) -> str:
        """Return what the workers said."""
        return (self.folder / "said").read_text(errors="replace")


def end(member: subprocess.Popen[bytes], by: int = signal.SIGTERM) -> int:
    """End a worker by a signal; return its exit code."""
    member.send_signal(by)
    return member.wait(LONGEST_S)


def check_log(log: EventLog, session: str) -> Counter[str]:
    """Check that a session's log is whole, and return how often each type of event is in it."""
    assert verify(log, session) == []
    events = log.read(session)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    begun = [event.data["turn"] for event in events if event.type == "turn_started"]
    ended = [event.data["turn"] for event in events if event.type.startswith("turn_completed")]
    assert len(begun) == len(set(begun))
    assert len(ended) == len(set(ended))
    return Counter(event.type for event in events)


__all__ = ["BUMP", "ENGINES", "Crew", "across", "check_log", "end"]

"""ullage, used as its README says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ullage
from bench.peers import History, Message
from ullage import Policy, Rung
from ullage.api.context import Contents, context, of_session
from ullage.api.tally import Tally
from ullage.importers import ImportedSession, load

MODEL = "gpt-4o"


class Ullage:
    def read(self, messages: list[Message]) -> History:
        return list(messages)

    def plain(self, history: History) -> list[Message]:
        return list(history)

    def count(self, history: History) -> int:
        return int(ullage.count(history, model=MODEL))

    def trim(self, history: History, budget: int) -> History:
        return list(ullage.compact(history, target_tokens=budget, model=MODEL).messages)

    def chained(self, history: History, job: dict[str, Any]) -> History:
        """Return what is left of one part of a session after another, each compacted."""
        left: History = []
        start = 0
        for stop in job["parts"]:
            left += history[start:stop]
            left, start = self.trim(left, job["budget"]), stop
        return left

    def covered(self, history: History, budget: int, window: int) -> tuple[History, list[Any]]:
        """Return what a compaction leaves, and what a summariser of that window was asked."""
        asked: list[Any] = []
        by = _Writer(window, asked)
        made = ullage.compact(history, target_tokens=budget, model=MODEL, summarizer=by)
        return list(made.messages), asked

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        guard = ullage.Guard(MODEL, window=window)
        return lambda history: list(guard.prepare(history, max_tokens=output).messages)

    def context(self, messages: list[Message], window: int) -> Contents:
        """Return what fills the window."""
        return context(messages, model=MODEL, window=window)

    def session(self, file: str) -> ImportedSession:
        """Read a session from its file."""
        return load(file)

    def contents(self, session: ImportedSession, window: int) -> Contents:
        """Return what fills the window of a session that was read."""
        return of_session(session, window=window)


class TrimAlone(Ullage):
    """Leaves the oldest out and puts nothing in its place, as the peers do."""

    policy = Policy(rungs=(Rung(0.9, 0.5, ("trim_oldest",)),), carry_share=0)

    def trim(self, history: History, budget: int) -> History:
        made = ullage.compact(history, target_tokens=budget, model=MODEL, policy=self.policy)
        return list(made.messages)


class TrimAndBlock(TrimAlone):
    """The same, with a block of the facts that were left out."""

    policy = Policy(rungs=(Rung(0.9, 0.5, ("trim_oldest",)),))


class ByRule(Ullage):
    """Wants a summary, and nobody writes one: the deterministic form takes its place."""

    summarizer: Any = None

    def __init__(self) -> None:
        self.told: list[Any] = []
        """Of each compaction: strategy, why the summary is one by rule, requests made."""

    def trim(self, history: History, budget: int) -> History:
        by = self.summarizer or _nobody
        made = ullage.compact(history, target_tokens=budget, model=MODEL, summarizer=by)
        written = made.outcome.written
        asked = 0 if written is None else written.requests
        self.told.append([made.strategy, made.fallback_reason, asked])
        return list(made.messages)


class ByModel(ByRule):
    """Has a real model write the summary; told which by the job."""

    def chained(self, history: History, job: dict[str, Any]) -> History:
        url, model = job["summarizer"]
        self.summarizer = ullage.Summarizer(model, base_url=url, max_tokens=800)
        return super().chained(history, job)


class Pinning(Ullage):
    """Is told which messages hold the facts."""

    def chained(self, history: History, job: dict[str, Any]) -> History:
        facts = [history[i] for i in job["pinned"]]
        left: History = []
        start = 0
        for stop in job["parts"]:
            left += history[start:stop]
            pins = [i for i, message in enumerate(left) if message in facts]
            start = stop
            left = list(
                ullage.compact(left, target_tokens=job["budget"], model=MODEL, pins=pins).messages
            )
        return left


class _Writer:
    """A summariser that writes the same few words whatever it is shown, and keeps what it was."""

    def __init__(self, window: int, asked: list[Any]) -> None:
        self.window = window
        self._asked = asked

    def __call__(self, request: Any) -> str:
        self._asked.append([f"{request.system}\n{request.prompt}", request.max_tokens])
        return "Goal: go on with the work\nDone: looked at the files\nNext: go on"


def _nobody(request: Any) -> str:
    raise ConnectionError("no summariser is up")


class Tallied(Ullage):
    """Told what is new, as an agent's own loop can: no message is looked at twice."""

    def __init__(self) -> None:
        self._tally = Tally(model=MODEL)

    def count(self, history: History) -> int:
        if len(history) < len(self._tally):
            self._tally = Tally(model=MODEL)
        return int(self._tally.add(*history[len(self._tally) :]).count())

"""ullage, used as its README says."""

from __future__ import annotations

from collections.abc import Callable

import ullage
from bench.peers import History, Message
from ullage.contents import Contents, context, of_session
from ullage.importers import Session, load
from ullage.tally import Tally

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

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        guard = ullage.Guard(MODEL, window=window)
        return lambda history: list(guard.prepare(history, max_tokens=output).messages)

    def context(self, messages: list[Message], window: int) -> Contents:
        """Return what fills the window."""
        return context(messages, model=MODEL, window=window)

    def session(self, file: str) -> Session:
        """Read a session from its file."""
        return load(file)

    def contents(self, session: Session, window: int) -> Contents:
        """Return what fills the window of a session that was read."""
        return of_session(session, window=window)


class Tallied(Ullage):
    """Told what is new, as an agent's own loop can: no message is looked at twice."""

    def __init__(self) -> None:
        self._tally = Tally(model=MODEL)

    def count(self, history: History) -> int:
        if len(history) < len(self._tally):
            self._tally = Tally(model=MODEL)
        return int(self._tally.add(*history[len(self._tally) :]).count())

"""tiktoken and nothing else: what a recount costs, and what a sum per message would save.

It trims nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from bench.judge import PER_REPLY, Judge
from bench.peers import History, Message


class Tiktoken:
    """Counts every message on every call."""

    def __init__(self) -> None:
        self.judge = Judge()

    def read(self, messages: list[Message]) -> History:
        return list(messages)

    def plain(self, history: History) -> list[Message]:
        return list(history)

    def count(self, history: History) -> int:
        return self.judge.count(history)

    def trim(self, history: History, budget: int) -> NoReturn:
        raise NotImplementedError("tiktoken only counts")

    def manager(self, window: int, output: int) -> Callable[[History], History]:
        raise NotImplementedError("tiktoken only counts")


class Remembered(Tiktoken):
    """Trusts that a history only grows: twenty lines that many an application has."""

    def __init__(self) -> None:
        super().__init__()
        self._counted = 0
        self._sum = 0

    def count(self, history: History) -> int:
        if len(history) < self._counted:
            self._counted = self._sum = 0
        self._sum += sum(map(self.judge.message, history[self._counted :]))
        self._counted = len(history)
        return self._sum + PER_REPLY

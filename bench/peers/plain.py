"""tiktoken and nothing else: what a recount costs, and what a sum per message would save.

Of the newest user messages, as many as fit, it makes a request: a rule of one line.
"""

from __future__ import annotations

from collections.abc import Callable

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

    def trim(self, history: History, budget: int) -> History:
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


class NewestUsers(Tiktoken):
    """Keeps what people said last, and nothing else."""

    def trim(self, history: History, budget: int) -> History:
        kept: History = []
        left = budget - PER_REPLY
        for message in reversed([m for m in history if m["role"] == "user"]):
            left -= self.judge.message(message)
            if left < 0 and kept:
                break
            kept.append(message)
        return kept[::-1]

"""ullage, used as its README says."""

from __future__ import annotations

from collections.abc import Callable

import ullage
from bench.peers import History, Message

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

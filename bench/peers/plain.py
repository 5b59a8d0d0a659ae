"""tiktoken and nothing else: what a recount costs, and what a sum per message would save.

Of the newest user messages, as many as fit, it makes a request: a rule of one line. With a model it
does what many an application does: it asks for a summary, and keeps the newest messages beside it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

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


SUMMARISE = (
    "Summarise this conversation in at most {words} words, for somebody who goes on with it."
)
MODEL_S = 1_800


class ModelSummary(Tiktoken):
    """Has a model summarise all but the newest messages, which have half of the budget."""

    def trim(self, history: History, budget: int) -> History:
        """Return the newest messages alone: what is done before there is a model."""
        return self._find_newest(history, budget)

    def chained(self, history: History, job: dict[str, Any]) -> History:
        """Return what is left of one part of a session after another, each summarised."""
        left: History = []
        start = 0
        for stop in job["parts"]:
            left, start = self._shrink(left + history[start:stop], job), stop
        return left

    def _shrink(self, history: History, job: dict[str, Any]) -> History:
        budget = job["budget"] - PER_REPLY
        newest = self._find_newest(history, budget // 2)
        if len(newest) == len(history):
            return history
        older = history[: len(history) - len(newest)]
        while newest and newest[0]["role"] == "tool":
            newest = newest[1:]
        most = budget - sum(map(self.judge.message, newest)) - 2 * PER_REPLY
        text = "Summary of the conversation so far: " + ask(job["summarizer"], older, most)
        while self.judge.text(text) > most:
            text = text[: len(text) * 9 // 10]
        return [{"role": "user", "content": text}, *newest]

    def _find_newest(self, history: History, budget: int) -> History:
        place = len(history)
        while place and (budget := budget - self.judge.message(history[place - 1])) >= 0:
            place -= 1
        return history[place:]


def ask(summarizer: list[str], messages: History, tokens: int) -> str:
    """Return what a model says in at most so many tokens when asked for a summary."""
    url, model = summarizer
    said = "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in messages)
    wanted = SUMMARISE.format(words=max(tokens * 3 // 5, 1))
    prompt = {"role": "user", "content": f"{said}\n\n{wanted}"}
    body = {"model": model, "messages": [prompt], "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=MODEL_S) as answer:
        told: str = json.load(answer)["choices"][0]["message"]["content"]
    return told

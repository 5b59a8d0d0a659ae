"""tiktoken and nothing else: what a recount costs, and what a sum per message would save.

Of the newest messages, or the newest user messages, as many as fit, it makes a request: rules of
one line. Sixty lines more keep the sentences that say most. With a model it does what many an
application does: it asks for a summary, and keeps the newest messages beside it.
"""

from __future__ import annotations

import json
import math
import re
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
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


class Newest(Tiktoken):
    """Keeps what was said last, by anybody; a result whose call is gone goes, too."""

    def trim(self, history: History, budget: int) -> History:
        left, place = budget - PER_REPLY, len(history)
        while place and (left := left - self.judge.message(history[place - 1])) >= 0:
            place -= 1
        while place < len(history) and history[place]["role"] == "tool":
            place += 1
        return history[place:]


SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。\uff01\uff1f])|\n+")
WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|\w+")
NAME = re.compile(r"(?<=[a-z,;] )[A-Z]\w+")
NUMBER = re.compile(r"\S*\d\S*")
ALIKE = 0.8
"""Share of a sentence's words that another one has, from which on it is said already."""


class BestSentences(Tiktoken):
    """Keeps the sentences of people that say most: by rare words, numbers and names, no word list.

    The request that is to be answered stays whole.
    """

    def trim(self, history: History, budget: int) -> History:
        """Return the user messages with what is kept of them, in their order."""
        said = [(n, m["content"]) for n, m in enumerate(history) if m["role"] == "user"]
        last, request = said[-1]
        left = budget - PER_REPLY - self.judge.message({"role": "user", "content": request})
        found = [(n, part) for n, text in said[:-1] for part in split_sentences(text)]
        often = Counter(word for _, part in found for word in {*list_words(part)})
        ranked = sorted(
            range(len(found)), key=lambda at: rate(found[at][1], often, len(found)), reverse=True
        )
        kept: set[int] = set()
        known: list[set[str]] = []
        for at in ranked:
            n, part = found[at]
            words = {*list_words(part)}
            cost = self.judge.text(part) + 1 + (4 if all(found[k][0] != n for k in kept) else 0)
            if cost <= left and all(len(words & said) < ALIKE * len(words) for said in known):
                kept.add(at)
                known.append(words)
                left -= cost
        texts: dict[int, list[str]] = {}
        for at in sorted(kept):
            texts.setdefault(found[at][0], []).append(found[at][1])
        texts[last] = [request]
        return [{"role": "user", "content": " ".join(parts)} for parts in texts.values()]


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text."""
    return (part.strip() for part in SENTENCE.split(text) if part.strip())


def list_words(part: str) -> list[str]:
    """Return the words of a sentence; of scripts without spaces the characters."""
    return WORD.findall(part.lower())


def rate(part: str, often: Counter[str], of: int) -> float:
    """Return what a sentence is worth by its length: rare words, numbers and names once more."""
    words = {*list_words(part)}
    rare = sum(math.log(of / often[word]) for word in words)
    marks = len(NUMBER.findall(part)) + len(NAME.findall(part))
    return (rare + 4 * marks) / math.sqrt(4 + len(words))


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

"""What guards and plain functions share: vocabularies, windows, messages read before, lessons.

One `Runtime` can be passed everywhere; `default()` is the one lazily built exception to "no
module state" and is made anew after a fork. It decides nothing about a conversation.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ullage import config
from ullage.core.counting import (
    CHAT,
    EXACT,
    UNKNOWN_TEMPLATE,
    UNKNOWN_VOCABULARY,
    Meter,
    Scale,
)
from ullage.core.settings import Settings
from ullage.core.wire.openai_chat import OpenAIChat
from ullage.counters import Vocabularies, vocabulary
from ullage.storage import MemoryCheckpoints
from ullage.transport import Ask, Timeouts, Transport
from ullage.windows import Options, Question, Resolver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.core.wire.openai_chat import Memo

MOST_MESSAGES: Final = 200_000
"""Messages kept as read; beyond it all are forgotten and read again."""

SANE: Final = (0.3, 5.0)
"""Ratios of reported to counted tokens that a real vocabulary can have: the averages of single
kinds of text ran from 0.75 to 3.63 (docs/design/counting.md). Others report something else."""

STEADY: Final = 8
"""Readings after which a learned ratio is trusted most."""


class Messages(dict[Any, Any]):
    """Messages read before, by content, up to a number of them."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= MOST_MESSAGES:
            self.clear()
        super().__setitem__(key, value)


@dataclass(frozen=True, slots=True)
class Lesson:
    """The ratio of reported to counted tokens of one endpoint and model, and how often seen."""

    ratio: float
    seen: int

    def and_then(self, ratio: float) -> Lesson:
        """Return the lesson after one more reading: a slow moving average."""
        seen = self.seen + 1
        return Lesson(self.ratio + (ratio - self.ratio) / min(seen, STEADY), seen)

    def scale(self) -> Scale:
        """Return the band: 15 % wide on each side after one reading, 5 % after many."""
        width = max(0.15 - 0.0125 * self.seen, 0.05)
        return Scale(self.ratio * (1 - width), self.ratio, self.ratio * (1 + width))


class Runtime:
    """Shared caches and what was learned. Safe to share between threads and event loops.

    Without `settings` none are read from files or the environment, and no lesson is kept on disk.
    """

    def __init__(
        self,
        *,
        transport: Transport | None = None,
        checkpoints: MemoryCheckpoints | None = None,
        settings: Settings | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or Settings()
        held = self.settings
        limits = Timeouts(held.connect_timeout_s, held.read_timeout_s)
        self.transport = transport or Transport(limits)
        options = Options(
            context_windows=held.context_windows,
            base_models=held.base_models,
            offline=held.offline,
            folder=Path(held.cache_dir) if held.cache_dir else None,
        )
        self.windows = Resolver(self.transport, now, options)
        self.checkpoints = checkpoints or MemoryCheckpoints()
        self.vocabularies = Vocabularies()
        messages: Memo = Messages()
        self.codec = OpenAIChat(messages)
        self._lessons: dict[tuple[str, str | None], Lesson] = {}
        self._lock = threading.Lock()

    def meter(self, question: Question) -> Meter:
        """Return how to measure for a model: exactly where its vocabulary is at hand.

        A server that is no known provider's may serve anything under any name: there the
        vocabulary is taken as unknown and calibrated by what the server reports.
        """
        known = vocabulary(question.model)
        counter = self.vocabularies.counter(known.name)
        if known.exact and self.windows.hosted(question):
            return Meter(counter, CHAT, EXACT, "exact")
        lesson = self._lessons.get((question.scope, question.model))
        if lesson is None:
            return Meter(counter, UNKNOWN_TEMPLATE, UNKNOWN_VOCABULARY, "estimate")
        return Meter(counter, UNKNOWN_TEMPLATE, lesson.scale(), "calibrated")

    def learn(self, question: Question, ratio: float) -> None:
        """Take in one reading of reported to counted tokens; one that cannot be is left out."""
        if not SANE[0] <= ratio <= SANE[1]:
            return
        key = (question.scope, question.model)
        with self._lock:
            held = self._lessons.get(key)
            self._lessons[key] = held.and_then(ratio) if held is not None else Lesson(ratio, 1)

    def server_count(self, question: Question, messages: list[Any], tools: Any) -> int | None:
        """Ask the server to count a request; None where it cannot."""
        ask = self._count(question, messages, tools)
        return _counted(self.transport.ask(ask)) if ask is not None else None

    async def aserver_count(
        self, question: Question, messages: list[Any], tools: Any
    ) -> int | None:
        """Do as `server_count`, without blocking the event loop."""
        ask = self._count(question, messages, tools)
        return _counted(await self.transport.aask(ask)) if ask is not None else None

    def _count(self, question: Question, messages: list[Any], tools: Any) -> Ask | None:
        url = self.windows.counts_at(question)
        if not url:
            return None
        body: dict[str, Any] = {"model": question.model or "", "messages": plain(messages)}
        if tools:
            body["tools"] = plain(tools)
        return Ask(url, body, question.api_key)


def plain(items: Any) -> list[Any]:
    """Return messages or tools as JSON can carry them: SDK objects become mappings."""
    return [i.model_dump(exclude_none=True) if hasattr(i, "model_dump") else i for i in items]


def _counted(answer: Any) -> int | None:
    body = answer.json()
    tokens = body.get("input_tokens") if isinstance(body, dict) else None
    return tokens if type(tokens) is int and tokens > 0 else None


class _Default:
    """Holds the default runtime of this process."""

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.lock = threading.Lock()

    def get(self) -> Runtime:
        with self.lock:
            if self.runtime is None:
                self.runtime = Runtime(settings=_settings())
            return self.runtime


def _settings() -> Settings:
    """Return what files and environment say; lessons go to the user's cache by default."""
    import platformdirs

    config.set_log_levels()
    settings = config.load().settings
    folder = settings.cache_dir or platformdirs.user_cache_dir("ullage", appauthor=False)
    return replace(settings, cache_dir=folder)


_default = _Default()


def default() -> Runtime:
    """Return this process's default runtime, built on first use."""
    return _default.get()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_default.__init__)  # type: ignore[misc]  # starts afresh

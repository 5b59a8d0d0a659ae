"""One session under all policies: loaded, read and measured once. What goes wrong is a row.

It is what a process or a Ray task runs; it knows none of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.errors import ConfigurationError, UllageError
from ullage.replay.history import read_history
from ullage.replay.places import load_place
from ullage.replay.scale import ReplayRuntime
from ullage.replay.values import ReplayRow
from ullage.replay.walk import ReadHistory, walk_session
from ullage.windows import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.config.settings import Settings
    from ullage.importers.session import ImportedSession
    from ullage.replay.history import RecordedHistory
    from ullage.replay.values import ReplayOptions

REMEMBERED: Final = 256 * 1024 * 1024
"""Bytes, about, of messages kept as they were read: a session goes through all policies."""

FAULTS: Final = (
    UllageError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    RecursionError, MemoryError, AssertionError,
)  # fmt: skip
"""What a broken file may raise, wherever it breaks: it never ends a run."""

LONGEST: Final = 300
"""Characters of what is told of a session that cannot be replayed."""


def make_runtime(settings: Settings) -> ReplayRuntime:
    """Return the runtime of a process that replays: it asks no server and writes no file."""
    alone = replace(
        settings, offline=True, store=None, cache_dir=None, summarizer=None, shares=None, pins=()
    )
    return ReplayRuntime(settings=alone, remembered=REMEMBERED)


class ReplayEngine:
    """Replays sessions by their places, one after the other."""

    def __init__(self, options: ReplayOptions) -> None:
        self.options = options
        self._runtime = make_runtime(options.settings)

    def replay_place(self, place: str, labels: Sequence[str]) -> list[ReplayRow]:
        """Return a row for each label. What a file holds may be anything: a fault is a row, too."""
        try:
            return self.replay(load_place(place, self.options.source), labels, place)
        except FAULTS as error:
            told = f"{type(error).__name__}: {error}"[:LONGEST]
            return [ReplayRow(place, label, fault=told) for label in labels]

    def replay(
        self, session: ImportedSession, labels: Sequence[str], place: str
    ) -> list[ReplayRow]:
        """Return what a session comes to under each policy.

        Raises ConfigurationError for one without an answer of a model, and an unknown window.
        """
        history = read_history(session)
        if self.options.model is not None:  # then all calls are of that one model
            turns = tuple(replace(turn, model=None) for turn in history.turns)
            history = replace(history, turns=turns, model=self.options.model)
        provider = session.providers[0] if session.providers else None
        question = Question(history.model, provider=provider)
        window = self._find_window(history, question)
        prices = self.options.prices
        if prices is None:
            prices = self._runtime.windows.prices(question)
        read = ReadHistory(
            history, self._runtime, question.model, prices, self.options.cache_life_s
        )
        policies, thorough = self.options.policies, self.options.thorough
        return [
            ReplayRow(place, label, walk_session(read, policies[label], window, thorough=thorough))
            for label in labels
        ]

    def _find_window(self, history: RecordedHistory, question: Question) -> int:
        found = self.options.window
        if found is None and self.options.model is None:
            found = history.window_tokens
        if found is None:
            known = self._runtime.windows.window(question)
            found = known.total_tokens or known.input_tokens
        if found is None:
            raise ConfigurationError(
                f"the window of {question.model or 'the model'} is unknown: give one in tokens, "
                "such as --window 200000"
            )
        return found

"""Replays one session under all policies: loads, reads and measures it once. Errors become rows.

A process or a Ray task runs it; it knows neither.
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
"""Approximate bytes of parsed messages in the cache, as a session goes through all policies."""

FAULTS: Final = (
    UllageError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    RecursionError, MemoryError, AssertionError,
)  # fmt: skip
"""Errors that a broken file may raise anywhere; they never end a run."""

LONGEST: Final = 300
"""Longest fault text of a session that cannot be replayed, in characters."""


def make_runtime(settings: Settings) -> ReplayRuntime:
    """Return the runtime of a replay process: it asks no server and writes no file."""
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
        """Return a row for each label. A file may hold anything: a fault becomes a row, too."""
        try:
            return self.replay(load_place(place, self.options.source), labels, place)
        except FAULTS as error:
            told = f"{type(error).__name__}: {error}"[:LONGEST]
            return [ReplayRow(place, label, fault=told) for label in labels]

    def replay(
        self, session: ImportedSession, labels: Sequence[str], place: str
    ) -> list[ReplayRow]:
        """Return the result of a session under each policy.

        Raises ConfigurationError for a session without a model's answer, and for an unknown window.
        """
        history = read_history(session)
        if self.options.model is not None:  # then all calls use that one model
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

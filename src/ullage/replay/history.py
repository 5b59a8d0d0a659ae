"""A recorded session as one growing history, with the calls that were made on it.

A program that compacts by itself leaves several windows in its file. This module removes their
summaries, and kept messages that therefore appear twice, so that each policy is tested on the
original messages. Values only; it knows no policy and no count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.core.dialects.usage import Usage
    from ullage.importers.session import ImportedSession, ModelTurn


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One call of a model with the first `stop` messages of the history; its answer follows them.

    `at` is its time in seconds, or None if the file has none. `usage` is the report on the original
    call. `grown` means that nothing was left out of that request, so the report is about the whole
    history.
    """

    stop: int
    at: float | None = None
    model: str | None = None
    usage: Usage | None = None
    grown: bool = True


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """A session: all its messages in the form of `dialect`, and its calls in order."""

    id: str
    dialect: str
    messages: tuple[Any, ...]
    turns: tuple[RecordedTurn, ...]
    system: Any = None
    tools: tuple[Any, ...] = ()
    max_tokens: int | None = None
    model: str | None = None
    window_tokens: int | None = None


def read_history(session: ImportedSession) -> RecordedHistory:
    """Return the history of a session; raises ConfigurationError if it has no model's answer."""
    places = _find_new(session)
    # For each position, the number of new messages before it.
    counts = [0]
    kept = set(places)
    for place in range(len(session.messages)):
        counts.append(counts[-1] + (place in kept))
    turns = tuple(_list_turns(session, counts))
    name = session.id or session.path
    if not turns:
        raise ConfigurationError(
            f"{name or 'the session'} holds no answer of a model: there is nothing to replay"
        )
    return RecordedHistory(
        name,
        session.dialect,
        tuple(session.messages[place] for place in places),
        turns,
        session.system,
        session.tools,
        session.max_tokens,
        session.model,
        session.window_tokens,
    )


def _find_new(session: ImportedSession) -> list[int]:
    """Return the positions of messages that are in no earlier window and are no summary."""
    starts = sorted({turn.start for turn in session.turns} | {0, session.start})
    summaries = frozenset(session.summaries)
    found: list[int] = []
    before: frozenset[str] = frozenset()
    for start, end in zip(starts, [*starts[1:], len(session.messages)], strict=True):
        first = next((turn.stop for turn in session.turns if turn.start == start), end)
        keys = [_write_key(message) for message in session.messages[start:end]]
        old = start
        if before:
            head = keys[: max(min(first, end) - start - 1, 0)]
            old += max((place + 1 for place, key in enumerate(head) if key in before), default=0)
        found += [place for place in range(old, end) if place not in summaries]
        before = frozenset(keys)
    return found


def _write_key(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _list_turns(session: ImportedSession, counts: Sequence[int]) -> Iterator[RecordedTurn]:
    """Yield the calls; if the file records none, one before each answer."""
    if not session.turns:
        for place in range(1, len(session.messages)):
            if _is_answer(session.messages, place):
                yield RecordedTurn(counts[place], None, session.model)
        return
    last = 0
    for turn in session.turns:
        stop = counts[turn.stop]
        if stop > last:  # else it requests a summary, or is a retry
            yield _make_turn(turn, stop)
            last = stop


def _make_turn(turn: ModelTurn, stop: int) -> RecordedTurn:
    at = _read_time(turn.at) if turn.at else None
    return RecordedTurn(stop, at, turn.model, turn.usage, grown=turn.start == 0)


def _is_answer(messages: Sequence[Any], place: int) -> bool:
    """Tell whether an answer begins here: a model's message after one of another author."""
    return _is_of_model(messages[place]) and not _is_of_model(messages[place - 1])


def _is_of_model(message: Any) -> bool:
    kinds = ("reasoning", "function_call", "custom_tool_call")
    return message.get("role") in ("assistant", "model") or message.get("type") in kinds


def _read_time(text: str) -> float | None:
    """Return the seconds of a time in ISO 8601, or None for other text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None

"""Finds the messages of opencode that were in the window at each call.

After a compaction, a window begins with the message that requested it and its summary. The kept
messages follow (`tail_start_id`), then the new ones (message-v2.ts, filterCompacted). If older
results were cleared, the same messages appear again without them. Reverted messages are hidden, and
the next message removes them (revert.ts); their calls were still paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from ullage.core.dialects.usage import Usage
from ullage.importers.opencode.parts import (
    CallStep,
    KeptMessage,
    cleared_ms,
    read_dollars,
    read_usage,
    render_answer,
    render_results,
    render_user,
    split_steps,
    tell_time,
)
from ullage.importers.session import CallReport, ModelTurn, PaidCall, words


class SentWindow:
    """The messages in order, their calls, and the paid calls."""

    def __init__(self, rows: Sequence[KeptMessage], revert: Mapping[str, Any]) -> None:
        self.messages: list[dict[str, Any]] = []
        self.turns: list[ModelTurn] = []
        self.calls: list[PaidCall] = []
        self.summaries: list[int] = []
        self.start = 0
        self.dollars = 0.0
        self.reverted = 0
        self.cleared = 0
        self._order: list[KeptMessage] = []
        self._now_ms = 0.0
        self._compacted = False
        asked = {words(row.info.get("parentID")) for row in rows if row.summarises}
        kept: list[KeptMessage] = []
        for row, left in zip(rows, _keep(rows, revert), strict=True):
            calls = self._pay(row)
            self.reverted += left is None
            if left is None:
                continue
            kept.append(left)
            if left.summarises:
                self._compact(kept)
            elif left.answers:
                self._answer(left, calls)
            elif left.find("compaction") is None or left.id not in asked:
                self._order.append(left)
                self._render(left)
        self._clear(inf)

    def current(self) -> ModelTurn | None:
        """Return the last reported call of this window, or None."""
        for turn in reversed(self.turns):
            if turn.start < self.start or turn.tokens is not None:
                return turn if turn.start == self.start else None
        return None

    def _pay(self, row: KeptMessage) -> list[int | None]:
        """Note the calls of a message; return their positions, None for a call without a report."""
        if not row.answers:
            return []
        told, places = row.info, list[int | None]()
        steps = split_steps(row)
        ends = [read_dollars(step.end.get("cost")) for step in steps if step.end is not None]
        self.dollars += read_dollars(told.get("cost")) or sum(ends)
        for number, step in enumerate(steps, 1):
            last = told if number == len(steps) else {}
            usage = read_usage((step.end or last).get("tokens"))
            places.append(len(self.calls) if usage is not None else None)
            if usage is not None:
                answer = render_answer(step)
                said = (answer,) if answer is not None else ()
                self.calls.append(PaidCall(usage, name_model(row), said, step.end is not None))
        return places

    def _answer(self, row: KeptMessage, calls: Sequence[int | None]) -> None:
        """Add a message of the assistant: one turn for each of its calls."""
        if row.info.get("summary") is True:
            return  # one that is being written, or failed
        self._clear(row.created_ms)
        self._order.append(row)
        for step, place in zip(split_steps(row), calls, strict=False):
            usage = self.calls[place].usage if place is not None else None
            if usage is not None or (row.is_sent and step.speaks):
                self._turn(row, usage, place)
            if row.is_sent:
                self._render_step(step)

    def _turn(self, row: KeptMessage, usage: Usage | None, place: int | None) -> None:
        self.turns.append(
            ModelTurn(
                len(self.turns) + 1,
                self.start,
                len(self.messages),
                CallReport.of(usage).tokens,
                usage,
                name_model(row),
                tell_time(row.created_ms),
                self._compacted,
                place,
            )
        )
        self._compacted = False

    # --- as it is sent --------------------------------------------------------------------------

    def _render(self, row: KeptMessage) -> None:
        if not row.answers:
            told = render_user(row)
            self.messages += [told] if told is not None else []
            return
        if row.summarises:
            self.summaries.append(len(self.messages))
        for step in split_steps(row) if row.is_sent else ():
            self._render_step(step)

    def _render_step(self, step: CallStep) -> None:
        answer = render_answer(step)
        if answer is not None:
            self.messages.append(answer)
            self.messages.extend(render_results(step, self._now_ms))

    # --- starts of new windows ------------------------------------------------------------------

    def _compact(self, rows: Sequence[KeptMessage]) -> None:
        """Begin a new window after the summary, which is the last row."""
        self._order = list(_select(rows))
        self._advance(rows[-1].created_ms)
        self._rebuild()

    def _clear(self, now_ms: float) -> None:
        """Begin a new window if results were cleared since the last call."""
        before = self._now_ms
        self._advance(now_ms)
        if self._now_ms > before:
            self._rebuild()

    def _advance(self, now_ms: float) -> None:
        times = [cleared_ms(part) for row in self._order for part in row.parts]
        new = [ms for ms in times if self._now_ms < ms <= now_ms]
        self._now_ms = max(new, default=self._now_ms)
        self.cleared += len(new)

    def _rebuild(self) -> None:
        self.start = len(self.messages)
        self._compacted = True
        for row in self._order:
            self._render(row)
        self.summaries = [place for place in self.summaries if place < len(self.messages)]


def _select(rows: Sequence[KeptMessage]) -> Iterator[KeptMessage]:
    """Yield the rows in the window after a compaction, whose summary is the last row."""
    *before, summary = rows
    ids = {row.id: place for place, row in enumerate(before) if not row.answers}
    asked = ids.get(words(summary.info.get("parentID")) or "")
    request = before[asked].find("compaction") if asked is not None else None
    if asked is None or request is None:  # first versions: a summary without a request
        yield summary
        return
    yield from before[asked:]
    yield summary
    first = words(request.get("tail_start_id"))
    tail = next((place for place, row in enumerate(before[:asked]) if row.id == first), asked)
    yield from before[tail:asked]


def _keep(rows: Sequence[KeptMessage], revert: Mapping[str, Any]) -> Iterator[KeptMessage | None]:
    """Yield each row with its remaining parts, or None for a reverted row."""
    first, part_id = words(revert.get("messageID")), words(revert.get("partID"))
    is_gone = False
    for row in rows:
        if not is_gone and first is not None and row.id == first:
            is_gone = True
            left = _cut_parts(row, part_id)
            yield replace(row, parts=left) if left else None
        else:
            yield None if is_gone else row


def _cut_parts(row: KeptMessage, part_id: str | None) -> tuple[Mapping[str, Any], ...]:
    """Return the parts before the reverted one, or none if no part is named."""
    ids = [words(part.get("id")) for part in row.parts]
    return row.parts[: ids.index(part_id)] if part_id is not None and part_id in ids else ()


def name_model(row: KeptMessage) -> str | None:
    """Return the model of an answer."""
    return words(row.info.get("modelID"))

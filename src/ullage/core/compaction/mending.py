"""Repair a broken history, so that it keeps the protocol of its dialect.

Each repair is recorded. This module reads `Rules` and knows no dialect, no policy and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from ullage.core.compaction.laws import (
    Unit,
    count_leading,
    find_end,
    find_lone_thoughts,
    is_late,
    is_lawful,
)
from ullage.core.messages.transcript import asks
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Codec, Joiner, Message, Raw, Transcript

Fault = Literal[
    "orphan_result",
    "missing_result",
    "duplicate_result",
    "duplicate_call",
    "misplaced_result",
    "missing_opening",
    "lone_reasoning",
]

ORPHAN_TEXT: Final = (
    "[ullage: no result was recorded for this tool call (orphan_tool_call); it may or may not "
    "have run]"
)


OPENING_TEXT: Final = "[ullage: the beginning of this conversation was not recorded]"


@dataclass(frozen=True, slots=True)
class Repair:
    """A repaired fault: its kind, the position as it arrived, and the remedy."""

    fault: Fault
    message: int
    detail: str


@dataclass(frozen=True, slots=True)
class Mended:
    """A history after repair: the caller's objects where nothing was wrong, and the record.

    `origin` has the original position of each message, None for a message that ullage wrote.
    """

    messages: list[Raw]
    repairs: tuple[Repair, ...]
    origin: tuple[int | None, ...] = ()

    def __repr__(self) -> str:
        return line("Mended", f"{len(self.messages):,} messages", f"{len(self.repairs):,} repairs")

    def map_positions(self, positions: Collection[int]) -> frozenset[int]:
        """Return the new positions of messages that arrived at `positions`, without lost ones."""
        if not positions:
            return frozenset()
        return frozenset(new for new, old in enumerate(self.origin) if old in positions)


def repair(transcript: Transcript, codec: Codec) -> Mended:
    """Repair a history by rule: move, drop or answer misplaced messages, and record it.

    - An orphan result is dropped. A missing result is written as an error result.
    - The first of two results for one call stays.
    - A result after its turn is moved to its call.
    - A second call with the same id in a response is renamed, and so is its result.
    - Reasoning without a result is dropped if responses are split over messages.

    Lawful messages stay the same objects. If results share a message, only the faulty results go.
    If the history lost its first user message, a new one is written.
    """
    if is_lawful(transcript):
        return skip_repair(transcript)
    if transcript.rules.joins:
        return _Joining(transcript, cast("Joiner", codec)).run()
    return _Repairer(transcript, codec).run()


def skip_repair(transcript: Transcript) -> Mended:
    """Return a history as it arrived."""
    return Mended(list(transcript.raws), (), transcript.list_places())


_Place = tuple[int, int]
"""A message, and the index of one of its calls or results."""


class _Written(NamedTuple):
    """A message of a repaired history, its original position, and its role."""

    raw: Raw
    origin: int | None
    role: str


class _Repairer:
    """One pass over a history. Results are matched to the latest response with their call.

    `_beside` has the response directly before a message of results, `_names` the new call ids.
    """

    def __init__(self, transcript: Transcript, codec: Codec) -> None:
        self._transcript = transcript
        self._codec = codec
        self._repairs: list[Repair] = []
        self._responses: dict[int, Unit] = {}
        self._beside: dict[int, Unit] = {}
        self._survey()
        self._names = self._rename()
        self._matched = self._match()

    def run(self) -> Mended:
        written: list[_Written] = []
        last = {unit.stop - 1: unit for unit in self._responses.values()}
        lone = {*find_lone_thoughts(self._transcript)}
        for index in lone:
            self._note("lone_reasoning", index, "reasoning that led to nothing: left out")
        for index, message in enumerate(self._transcript.messages):
            raw = None if index in lone else self._own(index, message)
            if raw is not None:
                written.append(_Written(raw, index, message.role))
            if index in last:
                written += self._answers(last[index])
        written = self._add_opening(written)
        repairs = tuple(sorted(self._repairs, key=lambda r: r.message))
        return Mended([w.raw for w in written], repairs, tuple(w.origin for w in written))

    def _survey(self) -> None:
        """Find the responses with calls, by their start, and the result messages after them."""
        messages, index = self._transcript.messages, 0
        while index < len(messages):
            stop = find_end(self._transcript, index)
            if any(m.calls for m in messages[index:stop]):
                response = self._responses[index] = Unit(index, stop)
                most = stop + 1 if self._transcript.rules.joins else len(messages)
                while stop < most and stop < len(messages) and messages[stop].results:
                    self._beside[stop] = response
                    stop += 1
            index = stop

    def _calls(self, response: Unit) -> list[_Place]:
        messages = self._transcript.messages
        return [(i, c) for i in range(response.start, response.stop) for c in _all(messages[i])]

    def _id(self, call: _Place) -> str:
        return self._transcript.messages[call[0]].calls[call[1]].id

    def _rename(self) -> dict[_Place, str]:
        """Return new ids for calls whose id repeats in their response, or in the whole history."""
        rules = self._transcript.rules
        taken = {call.id for message in self._transcript.messages for call in message.calls}
        seen: dict[str, int] = {}
        names: dict[_Place, str] = {}
        for response in self._responses.values():
            seen = seen if rules.joins and not rules.ordered else {}
            for place in self._calls(response):
                name = old = self._id(place)
                seen[old] = seen.get(old, 0) + 1
                while seen[old] > 1 and name in taken:
                    name = f"{old}{rules.twin}{seen[old]}"
                    seen[old] += name in taken
                if name != old:
                    names[place] = name
                    self._note("duplicate_call", place[0], f"call {old!r} renamed {name!r}")
                    taken = taken | {name} if rules.joins else taken
        return names

    def _match(self) -> dict[_Place, _Place]:
        """Return the place of the result of each call."""
        matched: dict[_Place, _Place] = {}
        latest: dict[str, list[_Place]] = {}
        home: dict[_Place, Unit] = {}
        for index, message in enumerate(self._transcript.messages):
            response = self._responses.get(index)
            if response is not None:
                asked: dict[str, list[_Place]] = {}
                for place in self._calls(response):
                    asked.setdefault(self._id(place), []).append(place)
                    home[place] = response
                latest |= asked
            for position, answered in enumerate(message.results):
                places = latest.get(answered)
                free = [p for p in places or () if p not in matched]
                if not places:
                    self._note("orphan_result", index, f"no call {answered!r}: left out")
                elif not free:
                    self._note("duplicate_result", index, f"call {answered!r} has one: left out")
                else:
                    matched[free[0]] = (index, position)
                    placed = self._beside.get(index) is home[free[0]]
                    if not placed or position >= count_leading(message):
                        self._note("misplaced_result", index, f"moved to call {answered!r}")
        return matched

    def _ids(self, index: int, message: Message) -> dict[int, str]:
        return {c: self._names[index, c] for c in _all(message) if (index, c) in self._names}

    def _own(self, index: int, message: Message) -> Raw | None:
        """Return the message for its place, or None for results, which follow their calls."""
        if message.results:
            return None
        ids, raw = self._ids(index, message), self._transcript.raws[index]
        return self._codec.readdress(raw, ids) if ids else raw

    def _answers(self, response: Unit) -> list[_Written]:
        """Return the results of a response, one message each."""
        written: list[_Written] = []
        for call in self._order_calls(response):
            found = self._matched.get(call)
            if found is None:
                written.append(_Written(self._missing(call), None, "tool"))
                continue
            raw = self._transcript.raws[found[0]]
            if call in self._names:
                raw = self._codec.readdress(raw, {0: self._names[call]})
            written.append(_Written(raw, found[0], "tool"))
        return written

    def _order_calls(self, response: Unit) -> list[_Place]:
        """Return the calls of a response in the order of its results.

        If each response is one message, servers' chat templates pair results by the order of the
        calls. Otherwise results in place keep their order, and others follow.
        """
        rules = self._transcript.rules

        def place(call: _Place) -> tuple[bool, _Place]:
            found = self._matched.get(call)
            if found is None or self._beside.get(found[0]) is not response:
                return True, call
            return False, found

        calls = self._calls(response)
        return sorted(calls, key=place) if rules.joins or rules.split_calls else calls

    def _missing(self, call: _Place) -> Raw:
        name = self._names.get(call, self._id(call))
        self._note("missing_result", call[0], f"call {name!r} got an error result")
        return self._codec.answer(self._transcript.raws[call[0]], call[1], ORPHAN_TEXT, name)

    def _add_opening(self, written: list[_Written]) -> list[_Written]:
        return written

    def _note(self, fault: Fault, index: int, detail: str) -> None:
        self._repairs.append(Repair(fault, index, detail))


class _Joining(_Repairer):
    """The same if the results of a response share one message, maybe with a user's words."""

    def __init__(self, transcript: Transcript, codec: Joiner) -> None:
        super().__init__(transcript, codec)
        self._joiner = codec
        self._placed: set[int] = set()

    def _own(self, index: int, message: Message) -> Raw | None:
        """Return a message without its results, or None if it is empty then or already placed."""
        if index in self._placed:
            return None
        ids, raw = self._ids(index, message), self._transcript.raws[index]
        raw = self._codec.readdress(raw, ids) if ids else raw
        return self._joiner.gather(raw, ()) if message.results else raw

    def _answers(self, response: Unit) -> list[_Written]:
        """Return the one message with the results of a response, unchanged if it is correct."""
        calls, raws = self._order_calls(response), self._transcript.raws
        sources = {found[0]: None for c in calls if (found := self._matched.get(c))}
        whole = self._whole(calls, response)
        host = response.stop if response.stop in sources else None
        origin = whole if whole is not None else host
        if origin is None:
            origin = next((u for u in sources if self._bare(u) and u not in self._placed), None)
        if origin is not None:
            self._placed.add(origin)
        if whole is not None:
            return [_Written(raws[whole], whole, "user")]
        results = [self._piece(call) for call in calls]
        made = self._joiner.gather(None if host is None else raws[host], results)
        return [_Written(made, origin, "user")]

    def _piece(self, call: _Place) -> tuple[Raw, int, str]:
        found, name = self._matched.get(call), self._names.get(call, self._id(call))
        if found is None:
            return self._missing(call), 0, name
        return self._transcript.raws[found[0]], found[1], name

    def _whole(self, calls: list[_Place], response: Unit) -> int | None:
        """Return the message with exactly these results, under their ids, in a lawful form."""
        found = {self._matched.get(call, (-1, 0))[0] for call in calls}
        index = found.pop()
        if found or index < 0 or not self._names.keys().isdisjoint(calls):
            return None
        message = self._transcript.messages[index]
        right = len(message.results) == len(calls) and not is_late(message)
        return index if right and (index == response.stop or self._bare(index)) else None

    def _bare(self, index: int) -> bool:
        """Tell whether a message is a user's and holds only results."""
        message = self._transcript.messages[index]
        return message.role == "user" and not message.calls and not asks(message)

    def _add_opening(self, written: list[_Written]) -> list[_Written]:
        if not written or written[0].role in self._transcript.rules.first_roles:
            return written
        opening = written[0].origin or 0
        if self._transcript.messages[opening].is_compaction:
            return written
        self._note("missing_opening", opening, "a user message was put in front")
        return [_Written(self._codec.author("user", OPENING_TEXT), None, "user"), *written]


def _all(message: Message) -> range:
    return range(len(message.calls))

"""What no compaction may break: units, legal cut points, checks that prove, rules that repair.

The numbers are those of the laws on the compaction page: 1 protocol, 2 smaller, 3 fits, 4 pins,
5 untouched; 6 (idempotent) and 7 (deterministic) are properties of the planner and are proven by
tests. It reads `Rules` and knows no dialect, no policy and no tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from ullage.core.transcript import asks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ullage.core.edits import Edited, Script
    from ullage.core.transcript import Codec, Message, Raw, Transcript

Law = Literal["protocol", "smaller", "fits", "pins", "untouched"]
Fault = Literal[
    "orphan_result", "missing_result", "duplicate_result", "duplicate_call", "misplaced_result"
]

ORPHAN_TEXT: Final = (
    "[ullage: no result was recorded for this tool call (orphan_tool_call); it may or may not "
    "have run]"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages [start, stop) that live or die together: a response with all its results."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that a result breaks, where (position in the result) and how."""

    law: Law
    message: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A fault of a history that arrived, where (position as it arrived) and what was done."""

    fault: Fault
    message: int
    detail: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """A history after repair: the caller's objects where nothing was wrong, and the record.

    `origin` has the position at which each message arrived, None for one that was written.
    """

    messages: list[Raw]
    repairs: tuple[Repair, ...]
    origin: tuple[int | None, ...] = ()

    def moved(self, positions: Collection[int]) -> frozenset[int]:
        """Return where messages that arrived at `positions` are now; left-out ones are nowhere."""
        return frozenset(new for new, old in enumerate(self.origin) if old in positions)


def units(transcript: Transcript) -> list[Unit]:
    """Split a lawful transcript into its units; every unit border is a legal cut point."""
    found: list[Unit] = []
    start, n = 0, len(transcript)
    messages = transcript.messages
    while start < n:
        stop = _response(messages, start) if transcript.rules.split_calls else start + 1
        if any(m.calls for m in messages[start:stop]):
            while stop < n and messages[stop].results:
                stop += 1
        found.append(Unit(start, stop))
        start = stop
    return found


def _response(messages: Sequence[Message], start: int) -> int:
    """Return where a response ends that is split over messages, its results not included.

    Parallel calls belong together, with the reasoning before and between them; without calls,
    reasoning belongs to the answer that it led to (the API refuses one without the other).
    """
    stop = start
    calls = 0
    while stop < len(messages) and _asks_on(messages[stop]):
        stop += 1
        calls = stop if messages[stop - 1].calls else calls
    following = messages[stop] if stop < len(messages) else None
    if calls:
        return stop if following is not None and following.results else calls
    answers = following is not None and following.role == "assistant"
    return max(stop + answers, start + 1)


def _asks_on(message: Message) -> bool:
    """Tell whether a message may stand among parallel calls: one of them, reasoning, a search."""
    silent = all(part.kind in ("reasoning", "other") for part in message.parts)
    return bool(message.calls) or (message.role == "assistant" and silent)


def protocol(transcript: Transcript) -> list[Violation]:
    """Check law 1: pairs, exactly one result per call, order of roles."""
    found: list[Violation] = []
    waiting: dict[str, int] = {}
    asking = False  # in a response whose calls stand in messages of their own
    for index, message in enumerate(transcript.messages):
        for answered in message.results:
            if waiting.pop(answered, None) is None:
                found.append(_broken(index, f"a result for {answered!r}, which no call asked for"))
        asking = asking and _asks_on(message)
        if waiting and not message.results and not asking:
            found += [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]
            waiting = {}
        asking = asking or (transcript.rules.split_calls and bool(message.calls))
        for call in message.calls:
            if call.id in waiting:
                found.append(_broken(index, f"the call id {call.id!r} is used twice"))
            waiting[call.id] = index
    found += [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]
    return found + _order(transcript)


def _order(transcript: Transcript) -> list[Violation]:
    spoken = [(i, m) for i, m in enumerate(transcript.messages) if not m.is_system]
    rules = transcript.rules
    found: list[Violation] = []
    if spoken and spoken[0][1].role not in rules.first_roles:
        found.append(_broken(spoken[0][0], f"the conversation opens with {spoken[0][1].role!r}"))
    if rules.alternation:
        same = [i for (_, a), (i, b) in pairwise(spoken) if a.role == b.role]
        found += [_broken(i, "two messages of one role in a row") for i in same]
    return found


def _broken(index: int, detail: str) -> Violation:
    return Violation("protocol", index, detail)


def prove(
    before: Transcript, script: Script, after: Edited, pins: Collection[int]
) -> list[Violation]:
    """Check laws 1, 4 and 5 on the result `after` of applying `script` to `before`."""
    found = protocol(after.transcript)
    place = {old: new for new, old in enumerate(after.origin) if old is not None}
    touched = {c.message for c in script.clears}
    shortened = {before.task()} & touched
    for pin in sorted(pins):
        if pin not in place:
            found.append(Violation("pins", pin, "a pinned message was left out"))
        elif pin in touched and pin not in shortened:
            found.append(Violation("pins", pin, "a pinned message was changed"))
    for old, new in place.items():
        if old not in touched and after.transcript.raws[new] is not before.raws[old]:
            found.append(Violation("untouched", new, "a message that no edit names was changed"))
    return found


def prove_size(before: int, after: int, target: int | None, *, reached: bool) -> list[Violation]:
    """Check laws 2 and 3 on upper edges in tokens: smaller, and at or under the target if said."""
    found: list[Violation] = []
    if after >= before:
        found.append(Violation("smaller", None, f"{after:,} tokens after, {before:,} before"))
    if reached and target is not None and after > target:
        found.append(Violation("fits", None, f"{after:,} tokens, the target is {target:,}"))
    return found


def repair(transcript: Transcript, codec: Codec) -> Repaired:
    """Repair a history by rule: what is out of place is moved, dropped or answered, with a record.

    An orphan result is left out; a missing result is written as an error result; of two results
    for one call the first stays; a result behind its turn is moved to its call; a second call
    with an id of the same response is renamed, and so is its result. Lawful messages stay the
    same objects.
    """
    if not protocol(transcript):
        return Repaired(list(transcript.raws), (), tuple(range(len(transcript))))
    return _Repairer(transcript, codec).run()


class _Repairer:
    """One pass over a history. Results are matched to the latest response that asked for them."""

    def __init__(self, transcript: Transcript, codec: Codec) -> None:
        self._transcript = transcript
        self._codec = codec
        self._repairs: list[Repair] = []

    def run(self) -> Repaired:
        results = self._match()
        messages: list[Raw] = []
        origin: list[int | None] = []
        for index, message in enumerate(self._transcript.messages):
            if message.results and not asks(message):
                continue
            ids = self._ids(index, message)
            raw = self._transcript.raws[index]
            messages.append(self._codec.readdress(raw, ids) if ids else raw)
            origin.append(index)
            for position, call in enumerate(message.calls):
                found = results.get((index, position))
                name = ids.get(position, call.id)
                origin.append(found)
                if found is None:
                    self._note("missing_result", index, f"call {name!r} got an error result")
                    messages.append(self._codec.author("tool", ORPHAN_TEXT, name))
                else:
                    raw = self._transcript.raws[found]
                    renamed = name != call.id
                    messages.append(self._codec.readdress(raw, {0: name}) if renamed else raw)
        repairs = tuple(sorted(self._repairs, key=lambda r: r.message))
        return Repaired(messages, repairs, tuple(origin))

    def _ids(self, index: int, message: Message) -> dict[int, str]:
        """Return new ids for the calls that repeat an id of their own response."""
        seen: dict[str, int] = {}
        ids: dict[int, str] = {}
        for position, call in enumerate(message.calls):
            seen[call.id] = seen.get(call.id, 0) + 1
            if seen[call.id] > 1:
                ids[position] = f"{call.id}~{seen[call.id]}"
                self._note("duplicate_call", index, f"call {call.id!r} renamed {ids[position]!r}")
        return ids

    def _match(self) -> dict[tuple[int, int], int]:
        """Return the position of the result of each call, keyed by (message, call)."""
        matched: dict[tuple[int, int], int] = {}
        latest: dict[str, list[tuple[int, int]]] = {}
        unit = -1
        for index, message in enumerate(self._transcript.messages):
            if message.calls:
                unit = index
                asked: dict[str, list[tuple[int, int]]] = {}
                for position, call in enumerate(message.calls):
                    asked.setdefault(call.id, []).append((index, position))
                latest |= asked
            elif not message.results:
                unit = -1
            for answered in message.results if not asks(message) else ():
                places = latest.get(answered)
                free = [p for p in places or () if p not in matched]
                if not places:
                    self._note("orphan_result", index, f"no call {answered!r}: left out")
                elif not free:
                    self._note("duplicate_result", index, f"call {answered!r} has one: left out")
                else:
                    matched[free[0]] = index
                    if free[0][0] != unit:
                        self._note("misplaced_result", index, f"moved to call {answered!r}")
        return matched

    def _note(self, fault: Fault, index: int, detail: str) -> None:
        self._repairs.append(Repair(fault, index, detail))


def pinned(messages: Sequence[Message]) -> set[int]:
    """Return the positions of operator text: every system and developer message."""
    return {i for i, m in enumerate(messages) if m.is_system}

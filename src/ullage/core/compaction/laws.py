"""What no compaction may break: units, legal cut points, checks that prove, rules that repair.

The numbers are those of the laws on the compaction page: 1 protocol, 2 smaller, 3 fits, 4 pins,
5 untouched; 6 (idempotent) and 7 (deterministic) are properties of the planner and are proven by
tests. It reads `Rules` and knows no dialect, no policy and no tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, compress, count, islice, pairwise, takewhile
from operator import is_not
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from ullage.core.messages.transcript import OPERATOR, asks
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ullage.core.compaction.edits import Edited, Script
    from ullage.core.messages.transcript import Codec, Joiner, Message, Raw, Transcript

Law = Literal["protocol", "smaller", "fits", "pins", "untouched"]
Fault = Literal[
    "orphan_result",
    "missing_result",
    "duplicate_result",
    "duplicate_call",
    "misplaced_result",
    "missing_opening",
]

ORPHAN_TEXT: Final = (
    "[ullage: no result was recorded for this tool call (orphan_tool_call); it may or may not "
    "have run]"
)


OPENING_TEXT: Final = "[ullage: the beginning of this conversation was not recorded]"


Unit = range
"""Positions of messages that live or die together: a response with all its results. A range is
nothing that the garbage collector has to walk, and a long history has many units."""


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

    def __repr__(self) -> str:
        return line(
            "Repaired", f"{len(self.messages):,} messages", f"{len(self.repairs):,} repairs"
        )

    def moved(self, positions: Collection[int]) -> frozenset[int]:
        """Return where messages that arrived at `positions` are now; left-out ones are nowhere."""
        if not positions:
            return frozenset()
        return frozenset(new for new, old in enumerate(self.origin) if old in positions)


class Survey(NamedTuple):
    """What a history is made of: its units in order, and how it breaks law 1."""

    units: tuple[Unit, ...]
    violations: tuple[Violation, ...]


def survey(transcript: Transcript) -> Survey:
    """Return units and violations of a history; of a lawful one that grew, only what is new.

    Every border of a unit is a legal cut point. What is known is kept in the transcript's memo.
    """
    done, known = transcript.memo.get(_SURVEY, (0, ()))
    settled: tuple[Unit, ...] = known[:-1]  # the last one may have grown
    if done == len(transcript) and known:
        return Survey(known, ())
    start = settled[-1].stop if settled else 0
    starts = _paired(transcript, start)
    if starts is None or transcript.rules.loops:
        new, violations = _units(transcript, start), protocol(transcript, start)
    else:
        ends = chain(starts[1:], (len(transcript),))
        new, violations = list(map(Unit, starts, ends)), _order(transcript, start)
    found = Survey((*settled, *new), tuple(violations))
    if not found.violations:
        transcript.memo[_SURVEY] = (len(transcript), found.units)
    return found


_SURVEY: Final = "survey"


def units(transcript: Transcript) -> tuple[Unit, ...]:
    """Return the units of a lawful history."""
    return survey(transcript).units


def _paired(transcript: Transcript, start: int) -> list[int] | None:
    """Return where units begin from `start` on, if all is well with calls and results there.

    None where something is not, or where the dialect has more to say: `protocol` then tells what
    and `_units` where. Nearly all histories are lawful, and this is the quick way to see it.
    """
    if transcript.rules.split_calls or transcript.rules.joins:
        return None
    starts: list[int] = []
    waiting: list[str] = []
    for index, message in enumerate(islice(transcript.messages, start, None), start):
        calls, results = message.calls, message.results
        if (not results) is not (not waiting) or (calls and results):
            return None
        for answered in results:
            if answered not in waiting:
                return None
            waiting.remove(answered)
        if results:
            continue
        starts.append(index)
        if calls:
            waiting = [call.id for call in calls]
            if len(calls) > 1 and len(set(waiting)) < len(calls):
                return None
    return None if waiting else starts


def _units(transcript: Transcript, start: int) -> list[Unit]:
    found: list[Unit] = []
    messages, rules, n = transcript.messages, transcript.rules, len(transcript)
    simple = not (rules.split_calls or rules.joins)
    while start < n:
        stop = start + 1 if simple else _end(transcript, start)
        if messages[start].calls or (
            stop > start + 1 and any(m.calls for m in messages[start:stop])
        ):
            while stop < n and messages[stop].results:
                stop += 1
        while stop < n and rules.joins and messages[stop].is_system:
            stop += 1
        whole = rules.loops and messages[start].role == "assistant"
        # a person's words beside results do not end a loop: its calls would lose those results
        while whole and stop < n and (messages[stop].results or not asks(messages[stop])):
            stop += 1
        found.append(Unit(start, stop))
        start = stop
    return found


def _end(transcript: Transcript, start: int) -> int:
    """Return where the response ends that begins at `start`, its results not included."""
    if transcript.rules.split_calls:
        return _response(transcript.messages, start)
    stop = start
    while transcript.rules.joins and stop < len(transcript) and _responds(transcript, stop):
        stop += 1
    return max(stop, start + 1)


def _responds(transcript: Transcript, index: int) -> bool:
    message = transcript.messages[index]
    return message.role == "assistant" or bool(message.calls)


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


def protocol(transcript: Transcript, start: int = 0) -> list[Violation]:
    """Check law 1: pairs, exactly one result per call, order of roles.

    What stands before `start`, whole units, is known to be lawful.
    """
    if _paired(transcript, start) is not None:
        return _order(transcript, start)
    if transcript.rules.joins:
        return _turns(transcript, start) + _order(transcript, start)
    found: list[Violation] = []
    waiting: dict[str, int] = {}
    asking = False  # in a response whose calls stand in messages of their own
    split = transcript.rules.split_calls
    for index, message in enumerate(transcript.messages[start:], start):
        calls, results = message.calls, message.results
        if not (calls or results or waiting or asking):
            continue
        for answered in results:
            if waiting.pop(answered, None) is None:
                found.append(_broken(index, f"a result for {answered!r}, which no call asked for"))
        asking = asking and _asks_on(message)
        if waiting and not results and not asking:
            found += [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]
            waiting = {}
        asking = asking or (split and bool(calls))
        for call in calls:
            if call.id in waiting:
                found.append(_broken(index, f"the call id {call.id!r} is used twice"))
            waiting[call.id] = index
    found += [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]
    return found + _order(transcript, start)


def _turns(transcript: Transcript, start: int) -> list[Violation]:
    """Check pairs where the message behind a response holds all its results, first in it."""
    found: list[Violation] = []
    waiting: dict[str, int] = {}
    once = not transcript.rules.ordered
    before = transcript.messages[: start if once else 0]
    used = {call.id for message in before for call in message.calls}
    for index, message in enumerate(transcript.messages[start:], start):
        responds = _responds(transcript, index)
        for answered in message.results:
            if responds or waiting.pop(answered, None) is None:
                found.append(_broken(index, f"a result for {answered!r}, which no call asked for"))
        if _late(message):
            found.append(_broken(index, "a result stands behind what is none: results come first"))
        if not responds:
            found += [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]
            waiting, used = {}, used if once else set()
        for call in message.calls:
            if call.id in used:
                found.append(_broken(index, f"the call id {call.id!r} is used twice"))
            used.add(call.id)
            waiting[call.id] = index
    return found + [_broken(i, f"the call {c!r} has no result") for c, i in waiting.items()]


def _late(message: Message) -> bool:
    """Tell whether a result stands behind a part that belongs to none."""
    return _leading(message) < len(message.results)


def _leading(message: Message) -> int:
    """Return how many results stand in front of the first part that belongs to none."""
    first = takewhile(lambda part: part.answers is not None, message.parts)
    return sum(part.kind == "result" for part in first)


def _order(transcript: Transcript, start: int) -> list[Violation]:
    rules, messages = transcript.rules, transcript.messages
    found: list[Violation] = []
    first = next((i for i, m in enumerate(messages) if not m.is_system), None)
    if first is not None and messages[first].role not in rules.first_roles:
        found.append(_broken(first, f"the conversation opens with {messages[first].role!r}"))
    if rules.alternation:
        spoken = [(i, m.role) for i, m in enumerate(messages) if not m.is_system]
        same = [i for (_, a), (i, b) in pairwise(spoken) if a == b and i >= start]
        found += [_broken(i, "two messages of one role in a row") for i in same]
    return found


def _broken(index: int, detail: str) -> Violation:
    return Violation("protocol", index, detail)


def prove(
    before: Transcript,
    script: Script,
    after: Edited,
    pins: Collection[int],
    verbatim: Collection[int] = (),
) -> list[Violation]:
    """Check laws 1, 4 and 5 on the result `after` of applying `script` to `before`.

    The task is pinned and may be shortened all the same, unless it is among the `verbatim` ones.
    """
    found = protocol(after.transcript)
    touched = {c.message for c in script.clears}
    shortened = ({before.task()} & touched).difference(verbatim)
    left = set(after.origin)
    for pin in sorted(pins):
        if pin not in left:
            found.append(Violation("pins", pin, "a pinned message was left out"))
        elif pin in touched and pin not in shortened:
            found.append(Violation("pins", pin, "a pinned message was changed"))
    was, now = before.raws, after.transcript.raws
    other = map(is_not, now, [None if old is None else was[old] for old in after.origin])
    changed = [
        new
        for new, old in compress(enumerate(after.origin), other)
        if old is not None and old not in touched
    ]
    detail = "a message that no edit names was changed"
    return found + [Violation("untouched", new, detail) for new in changed]


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
    same objects. Where results share messages, of a message only the results at fault go, and a
    user message is written in front of a history that lost its first one.
    """
    if not survey(transcript).violations:
        return unrepaired(transcript)
    if transcript.rules.joins:
        return _Joining(transcript, cast("Joiner", codec)).run()
    return _Repairer(transcript, codec).run()


def unrepaired(transcript: Transcript) -> Repaired:
    """Return a history as it arrived."""
    return Repaired(list(transcript.raws), (), tuple(range(len(transcript))))


_Place = tuple[int, int]
"""A message, and which of its calls or of its results."""


class _Written(NamedTuple):
    """A message of a repaired history, where it came from, and its role."""

    raw: Raw
    origin: int | None
    role: str


class _Repairer:
    """One pass over a history. Results are matched to the latest response that asked for them.

    `_beside` has the response that a message of results stands right behind, `_names` the call
    ids that are new.
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

    def run(self) -> Repaired:
        written: list[_Written] = []
        last = {unit.stop - 1: unit for unit in self._responses.values()}
        for index, message in enumerate(self._transcript.messages):
            raw = self._own(index, message)
            if raw is not None:
                written.append(_Written(raw, index, message.role))
            if index in last:
                written += self._answers(last[index])
        written = self._opened(written)
        repairs = tuple(sorted(self._repairs, key=lambda r: r.message))
        return Repaired([w.raw for w in written], repairs, tuple(w.origin for w in written))

    def _survey(self) -> None:
        """Find the responses with calls, by where they begin, and what stands behind them."""
        messages, index = self._transcript.messages, 0
        while index < len(messages):
            stop = _end(self._transcript, index)
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
        """Return new ids for calls that repeat one: of their response, or of the whole history."""
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
                    if not placed or position >= _leading(message):
                        self._note("misplaced_result", index, f"moved to call {answered!r}")
        return matched

    def _ids(self, index: int, message: Message) -> dict[int, str]:
        return {c: self._names[index, c] for c in _all(message) if (index, c) in self._names}

    def _own(self, index: int, message: Message) -> Raw | None:
        """Return what stays of a message at its place; None for results: they go by their calls."""
        if message.results:
            return None
        ids, raw = self._ids(index, message), self._transcript.raws[index]
        return self._codec.readdress(raw, ids) if ids else raw

    def _answers(self, response: Unit) -> list[_Written]:
        """Return the results of a response, one message each."""
        written: list[_Written] = []
        for call in self._ordered(response):
            found = self._matched.get(call)
            if found is None:
                written.append(_Written(self._missing(call), None, "tool"))
                continue
            raw = self._transcript.raws[found[0]]
            if call in self._names:
                raw = self._codec.readdress(raw, {0: self._names[call]})
            written.append(_Written(raw, found[0], "tool"))
        return written

    def _ordered(self, response: Unit) -> list[_Place]:
        """Return the calls of a response in the order of its results.

        Where each response is one message, servers' chat templates pair results by the order of
        the calls; elsewhere results in their place keep their order, and others follow.
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

    def _opened(self, written: list[_Written]) -> list[_Written]:
        return written

    def _note(self, fault: Fault, index: int, detail: str) -> None:
        self._repairs.append(Repair(fault, index, detail))


class _Joining(_Repairer):
    """The same where the results of a response share one message, maybe with what a user says."""

    def __init__(self, transcript: Transcript, codec: Joiner) -> None:
        super().__init__(transcript, codec)
        self._joiner = codec
        self._placed: set[int] = set()

    def _own(self, index: int, message: Message) -> Raw | None:
        """Return a message without its results; None where nothing is left, or it is in place."""
        if index in self._placed:
            return None
        ids, raw = self._ids(index, message), self._transcript.raws[index]
        raw = self._codec.readdress(raw, ids) if ids else raw
        return self._joiner.gather(raw, ()) if message.results else raw

    def _answers(self, response: Unit) -> list[_Written]:
        """Return the one message with the results of a response: as it came, if it is right."""
        calls, raws = self._ordered(response), self._transcript.raws
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
        """Return the message that holds just these results, under their ids, in a lawful form."""
        found = {self._matched.get(call, (-1, 0))[0] for call in calls}
        index = found.pop()
        if found or index < 0 or not self._names.keys().isdisjoint(calls):
            return None
        message = self._transcript.messages[index]
        right = len(message.results) == len(calls) and not _late(message)
        return index if right and (index == response.stop or self._bare(index)) else None

    def _bare(self, index: int) -> bool:
        """Tell whether a message is a user's and holds nothing but results."""
        message = self._transcript.messages[index]
        return message.role == "user" and not message.calls and not asks(message)

    def _opened(self, written: list[_Written]) -> list[_Written]:
        first = self._transcript.rules.first_roles
        if not written or written[0].role in first:
            return written
        self._note("missing_opening", written[0].origin or 0, "a user message was put in front")
        return [_Written(self._codec.author("user", OPENING_TEXT), None, "user"), *written]


def _all(message: Message) -> range:
    return range(len(message.calls))


def pinned(messages: Sequence[Message]) -> set[int]:
    """Return the positions of operator text: every system and developer message."""
    roles = [message.role for message in messages]
    return set(compress(count(), map(OPERATOR.__contains__, roles)))

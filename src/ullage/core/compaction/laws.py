"""Laws of compaction: units, legal cut points, and checks that prove a result.

The numbers are those of the compaction page: 1 protocol, 2 smaller, 3 fits, 4 pins, 5 untouched. 6
(idempotent) and 7 (deterministic) are properties of the planner, proven by tests. This module reads
`Rules` and knows no dialect, no policy and no tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, compress, count, islice, pairwise, takewhile
from operator import is_not
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.compaction.binding import unbind
from ullage.core.messages.transcript import OPERATOR, THOUGHTS, asks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ullage.core.compaction.edits import Edited, Script
    from ullage.core.messages.transcript import Message, Transcript

Law = Literal["protocol", "smaller", "fits", "pins", "untouched"]
Unit = range
"""Positions of messages that stay or go together: a response with all its results. The garbage
collector does not have to walk a range, and a long history has many units."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that a result breaks, with the position in the result and the details."""

    law: Law
    message: int | None
    detail: str


class Survey(NamedTuple):
    """The structure of a history: its units in order, and its violations of law 1."""

    units: tuple[Unit, ...]
    violations: tuple[Violation, ...]


def survey(transcript: Transcript) -> Survey:
    """Return units and violations of a history; if a lawful one grew, reads only its new part.

    Every border of a unit is a legal cut point. The result is kept in the transcript's memo.
    """
    done, known = transcript.memo.get(_SURVEY, (0, ()))
    settled: tuple[Unit, ...] = known[:-1]  # the last one may have grown
    if done == len(transcript) and known:
        return Survey(known, ())
    start = settled[-1].stop if settled else 0
    starts = _find_unit_starts(transcript, start)
    if starts is None or transcript.rules.loops:
        new, violations = _units(transcript, start), protocol(transcript, start)
    else:
        ends = chain(starts[1:], (len(transcript),))
        new, violations = list(map(Unit, starts, ends)), _order(transcript, start)
    found = Survey((*settled, *new), tuple(violations))
    if not found.violations:
        transcript.memo[_SURVEY] = (len(transcript), found.units)
    return found


def is_lawful(transcript: Transcript) -> bool:
    """Tell whether a history breaks no law of its dialect, without a list of its units.

    If a lawful history grew, only the new part is read, from the start of its last unit.
    """
    done, start = transcript.memo.get(_LAWFUL, (0, 0))
    if done == len(transcript) and done:
        return True
    starts = None if transcript.rules.loops else _find_unit_starts(transcript, start)
    if starts is None or _order(transcript, start):
        return not survey(transcript).violations
    transcript.memo[_LAWFUL] = (len(transcript), starts[-1] if starts else start)
    return True


_SURVEY: Final = "survey"
_LAWFUL: Final = "lawful"


def units(transcript: Transcript) -> tuple[Unit, ...]:
    """Return the units of a lawful history."""
    return survey(transcript).units


def _find_unit_starts(transcript: Transcript, start: int) -> list[int] | None:
    """Return where units begin from `start` on, if calls and results match there.

    Returns None if something does not match, or if the dialect needs more checks. Then `protocol`
    finds the violations and `_units` the units. This is the fast path: nearly all histories are
    lawful.
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
        stop = start + 1 if simple else find_end(transcript, start)
        if messages[start].calls or (
            stop > start + 1 and any(m.calls for m in messages[start:stop])
        ):
            while stop < n and messages[stop].results:
                stop += 1
        while stop < n and rules.joins and messages[stop].is_system:
            stop += 1
        whole = rules.loops and messages[start].role == "assistant"
        # A person's words next to results do not end a loop: its calls would lose those results.
        while whole and stop < n and (messages[stop].results or not asks(messages[stop])):
            stop += 1
        found.append(Unit(start, stop))
        start = stop
    return found


def find_end(transcript: Transcript, start: int) -> int:
    """Return the end of the response that begins at `start`, without its results."""
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
    """Return the end of a response that is split over messages, without its results.

    Parallel calls belong together, with the reasoning before and between them, and with words
    between reasoning and calls. The API refuses one without the other.
    """
    stop = start
    calls = 0
    thought = False
    while stop < len(messages) and _belongs(messages[stop], speaks=thought and not calls):
        thought = thought or is_thought(messages[stop])
        calls = stop + 1 if messages[stop].calls else calls
        stop += 1
    following = messages[stop] if stop < len(messages) else None
    if calls:
        return stop if following is not None and following.results else calls
    answers = following is not None and following.role == "assistant" and not thought
    return max(stop + answers, start + 1)


def _belongs(message: Message, *, speaks: bool) -> bool:
    """Tell whether a message continues a response: a call, reasoning, a search of the server.

    Text continues it only if the assistant `speaks`: after its reasoning, before its calls.
    """
    if message.calls or message.role != "assistant":
        return bool(message.calls)
    silent = all(part.kind in SILENT for part in message.parts)
    return silent or (speaks and not message.is_compaction)


def is_thought(message: Message) -> bool:
    """Tell whether a message holds only reasoning."""
    held = [part.kind for part in message.parts]
    return bool(held) and THOUGHTS.issuperset(held) and not message.calls


SILENT: Final = frozenset({"reasoning", "sealed", "other"})
"""Kinds of parts without words: the message after them belongs to them."""


def find_lone_thoughts(transcript: Transcript, start: int = 0) -> Iterator[int]:
    """Yield the positions of reasoning without an assistant message after it, the last one first.

    If responses are split over messages, the API refuses reasoning without its result.
    """
    if not transcript.rules.split_calls:
        return
    led = False
    for index in range(len(transcript) - 1, start - 1, -1):
        message = transcript.messages[index]
        if not is_thought(message):
            led = message.role == "assistant"
        elif not led:
            yield index


def protocol(transcript: Transcript, start: int = 0) -> list[Violation]:
    """Check law 1: pairs, exactly one result per call, order of roles.

    The whole units before `start` are known to be lawful.
    """
    if _find_unit_starts(transcript, start) is not None:
        return _order(transcript, start)
    if transcript.rules.joins:
        return _turns(transcript, start) + _order(transcript, start)
    detail = "reasoning without what it led to"
    found = [_make_violation(i, detail) for i in find_lone_thoughts(transcript, start)][::-1]
    waiting: dict[str, int] = {}
    asking = False  # in a response whose calls are separate messages
    split = transcript.rules.split_calls
    for index, message in enumerate(transcript.messages[start:], start):
        calls, results = message.calls, message.results
        goes_on = split and _belongs(message, speaks=False)
        if not (calls or results or waiting or asking):
            continue
        for answered in results:
            if waiting.pop(answered, None) is None:
                found.append(
                    _make_violation(index, f"a result for {answered!r}, which no call asked for")
                )
        asking = asking and goes_on
        if waiting and not results and not asking:
            found += [
                _make_violation(i, f"the call {c!r} has no result") for c, i in waiting.items()
            ]
            waiting = {}
        asking = asking or (split and bool(calls))
        for call in calls:
            if call.id in waiting:
                found.append(_make_violation(index, f"the call id {call.id!r} is used twice"))
            waiting[call.id] = index
    found += [_make_violation(i, f"the call {c!r} has no result") for c, i in waiting.items()]
    return found + _order(transcript, start)


def _turns(transcript: Transcript, start: int) -> list[Violation]:
    """Check pairs if the message after a response must hold all its results, at its start."""
    found: list[Violation] = []
    waiting: dict[str, int] = {}
    once = not transcript.rules.ordered
    before = transcript.messages[: start if once else 0]
    used = {call.id for message in before for call in message.calls}
    for index, message in enumerate(transcript.messages[start:], start):
        responds = _responds(transcript, index)
        for answered in message.results:
            if responds or waiting.pop(answered, None) is None:
                found.append(
                    _make_violation(index, f"a result for {answered!r}, which no call asked for")
                )
        if is_late(message):
            found.append(
                _make_violation(index, "a result comes after other content: results come first")
            )
        if not responds:
            found += [
                _make_violation(i, f"the call {c!r} has no result") for c, i in waiting.items()
            ]
            waiting, used = {}, used if once else set()
        for call in message.calls:
            if call.id in used:
                found.append(_make_violation(index, f"the call id {call.id!r} is used twice"))
            used.add(call.id)
            waiting[call.id] = index
    return found + [_make_violation(i, f"the call {c!r} has no result") for c, i in waiting.items()]


def is_late(message: Message) -> bool:
    """Tell whether a result stands after a part that belongs to no result."""
    return count_leading(message) < len(message.results)


def count_leading(message: Message) -> int:
    """Return how many results stand before the first part that belongs to no result."""
    first = takewhile(lambda part: part.answers is not None, message.parts)
    return sum(part.kind == "result" for part in first)


def _order(transcript: Transcript, start: int) -> list[Violation]:
    rules, messages = transcript.rules, transcript.messages
    found: list[Violation] = []
    first = next((i for i, m in enumerate(messages) if not m.is_system), None)
    opens = first is None or messages[first].role in rules.first_roles
    if first is not None and not (opens or messages[first].is_compaction):
        found.append(
            _make_violation(first, f"the conversation opens with {messages[first].role!r}")
        )
    if rules.alternation:
        spoken = [(i, m.role) for i, m in enumerate(messages) if not m.is_system]
        same = [i for (_, a), (i, b) in pairwise(spoken) if a == b and i >= start]
        found += [_make_violation(i, "two messages of one role in a row") for i in same]
    return found


def _make_violation(index: int, detail: str) -> Violation:
    return Violation("protocol", index, detail)


def prove(
    before: Transcript,
    script: Script,
    after: Edited,
    pins: Collection[int],
    verbatim: Collection[int] = (),
) -> list[Violation]:
    """Check laws 1, 4 and 5 on the result `after` of applying `script` to `before`.

    The task is pinned and may still be shortened, unless it is among the `verbatim` positions.
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
        if old is not None and old not in touched and old not in script.strips
    ]
    detail = "a message that no edit names was changed"
    return found + [Violation("untouched", new, detail) for new in changed]


def prove_bound(before: Transcript, script: Script, after: Edited) -> list[Violation]:
    """Check that no bound reasoning stays after an edit of a message before it.

    This holds for the history that a script is made for: later messages come after its edits.
    """
    needed = unbind(before, script).strips - script.strips
    detail = "reasoning comes after an edit, and is bound to the messages before it"
    return [_make_violation(new, detail) for new, old in enumerate(after.origin) if old in needed]


def prove_size(before: int, after: int, target: int | None, *, reached: bool) -> list[Violation]:
    """Check laws 2 and 3 on upper edges in tokens: smaller, and within the target if reached."""
    found: list[Violation] = []
    if after >= before:
        found.append(Violation("smaller", None, f"{after:,} tokens after, {before:,} before"))
    if reached and target is not None and after > target:
        found.append(Violation("fits", None, f"{after:,} tokens, the target is {target:,}"))
    return found


def find_operator_text(messages: Sequence[Message]) -> set[int]:
    """Return the positions of operator text: every system and developer message."""
    roles = [message.role for message in messages]
    return set(compress(count(), map(OPERATOR.__contains__, roles)))


def find_fixed(transcript: Transcript) -> frozenset[int]:
    """Return the positions that every compaction keeps: operator text and the provider's summary.

    Only the provider's newest compaction is read, and it is signed or sealed.
    """
    behind = range(transcript.count_replaced(), len(transcript))
    native = [i for i in behind if transcript.messages[i].is_compaction]
    return frozenset({*find_operator_text(transcript.messages), *native})

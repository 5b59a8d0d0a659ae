"""Faults of a compaction: dropped content that is requested again, as in an operating system.

A fault is a repeated call whose result was dropped, a recalled reference, a search with a hit, or a
sentence that a person has to repeat. All are read from the history. A repeated test run is no fault
if its result differs or files were changed since. A call about a file that was written since is no
fault either.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.facts.calls import commands_only_look, list_written, read_arguments
from ullage.core.facts.salience import find_author
from ullage.core.facts.segments import cut_message
from ullage.core.messages.labels import label_call, shorten
from ullage.core.search.names import NOTHING, RECALL, SEARCH
from ullage.core.search.terms import list_terms

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script
    from ullage.core.compaction.laws import Unit
    from ullage.core.messages.transcript import Call, Message, Transcript

FaultKind = Literal["call", "recall", "search", "said"]

HABIT: Final = 2
"""A call made this many times may be a habit, such as a run of tests. It is one if its results
differ, or are short."""

TELLING: Final = 200
"""A result with this many characters may be worth keeping and is no mere "ok"."""

LEAST_TERMS: Final = 5
"""Repeating a sentence with fewer different terms means nothing: "yes, go on"."""

SPARED_SHARE: Final = 0.25
"""The share of the target in which faulted messages are treated like pins."""

SPARED_FOR: Final = 200
"""Faulted messages are kept for this many messages: a compaction or two."""

LONGEST: Final = 4_000
"""A call with more characters of arguments is not compared: it carries a text of its own."""

HERE: Final = "./"
"""A prefix that leaves a path the same file."""

_KEY: Final = "faults"


class AskedAgain(NamedTuple):
    """Content that is requested again: its kind, a short label, and the requesting message."""

    kind: FaultKind
    label: str
    message: int


class _Made(NamedTuple):
    """A call: its message, its tool, and its exact arguments as a key."""

    message: int
    name: str
    key: str


class _Asked(NamedTuple):
    """The requests and words of a history: calls by subject, and people's sentences.

    `written` are the messages with a call that changes a file.
    """

    calls: Mapping[str, tuple[_Made, ...]]
    said: Mapping[frozenset[str], int]
    written: tuple[int, ...] = ()


def find_faults(history: Transcript, script: Script) -> tuple[AskedAgain, ...]:
    """Return the faults in the newest answer, its results and the words after it.

    `script` is the compaction of the history.
    """
    if not script.drops and not script.clears:
        return ()
    messages = history.messages
    newest = (i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant")
    since = range(next(newest, len(messages)), len(messages))
    return tuple(_find(history, script, [place for place in since if place not in script.drops]))


def find_recent_faults(history: Transcript, script: Script) -> tuple[AskedAgain, ...]:
    """Return the recent faults whose messages are still there."""
    if not script.drops and not script.clears:
        return ()
    recent = range(max(len(history) - SPARED_FOR, 0), len(history))
    return tuple(_find(history, script, [i for i in recent if i not in script.drops]))


def _find(history: Transcript, script: Script, places: Sequence[int]) -> Iterator[AskedAgain]:
    asked = _index(history)
    for place in places:
        message = history.messages[place]
        for call in message.calls:
            fault = _judge_call(history, script, asked, place, call)
            if fault is not None:
                yield fault
        for text, terms in _list_said(message):
            before = asked.said.get(terms, place)
            if before < place and before in script.drops and not _is_told(script, text):
                yield AskedAgain("said", shorten(text), place)


def _judge_call(
    history: Transcript, script: Script, asked: _Asked, place: int, call: Call
) -> AskedAgain | None:
    """Return the fault of a call, None if the call is new."""
    about = _find_subject(call)
    if call.name in {RECALL, SEARCH}:
        result = _find_result(history.messages, place, call)
        found = result is not None and not result[1].startswith(("error", NOTHING))
        return (
            AskedAgain("recall" if call.name == RECALL else "search", about, place)
            if found
            else None
        )
    key = write_key(call)
    earlier = [made for made in asked.calls.get(about, ()) if made.message < place]
    same = [made for made in earlier if made.key == key]
    if not key or not same or same[-1] != earlier[-1] or _is_habit(history, same):
        return None
    last = same[-1].message
    if not _is_gone(history, script, last) or _looks_anew(call, last, place, asked):
        return None
    return AskedAgain("call", f"{call.name} {about}", place)


def _looks_anew(call: Call, last: int, place: int, asked: _Asked) -> bool:
    """Tell whether a command runs again because files changed: tests, a build, a diff."""
    written = asked.written
    changed = bisect_left(written, place) > bisect_right(written, last)
    return changed and commands_only_look(read_arguments(call)) is False


def _is_habit(history: Transcript, same: Sequence[_Made]) -> bool:
    """Tell whether a call only checks for changes: its last results differ, or are short."""
    if len(same) < HABIT:
        return False
    results = {_read_result(history.messages, made) for made in same[-HABIT:]}
    return len(results) > 1 or len(results.pop()) < TELLING


def _read_result(messages: Sequence[Message], made: _Made) -> str:
    calls = [c for c in messages[made.message].calls if write_key(c) == made.key]
    found = [_find_result(messages, made.message, call) for call in calls]
    return next((text for _, text in filter(None, found)), "")


def _is_gone(history: Transcript, script: Script, place: int) -> bool:
    """Tell whether a call, or a result of it, was removed."""
    if place in script.drops:
        return True
    behind = range(place + 1, place + 2 + len(history.messages[place].calls))
    return not {c.message for c in script.clears if c.call < 0}.isdisjoint(behind)


def _find_result(messages: Sequence[Message], place: int, call: Call) -> tuple[int, str] | None:
    """Return the position of the result of a call, and its text."""
    for index in range(place + 1, min(place + 2 + len(messages[place].calls), len(messages))):
        for part in messages[index].parts:
            if part.kind == "result" and part.answers == call.id:
                return index, part.text
    return None


def _index(history: Transcript) -> _Asked:
    """Return the requests and words of a history; reuses the known beginning."""
    done, known = history.memo.get(_KEY, (0, _Asked({}, {})))
    if done < len(history):
        new = history.messages[done:]
        made = [(done + n, call) for n, m in enumerate(new) for call in m.calls]
        heard = [(terms, done + n) for n, m in enumerate(new) for _, terms in _list_said(m)]
        if made:
            written = (place for place, call in made if list_written(call))
            calls = _add_calls(known.calls, made)
            known = known._replace(calls=calls, written=(*known.written, *written))
        if heard:
            known = known._replace(said={**dict(reversed(heard)), **known.said})
        history.memo[_KEY] = (len(history), known)
    asked: _Asked = known
    return asked


def _add_calls(
    known: Mapping[str, tuple[_Made, ...]], made: Iterable[tuple[int, Call]]
) -> Mapping[str, tuple[_Made, ...]]:
    calls = dict(known)
    for place, call in made:
        about = _find_subject(call)
        calls[about] = (*calls.get(about, ()), _Made(place, call.name, write_key(call)))
    return calls


def _find_subject(call: Call) -> str:
    return label_call(call.arguments).removeprefix(HERE)


def list_keys(message: Message) -> Sequence[str]:
    """Return the key of each call of a message (`write_key`), computed once."""
    known: Sequence[str] | None = message.memo.get(_KEYS)
    if known is None:
        known = message.memo[_KEYS] = tuple(map(write_key, message.calls))
    return known


_KEYS: Final = "call keys"


def write_key(call: Call) -> str:
    """Return the exact key of a call, "" for one that carries a text of its own."""
    if len(call.arguments) > LONGEST:
        return ""
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return f"{call.name} {arguments}".replace(f'"{HERE}', '"')


def _is_told(script: Script, text: str) -> bool:
    """Tell whether a sentence is in the block that a script inserts."""
    return any(_flatten(text) in _flatten(insert.text) for insert in script.inserts)


def _flatten(text: str) -> str:
    return " ".join(text.casefold().split())


def _list_said(message: Message) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield a person's sentences in a message, each with its terms."""
    if find_author(message) != "user":
        return
    for segment in cut_message(message):
        if not segment.is_quoted:
            terms = frozenset(list_terms(segment.text))
            if len(terms) >= LEAST_TERMS:
                yield segment.text, terms


def list_faulted(history: Transcript, faults: Iterable[AskedAgain]) -> frozenset[int]:
    """Return the messages that bring dropped content back: the calls, with their results."""
    found: set[int] = set()
    for fault in faults:
        found.add(fault.message)
        for call in history.messages[fault.message].calls:
            result = _find_result(history.messages, fault.message, call)
            found |= {result[0]} if result is not None else set()
    return frozenset(found)


def spare(
    units: Sequence[Unit], sizes: Sequence[int], faulted: frozenset[int], room: int
) -> frozenset[int]:
    """Return the messages of the newest faulted units that fit into so many tokens."""
    spared: set[int] = set()
    for unit in reversed(units):
        places = range(unit.start, unit.stop)
        size = sum(sizes[unit.start : unit.stop])
        if size <= room and not faulted.isdisjoint(places):
            room -= size
            spared |= {*places}
    return frozenset(spared)

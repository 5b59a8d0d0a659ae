"""clear: replace old tool results and oversized call arguments with a one-line placeholder.

Calls stay, so the model still sees the work. Results that a later call made worthless go first
(a read of a path that was written or read again later, an earlier run of the same call), then
reads, then the oldest. It clears only as many as needed, never in the protected tail, and never
chooses by words such as "error". It knows no other strategy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.strategy import Strategy
from ullage.core.facts.answers import list_answers
from ullage.core.facts.calls import (
    commands_only_look,
    is_write,
    list_patched_by,
    parse_arguments,
    read_arguments,
)
from ullage.core.messages.labels import FILES, NAMED, fold_names

if TYPE_CHECKING:
    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation
    from ullage.core.messages.transcript import Call

RESULT_MARK: Final = "[ullage: result of {name} cleared, {tokens:,} tokens]"
OPENING: Final = "[ullage: result of "
"""Prefix of a placeholder; lines after it can be removed alone, and it keeps its reference."""

CALL_MARK: Final = "arguments, {tokens:,} tokens{named}"

WORTH: Final = 64
"""Tokens that a clear must free: a placeholder takes about 20, and each edit breaks a cache."""

READ_BY: Final = frozenset((*FILES, "pattern", "glob", "query", "url", "uri"))
"""Arguments that name the thing to read, by the schemas of common tools."""

LINES_WORTH: Final = 16
"""Tokens that removing the lines after a placeholder must free."""


class Clearing(NamedTuple):
    """A possible edit, and the tokens that it frees."""

    edit: Clear
    freed: int


Place = tuple[int, int]
"""A result: its message, and its part."""


def plan(situation: Situation) -> Script:
    """Return clears, superseded results first, until the target is met or no edit is left."""
    over = situation.total - situation.target
    taken: list[Clear] = []
    if over > 0:
        for edit, freed in _clearings(situation):
            taken.append(edit)
            over -= freed
            if over <= 0:
                break
    return Script.of(taken)


def find_superseded(situation: Situation) -> dict[Place, str]:
    """Return the results that a later call made worthless, oldest first, with their tools' names.

    The last result of its kind always stays, and so does the protected tail.
    """
    later: set[object] = set()
    found: dict[Place, str] = {}
    border = situation.border()
    for number in range(len(situation.units) - 1, -1, -1):
        done: set[object] = set()
        for place, call in _pair_results(situation, situation.units[number]):
            subjects, says = _subjects(call, situation.traits)
            if number < border and not later.isdisjoint(subjects):
                found[place] = call.name
            done.update(says)
        later |= done
    return dict(sorted(found.items()))


def _pair_results(situation: Situation, unit: Unit) -> Iterator[tuple[Place, Call]]:
    """Yield the results of a unit, each with its call."""
    messages = situation.transcript.messages
    calls = {c.id: c for m in messages[unit.start : unit.stop] for c in m.calls}
    if not calls:
        return
    for index in range(unit.start, unit.stop):
        if not messages[index].results:
            continue
        for position, part in enumerate(messages[index].parts):
            if part.kind == "result" and part.answers in calls:
                yield (index, position), calls[part.answers]


def _subjects(call: Call, traits: Mapping[str, object]) -> tuple[list[object], list[object]]:
    """Return the keys that make this result worthless, and the keys that this call adds.

    A result is worthless if a later call adds one of its keys.
    """
    if traits.get(call.name) == "state":
        return [call.name], [call.name]
    same, named = (call.name, call.arguments), read_arguments(call)
    own = [path for name, path in named.items() if name in NAMED and isinstance(path, str)]
    paths = [("path", path) for path in own + list_patched_by(call, named)]
    if is_write(call, named):
        return [], [same, *paths]
    if traits.get(call.name) == "once":
        return [], [same]
    return [same, *paths], [same]


def is_read(call: Call, traits: Mapping[str, object]) -> bool:
    """Tell whether a call's result can be read again: a file, a folder, a page, a search.

    A command counts only if it just looks: others may change things and report progress.
    """
    trait, named = traits.get(call.name), read_arguments(call)
    if trait is not None or is_write(call, named):
        return trait == "again"
    looks = commands_only_look(named)
    return not named.keys().isdisjoint(READ_BY) if looks is None else looks


def _keep_paths(call: Call) -> dict[str, str]:
    """Return the string arguments of a call that name a file: they stay, under their own names."""
    made = parse_arguments(call, len(call.arguments))
    named = {k: v for k, v in made.items() if isinstance(v, str)}
    return {k: v for k, v in named.items() if not fold_names({k: v}).keys().isdisjoint(FILES)}


def _clearings(situation: Situation) -> Iterator[Clearing]:
    """Yield the clears that pay: of superseded results, of reads, then of the oldest."""
    gone = find_superseded(situation)
    old = situation.units[: situation.border()]
    reads = {
        place: call.name
        for unit in old
        for place, call in _pair_results(situation, unit)
        if place not in gone and is_read(call, situation.traits)
    }
    gone |= reads
    for place, name in gone.items():
        yield from _result(situation, place, name)
    for unit in old:
        for place, call in _pair_results(situation, unit):
            if place not in gone and situation.traits.get(call.name) != "once":
                yield from _result(situation, place, call.name)
        for index in range(unit.start, unit.stop):
            for position in range(len(situation.transcript.messages[index].calls)):
                yield from _arguments(situation, index, position)


def _result(situation: Situation, place: Place, name: str) -> Iterator[Clearing]:
    """Yield the clear of a result, if it pays."""
    index, part = place
    if index in situation.pins or situation.sizes[index] < LINES_WORTH:
        return
    if part in list_answers(situation.transcript.messages[index]):
        return  # a person's words
    tokens = situation.tokens(index, part)
    whole = situation.transcript.messages[index].parts[part].text
    head = whole.partition("\n")[0]
    known = head.startswith(OPENING) and head != whole  # cleared before: only its lines go
    mark = RESULT_MARK.format(name=name or "a tool", tokens=tokens)
    text = head if known else situation.referring(mark, whole)
    freed = tokens - situation.count(text, index) + situation.count_seen(index, part)
    if freed >= (LINES_WORTH if known else WORTH):
        yield Clearing(Clear(index, part, -1, text), freed)


def _arguments(situation: Situation, index: int, call: int) -> Iterator[Clearing]:
    """Yield the clear of a call's arguments, if it pays."""
    if index in situation.pins or situation.sizes[index] < WORTH:
        return
    tokens = situation.tokens(index, -1, call)
    if tokens < WORTH:
        return
    name_of = situation.name_of
    made = situation.transcript.messages[index].calls[call]
    original = made.arguments
    named = f"; recall {name_of(original)}" if name_of is not None else ""
    mark = {"ullage_cleared": CALL_MARK.format(tokens=tokens, named=named)}
    text = json.dumps({**_keep_paths(made), **mark}, ensure_ascii=False)
    freed = tokens - situation.count(text)
    if freed >= WORTH:
        yield Clearing(Clear(index, -1, call, text), freed)


STRATEGY: Final = Strategy("clear", plan, drops=False)

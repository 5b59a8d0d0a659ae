"""Restore the text of the newest cleared results, in exchange for the oldest steps without text.

If messages have to go, a step with only a call and a placeholder says no more than the block's
lists of files and commands, and the work continues from the newest results. This module clears
nothing, and drops no step with a line that later messages use.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.dropping import drop, free
from ullage.core.compaction.edits import Script
from ullage.core.compaction.strategies.clear import STRATEGY, find_superseded, is_read

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ullage.core.compaction.draft import PlanDraft
    from ullage.core.compaction.edits import Clear
    from ullage.core.compaction.laws import Unit

REOPENED: Final = 2 / 3
"""The share of the tokens of steps without results that may go to the newest results. By hand."""

SAYS_LITTLE: Final = 80
"""An assistant's text next to calls with at most this many characters only announces a step."""


def reopen_newest(draft: PlanDraft, before: PlanDraft) -> None:
    """Restore the text of the newest results, as it is in the draft of `before`.

    Old steps that only read make room for it. There must be a block to report them.
    """
    now = draft.situation
    if not draft.script.drops or not draft.reserve or draft.silent:
        return
    cleared = _list_cleared(draft, before)
    bare = [unit for unit in now.units if _is_bare(unit, draft, cleared)] if cleared else []
    if not bare:
        return
    sizes = [sum(now.sizes[unit.start : unit.stop]) for unit in bare]
    starts = {unit.start for unit in free(now) if _only_reads(unit, draft)}
    going = deque(number for number, unit in enumerate(bare) if unit.start in starts)
    stale = {
        place[0] for place in find_superseded(replace(before.situation, units=now.units, tail=0))
    }
    budget, spare = int(sum(sizes) * REOPENED), max(now.target - now.total, 0)
    room = spare + sum(map(sizes.__getitem__, going))
    gone, opened = set[int](), list[range]()
    for number in range(len(bare) - 1, -1, -1):
        while going and going[-1] >= number:
            room -= sizes[going.pop()]
        cost = _count_whole(bare[number], before) - sizes[number]
        if number in gone or cost > min(budget, room) or not stale.isdisjoint(bare[number]):
            continue
        while spare < cost:
            spare += sizes[going[0]]
            gone.add(going.popleft())
        budget, spare, room = budget - cost, spare - cost, room - cost
        opened.append(bare[number])
    if gone:
        _exchange(draft, before, [bare[number] for number in sorted(gone)], opened)


def _list_cleared(draft: PlanDraft, before: PlanDraft) -> dict[int, list[Clear]]:
    """Return by message the edits that `clear` made since the draft of `before`.

    Leaves out messages that another strategy edited too: it may be the caller's.
    """
    known = set(before.script.clears)
    own = {e for name, script in draft.steps if name == STRATEGY.name for e in script.clears}
    found: dict[int, list[Clear]] = {}
    for edit in draft.script.clears:
        if edit not in known:
            found.setdefault(edit.message, []).append(edit)
    return {index: edits for index, edits in found.items() if own.issuperset(edits)}


def _is_bare(unit: Unit, draft: PlanDraft, cleared: Mapping[int, Sequence[Clear]]) -> bool:
    """Tell whether a unit has only calls left: all results are cleared, and no line is quoted.

    The assistant's findings and decisions in a unit, and a person's words next to results, count as
    text.
    """
    told = {"user": 0, "assistant": 0}
    results: set[tuple[int, int]] = set()
    for index in unit:
        message = draft.said[index]
        for place, part in enumerate(message.parts):
            if part.kind == "result":
                results.add((index, place))
            elif part.kind == "text" and part.answers is None:
                told[message.role] = told.get(message.role, 0) + len(part.text)
    if told["user"] or told["assistant"] > SAYS_LITTLE:
        return False
    edits = [edit for index in unit for edit in cleared.get(index, ())]
    gone = {(edit.message, edit.part) for edit in edits if "\n" not in edit.text}
    return bool(results) and results <= gone


def _only_reads(unit: Unit, draft: PlanDraft) -> bool:
    """Tell whether all calls of a unit read things that still exist: a block lists them."""
    traits = draft.situation.traits
    return all(is_read(call, traits) for index in unit for call in draft.said[index].calls)


def _count_whole(unit: Unit, before: PlanDraft) -> int:
    return sum(before.situation.sizes[unit.start : unit.stop])


def _exchange(
    draft: PlanDraft, before: PlanDraft, gone: Sequence[Unit], opened: Collection[Unit]
) -> None:
    """Drop units, and restore others as they are in the draft of `before`."""
    now, was = draft.situation, before.situation
    back = {index for unit in opened for index in unit}
    sizes, messages = list(now.sizes), list(now.transcript.messages)
    for index in back:
        sizes[index], messages[index] = was.sizes[index], was.transcript.messages[index]
    earlier = {place: text for place, text in now.earlier.items() if place[0] not in back}
    transcript = replace(now.transcript, messages=tuple(messages), memo={})
    draft.situation = replace(now, transcript=transcript, sizes=sizes, earlier=earlier)
    known = set(before.script.clears)

    def reopen(script: Script) -> Script:
        held = (edit for edit in script.clears if edit.message not in back or edit in known)
        return replace(script, clears=tuple(held))

    draft.script = reopen(draft.script)
    draft.steps = [(name, reopen(script)) for name, script in draft.steps]
    last = max(n for n, (_, script) in enumerate(draft.steps) if script.drops)
    name, script = draft.steps[last]
    draft.take(name, drop(gone))
    draft.steps[last] = (name, script | draft.steps.pop()[1])

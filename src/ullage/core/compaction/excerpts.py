"""Excerpts: lines of cleared results, a long task, an answer at the end.

For results, lines that later messages name come first, then the most informative, until the target
is full. Lines follow the placeholders. This module clears nothing. It decides when the ends are
shortened, not how.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.gist import choose_sentences
from ullage.core.compaction.packing import HEAD, MARGIN
from ullage.core.compaction.strategies import excerpt
from ullage.core.compaction.words import estimate, rank
from ullage.core.facts.salience import gives_orders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ullage.core.compaction.draft import PlanDraft
    from ullage.core.compaction.strategy import Strategy

USED: Final = 8.0
"""Factor for the worth of a line that later messages use."""

MOST: Final = 400
"""The number of results to read, the newest first: older ones are far away."""

LEAST: Final = 32
"""With less room, in tokens, no line is searched."""

GAP: Final = "\u2026"
"""The mark for lines that are left out."""


class _Line(NamedTuple):
    edit: int
    place: int
    text: str
    worth: float
    used: bool


def quote_used(draft: PlanDraft, strategy: Strategy) -> None:
    """Run a clearing strategy, and put lines that later messages use after its placeholders.

    The lines get a share of the target: more results are cleared for them, or lines are left out if
    that is not enough.
    """
    share, before = int(draft.situation.target * USED_SHARE), draft.copy(1.0)
    draft.run(strategy)
    spare = draft.situation.target - draft.situation.total
    quote_results(draft, share, used=True)
    over = draft.situation.total - draft.situation.target
    if spare < 0 or over <= 0:
        return
    draft.restore(before)
    draft.hold(before.reserve + spare + over)
    draft.run(strategy)
    draft.hold(before.reserve)
    left = draft.situation.target - draft.situation.total
    quote_results(draft, min(share, left) if left >= 0 else share, used=True)


def shorten_ends(draft: PlanDraft) -> None:
    """Shorten the task and an answer at the end, each if it takes too much of the target."""
    _shorten_task(draft)
    _shorten_answer(draft)


def _shorten_task(draft: PlanDraft) -> None:
    """Shorten a task that takes too much of the target, if messages have to go anyway.

    If shortening alone would meet the target, but dropping messages would too, the task stays.
    """
    before, now = draft.copy(1.0), draft.situation
    stays = now.pins.union(now.units[-1] if now.units else ())
    draft.take("excerpt", excerpt.shorten_task(now, partial(_choose, draft)))
    if draft.fits and now.fixed + sum(now.sizes[i] for i in stays) <= now.target:
        draft.restore(before)


def _choose(
    draft: PlanDraft, place: int, text: str, tokens: int, count: Callable[[str], int], mark: str
) -> str:
    """Return the most informative sentences of a message, "" if there are too few."""
    said = draft.words.find_said([place])
    worths = {one.place: rank(one.worth, one.segment.text) for one in said}
    others = draft.words.find_others([place])
    worths |= {line.place: -line.order for line in others if line.place not in worths}
    return choose_sentences(draft.said[place], text, worths, tokens, count, mark)


def _shorten_answer(draft: PlanDraft) -> None:
    """Shorten an answer at the end if people's words before it do not fit next to it.

    People's words come before model answers, and the newest unit always stays.
    """
    now, cut = draft.situation, [*draft.list_cut_words()]
    if not now.units or (now.total <= now.target and not cut):
        return
    stays = now.pins.union(now.units[-1])
    room = now.target - now.fixed + draft.reserve - sum(now.sizes[i] for i in stays)
    others = [i for i in range(len(draft.said)) if i not in stays]
    typed = sum(estimate(rest.text) for rest in chain(draft.words.list_typed(others), cut))
    blocks = sum(now.sizes[i] for i in draft.words.blocks.difference(stays))
    missing = int(typed * MARGIN + blocks + HEAD) - room
    if missing > 0:
        draft.take("excerpt", excerpt.shorten_answer(now, missing))


USED_SHARE: Final = 0.06
"""The share of the target for lines of results that are used later, before all other text that no
person wrote. By hand."""


def quote_results(draft: PlanDraft, room: int, *, used: bool = False) -> None:
    """Put lines of cleared results after their placeholders, as many as fit into the room."""
    if room < LEAST:
        return
    edits = [edit for edit in draft.script.clears if _is_result(draft, edit)]
    chosen: dict[int, list[_Line]] = {}
    rooms: dict[int, int] = {}
    lines = (line for line in _list_lines(draft, edits) if line.used or not used)
    for line in sorted(lines, key=lambda line: -line.worth):
        cost = draft.situation.count(f"\n{line.text}\n{GAP}", edits[line.edit].message)
        if line.edit not in rooms:
            rooms[line.edit] = _count_whole(draft, edits[line.edit]) // 2
        left = rooms[line.edit]
        if cost <= min(room, left) and not gives_orders(line.text, used=line.used):
            room -= cost
            rooms[line.edit] = left - cost
            chosen.setdefault(line.edit, []).append(line)
    longer = {
        edits[number]: replace(edits[number], text=f"{edits[number].text}\n{_join(lines)}")
        for number, lines in chosen.items()
    }
    if longer:
        _rewrite(draft, longer)


def _is_result(draft: PlanDraft, edit: Clear) -> bool:
    """Tell whether one of our edits clears a result that has no quoted line yet."""
    if edit.call >= 0 or edit.message in draft.script.drops | draft.rewrote or "\n" in edit.text:
        return False
    return draft.said[edit.message].parts[edit.part].kind == "result"


def _list_lines(draft: PlanDraft, edits: list[Clear]) -> Iterator[_Line]:
    """Yield the lines of the newest cleared results, each with its worth per token."""
    newest = sorted(range(len(edits)), key=lambda n: -edits[n].message)
    for number in islice(newest, MOST):
        told = set[str]()
        for place, text, worth, used in draft.words.read_result(*_place(edits[number])):
            if text not in told:
                told.add(text)
                by_token = worth / estimate(text)
                yield _Line(number, place, text, by_token * USED if used else by_token, used)


def _count_whole(draft: PlanDraft, edit: Clear) -> int:
    """Return the tokens of the result that an edit clears; half of it may come back."""
    return draft.situation.count(draft.said[edit.message].parts[edit.part].text, edit.message)


def _place(edit: Clear) -> tuple[int, int]:
    return edit.message, edit.part


def _join(lines: Iterable[_Line]) -> str:
    """Return lines in their order, with a mark where lines between them are left out."""
    rows: list[str] = []
    before = -1
    for line in sorted(lines, key=lambda line: line.place):
        if line.place != before + 1:
            rows.append(GAP)
        rows.append(line.text)
        before = line.place
    return "\n".join(rows)


def _rewrite(draft: PlanDraft, longer: dict[Clear, Clear]) -> None:
    """Replace edits by others, and update the sizes."""
    now = draft.situation
    sizes = list(now.sizes)
    for old, new in longer.items():
        sizes[new.message] += now.count(new.text, new.message) - now.count(old.text, new.message)
    draft.situation = replace(now, sizes=sizes)
    draft.script = _exchange(draft.script, longer)
    draft.steps = [(name, _exchange(script, longer)) for name, script in draft.steps]


def _exchange(script: Script, longer: dict[Clear, Clear]) -> Script:
    return replace(script, clears=tuple(longer.get(edit, edit) for edit in script.clears))

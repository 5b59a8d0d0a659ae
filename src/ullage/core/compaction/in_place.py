"""Keep people's words in their messages if a block has too little room for them.

A block has a header and headings. In a small room they take the space of a few short sentences.
Then messages stay in place instead: whole, or their best sentences, and the newest ones. The score
that summaries must pass decides which of the two keeps more. This module writes no block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from operator import or_
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.dropping import drop, free
from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.packing import is_verbatim, join_lines, list_said
from ullage.core.compaction.room import gather_gone, name_alone
from ullage.core.compaction.strategies.trim_oldest import STRATEGY
from ullage.core.compaction.told import ToldWords
from ullage.core.facts.coverage import Coverage
from ullage.core.facts.segments import COLONS, GAP
from ullage.core.messages.transcript import summarises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.compaction.draft import PlanDraft
    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation
    from ullage.core.compaction.words import Candidate

SMALL: Final = 600
"""Up to this many tokens of room, messages may replace a block: six times its head."""

SHORT: Final = 32
"""A message with at most this many tokens stays whole if it fits: its sentences belong together."""

BETTER: Final = 1.1
"""Messages in place must beat the block by this factor: a block also tells the model
about the gap. By hand."""


def keep_in_place(draft: PlanDraft, start: Situation, block: str) -> bool:
    """Keep the messages with most of people's words if they carry more than this block.

    No rule in the block, or in a message next to it, is given up. Sizes are those at the `start`.
    Tell whether the plan was changed: then only the name of the dropped text has room.
    """
    units = _list_loose(draft, start)
    if not units or any(summarises(draft.said[unit.start]) for unit in units):
        return False
    choice = _Choice(draft, start)
    if not 0 < choice.make_room(units) <= SMALL:
        return False
    held = gather_gone(draft, [*chain.from_iterable(units)])
    said = list_said(held.facts, held.words)
    choice.fill(units, said, held.facts.constraints)
    stays = {i for unit in units if unit.start not in draft.script.drops for i in unit}
    told = Coverage(block)
    known = [line for line in said if line.message in stays or told.carries(line.text, line.rare)]
    if any(is_verbatim(line) and not choice.holds(line) for line in known):
        return False
    if choice.weigh(said) <= sum(line.worth for line in known) * BETTER:
        return False
    choice.apply(units)
    draft.hold(name_alone(draft))
    return True


def _list_loose(draft: PlanDraft, start: Situation) -> list[Unit]:
    """Return the units that were or may be dropped, in order; [] if another strategy chose.

    Excludes units that a strategy shortened: such a unit stays as it is.
    """
    by = {name for name, script in draft.steps if script.drops}
    if by != {STRATEGY.name} or draft.silent:
        return []
    edited = {edit.message for _, script in draft.steps for edit in script.clears}
    dropped = [unit for unit in start.units if unit.start in draft.script.drops]
    loose = [*dropped, *free(replace(draft.situation, tail=0))]
    return sorted((unit for unit in loose if edited.isdisjoint(unit)), key=lambda u: u.start)


@dataclass(slots=True)
class _Choice:
    """The messages to keep: some whole, some with chosen sentences; `room` is the tokens left."""

    draft: PlanDraft
    start: Situation
    room: int = 0
    whole: set[int] = field(default_factory=set)
    lines: dict[int, list[Candidate]] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)

    def make_room(self, units: Sequence[Unit]) -> int:
        """Return the tokens for these units if no block is written."""
        draft, now = self.draft, self.draft.situation
        kept = sum(now.sizes[i] for i in chain.from_iterable(units))
        self.room = now.target - (now.total - draft.reserve - kept) - name_alone(draft)
        return self.room

    def fill(self, units: Sequence[Unit], said: Sequence[Candidate], rules: Sequence[str]) -> None:
        """Choose sentences, rules first; then whole messages for them, and the newest units.

        `rules` are sentences with a rule: one may stand alone if the text around it does not fit.
        """
        alone = {unit.start for unit in units if len(unit) == 1}
        said = [line for line in said if line.message in alone]
        ranked = sorted(said, key=lambda line: (not is_verbatim(line), line.order, -line.message))
        told = ToldWords()
        for line in ranked:
            if told.tells(line.rare) and not is_verbatim(line):
                continue
            if self._take(line) or self._take_rule(line, rules):
                told.note(line.rare)
        for place in dict.fromkeys(line.message for line in ranked):
            self._take_whole(place)
        for unit in reversed(units):
            size = sum(self.start.sizes[unit.start : unit.stop])
            if unit.start in self.whole or unit.start in self.lines:
                continue
            if size > self.room:
                break
            self.whole.update(unit)
            self.room -= size

    def _take(self, line: Candidate) -> bool:
        """Take a sentence of a message, or the whole message; tell whether it fits."""
        place = line.message
        if place in self.whole:
            return True
        if line.text.endswith(COLONS):
            return False  # the text that it announces would be missing
        chosen = [*self.lines.get(place, ()), line]
        size = self._measure(place, chosen)
        whole = self.start.sizes[place]
        if size >= whole or (whole <= SHORT and not is_verbatim(line) and self._take_whole(place)):
            return self._take_whole(place)
        more = size - self.taken.get(place, 0)
        if more > self.room:
            return False
        self.room -= more
        self.taken[place], self.lines[place] = size, chosen
        return True

    def _take_rule(self, line: Candidate, rules: Sequence[str]) -> bool:
        """Take the shortest part of a line with a rule; tell whether one fits."""
        held = [rule for rule in rules if rule in line.text]
        return bool(held) and self._take(line._replace(text=min(held, key=len)))

    def _take_whole(self, place: int) -> bool:
        """Take the whole message if it fits; tell whether it is taken."""
        more = self.start.sizes[place] - self.taken.get(place, 0)
        if place in self.whole or more > self.room:
            return place in self.whole
        self.room -= more
        self.whole.add(place)
        self.lines.pop(place, None)
        return True

    def _measure(self, place: int, lines: Sequence[Candidate]) -> int:
        """Return the tokens of a message with only these sentences; all if it has several parts."""
        size, parts = self.start.sizes[place], self.draft.said[place].parts
        if [part.kind for part in parts] != ["text"]:
            return size
        whole = self.start.count(parts[0].text, place)
        return size - whole + self.start.count(_join(lines), place)

    def weigh(self, said: Sequence[Candidate]) -> float:
        """Return the worth of people's words that stay."""
        return sum(line.worth for line in said if self.holds(line))

    def holds(self, line: Candidate) -> bool:
        """Tell whether a sentence stays."""
        chosen = self.lines.get(line.message, ())
        return line.message in self.whole or any(line.place == other.place for other in chosen)

    def apply(self, units: Sequence[Unit]) -> None:
        """Drop the messages that do not stay, and restore the others as they were at the start."""
        draft, stays, known = self.draft, self.whole | self.lines.keys(), len(self.draft.steps)
        back = stays & draft.script.drops
        draft.take(STRATEGY.name, drop([unit for unit in units if unit.start not in stays]))
        draft.script = replace(draft.script, drops=draft.script.drops - back)
        now = draft.situation
        sizes = [self.start.sizes[i] if i in back else n for i, n in enumerate(now.sizes)]
        draft.situation = replace(now, sizes=sizes)
        edits = [Clear(place, 0, -1, _join(lines)) for place, lines in self.lines.items()]
        draft.take(STRATEGY.name, Script.of(edits))
        number = [name for name, _ in draft.steps].index(STRATEGY.name)
        first = replace(draft.steps[number][1], drops=draft.steps[number][1].drops - back)
        more = (script for _, script in draft.steps[known:])
        step = (STRATEGY.name, reduce(or_, more, first))
        draft.steps[number:] = [step, *draft.steps[number + 1 : known]]


def _join(lines: Sequence[Candidate]) -> str:
    """Return the sentences of one message, after a mark that shows the cut."""
    return GAP.lstrip() + "".join(join_lines(sorted(lines, key=lambda line: line.place)))

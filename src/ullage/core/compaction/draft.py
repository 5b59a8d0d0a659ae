"""A compaction in the making: the edits so far, and the situation that they lead to.

Strategies are run here, and what they plan is checked: one may be the caller's own. It decides
neither their order nor when there is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ullage.core.compaction.edits import Clear, Script, apply_clear
from ullage.core.tokens import counting
from ullage.core.tokens.counting import MEDIA

if TYPE_CHECKING:
    from ullage.core.compaction.situation import Situation
    from ullage.core.compaction.strategy import Strategy
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Meter


@dataclass(slots=True)
class PlanDraft:
    """A plan in the making: the situation as it will be, and the edits that lead there.

    `reserve` are tokens kept free for the block, a part of the situation's `fixed`. `said` are the
    messages as they were: what a block carries is found in them.
    """

    situation: Situation
    meter: Meter
    script: Script = Script()
    steps: list[tuple[str, Script]] = field(default_factory=list)
    reserve: int = 0
    said: Sequence[Message] = ()
    silent: set[int] = field(default_factory=set)
    flaws: list[str] = field(default_factory=list)

    def run(self, strategy: Strategy) -> None:
        """Add what a strategy plans for the situation."""
        script = self.plan(strategy, self.situation)
        if strategy.silent:
            self.silent |= script.drops
        self.take(strategy.name, script)

    def plan(self, strategy: Strategy, situation: Situation) -> Script:
        """Return what a strategy plans, nothing where it fails or plans what is unlawful.

        A strategy may be the caller's own: what is wrong with it is noted, and the next one runs.
        """
        try:
            script = strategy.plan(situation)
        except Exception as error:  # noqa: BLE001 - noted in the outcome
            flaw: str | None = f"raised {type(error).__name__}: {error}"
        else:
            flaw = find_flaw(script, situation)
            if flaw is None:
                return script
        text = f"strategy {strategy.name} {flaw}"
        if text not in self.flaws:
            self.flaws.append(text)
        return Script()

    def take(self, name: str, script: Script) -> None:
        """Add a strategy's edits and work out what they free, without counting anything twice."""
        if not script:
            return
        now = self.situation
        sizes, messages = list(now.sizes), now.transcript.messages
        for index in script.drops:
            sizes[index] = 0
        if script.clears:
            written, earlier = list(messages), dict(now.earlier)
            for edit in script.clears:
                sizes[edit.message] += now.count(edit.text) - self._tokens(edit)
                text, written[edit.message] = apply_clear(written[edit.message], edit)
                earlier.setdefault((edit.message, edit.part), text)
            messages, now = tuple(written), replace(now, earlier=earlier)
        units = now.units
        if script.drops:
            units = tuple([unit for unit in units if unit.start not in script.drops])
        transcript = replace(now.transcript, messages=messages, memo={})
        self.situation = replace(now, transcript=transcript, sizes=sizes, units=units)
        self.script |= script
        self.steps.append((name, script))

    def _tokens(self, edit: Clear) -> int:
        if edit.call < 0:
            part = self.situation.transcript.messages[edit.message].parts[edit.part]
            if part.kind in MEDIA:
                return counting.medium(part, self.meter).high
        return self.situation.tokens(edit.message, edit.part, edit.call)

    @property
    def names(self) -> list[str]:
        """The strategies that took part, in order."""
        return [name for name, _ in self.steps]

    @property
    def fits(self) -> bool:
        """Whether the target is met."""
        return self.situation.total <= self.situation.target

    def pin(self, positions: Iterable[int]) -> None:
        """Leave these messages alone besides."""
        pins = self.situation.pins.union(positions)
        self.situation = replace(self.situation, pins=pins)

    def hold(self, tokens: int) -> None:
        """Keep that many tokens free for the block."""
        fixed = self.situation.fixed - self.reserve + tokens
        self.situation, self.reserve = replace(self.situation, fixed=fixed), tokens

    def copy(self, share: float) -> PlanDraft:
        """Return a draft to try on, with that share of the protected tail."""
        now = self.situation
        keep = now.keep and now.keep._replace(messages=int(now.keep.messages * share))
        situation = replace(now, tail=int(now.tail * share), keep=keep)
        steps = list(self.steps)
        drawn = (self.said, set(self.silent), self.flaws)
        return PlanDraft(situation, self.meter, self.script, steps, self.reserve, *drawn)


def find_flaw(script: object, situation: Situation) -> str | None:
    """Return what is unlawful in a strategy's script, None where nothing is."""
    if not isinstance(script, Script):
        return f"returned {type(script).__name__}: a plan returns a Script"
    if script.inserts:
        return "inserts messages: a plan leaves out and shortens"
    return _find_bad_clear(script, situation) or _find_bad_drop(script, situation)


def _find_bad_clear(script: Script, situation: Situation) -> str | None:
    messages = situation.transcript.messages
    for edit in script.clears:
        if not 0 <= edit.message < len(messages):
            return f"shortens message {edit.message}: there are {len(messages)}"
        held = messages[edit.message]
        if edit.call >= len(held.calls) or (edit.call < 0 and edit.part >= len(held.parts)):
            return f"shortens a part that message {edit.message} does not have"
        if edit.message in situation.verbatim:
            return f"shortens message {edit.message}, which is pinned"
    return None


def _find_bad_drop(script: Script, situation: Situation) -> str | None:
    if not script.drops:
        return None
    whole = {i for unit in situation.units if not script.drops.isdisjoint(unit) for i in unit}
    if script.drops != whole:
        return "leaves out a part of a unit, or what is in none: a call goes with its results"
    pinned = min(script.drops & situation.pins, default=None)
    return None if pinned is None else f"leaves out message {pinned}, which must stay"

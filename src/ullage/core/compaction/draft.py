"""A compaction in progress: the edits so far, and the resulting situation.

This module runs strategies and checks their plans, because a strategy may be the caller's own. It
decides neither their order nor when to stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction import strategies
from ullage.core.compaction.edits import Clear, Script, apply_clear, list_originals, reference
from ullage.core.compaction.words import WordStore
from ullage.core.facts.places import TextPlaces
from ullage.core.tokens import counting
from ullage.core.tokens.texts import MEDIA

if TYPE_CHECKING:
    from ullage.core.compaction.situation import Situation
    from ullage.core.compaction.strategy import Strategy
    from ullage.core.compaction.words import RestWords
    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.tokens.counting import Meter


@dataclass(slots=True)
class PlanDraft:
    """A plan in progress: the future situation, and the edits that lead to it.

    `reserve` are tokens kept free for the block, a part of the situation's `fixed`. `said` are the
    original messages, except those that a caller's strategy `rewrote`: the content of a block is
    taken from them, and `words` are theirs. `missed` is the size of the whole in counter tokens
    with rules and open tasks, if these had to go.
    """

    situation: Situation
    meter: Meter
    script: Script = Script()
    steps: list[tuple[str, Script]] = field(default_factory=list)
    reserve: int = 0
    said: Sequence[Message] = ()
    silent: set[int] = field(default_factory=set)
    flaws: list[str] = field(default_factory=list)
    words: WordStore = field(default_factory=lambda: WordStore(()))
    missed: int = 0
    rewrote: frozenset[int] = frozenset()

    def run(self, strategy: Strategy) -> None:
        """Add the edits of a strategy, unless they make the whole larger."""
        script = self.plan(strategy, self.situation)
        was, made, steps = self.situation, self.script, list(self.steps)
        self.take(strategy.name, script)
        flaw = None if strategy.always else find_growth(was.total, self.situation.total)
        if flaw is not None:
            self.situation, self.script, self.steps = was, made, steps
            self.note(strategy, flaw)
            return
        if strategy.silent:
            self.silent |= script.drops
        if strategy.name not in strategies.FILES:
            self._believe(script.clears)

    def run_edits(self, strategy: Strategy) -> None:
        """Add a caller's rewrites before the other strategies run; ignores plans with drops."""
        script = self.plan(strategy, self.situation)
        if script and not script.drops:
            self.take(strategy.name, script)
            self._believe(script.clears)

    def _believe(self, edits: Iterable[Clear]) -> None:
        """Use the text of a caller's strategy as if it were the original: it may hide a secret."""
        edits = [edit for edit in edits if edit.message not in self.script.drops]
        if not edits:
            return
        said = list(self.said)
        earlier = dict(self.situation.earlier)
        for edit in edits:
            said[edit.message] = apply_clear(said[edit.message], edit)[1]
            if edit.call < 0:
                earlier[edit.message, edit.part] = edit.text
        self.situation = replace(self.situation, earlier=earlier)
        self.said, self.words = said, WordStore(said, self.words.aside)
        self.rewrote = self.rewrote.union(edit.message for edit in edits)

    def plan(self, strategy: Strategy, situation: Situation) -> Script:
        """Return the script of a strategy, empty if it fails or is unlawful.

        A strategy may be the caller's own: its flaw is noted, and the next strategy runs.
        """
        try:
            script = strategy.plan(situation)
        except Exception as error:  # noqa: BLE001 - noted in the outcome
            flaw = f"raised {type(error).__name__}: {error}"
        else:
            found = find_flaw(script, situation)
            if found is None:
                return script
            flaw = found
        self.note(strategy, flaw)
        return Script()

    def note(self, strategy: Strategy, flaw: str) -> None:
        """Note a strategy's flaw once, whatever the sizes in it are."""
        text = f"strategy {strategy.name} {flaw}"
        if text.partition(":")[0] not in {known.partition(":")[0] for known in self.flaws}:
            self.flaws.append(text)

    def take(self, name: str, script: Script) -> None:
        """Add a strategy's edits and update the sizes, without counting anything twice."""
        if not script:
            return
        now = self.situation
        sizes, messages = list(now.sizes), now.transcript.messages
        for index in script.drops:
            sizes[index] = 0
        if script.clears:
            written, earlier = list(messages), dict(now.earlier)
            for edit in script.clears:
                if edit.message in self.script.drops:
                    continue  # the message is already dropped: the edit falls away
                sizes[edit.message] += now.count(edit.text, edit.message) - self._tokens(edit)
                sizes[edit.message] -= now.count_seen(edit.message, edit.part)
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
        """Tell whether the target is met."""
        return self.situation.total <= self.situation.target

    def name_originals(self, transcript: Transcript, script: Script) -> dict[str, str]:
        """Return the texts that a script removes from a transcript, by their names.

        A cut in a caller's rewritten text names that text, not the original.
        """
        texts = [part.text for i in self.rewrote for part in self.said[i].parts]
        written = {reference(text): text for text in texts if text}
        return written | list_originals(transcript, script, self.silent)

    def find_cut_task(self) -> int | None:
        """Return the position of the task if it was shortened, else None."""
        task = self.situation.transcript.task()
        return task if any(edit.message == task for edit in self.script.clears) else None

    def list_cut_words(self) -> Iterator[RestWords]:
        """Yield the sentences that were cut out of the task."""
        task = self.find_cut_task()
        if task is not None:
            stands = TextPlaces(self.situation.transcript.messages[task].text)
            yield from (r for r in self.words.list_typed([task]) if not stands.has(r.text))

    def pin(self, positions: Iterable[int]) -> None:
        """Add these messages to the pins."""
        pins = self.situation.pins.union(positions)
        self.situation = replace(self.situation, pins=pins)

    def hold(self, tokens: int) -> None:
        """Keep that many tokens free for the block."""
        fixed = self.situation.fixed - self.reserve + tokens
        self.situation, self.reserve = replace(self.situation, fixed=fixed), tokens

    def restore(self, before: PlanDraft) -> None:
        """Undo the plan back to an earlier copy."""
        self.situation, self.script, self.reserve = before.situation, before.script, before.reserve
        self.steps, self.silent = list(before.steps), set(before.silent)
        self.said, self.words, self.rewrote = before.said, before.words, before.rewrote

    def copy(self, share: float) -> PlanDraft:
        """Return a copy to try on, with that share of the protected tail."""
        now = self.situation
        keep = now.keep and now.keep._replace(messages=int(now.keep.messages * share))
        situation = replace(now, tail=int(now.tail * share), keep=keep)
        steps = list(self.steps)
        drawn = (self.said, set(self.silent), self.flaws, self.words)
        new = (situation, self.meter, self.script, steps, self.reserve)
        return PlanDraft(*new, *drawn, rewrote=self.rewrote)


def weigh_seen(messages: Sequence[Message], meter: Meter) -> dict[tuple[int, int], dict[int, int]]:
    """Return the tokens of the media in results, by the place of the result and by part."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for index, message in enumerate(messages):
        for at, part in enumerate(message.parts):
            if part.kind not in MEDIA or part.answers is None:
                continue
            for place, result in enumerate(message.parts):
                if result.kind == "result" and result.answers == part.answers:
                    seen = found.setdefault((index, place), {})
                    seen[at] = counting.medium(part, meter).high
    return found


def find_growth(before: int, after: int) -> str | None:
    """Return a flaw if edits make the total larger, else None."""
    if after <= before:
        return None
    return f"makes the request larger: {after:,} tokens after its edits, {before:,} before"


def find_flaw(script: object, situation: Situation) -> str | None:
    """Return what is unlawful in a strategy's script, in words, None if nothing is."""
    if not isinstance(script, Script):
        return f"returned {type(script).__name__}: a plan returns a Script"
    if script.inserts:
        return "inserts messages: a plan leaves out and shortens"
    return (
        _find_malformed(script)
        or _find_bad_clear(script, situation)
        or _find_bad_drop(script, situation)
    )


def _find_malformed(script: Script) -> str | None:
    """Return a flaw if values of a script have the wrong type or occur twice, else None."""
    drops: object = script.drops
    if not isinstance(drops, frozenset) or not {*map(type, drops)} <= {int}:
        return f"has drops {drops!r:.80}: give a frozenset of positions, as Script.of makes it"
    clears: object = script.clears
    if not isinstance(clears, tuple):
        return f"has clears {clears!r:.80}: give a tuple, as Script.of makes it"
    wrong = next((edit for edit in clears if not _is_clear(edit)), None)
    if wrong is not None:
        return f"has the edit {wrong!r:.80}: a Clear has three positions and a text"
    places = {(edit.message, edit.part, edit.call) for edit in script.clears}
    if len(places) < len(clears) or script.drops & {place[0] for place in places}:
        return "edits a text twice, or one that it leaves out: make it with Script.of"
    return None


def _is_clear(edit: object) -> bool:
    if not isinstance(edit, Clear):
        return False
    places: tuple[object, ...] = (edit.message, edit.part, edit.call)
    text: object = edit.text
    return {*map(type, places)} == {int} and isinstance(text, str)


def _find_bad_clear(script: Script, situation: Situation) -> str | None:
    flaws = (_check_clear(edit, situation) for edit in script.clears)
    return next((flaw for flaw in flaws if flaw is not None), None)


def _check_clear(edit: Clear, situation: Situation) -> str | None:
    messages = situation.transcript.messages
    if not 0 <= edit.message < len(messages):
        return f"shortens message {edit.message}: there are {len(messages)}"
    held = messages[edit.message]
    part = 0 <= edit.part < len(held.parts) and edit.call == -1
    call = 0 <= edit.call < len(held.calls) and edit.part == -1
    if not (part or call):
        return f"shortens a part that message {edit.message} does not have"
    if _is_fixed(edit.message, situation):
        return f"shortens message {edit.message}, which is pinned"
    return _find_bad_arguments(edit) if call else _find_bad_text(edit, held.parts[edit.part].kind)


def _find_bad_text(edit: Clear, kind: str) -> str | None:
    if not edit.text.strip():
        return f"puts an empty text into message {edit.message}: providers refuse one"
    if kind in SEALED:
        return f"shortens a part of kind {kind!r} in message {edit.message}: it goes whole or stays"
    return None


SEALED: Final = frozenset({"reasoning", "sealed", "compaction", "other"})
"""Kinds of parts that are never rewritten: reasoning and a provider's compaction are signed, and
the content of the others is unknown."""


def _is_fixed(index: int, situation: Situation) -> bool:
    """Tell whether a message must stay as it is: a pin other than an older task.

    The task may be shortened unless it is the current request or the caller's own pin.
    """
    if index not in situation.pins:
        return False
    transcript = situation.transcript
    return (
        index in situation.verbatim or index != transcript.task() or index == transcript.request()
    )


def _find_bad_arguments(edit: Clear) -> str | None:
    try:
        value = json.loads(edit.text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return None
    return f"puts {edit.text!r:.40} for the arguments of a call: give a JSON object"


def _find_bad_drop(script: Script, situation: Situation) -> str | None:
    if not script.drops:
        return None
    whole = {i for unit in situation.units if not script.drops.isdisjoint(unit) for i in unit}
    if script.drops != whole:
        return "leaves out a part of a unit: drop a call together with its results"
    pinned = min(script.drops & situation.pins, default=None)
    return None if pinned is None else f"leaves out message {pinned}, which must stay"

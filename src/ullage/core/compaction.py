"""Make a transcript smaller without breaking it: plan, edit, check, in one pass.

`compact` orders the strategies, lowers the protected tail until the target fits, applies the one
script that results and proves the laws on it. It is a generator: where a summary is wanted it
yields a `SummaryRequest` and is sent the answer, or None when there is none to be had. It calls
no model and knows no dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from ullage.core import laws
from ullage.core.counting import Count, text_size
from ullage.core.edits import Clear, Drop, Edit, Edited, Script, apply, cleared
from ullage.core.policies import clear, constraints, excerpt, knowledge, summarise, trim
from ullage.core.policies.situation import Situation, Strategy
from ullage.core.transcript import summarises

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.core.counting import Measure, Meter
    from ullage.core.laws import Violation
    from ullage.core.policies.policy import StrategyName
    from ullage.core.policies.summarise import Middle, SummaryRequest
    from ullage.core.transcript import Codec, Transcript

Reason = Literal[
    "nothing_to_compact",
    "would_inflate",
    "cannot_reach_target",
    "cannot_compact",
    "law_broken",
]
Answers = Generator["SummaryRequest", "str | None", "Outcome"]

TAILS: Final = (1.0, 0.5, 0.25, 0.0)
"""Shares of the protected tail that are tried in turn: every tail is an upper limit."""

RUNS: Final[Mapping[str, Strategy]] = {
    "clear": clear.plan,
    "trim_oldest": trim.plan,
}


@dataclass(frozen=True, slots=True)
class Order:
    """What a compaction shall do. `target` and `tail` are in the model's tokens.

    `pins` are positions in the transcript that stay besides what always stays (operator text,
    the task, the current request); `knowledge` are those that go first, `surplus` tokens of them
    whatever the target is. `alone` leaves everything else as it is; the target is then of a count
    without the server's word.
    """

    target: int
    tail: int
    strategies: tuple[StrategyName, ...]
    pins: frozenset[int] = frozenset()
    summariser: bool = False
    knowledge: frozenset[int] = frozenset()
    surplus: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: the script and its result, or none and the reason.

    `reached` tells whether the upper edge is at or under the target. `violations` are laws that
    the planned result would have broken: then nothing was changed.
    """

    edited: Edited
    script: Script
    before: Count
    after: Count
    reached: bool
    strategy: str = ""
    reason: Reason | None = None
    fallback_reason: str | None = None
    violations: tuple[Violation, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was edited."""
        return bool(self.script)


@dataclass(slots=True)
class _Draft:
    """A plan in the making: the situation as it will be, and the edits that lead there."""

    situation: Situation
    edits: list[Edit] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def take(self, name: str, edits: Iterable[Edit], text_cost: Callable[[str], int]) -> None:
        """Add a strategy's edits and work out what they free, without counting anything twice.

        An empty `name` is for edits that belong to whatever strategy follows.
        """
        edits = list(edits)
        if not edits:
            return
        now = self.situation
        sizes, messages = list(now.sizes), list(now.transcript.messages)
        fixed, gone = now.fixed, set[int]()
        for edit in edits:
            if isinstance(edit, Drop):
                sizes[edit.message] = 0
                gone.add(edit.message)
            elif isinstance(edit, Clear):
                old, messages[edit.message] = cleared(messages[edit.message], edit)
                sizes[edit.message] += now.count(edit.text) - now.count(old)
            else:
                fixed += text_cost(edit.text)
        kept = tuple(u for u in now.units if u.start not in gone)
        transcript = replace(now.transcript, messages=tuple(messages), memo={})
        self.situation = replace(now, transcript=transcript, sizes=sizes, fixed=fixed, units=kept)
        self.edits += edits
        self.names += [name] if name else []

    def copy(self, tail: int, pins: frozenset[int]) -> _Draft:
        """Return a draft to try on, with another tail and other pins."""
        situation = replace(self.situation, tail=tail, pins=pins)
        return _Draft(situation, list(self.edits), list(self.names))


def compact(
    transcript: Transcript, measured: Measure, meter: Meter, codec: Codec, order: Order
) -> Answers:
    """Compact a lawful transcript. Yields at most one SummaryRequest; returns the Outcome.

    Never raises for what cannot be done: the outcome says so. The result is the smallest lawful
    one where the target cannot be reached.
    """
    before = measured.count()
    unchanged = Outcome(apply(transcript, Script(), codec), Script(), before, before, reached=True)
    like = replace(measured, anchor=None).count()  # what comes of it has no report to stand on
    if (like if order.alone else before).high <= order.target:
        return replace(unchanged, reason="nothing_to_compact")
    hard = _hard_pins(transcript, order.pins)
    start = _situation(transcript, measured, meter, order, hard)

    def cost(text: str) -> int:
        return text_size(text, meter)

    draft = _Draft(start)
    surplus = start.total - ceil(order.surplus / measured.scale.high)
    left_out = knowledge.plan(replace(start, target=min(start.target, surplus)))
    draft.take("knowledge", left_out, cost)
    fallback: str | None = None
    if not order.alone:
        draft, fallback = yield from _planned(draft, order, hard, cost)
    script = Script.of(draft.edits)
    if not script:
        reason: Reason = "cannot_compact" if _stuck(start, hard) else "nothing_to_compact"
        return replace(unchanged, reached=False, reason=reason)
    edited = apply(transcript, script, codec)
    after = measured.of(edited.transcript, meter).count()
    reached = after.high <= order.target
    if after.high >= like.high:
        return replace(unchanged, reached=False, reason="would_inflate")
    broken = laws.prove(transcript, script, edited, hard)
    broken += laws.prove_size(like.high, after.high, order.target, reached=reached)
    if broken:
        return replace(unchanged, reached=False, reason="law_broken", violations=tuple(broken))
    missed: Reason = "cannot_compact" if _stuck(start, hard) else "cannot_reach_target"
    return Outcome(
        edited,
        script,
        before,
        after,
        reached,
        strategy="+".join(draft.names),
        reason=None if reached else missed,
        fallback_reason=fallback,
    )


def _planned(
    draft: _Draft, order: Order, hard: frozenset[int], cost: Callable[[str], int]
) -> Generator[SummaryRequest, str | None, tuple[_Draft, str | None]]:
    """Return the plan for what is said, and why its summary was written by rule, if it was."""
    start = draft.situation
    draft.take("excerpt", _oversized(start), cost)
    budget = int(start.target * constraints.SHARE)
    rules = constraints.find(start.transcript, start.count, budget) - hard - order.knowledge
    draft.take("", constraints.plan(draft.situation, sorted(rules)), cost)
    draft = draft.copy(start.tail, hard | rules)
    fallback: str | None = None
    if "summarise_middle" in order.strategies:
        middle = _choose_middle(draft.situation)
        if middle is not None:
            summary, fallback = yield from _summary(middle, asked=order.summariser)
            draft.take("summarise_middle", middle.edits(summary), cost)
    return _settle(draft, order, hard, cost), fallback


def _hard_pins(transcript: Transcript, declared: frozenset[int]) -> frozenset[int]:
    always = [i for i in (transcript.task(), transcript.request()) if i is not None]
    return frozenset({*laws.pinned(transcript.messages), *declared, *always})


def _situation(
    transcript: Transcript, measured: Measure, meter: Meter, order: Order, hard: frozenset[int]
) -> Situation:
    target = measured.ceiling(order.target)
    return Situation(
        transcript=transcript,
        units=tuple(laws.units(transcript)),
        sizes=[size.high for size in measured.sizes],
        fixed=measured.fixed.high,
        target=target,
        pins=hard,
        tail=measured.ceiling(order.tail + measured.extra),  # messages alone: no part of `extra`
        count=meter.counter.count,
        knowledge=order.knowledge,
    )


def _oversized(situation: Situation) -> list[Edit]:
    """Return the shortening of a newest response that alone takes more than half of the target."""
    if situation.total <= situation.target or not situation.units:
        return []
    newest = situation.units[-1]
    sizes = [0] * len(situation.sizes)
    sizes[newest.start : newest.stop] = situation.sizes[newest.start : newest.stop]
    alone = replace(situation, sizes=sizes, fixed=0, units=(newest,), target=situation.target // 2)
    return excerpt.plan(alone)


def _choose_middle(situation: Situation) -> Middle | None:
    """Return the middle under the largest tail with which the target can be met."""
    chosen = None
    for share in TAILS:
        chosen = summarise.middle(replace(situation, tail=int(situation.tail * share)))
        if chosen is None:
            continue
        saved = sum(situation.sizes[i] for i in chosen.dropped)
        if situation.total - saved + chosen.budget <= situation.target:
            return chosen
    return chosen


def _summary(
    middle: Middle, *, asked: bool
) -> Generator[SummaryRequest, str | None, tuple[str, str | None]]:
    """Return the summary and, where it was written by rule, why."""
    if not asked:
        return middle.by_rule(), "no_summariser"
    answer = yield middle.request()
    flaw = "summariser_failed" if answer is None else middle.flaw(answer)
    if answer is None or flaw is not None:
        return middle.by_rule(), flaw
    return answer, None


def _settle(
    draft: _Draft, order: Order, hard: frozenset[int], cost: Callable[[str], int]
) -> _Draft:
    """Run the deterministic strategies with ever smaller tails until the target is met."""
    messages = draft.situation.transcript.messages
    summaries = {i for i, m in enumerate(messages) if summarises(m)}
    pins, tail = draft.situation.pins | summaries, draft.situation.tail
    tries = [(int(tail * share), pins, False) for share in TAILS]
    tries += [(0, pins, True), (0, draft.situation.pins, True), (0, hard, True)]
    trial = draft
    for size, kept, last in tries:
        trial = draft.copy(size, kept)
        for name in order.strategies:
            if name in RUNS:
                trial.take(name, RUNS[name](trial.situation), cost)
        if last:
            trial.take("excerpt", excerpt.plan(trial.situation), cost)
        if trial.situation.total <= trial.situation.target:
            break
    return trial


def _stuck(situation: Situation, hard: frozenset[int]) -> bool:
    """Tell whether what must stay is alone over the target."""
    return situation.fixed + sum(situation.sizes[i] for i in hard) > situation.target

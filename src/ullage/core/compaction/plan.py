"""Make a transcript smaller without breaking it: plan, edit, check, in one pass.

`compact` orders the strategies, lowers the protected tail until the target fits, replaces dropped
messages with one block, applies the resulting script and proves the laws on the result. It is a
generator: if a summary is wanted, it yields requests for a summariser and receives the answers,
None for a failed one. It calls no model and knows no dialect.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.compaction import block as carried
from ullage.core.compaction import laws, strategies
from ullage.core.compaction.binding import unbind
from ullage.core.compaction.block import Carried
from ullage.core.compaction.checkpoint import Checkpoint, chain
from ullage.core.compaction.draft import PlanDraft, weigh_seen
from ullage.core.compaction.dropping import TAILS
from ullage.core.compaction.edits import Edited, Insert, Script, apply, join_raws, reference
from ullage.core.compaction.excerpts import quote_results, quote_used, shorten_ends
from ullage.core.compaction.faults import SPARED_SHARE, spare
from ullage.core.compaction.in_place import keep_in_place
from ullage.core.compaction.packing import SaidWords
from ullage.core.compaction.policy import CARRY_SHARE
from ullage.core.compaction.prose import LEAST_PROSE, make_job, name_summary, settle_prose
from ullage.core.compaction.reasons import Reason
from ullage.core.compaction.reopening import reopen_newest
from ullage.core.compaction.room import (
    NAMED,
    SPREAD,
    count_reserve,
    drop_for_block,
    find_risen,
    gather_gone,
    name_alone,
    reach_by_name,
    refill,
    restore_newest,
    split_room,
)
from ullage.core.compaction.situation import Keep, Situation
from ullage.core.compaction.strategies import excerpt
from ullage.core.compaction.strategy import Strategy
from ullage.core.compaction.traits import Trait
from ullage.core.compaction.words import WordStore
from ullage.core.facts.sheet import UNKNOWN
from ullage.core.messages.transcript import summarises
from ullage.core.summary import request as summary
from ullage.core.tokens import counting, parallel
from ullage.core.tokens.counting import Count, text_size
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from ullage.core.compaction.laws import Violation
    from ullage.core.facts.sheet import Facts
    from ullage.core.messages.transcript import Codec, Message, Transcript
    from ullage.core.summary.question import Answer, SummaryRequest
    from ullage.core.summary.request import Written
    from ullage.core.tokens.counting import Measure, Meter

Asking = Generator[tuple["SummaryRequest", ...], "Sequence[Answer | None]", "Outcome"]


BLOCKS: Final = (1.0, 0.5, 0.25, 0.0)
"""Shares of the block that are tried in turn after all tails have been tried."""


class PaidProse(NamedTuple):
    """A summary that was already paid for, and the tokens of the block that it was made for."""

    written: Written
    block: int


@dataclass(frozen=True, slots=True)
class Order:
    """The task of a compaction. `target` and `tail` are in the model's tokens.

    `first` are strategies that run once, before all others. Without `strategies` nothing else is
    edited, and the comparison with the target ignores the server's own count. `pins` are positions
    that stay in addition to operator text, the task and the current request. `faulted` are
    positions that were asked for again: they stay, within a share of the target. `keep` bounds the
    tail in messages, `carry` is the share of the target for a block, `traits` are those of tools
    (see `Situation`). With a `summariser` the plan asks for summaries, in requests of at most
    `window` tokens. `named` gives dropped text the name under which a store keeps it. With `tries`
    an unanswered task before a newer request may go if nothing else fits. `paid` is used as the
    summary instead of a new one. The target may rise up to `most` tokens to save rules and open
    tasks; 0 forbids it. `aside` are facts that did not fit into the block in force: they return if
    there is room. If the request is `beyond` its window, the block in force may be cut even if the
    target is missed.
    """

    target: int
    tail: int
    strategies: tuple[Strategy | str, ...]
    first: tuple[Strategy, ...] = ()
    pins: frozenset[int] = frozenset()
    faulted: frozenset[int] = frozenset()
    summariser: bool = False
    keep: Keep | None = None
    carry: float = CARRY_SHARE
    traits: Mapping[str, Trait] = field(default_factory=dict)
    window: int | None = None
    named: bool = False
    tries: bool = False
    paid: PaidProse | None = None
    most: int = 0
    aside: Facts = UNKNOWN
    beyond: bool = False

    @property
    def runs(self) -> tuple[Strategy, ...]:
        """The strategies as objects."""
        return tuple(map(strategies.find, self.strategies))


BLOCK: Final = "block"
"""The name shown instead of a strategy for edits that came with the block."""


@dataclass(frozen=True, slots=True)
class Change:
    """One edited message: its upper edge before and after in tokens; `after` is None if it goes."""

    position: int
    message: Message
    before: int
    after: int | None
    strategy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a compaction: the script and its effect, or the reason why nothing changed.

    `reached` tells whether the upper edge is at or below the `target`. `violations` are laws that
    the planned result would break; then nothing is changed. `block` is the text that replaces the
    dropped messages, `carried` its content, `written` the record of its prose. `originals` has the
    dropped texts by name.
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
    block: str = ""
    carried: Carried | None = None
    written: Written | None = None
    originals: Mapping[str, str] = field(default_factory=dict)
    flaws: tuple[str, ...] = ()
    """Flaws of strategies; a strategy with a flaw took no part."""
    steps: tuple[tuple[str, Script], ...] = ()
    """The strategies that took part, in order, and the edits of each."""
    was: Transcript | None = None
    """The transcript before the compaction."""
    edges: tuple[Sequence[int], Sequence[int]] = ((), ())
    """The upper edge of each message before and after, in counter tokens."""
    room: int = 0
    """The tokens that a block of prose and facts might take, in counter tokens."""
    target: int = 0
    """The target that was planned for, in the model's tokens; it may have risen (`Order.most`)."""

    def __repr__(self) -> str:
        sizes = f"{self.before.tokens:,} -> {self.after.tokens:,} tokens"
        how = self.strategy or None
        return line("Outcome", sizes, reached=self.reached, strategy=how, reason=self.reason)

    @property
    def changed(self) -> bool:
        """Tell whether anything was edited."""
        return bool(self.script)

    def changes(self) -> Iterator[Change]:
        """Yield the change of each edited message, by position."""
        if self.was is None:
            return
        before, after = self.edges
        kept = {old: new for new, old in enumerate(self.edited.origin) if old is not None}
        by: dict[int, str] = {}
        for name, script in self.steps:
            by |= dict.fromkeys([clear.message for clear in script.clears], name)
            by |= dict.fromkeys(script.drops, name)
        for place in sorted({*self.script.drops, *(c.message for c in self.script.clears)}):
            left = None if place in self.script.drops else after[kept[place]]
            message = self.was.messages[place]
            yield Change(place, message, before[place], left, by.get(place, BLOCK))


def compact(
    transcript: Transcript, measured: Measure, meter: Meter, codec: Codec, order: Order
) -> Asking:
    """Compact a lawful transcript. Yields requests for a summariser; returns the Outcome.

    Never raises if compaction is impossible: the outcome says so. If the target cannot be reached,
    the result is the smallest lawful one.
    """
    before = measured.count()
    same = Edited(transcript, tuple(range(len(transcript))))
    unchanged = Outcome(same, Script(), before, before, reached=True, target=order.target)
    like = replace(measured, anchor=None).count()  # a compacted prompt has no server report
    always = any(strategy.always for strategy in order.first)
    if not always and (before if order.strategies else like).high <= order.target:
        return replace(unchanged, reason="nothing_to_compact")
    words = WordStore(transcript.messages, order.aside)
    order, start, draft = _rise_for_rules(transcript, measured, meter, order, words)
    written = yield from _write_prose(draft, start, order)
    block, kept, written = _fit_block(draft, start, order, written)
    script = unbind(transcript, draft.script | block)
    unchanged = replace(unchanged, flaws=tuple(draft.flaws))
    if not script or carried.says_the_same(transcript, script):
        reason: Reason = "cannot_compact" if start.is_stuck else "nothing_to_compact"
        return replace(unchanged, reached=False, reason=reason)
    edited = apply(transcript, script, codec)
    after = measured.of(edited.transcript, meter).count()
    reached = after.high <= order.target
    vain = not (reached or order.beyond) and carried.touches_block_alone(transcript, script)
    if vain or after.high >= like.high:
        reason = "nothing_to_compact" if vain else "would_inflate"
        return replace(unchanged, reached=False, reason=reason)
    broken = laws.prove(transcript, script, edited, start.pins, order.pins)
    broken += laws.prove_bound(transcript, script, edited)
    broken += laws.prove_size(like.high, after.high, order.target, reached=reached)
    if broken:
        return replace(unchanged, reached=False, reason="law_broken", violations=tuple(broken))
    missed: Reason = "cannot_compact" if start.is_stuck else "cannot_reach_target"
    return Outcome(
        edited,
        script,
        before,
        after,
        reached,
        strategy="+".join(draft.names),
        reason=None if reached else missed,
        fallback_reason=_fallback(draft, order, written),
        block=block.inserts[0].text if block else "",
        carried=kept,
        written=written,
        originals=draft.name_originals(transcript, script) if order.named else {},
        flaws=tuple(draft.flaws),
        steps=tuple(draft.steps),
        was=transcript,
        edges=(start.sizes, counting.upper_edges(edited.transcript, meter)),
        room=start.block,
        target=order.target,
    )


def _rise_for_rules(
    transcript: Transcript, measured: Measure, meter: Meter, order: Order, words: WordStore
) -> tuple[Order, Situation, PlanDraft]:
    """Return the plan for an order, or for a higher target if that saves the rules."""
    start, draft = _start_plan(transcript, measured, meter, order, words)
    if risen := find_risen(draft, measured, order.target, order.most):
        higher = replace(order, target=risen)
        begun, found = _start_plan(transcript, measured, meter, higher, words)
        if not found.missed:
            return higher, begun, found
    return order, start, draft


def _start_plan(
    transcript: Transcript, measured: Measure, meter: Meter, order: Order, words: WordStore
) -> tuple[Situation, PlanDraft]:
    """Return the situation and its plan; `words` are those of the transcript."""
    start = make_situation(transcript, measured, meter, order)
    draft = _make_draft(start, meter, order, words)
    if order.faulted and not draft.fits:
        start = make_situation(transcript, measured, meter, replace(order, faulted=frozenset()))
        draft = _make_draft(start, meter, order, words)
    if order.tries and not draft.fits and not transcript.has_answer():
        # No request was answered yet: the task is an older try of the current request.
        older = {transcript.task()} - {transcript.request(), *order.pins}
        start = replace(start, pins=start.pins - older)
        draft = _make_draft(start, meter, order, words)
    return start, draft


def _make_draft(start: Situation, meter: Meter, order: Order, words: WordStore) -> PlanDraft:
    """Return the plan for a situation."""
    draft = PlanDraft(start, meter, said=start.transcript.messages, words=words)
    _drop_replaced(draft)
    for strategy in order.first:
        draft.run(strategy)
    for strategy in order.runs:
        if strategy.always and strategy.name not in strategies.FILES:
            draft.run_edits(strategy)
    return _plan_draft(draft, order) if order.strategies else draft


def _drop_replaced(draft: PlanDraft) -> None:
    """Drop what the provider's own compaction already replaced. It is free and needs no block."""
    situation = draft.situation
    if not situation.transcript.count_replaced():
        return
    replaced, pins = situation.transcript.is_replaced, situation.pins
    free = [u for u in situation.units if pins.isdisjoint(u) and all(map(replaced, u))]
    gone = Script(frozenset(i for unit in free for i in unit))
    draft.take(REPLACED, gone)
    draft.silent |= gone.drops


REPLACED: Final = "replaced"
"""The name for drops of messages that the provider no longer reads."""


def make_situation(
    transcript: Transcript, measured: Measure, meter: Meter, order: Order
) -> Situation:
    """Return the input for strategies: sizes, what must stay, and the target."""
    always = [i for i in (transcript.task(), transcript.request()) if i is not None]
    target = measured.ceiling(order.target)
    block = min(int(target * min(order.carry, SUMMARY_SHARE)), SUMMARY_MOST)
    units, sizes = laws.units(transcript), counting.upper_edges(transcript, meter)
    spared = spare(units, sizes, order.faulted, int(target * SPARED_SHARE))
    return Situation(
        transcript=transcript,
        units=units,
        sizes=sizes,
        fixed=measured.fixed_edge,
        target=target,
        pins=laws.find_fixed(transcript) | order.pins | {*always} | spared,
        tail=measured.ceiling(order.tail + measured.extra),  # only messages, without `extra`
        counter=meter.counter,
        keep=order.keep,
        block=block if order.paid is None else order.paid.block,
        traits=order.traits,
        name_of=reference if order.named else None,
        verbatim=order.pins,
        parallel=parallel.list_parallel(transcript.messages, meter),
        seen=weigh_seen(transcript.messages, meter),
    )


SUMMARY_SHARE: Final = 0.25
"""The largest share of the target for a block with a model's summary."""

SUMMARY_MOST: Final = 6_000
"""Tokens of the largest block with a model's summary: 2,000 of prose, plus the facts."""


def _plan_draft(draft: PlanDraft, order: Order) -> PlanDraft:
    """Return the plan for the messages."""
    draft.take("excerpt", excerpt.shorten_newest(draft.situation))
    for strategy in order.runs:
        if strategy.prose and _is_wanted(order):
            _make_way(draft, strategy, order)
    return _settle(draft, order, _find_most(draft, order))


def _is_wanted(order: Order) -> bool:
    """Tell whether a strategy that wants a summary is to run.

    If there is no summariser, other dropping strategies fill the target better: they can keep parts
    of a step, and a summary strategy keeps or drops whole steps.
    """
    others = any(each.drops and not each.silent and not each.prose for each in order.runs)
    return order.summariser or order.paid is not None or not others


def _make_way(draft: PlanDraft, strategy: Strategy, order: Order) -> None:
    """Drop the messages that a summary will replace. The block also gets room for people's words.

    If the wide block would not pay, or the target is out of reach with it, the block gets the room
    of prose and facts only.
    """
    now = draft.situation
    stays = now.pins.union(now.units[-1]) if now.units else now.pins
    most = now.target - now.fixed - sum(now.sizes[i] for i in stays)
    wide = max(split_room(draft, int(now.target * order.carry)), now.block)
    for room in (wide, now.block) if wide <= most else (now.block,):
        situation = replace(now, block=room)
        gone = draft.plan(strategy, situation)
        if gone:
            draft.situation = situation
            draft.hold(room)
            draft.take(strategy.name, gone)
            refill(draft, now, now.target - draft.situation.total, told=True)
            return


def _find_most(draft: PlanDraft, order: Order) -> int:
    """Return the most tokens that the block may take."""
    if draft.reserve or order.paid is not None:
        return draft.situation.block
    return int(draft.situation.target * order.carry)


def _write_prose(
    draft: PlanDraft, start: Situation, order: Order
) -> Generator[tuple[SummaryRequest, ...], Sequence[Answer | None], Written | None]:
    """Return the summary of all dropped messages, None if no summariser is asked.

    The request is made after the plan is settled, and only if the block has room for the answer, so
    no paid answer is thrown away.
    """
    if not order.summariser or not _is_summarised(draft, order):
        return None
    if order.paid is not None:
        return order.paid.written
    gone = sorted(draft.script.drops - draft.silent)
    kept = _gather(draft, gone)
    room = draft.reserve - text_size("", draft.meter) - (SPREAD if order.named else 0)
    tokens = carried.find_prose_room(kept, room, start.count, NAMED if order.named else "")
    tokens = min(tokens, start.block // 2)  # the rest is for people's words
    if not draft.fits or tokens < LEAST_PROSE:
        return summary.make_unasked("no_room")
    messages = [draft.said[i] for i in gone]
    job = make_job(messages, kept, gone, tokens=tokens, window=order.window, count=start.count)
    return (yield from summary.write(job))


def _gather(draft: PlanDraft, gone: Sequence[int]) -> Carried:
    """Return what the dropped messages leave behind, without facts that later messages replace."""
    messages, dropped = draft.said, draft.script.drops
    later = [messages[i] for i in range(gone[0], len(messages)) if i not in dropped]
    return gather_gone(draft, gone, later)


def _settle(draft: PlanDraft, order: Order, most: int) -> PlanDraft:
    """Run the deterministic strategies with ever smaller tails until the target is met.

    If that is not enough, shorten the newest results and the task, then shrink the block. If even
    that is not enough, a block with the rules and open tasks stays.
    """
    untold: PlanDraft | None = None
    for tail in TAILS:
        trial = _try_strategies(draft, order, tail, most, last=False)
        if trial.fits and (trial.script.drops or not any(trial.list_cut_words())):
            reopen_newest(trial, draft)
            return trial
        untold = trial if trial.fits and untold is None else untold
    if untold is not None:  # nothing can go, so no block reports cuts in the task
        return untold
    least, rules = draft, count_reserve(draft.copy(0.0), most, carried.rules)
    rules = min(rules + carried.NOTICE, most) if rules else 0
    name = min(name_alone(draft), most)
    for share in BLOCKS:
        reserve = max(int(most * share), rules if share else 0, name)
        trial = _try_strategies(draft, order, 0.0, reserve, last=True)
        if trial.fits:
            trial.missed = least.situation.total if rules and not share else 0
            return trial
        least = trial if share or not order.carry else least
    least.missed = least.situation.total if rules else 0
    return least


def _try_strategies(
    draft: PlanDraft, order: Order, tail: float, reserve: int, *, last: bool
) -> PlanDraft:
    """Return the draft after the strategies, with this share of its tail."""
    trial = draft.copy(tail)
    trial.hold(min(trial.reserve, reserve))
    for strategy in order.runs:
        if strategy.prose or (trial.fits and not strategy.always):
            continue
        if strategy.drops:
            shorten_ends(trial)
        if strategy.drops and not trial.reserve:
            trial.hold(count_reserve(trial, split_room(trial, reserve)))
            if not trial.reserve:  # no new block will be written, so an existing one stays
                trial.pin(_blocks(trial.situation.transcript))
        if strategy.drops or last:  # if the target is missed, the result is as small as possible
            trial.run(strategy)
            drop_for_block(trial, strategy)
        else:
            quote_used(trial, strategy)
    if last:
        trial.take("excerpt", excerpt.plan(trial.situation))
    return trial


def _blocks(transcript: Transcript) -> Iterator[int]:
    users = (i for i, m in enumerate(transcript.messages) if m.role == "user")
    return (i for i in users if summarises(transcript.messages[i]))


_Fitted = tuple[Script, Carried | None, "Written | None"]


def _fit_block(
    draft: PlanDraft, start: Situation, order: Order, written: Written | None
) -> _Fitted:
    """Return the insert of the block, its content, and the summary as it stands in it.

    Messages fill the room that a block without a summary leaves, or replace the block if the room
    is small. Lines of cleared results fill the rest.
    """
    fitted = _block(draft, start, order, written)
    told = written is not None and written.prose is not None
    if restore_newest(draft, start, _get_text(fitted), told=told):
        fitted = _block(draft, start, order, written)
    if order.carry and not told and keep_in_place(draft, start, _get_text(fitted)):
        fitted = _block(draft, start, order, written)
    text = _get_text(fitted)
    size = text_size(text, draft.meter) if text else 0
    quote_results(draft, draft.situation.target - draft.situation.total + draft.reserve - size)
    return fitted


def _get_text(fitted: _Fitted) -> str:
    """Return the text of a block, "" if nothing is inserted."""
    insert = fitted[0].inserts
    return insert[0].text if insert else ""


def _block(draft: PlanDraft, start: Situation, order: Order, written: Written | None) -> _Fitted:
    """Return the insert of the block, within its reserved room, and its content."""
    gone = sorted(draft.script.drops - draft.silent)
    if not gone or not draft.reserve:
        return Script(), None, written
    kept = _gather(draft, gone)
    named = f"; recall {reference(join_raws(start.transcript, gone))}" if order.named else ""
    spare = max(draft.situation.target - draft.situation.total, 0)
    most = max(draft.reserve, int(draft.situation.target * order.carry))
    made = carried.write_block(
        kept,
        min(draft.reserve + spare, most) - text_size("", draft.meter),
        start.count,
        prose=written.prose if written is not None else None,
        spoken=_is_summarised(draft, order),
        named=named,
    )
    text = reach_by_name(draft, made.text, kept, named) if named else made.text
    if not text:
        return Script(), None, written
    if written is not None:
        asked = [strategy.name for strategy in order.runs if strategy.prose]
        written = settle_prose(written, made)
        name_summary(draft, asked, written, updating=bool(kept.prose))
    task = start.transcript.task()
    place = max(gone[0], task + 1 if task is not None else 0)
    script = Script(inserts=(Insert(place, "user", text),))
    return script, replace(kept, words=SaidWords()), written


def _is_summarised(draft: PlanDraft, order: Order) -> bool:
    """Tell whether a strategy that wants a summary took part."""
    return any(strategy.prose and strategy.name in draft.names for strategy in order.runs)


def _fallback(draft: PlanDraft, order: Order, written: Written | None) -> str | None:
    """Return why a summary was written by rule, None if it was not."""
    if written is not None:
        return written.flaw if written.prose is None else None
    wanted = order.strategies and any(strategy.prose for strategy in order.runs)
    return "no_summariser" if wanted and draft.script.drops else None


def make_checkpoint(
    history: Transcript, script: Script, outcome: Outcome, **facts: Any
) -> Checkpoint:
    """Return the record of an outcome: `script` is its whole effect on `history`.

    `facts` are fields such as the trigger, the scope and the policy.
    """
    hashes, count, written = chain(history), script.reach(), outcome.written
    touched = [*script.drops, *(c.message for c in script.clears)]
    usage = written.usage if written is not None else None
    held = asdict(outcome.carried.facts) if outcome.carried is not None else {}
    return Checkpoint(
        prefix=hashes[count - 1],
        count=count,
        script=script,
        strategy=outcome.strategy,
        basis=outcome.after.basis,
        tokens_before=outcome.before.tokens,
        tokens_after=outcome.after.tokens,
        fallback_reason=outcome.fallback_reason,
        whole=hashes[-1],
        first=min(touched, default=count),
        source_count=len(script.drops),
        tail_count=len(history) - count,
        kept_tokens=_count_untouched(outcome),
        summary=outcome.block,
        facts={name: list(lines) for name, lines in held.items() if lines},
        usage=asdict(usage) if usage is not None else None,
        seen=written.seen if written is not None else None,
        **facts,
    )


def _count_untouched(outcome: Outcome) -> int:
    """Return the model's tokens before the first edit."""
    measure = outcome.after.measured
    if measure is None:
        return 0
    made = outcome.script
    touched = [*made.drops, *(c.message for c in made.clears), *(i.before for i in made.inserts)]
    sizes = [size.best for size in measure.sizes[: min(touched, default=None)]]
    return measure.outside().best + round(sum(sizes) * measure.scale.best)

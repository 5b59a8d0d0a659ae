"""How much of a target a block takes, and how much is left for the newest messages.

It plans no drops and writes no block.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import ceil
from typing import TYPE_CHECKING, Final

from ullage.core.compaction import block as carried
from ullage.core.compaction.dropping import drop, free
from ullage.core.compaction.edits import Script
from ullage.core.compaction.packing import HEAD, MARGIN
from ullage.core.compaction.situation import CUT
from ullage.core.compaction.strategies.excerpt import shorten_results
from ullage.core.compaction.words import estimate
from ullage.core.messages.transcript import summarises
from ullage.core.tokens.counting import text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.core.compaction.block import Carried
    from ullage.core.compaction.draft import PlanDraft
    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation
    from ullage.core.compaction.strategy import Strategy
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Measure


def count_reserve(
    draft: PlanDraft, most: int, of: Callable[[Carried], Carried] = carried.all_of
) -> int:
    """Return what a block for everything that may go, or for this of it, takes, at most."""
    overhead = text_size("", draft.meter)
    least = max(overhead + 1, name_alone(draft))
    if most < least:
        return 0
    places = [i for unit in free(draft.situation) for i in unit]
    if of is carried.all_of and most > _SURE and _estimate_all(draft, places) > most:
        return most
    kept = of(gather_gone(draft, places, bare=of is carried.rules))
    named = NAMED if draft.situation.name_of is not None else ""
    text = carried.block(kept, most - overhead, draft.situation.count, named=named)
    size = text_size(text, draft.meter) + (SPREAD if draft.situation.name_of is not None else 0)
    return min(size, most) if text else 0


def gather_gone(
    draft: PlanDraft, gone: Sequence[int], later: Sequence[Message] = (), *, bare: bool = False
) -> Carried:
    """Return what outlives the messages at these places, without what `later` ones overtake.

    Of a task that was shortened it is what does not stand in it any more. What is `bare` has no
    words that are weighed.
    """
    task = draft.find_cut_task()
    places = gone if task is None else sorted({task, *gone})
    messages = [draft.said[i] for i in places]
    kept = carried.gather(messages, later, draft.words, places, bare=bare)
    if task is None:
        return kept
    stands = draft.situation.transcript.messages[task].text
    return carried.leave_out(replace(kept, messages=len(gone)), stands)


def drop_for_block(draft: PlanDraft, strategy: Strategy) -> None:
    """Leave the oldest unit out where only the task was cut: a block tells of both.

    A strategy that leaves out nothing, or says nothing of it, does not do so here.
    """
    if not strategy.drops or strategy.silent or draft.script.drops or not draft.reserve:
        return
    if not any(draft.list_cut_words()):
        return
    draft.take(strategy.name, drop(free(draft.situation)[:1]))


def _estimate_all(draft: PlanDraft, places: Sequence[int]) -> float:
    """Return about how many tokens all people's words, all answers and earlier blocks take."""
    said = draft.words.find_said(places)
    about = sum(estimate(valued.segment.text) for valued in said)
    about += sum(estimate(rest.text) for rest in draft.list_cut_words())
    whole = (i for i in places if _stands_whole(draft.said[i]))
    return about + sum(draft.situation.sizes[i] for i in whole)


def _stands_whole(message: Message) -> bool:
    return message.role == "assistant" or summarises(message)


def split_room(draft: PlanDraft, most: int) -> int:
    """Return the tokens of the block: as few as take people's words of what makes way for it.

    What is left is for the newest messages. Where not even the words fit, the newest messages have
    a share of the room. Rules and open tasks have theirs whatever the newest messages take.
    """
    now = draft.situation
    units = [unit for unit in now.units[:-1] if now.pins.isdisjoint(unit)]
    sizes = [sum(now.sizes[unit.start : unit.stop]) for unit in units]
    kept = sum(sizes)
    room = now.target - (now.total - kept) + draft.reserve
    share = TAIL_SHARE if now.keep is None else 1.0  # so many messages are the caller's word
    least = min(_count_tail(now), int(room * share))
    block = HEAD + sum(estimate(rest.text) for rest in draft.list_cut_words()) * MARGIN
    others = 0.0
    for unit, size in zip(units, sizes, strict=True):
        if kept + block + min(others, room * OTHERS_SHARE) <= room:
            break
        if kept - size < least and kept <= room * share:
            break
        kept -= size
        if summarises(draft.said[unit.start]):
            block += size  # what outlived one compaction is to outlive this one
            continue
        said = [estimate(rest.text) for rest in draft.words.list_typed(unit)]
        block += sum(said) * MARGIN
        others += 0.0 if said else size
    found = max(min(room - kept, most), min(name_alone(draft), most))
    # where a block's head alone would fill the room, rules are kept and the target is missed
    share = max(room // 2, HEAD) if room >= HEAD else most // 2
    if found >= share:
        return found
    rules = count_reserve(draft, most, carried.rules) + carried.NOTICE
    return max(found, min(rules, share, most))


def restore_newest(draft: PlanDraft, start: Situation, block: str, *, told: bool) -> bool:
    """Take the newest messages back that fit where the block left room; tell whether any did.

    What is said twice stands in a block once: then it takes less than was kept for it. A message
    that a caller's strategy rewrote stays away, with those in front of it.
    """
    now, size = draft.situation, text_size(block, draft.meter)
    spare = now.target - now.total + draft.reserve - size
    found = refill(draft, start, spare, told=told)
    if found:
        draft.hold(size)
    return found


def refill(draft: PlanDraft, start: Situation, spare: int, *, told: bool) -> bool:
    """Take the newest messages back that fit into so many tokens; tell whether any did.

    Where a summary tells of what is gone, the oldest stays away, and the results of the last one
    back are cut where it does not fit whole: no other strategy keeps a part of it.
    """
    if spare <= draft.situation.target * LOOSE:
        return False
    gone = draft.script.drops - draft.silent
    newest = [unit for unit in reversed(start.units) if unit.start in gone]
    newest = newest[: len(newest) - told]
    back, edits = set[int](), Script()
    for unit in takewhile(draft.rewrote.isdisjoint, newest):
        size = sum(start.sizes[unit.start : unit.stop])
        if size > spare:
            edits = _cut(draft, start, unit, size - spare) if told else edits
            back.update(unit if edits else ())
            break
        back.update(unit)
        spare -= size
    if not back:
        return False
    now, drops = draft.situation, draft.script.drops - back
    sizes = [start.sizes[i] if i in back else size for i, size in enumerate(now.sizes)]
    units = tuple(unit for unit in start.units if unit.start not in drops)
    draft.situation = replace(now, sizes=sizes, units=units)
    draft.script = replace(draft.script, drops=drops)
    draft.take("excerpt", edits)
    return True


def _cut(draft: PlanDraft, start: Situation, unit: Unit, over: int) -> Script:
    """Return what cuts the results of a unit by so many tokens, nothing where that is too much."""
    messages = start.transcript.messages
    cut = any(CUT in part.text for i in unit for part in messages[i].parts)
    if cut or any(edit.message in unit for edit in draft.script.clears):
        return Script()  # what a text that was cut before names is to stay the original
    edits = shorten_results(start, unit, over)
    freed = sum(
        start.tokens(edit.message, edit.part) - start.count(edit.text, edit.message)
        for edit in edits
    )
    return Script.of(edits) if freed >= over else Script()


LOOSE: Final = 0.05
"""The share of the target that may stay unused before messages are taken back."""


def _count_tail(now: Situation) -> int:
    """Return the tokens of the newest messages that strategies leave alone."""
    units = now.units[now.border() : -1]
    return sum(sum(now.sizes[unit.start : unit.stop]) for unit in units)


TAIL_SHARE: Final = 0.15
"""The share of the room that the newest messages have where people's words would take it all."""

OTHERS_SHARE: Final = 0.15
"""The share of the room that goes to words of the assistant and of tools in the block, before
whole messages have it."""

_SURE: Final = 192
"""Tokens from which on a block has room for something, whatever it is to hold: twice its
head. Below it what there is to hold is packed, to see whether any of it fits."""


def name_alone(draft: PlanDraft) -> int:
    """Return what a block takes that does no more than name what was left out."""
    if draft.situation.name_of is None:
        return 0
    header = carried.HEADER.format(n=len(draft.said), named=NAMED)
    return text_size(header, draft.meter) + SPREAD


def find_risen(draft: PlanDraft, measured: Measure, target: int, most: int) -> int:
    """Return the target with room for rules and open tasks that had to give way, in model tokens.

    It is 0 where none had to, and where it would be over `most`.
    """
    risen = ceil((draft.missed + 1) * measured.scale.high) + measured.extra
    return risen if draft.missed and target < risen <= most else 0


def reach_by_name(draft: PlanDraft, text: str, kept: Carried, named: str) -> str:
    """Return a block, or the name alone of what was left out where only that reaches the target.

    A plan allows for the longest name, and so may take the target for out of reach.
    """
    rest = draft.situation.total - draft.reserve
    bare = carried.HEADER.format(n=kept.messages, named=named).rstrip("\n")
    if rest + text_size(text, draft.meter) <= draft.situation.target:
        return text
    return bare if rest + text_size(bare, draft.meter) <= draft.situation.target else text


NAMED: Final = "; recall u:0123456789abcdef"
"""As long as any name."""

SPREAD: Final = 12
"""Tokens by which another name may take more: one has 18 bytes, and none takes fewer than 6."""

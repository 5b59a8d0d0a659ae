"""Divide the target between the block and the newest messages.

This module plans no drops and writes no block.
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
    """Return the largest size of a block for all droppable messages, or for part of them."""
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
    """Return the content to keep of the messages at these positions, without replaced facts.

    For a shortened task it is the removed text. With `bare` there are no weighed words.
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
    """Drop the oldest unit if only the task was cut, so that one block covers both.

    Does nothing for a strategy that drops nothing or is silent.
    """
    if not strategy.drops or strategy.silent or draft.script.drops or not draft.reserve:
        return
    if not any(draft.list_cut_words()):
        return
    draft.take(strategy.name, drop(free(draft.situation)[:1]))


def _estimate_all(draft: PlanDraft, places: Sequence[int]) -> float:
    """Return the approximate tokens of all people's words, all answers and earlier blocks."""
    said = draft.words.find_said(places)
    about = sum(estimate(valued.segment.text) for valued in said)
    about += sum(estimate(rest.text) for rest in draft.list_cut_words())
    whole = (i for i in places if _stands_whole(draft.said[i]))
    return about + sum(draft.situation.sizes[i] for i in whole)


def _stands_whole(message: Message) -> bool:
    return message.role == "assistant" or summarises(message)


def split_room(draft: PlanDraft, most: int) -> int:
    """Return the tokens of the block: as few as people's words of the dropped messages need.

    The rest is for the newest messages. If not even the words fit, the newest messages get a share
    of the room. Rules and open tasks get their room in any case.
    """
    now = draft.situation
    units = [unit for unit in now.units[:-1] if now.pins.isdisjoint(unit)]
    sizes = [sum(now.sizes[unit.start : unit.stop]) for unit in units]
    kept = sum(sizes)
    room = now.target - (now.total - kept) + draft.reserve
    share = TAIL_SHARE if now.keep is None else 1.0  # the number of messages is the caller's choice
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
            block += size  # content that outlived one compaction outlives this one too
            continue
        said = [estimate(rest.text) for rest in draft.words.list_typed(unit)]
        block += sum(said) * MARGIN
        others += 0.0 if said else size
    found = max(min(room - kept, most), min(name_alone(draft), most))
    # If the head of a block alone would fill the room, rules stay and the target is missed.
    share = max(room // 2, HEAD) if room >= HEAD else most // 2
    if found >= share:
        return found
    rules = count_reserve(draft, most, carried.rules) + carried.NOTICE
    return max(found, min(rules, share, most))


def restore_newest(draft: PlanDraft, start: Situation, block: str, *, told: bool) -> bool:
    """Restore the newest messages that fit if the block left room; tell whether any did.

    Repeated text stands in a block once, so the block may be smaller than its reserve. A message
    that a caller's strategy rewrote is not restored, and neither are those before it.
    """
    now, size = draft.situation, text_size(block, draft.meter)
    spare = now.target - now.total + draft.reserve - size
    found = refill(draft, start, spare, told=told)
    if found:
        draft.hold(size)
    return found


def refill(draft: PlanDraft, start: Situation, spare: int, *, told: bool) -> bool:
    """Restore the newest messages that fit into so many tokens; tell whether any did.

    If a summary exists, the oldest one stays dropped. Then the last restored unit may have its
    results cut to fit: no other strategy keeps a part of it.
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
    """Return edits that cut the results of a unit by so many tokens, empty if that is too much."""
    messages = start.transcript.messages
    cut = any(CUT in part.text for i in unit for part in messages[i].parts)
    if cut or any(edit.message in unit for edit in draft.script.clears):
        return Script()  # the name in an earlier cut must keep its original
    edits = shorten_results(start, unit, over)
    freed = sum(
        start.tokens(edit.message, edit.part) - start.count(edit.text, edit.message)
        for edit in edits
    )
    return Script.of(edits) if freed >= over else Script()


LOOSE: Final = 0.05
"""Messages are restored only if more than this share of the target is unused."""


def _count_tail(now: Situation) -> int:
    """Return the tokens of the newest messages that strategies leave alone."""
    units = now.units[now.border() : -1]
    return sum(sum(now.sizes[unit.start : unit.stop]) for unit in units)


TAIL_SHARE: Final = 0.15
"""The share of the room for the newest messages if people's words would take it all."""

OTHERS_SHARE: Final = 0.15
"""The share of the room for words of the assistant and of tools in the block, before whole messages
get it."""

_SURE: Final = 192
"""From this many tokens on a block has room for something, whatever its content: twice its head.
Below it the content is packed, to see whether any of it fits."""


def name_alone(draft: PlanDraft) -> int:
    """Return the size of a block that only names the dropped text, 0 without names."""
    if draft.situation.name_of is None:
        return 0
    header = carried.HEADER.format(n=len(draft.said), named=NAMED)
    return text_size(header, draft.meter) + SPREAD


def find_risen(draft: PlanDraft, measured: Measure, target: int, most: int) -> int:
    """Return the target that has room for rules and open tasks that had to go, in model tokens.

    Returns 0 if none had to go, or if it would be over `most`.
    """
    risen = ceil((draft.missed + 1) * measured.scale.high) + measured.extra
    return risen if draft.missed and target < risen <= most else 0


def reach_by_name(draft: PlanDraft, text: str, kept: Carried, named: str) -> str:
    """Return a block, or only its header with the name if that alone reaches the target.

    A plan reserves room for the longest name, so it may wrongly consider the target out of reach.
    """
    rest = draft.situation.total - draft.reserve
    bare = carried.HEADER.format(n=kept.messages, named=named).rstrip("\n")
    if rest + text_size(text, draft.meter) <= draft.situation.target:
        return text
    return bare if rest + text_size(bare, draft.meter) <= draft.situation.target else text


NAMED: Final = "; recall u:0123456789abcdef"
"""A placeholder as long as any name."""

SPREAD: Final = 12
"""Extra tokens for a longer name: a name has 18 bytes and takes at least 6 tokens."""

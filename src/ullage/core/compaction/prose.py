"""The summariser's job for a block, and the use of its answer.

This module plans no drops, writes no block and asks no model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.packing import is_verbatim, list_said
from ullage.core.facts.salience import WORDS
from ullage.core.messages.transcript import summarises
from ullage.core.summary.flaws import WORSE
from ullage.core.summary.record import parse
from ullage.core.summary.request import Job
from ullage.core.summary.salient import Salient, tells_something

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.core.compaction.block import Block, Carried
    from ullage.core.compaction.draft import PlanDraft
    from ullage.core.messages.transcript import Message
    from ullage.core.summary.request import Written

LEAST_PROSE: Final = 32
"""With less room, in tokens, no summary is requested: not even a line would fit."""


def make_job(
    messages: Sequence[Message],
    kept: Carried,
    places: Sequence[int],
    *,
    tokens: int,
    window: int | None,
    count: Callable[[str], int],
) -> Job:
    """Return the summariser's job for dropped messages; earlier blocks are not summarised.

    `kept` is the content to keep of the messages; `places` are their numbers in its words.
    """
    said = [n for n, message in enumerate(messages) if not summarises(message)]
    return Job(
        messages=[messages[n] for n in said],
        facts=kept.facts,
        tokens=tokens,
        window=window,
        count=count,
        earlier=kept.prose,
        salient=_list_salient(kept, {places[n]: at for at, n in enumerate(said)}),
    )


def _list_salient(kept: Carried, order: dict[int, int]) -> tuple[Salient, ...]:
    """Return the sentences of people and models in these messages, with their worth.

    Rules and tasks are excluded, because the block has them word for word. Tool results and pasted
    text are excluded too: they are data, and may ask to be kept.
    """
    said = [x for x in list_said(kept.facts, kept.words) if not is_verbatim(x)]
    mine = (("user", x.message, x.place, x.text, x.worth, x.rare) for x in said)
    others = (
        ("assistant", x.message, x.place, x.text, x.worth, x.rare)
        for x in kept.words.others()
        if x.section == WORDS["assistant"]
    )
    return tuple(
        Salient(order[message], place, author, text, worth, rare)
        for author, message, place, text, worth, rare in (*mine, *others)
        if message in order and tells_something(rare)
    )


def settle_prose(written: Written, block: Block) -> Written:
    """Return a summary as it stands in a block, without lines that gave way to people's words.

    If nothing of it stands, the prose becomes None.
    """
    if written.prose is None or not block.text or block.prose == written.prose.strip():
        return written
    if not block.prose:
        return replace(written, prose=None, flaw=WORSE)
    stand = frozenset(parse(block.prose))
    gone = (line for line in parse(written.prose) if line not in stand)
    removed = tuple(f"gave way to the user's words: {line.text}" for line in gone)
    return replace(written, prose=block.prose, removed=(*written.removed, *removed))


def name_summary(
    draft: PlanDraft, asked: Sequence[str], written: Written | None, *, updating: bool
) -> None:
    """Rename the steps of the strategies that asked for a model's summary.

    A first summary in one piece keeps their names; others are "incremental" or "hierarchical".
    """
    if written is None or written.prose is None:
        return
    if written.levels == (1,) and not updating:
        return
    name = "incremental" if written.levels == (1,) else "hierarchical"
    draft.steps = [(name if step in asked else step, script) for step, script in draft.steps]

"""excerpt: text that is too big for the target keeps only its head and its tail.

It applies to the results of the newest response (a tool that returned a whole file), to an answer
that nobody has replied to yet, and to the task if it takes too much of the target and is not
pinned. It never applies to the current request. It knows no other strategy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.situation import CUT, CUT_MARK, shorten
from ullage.core.compaction.strategy import Strategy
from ullage.core.facts.segments import GAP
from ullage.core.messages.thoughts import drop_thoughts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.core.compaction.laws import Unit
    from ullage.core.compaction.situation import Situation

    Chooser: TypeAlias = Callable[[int, str, int, Callable[[str], int], str], str]

FLOOR: Final = 64
"""Tokens of a result that stay whatever the target is: less than this is useless."""


def plan(situation: Situation) -> Script:
    """Return the cuts of the task and of the newest results that the target needs."""
    over = situation.total - situation.target
    if over <= 0 or not situation.units:
        return Script()
    edits: list[Clear] = []
    transcript, half = situation.transcript, max(situation.target // 2, FLOOR)
    task = transcript.task()
    kept = {transcript.request(), *situation.verbatim}
    if task is not None and task not in kept and situation.sizes[task] > half:
        over -= _shorten(situation, task, _longest(situation, task), half, edits)
    return Script.of([*edits, *shorten_results(situation, situation.units[-1], over)])


def shorten_results(situation: Situation, unit: Unit, over: int) -> list[Clear]:
    """Return edits that shorten the results of a unit by that many tokens, the longest the most."""
    edits: list[Clear] = []
    texts = [
        (situation.tokens(index, position), index, position)
        for index in unit
        for position, part in enumerate(situation.transcript.messages[index].parts)
        if part.kind == "result" and index not in situation.pins
    ]
    left = sum(tokens for tokens, _, _ in texts) - over
    for done, (tokens, index, position) in enumerate(sorted(texts)):
        share = max(left // (len(texts) - done), FLOOR)
        left -= min(tokens, share)
        if tokens > share:
            _shorten(situation, index, position, share, edits)
    return edits


def shorten_task(situation: Situation, choose: Chooser | None = None) -> Script:
    """Return the cut of a task that takes too much of a missed target.

    The current request and the caller's pins stay as they are. `choose` returns the text to keep;
    if it returns "", the head and the tail stay.
    """
    transcript, task = situation.transcript, situation.transcript.task()
    tokens = max(int(situation.target * TASK_SHARE), FLOOR)
    if task is None or situation.total <= situation.target or situation.sizes[task] <= tokens:
        return Script()
    edits: list[Clear] = []
    if task not in {transcript.request(), *situation.verbatim}:
        _shorten(situation, task, _longest(situation, task), tokens, edits, choose)
    return Script.of(edits)


TASK_SHARE: Final = 0.3
"""The share of the target for the original task; the block may hold removed sentences of it. Set by
sessions of four authors (docs/fidelity.md)."""


def shorten_answer(situation: Situation, missing: int) -> Script:
    """Return the cut of an answer at the end by the missing tokens.

    `ANSWER_SHARE` of the target stays. An answer with several parts or thoughts, or one that was
    shortened before, stays whole.
    """
    last = situation.units[-1][-1]
    message = situation.transcript.messages[last]
    plain = message.role == "assistant" and [part.kind for part in message.parts] == ["text"]
    if not plain or message.calls or len(situation.units[-1]) > 1 or last in situation.pins:
        return Script()
    text, size = message.parts[0].text, situation.tokens(last, 0)
    floor = min(FLOOR, situation.target // ANSWER_LEAST)
    tokens = max(int(situation.target * ANSWER_SHARE), floor, size - missing)
    edits: list[Clear] = []
    if size > tokens and drop_thoughts(text) == text and CUT not in text:
        _shorten(situation, last, 0, tokens, edits)
    return Script.of(edits)


ANSWER_SHARE: Final = 0.1
"""The share of the target that an answer at the end keeps if people's words do not fit."""

ANSWER_LEAST: Final = 4
"""The floor of an answer at the end is at most a quarter of a small target."""


def shorten_newest(situation: Situation) -> Script:
    """Return the cut of a newest response that alone takes more than half of the target."""
    if situation.total <= situation.target or not situation.units:
        return Script()
    newest = situation.units[-1]
    sizes = [0] * len(situation.sizes)
    sizes[newest.start : newest.stop] = situation.sizes[newest.start : newest.stop]
    alone = replace(situation, sizes=sizes, fixed=0, units=(newest,), target=situation.target // 2)
    return plan(alone)


def _longest(situation: Situation, index: int) -> int:
    """Return the index of the part with the longest text, -1 without any text."""
    parts = situation.transcript.messages[index].parts
    sizes = {i: situation.count(p.text) for i, p in enumerate(parts) if p.kind == "text"}
    return max(sizes, key=lambda i: sizes[i], default=-1)


def _shorten(
    situation: Situation,
    index: int,
    part: int,
    tokens: int,
    edits: list[Clear],
    choose: Chooser | None = None,
) -> int:
    """Add an edit for the text of one part; return the tokens that it frees."""
    if part < 0:
        return 0
    now = situation.transcript.messages[index].parts[part].text
    whole = situation.earlier.get((index, part), now)
    named = f"; recall {situation.name_of(whole)}" if situation.name_of is not None else ""
    mark = CUT_MARK if tokens >= FLOOR or named else GAP

    def count(text: str) -> int:
        return situation.count(text, index)

    told = mark.replace("{named}", named)
    text = choose(index, whole, tokens, count, told) if choose is not None else ""
    text = text or shorten(whole, tokens, count, named, mark)
    freed = situation.count(now, index) - situation.count(text, index)
    if freed <= 0:
        return 0
    freed += situation.count_seen(index, part)
    edits.append(Clear(index, part, -1, text))
    return freed


STRATEGY: Final = Strategy("excerpt", plan, drops=False)

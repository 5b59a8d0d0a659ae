"""A compaction as a client applies it to objects of its own: one step for each message to send.

The positions are those of the history that the client gave. It knows no guard and no dialect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script


@dataclass(frozen=True, slots=True)
class FitStep:
    """Where a message to send stems from.

    `keep` is the position of one that stays as it is, `edit` that of one that stays with a text in
    it replaced. A new message has neither: it stands for those at `stands_for`.
    """

    message: Any
    keep: int | None = None
    edit: int | None = None
    stands_for: tuple[int, ...] = ()


def list_steps(
    history: Sequence[Any], sent: Sequence[Any], script: Script | None
) -> tuple[FitStep, ...]:
    """Return a step for each message of `sent`, which was made of `history` by a script.

    Messages that stay are the same objects. Where more than the script changed the history (a
    repair, roles that take turns), a message that is not the same object is a new one.
    """
    places = {id(message): place for place, message in enumerate(history)}
    kept = [places.get(id(message)) for message in sent]
    origin = _list_origins(len(history), script)
    pairs = list(zip(kept, origin, strict=False))
    if len(origin) != len(sent) or any(k is not None and k != o for k, o in pairs):
        origin = kept
    covered = {place for place in origin if place is not None}
    steps: list[FitStep] = []
    begin = 0
    for number, message in enumerate(sent):
        place = origin[number]
        if place is None:
            end = next((o for o in origin[number:] if o is not None), len(history))
            gone = tuple(i for i in range(begin, end) if i not in covered)
            steps.append(FitStep(message, stands_for=gone))
            begin = max(begin, end)
            continue
        same = kept[number] is not None
        steps.append(FitStep(message, place if same else None, None if same else place))
        begin = max(begin, place + 1)
    return tuple(steps)


def _list_origins(size: int, script: Script | None) -> list[int | None]:
    """Return the old position of each message that a script leaves, None for what it inserts."""
    if script is None:
        return list(range(size))
    stays = [place for place in range(size) if place not in script.drops]
    origin: list[int | None] = list(stays)
    for number, insert in enumerate(script.inserts):
        origin.insert(bisect_left(stays, insert.before) + number, None)
    return origin

"""A compaction as a client applies it to objects of its own: one step for each message to send.

The positions are those of the history that the client gave. It knows no guard and no dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


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
    history: Sequence[Any], sent: Sequence[Any], origin: Sequence[int | None]
) -> tuple[FitStep, ...]:
    """Return a step for each message of `sent`; `origin` says where each arrived (`View.origin`).

    Messages that stay are the same objects. What is gone from behind one that stays is stood for by
    the message written last before it: a summary may have messages that stay in its middle.
    """
    covered = {place for place in origin if place is not None}
    steps: list[FitStep] = []
    begin = 0
    for number, (message, place) in enumerate(zip(sent, origin, strict=True)):
        if place is None:
            end = next((o for o in origin[number:] if o is not None), len(history))
            gone = tuple(i for i in range(begin, end) if i not in covered)
            steps.append(FitStep(message, stands_for=gone))
            begin = max(begin, end)
            continue
        same = message is history[place]
        steps.append(FitStep(message, place if same else None, None if same else place))
        begin = max(begin, place + 1)
    return tuple(_add_loose(steps, len(history), covered))


def _add_loose(steps: list[FitStep], size: int, covered: set[int]) -> list[FitStep]:
    """Return the steps, each message that is gone among what one of them stands for.

    One that stands for nothing, such as a result in place of a missing one, is left alone.
    """
    stood = {place for step in steps for place in step.stands_for}
    begins = {step.stands_for[0]: number for number, step in enumerate(steps) if step.stands_for}
    for place in range(size) if begins else ():
        if place in covered or place in stood:
            continue
        begin = max((b for b in begins if b < place), default=min(begins))
        step = steps[begins[begin]]
        steps[begins[begin]] = replace(step, stands_for=tuple(sorted((*step.stands_for, place))))
    return steps

"""A compaction as steps for a client's own objects: one step for each message to send.

The positions are those in the client's history. This module knows no guard and no dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class FitStep:
    """The origin of a message to send.

    `keep` is the position of a message that stays unchanged. `edit` is the position of one that
    stays with a replaced text. A new message has neither: it replaces those at `stands_for`.
    """

    message: Any
    keep: int | None = None
    edit: int | None = None
    stands_for: tuple[int, ...] = ()


def list_steps(
    history: Sequence[Any], sent: Sequence[Any], origin: Sequence[int | None]
) -> tuple[FitStep, ...]:
    """Return a step for each message of `sent`; `origin` has their old positions (`View.origin`).

    Messages that stay are the same objects. If dropped messages follow one that stays, the nearest
    new message before them covers them: a summary may have kept messages in its middle.
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
    """Return the steps, with each remaining dropped message added to the step that covers it.

    A step that covers nothing, such as a result in place of a missing one, is left alone.
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

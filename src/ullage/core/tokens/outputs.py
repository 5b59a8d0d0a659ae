"""The output of calls, corrected if a report is smaller than the counted answer.

Claude Code records the usage of a stream's first event, whose output is a token or two. This module
knows no files, no prices and no windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Message
from ullage.core.tokens.counting import Meter, shares


@dataclass(frozen=True, slots=True)
class ReportedAnswer:
    """The reported usage of a call, and the messages of its answer.

    `final` means that the report was made at the end of the answer.
    """

    usage: Usage | None
    messages: Sequence[Message] = ()
    final: bool = True


def settle(answers: Sequence[ReportedAnswer], meter: Meter) -> list[Usage | None]:
    """Return the usage of each call, with the larger of its reported and counted output.

    A counted output is an estimate, and then the usage is a new object. A final report gives way
    only to a count whose lower edge is above it. No usage stays None.
    """
    bare = replace(meter, framing=replace(meter.framing, message=0, role=0, slack=0))
    found = iter(shares([m for answer in answers for m in answer.messages], bare))
    settled: list[Usage | None] = []
    for answer in answers:
        pieces = [piece for _ in answer.messages for piece in next(found)]
        thought = _count((p.size.best for p in pieces if p.kind == "reasoning"), bare)
        said = _count((p.size.best for p in pieces if p.kind != "reasoning"), bare)
        least = sum(piece.size.low for piece in pieces) * bare.scale.low
        usage = answer.usage
        reported = usage.output + usage.reasoning if usage is not None else 0
        proven = least if answer.final else said + thought
        if usage is None or proven <= reported:
            settled.append(usage)
        else:
            settled.append(replace(usage, output=said, reasoning=thought))
    return settled


def _count(sizes: Iterable[int], meter: Meter) -> int:
    return round(sum(sizes) * meter.scale.best)

"""The third stage: the size of the request, by an estimate, the last report or the server's count.

It asks the server only if the count would change the decision. The next stage decides.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction import laws
from ullage.core.compaction import pins as pinned
from ullage.core.guard.belief import find_unsettled
from ullage.core.guard.request import Need, NeedServerCount
from ullage.core.messages.thoughts import find_thoughts
from ullage.core.tokens.calibration import ENOUGH, SANE
from ullage.core.tokens.counting import Anchor, Measure, Scale, measure
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Edited
    from ullage.core.guard.request import Request, Setup
    from ullage.core.guard.stages.replay import Replayed
    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.counting import Count
    from ullage.core.tokens.window import Window

DRIFT: Final = 0.10
"""Half-width of the band around a ratio taken from one server count: sessions of 40 chunks counted
by one ratio were off by at most 6.4 % at p95 (docs/design/counting.md).
"""


@dataclass(frozen=True)
class Measured:
    """The request to send, with its size and the window.

    `edited` is the history to send, `size` its measure. `is_counted` says that the server counts
    requests. `setup` includes the lessons that the conversation carries.
    """

    setup: Setup
    replayed: Replayed
    window: Window
    edited: Edited
    size: Measure
    is_counted: bool = False

    @cached_property
    def count(self) -> Count:
        """The size in the model's tokens."""
        return self.size.count()

    @property
    def is_beyond(self) -> bool:
        """True if the request is over the window, or over a suspected bound."""
        bound = self.window.likely_tokens
        return bound is not None and self.count.high >= bound

    def places(self, positions: Collection[int]) -> frozenset[int]:
        """Return the current positions of the messages at these positions of the history."""
        if not positions:
            return frozenset()
        return frozenset(new for new, old in enumerate(self.edited.origin) if old in positions)


def measure_request(
    setup: Setup, request: Request, replayed: Replayed, window: Window
) -> Generator[Need, Any, Measured]:
    """Measure the request to send, based on the last report if there is one."""
    edited = replayed.edited
    size = measure(edited.transcript, setup.meter, system=request.system, tools=request.tools)
    if replayed.is_reported:
        size = replayed.conversation.anchor_to_report(size)
    measured = Measured(setup, replayed, window, edited, size)
    if _needs_count(setup, request, measured):
        measured = yield from ask_server(request, measured)
    return measured


def _needs_count(setup: Setup, request: Request, measured: Measured) -> bool:
    """Tell whether an estimate is so close to a threshold that a real count is wanted.

    With a last report, that is so if the two edges of the count call for different actions.
    """
    bound = measured.window.working_tokens
    if setup.meter.basis == "exact" or bound is None:
        return False
    count, tier = measured.count, setup.policy.thresholds.tier
    asked, window = request.max_tokens or 0, measured.window
    total = window.total_tokens or window.input_tokens or bound
    over = count.high + asked > total
    acts = over or count.high >= setup.policy.thresholds.lowest * bound
    if measured.size.anchor is None or not acts:
        return acts
    low = count.low - count_closing(setup, measured)
    return tier(low / bound) != tier(count.high / bound) or over != (low + asked > total)


def count_closing(setup: Setup, measured: Measured) -> int:
    """Return the most tokens of reasoning that a server may leave out from this request on.

    Chat templates drop the reasoning of a turn when the next one begins (Qwen3, GLM, DeepSeek,
    Claude before Opus 4.5). If the user has sent a message since, the last report still included
    that reasoning.
    """
    transcript, covered = measured.edited.transcript, measured.replayed.conversation.covered
    request = transcript.request()
    if measured.size.anchor is None or request is None or request < covered:
        return 0
    closed = transcript.messages[find_unsettled(transcript, covered) : request]
    counts = map(setup.meter.counter.count, find_thoughts(closed))
    return round(sum(counts) * measured.size.scale.high)


def ask_server(request: Request, measured: Measured) -> Generator[Need, Any, Measured]:
    """Return the measure with the server's own count of the whole, if it gives one."""
    reported: int | None = yield _ask_count(request, measured.edited.transcript)
    if reported is None:
        return measured
    size = measured.size
    told = size.with_server_count(reported).correct(Anchor(reported, size.raw()), DRIFT)
    return replace(measured, size=told, is_counted=True)


def _ask_count(request: Request, sent: Transcript) -> NeedServerCount:
    system = request.system if request.apart is None else request.apart
    return NeedServerCount(list(sent.raws), request.tools, system, sent.rules.dialect)


def measure_surely(request: Request, measured: Measured) -> Generator[Need, Any, Measured]:
    """Return the measure by the server: its count, or else its last report.

    If the estimate agrees with the last report, the measure stays as it is.
    """
    if measured.count.basis == "exact":
        return measured
    if not measured.is_counted:
        measured = yield from ask_server(request, measured)
    size, anchor = measured.size, measured.size.anchor
    if anchor is None or (measured.is_counted and size.rest is None and not request.tools):
        return measured
    if measured.is_counted:
        return (yield from _part(request, measured, anchor))
    expected = replace(size, anchor=None).count()
    since = size.count().tokens - anchor.tokens
    if expected.low <= anchor.tokens + since <= expected.high:
        return measured
    return replace(measured, size=size.correct(anchor, DRIFT))


def _part(request: Request, measured: Measured, anchor: Anchor) -> Generator[Need, Any, Measured]:
    """Separate messages and the rest by a second count: of the current request alone."""
    sent, size = measured.edited.transcript, measured.size
    least = sorted(
        laws.find_operator_text(sent.messages) | {i for i in (sent.request(),) if i is not None}
    )
    few = replace(sent, raws=tuple(sent.raws[i] for i in least), messages=(), memo={})
    sizes = size.sizes
    grown = size.total.best - sum(sizes[i].best for i in least)
    reported: int | None = yield _ask_count(request, few)
    slope = (anchor.tokens - reported) / grown if reported is not None and grown > 0 else 0.0
    sane = grown >= ENOUGH and SANE[0] <= slope <= SANE[1]
    return replace(measured, size=size.split_by_ratio(anchor, slope, DRIFT)) if sane else measured


def scale_to(reported: int, size: Measure) -> Scale:
    """Return the scale that follows from the server's count of the measured request."""
    ratio = reported / max(size.raw().best, 1)
    return Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))


def explain_immovable(measured: Measured) -> str:
    """Explain what takes the room that could not be freed, and what to do."""
    sizes: Sequence[int] = measured.count.by_message
    wanted = measured.replayed.read.wanted
    fixed = measured.size.outside().best
    named = [f"system prompt, tools and framing outside the list {fixed:,} tokens"]
    if sizes:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        role = measured.edited.transcript.messages[largest].role
        named.append(
            f"the largest message is {role} at position {largest} with {sizes[largest]:,} tokens"
        )
    kept = {
        wanted[old]: size
        for old, size in zip(measured.edited.origin, sizes, strict=True)
        if old is not None and old in wanted
    }
    if kept:
        named.append(f"pinned, and so verbatim, are messages {pinned.list_sizes(kept)}")
    count = measured.count
    if count.high > count.tokens:
        named.append(f"all is {count.tokens:,} tokens by an estimate, and at most {count.high:,}")
    advice = "Shorten or unpin that" if kept else "Shorten that"
    return f"{'; '.join(named)}. {advice}, raise the window, or allow compaction."

"""The third stage: how large the request is, by an estimate, the last report, the server's count.

It asks the server only where its count would change what is done. It does not say what is done.
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
by one ratio were off by at most 6.4 % at p95 (docs/design/counting.md)."""


@dataclass(frozen=True)
class Measured:
    """What is about to be sent, and its size beside the window.

    `edited` is the history as it goes out, `size` its measure; `is_counted` tells whether the
    server counts requests. `setup` has what the conversation remembers of its model.
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
        """Whether the request is over the window, or over a bound that is suspected."""
        bound = self.window.likely_tokens
        return bound is not None and self.count.high >= bound

    def places(self, positions: Collection[int]) -> frozenset[int]:
        """Return where messages at these positions of the history stand now."""
        if not positions:
            return frozenset()
        return frozenset(new for new, old in enumerate(self.edited.origin) if old in positions)


def measure_request(
    setup: Setup, request: Request, replayed: Replayed, window: Window
) -> Generator[Need, Any, Measured]:
    """Measure what is about to be sent: from the last report on, where there is one."""
    edited = replayed.edited
    size = measure(edited.transcript, setup.meter, system=request.system, tools=request.tools)
    if replayed.is_reported:
        size = replayed.conversation.anchor_to_report(size)
    measured = Measured(setup, replayed, window, edited, size)
    if _needs_count(setup, request, measured):
        measured = yield from ask_server(request, measured)
    return measured


def _needs_count(setup: Setup, request: Request, measured: Measured) -> bool:
    """Tell whether an estimate is so near to acting on something that a real count is wanted.

    Where the last report carries the size, that is: whether its two edges call for two things.
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
    """Return the tokens of reasoning that a server may leave out from this request on, at most.

    Chat templates drop the reasoning of a turn when the next one begins (Qwen3, GLM, DeepSeek,
    Claude before Opus 4.5). The last report still had it, where a person has said something since.
    """
    transcript, covered = measured.edited.transcript, measured.replayed.conversation.covered
    request = transcript.request()
    if measured.size.anchor is None or request is None or request < covered:
        return 0
    closed = transcript.messages[find_unsettled(transcript, covered) : request]
    counts = map(setup.meter.counter.count, find_thoughts(closed))
    return round(sum(counts) * measured.size.scale.high)


def ask_server(request: Request, measured: Measured) -> Generator[Need, Any, Measured]:
    """Return the measure with the server's own count of the whole, where it gives one."""
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
    """Return the measure by the server's word: its count, else what it reported last.

    What it reports settles little where the estimate agrees with it: then it stays as it is.
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
    """Tell messages and the rest apart by a second count: of the current request alone."""
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
    """Return the scale that the server's count of what was measured gives."""
    ratio = reported / max(size.raw().best, 1)
    return Scale(ratio * (1 - DRIFT), ratio, ratio * (1 + DRIFT))


def explain_immovable(measured: Measured) -> str:
    """Say what takes the room that nothing could free, and what to do."""
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

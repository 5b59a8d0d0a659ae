"""Checks whether a server's reports and refusals are about the request that was sent.

Credible ones become evidence (`core.tokens.claim`), which the ledger weighs. This module is pure,
plans nothing and keeps nothing.
"""

from __future__ import annotations

from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Final, Literal

from ullage.core.compaction.checkpoint import chain
from ullage.core.messages.thoughts import find_thoughts, holds_thoughts
from ullage.core.messages.transcript import asks
from ullage.core.tokens.calibration import ENOUGH, SANE
from ullage.core.tokens.claim import SMALLEST, UNNAMED, Claim, Grounds
from ullage.core.tokens.counting import STRANGE, medium
from ullage.core.tokens.evidence import FAR_OFF
from ullage.core.tokens.images import find_doubt
from ullage.core.tokens.truncation import (
    JITTER,
    SLACK_ESTIMATED,
    SLACK_GROWN,
    ReportRange,
    Truncation,
)
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.errors import ErrorKind
    from ullage.core.guard.request import Prepared
    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.tokens.counting import Meter

NAMED: Final = 2
"""Factor by which the numbers in a refusal may differ from our count."""

CLOSED: Final = 0.05
"""Largest share of reasoning of earlier turns in a prompt whose report may calibrate."""

SPREAD: Final = 1.6
"""Limit for the growth since the first report, as a multiple of that report's ratio: kinds of text
differ. A sum over calls grows by twice the new text, or more.
"""

STRAIGHT: Final = 0.15
"""Largest difference between the ratios of two reports, as a share of the first."""

UNSEEN: Final = frozenset({"image", "audio", "file", "other", "sealed"})
"""Kinds of parts whose tokens our count may not know well."""


def find_range(sent: Prepared, meter: Meter, reported: int) -> ReportRange:
    """Return the range of prompt tokens in which a true report of a request lies.

    If there is a last report, the range is based on it, because it was believed: text that it left
    out is no longer missing. Text that may be left out is counted only if the report is too small
    without it.
    """
    low, (_, high) = sent.count.low, _edges(sent)
    doubt = ceil(sent.measured.scale.high * _doubt_images(sent, meter)[1])
    anchor, exact = sent.measured.anchor, sent.count.basis == "exact"
    counted = anchor is not None and anchor.raw == sent.measured.raw()
    around = partial(ReportRange.around, low, high + doubt, exact=exact, counted=counted)
    found = around()
    if reported >= found.least:
        if anchor is None or counted or holds_thoughts(sent.sent):
            return found
        return replace(found, before=anchor.tokens, reach=sent.count.high + doubt)
    if anchor is not None and not counted:
        return around(lawful=_count_unsettled(sent, meter))
    return around(lawful=count_reasoning(sent, meter) + sent.measured.outside().best)


def fits_growth(sent: Prepared, meter: Meter, reported: int) -> Literal["yes", "less", "more"]:
    """Tell whether a report grew since an earlier one by about the size of the new messages.

    A sum over calls grows by more. Reports of uncached tokens, and of cut prompts, grow by less
    than half. Each such report alone may be true, and if the next one were based on it, small turns
    would hide the error forever.
    """
    base, scale = sent.conversation.base, sent.measured.scale
    came = sent.measured.raw().best - (0 if base is None else base[1])
    if base is None or came < 0:
        return "yes"
    below, above = _doubt_images(sent, meter)
    steepest = max(scale.high * (1 + SLACK_ESTIMATED), SPREAD * base[0] / max(base[1], 1))
    if reported > base[0] + ceil((came + above) * steepest) + SLACK_GROWN:
        return "more"
    least = base[0] + floor(max(came - below, 0) * scale.low / 2) - JITTER
    if reported >= least:
        return "yes"
    lawful = (1 + SLACK_ESTIMATED) * _count_unsettled(sent, meter)
    return "yes" if reported >= least - lawful else "less"


def _doubt_images(sent: Prepared, meter: Meter) -> tuple[int, int]:
    """Return the possible error for images since the last report, in counter tokens (down, up)."""
    if not sent.sent.measure_media().images:
        return 0, 0
    begun = sent.conversation.covered if sent.measured.anchor is not None else 0
    return find_doubt(sent.sent.messages[begun:], meter.framing.image)


def _count_unsettled(sent: Prepared, meter: Meter) -> int:
    """Return the tokens of reasoning that the last report does not prove to be read."""
    return count_reasoning(sent, meter, find_unsettled(sent.sent, sent.conversation.covered))


def find_unsettled(sent: Transcript, covered: int) -> int:
    """Return the position from which a report of the first messages says nothing about reasoning.

    If a new turn has begun since, a template may leave out the reasoning of the turn before.
    """
    request = sent.request()
    if request is None or request < covered:
        return covered
    return next((i for i in reversed(range(covered)) if asks(sent.messages[i])), 0)


def count_reasoning(sent: Prepared, meter: Meter, begun: int = 0) -> int:
    """Return the most tokens of reasoning in a request, from a message on.

    Chat templates drop the reasoning of earlier turns (Qwen3, GLM, DeepSeek, Claude before 4.5).
    They also drop tools if they have no place for them.
    """
    return _count_thoughts(sent, meter, sent.sent.messages[begun:])


def is_whole(sent: Prepared, meter: Meter, reported: int) -> bool:
    """Tell whether a report covers the whole request, so that it shows how a vocabulary counts.

    It does not if templates leave out reasoning of earlier turns, or if they may and the report is
    small.
    """
    if not holds_thoughts(sent.sent):
        return True
    closed = _count_thoughts(sent, meter, sent.sent.messages[: sent.sent.request()])
    whole = replace(sent.measured, anchor=None).count()
    return reported >= whole.low and closed <= CLOSED * whole.tokens


def _count_thoughts(sent: Prepared, meter: Meter, messages: Sequence[Message]) -> int:
    read = sum(map(meter.counter.count, find_thoughts(messages)))
    sealed = [p for m in messages for p in m.parts if p.kind == "sealed"]
    hidden = sum(medium(part, meter).high for part in sealed)
    return round((read + hidden) * sent.measured.scale.high)


def is_steady(sent: Prepared, reported: int) -> bool:
    """Tell whether a report outside the range is as far outside as the last one.

    A host that puts its own instructions before every prompt adds the same size each time. Sums
    over inner calls, and reports of uncached tokens only, do not.
    """
    odd, raw, scale = sent.conversation.odd, sent.measured.raw().best, sent.measured.scale
    if odd is None or raw - odd[1] < ENOUGH:
        return False
    slope = (reported - odd[0]) / (raw - odd[1])
    return 0.9 * scale.low <= slope <= 1.1 * scale.high or _is_straight(sent, odd, slope)


def _is_straight(sent: Prepared, odd: tuple[int, int], slope: float) -> bool:
    """Tell whether reports grow with the conversation by one ratio since the last believed one.

    If so, our count of the vocabulary is wrong. The ratio of a sum over calls rises with each call.
    """
    anchor = sent.measured.anchor
    if anchor is None or odd[1] - anchor.raw.best < ENOUGH or not SANE[0] <= slope <= STRANGE:
        return False
    first = (odd[0] - anchor.tokens) / (odd[1] - anchor.raw.best)
    return abs(slope - first) <= STRAIGHT * first


def note_odd(sent: Prepared, reported: int) -> tuple[int, int]:
    """Return the report to compare the next one with: this one, or one far enough before it."""
    odd, raw = sent.conversation.odd, sent.measured.raw().best
    return odd if odd is not None and 0 <= raw - odd[1] < ENOUGH else (reported, raw)


def make_answer(sent: Prepared, reported: int) -> Claim | None:
    """Return the evidence of an answered prompt, or None if it says nothing new."""
    if reported <= sent.window.answered:
        return None
    return _make(sent, Claim("total", reported, "answer", grounds="structured"))


def make_truncation(sent: Prepared, cut: Truncation) -> Claim:
    """Return the evidence of a prompt that was cut."""
    grounds: Grounds = "structured" if cut.certain else "counted"
    claim = Claim("total", cut.limit, "truncation", grounds=grounds)
    return replace(_make(sent, claim), reported=cut.reported)


def make_refusal(sent: Prepared, error: ErrorKind, limit: int) -> Claim | None:
    """Return the evidence of a refusal, or None if its numbers do not fit this request."""
    if not (is_about(sent, error) and _is_plausible(sent, error)):
        return None
    grounds: Grounds = "structured" if error.structured else "words"
    if error.limit is None and error.structured:
        grounds = "counted"
    note = UNNAMED if error.limit is None else ""
    claim = Claim("total", limit, "refusal", confidence=0.9, note=note, grounds=grounds)
    return _make(sent, claim)


def is_about(sent: Prepared, error: ErrorKind) -> bool:
    """Tell whether a refusal can be about the size of the request that was sent.

    Content filters and validators quote users' text. Signs of that: a size far below our count, a
    size that fits into the limit in the same message, a limit below an answered prompt if the
    request was no larger, or more than `FAR_OFF` times as large. A server may count far more than
    we do, because it adds text that we do not see.
    """
    size, limit = error.input_tokens, error.limit
    low, _ = _edges(sent)
    if size is not None and size < low / NAMED - SMALLEST:
        return False
    if limit is None or error.structured:
        return True
    if size is not None:
        asked = sent.max_tokens or _find_output(sent, error)
        return size + asked >= limit  # a prompt as long as the window is too long
    return limit >= sent.window.answered or limit < low <= limit * FAR_OFF


def _find_output(sent: Prepared, error: ErrorKind) -> int:
    """Return the output that a refusal names, or 0 if its prompt size does not fit `sent`."""
    if not _is_plausible(sent, replace(error, limit=None)):
        return 0
    return error.output_tokens or 0


def _is_plausible(sent: Prepared, error: ErrorKind) -> bool:
    """Tell whether the numbers of a refusal fit our own count of the request."""
    if any(p.kind in UNSEEN or p.media for m in sent.sent.messages for p in m.parts):
        return True
    most = NAMED * (_edges(sent)[1] + (sent.max_tokens or 0)) + SMALLEST
    return (error.input_tokens or 0) <= most and (error.limit or 0) <= most


def _edges(sent: Prepared) -> tuple[int, int]:
    if sent.measured.anchor is None:
        return sent.count.low, sent.count.high
    plain = replace(sent.measured, anchor=None).count()
    return min(sent.count.low, plain.low), max(sent.count.high, plain.high)


def _make(sent: Prepared, claim: Claim) -> Claim:
    known = chain(sent.sent)
    return replace(claim, exchange=known[-1] if known else "", tools=sent.has_tools)

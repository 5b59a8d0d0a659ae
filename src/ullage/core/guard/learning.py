"""The lessons of a response: its reported size, a counting ratio, evidence for the window.

Pure: a driver passes in the response and stores the lessons. This module plans nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.dialects.usage import Usage
from ullage.core.guard.belief import (
    find_range,
    fits_growth,
    is_steady,
    is_whole,
    make_answer,
    make_truncation,
    note_odd,
)
from ullage.core.guard.events import Answered, ContextPressure, Event, Notice, TruncationDetected
from ullage.core.guard.learned import calibrate_meter
from ullage.core.guard.warmth import find_bust, note_warmth
from ullage.core.messages.thoughts import holds_thoughts
from ullage.core.tokens.calibration import ReportedSize, learn
from ullage.core.tokens.cost import cost
from ullage.core.tokens.gauge import Assessment, assess
from ullage.core.tokens.images import is_learnable, read_image
from ullage.core.tokens.truncation import detect, finish_reason, is_edited_by_server
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.errors import ErrorKind
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.learned import Learned
    from ullage.core.guard.request import Prepared, Setup
    from ullage.core.tokens.calibration import Taught
    from ullage.core.tokens.claim import Claim
    from ullage.core.tokens.counting import Meter
    from ullage.core.tokens.images import SeenImage
    from ullage.core.tokens.truncation import Truncation


@dataclass(frozen=True, slots=True)
class Observation:
    """The lessons of a response: the usage, the assessment by it, and more.

    `reading` calibrates; it is None if the report must not teach. `evidence` is for the window.
    `conversation` is the state to keep until the next call. `taught` holds the calibration before
    the reading and after it.
    """

    usage: Usage | None
    assessment: Assessment
    conversation: Conversation
    reading: ReportedSize | None = None
    checkpoint: Checkpoint | None = None
    evidence: tuple[Claim, ...] = ()
    events: tuple[Event, ...] = ()
    taught: Taught | None = None


def observe(setup: Setup, sent: Prepared, report: Any) -> Observation:
    """Learn from a response or usage report. Pure; an unreadable report teaches nothing.

    A report is believed if it is in the range of true reports, or as far outside as the last one.
    Any other does not calibrate: it may be a sum over inner calls, the uncached tokens only, or the
    size of a cut prompt. A request that the server itself edited (`truncation: auto`,
    `context_management`) teaches nothing either.
    """
    usage = Usage.from_report(report)
    if usage is None or usage.prompt_tokens == 0:
        return Observation(None, sent.assessment, sent.conversation)
    seen = _read_report(setup, sent, usage, report)
    learned = _learn(setup, sent, seen)
    conversation = seen.conversation
    if seen.reading is not None and seen.reading.image is not None:
        meter = calibrate_meter(setup.meter, learned.calibration)
        measured = sent.measured.of(sent.sent, meter)  # the report shows the size of its images
        conversation = conversation.with_report(usage.prompt_tokens, measured, sent.sent)
    warm = note_warmth(setup, sent, usage)
    conversation = replace(conversation, learned=learned, warm=warm)
    events = (*seen.events, *find_bust(setup, sent, usage))
    taught = setup.learned.calibration, learned.calibration
    return replace(seen, conversation=conversation, events=events, taught=taught)


def _learn(setup: Setup, sent: Prepared, seen: Observation) -> Learned:
    """Return the current lessons about the model, which the conversation carries."""
    learned = setup.learned if seen.reading is None else calibrate(setup, seen.reading)
    return learned.keep_events((*sent.window.claims, *seen.evidence), setup.now)


def calibrate(setup: Setup, reading: ReportedSize) -> Learned:
    """Return the lessons about the model with one more reading."""
    taught = learn(setup.learned.calibration, reading)
    return replace(setup.learned, calibration=taught, at=setup.now)


def read_refusal(meter: Meter, sent: Prepared, error: ErrorKind) -> ReportedSize | None:
    """Return the size that a refusal names as a report, or None if it teaches nothing.

    For a server that reports no usage, refusals are the only source. Such a number is not precise:
    it may include output or be rounded. If reports have already taught the ratio, the number counts
    only if it is outside our own count. A size of the limit plus one is a bound, not a size.
    """
    size, count = error.input_tokens, sent.count
    if size is None or size - 1 == error.limit or not find_range(sent, meter, size).has(size):
        return None
    if count.basis != "estimate" and count.low <= size <= count.high:
        return None
    return make_reading(meter, sent, size) if is_whole(sent, meter, size) else None


def _read_report(setup: Setup, sent: Prepared, usage: Usage, report: Any) -> Observation:
    """Return the observation of a report, believed or not."""
    priced = cost(usage, setup.prices) if setup.prices else None
    answered = Answered(usage, priced, setup.model)
    if is_edited_by_server(report):
        found = _assess(setup, sent, usage)
        pressure = ContextPressure(found, sent.conversation.shown.tier, "reported")
        return Observation(usage, found, sent.conversation, events=(pressure, answered))
    expected = find_range(sent, setup.meter, usage.prompt_tokens)
    cut = detect(usage, expected, sent.window.input_tokens, finish=finish_reason(report))
    evidence: tuple[Claim, ...] = ()
    events: tuple[Event, ...] = (answered,)
    if cut is not None:
        evidence = (make_truncation(sent, cut),)
        events = (*_report_cut(sent, cut), answered)
    growth = fits_growth(sent, setup.meter, usage.prompt_tokens)
    true = expected.has(usage.prompt_tokens) and growth == "yes"
    if _is_believed(sent, cut, usage.prompt_tokens, true=true):
        seen = _believe(setup, sent, usage)
        return replace(seen, evidence=(*evidence, *seen.evidence), events=(*seen.events, *events))
    conversation = sent.conversation
    if cut is not None:
        conversation = replace(conversation, suspect=(cut.limit, setup.now))
    else:
        odd = note_odd(sent, usage.prompt_tokens)
        less = growth == "less" and not holds_thoughts(sent.sent)
        conversation = conversation.without_report(odd) if less else replace(conversation, odd=odd)
    pressure = ContextPressure(sent.assessment, conversation.shown.tier, "reported")
    return Observation(
        usage, sent.assessment, conversation, evidence=evidence, events=(pressure, *events)
    )


def _assess(setup: Setup, sent: Prepared, usage: Usage) -> Assessment:
    found = assess(usage, sent.window, thresholds=setup.policy.thresholds)
    provider = sent.assessment.provider
    return found if provider is None else replace(found, provider=provider)


def _is_believed(sent: Prepared, cut: Truncation | None, reported: int, *, true: bool) -> bool:
    """Tell whether a report teaches: it can be `true`, or the last one was as far outside."""
    if cut is not None and cut.signs != ("length_without_output",):
        return False
    return true or is_steady(sent, reported)


def _believe(setup: Setup, sent: Prepared, usage: Usage) -> Observation:
    """Return the lessons of a report that can be true."""
    reported = usage.prompt_tokens
    found = _assess(setup, sent, usage)
    conversation = sent.conversation.with_report(reported, sent.measured, sent.sent)
    made = sent.checkpoint
    conversation, told = show(setup, made or sent.replayed, conversation, found, "reported")
    teaches = is_whole(sent, setup.meter, reported)
    answer = make_answer(sent, reported)
    return Observation(
        usage,
        found,
        conversation,
        make_reading(setup.meter, sent, reported) if teaches else None,
        made.with_usage(usage) if made is not None else None,
        () if answer is None else (answer,),
        told,
    )


def make_reading(meter: Meter, sent: Prepared, reported: int) -> ReportedSize:
    """Return a report of the measured request, with the report that the measure is based on."""
    measured = sent.measured
    content, anchor = measured.total.best, measured.anchor
    before = None
    if anchor is not None:
        before = anchor.tokens, content - (measured.raw().best - anchor.raw.best)
    image = _read_image(meter, sent, reported)
    return ReportedSize(reported, content, measured.fixed.best, before, image)


def _read_image(meter: Meter, sent: Prepared, reported: int) -> SeenImage | None:
    """Return the size of an image, if the request has new images of an unpublished size."""
    measured, rule = sent.measured, meter.framing.image
    if not is_learnable(rule) or not sent.sent.measure_media().images:
        return None
    begun, anchor = sent.conversation.covered, measured.anchor
    if anchor is None or anchor.raw == measured.raw():  # a server's count shows no image sizes
        begun, measured = 0, replace(measured, anchor=None)
    return read_image(measured, sent.sent.messages[begun:], rule, reported)


def _report_cut(sent: Prepared, cut: Truncation) -> tuple[Event, ...]:
    """Return the event of a cut prompt: at the first sign, and when it is certain."""
    known = [c for c in sent.window.claims if c.source == "truncation"]
    return () if known and not cut.certain else (TruncationDetected(cut),)


def show(
    setup: Setup,
    checkpoint: Checkpoint | None,
    conversation: Conversation,
    found: Assessment,
    phase: Literal["prepared", "reported"],
) -> tuple[Conversation, tuple[Event, ...]]:
    """Return the conversation with the tier that it now shows, and the events for people."""
    name = f"{checkpoint.prefix}/{checkpoint.generation}" if checkpoint is not None else ""
    shown, due = conversation.shown.after(found, name, setup.policy.thresholds)
    events: list[Event] = [ContextPressure(found, shown.tier, phase)]
    if due:
        events.append(Notice(f"{found.notice()}. {LOOK}{propose_dry_run(setup.model, found)}"))
    if shown != conversation.shown:
        conversation = replace(conversation, shown=shown)
    return conversation, tuple(events)


LOOK: Final = "Look first: "
"""Prefix of the proposal in a notice of pressure, which is a dry run (see the measuring page)."""


def propose_dry_run(model: str, found: Assessment) -> str:
    """Return the code of a dry run with the known model and window."""
    known = {"model": model or None, "window": found.window_tokens}
    given = [f"{name}={value!r}" for name, value in known.items() if value is not None]
    options = ", ".join(["messages", *given, "target_ratio=0.6", "dry_run=True"])
    return f"ullage.compact({options})"

"""What fills a window, for library users and the terminal: `ullage.context`.

It reads, resolves and prices what `core.composition` puts together; it decides and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from ullage.core.calibration import Calibration, Reading, learn
from ullage.core.composition import SCHEMA, Report, Span, Subject, compose
from ullage.core.cost import cost
from ullage.core.counting import Meter, measure, prefix_sums
from ullage.core.errors import ConfigurationError
from ullage.core.policies.policy import Policy
from ullage.core.usage import Usage
from ullage.core.window import Window
from ullage.runtime import Asked, Body, Runtime, asked, default, system_text
from ullage.windows import Question, given

if TYPE_CHECKING:
    from ullage.importers import Session

WIDE: Final = 1_000_000
"""The window of an id that ends in [1m]: so Claude Code names models of a million tokens."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What fills the window of a conversation: rows that add up, in tokens.

    `report` has the numbers; `to_dict` is the published form (`ullage.context/1`).
    """

    report: Report
    window: Window
    model: str | None = None
    source: Mapping[str, Any] | None = None
    spent: Usage | None = None
    dollars: float | None = None
    compaction_at: int | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; its schema is `ullage/cli/context.schema.json`."""
        report, found = self.report, self.report.assessment
        used, free = report.used, report.free
        return {
            "schema": SCHEMA,
            "source": dict(self.source) if self.source is not None else None,
            "model": self.model,
            "window": self._window(),
            "used": {
                "tokens": used.tokens,
                "low": used.low,
                "high": used.high,
                "basis": report.basis,
                "error": report.error,
            },
            "free": free,
            "margin": report.margin,
            "reserved_output": report.reserved,
            "over": max(-free, 0) if free is not None else 0,
            "tier": found.tier,
            "ratio": found.ratio,
            "reason": found.reason,
            "compaction_at": self.compaction_at,
            "rows": [row.to_dict() for row in report.rows],
            "since": _since(report),
            "largest": [
                {
                    "message": large.message,
                    "name": large.name,
                    "tokens": large.tokens,
                    "sent": large.sent,
                    "resent_tokens": large.resent_tokens,
                }
                for large in report.largest
            ],
            "turns": [self._turn(turn.span, turn) for turn in report.turns],
            "growth": report.growth,
            "spent": self._spent(),
            "warnings": list(self.warnings),
        }

    def _window(self) -> dict[str, Any] | None:
        bound = self.report.bound
        if bound is None:
            return None
        total = self.window.total_tokens
        note = "" if total in (None, bound) else f"input bound; {total:,} with the output"
        said = self.window.said_by()
        return {"tokens": bound, "source": self.window.source, "said_by": said, "note": note}

    def _turn(self, span: Span, turn: Any) -> dict[str, Any]:
        return {
            "turn": span.number,
            "at": span.at,
            "model": span.model,
            "tokens": turn.tokens,
            "basis": turn.basis,
            "window": self.report.bound,
            "compacted": span.compacted,
            "rows": {row: tokens for row, tokens in turn.rows.items() if tokens},
        }

    def _spent(self) -> dict[str, Any] | None:
        spent = self.spent
        if spent is None:
            return None
        names = ("input", "cache_read", "cache_write", "output", "reasoning")
        return {**{name: getattr(spent, name) for name in names}, "dollars": self.dollars}


def _since(report: Report) -> dict[str, int] | None:
    if report.since is None:
        return None
    tokens, messages = report.since
    return {"tokens": tokens, "messages": messages}


def context(
    messages: Sequence[Any] | str,
    *,
    usage: Any = None,
    window: Window | int | None = None,
    max_tokens: int | None = None,
    top: int = 10,
    **request: Unpack[Asked],
) -> Contents:
    """Return what fills the window with these messages, by part.

    `usage` is the provider's report of the call that sent exactly these messages: then it is the
    total, and what the rows do not explain is shown as unattributed. `window` is the operator's
    word; without it the window of `model` is resolved. Raises MalformedHistoryError, and
    ConfigurationError for a report that cannot be read or a number that is none.
    """
    shared, question, body = asked(messages, request)
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigurationError(
            f"max_tokens must be a positive number of tokens, not {max_tokens!r}"
        )
    known = given(window)
    if known is None:
        known = shared.windows.window(question)
    transcript = shared.read(body)
    reported, reporter = _reported(usage), "provider"
    if reported is None:
        reporter = "server"
        reported = shared.server_count(question, transcript.rules.dialect, body)
    subject = Subject(
        transcript,
        reported=reported,
        reporter=reporter,
        system=system_text(body.system),
        tools=tuple(body.tools or ()),
        reserved=max_tokens or 0,
    )
    report = compose(subject, shared.meter(question, transcript.rules.dialect), known, top=top)
    return Contents(report, known, question.model, compaction_at=compaction_point(known))


def _reported(usage: Any) -> int | None:
    if usage is None:
        return None
    read = usage if isinstance(usage, Usage) else Usage.from_report(usage)
    if read is None:
        raise ConfigurationError(
            f"usage is no usage report that can be read: {str(usage)[:80]!r}; leave it out to "
            "have the messages counted"
        )
    return read.prompt_tokens


def of_session(
    session: Session,
    *,
    model: str | None = None,
    window: Window | int | None = None,
    reserved: int | None = None,
    top: int = 10,
    runtime: Runtime | None = None,
) -> Contents:
    """Return what fills the window of a session that was read from a file.

    The window is the caller's word, the file's, or (for a plain request, or where the caller
    names a model) the resolved one. Claude Code's files name none, and none is assumed.
    """
    shared = runtime or default()
    named = model or session.model
    question = Question(served(named))
    if window is None and model is not None and model != served(model):
        window = WIDE
    known = given(window if window is not None else session.window_tokens)
    if known is None:
        asked = model is not None or session.source not in ("claude", "codex")
        known = shared.windows.window(question) if asked and named else Window(model=named)
    elif window is None:
        known = replace(known, source="probe", kind="allocated")
    body = Body(list(session.messages), session.tools, session.system, session.dialect)
    subject = Subject(
        shared.read(body),
        start=session.start,
        covered=session.covered,
        reported=session.tokens,
        system=system_text(session.system),
        tools=session.tools,
        reserved=session.max_tokens or 0 if reserved is None else reserved,
        summaries=frozenset(session.summaries),
        spans=tuple(
            Span(t.number, t.start, t.stop, t.tokens, t.model, t.at, t.compacted)
            for t in session.turns
        ),
        apart=_apart(session),
    )
    meter = shared.meter(question, subject.transcript.rules.dialect)
    report = compose(subject, calibrated(meter, subject), known, top=top)
    source = {"kind": session.source, "path": session.path, "session": session.id}
    return Contents(
        report,
        known,
        named,
        source,
        session.spent,
        _dollars(session, shared),
        compaction_point(known),
        session.warnings,
    )


def calibrated(meter: Meter, subject: Subject) -> Meter:
    """Return a meter that what was reported along the session has taught the model's ratio."""
    if meter.basis == "exact":
        return meter
    told = [span for span in subject.spans if span.tokens is not None]
    measured = measure(subject.transcript, meter, system=subject.system, tools=subject.tools)
    sums = prefix_sums([size.best for size in measured.sizes])
    held: Calibration | None = None
    for span in told:
        if span.tokens is not None and span.model == told[-1].model:
            content = sums[span.stop] - sums[span.start]
            held = learn(held, Reading(span.tokens, content, measured.fixed.best))
    if held is None or held.outside is None:
        return meter
    return replace(meter, scale=held.scale, basis="calibrated", outside=held.outside)


def served(model: str | None) -> str | None:
    """Return the id under which a model is served: Claude Code marks a wide window behind it."""
    return model.removesuffix("[1m]") if model else model


def _apart(session: Session) -> str:
    from ullage.importers import NOT_IN_FILE

    return NOT_IN_FILE if session.source == "claude" else ""


def _dollars(session: Session, shared: Runtime) -> float | None:
    """Return what the session's own calls cost, None where a price or a report is missing."""
    total = 0.0
    models = {turn.model for turn in session.turns}
    prices = {model: shared.windows.prices(Question(served(model))) for model in models}
    for turn in session.turns:
        paid = cost(turn.usage, prices[turn.model]).total if turn.usage is not None else None
        if paid is None:
            return None
        total += paid
    return total if session.turns else None


def compaction_point(window: Window, policy: Policy | None = None) -> int | None:
    """Return the tokens at which a guard of this policy compacts, None without a window."""
    rungs = (policy or Policy.ladder()).rungs
    if window.input_tokens is None or not rungs:
        return None
    return int(min(rung.at for rung in rungs) * window.input_tokens)

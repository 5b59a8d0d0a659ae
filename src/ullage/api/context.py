"""A report of what fills a window, for library users and the terminal: `ullage.context`.

This module reads the messages, resolves the window and computes prices. `core.tokens.composition`
puts the report together. This module decides and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from ullage.core.compaction.policy import Policy
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.calibration import Calibration, ReportedSize, learn
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.composition import SCHEMA, Report, Span, Subject, compose
from ullage.core.tokens.cost import Price, cost
from ullage.core.tokens.counting import Meter, measure, prefix_sums
from ullage.core.tokens.outputs import ReportedAnswer, settle
from ullage.core.tokens.window import Window, refute, resolve
from ullage.core.values.shown import line, table
from ullage.runtime import Measurable, RequestOptions, Runtime, default, parse_options, system_text
from ullage.windows import Question, read_window, strip_mark
from ullage.windows.question import MARKED, WIDE

if TYPE_CHECKING:
    from ullage.importers.session import ImportedSession, ModelTurn, PaidCall


@dataclass(frozen=True, slots=True)
class Contents:
    """The parts that fill the window of a conversation: rows that add up, in tokens.

    `report` holds the numbers; `to_dict` returns the published form (`ullage.context/1`). If the
    window had to be assumed, `assumed` says why and how to correct it; otherwise it is empty. If
    the counted output is larger than the reported output, `spent` holds the counted one; the
    reported tokens are in `reported_output`.
    """

    report: Report
    window: Window
    model: str | None = None
    source: Mapping[str, Any] | None = None
    spent: Usage | None = None
    dollars: float | None = None
    reported_output: int | None = None
    assumed: str = ""
    compaction_at: int | None = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        used, bound = self.report.used.tokens, self.report.bound
        of = f" of {bound:,}" if bound is not None else ""
        tier = self.report.assessment.tier
        return line("Contents", f"{used:,}{of} tokens", tier=tier, model=self.model)

    def _repr_html_(self) -> str:
        report = self.report
        rows: dict[str, Any] = {row.id: row.tokens for row in report.rows if row.tokens}
        rows |= {"used": report.used.tokens, "free": report.free, "window": report.bound}
        return table(f"what fills the window of {self.model or 'this model'}", rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is `ullage/cli/context.schema.json`."""
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
            "spent": self._render_spent(),
            "warnings": list(self.warnings),
        }

    def _window(self) -> dict[str, Any] | None:
        bound = self.report.bound
        if bound is None:
            return None
        total = self.window.total_tokens
        note = "" if total in (None, bound) else f"input bound; {total:,} with the output"
        said = self.window.name_source()
        return {
            "tokens": bound,
            "source": self.window.source,
            "said_by": f"assumed: {said}" if self.assumed else said,
            "note": "; ".join(word for word in (note, self.assumed) if word),
            "assumed": bool(self.assumed),
        }

    def _turn(self, span: Span, turn: Any) -> dict[str, Any]:
        return {
            "turn": span.number,
            "at": span.at,
            "model": span.model,
            "tokens": turn.tokens,
            "basis": turn.basis,
            "window": self.report.bound,
            "compacted": span.compacted,
            "output": span.output,
            "output_basis": None if span.output is None else _basis(counted=span.counted),
            "rows": {row: tokens for row, tokens in turn.rows.items() if tokens},
        }

    def _render_spent(self) -> dict[str, Any] | None:
        spent = self.spent
        if spent is None:
            return None
        names = ("input", "cache_read", "cache_write", "output", "reasoning")
        reported = self.reported_output
        return {
            **{name: getattr(spent, name) for name in names},
            "dollars": self.dollars,
            "basis": _basis(counted=reported is not None and reported < _sum_output(spent)),
            "reported_output": reported,
        }


def _basis(*, counted: bool) -> str:
    return "estimate" if counted else "provider"


def _sum_output(usage: Usage) -> int:
    return usage.output + usage.reasoning


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
    **request: Unpack[RequestOptions],
) -> Contents:
    """Return how these messages fill the window, by part.

    `usage` is the provider's report of the call that sent exactly these messages. If given, it is
    the total, and tokens that no row explains are shown as unattributed. `window` replaces the
    window of `model`. Other options are those of `ullage.count`. Raises MalformedHistoryError for
    invalid messages, and ConfigurationError for an unreadable usage report or an invalid number.
    """
    shared, question, body = parse_options(messages, request)
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigurationError(
            f"max_tokens must be a positive number of tokens, not {max_tokens!r}"
        )
    known = read_window(window)
    if known is None:
        known = shared.windows.window(question)
    transcript = shared.read(body)
    reported, reporter = _read_reported_prompt(usage), "provider"
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
        dropped=shared.dropped_rows(question) or frozenset(),
    )
    report = compose(subject, shared.meter(question, transcript.rules.dialect), known, top=top)
    at = compaction_point(known, shared.settings.policy)
    return Contents(report, known, question.model, compaction_at=at)


def _read_reported_prompt(usage: Any) -> int | None:
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
    session: ImportedSession,
    *,
    model: str | None = None,
    window: Window | int | None = None,
    reserved: int | None = None,
    top: int = 10,
    runtime: Runtime | None = None,
) -> Contents:
    """Return how a session that was read from a file fills its window.

    The window is the caller's, or the file's. For a plain request, or if the caller names a model,
    the window of the model is resolved. If a program's session file names no window, the window of
    its model at the program's own provider is assumed, unless a reported prompt was larger.
    """
    shared = runtime or default()
    named = model or session.model
    question = Question(strip_window_mark(named))
    if window is None and model is not None and model != strip_window_mark(model):
        window = resolve([Claim("total", WIDE, "override", MARKED)], model=question.model)
    known, assumed = read_window(window if window is not None else session.window_tokens), ""
    if known is None and (model is not None or session.providers is None):
        known = shared.windows.window(question) if named else Window(model=named)
    elif known is None:
        known, assumed = _assume_window(session, shared)
    elif window is None:
        known = _resolve_written_window(known.tokens(), named)
    known = refute(known, _largest(session))
    body = Measurable(list(session.messages), session.tools, session.system, session.dialect)
    subject = Subject(
        shared.read(body),
        start=session.start,
        covered=session.covered,
        reported=session.tokens,
        system=system_text(session.system),
        tools=session.tools,
        reserved=session.max_tokens or 0 if reserved is None else reserved,
        summaries=frozenset(session.summaries),
        spans=_spans(session, ()),
        apart=session.apart,
        root=session.project,
        dropped=session.dropped,
    )
    meter = calibrate_meter(shared.meter(question, subject.transcript.rules.dialect), subject)
    paid = _settle_calls(session, shared, meter)
    subject = replace(subject, spans=_spans(session, paid))
    report = compose(subject, meter, known, top=top)
    spent = _sum_spent(session, paid)
    return Contents(
        report=report,
        window=known,
        model=named,
        source=_source(session),
        spent=spent,
        dollars=_dollars(session, shared, paid),
        reported_output=_sum_output(session.spent) if session.spent is not None else None,
        assumed=assumed if known.known else "",
        compaction_at=compaction_point(known, shared.settings.policy),
        warnings=(*_warnings(session, known), *([assumed] if not known.known else ())),
    )


def _resolve_written_window(tokens: int, model: str | None) -> Window:
    """Return the window that a session file names."""
    claim = Claim("allocated", tokens, "probe", "the program that wrote the file")
    return resolve([claim], model=model)


def _warnings(session: ImportedSession, known: Window) -> list[str]:
    return [*session.warnings, *_warn_of_unread(session.unread), *known.warnings]


def _warn_of_unread(unread: Mapping[str, int]) -> list[str]:
    """Name the kinds of lines in a file that were not understood, the most frequent first."""
    if not unread:
        return []
    named = sorted(unread.items(), key=lambda item: -item[1])
    listed = [f"{kind} ({count:,})" for kind, count in named[:UNREAD_SHOWN]]
    more = sum(count for _, count in named[UNREAD_SHOWN:])
    listed += [f"other kinds ({more:,})"] if more else []
    return [f"not understood, and so not counted: {', '.join(listed)}"]


def _source(session: ImportedSession) -> dict[str, Any]:
    return {
        "kind": session.source,
        "path": session.path,
        "session": session.id,
        "project": session.project,
        "title": session.title,
        "at": session.at,
    }


def _assume_window(session: ImportedSession, shared: Runtime) -> tuple[Window, str]:
    """Return the assumed window of a model at its program's own providers, and the reason.

    If a reported prompt was larger than that window, use the next larger window that any source
    names.
    """
    model, windows = strip_window_mark(session.model), shared.windows
    if model is None:
        return Window(), f"no call in the file names its model: {_SAY}"
    told = windows.resolve_from_table(Question(model))
    if told.source == "override":
        return told, ""
    if session.model != model:
        return _wide(session.model), f"the file names {session.model}; {_SAY}"
    known = [p for p in session.providers or () if windows.table.provider(p) is not None]
    tabled = (windows.resolve_from_table(Question(model, provider=provider)) for provider in known)
    found = next((window for window in tabled if window.known), None)
    if found is None:
        at = " or ".join(session.providers or ()) or "its provider"
        return Window(model=model), f"the table has no model {model!r} at {at}: {_SAY}"
    left = refute(found, _largest(session))
    if session.source != "claude":
        return left, f"the file names no window; {_SAY}"
    if not left.known:
        left = replace(_wide(model), warnings=left.warnings)
    return left, f"the file names no window; --model {model}[1m] means {WIDE:,} tokens, or {_SAY}"


UNREAD_SHOWN: Final = 5
"""Number of unknown kinds of lines that are named; the others are only counted."""

_SAY: Final = "--window N says how large it is"


def _wide(model: str | None) -> Window:
    return resolve([Claim("total", WIDE, "table", MARKED)], model=model)


def _largest(session: ImportedSession) -> int:
    """Return the largest reported prompt of the session's model, or 0."""
    told = [
        t.tokens
        for t in session.turns
        if strip_window_mark(t.model) == strip_window_mark(session.model)
    ]
    known = [tokens for tokens in told if tokens is not None]
    return max(known, default=0 if session.turns else session.tokens or 0)


def _spans(
    session: ImportedSession, paid: Sequence[tuple[PaidCall, Usage | None]]
) -> tuple[Span, ...]:
    """Return the calls as spans; `paid` pairs each call with its settled usage."""
    return tuple(_span(turn, paid) for turn in session.turns)


def _span(turn: ModelTurn, paid: Sequence[tuple[PaidCall, Usage | None]]) -> Span:
    usage, counted = turn.usage, False
    if turn.call is not None and paid:
        call, usage = paid[turn.call]
        counted = usage is not call.usage
    output = _sum_output(usage) if usage is not None else None
    return Span(
        turn.number,
        turn.start,
        turn.stop,
        turn.tokens,
        turn.model,
        turn.at,
        turn.compacted,
        output,
        counted,
    )


def _settle_calls(
    session: ImportedSession, shared: Runtime, meter: Meter
) -> list[tuple[PaidCall, Usage | None]]:
    """Return each call of the session with its usage: reported or counted, whichever is larger."""
    answers = []
    for call in session.calls:
        read = shared.read(Measurable(list(call.answer), dialect=session.dialect))
        answers.append(ReportedAnswer(call.usage, read.messages, call.final))
    return list(zip(session.calls, settle(answers, meter), strict=True))


def _sum_spent(
    session: ImportedSession, paid: Sequence[tuple[PaidCall, Usage | None]]
) -> Usage | None:
    """Return the reported usage of all calls, plus the output that was counted beyond it."""
    spent = session.spent
    if spent is None:
        return None
    output, reasoning = spent.output, spent.reasoning
    for call, usage in paid:
        if usage is not None and call.usage is not None:
            output += usage.output - call.usage.output
            reasoning += usage.reasoning - call.usage.reasoning
    return replace(spent, output=max(output, 0), reasoning=max(reasoning, 0))


def calibrate_meter(meter: Meter, subject: Subject) -> Meter:
    """Return a meter whose ratio was learned from the sizes reported during the session."""
    if meter.basis == "exact":
        return meter
    told = [span for span in subject.spans if span.tokens is not None]
    measured = measure(subject.transcript, meter, system=subject.system, tools=subject.tools)
    sums = prefix_sums([size.best for size in measured.sizes])
    held: Calibration | None = None
    before: dict[int, tuple[int, int]] = {}
    for span in told:
        if span.tokens is not None and span.model == told[-1].model:
            content = sums[span.stop] - sums[span.start]
            last = before.get(span.start)
            held = learn(held, ReportedSize(span.tokens, content, measured.fixed.best, last))
            before[span.start] = (span.tokens, content)
    if held is None or held.seen < ENOUGH_TOLD:
        return meter
    return replace(meter, scale=held.scale, basis="calibrated", outside=held.counted_outside)


ENOUGH_TOLD: Final = 2
"""Number of reports in a session that are needed to calibrate the ratio of its model."""


def strip_window_mark(model: str | None) -> str | None:
    """Return the model id without the suffix `[1m]`, which Claude Code adds for a wide window."""
    return strip_mark(model)


def _dollars(
    session: ImportedSession, shared: Runtime, paid: Sequence[tuple[PaidCall, Usage | None]]
) -> float | None:
    """Return the cost of the session's own calls, or None if a price or a report is missing.

    A cost that the program itself reported is used as it is.
    """
    if session.dollars is not None:
        return session.dollars
    calls = [(call.model, usage) for call, usage in paid]
    calls = calls or [(turn.model, turn.usage) for turn in session.turns]
    prices = {model: _prices(strip_window_mark(model), session, shared) for model in dict(calls)}
    total = 0.0
    for model, usage in calls:
        price = cost(usage, prices[model]).total if usage is not None else None
        if price is None:
            return None
        total += price
    return total if calls else None


def _prices(model: str | None, session: ImportedSession, shared: Runtime) -> tuple[Price, ...]:
    """Return the prices of a model at the first of the session's providers that has prices."""
    windows = shared.windows
    if session.providers is None:
        return windows.prices(Question(model))
    known = [p for p in session.providers if windows.table.provider(p) is not None]
    found = (windows.prices(Question(model, provider=provider)) for provider in known)
    return next((prices for prices in found if prices), ())


def compaction_point(window: Window, policy: Policy | str = "ladder") -> int | None:
    """Return the tokens at which a guard of this policy compacts; None without window or rungs."""
    rungs = Policy.read(policy).rungs
    if window.input_tokens is None or not rungs:
        return None
    return int(min(rung.at for rung in rungs) * window.input_tokens)

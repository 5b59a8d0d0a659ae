"""The plain functions, for those who want one piece: count, window, assess, compact, validate.

Each composes the rooms below over a `Runtime`, by default the process's own. Re-exported as
`ullage.*`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ullage.core import laws
from ullage.core.checkpoint import Checkpoint, chain
from ullage.core.compaction import Order, Outcome
from ullage.core.compaction import compact as compacting
from ullage.core.counting import Count, Meter, measure
from ullage.core.errors import (
    CompactionError,
    ConfigurationError,
    ContextTooLargeError,
    ContextWindowUnknown,
    MalformedHistoryError,
)
from ullage.core.gauge import Assessment
from ullage.core.gauge import assess as assessing
from ullage.core.policies.policy import Policy
from ullage.core.window import HINT, Window
from ullage.guard import Summarizer, asummary, summary
from ullage.runtime import Runtime, default
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.laws import Repaired
    from ullage.core.policies.summarise import SummaryRequest
    from ullage.core.usage import Usage


def window(  # noqa: PLR0913 - the public signature is fixed by the API page
    model: str | None = None,
    *,
    base_url: str | None = None,
    provider: str | None = None,
    api_key: str | None = None,
    override: int | None = None,
    refresh: bool = False,
    runtime: Runtime | None = None,
) -> Window:
    """Return the window of a model as it is served: see `Window`.

    Unknown is a Window with `known=False`; network trouble never raises. `provider` names whose
    listing and rows are meant where no base URL tells; `refresh` forgets what was heard and
    learned of this model there. Raises ConfigurationError for a bad override or base_url.
    """
    windows = (runtime or default()).windows
    question = Question(model, base_url, api_key, override, provider)
    if refresh:
        windows.forget(question)
    return windows.window(question)


async def awindow(  # noqa: PLR0913 - the same signature
    model: str | None = None,
    *,
    base_url: str | None = None,
    provider: str | None = None,
    api_key: str | None = None,
    override: int | None = None,
    refresh: bool = False,
    runtime: Runtime | None = None,
) -> Window:
    """Do as `window`, without blocking the event loop."""
    windows = (runtime or default()).windows
    question = Question(model, base_url, api_key, override, provider)
    if refresh:
        windows.forget(question)
    return await windows.awindow(question)


def window_tokens(model: str | None = None, **options: Any) -> int:
    """Return the input bound in tokens; raises ContextWindowUnknown. Options as in `window`."""
    return window(model, **options).tokens()


def models(
    *,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    runtime: Runtime | None = None,
) -> list[tuple[str, Window]]:
    """Return (id, Window) of every model: of a provider's listing, or of the bundled table.

    With a `base_url` or a `provider` that publishes a listing, that is asked; a provider that
    publishes none, and no provider at all, mean the table. Sorted by id.
    """
    windows = (runtime or default()).windows
    return windows.models(Question(None, base_url, api_key, None, provider))


async def amodels(
    *,
    provider: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    runtime: Runtime | None = None,
) -> list[tuple[str, Window]]:
    """Do as `models`, without blocking the event loop."""
    windows = (runtime or default()).windows
    return await windows.amodels(Question(None, base_url, api_key, None, provider))


def count(
    messages: Sequence[Any],
    *,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    base_url: str | None = None,
    runtime: Runtime | None = None,
) -> Count:
    """Count a request in tokens: a best value, the band around it, and the basis of both.

    With a `base_url` whose server counts (llama.cpp), the count is the server's own. Raises
    MalformedHistoryError when `messages` is no list of messages.
    """
    shared = runtime or default()
    question = Question(model, base_url)
    measured = measure(
        shared.codec.read(messages), shared.meter(question), system=system, tools=tools
    )
    if shared.windows.probed(question):
        shared.windows.window(question)
        reported = shared.server_count(question, _whole(messages, system), tools)
        measured = replace(measured, reported=reported)
    return measured.count()


async def acount(
    messages: Sequence[Any],
    *,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    base_url: str | None = None,
    runtime: Runtime | None = None,
) -> Count:
    """Do as `count`, without blocking the event loop while a server counts."""
    shared = runtime or default()
    question = Question(model, base_url)
    measured = measure(
        shared.codec.read(messages), shared.meter(question), system=system, tools=tools
    )
    if shared.windows.probed(question):
        await shared.windows.awindow(question)
        reported = await shared.aserver_count(question, _whole(messages, system), tools)
        measured = replace(measured, reported=reported)
    return measured.count()


def _whole(messages: Sequence[Any], system: str | None) -> list[Any]:
    return [{"role": "system", "content": system}, *messages] if system else list(messages)


def count_text(
    text: str, *, model: str | None = None, runtime: Runtime | None = None
) -> int | Count:
    """Count plain text: an int where the model's vocabulary is at hand, else a Count."""
    meter = (runtime or default()).meter(Question(model))
    tokens = meter.counter.count(text)
    if meter.basis == "exact":
        return tokens
    scale = meter.scale
    low, best, high = (round(tokens * f) for f in (scale.low, scale.best, scale.high))
    return Count(best, low, high, meter.basis)


def assess(
    used: Usage | Count | int | Any, window: Window | int | str | None, **options: Any
) -> Assessment:
    """Assess tokens against a window (a Window, tokens, or a model id of the bundled table).

    `used` is a Usage, a Count, tokens, a recorded usage report, or None. Never raises for
    missing facts: see `Assessment.reason`. Option: `thresholds`.
    """
    if isinstance(window, str):
        window = default().windows.window(Question(window))
    return assessing(used, window, **options)


def validate(
    messages: Sequence[Any],
    *,
    window: Window | int | None = None,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
) -> None:
    """Check a request strictly: its protocol, and its size against a window.

    Raises MalformedHistoryError naming the first fault, or ContextTooLargeError when the upper
    edge of the prompt is at or over the input bound, or prompt and max_tokens over the total.
    With an unknown window the protocol alone is checked. Raises ConfigurationError for a window
    or max_tokens that is no positive number.
    """
    shared = default()
    transcript = shared.codec.read(messages)
    broken = laws.protocol(transcript)
    if broken:
        first = broken[0]
        raise MalformedHistoryError(
            f"messages[{first.message}]: {first.detail}. ullage.repair(messages) mends it by rule",
            index=first.message,
        )
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigurationError(
            f"max_tokens must be a positive number of tokens, not {max_tokens!r}"
        )
    known = _window(window)
    if known is None and model is not None:
        known = shared.windows.window(Question(model))
    if known is None or known.input_tokens is None:
        return
    size = measure(transcript, shared.meter(Question(model)), system=system, tools=tools).count()
    _fits(size, known, max_tokens)


def _window(given: Window | int | None) -> Window | None:
    """Return a window as it was given; raises ConfigurationError for a senseless number."""
    if given is None or isinstance(given, Window):
        return given
    tokens = Question(override=given).override
    return Window(tokens, tokens, source="override")


def _fits(size: Count, known: Window, max_tokens: int | None) -> None:
    bound = known.tokens()
    total = known.total_tokens or bound
    share = f"{size.high * 100 // bound} % of {bound:,} tokens ({known.said_by()})"
    if size.high >= bound:
        raise ContextTooLargeError(
            f"the prompt takes {size.high:,} tokens, {share}: compact before sending",
            tokens=size.high,
            bound=bound,
        )
    if max_tokens is not None and size.high + max_tokens > total:
        left = total - size.high
        raise ContextTooLargeError(
            f"the prompt takes {size.high:,} tokens, {share}; {max_tokens:,} for the output do "
            f"not fit, {left:,} are available: lower max_tokens or compact before sending",
            tokens=size.high + max_tokens,
            bound=total,
        )


def repair(messages: Sequence[Any]) -> Repaired:
    """Return messages that keep the protocol, and what was repaired: see `core.laws.repair`."""
    codec = default().codec
    return laws.repair(codec.read(messages), codec)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What came of a compaction; `messages` is the list to send.

    The caller's own objects stand where nothing was edited. `repairs` were made before anything
    else; `checkpoint` is the record of the compaction, None where nothing was edited.
    """

    messages: list[Any]
    outcome: Outcome
    original: list[Any]
    repairs: tuple[laws.Repair, ...] = ()
    checkpoint: Checkpoint | None = None

    @property
    def changed(self) -> bool:
        """Whether the compaction edited anything."""
        return self.outcome.changed

    @property
    def reached(self) -> bool:
        """Whether the upper edge of the result is at or under the target."""
        return self.outcome.reached

    @property
    def reason(self) -> str | None:
        """Why nothing was changed, or why the target was missed."""
        return self.outcome.reason

    @property
    def before(self) -> Count:
        """The size as it was."""
        return self.outcome.before

    @property
    def after(self) -> Count:
        """The size of the result."""
        return self.outcome.after

    @property
    def strategy(self) -> str:
        """The strategies that took part, in order, joined by `+`."""
        return self.outcome.strategy

    @property
    def fallback_reason(self) -> str | None:
        """Why the summary was written by rule, None where it was not."""
        return self.outcome.fallback_reason

    @property
    def violations(self) -> tuple[laws.Violation, ...]:
        """The laws that the planned result would have broken; then nothing was changed."""
        return self.outcome.violations

    @property
    def edits(self) -> tuple[Any, ...]:
        """The edits that were made (or, in a dry run, would be)."""
        return self.outcome.script.edits()

    def undo(self) -> list[Any]:
        """Return the messages as they were."""
        return list(self.original)


def compact(messages: Sequence[Any], **options: Any) -> Compaction:
    """Return the messages made smaller: lawful, pins kept, at or under the target if it can be.

    Give `target_tokens`, or `target_ratio` with a `window` or a `model` of known window. Other
    options: `policy`, `summarizer`, `pins` (positions), `tools`, `system`, `model`, `dry_run`,
    `runtime`. Raises CompactionError for a missing or senseless target, ContextWindowUnknown for
    a ratio of an unknown window, MalformedHistoryError for what is no list of messages.
    """
    job = _Job(messages, **options)
    asking = job.start()
    try:
        request = next(asking)
        while True:
            request = asking.send(job.ask(request))
    except StopIteration as done:
        return job.result(done.value)


async def acompact(messages: Sequence[Any], **options: Any) -> Compaction:
    """Do as `compact`, with a summarizer that may be async."""
    job = _Job(messages, **options)
    asking = job.start()
    try:
        request = next(asking)
        while True:
            request = asking.send(await job.aask(request))
    except StopIteration as done:
        return job.result(done.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    target_tokens: int | None = None
    target_ratio: float | None = None
    window: Window | int | None = None
    policy: Policy | None = None
    summarizer: Summarizer | None = None
    pins: Sequence[int] = ()
    tools: Sequence[Any] | None = None
    system: str | None = None
    model: str | None = None
    dry_run: bool = False
    runtime: Runtime | None = None


class _Job:
    """One compaction of a plain list."""

    def __init__(self, messages: Sequence[Any], **options: Any) -> None:
        try:
            self.options = _Options(**options)
        except TypeError as error:
            raise ConfigurationError(
                f"compact(): {error}".replace("_Options.__init__() ", "")
            ) from None
        self.runtime = self.options.runtime or default()
        self.messages = messages
        codec = self.runtime.codec
        self.mended = laws.repair(codec.read(messages), codec)

    def start(self) -> Generator[SummaryRequest, str | None, Outcome]:
        codec, options, mended = self.runtime.codec, self.options, self.mended
        transcript = codec.read(mended.messages)
        meter: Meter = self.runtime.meter(Question(options.model))
        measured = measure(transcript, meter, system=options.system, tools=options.tools)
        target, bound = self._target()
        policy = options.policy or Policy.ladder()
        rung = max(policy.rungs, key=lambda r: r.at, default=None)
        strategies = rung.strategies if rung is not None else ()
        if options.summarizer is None:
            strategies = tuple(s for s in strategies if s != "summarise_middle")
        order = Order(
            target=target,
            tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
            strategies=strategies,
            pins=mended.moved(self._pins()),
            summariser=options.summarizer is not None,
        )
        return compacting(transcript, measured, meter, codec, order)

    def _pins(self) -> frozenset[int]:
        size = len(self.messages)
        for pin in self.options.pins:
            if type(pin) is not int or not 0 <= pin < size:
                raise ConfigurationError(
                    f"pins names message {pin!r}, but the {size} messages are at 0 to {size - 1}"
                )
        return frozenset(self.options.pins)

    def _target(self) -> tuple[int, int]:
        """Return the target and the bound that tails are shares of, in tokens."""
        options = self.options
        given, ratio, known = options.target_tokens, options.target_ratio, _window(options.window)
        if (given is None) == (ratio is None):
            raise CompactionError("give either target_tokens or target_ratio, and not both")
        if given is not None:
            if type(given) is not int or given < 1:
                raise CompactionError(f"target_tokens must be a positive integer, not {given!r}")
            return given, given
        assert ratio is not None  # noqa: S101 - one of the two is given
        if type(ratio) not in (int, float) or not 0 < ratio <= 1:
            raise CompactionError(f"target_ratio must be over 0 and at most 1, not {ratio!r}")
        if known is None:
            known = self.runtime.windows.window(Question(options.model))
        bound = known.input_tokens
        if bound is None:
            raise ContextWindowUnknown(options.model, HINT)
        return max(int(ratio * bound), 1), bound

    def ask(self, request: SummaryRequest) -> str | None:
        assert self.options.summarizer is not None  # noqa: S101 - the order says that there is one
        answer = summary(self.options.summarizer, request)
        return answer if isinstance(answer, str) else None

    async def aask(self, request: SummaryRequest) -> str | None:
        assert self.options.summarizer is not None  # noqa: S101 - the order says that there is one
        answer = await asummary(self.options.summarizer, request)
        return answer if isinstance(answer, str) else None

    def result(self, outcome: Outcome) -> Compaction:
        original = list(self.messages)
        made = original if self.options.dry_run else list(outcome.edited.transcript.raws)
        record = self._record(outcome) if outcome.changed else None
        return Compaction(made, outcome, original, self.mended.repairs, record)

    def _record(self, outcome: Outcome) -> Checkpoint:
        policy, count = self.options.policy or Policy.ladder(), outcome.script.reach()
        hashes = chain(self.runtime.codec.read(self.mended.messages))
        return Checkpoint(
            scope="",
            prefix=hashes[count - 1].hex(),
            count=count,
            script=outcome.script,
            strategy=outcome.strategy,
            trigger="manual",
            policy=policy.identity,
            basis=outcome.after.basis,
            tokens_before=outcome.before.tokens,
            tokens_after=outcome.after.tokens,
            fallback_reason=outcome.fallback_reason,
            whole=hashes[-1].hex(),
        )

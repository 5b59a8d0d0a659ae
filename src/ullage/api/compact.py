"""Compaction of a plain list: the sync and async drivers of `core.compaction`, and the result.

Re-exported as `ullage.compact`, `ullage.acompact` and `ullage.Compaction`. This module decides
nothing; `core.compaction` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from ullage.core.compaction import laws, mending, pins
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.plan import Asking, Order, Outcome, make_checkpoint
from ullage.core.compaction.plan import compact as compacting
from ullage.core.compaction.policy import Policy
from ullage.core.compaction.situation import Keep
from ullage.core.compaction.strategies import wants_prose
from ullage.core.errors import CompactionError, ConfigurationError, ContextWindowUnknown
from ullage.core.summary.flaws import explain_written
from ullage.core.summary.question import Answer
from ullage.core.tokens.counting import Count, Meter, measure
from ullage.core.tokens.window import HINT, Window
from ullage.core.values.progress import Progress, ignore
from ullage.core.values.shown import line, table
from ullage.guard.defaults import find_pins, find_summarizer
from ullage.guard.planning import run_beside
from ullage.guard.same import SameModel
from ullage.guard.summarizer import Summarize, aanswers, answers, awindow_of, window_of
from ullage.runtime import Measurable, Runtime, default, system_text
from ullage.storage import check_store
from ullage.windows import Question, read_window

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Transcript
    from ullage.core.summary.question import SummaryRequest
    from ullage.storage import Store


Element = TypeVar("Element")
Mapped = TypeVar("Mapped", bound=Mapping[str, Any])
"""Messages that are mappings, such as TypedDicts; compaction writes new messages in this form."""


@dataclass(frozen=True, slots=True)
class Compaction(Generic[Element]):
    """The result of a compaction; `messages` is the list to send.

    Messages that no edit touched are the caller's own objects. `repairs` were made first; `history`
    is the repaired transcript that was compacted, and `policy` names the policy used. If the target
    was not reached, `obstacle` says why, with sizes; otherwise it is None. `faults` lists the
    summarizer's failures.
    """

    messages: list[Element]
    outcome: Outcome
    original: list[Element]
    history: Transcript
    policy: str
    repairs: tuple[mending.Repair, ...] = ()
    obstacle: str | None = None
    faults: tuple[str, ...] = ()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The record of the compaction, or None if nothing was edited."""
        if not self.changed:
            return None
        script, by = self.outcome.script, self.policy
        return make_checkpoint(
            self.history, script, self.outcome, scope="", trigger="manual", policy=by
        )

    @property
    def changed(self) -> bool:
        """True if the compaction edited anything."""
        return self.outcome.changed

    @property
    def reached(self) -> bool:
        """True if the upper edge of the result is at or under the target."""
        return self.outcome.reached

    @property
    def reason(self) -> str | None:
        """The reason why nothing was changed, or why the target was missed."""
        return self.outcome.reason

    @property
    def before(self) -> Count:
        """The size before compaction."""
        return self.outcome.before

    @property
    def after(self) -> Count:
        """The size after compaction."""
        return self.outcome.after

    @property
    def strategy(self) -> str:
        """The names of the strategies used, in order, joined by `+`."""
        return self.outcome.strategy

    @property
    def fallback_reason(self) -> str | None:
        """The reason why rules wrote the summary instead of a model, or None."""
        return self.outcome.fallback_reason

    @property
    def flaws(self) -> tuple[str, ...]:
        """Errors of the summarizer, and of your own strategies that were skipped for an error."""
        told = (f"the summarizer failed: {fault}" for fault in self.faults)
        return (*self.outcome.flaws, *told, *explain_written(self.outcome.written))

    @property
    def violations(self) -> tuple[laws.Violation, ...]:
        """The laws that the planned result would have broken; if any, nothing was changed."""
        return self.outcome.violations

    @property
    def summary(self) -> str:
        """The text that replaces the messages left out; empty if no summary was written."""
        return self.outcome.block

    @property
    def seen(self) -> float | None:
        """The share of the left-out text that a summarizer was shown; None without a summarizer."""
        return self.outcome.written.seen if self.outcome.written is not None else None

    @property
    def edits(self) -> tuple[Any, ...]:
        """The edits that were made or, in a dry run, would be made."""
        return self.outcome.script.edits()

    def __repr__(self) -> str:
        sizes = f"{self.before.tokens:,} -> {self.after.tokens:,} tokens"
        how = self.strategy or None
        return line("Compaction", sizes, reached=self.reached, strategy=how, reason=self.reason)

    def _repr_html_(self) -> str:
        return table(
            "compaction",
            {
                "before": f"{self.before.tokens:,} tokens",
                "after": f"{self.after.tokens:,} tokens, at most {self.after.high:,}",
                "messages": f"{len(self.original):,} -> {len(self.messages):,}",
                "target reached": "yes" if self.reached else "no",
                "by": self.strategy or None,
                "reason": self.obstacle or self.reason,
            },
        )

    def undo(self) -> list[Element]:
        """Return the messages as they were."""
        return list(self.original)


@overload
def compact(
    messages: Sequence[Mapped], **options: Unpack[CompactOptions]
) -> Compaction[Mapped]: ...
@overload
def compact(
    messages: Sequence[Element], **options: Unpack[CompactOptions]
) -> Compaction[Element | dict[str, Any]]: ...
def compact(messages: Sequence[Any], **options: Unpack[CompactOptions]) -> Compaction[Any]:
    """Compact the messages to the target size, if possible.

    The result is a valid history, and pinned messages stay. Give `target_tokens`, or give
    `target_ratio` (a share of the window) with a `window` or a `model` whose window is known. Other
    options: `policy`; `summarizer` ("same" asks `model` at `base_url` with `api_key`); `pins`
    (positions of messages); `tools`; `system`; `model`; `dialect` (by default detected from the
    messages); `dry_run`; `runtime`; `report`, a callable that gets the number of answered summary
    requests and the number of all; and `store`, which keeps the left-out texts, so that
    placeholders can refer to them (see `ullage.recall`). Failures of the summarizer are listed in
    `faults`.

    Raises CompactionError for a missing or invalid target; ConfigurationError for an invalid pin;
    ContextWindowUnknown for a ratio of an unknown window; MalformedHistoryError if `messages` is
    not a list of messages.
    """
    job = _Job(messages, **options)
    asking = job.start(window_of(job.summarizer))
    try:
        requests = next(asking)
        while True:
            requests = asking.send(job.read(answers(job.writer, requests, job.options.report)))
    except StopIteration as done:
        return job.result(done.value)


@overload
async def acompact(
    messages: Sequence[Mapped], **options: Unpack[CompactOptions]
) -> Compaction[Mapped]: ...
@overload
async def acompact(
    messages: Sequence[Element], **options: Unpack[CompactOptions]
) -> Compaction[Element | dict[str, Any]]: ...
async def acompact(messages: Sequence[Any], **options: Unpack[CompactOptions]) -> Compaction[Any]:
    """Do as `compact`, with a sync or async summarizer, and without blocking the event loop.

    Long message lists are read and planned in a thread.
    """
    job: _Job[Any] = await run_beside(messages, lambda: _Job(messages, **options))
    window, found = await awindow_of(job.summarizer), None
    asking = await run_beside(messages, lambda: job.start(window))
    while True:
        step = await run_beside(messages, partial(_advance, asking, found))
        if isinstance(step, Outcome):
            return await run_beside(messages, partial(job.result, step))
        found = job.read(await aanswers(job.writer, step, job.options.report))


def _advance(
    asking: Asking, found: Sequence[Answer | None] | None
) -> tuple[SummaryRequest, ...] | Outcome:
    """Return the next requests or the outcome, because a thread cannot raise StopIteration."""
    try:
        return next(asking) if found is None else asking.send(found)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    target_tokens: int | None = None
    target_ratio: float | None = None
    window: Window | int | None = None
    policy: Policy | str | None = None
    summarizer: Summarize | str | None = None
    pins: Iterable[int] = ()
    tools: Sequence[Any] | None = None
    system: Any = None
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    dialect: str | None = None
    store: Store | None = None
    dry_run: bool = False
    runtime: Runtime | None = None
    report: Progress = ignore


class CompactOptions(TypedDict, total=False):
    """The options of `compact`; every key may be left out."""

    target_tokens: int | None
    target_ratio: float | None
    window: Window | int | None
    policy: Policy | str | None
    summarizer: Summarize | str | None
    pins: Iterable[int]
    tools: Sequence[Any] | None
    system: Any
    model: str | None
    base_url: str | None
    api_key: str | None
    dialect: str | None
    store: Store | None
    dry_run: bool
    runtime: Runtime | None
    report: Progress


class _Job(Generic[Element]):
    """One compaction of a plain list."""

    def __init__(self, messages: Sequence[Element], **options: Any) -> None:
        try:
            self.options = _Options(**options)
        except TypeError as error:
            raise ConfigurationError(
                f"compact(): {error}".replace("_Options.__init__() ", "")
            ) from None
        self.runtime = self.options.runtime or default()
        check_store(self.options.store)
        self.policy = self._policy()
        self.faults: list[Exception] = []
        asked = self.options
        body = Measurable(messages, asked.tools, asked.system, asked.dialect).normalise()
        self.messages = body.messages
        self.dialect = body.find_dialect()
        self.summarizer = self._find_summarizer()
        self.codec = self.runtime.codec_for(self.dialect)
        arrived = self.codec.read(self.messages)
        self.mended = mending.repair(arrived, self.codec)
        size = len(self.messages)
        self.pins = pins.read_pins(asked.pins, size) | find_pins(self.runtime, size)
        pins.check_mended(self.pins, self.mended, self.messages)
        mended = self.mended
        self.transcript = self.codec.read(mended.messages) if mended.repairs else arrived

    def _find_summarizer(self) -> Summarize | None:
        """Return the summarizer; "same" becomes the conversation's own model, in its dialect."""
        asked = self.options
        question = Question(asked.model, asked.base_url, asked.api_key)
        found = find_summarizer(self.runtime, asked.summarizer, question)
        return found.speak(self.dialect) if isinstance(found, SameModel) else found

    def _policy(self) -> Policy:
        """Return the given policy, else that of the settings if it compacts, else the ladder."""
        if self.options.policy is not None:
            return Policy.read(self.options.policy)
        found = Policy.read(self.runtime.settings.policy)
        return found if found.rungs else Policy.ladder()

    def start(self, window: int | None) -> Asking:
        """Begin the compaction; `window` is the limit of one summarizer request in tokens."""
        codec, options, mended, transcript = self.codec, self.options, self.mended, self.transcript
        meter: Meter = self.runtime.meter(Question(options.model), self.dialect)
        system = system_text(options.system)
        measured = measure(transcript, meter, system=system, tools=options.tools)
        target, bound = self._target()
        policy = self.policy
        rung = max(policy.rungs, key=lambda r: r.at, default=None)
        strategies = rung.strategies if rung is not None else ()
        if self.summarizer is None and options.policy is None and policy == Policy.ladder():
            strategies = tuple(s for s in strategies if not wants_prose(s))
        order = Order(
            target=target,
            tail=min(policy.tail_tokens, int(policy.tail_share * bound)),
            strategies=strategies,
            pins=mended.map_positions(self.pins),
            summariser=self.summarizer is not None,
            keep=None if policy.keep_last is None else Keep(policy.keep_last, whole=True),
            carry=policy.carry_share,
            traits=policy.results,
            window=window,
            named=options.store is not None,
        )
        return compacting(transcript, measured, meter, codec, order)

    def _obstacle(self, outcome: Outcome) -> str | None:
        """Explain why the target was not reached, or return None if it was."""
        if outcome.reason not in ("cannot_reach_target", "cannot_compact"):
            return None
        transcript, sizes = self.transcript, outcome.before.by_message
        beside = self.options.system or self.options.tools
        measured = outcome.before.measured
        fixed = measured.scale.of(measured.fixed).best if beside and measured is not None else 0
        stays = {
            *laws.find_fixed(transcript),
            transcript.task(),
            transcript.request(),
        }
        always: dict[int, int] = {}
        pinned: dict[int, int] = {}
        for now, old in enumerate(self.mended.origin or range(len(transcript))):
            if old in self.pins:
                pinned[old] = sizes[now]
            elif old is not None and now in stays:
                always[old] = sizes[now]
        parts = [f"the system prompt and the tools take {fixed:,} tokens"] if fixed else []
        parts += [f"always kept: {pins.list_sizes(always)}"] if always else []
        parts += [f"pinned: {pins.list_sizes(pinned)}"] if pinned else []
        least = f"{outcome.after.high:,}"
        return (
            f"the target of {self._target()[0]:,} tokens cannot be reached: the least is {least}. "
            f"{'; '.join(parts)}. {'Unpin or shorten' if pinned else 'Shorten'} some of that, or "
            f"raise the target to {least}"
        )

    def _target(self) -> tuple[int, int]:
        """Return the target, and the bound that tail shares refer to, both in tokens."""
        options = self.options
        tokens, ratio, known = (
            options.target_tokens,
            options.target_ratio,
            read_window(options.window),
        )
        if (tokens is None) == (ratio is None):
            raise CompactionError("give either target_tokens or target_ratio, and not both")
        if tokens is not None:
            if type(tokens) is not int or tokens < 1:
                raise CompactionError(f"target_tokens must be a positive integer, not {tokens!r}")
            return tokens, tokens
        assert ratio is not None  # noqa: S101 - one of the two is given
        if type(ratio) not in (int, float) or not 0 < ratio <= 1:
            raise CompactionError(f"target_ratio must be over 0 and at most 1, not {ratio!r}")
        if known is None:
            known = self.runtime.windows.window(Question(options.model))
        bound = known.input_tokens
        if bound is None:
            raise ContextWindowUnknown(options.model, HINT)
        return max(int(ratio * bound), 1), bound

    @property
    def writer(self) -> Summarize:
        """The summarizer; there is one whenever a request is made."""
        assert self.summarizer is not None  # noqa: S101 - the order says that there is one
        return self.summarizer

    def read(self, found: Sequence[Answer | Exception]) -> list[Answer | None]:
        """Record the summarizer's failures, and return the answers, with None for each failure."""
        self.faults += [answer for answer in found if isinstance(answer, Exception)]
        return [answer if isinstance(answer, Answer) else None for answer in found]

    def result(self, outcome: Outcome) -> Compaction[Element]:
        original = list(self.messages)
        dry, store = self.options.dry_run, self.options.store
        made = original if dry else list(outcome.edited.transcript.raws)
        if store is not None and not dry and outcome.originals:
            store.originals.keep(outcome.originals)
        policy = self.policy.identity
        found = self.mended.repairs, self._obstacle(outcome)
        faults = tuple(dict.fromkeys(f"{type(f).__name__}: {f}" for f in self.faults))
        return Compaction(made, outcome, original, self.transcript, policy, *found, faults)

"""The interface of a guard for programs: requests as values, views, retries, lessons.

`Guard` is made for a caller with a list of messages. A proxy, an agent and the wrapped clients have
requests as values and send them themselves: they use the port. The port decides nothing;
`core.guard` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.core.compaction.policy import Policy
from ullage.core.dialects.families import TAUGHT
from ullage.core.dialects.reply import extract_report
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ErrorKind, UllageError
from ullage.core.guard import machine
from ullage.core.guard.belief import make_refusal
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    Event,
    Notice,
    RecoveryExhausted,
    Refused,
)
from ullage.core.guard.learning import observe, read_refusal
from ullage.core.guard.request import NeedWindow, Prepared, Preparing, Request, Setup
from ullage.core.guard.stages.replay import find_checkpoint
from ullage.core.tokens.gauge import Assessment
from ullage.core.tokens.truncation import is_unbound
from ullage.core.values.frozen import replace
from ullage.core.values.pickling import Unpicklable
from ullage.guard.call import keywords
from ullage.guard.defaults import add_pins
from ullage.guard.driver import Background, Driver, Rest, Say, Steps
from ullage.guard.given import assess_overflow
from ullage.guard.planning import THREADS, is_large, load_dialects
from ullage.guard.view import View
from ullage.sdk.errors import Trouble, classify_exception
from ullage.sdk.streams import Tracker, explain_stop

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint, Trigger
    from ullage.core.compaction.handover import Handover
    from ullage.core.dialects.families import Law
    from ullage.core.guard.learning import Observation
    from ullage.core.messages.transcript import DialectName
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.window import Window

Result = TypeVar("Result")

LONGEST_NAME: Final = 200

NEARLY_FULL: Final = frozenset({"critical", "overflow"})
"""Tiers at which a broken connection may mean that the server ran out of room."""

SHOWN_S: Final = 3_600.0
"""How long the output size from a refusal is kept free, in seconds: another program may ask for
less. Our choice; the cost is at most one more refusal per hour.
"""

UNKNOWN: Final = ErrorKind("other", certainty="likely")
"""The meaning of a broken connection for the window: nothing certain."""

REFUSED: Final = (
    "the provider refused the history as malformed, although it was repaired by the rules of its "
    "dialect: `ullage validate FILE` lists its known faults"
)


@dataclass(frozen=True, slots=True)
class Port(Unpicklable):
    """One guard, as programs use it. Immutable; conversations are found by their known prefix.

    `apart` separates the conversations of sessions. Without `repairs` a broken history stays as it
    is. Without `refuses` a request that cannot fit is returned all the same. Without `keeps` no
    originals are stored.
    """

    instead = "make a guard in the other process from the same arguments"

    driver: Driver
    policy: Policy
    strict: bool = False
    shares: Mapping[str, float] | None = None
    background: Background = field(default_factory=Background)
    apart: str = ""
    repairs: bool = True
    refuses: bool = True
    keeps: bool = True

    def __copy__(self) -> Port:
        return self

    @property
    def model(self) -> str | None:
        """The model that the guard is for."""
        return self.driver.question.model

    def isolate(self, name: str) -> Port:
        """Return a port of the same configuration with separate conversations.

        Raises ConfigurationError for a name that is not 1 to 200 characters of text.
        """
        if type(name) is not str or not 0 < len(name) <= LONGEST_NAME:
            raise ConfigurationError(
                f"a session is named by 1 to {LONGEST_NAME} characters of text, not {name!r:.80}"
            )
        return replace(self, apart=f"|{json.dumps(name)}")

    def attribute(self, party: str) -> Port:
        """Return a port that learns from one of several parties with the same credential."""
        question = replace(self.driver.question, party=party)
        return replace(self, driver=replace(self.driver, question=question))

    def relay(self, *, repairs: bool = False, keeps: bool = False) -> Port:
        """Return a port of the same conversations that makes every request fit and refuses none.

        It repairs, and keeps originals, only if told to. For a proxy, whose upstream decides in the
        end.
        """
        return replace(self, repairs=repairs, refuses=False, keeps=keeps)

    def window(self) -> Window:
        """Return the window of the model, probed or remembered, with the policy's bound in it."""
        return self._narrow(self.driver.runtime.windows.window(self.driver.question))

    async def awindow(self) -> Window:
        """Do as `window`, without blocking the event loop."""
        return self._narrow(await self.driver.runtime.windows.awindow(self.driver.question))

    def _narrow(self, window: Window) -> Window:
        return self.policy.narrow(window, self._find_prices())

    def _find_prices(self) -> tuple[Price, ...]:
        """Return the model's prices if the policy uses them."""
        if self.policy.economic != "prices":
            return ()
        return self.driver.runtime.windows.prices(self.driver.question)

    def tell(self, event: Event) -> None:
        """Report an event to `on_event`; its exceptions are logged and never raised."""
        self.driver.tell(event)

    async def settle(self) -> None:
        """Wait for the summaries that are being made in the background."""
        await self.background.settle()

    # --- before the send ------------------------------------------------------------------------

    def prepare(self, request: Request, dialect: DialectName) -> View:
        """Return the request to send. Raises as `Guard.prepare` does."""
        request = self._complete(request)
        steps = machine.prepare(self._setup(dialect), request)
        try:
            return self._remember(request, self.driver.run(steps))
        except ContextTooLargeError as error:
            self._tell_refusal(error)
            raise

    async def aprepare(self, request: Request, dialect: DialectName) -> View:
        """Do as `prepare`, without blocking the event loop; may summarize in the background."""
        request = self._complete(request)
        await self._aopen(dialect)
        setup = self._setup(dialect)
        if self.policy.background:
            setup = replace(setup, background=True)
        try:
            prepared = await self._arun(machine.prepare(setup, request), request)
        except ContextTooLargeError as error:
            self._tell_refusal(error)
            raise
        if prepared.ahead:
            self.background.begin(
                f"{setup.scope}|{prepared.conversation.effort.request}",
                lambda: self._asummarise(setup, request),
            )
        return await self._aremember(request, prepared)

    async def acompact(self, request: Request, dialect: DialectName, target: int) -> View:
        """Return a request compacted to `target` tokens at any pressure, and store the checkpoint.

        The strategies are those of the policy's highest rung. Raises as `aprepare` does.
        """
        await self._aopen(dialect)
        request = self._complete(request)
        steps = machine.prepare_compacted(self._setup(dialect), request, target)
        return await self._aremember(request, await self._arun(steps, request))

    async def ahand_over(
        self, request: Request, dialect: DialectName, tokens: int, kept: int | None = None
    ) -> Handover:
        """Return the start of a new session that continues this conversation.

        At most `kept` characters of the history are kept with it, by default all.
        """
        from ullage.core.guard.handing import hand_over_request

        await self._aopen(dialect)
        steps = hand_over_request(self._setup(dialect), request, tokens, kept)
        return await self._arun(steps, request)

    async def afind_pressure(self, request: Request, dialect: DialectName) -> float | None:
        """Return the upper edge of the fill ratio, as rungs see it, or None if it is unknown."""
        await self._aopen(dialect)
        watched = self._watch(request, dialect, refuses=False)
        prepared = await self._arun(watched, request)
        bound = prepared.window.working_tokens
        return None if bound is None else prepared.count.high / bound

    async def afind_checkpoint(self, request: Request, dialect: DialectName) -> Checkpoint | None:
        """Return the newest checkpoint of a conversation, or None."""
        await self._aopen(dialect)
        request = self._complete(request)
        return await self._arun(find_checkpoint(self._setup(dialect), request), request)

    def undo(self, request: Request, dialect: DialectName) -> Checkpoint | None:
        """Remove and return the last checkpoint of a conversation, or return None without one."""
        request = self._complete(request)
        found = self.driver.run(find_checkpoint(self._setup(dialect), request))
        if found is not None:
            self.driver.store.checkpoints.undo(found)
        return found

    def assess(self, request: Request, dialect: DialectName) -> Assessment:
        """Return how full the window would be with a request; changes nothing."""
        try:
            return self.driver.run(self._watch(request, dialect)).assessment
        except ContextTooLargeError as error:
            return assess_overflow(error)

    async def aassess(self, request: Request, dialect: DialectName) -> Assessment:
        """Do as `assess`, without blocking the event loop."""
        try:
            await self._aopen(dialect)
            return (await self._arun(self._watch(request, dialect), request)).assessment
        except ContextTooLargeError as error:
            return assess_overflow(error)

    # --- after a failure ------------------------------------------------------------------------

    def retry(self, view: View, found: Trouble | None) -> View | None:
        """Return the request to send after a failure, or None if a retry does not help.

        The caller limits the number of retries. The compactions of a turn have a budget of their
        own.
        """
        made = self.driver.run(self._recover(view, found))
        if not isinstance(made, Prepared):
            return made
        return _add_recovery(view, self._remember(view.request, made))

    async def aretry(self, view: View, found: Trouble | None) -> View | None:
        """Do as `retry`, without blocking the event loop."""
        made = await self._arun(self._recover(view, found), view.request)
        if not isinstance(made, Prepared):
            return made
        return _add_recovery(view, await self._aremember(view.request, made))

    def _recover(self, view: View, found: Trouble | None) -> Steps[Prepared | View | None]:
        """Return the request to send after a failure, or None if no retry helps. Report events."""
        if found is None:
            return None
        if found.lost or found.away:
            self.doubt_server()
        from ullage.core.guard import recovery

        sent, kind = view.prepared, _read_kind(view.request, found)
        if kind.kind in ("input", "total"):
            yield Say(Refused(kind, "upstream", self.model or ""))
        trigger: Trigger = "overflow_recovery"
        if found.lost:
            if sent.assessment.tier not in NEARLY_FULL or not self.policy.rungs:
                yield Say(Notice(f"no answer ({found.text}): the request is sent again"))
                yield Rest()
                return view
            kind, trigger = UNKNOWN, "transport_recovery"
        elif not self.policy.rungs or not recovery.is_recoverable(kind, sent):
            if kind.kind == "malformed_history":
                yield Say(Notice(REFUSED))
            return None
        if kind.about is not None:
            self._note_law(TAUGHT[kind.about])
        setup, request = self._setup(sent.sent.rules.dialect), self._note_output(view.request, kind)
        try:
            return (yield from recovery.recover(setup, request, sent, kind, trigger=trigger))
        except ContextTooLargeError as exhausted:
            yield Say(RecoveryExhausted(str(exhausted)))
            return None

    def give_up(self, view: View, first: View, found: Trouble) -> None:
        """Undo recoveries that did not help, and report a request that was too large even so.

        For callers with one retry: `first` is the view that was sent before it.
        """
        self.driver.run(self._take_back(view))
        self._report_miss(view, first, found)

    async def agive_up(self, view: View, first: View, found: Trouble) -> None:
        """Do as `give_up`, without blocking the event loop."""
        await self.atake_back(view)
        self._report_miss(view, first, found)

    async def atake_back(self, view: View) -> None:
        """Undo the checkpoints that recoveries stored for a request that failed all the same."""
        await self.driver.arun(self._take_back(view))

    def _take_back(self, view: View) -> Steps[None]:
        if not view.recoveries:
            return
        from ullage.core.guard import recovery

        for event in (yield from recovery.undo(view.recoveries)):
            yield Say(event)

    def _report_miss(self, view: View, first: View, found: Trouble) -> None:
        from ullage.core.guard import recovery

        if not recovery.is_recoverable(found.kind, view.prepared):
            return
        self._learn_refusal(view, found.kind)
        how = "after compaction" if view is not first else "and its one retry was spent before"
        self.tell(RecoveryExhausted(f"refused again {how}: {found.text}"))

    # --- after an answer ------------------------------------------------------------------------

    def learn_from(self, view: View, response: Any) -> Assessment:
        """Learn from the answer to a view, as `View.observe` does."""
        if isinstance(response, BaseException):
            return self._learn_refusal(view, classify_exception(response))
        seen = self._observe(view, response)
        self.driver.learn(seen)
        return seen.assessment

    async def alearn_from(self, view: View, response: Any) -> Assessment:
        """Do as `learn_from`, without blocking the event loop, as `View.aobserve` does."""
        if isinstance(response, BaseException):
            return self._learn_refusal(view, classify_exception(response))
        seen = self._observe(view, response)
        await self.driver.alearn(seen)
        return seen.assessment

    def settle_stream(self, view: View, tracker: Tracker) -> None:
        """Learn from a finished stream, or report that it ended too soon."""
        if tracker.report is not None:
            view.observe(tracker.report)
        elif told := explain_stop(tracker):
            self.tell(Notice(told))

    async def asettle_stream(self, view: View, tracker: Tracker) -> None:
        """Do as `settle_stream`, without blocking the event loop."""
        if tracker.report is not None:
            await view.aobserve(tracker.report)
        elif told := explain_stop(tracker):
            self.tell(Notice(told))

    def _observe(self, view: View, response: Any) -> Observation:
        """Return what a response teaches; dropped reasoning teaches the model's law."""
        report = extract_report(response)
        if is_unbound(report):
            self._note_law("bound_thinking")
        setup = self._setup(view.prepared.sent.rules.dialect, priced=self.driver.heard)
        return observe(setup, view.prepared, report)

    def _learn_refusal(self, view: View, kind: ErrorKind) -> Assessment:
        """Learn limit and size from a refusal, for later requests."""
        kind = view.request.doubt(kind)
        if kind.kind == "input" and kind.certainty == "certain":
            from ullage.core.guard import recovery

            sent, meter = view.prepared, self._setup(view.prepared.sent.rules.dialect).meter
            limit = kind.limit or recovery.find_refuted_bound(sent, kind)
            claim = make_refusal(sent, kind, limit)
            if claim is not None:
                self.driver.record(NeedWindow(claim, read_refusal(meter, sent, kind)))
        return view.assessment

    # --- steps ----------------------------------------------------------------------------------

    def _watch(self, request: Request, dialect: DialectName, *, refuses: bool = True) -> Preparing:
        """Prepare a request without compacting anything."""
        setup = replace(self._setup(dialect), refuses=self.refuses and refuses)
        watching = replace(setup, policy=replace(self.policy, rungs=()), shares=None, tries=False)
        return machine.prepare(watching, request)

    def _tell_refusal(self, error: ContextTooLargeError) -> None:
        """Report a request that is too large before it is sent."""
        kind = ErrorKind("input", error.bound, error.tokens)
        self.tell(Refused(kind, "predicted", self.model or ""))

    async def _asummarise(self, setup: Setup, request: Request) -> None:
        """Make a summary ahead of time; if that fails, report it and continue without one."""
        try:
            prepared = await self._arun(machine.prepare_ahead(setup, request), request)
        except UllageError as error:
            self.tell(Notice(f"a summary in the background failed: {error}"))
            return
        for event in prepared.events:
            if isinstance(event, Compacted | CompactionFailed):
                self.tell(event)

    async def _aopen(self, dialect: DialectName) -> None:
        """Open the store and load the model's vocabulary before the first request needs them."""
        runtime, question = self.driver.runtime, self.driver.question
        if runtime.is_store_due:
            await self.driver.aopen()
        if not runtime.is_loaded(question, dialect):
            await THREADS.run(load_dialects)
            await THREADS.run(runtime.load, question, dialect)

    async def _arun(self, steps: Steps[Result], request: Request) -> Result:
        """Run steps to their end; those of a large request in threads."""
        return await self.driver.arun(steps, beside=is_large(request))

    def _setup(self, dialect: DialectName, *, priced: bool = False) -> Setup:
        """Return the setup for requests of a dialect; `priced` says that prices are needed."""
        question, runtime, driver = self.driver.question, self.driver.runtime, self.driver
        setup = Setup(
            codec=runtime.codec_for(dialect),
            meter=runtime.meter(question, dialect),
            policy=self.policy,
            scope=f"{question.tenant}|{self.policy.identity}{self.apart}",
            model=self.model or "",
            strict=self.strict,
            summariser=driver.summarizer is not None,
            shares=self.shares,
            keeps=self.keeps and (driver.own_store or runtime.kept) is not None,
            now=runtime.now(),
            repairs=self.repairs,
            refuses=self.refuses,
            limits=runtime.find_limits(question),
            prices=runtime.windows.prices(question) if priced else self._find_prices(),
            learned=runtime.lessons.find(question.own_key),
        )
        return setup.with_laws(runtime.find_laws(question))

    def doubt_server(self) -> None:
        """Have the server's window probed again: the server was away, and may have changed."""
        if self.driver.question.base_url is not None:
            self.driver.runtime.windows.doubt(self.driver.question.base_url)

    def _complete(self, request: Request) -> Request:
        """Return a request with the settings' pins and the known size of its output.

        A provider refuses a prompt without room for the output. A user's own server that does so
        shows it by a refusal, which also names output that was requested without the guard's
        knowledge.
        """
        runtime, question = self.driver.runtime, self.driver.question
        request = add_pins(runtime, request)
        if request.max_tokens is not None:
            return request
        shown, at = runtime.outputs.get(question.own_key, (0, 0.0))
        fresh = at > 0 and runtime.now() - at <= SHOWN_S
        reserve = request.reserve or (shown if fresh else 0)
        if not reserve:
            return request
        known = fresh or runtime.windows.is_hosted(question)
        return replace(request, reserve=reserve, reserves_all=known)

    def _note_output(self, request: Request, kind: ErrorKind) -> Request:
        """Return a refused request with the output that the refusal says was asked for."""
        asked = kind.output_tokens
        named = kind.kind == "total" and kind.certainty == "certain"
        if not asked or not named or request.max_tokens is not None:
            return request
        runtime, question = self.driver.runtime, self.driver.question
        unsaid = asked if asked > request.reserve else 0
        runtime.outputs[question.own_key] = unsaid, runtime.now()
        return replace(request, reserve=max(asked, request.reserve), reserves_all=True)

    def _note_law(self, law: Law) -> None:
        self.driver.runtime.lessons.note_law(self.driver.question.own_key, law)

    def _remember(self, request: Request, prepared: Prepared) -> View:
        """Save the state of the conversation, report the events, and return the view."""
        self.driver.remember(prepared.conversation)
        return self._view(request, prepared)

    async def _aremember(self, request: Request, prepared: Prepared) -> View:
        """Do as `_remember`, without blocking the event loop."""
        await self.driver.aremember(prepared.conversation)
        return self._view(request, prepared)

    def _view(self, request: Request, prepared: Prepared) -> View:
        for event in prepared.events:
            self.tell(event)
        fields = {
            "messages": prepared.messages,
            "system": request.apart,
            "tools": request.tools,
            "max_tokens": prepared.max_tokens,
        }
        kwargs = keywords(prepared.sent.rules.dialect, fields)
        return View(kwargs, prepared, self, request)


def _add_recovery(view: View, again: View) -> View:
    """Return the view of a retry, with the checkpoints stored for it and for earlier retries."""
    from ullage.core.guard.recovery import RECOVERY

    made = again.prepared.checkpoint
    stored = (made,) if made is not None and made.trigger in RECOVERY else ()
    return replace(again, recoveries=(*view.recoveries, *stored))


def _read_kind(request: Request, found: Trouble) -> ErrorKind:
    """Return the meaning of a failure for a request; add the reserved output if it is not named."""
    kind = request.doubt(found.kind)
    if kind.kind != "total" or kind.output_tokens or not request.reserve:
        return kind
    return replace(kind, output_tokens=request.reserve)

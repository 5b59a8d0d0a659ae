"""The guard that library users hold: a model, a policy, and a pipeline around each request.

Immutable configuration over a shared `Runtime`; the conversation is found by its longest known
prefix, so the caller passes its full history every time. It drives `core.guard` and decides
nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ullage.core.compaction.policy import Policy
from ullage.core.dialects import registry as dialects
from ullage.core.dialects.reply import reported
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ErrorKind, UllageError
from ullage.core.guard import machine, recovery
from ullage.core.guard.events import (
    Compacted,
    CompactionFailed,
    Event,
    Notice,
    RecoveryExhausted,
    Refused,
)
from ullage.core.guard.learning import observe
from ullage.core.guard.request import Prepared, Preparing, Request, Setup
from ullage.core.guard.stages.replay import find_checkpoint
from ullage.core.tokens.gauge import Assessment
from ullage.core.values.pickling import Unpicklable
from ullage.core.values.shown import line
from ullage.guard.asking import Summarizer
from ullage.guard.driver import (
    Background,
    Driver,
    Listener,
    Pause,
    Rest,
    Say,
    Steps,
)
from ullage.guard.given import assess_overflow, read_request
from ullage.guard.planning import is_large
from ullage.guard.sending import (
    Call,
    aattempt,
    attempt,
    keywords,
    read_call,
    refuse_awaitable,
    refuse_stream,
)
from ullage.guard.view import View
from ullage.runtime import Body, Runtime, default
from ullage.sdk.errors import Trouble, classify_exception
from ullage.sdk.streams import (
    Opened,
    Tracker,
    aopened,
    awatched,
    explain_stop,
    opened,
    watched,
)
from ullage.storage import check_store
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint, Trigger
    from ullage.core.guard.learning import Observation
    from ullage.core.messages.transcript import DialectName
    from ullage.core.tokens.window import Window
    from ullage.storage import Store

Result = TypeVar("Result")

LARGEST: Final = 1_000_000
"""A window on which shares are tried before there is a real one."""

LONGEST_NAME: Final = 200

NEARLY_FULL: Final = frozenset({"critical", "overflow"})
"""Tiers at which a connection that broke may mean that the server ran out of room."""

UNKNOWN: Final = ErrorKind("other", certainty="likely")
"""What a broken connection says of the window: nothing for certain."""

REFUSED: Final = (
    "the provider refused the history as malformed, although it was repaired by the rules of its "
    "dialect: `ullage validate FILE` names what is known to be wrong with it"
)

__all__ = ["Guard", "Pause", "Summarizer", "View"]


class Guard(Unpicklable):
    """Keep a conversation with one model inside its window.

    ::

        guard = ullage.Guard("qwen3-8b", base_url="http://127.0.0.1:8080/v1")
        view = guard.prepare(messages, tools=tools, max_tokens=1024)
        response = client.chat.completions.create(model="qwen3-8b", **view.kwargs)
        view.observe(response)

    Safe to share between threads and event loops. `window` is the operator's word in tokens;
    `policy` is a Policy or the name of a preset, such as "ladder";
    `summarizer` gets a SummaryRequest and returns text; `on_event` is called with each event;
    `strict` refuses before the send also on a bound that is not proven. `shares` divides the
    window (see `ullage.allocate`): a section over its share is told of, and knowledge over its
    share is left out, oldest first. `dialect` is openai_chat, openai_responses, anthropic or
    ollama_chat; without it a request's shape tells, which is Chat Completions if it shows nothing.
    `pause` is the wait before a request is sent again after a broken connection, at most half a
    second by default. `store` (see `ullage.open_store`) keeps checkpoints and conversations beyond
    the process, and what was left out: placeholders then name it (see `ullage.recall`).
    """

    instead = "make one in the other process from the same arguments; guard.policy can be pickled"

    def __init__(  # noqa: PLR0913 - the public signature is fixed by the API page
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
        provider: str | None = None,
        policy: Policy | str | None = None,
        summarizer: Summarizer | None = None,
        store: Store | None = None,
        on_event: Listener | None = None,
        strict: bool = False,
        shares: Mapping[str, float] | None = None,
        dialect: str | None = None,
        runtime: Runtime | None = None,
        pause: Pause | None = None,
    ) -> None:
        if shares is not None:
            from ullage.core.tokens.budget import allocate

            allocate(LARGEST, shares)  # raises for shares that are none
        self._shares = shares
        self._dialect = dialects.named(dialect) if dialect is not None else None
        self.model = model
        self._question = Question(model, base_url, api_key, window, provider)
        self._strict = strict
        self._runtime = runtime if runtime is not None else default()
        self._driver = Driver(
            self._runtime,
            self._question,
            summarizer,
            on_event,
            pause or Pause(),
            check_store(store),
        )
        self._background = Background()
        self._apart = ""
        self._repairs, self._refuses, self._keeps = True, True, True
        self.policy = Policy.read(policy if policy is not None else self._runtime.settings.policy)
        if self.policy.new_session:
            raise ConfigurationError(
                f"the policy {self.policy.name} wants new sessions, and a guard has none: give it "
                "to ullage.Agent, or leave new_session out"
            )

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Iterable[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
    ) -> View:
        """Return the request to send: repaired, compacted where the policy says so, checked.

        `max_tokens` is clamped to the room there is; `pins` are positions, from 0 on, of messages
        that stay verbatim; `sections` marks messages by position, such as {3: "knowledge"};
        `system` is what Anthropic and Responses take beside the messages. Raises
        MalformedHistoryError, ConfigurationError, and ContextTooLargeError when it cannot fit into
        a bound that is proven.
        """
        body = self._body(messages, tools, system)
        return self.ready(read_request(body, max_tokens, pins, sections), body.spoken())

    def ready(self, request: Request, dialect: DialectName) -> View:
        """Do as `prepare` with a request as a value, as a proxy has it."""
        steps = machine.prepare(self._setup(dialect), request)
        with self._predicting():
            return self._ready(request, self._driver.run(steps))

    async def aprepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Iterable[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
    ) -> View:
        """Do as `prepare`, without blocking the event loop."""
        body = self._body(messages, tools, system)
        return await self.aready(read_request(body, max_tokens, pins, sections), body.spoken())

    async def aready(self, request: Request, dialect: DialectName) -> View:
        """Do as `aprepare` with a request as a value, as an agent's turn has it."""
        await self._driver.aopen()
        setup = self._setup(dialect)
        if self.policy.background:
            setup = replace(setup, background=True)
        with self._predicting():
            prepared = await self._driven(machine.prepare(setup, request), request)
        if prepared.ahead:
            self._background.begin(
                f"{setup.scope}|{prepared.conversation.effort.request}",
                lambda: self._summarised(setup, request),
            )
        return await self._aready(request, prepared)

    async def acompacted(self, request: Request, dialect: DialectName, target: int) -> View:
        """Return a request made as small as `target` tokens, whatever the pressure; it is stored.

        The strategies are those of the policy's highest rung. Raises as `aprepare` does.
        """
        await self._driver.aopen()
        steps = machine.prepare_compacted(self._setup(dialect), request, target)
        return await self._aready(request, await self._driven(steps, request))

    async def aretry(self, view: View, found: Trouble) -> View | None:
        """Return what to send after a failure, None where sending again is no help.

        The caller bounds how often; compactions of a turn have one budget of their own.
        """
        return await self._aretried(view, found)

    def call(
        self, fn: Callable[..., Result], messages: Sequence[Any] | None = None, **options: Any
    ) -> Result:
        """Prepare, call `fn` with the request, observe; try once more where that may help.

        ::

            guard.call(client.chat.completions.create, messages, max_tokens=256, temperature=0)

        Keywords of `prepare` are prepared, also by the names that the dialect's client has for
        them (`input`, `instructions`, `max_output_tokens`, `max_completion_tokens`,
        `num_predict`), and sent by the name that `fn` takes. All others go to `fn` untouched; the
        guard's model goes along as `model` where `fn` takes one and none is given. Where the
        messages show no dialect, `fn` and the keywords do. After an overflow error the retry is
        smaller; after a connection that broke it is the same request, or a smaller one where the
        window was nearly full. Any other error of `fn` passes through unchanged, as does the
        second one.
        """
        call = self._called(fn, messages, options)
        refuse_stream(call, "call", "stream", wanted=False)
        view, response = attempt(
            self.ready(*self._asked(call)),
            lambda v: refuse_awaitable(call.send(v.kwargs)),
            self._retried,
            self._missed,
        )
        view.observe(response)
        return cast("Result", response)

    async def acall(
        self,
        fn: Callable[..., Awaitable[Result]],
        messages: Sequence[Any] | None = None,
        **options: Any,
    ) -> Result:
        """Do as `call` with an async `fn`."""
        call = self._called(fn, messages, options)
        refuse_stream(call, "acall", "astream", wanted=False)
        view, response = await aattempt(
            await self.aready(*self._asked(call)),
            lambda v: call.asend(v.kwargs),
            self._aretried,
            self._missed,
        )
        await view.aobserve(response)
        return cast("Result", response)

    def stream(
        self, fn: Callable[..., Any], messages: Sequence[Any] | None = None, **options: Any
    ) -> Any:
        """Do as `call` with an `fn` that returns a stream, and return that stream, watched.

        `fn` is given `stream=True` where it takes that word. The events come through unchanged;
        an SDK's stream is the SDK's own object, anything else comes as an iterator with `close`.
        The first events are read before this returns: up to the first content everything is
        recovered from as in `call`, after it nothing is. Usage is learned where the events report
        it (OpenAI Chat: `stream_options={"include_usage": True}`); a stream that is closed early
        teaches nothing, and one that stops short of its end is told of.
        """
        call = self._called(fn, messages, options)
        refuse_stream(call, "stream", "call", wanted=True)
        asking = call.streaming()
        view, made = attempt(
            self.ready(*self._asked(call)),
            lambda v: opened(call.send({**v.kwargs, **asking})),
            self._retried,
            self._missed,
        )
        return watched(made, lambda tracker: self._settled(view, tracker))

    async def astream(
        self, fn: Callable[..., Any], messages: Sequence[Any] | None = None, **options: Any
    ) -> Any:
        """Do as `stream`: await this, then iterate. `fn` is async, or returns an async iterator."""
        call = self._called(fn, messages, options)
        refuse_stream(call, "astream", "acall", wanted=True)
        asking = call.streaming()

        async def send(view: View) -> Opened:
            return await aopened(await call.asend({**view.kwargs, **asking}))

        view, made = await aattempt(
            await self.aready(*self._asked(call)), send, self._aretried, self._missed
        )
        return awatched(made, lambda tracker: self._asettled(view, tracker))

    def undo(self, messages: Sequence[Any], *, system: Any = None) -> Checkpoint | None:
        """Take the last checkpoint of a conversation away; return it, None where there is none.

        What it left out is in the next request again, if it fits: under the same pressure the
        policy asks for the same again.
        """
        body = self._body(messages, None, system)
        return self.undone(read_request(body), body.spoken())

    def undone(self, request: Request, dialect: DialectName) -> Checkpoint | None:
        """Do as `undo` with a request as a value."""
        found = self._driver.run(find_checkpoint(self._setup(dialect), request))
        if found is not None:
            self._driver.store.checkpoints.undo(found)
        return found

    async def settle(self) -> None:
        """Wait for the summaries that are being made in the background."""
        await self._background.settle()

    def __repr__(self) -> str:
        said = self._question
        return line("Guard", repr(self.model), window=said.override, policy=self.policy.name)

    def __copy__(self) -> Guard:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def session(self, name: str) -> Guard:
        """Return a guard of the same configuration whose conversations are its own.

        What was compacted or reported in one session is never applied in another, even where the
        messages are the same. `name` is any text of up to 200 characters.
        """
        if type(name) is not str or not 0 < len(name) <= LONGEST_NAME:
            raise ConfigurationError(
                f"a session is named by 1 to {LONGEST_NAME} characters of text, not {name!r:.80}"
            )
        made = self.__copy__()
        made._apart = f"|{json.dumps(name)}"  # noqa: SLF001 - of this class
        return made

    def relaying(self, *, repairs: bool = False, keeps: bool = False) -> Guard:
        """Return a guard of the same conversations that hands out whatever came in, made to fit.

        It repairs and keeps originals only where it is told to, and refuses nothing: for a proxy,
        whose upstream has the last word.
        """
        made = self.__copy__()
        made._repairs, made._refuses, made._keeps = repairs, False, keeps  # noqa: SLF001 - of this class
        return made

    def window(self) -> Window:
        """Return the window of the guard's model, asked for or remembered."""
        return self._runtime.windows.window(self._question)

    async def awindow(self) -> Window:
        """Do as `window`, without blocking the event loop."""
        return await self._runtime.windows.awindow(self._question)

    def assess(
        self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, system: Any = None
    ) -> Assessment:
        """Return how full the window would be with these messages; changes nothing."""
        try:
            steps = self._watching(self._body(messages, tools, system))
            return self._driver.run(steps).assessment
        except ContextTooLargeError as error:
            return assess_overflow(error)

    async def aassess(
        self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, system: Any = None
    ) -> Assessment:
        """Do as `assess`, without blocking the event loop."""
        try:
            await self._driver.aopen()
            body = self._body(messages, tools, system)
            return (await self._driven(self._watching(body), read_request(body))).assessment
        except ContextTooLargeError as error:
            return assess_overflow(error)

    def explain(self) -> str:
        """Return the window, who said it, and what would change it."""
        return self.window().explain()

    def tell(self, event: Event) -> None:
        """Tell `on_event`; its faults are logged and never raised."""
        self._driver.tell(event)

    # --- steps -----------------------------------------------------------------------------------

    def _body(
        self, messages: Any, tools: Any, system: Any, shown: DialectName | None = None
    ) -> Body:
        """Return the request in its dialect; raises ConfigurationError for a misplaced system."""
        body = Body(messages, tools, system, self._dialect or shown).listed()
        spoken = dialects.find(body.spoken())
        if system is not None and spoken.fields.system is None:
            raise ConfigurationError(
                "system= is for Anthropic and Responses requests, and these messages read as "
                f"{spoken.title}: put a system message first in the list, or name the dialect, "
                'such as Guard(dialect="anthropic")'
            )
        return body

    def _watching(self, body: Body) -> Preparing:
        setup = self._setup(body.spoken())
        watching = replace(setup, policy=replace(self.policy, rungs=()), shares=None)
        return machine.prepare(watching, read_request(body))

    @contextmanager
    def _predicting(self) -> Iterator[None]:
        """Tell of a request that is too large before it is sent."""
        try:
            yield
        except ContextTooLargeError as error:
            kind = ErrorKind("input", error.bound, error.tokens)
            self.tell(Refused(kind, "predicted", self.model or ""))
            raise

    async def _summarised(self, setup: Setup, request: Request) -> None:
        """Make a summary ahead; where that fails it is told, and the ladder goes on without it."""
        try:
            prepared = await self._driven(machine.prepare_ahead(setup, request), request)
        except UllageError as error:
            self.tell(Notice(f"a summary in the background failed: {error}"))
            return
        for event in prepared.events:
            if isinstance(event, Compacted | CompactionFailed):
                self.tell(event)

    async def _driven(self, steps: Steps[Result], request: Request) -> Result:
        """Run steps to their end; those of a large request in threads beside the event loop."""
        return await self._driver.arun(steps, beside=is_large(request))

    def _setup(self, dialect: DialectName) -> Setup:
        question, runtime, driver = self._question, self._runtime, self._driver
        setup = Setup(
            codec=runtime.codec_for(dialect),
            meter=runtime.meter(question, dialect),
            policy=self.policy,
            scope=f"{question.scope}|{self.policy.identity}{self._apart}",
            model=self.model or "",
            strict=self._strict,
            summariser=driver.summarizer is not None,
            shares=self._shares,
            keeps=self._keeps and (driver.own_store or runtime.kept) is not None,
            now=runtime.now(),
            repairs=self._repairs,
            refuses=self._refuses,
        )
        return setup.with_loops() if runtime.wants_whole_loops(question) else setup

    def _ready(self, request: Request, prepared: Prepared) -> View:
        """Remember and tell what was found out on the way, and return the view."""
        self._driver.remember(prepared.conversation)
        return self._viewed(request, prepared)

    async def _aready(self, request: Request, prepared: Prepared) -> View:
        """Do as `_ready`, without blocking the event loop."""
        await self._driver.aremember(prepared.conversation)
        return self._viewed(request, prepared)

    def _viewed(self, request: Request, prepared: Prepared) -> View:
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

    def learn_from(self, view: View, response: Any) -> Assessment:
        """Learn from the answer to a view, as `View.observe` does."""
        if isinstance(response, BaseException):
            return self._proven(view, classify_exception(response))
        seen = self._seen(view, response)
        self._driver.learn(seen, view.window.input_tokens)
        return seen.assessment

    async def alearn_from(self, view: View, response: Any) -> Assessment:
        """Do as `learn_from`, without blocking the event loop, as `View.aobserve` does."""
        if isinstance(response, BaseException):
            return self._proven(view, classify_exception(response))
        seen = self._seen(view, response)
        await self._driver.alearn(seen, view.window.input_tokens)
        return seen.assessment

    def _seen(self, view: View, response: Any) -> Observation:
        """Return what a response tells."""
        setup = self._setup(view.prepared.sent.rules.dialect)
        if self._driver.heard:
            setup = replace(setup, prices=self._runtime.windows.prices(self._question))
        return observe(setup, view.prepared, reported(response))

    def _proven(self, view: View, kind: ErrorKind) -> Assessment:
        """Learn the limit that a refusal proved, for whatever request comes next."""
        if kind.kind == "input" and kind.certainty == "certain":
            limit = kind.limit or recovery.find_refuted_bound(view.prepared, kind)
            self._runtime.windows.learn(self._question, limit, named=kind.limit is not None)
        return view.assessment

    def _called(
        self, fn: Callable[..., Any], messages: Sequence[Any] | None, options: Mapping[str, Any]
    ) -> Call:
        return read_call(fn, messages, options, self.model)

    def _asked(self, call: Call) -> tuple[Request, DialectName]:
        """Return the request of a call, and its dialect."""
        given = dict(call.prepared)
        tools, system = given.pop("tools", None), given.pop("system", None)
        body = self._body(call.messages, tools, system, call.dialect)
        return read_request(body, **given), body.spoken()

    def _retried(self, view: View, found: Trouble | None) -> View | None:
        made = self._driver.run(self._again(view, found))
        return self._ready(view.request, made) if isinstance(made, Prepared) else made

    async def _aretried(self, view: View, found: Trouble | None) -> View | None:
        made = await self._driven(self._again(view, found), view.request)
        return await self._aready(view.request, made) if isinstance(made, Prepared) else made

    def _again(self, view: View, found: Trouble | None) -> Steps[Prepared | View | None]:
        """Return what to send after a failure, None where a retry is no help. Tells of it."""
        if found is None:
            return None
        sent, kind = view.prepared, found.kind
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
        setup, request = self._setup(sent.sent.rules.dialect), view.request
        if kind.about == "thinking":
            self._runtime.refused_a_cut_loop(self._question)
        try:
            return (yield from recovery.recover(setup, request, sent, kind, trigger=trigger))
        except ContextTooLargeError as exhausted:
            yield Say(RecoveryExhausted(str(exhausted)))
            return None

    def _missed(self, view: View, first: View, found: Trouble | None) -> None:
        """Tell of a request that was too large even after the one retry there is."""
        if found is None or not recovery.is_recoverable(found.kind, view.prepared):
            return
        self._proven(view, found.kind)
        how = "after compaction" if view is not first else "and its one retry was spent before"
        self.tell(RecoveryExhausted(f"refused again {how}: {found.text}"))

    def _settled(self, view: View, tracker: Tracker) -> None:
        """Learn from a stream that is over, or tell that it stopped short of its end."""
        if tracker.report is not None:
            view.observe(tracker.report)
        elif told := explain_stop(tracker):
            self.tell(Notice(told))

    async def _asettled(self, view: View, tracker: Tracker) -> None:
        """Do as `_settled`, without blocking the event loop."""
        if tracker.report is not None:
            await view.aobserve(tracker.report)
        elif told := explain_stop(tracker):
            self.tell(Notice(told))

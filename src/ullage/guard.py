"""The guard that library users hold: a model, a policy, and a pipeline around each request.

Immutable configuration over a shared `Runtime`; the conversation is found by its longest known
prefix, so the caller passes its full history every time. It drives `core.guard` and decides
nothing itself.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core import guard as machine
from ullage.core.errors import ConfigurationError, ContextTooLargeError, ErrorKind
from ullage.core.events import Event, Notice, RecoveryExhausted
from ullage.core.exchange import (
    Need,
    NeedLoad,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummary,
    NeedWindow,
    Prepared,
    Preparing,
    Request,
    Setup,
)
from ullage.core.gauge import Assessment
from ullage.core.observing import observe
from ullage.core.policies.policy import Policy
from ullage.core.wire import dialects
from ullage.failures import classify_exception
from ullage.runtime import Body, Runtime, default, system_text
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction import Outcome
    from ullage.core.policies.summarise import SummaryRequest
    from ullage.core.transcript import Dialect
    from ullage.core.window import Window

log = logging.getLogger("ullage.guard")

LARGEST: Final = 1_000_000
"""A window on which shares are tried before there is a real one."""

NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "openai_responses": {
        "messages": "input",
        "system": "instructions",
        "max_tokens": "max_output_tokens",
    }
}
"""What a dialect's client calls the fields of a request, where not as Chat and Anthropic do."""

Summarizer = Callable[["SummaryRequest"], "str | Awaitable[str]"]
Listener = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class View:
    """A request that may be sent, as the guard hands it out.

    `kwargs` carries the whole request for the client's `create(...)`, each only where it was
    given: messages, tools, max_tokens; for Anthropic system too; for Responses input,
    instructions, tools, max_output_tokens. `messages` holds the caller's own objects where
    nothing was edited.
    """

    kwargs: Mapping[str, Any]
    prepared: Prepared
    _guard: Guard
    _request: Request

    @property
    def messages(self) -> list[Any]:
        """The messages to send."""
        return self.prepared.messages

    @property
    def assessment(self) -> Assessment:
        """How full the window is with this request."""
        return self.prepared.assessment

    @property
    def window(self) -> Window:
        """The window that the request was checked against."""
        return self.prepared.window

    @property
    def compaction(self) -> Outcome | None:
        """The compaction made for this request, or None."""
        return self.prepared.outcome

    def observe(self, response: Any) -> Assessment:
        """Learn from the response, its usage, or the exception raised in its place.

        Returns the assessment by what was reported; an overflow error teaches the limit it names.
        """
        return self._guard._observed(self, response)  # noqa: SLF001 - one room, two classes


class Guard:
    """Keep a conversation with one model inside its window.

    ::

        guard = ullage.Guard("qwen3-8b", base_url="http://127.0.0.1:8080/v1")
        view = guard.prepare(messages, tools=tools, max_tokens=1024)
        response = client.chat.completions.create(model="qwen3-8b", **view.kwargs)
        view.observe(response)

    Safe to share between threads and event loops. `window` is the operator's word in tokens;
    `summarizer` gets a SummaryRequest and returns text; `on_event` is called with each event;
    `strict` refuses before the send also on a bound that is not proven. `shares` divides the
    window (see `ullage.allocate`): a section over its share is told of, and knowledge over its
    share is left out, oldest first. `dialect` is openai_chat, openai_responses or anthropic; where
    it is not given each request's shape tells, and a shape that shows nothing is Chat Completions.
    """

    def __init__(  # noqa: PLR0913 - the public signature is fixed by the API page
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
        provider: str | None = None,
        policy: Policy | None = None,
        summarizer: Summarizer | None = None,
        on_event: Listener | None = None,
        strict: bool = False,
        shares: Mapping[str, float] | None = None,
        dialect: str | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        if shares is not None:
            from ullage.core.budget import allocate

            allocate(LARGEST, shares)  # raises for shares that are none
        self._shares = shares
        self._dialect = dialects.named(dialect) if dialect is not None else None
        self.model = model
        self._question = Question(model, base_url, api_key, window, provider)
        self._summarizer = summarizer
        self._on_event = on_event
        self._strict = strict
        self._runtime = runtime if runtime is not None else default()
        self.policy = policy if policy is not None else Policy.named(self._runtime.settings.policy)

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Sequence[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
    ) -> View:
        """Return the request to send: repaired, compacted where the policy says so, checked.

        `max_tokens` is clamped to the room there is; `pins` are positions that must stay
        verbatim; `sections` marks messages by position, such as {3: "knowledge"}; `system` is
        what Anthropic and Responses take beside the messages. Raises MalformedHistoryError,
        ConfigurationError, and ContextTooLargeError when it cannot fit into a bound that is proven.
        """
        body = self._body(messages, tools, system)
        request = _request(body, max_tokens, pins, sections)
        steps = machine.prepare(self._setup(body.spoken()), request)
        return self._view(request, self._drive(steps))

    async def aprepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Sequence[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
    ) -> View:
        """Do as `prepare`, without blocking the event loop."""
        body = self._body(messages, tools, system)
        request = _request(body, max_tokens, pins, sections)
        steps = machine.prepare(self._setup(body.spoken()), request)
        return self._view(request, await self._adrive(steps))

    def call(self, fn: Callable[..., Any], messages: Sequence[Any], **options: Any) -> Any:
        """Prepare, call `fn(**view.kwargs)`, observe; recover once from an overflow error.

        `options` are those of `prepare`. Any other error of `fn` passes through unchanged; so
        does the overflow error when nothing can be made smaller.
        """
        view = self.prepare(messages, **options)
        try:
            response = fn(**view.kwargs)
        except Exception as error:
            again = self._recovered(view, error)
            if again is None:
                raise
            view, response = again, self._second(fn, again)
        view.observe(response)
        return response

    async def acall(
        self, fn: Callable[..., Awaitable[Any]], messages: Sequence[Any], **options: Any
    ) -> Any:
        """Do as `call` with an async `fn`."""
        view = await self.aprepare(messages, **options)
        try:
            response = await fn(**view.kwargs)
        except Exception as error:
            again = await self._arecovered(view, error)
            if again is None:
                raise
            view, response = again, await self._asecond(fn, again)
        view.observe(response)
        return response

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
            return self._drive(steps, quiet=True).assessment
        except ContextTooLargeError as error:
            return _overflowing(error)

    async def aassess(
        self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, system: Any = None
    ) -> Assessment:
        """Do as `assess`, without blocking the event loop."""
        try:
            steps = self._watching(self._body(messages, tools, system))
            return (await self._adrive(steps, quiet=True)).assessment
        except ContextTooLargeError as error:
            return _overflowing(error)

    def explain(self) -> str:
        """Return the window, who said it, and what would change it."""
        return self.window().explain()

    # --- driving ---------------------------------------------------------------------------------

    def _body(self, messages: Any, tools: Any, system: Any) -> Body:
        """Return the request in its dialect; raises ConfigurationError for a misplaced system."""
        body = Body(messages, tools, system, self._dialect).listed()
        if system is not None and body.dialect == "openai_chat":
            raise ConfigurationError(
                "system= is for Anthropic and Responses requests, and these messages read as Chat "
                "Completions: put a system message first in the list, or name the dialect, "
                'such as Guard(dialect="anthropic")'
            )
        return body

    def _watching(self, body: Body) -> Preparing:
        setup = self._setup(body.spoken())
        watching = replace(setup, policy=replace(self.policy, rungs=()), shares=None)
        return machine.prepare(watching, _request(body))

    def _setup(self, dialect: Dialect) -> Setup:
        question = self._question
        return Setup(
            codec=self._runtime.codec_for(dialect),
            meter=self._runtime.meter(question, dialect),
            policy=self.policy,
            scope=f"{question.scope}|{self.policy.identity}",
            model=self.model or "",
            strict=self._strict,
            summariser=self._summarizer is not None,
            shares=self._shares,
        )

    def _drive(self, steps: Preparing, *, quiet: bool = False) -> Prepared:
        runtime, question = self._runtime, self._question

        def answer(need: Need) -> Any:
            if isinstance(need, NeedWindow):
                self._learned(need)
                return runtime.windows.window(question)
            if isinstance(need, NeedServerCount):
                body = Body(need.messages, need.tools, need.system)
                return runtime.server_count(question, need.dialect, body)
            if isinstance(need, NeedSummary):
                return self._summary(need)
            return self._stored(need)

        try:
            need = next(steps)
            while True:
                need = steps.send(answer(need))
        except StopIteration as done:
            return self._told(done.value, quiet=quiet)

    async def _adrive(self, steps: Preparing, *, quiet: bool = False) -> Prepared:
        runtime, question = self._runtime, self._question

        async def answer(need: Need) -> Any:
            if isinstance(need, NeedWindow):
                self._learned(need)
                return await runtime.windows.awindow(question)
            if isinstance(need, NeedServerCount):
                body = Body(need.messages, need.tools, need.system)
                return await runtime.aserver_count(question, need.dialect, body)
            if isinstance(need, NeedSummary):
                return await self._asummary(need)
            return self._stored(need)

        try:
            need = next(steps)
            while True:
                need = steps.send(await answer(need))
        except StopIteration as done:
            return self._told(done.value, quiet=quiet)

    def _learned(self, need: NeedWindow) -> None:
        if need.ceiling is not None:
            self._runtime.windows.learn(self._question, need.ceiling, named=need.named)

    def _stored(self, need: Need) -> Any:
        if isinstance(need, NeedLoad):
            return self._runtime.checkpoints.load(need.scope, need.prefixes)
        if isinstance(need, NeedRecall):
            return self._runtime.conversations.load(need.scope, need.prefixes)
        assert isinstance(need, NeedSave)  # noqa: S101 - the needs are a closed union
        return self._runtime.checkpoints.save(need.checkpoint)

    def _summary(self, need: NeedSummary) -> str | None:
        assert self._summarizer is not None  # noqa: S101 - the setup says that there is one
        return self._told_of(summary(self._summarizer, need.request))

    async def _asummary(self, need: NeedSummary) -> str | None:
        assert self._summarizer is not None  # noqa: S101 - the setup says that there is one
        return self._told_of(await asummary(self._summarizer, need.request))

    def _told_of(self, answer: str | Exception) -> str | None:
        if isinstance(answer, str):
            return answer
        kind = type(answer).__name__
        self._tell(Notice(f"the summariser failed ({kind}): the summary is by rule"))
        return None

    def _view(self, request: Request, prepared: Prepared) -> View:
        names = NAMES.get(prepared.sent.rules.dialect, {})
        fields = {
            "messages": prepared.messages,
            "system": request.apart,
            "tools": request.tools,
            "max_tokens": prepared.max_tokens,
        }
        kwargs = {names.get(k, k): value for k, value in fields.items() if value is not None}
        return View(kwargs, prepared, self, request)

    def _observed(self, view: View, response: Any) -> Assessment:
        if isinstance(response, BaseException):
            return self._refused(view, response)
        seen = observe(self._setup(view.prepared.sent.rules.dialect), view.prepared, response)
        bound = view.window.input_tokens
        if seen.usage is not None and bound is not None and seen.usage.prompt_tokens > bound:
            self._runtime.windows.learned.succeeded(self._question, seen.usage.prompt_tokens)
        if seen.reading is not None:
            self._runtime.learn(self._question, seen.reading)
        if seen.limit is not None:
            self._runtime.windows.learn(self._question, seen.limit, named=False)
        if seen.checkpoint is not None:
            self._runtime.checkpoints.measured(seen.checkpoint)
        self._runtime.conversations.save(seen.conversation)
        for event in seen.events:
            self._tell(event)
        return seen.assessment

    def _refused(self, view: View, error: BaseException) -> Assessment:
        """Learn the limit that a refusal proved, for whatever request comes next."""
        kind = classify_exception(error)
        if kind.kind == "input" and kind.certainty == "certain":
            refused = kind.input_tokens or view.prepared.count.tokens
            limit = kind.limit or refused - 1
            self._runtime.windows.learn(self._question, limit, named=kind.limit is not None)
        return view.assessment

    def _recovery(self, view: View, error: Exception) -> Preparing | None:
        kind = classify_exception(error)
        if not _recoverable(kind, view.prepared):
            return None
        setup = self._setup(view.prepared.sent.rules.dialect)
        return machine.recover(setup, view._request, view.prepared, kind)  # noqa: SLF001

    def _recovered(self, view: View, error: Exception) -> View | None:
        steps = self._recovery(view, error)
        if steps is None:
            return None
        try:
            return self._view(view._request, self._drive(steps))  # noqa: SLF001 - one room
        except ContextTooLargeError as exhausted:
            self._tell(RecoveryExhausted(str(exhausted)))
            return None

    async def _arecovered(self, view: View, error: Exception) -> View | None:
        steps = self._recovery(view, error)
        if steps is None:
            return None
        try:
            return self._view(view._request, await self._adrive(steps))  # noqa: SLF001 - one room
        except ContextTooLargeError as exhausted:
            self._tell(RecoveryExhausted(str(exhausted)))
            return None

    def _second(self, fn: Callable[..., Any], view: View) -> Any:
        try:
            return fn(**view.kwargs)
        except Exception as error:
            self._missed(view, error)
            raise

    async def _asecond(self, fn: Callable[..., Awaitable[Any]], view: View) -> Any:
        try:
            return await fn(**view.kwargs)
        except Exception as error:
            self._missed(view, error)
            raise

    def _missed(self, view: View, error: Exception) -> None:
        """Tell of a request that was too large even after the one recovery there is."""
        self._refused(view, error)
        if _recoverable(classify_exception(error), view.prepared):
            self._tell(RecoveryExhausted(f"refused again after compaction: {error}"))

    def _told(self, prepared: Prepared, *, quiet: bool = False) -> Prepared:
        if not quiet:
            self._runtime.conversations.save(prepared.conversation)
            for event in prepared.events:
                self._tell(event)
        return prepared

    def _tell(self, event: Event) -> None:
        """Call the listener. Its faults are logged: they must not cost an answer already paid."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            log.exception("on_event failed on %s", type(event).__name__)


def _overflowing(error: ContextTooLargeError) -> Assessment:
    ratio = error.tokens / error.bound
    return Assessment(True, "overflow", ratio, error.tokens, error.bound, "estimated")


def _request(
    body: Body,
    max_tokens: int | None = None,
    pins: Sequence[int] = (),
    sections: Mapping[int, str] | None = None,
) -> Request:
    system, marks = system_text(body.system), sections or {}
    return Request(
        body.messages, body.tools, system, max_tokens, frozenset(pins), marks, body.system
    )


def summary(summarizer: Summarizer, request: SummaryRequest) -> str | Exception:
    """Return the summarizer's text, or what it failed with: the plan then falls back by rule.

    Raises ConfigurationError for an async one, which only the async twins can await.
    """
    try:
        answer = summarizer(request)
    except Exception as error:  # noqa: BLE001 - returned: the caller records it
        return error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigurationError(
            "the summarizer is async: use the async twin (aprepare, acall, acompact), or give a "
            "plain function"
        )
    return _text(answer)


async def asummary(summarizer: Summarizer, request: SummaryRequest) -> str | Exception:
    """Do as `summary` with a summarizer that may be async."""
    try:
        answer = summarizer(request)
        return _text(await answer if inspect.isawaitable(answer) else answer)
    except Exception as error:  # noqa: BLE001 - returned: the caller records it
        return error


def _text(answer: object) -> str | Exception:
    if isinstance(answer, str):
        return answer
    return TypeError(f"a summarizer returns text, not {type(answer).__name__}")


def _recoverable(kind: ErrorKind, sent: Prepared) -> bool:
    """Tell whether compacting or lowering the output may help.

    A `likely` reading counts only when our own count says at least half of the bound.
    """
    if kind.kind == "output_cap":
        asked, limit = sent.max_tokens, kind.limit
        return asked is not None and limit is not None and limit < asked
    if kind.kind not in ("input", "total"):
        return False
    bound = sent.window.input_tokens
    return kind.certainty == "certain" or bound is None or sent.count.high * 2 >= bound

"""The guard that library users hold: a model, a policy, and a pipeline around each request.

Immutable configuration over a shared `Runtime`; the conversation is found by its longest known
prefix, so the caller passes its full history every time. It reads what it is given, and hands it to
its `Port`; programs that hold requests as values use that (`guard.port`).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError
from ullage.core.values.pickling import Unpicklable
from ullage.core.values.shown import line
from ullage.guard.defaults import find_policy, find_shares, find_summarizer
from ullage.runtime import Measurable, Runtime, default
from ullage.storage import check_store
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.compaction.policy import Policy
    from ullage.core.guard.request import Request
    from ullage.core.messages.transcript import DialectName
    from ullage.core.tokens.gauge import Assessment
    from ullage.core.tokens.window import Window
    from ullage.guard.call import GuardedCall
    from ullage.guard.driver import Listener, Pause
    from ullage.guard.port import Port
    from ullage.guard.summarizer import Summarize
    from ullage.guard.view import View
    from ullage.storage import Store

Result = TypeVar("Result")


class Guard(Unpicklable):
    """Keep a conversation with one model inside its window.

    ::

        guard = ullage.Guard("qwen3-8b", base_url="http://127.0.0.1:8080/v1")
        view = guard.prepare(messages, tools=tools, max_tokens=1024)
        response = client.chat.completions.create(model="qwen3-8b", **view.kwargs)
        view.observe(response)

    Safe to share between threads and event loops. `window` is the operator's word in tokens;
    `policy` is a Policy or the name of a preset, such as "ladder";
    `summarizer` gets a SummaryRequest and returns text, "same" asks the conversation's own model;
    `on_event` is called with each event;
    `strict` refuses before the send also on a bound that is not proven. `shares` divides the
    window (see `ullage.allocate`): a section over its share is told of, and knowledge over its
    share is left out, oldest first. `dialect` is openai_chat, openai_responses, anthropic or
    ollama_chat; without it a request's shape tells, which is Chat Completions if it shows nothing.
    `pause` is the wait before a request is sent again after a broken connection, at most half a
    second by default. `store` (see `ullage.open_store`) keeps checkpoints and conversations beyond
    the process, and what was left out: placeholders then name it (see `ullage.recall`). What is
    not given is taken from the settings: policy, summarizer, store, shares, and pins besides those
    of a call.
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
        summarizer: Summarize | str | None = None,
        store: Store | None = None,
        on_event: Listener | None = None,
        strict: bool = False,
        shares: Mapping[str, float] | None = None,
        dialect: str | None = None,
        runtime: Runtime | None = None,
        pause: Pause | None = None,
    ) -> None:
        self._dialect = dialects.parse_name(dialect) if dialect is not None else None
        runtime = runtime if runtime is not None else default()
        self._question = Question(model, base_url, api_key, window, provider)
        asked, kept = find_summarizer(runtime, summarizer, self._question), check_store(store)
        self._policy = find_policy(runtime, policy)
        divided = find_shares(runtime, shares)

        def make() -> Port:
            from ullage.guard.driver import Driver, Pause
            from ullage.guard.port import Port
            from ullage.storage.shelter import shelter

            own = None if kept is None else shelter(kept)
            driver = Driver(runtime, self._question, asked, on_event, pause or Pause(), own)
            return Port(driver, self._policy, strict, divided)

        self._make = make
        self._port: Port | None = None
        self._lock = threading.Lock()

    @property
    def port(self) -> Port:
        """What programs drive the guard by; what it needs is loaded with its first use."""
        if self._port is None:
            with self._lock:
                if self._port is None:
                    self._port = self._make()
        return self._port

    @property
    def model(self) -> str | None:
        """The model that the guard is for."""
        return self._question.model

    @property
    def policy(self) -> Policy:
        """What is done at which pressure."""
        return self._policy

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Iterable[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
        **beside: Unpack[ServerFields],
    ) -> View:
        """Return the request to send: repaired, compacted where the policy says so, checked.

        `max_tokens` is clamped to the room there is; `pins` are positions, from 0 on, of messages
        that stay verbatim; `sections` marks messages by position, such as {3: "knowledge"};
        `system` is what Anthropic and Responses take beside the messages, `context_management` what
        they are asked to leave out by themselves, `reserve` the answer that whoever sends asks for
        by itself, in the place of `max_tokens` (`ServerFields`). Raises MalformedHistoryError,
        ConfigurationError, and ContextTooLargeError when it cannot fit into a bound that is proven.
        """
        body = self._body(messages, tools, system)
        request = _read_request(body, max_tokens, pins, sections, _check_beside(beside))
        return self.port.prepare(request, body.find_dialect())

    async def aprepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        max_tokens: int | None = None,
        pins: Iterable[int] = (),
        sections: Mapping[int, str] | None = None,
        system: Any = None,
        **beside: Unpack[ServerFields],
    ) -> View:
        """Do as `prepare`, without blocking the event loop."""
        await self._aload()
        body = self._body(messages, tools, system)
        request = _read_request(body, max_tokens, pins, sections, _check_beside(beside))
        return await self.port.aprepare(request, body.find_dialect())

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
        from ullage.guard.sending import send_call

        return cast("Result", send_call(self.port, *self._read(fn, messages, options)))

    async def acall(
        self,
        fn: Callable[..., Awaitable[Result]],
        messages: Sequence[Any] | None = None,
        **options: Any,
    ) -> Result:
        """Do as `call` with an async `fn`."""
        from ullage.guard.sending import asend_call

        await self._aload()
        read = self._read(fn, messages, options)
        return cast("Result", await asend_call(self.port, *read))

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
        from ullage.guard.sending import send_stream

        return send_stream(self.port, *self._read(fn, messages, options))

    async def astream(
        self, fn: Callable[..., Any], messages: Sequence[Any] | None = None, **options: Any
    ) -> Any:
        """Do as `stream`: await this, then iterate. `fn` is async, or returns an async iterator."""
        from ullage.guard.sending import asend_stream

        await self._aload()
        return await asend_stream(self.port, *self._read(fn, messages, options))

    def undo(self, messages: Sequence[Any], *, system: Any = None) -> Checkpoint | None:
        """Take the last checkpoint of a conversation away; return it, None where there is none.

        What it left out is in the next request again, if it fits: under the same pressure the
        policy asks for the same again.
        """
        body = self._body(messages, None, system)
        return self.port.undo(_read_request(body), body.find_dialect())

    def __repr__(self) -> str:
        window = self._question.override
        return line("Guard", repr(self.model), window=window, policy=self.policy.name)

    def __copy__(self) -> Guard:
        made = object.__new__(type(self))
        vars(made).update(vars(self), _port=self.port)
        return made

    def session(self, name: str) -> Guard:
        """Return a guard of the same configuration whose conversations are its own.

        What was compacted or reported in one session is never applied in another, even where the
        messages are the same. `name` is any text of up to 200 characters.
        """
        made = self.__copy__()
        vars(made).update(_port=self.port.isolate(name), _lock=threading.Lock())
        return made

    def window(self) -> Window:
        """Return the window of the guard's model, asked for or remembered."""
        return self.port.window()

    async def awindow(self) -> Window:
        """Do as `window`, without blocking the event loop."""
        return await self.port.awindow()

    def assess(
        self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, system: Any = None
    ) -> Assessment:
        """Return how full the window would be with these messages; changes nothing."""
        body = self._body(messages, tools, system)
        return self.port.assess(_read_request(body), body.find_dialect())

    async def aassess(
        self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, system: Any = None
    ) -> Assessment:
        """Do as `assess`, without blocking the event loop."""
        await self._aload()
        body = self._body(messages, tools, system)
        return await self.port.aassess(_read_request(body), body.find_dialect())

    def explain(self) -> str:
        """Return the window, who said it, and what would change it."""
        return self.window().explain()

    # --- steps -----------------------------------------------------------------------------------

    async def _aload(self) -> None:
        """Load in a thread what the first request needs of this package; later it costs nothing."""
        if self._port is None:
            from ullage.guard.planning import THREADS, load_dialects

            await THREADS.run(load_dialects)
            await THREADS.run(lambda: self.port)

    def _body(
        self, messages: Any, tools: Any, system: Any, shown: DialectName | None = None
    ) -> Measurable:
        """Return the request in its dialect; raises ConfigurationError for a misplaced system."""
        body = Measurable(messages, tools, system, self._dialect or shown).normalise()
        spoken = dialects.find(body.find_dialect())
        if system is not None and spoken.fields.system is None:
            raise ConfigurationError(
                "system= is for Anthropic and Responses requests, and these messages read as "
                f"{spoken.title}: put a system message first in the list, or name the dialect, "
                'such as Guard(dialect="anthropic")'
            )
        return body

    def _read(
        self, fn: Callable[..., Any], messages: Sequence[Any] | None, options: Mapping[str, Any]
    ) -> tuple[GuardedCall, Request, DialectName]:
        """Return a call, the request that it asks for, and its dialect."""
        from ullage.guard.call import read_call

        call = read_call(fn, messages, options, self.model)
        given = dict(call.prepared)
        tools, system = given.pop("tools", None), given.pop("system", None)
        body = self._body(call.messages, tools, system, call.dialect)
        return call, _read_request(body, **given, beside=call.beside), body.find_dialect()


class ServerFields(TypedDict, total=False):
    """What `Guard.prepare` reads of a request beside the conversation; it is not sent on.

    `reserve` are tokens of output that whoever sends asks for by itself, and that nobody can lower:
    they stay free where the server refuses a prompt without room for them, as providers do, or has
    in the last hour; else as far as there is room above the critical pressure.
    """

    context_management: Any
    reserve: int | None


def _check_beside(beside: ServerFields) -> Mapping[str, Any]:
    """Return fields beside the conversation; raises TypeError for one that is not read."""
    unknown = next(iter(beside.keys() - ServerFields.__annotations__), None)
    if unknown is not None:
        raise TypeError(f"prepare() got an unexpected keyword argument {unknown!r}")
    return {**beside}


def _read_request(
    body: Measurable,
    max_tokens: int | None = None,
    pins: Iterable[int] = (),
    sections: Mapping[int, str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Request:
    from ullage.guard.given import read_request

    return read_request(body, max_tokens, pins, sections, beside or {})

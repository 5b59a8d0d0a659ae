"""The guard for library users: a model, a policy, and a pipeline around each request.

A guard is an immutable configuration over a shared `Runtime`. It finds a conversation by its
longest known prefix, so the caller passes the full history every time. It reads its arguments and
gives them to its `Port`. Programs that hold requests as values use the port (`guard.port`).
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

    Safe to share between threads and event loops. Options:

    - `window` overrides the model's window, in tokens.
    - `policy` is a Policy or the name of a preset, such as "ladder".
    - `summarizer` is a function from a SummaryRequest to a text; "same" asks the conversation's own
      model.
    - `store` (see `ullage.open_store`) keeps checkpoints, conversations and left-out texts after
      the process ends. Placeholders then name the texts (see `ullage.recall`).
    - `on_event` is called with each event.
    - `strict` also refuses requests over a bound that is not proven.
    - `shares` divides the window (see `ullage.allocate`). A section over its share is reported.
      Knowledge over its share is left out, oldest first.
    - `dialect` is openai_chat, openai_responses, anthropic or ollama_chat. By default it is
      detected from the request; if that shows nothing, it is Chat Completions.
    - `pause` is the wait before a request is sent again after a broken connection, by default at
      most half a second.

    Defaults for policy, summarizer, store and shares come from the settings. Pins of the settings
    are added to those of a call.
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
        """The interface of the guard for programs, loaded on first use."""
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
        """The policy: which strategies run at which pressure."""
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
        """Return the request to send: repaired, compacted if the policy says so, and checked.

        `max_tokens` is lowered to the room that is left. `pins` are positions, from 0 on, of
        messages that stay verbatim. `sections` marks messages by position, such as {3:
        "knowledge"}. `system` is the separate system prompt of Anthropic and Responses.
        `context_management` tells these servers what to leave out themselves. `reserve` is the
        output that the sender itself asks for instead of `max_tokens` (`ServerFields`). Raises
        MalformedHistoryError, ConfigurationError, and ContextTooLargeError if the request cannot
        fit into a proven bound.
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
        """Prepare a request, call `fn` with it, and observe; retry once if that may help.

        ::

            guard.call(client.chat.completions.create, messages, max_tokens=256, temperature=0)

        Keywords of `prepare` are prepared. They may have the names of the dialect's client
        (`input`, `instructions`, `max_output_tokens`, `max_completion_tokens`, `num_predict`), and
        are sent under the names that `fn` takes. All other keywords go to `fn` unchanged. The
        guard's model is passed as `model` if `fn` takes one and the call gives none. If the
        messages show no dialect, `fn` and the keywords decide. After an overflow error the retry is
        smaller. After a broken connection it is the same request, or a smaller one if the window
        was nearly full. Any other error of `fn` is raised unchanged, and so is the error of the
        retry.
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

        `fn` gets `stream=True` if it takes that keyword. The events come through unchanged. An
        SDK's stream stays the SDK's own object; anything else becomes an iterator with `close`. The
        first events are read before this returns. Until the first content, errors are handled as in
        `call`; after it, they are raised. Usage is learned if the events report it (OpenAI Chat:
        `stream_options={"include_usage": True}`). A stream that is closed early teaches nothing. A
        stream that ends too soon is reported as an event.
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
        """Remove and return the last checkpoint of a conversation, or return None without one.

        The messages that it left out are in the next request again, if they fit. Under the same
        pressure the policy compacts them again.
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
        """Return a guard of the same configuration with separate conversations.

        Compactions and reports of one session are never applied in another, even if the messages
        are the same. `name` is any text of 1 to 200 characters.
        """
        made = self.__copy__()
        vars(made).update(_port=self.port.isolate(name), _lock=threading.Lock())
        return made

    def window(self) -> Window:
        """Return the window of the guard's model, probed or remembered."""
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
        """Return a text with the window, its source, and what would change it."""
        return self.window().explain()

    # --- steps -----------------------------------------------------------------------------------

    async def _aload(self) -> None:
        """Load the modules for the first request in a thread; later calls return at once."""
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
        """Return a call, the request in it, and its dialect."""
        from ullage.guard.call import read_call

        call = read_call(fn, messages, options, self.model)
        given = dict(call.prepared)
        tools, system = given.pop("tools", None), given.pop("system", None)
        body = self._body(call.messages, tools, system, call.dialect)
        return call, _read_request(body, **given, beside=call.beside), body.find_dialect()


class ServerFields(TypedDict, total=False):
    """Further request fields that `Guard.prepare` reads and does not send.

    `reserve` is the number of output tokens that the sender asks for itself, and that the guard
    cannot lower. They stay free if the server refuses a prompt without room for them: providers do,
    and so does a server that has refused one in the last hour. Otherwise they stay free as far as
    there is room above the critical pressure.
    """

    context_management: Any
    reserve: int | None


def _check_beside(beside: ServerFields) -> Mapping[str, Any]:
    """Return the further fields; raises TypeError for an unknown one."""
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

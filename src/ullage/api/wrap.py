"""An official OpenAI or Anthropic client whose calls go through a guard: `ullage.wrap`.

The SDKs are met by shape and never imported. What a method answers is what the SDK answers; a
method that sends no conversation is the client's own. It decides which fields of a call are the
conversation, and nothing about windows.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self, SupportsIndex, TypeVar, cast

from ullage.core.dialects import registry
from ullage.core.dialects.dialect import Fields
from ullage.core.errors import ConfigurationError
from ullage.core.guard.events import Notice
from ullage.guard.call import is_given
from ullage.guard.guard import Guard


@dataclass(frozen=True, slots=True)
class ClientMethods:
    """The methods of one endpoint: the dialect that they speak, and the fields of a request."""

    dialect: str
    fields: Fields


@functools.cache
def forms() -> Mapping[str, Mapping[tuple[str, ...], ClientMethods]]:
    """Return the endpoints that take a conversation, by SDK and by where its client has them."""
    found: dict[str, dict[tuple[str, ...], ClientMethods]] = {}
    for dialect in registry.dialects():
        for sdk, paths in dialect.clients.items():
            form = ClientMethods(dialect.name, dialect.fields)
            found.setdefault(sdk, {}).update(dict.fromkeys(paths, form))
    return found


RAW: Final = "with_raw_response"
STREAMED: Final = "with_streaming_response"

GUARDED: Final = frozenset({"create", "parse", "stream"})
"""Methods that send a conversation; `stream` returns a context manager that sends on entering."""

COPIES: Final = frozenset({"with_options", "copy"})

MOST_GUARDS: Final = 32
"""Guards kept by one wrapped client, one for each model, server, credential and dialect."""

KEY: Final = "idempotency-key"


Client = TypeVar("Client")


def wrap(client: Client, *, model: str | None = None, **options: Any) -> Client:
    """Return `client` with each conversation kept inside its window.

    ::

        client = ullage.wrap(openai.OpenAI())
        client.chat.completions.create(model="gpt-4o", messages=history)

    For `OpenAI`, `AsyncOpenAI`, `Anthropic` and `AsyncAnthropic` and what derives from them:
    `chat.completions`, `responses` and `messages` with `create`, `parse` and `stream`, plain or
    by `with_raw_response` and `with_streaming_response`. Everything else is the client's own, and
    so are the answers. `options` are those of `Guard`; the window is asked of the client's own
    server, for the model of each request, or for `model` where the name in the requests is not
    the model's, such as a deployment's. A history that the server keeps (`previous_response_id`,
    `conversation`, `prompt`) is forwarded as it is, with one notice.

    Raises ConfigurationError for a client or a setting that cannot work, TypeError for an option
    that `Guard` does not have, and, from the calls, what `Guard.prepare` raises.
    """
    kind, known = type(client), forms()
    if issubclass(kind, _Proxy):
        raise ConfigurationError("this client is wrapped already: use it as it is")
    for ancestor in kind.__mro__:
        sdk = ancestor.__module__.partition(".")[0]
        if sdk in known and ancestor.__name__ in ("SyncAPIClient", "AsyncAPIClient"):
            root = _AsyncRoot if ancestor.__name__ == "AsyncAPIClient" else _Root
            break
    else:
        raise ConfigurationError(
            f"ullage.wrap takes OpenAI, AsyncOpenAI, Anthropic or AsyncAnthropic and what derives "
            f"from them, not {kind.__module__}.{kind.__qualname__}: for another client use "
            "Guard.call or Guard.stream"
        )
    if "dialect" in options:
        raise ConfigurationError("dialect= follows from the method that is called: leave it out")
    shared = _Shared(root is _AsyncRoot, known[sdk], model, options)
    shared.guard(client, next(iter(shared.forms.values())), model)  # raises for invalid options
    return cast("Client", root(client, (), shared, client))


@dataclass(slots=True)
class _Shared:
    """What all parts of a wrapped client, and its copies, have in common."""

    awaits: bool
    forms: Mapping[tuple[str, ...], ClientMethods]
    model: str | None
    options: Mapping[str, Any]
    guards: OrderedDict[tuple[Any, ...], Guard] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    noticed: bool = False

    def guard(self, client: Any, form: ClientMethods, model: Any) -> Guard:
        """Return the guard of a model on the client's server; the last ones used are kept."""
        named = self.model or (model if isinstance(model, str) else None)
        where: dict[str, Any] = {"base_url": _url(client), "api_key": _credential(client)}
        where |= self.options
        key = (named, where["base_url"], where["api_key"], form.dialect)
        with self.lock:
            made = self.guards.pop(key, None)
            if made is None:
                made = Guard(named, dialect=form.dialect, **where)
            self.guards[key] = made
            if len(self.guards) > MOST_GUARDS:
                self.guards.popitem(last=False)
        return made

    def form(self, path: tuple[str, ...]) -> ClientMethods | None:
        """Return the form of the endpoint at this path, or None."""
        return self.forms.get(_bare(path))

    def leads(self, path: tuple[str, ...]) -> bool:
        """Tell whether an endpoint lies at or behind this path."""
        bare = _bare(path)
        return any(stem[: len(bare)] == bare for stem in self.forms)

    def notice(self, guard: Guard) -> None:
        """Tell once that a history is out of reach."""
        with self.lock:
            noticed, self.noticed = self.noticed, True
        if not noticed:
            guard.port.tell(
                Notice(
                    "the history of this request is kept by the server: it is forwarded as it "
                    "is, neither measured nor compacted"
                )
            )


@dataclass(frozen=True, slots=True)
class _Sending:
    """One guarded call: the guard, the conversation, and how to send what the guard made of it."""

    guard: Guard
    send: _Sender
    messages: Any
    options: dict[str, Any]


class _Sender:
    """Send a call with its conversation replaced by what a guard hands out."""

    def __init__(
        self, method: Callable[..., Any], form: ClientMethods, given: Mapping[str, Any], client: Any
    ) -> None:
        self._method = method
        self._form = form
        self._given = given
        self._client = client
        self._sent: Mapping[str, Any] | None = None

    def __call__(self, **view: Any) -> Any:
        for name in ("model", "stream"):  # the caller's own word stands
            view.pop(name, None)
        return self._method(**self._fields(view))

    def _fields(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """Return the caller's keywords with the view's fields; untouched ones stay the caller's.

        A request that is sent again with another body gets another idempotency key.
        """
        made, before = dict(self._given), self._sent
        self._sent = view
        form = self._form
        for name, value in view.items():
            own = _output(form, made) if name in form.fields.output else name
            if own is not None and not _same(made.get(own), value):
                made[own] = value
        changed = before is not None and any(before.get(k) is not v for k, v in view.items())
        return _renew_key(made, self._client) if changed else made


def _output(form: ClientMethods, given: Mapping[str, Any]) -> str | None:
    return next((name for name in form.fields.output if is_given(given.get(name))), None)


def _same(own: Any, value: Any) -> bool:
    """Tell whether a field of the view holds just what the caller gave."""
    if own is value:
        return True
    if isinstance(own, str) and type(value) is list:  # Responses take a text for one message
        return len(value) == 1 and value[0] == {"role": "user", "content": own}
    if not isinstance(own, list | tuple) or not isinstance(value, list):
        return False
    return len(own) == len(value) and all(a is b for a, b in zip(own, value, strict=True))


def _renew_key(fields: dict[str, Any], client: Any) -> dict[str, Any]:
    """Return a call with a new idempotency key in the place of the old, where it has one.

    The SDKs make their own keys anew with each call.
    """
    headers = fields.get("extra_headers") or {}
    standing = getattr(client, "default_headers", None) or {}
    if not any(name.lower() == KEY for name in (*headers, *standing)):
        return fields
    kept = {name: value for name, value in headers.items() if name.lower() != KEY}
    return {**fields, "extra_headers": {**kept, "Idempotency-Key": uuid.uuid4().hex}}


def _bare(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in path if name not in (RAW, STREAMED))


def _url(client: Any) -> str | None:
    return str(client.base_url) or None


def _credential(client: Any) -> str | None:
    """Return the client's key: OpenAI's and Anthropic's api_key, else Anthropic's auth_token."""
    for name in ("api_key", "auth_token"):
        value = getattr(client, name, None)
        if isinstance(value, str) and value:
            return value
    return None


def _make_list(value: Any) -> Any:
    """Return an iterable as a list that can be read twice; text and lists as they are."""
    whole = value is None or isinstance(value, str | list | tuple | Mapping)
    return value if whole or not hasattr(value, "__iter__") else list(value)


class _Proxy:
    """A part of a wrapped client: guarded methods, further parts, and else what it stands for.

    `isinstance` sees the class of what it stands for.
    """

    def __init__(self, target: Any, path: tuple[str, ...], shared: _Shared, client: Any) -> None:
        put = object.__setattr__
        put(self, "_ullage_target", target)
        put(self, "_ullage_path", path)
        put(self, "_ullage_shared", shared)
        put(self, "_ullage_client", client)

    @property  # type: ignore[misc]  # what isinstance asks; the type itself stays ours
    def __class__(self) -> type:
        return type(self._ullage_target)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_ullage_"):  # a copy under construction has none yet
            raise AttributeError(name)
        value = getattr(self._ullage_target, name)
        path, shared = (*self._ullage_path, name), self._ullage_shared
        form = shared.form(self._ullage_path)
        if form is not None and name in GUARDED:
            return _method(self, value, form, name)
        if not self._ullage_path and name in COPIES:
            return lambda *args, **options: self._ullage_again(value(*args, **options))
        return _Proxy(value, path, shared, self._ullage_client) if shared.leads(path) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ullage_target, name, value)

    def __dir__(self) -> list[str]:
        return dir(self._ullage_target)

    def __copy__(self) -> Self:
        return type(self)(
            self._ullage_target, self._ullage_path, self._ullage_shared, self._ullage_client
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a wrapped client belongs to its process and can be neither pickled nor deep-copied: "
            "make and wrap one in the other process"
        )

    def __repr__(self) -> str:
        return f"<ullage.wrap of {self._ullage_target!r}>"

    def _ullage_again(self, client: Any) -> Any:
        """Return another client, wrapped as this one is."""
        return type(self)(client, (), self._ullage_shared, client)

    def _ullage_sending(
        self, method: Callable[..., Any], form: ClientMethods, given: dict[str, Any]
    ) -> _Sending | None:
        """Return a call as a guard takes it, or None for one that carries no history of its own."""
        shared = self._ullage_shared
        guard = shared.guard(self._ullage_client, form, given.get("model"))
        if any(is_given(given.get(name)) for name in form.fields.stored):
            shared.notice(guard)
            return None
        if not is_given(given.get(form.fields.messages)):
            return None
        parts = {"tools": "tools", "system": form.fields.system, "max_tokens": _output(form, given)}
        for name in (form.fields.messages, "tools"):
            if name in given:
                given[name] = _make_list(given[name])
        options = {k: given[n] for k, n in parts.items() if n and is_given(given.get(n))}
        send = _Sender(method, form, given, self._ullage_client)
        return _Sending(guard, send, given[form.fields.messages], options)


class _Root(_Proxy):
    """A wrapped client that blocks; its `with` block closes the client's connections."""

    def __enter__(self) -> Self:
        self._ullage_target.__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        return self._ullage_target.__exit__(*raised)


class _AsyncRoot(_Proxy):
    """A wrapped client that awaits."""

    async def __aenter__(self) -> Self:
        await self._ullage_target.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> Any:
        return await self._ullage_target.__aexit__(*raised)


def _method(
    part: _Proxy, method: Callable[..., Any], form: ClientMethods, name: str
) -> Callable[..., Any]:
    """Return the guarded twin of an SDK's method."""
    path, awaits = part._ullage_path, part._ullage_shared.awaits  # noqa: SLF001 - one room
    watched = RAW not in path and STREAMED not in path
    if STREAMED in path or name == "stream":
        entering = _AsyncEntering if awaits else _Entering

        @functools.wraps(method)
        def manage(**given: Any) -> Any:
            sending = part._ullage_sending(method, form, given)  # noqa: SLF001 - one room
            return method(**given) if sending is None else entering(sending, watched)

        return manage

    @functools.wraps(method)
    def call(**given: Any) -> Any:
        sending = part._ullage_sending(method, form, given)  # noqa: SLF001 - one room
        if sending is None:
            return method(**given)
        guard, streams = sending.guard, watched and is_given(given.get("stream"))
        if awaits:
            send = guard.astream if streams and given["stream"] else guard.acall
        else:
            send = guard.stream if streams and given["stream"] else guard.call
        return send(sending.send, sending.messages, **sending.options)

    @functools.wraps(method)
    async def acall(**given: Any) -> Any:
        return await call(**given)

    return acall if awaits else call


class _Entering:
    """A context manager of an SDK's that sends on entering: each attempt enters a new one."""

    def __init__(self, sending: _Sending, watched: bool) -> None:  # noqa: FBT001 - one caller
        self._sending = sending
        self._watched = watched
        self._entered: Any = None

    def __enter__(self) -> Any:
        def send(**view: Any) -> Any:
            self._entered = self._sending.send(**view)
            return self._entered.__enter__()

        made = self._sending
        guarded = made.guard.stream if self._watched else made.guard.call
        return guarded(send, made.messages, **made.options)

    def __exit__(self, *raised: object) -> Any:
        return self._entered.__exit__(*raised)


class _AsyncEntering:
    """Do as `_Entering`, awaited."""

    def __init__(self, sending: _Sending, watched: bool) -> None:  # noqa: FBT001 - one caller
        self._sending = sending
        self._watched = watched
        self._entered: Any = None

    async def __aenter__(self) -> Any:
        async def send(**view: Any) -> Any:
            self._entered = self._sending.send(**view)
            return await self._entered.__aenter__()

        made = self._sending
        guarded = made.guard.astream if self._watched else made.guard.acall
        return await guarded(send, made.messages, **made.options)

    async def __aexit__(self, *raised: object) -> Any:
        return await self._entered.__aexit__(*raised)

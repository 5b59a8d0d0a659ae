"""A guard for a framework's history: takes the framework's message objects and returns them.

An adapter writes each of the framework's messages as messages of a dialect (`MessageForm`). The
guard edits those. A message without edits comes back as the same object. So the prompt stays the
same to the byte, and the framework's history does not change. This module knows no framework.
"""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Generic, TypedDict, TypeVar

from ullage.api.functions import count
from ullage.api.recall import answer_recall
from ullage.api.search import answer_search
from ullage.core.compaction.pins import read_pins
from ullage.core.dialects import registry as dialects
from ullage.core.errors import ConfigurationError
from ullage.core.session import recall, searching
from ullage.core.session.tools import Spec
from ullage.guard.guard import Guard
from ullage.guard.sending import aattempt, asend_second, attempt
from ullage.guard.view import View
from ullage.integrations.state import dump_state, load_state
from ullage.sdk.errors import read_trouble
from ullage.storage import MemoryStore

T = TypeVar("T")
R = TypeVar("R")

MOST_SESSIONS: Final = 256
"""Sessions that an adapter keeps. It drops the least recently used one; its saved state restores
it."""

NOTHING: Final[Mapping[int, Any]] = MappingProxyType({})

TOOLS: Final = (recall.SPEC, searching.SPEC)
"""Tools with which a model reads and searches the text that was left out."""


@dataclass(frozen=True)
class MessageForm(Generic[T]):
    """How to write a framework's messages in a dialect, and how to read them back.

    `write` returns one message of the framework as messages of the dialect, always the same ones.
    `read` turns messages of the dialect, at least one of them edited, into one message of the
    framework. Its second argument is the original message, or None if ullage wrote the message.
    `frozen` means that messages of the framework never change, so each is written only once.
    """

    write: Callable[[T], Sequence[Any]]
    read: Callable[[Sequence[Any], T | None], T]
    dialect: str = dialects.DEFAULT
    frozen: bool = False


class Beside(TypedDict, total=False):
    """The parts of a request other than its messages.

    `system` is the system prompt if the framework keeps it apart. `tools` are definitions in the
    dialect. `pins` are positions of messages. `max_tokens` is the limit of the answer if the
    framework lets the guard lower it when there is less room. `reserve` is the limit of the answer
    (`find_output`) if the guard cannot lower it: see `Guard.prepare`.
    """

    system: str | None
    tools: Sequence[Any] | None
    max_tokens: int | None
    reserve: int | None
    pins: Sequence[int]


@dataclass(frozen=True)
class WrittenHistory(Generic[T]):
    """A history written in a dialect: message `i` of `given` is `raws[starts[i]:starts[i + 1]]`.

    `known` holds each message with its `raws`. It keeps the message alive, so its id stays valid.
    """

    given: Sequence[T]
    raws: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    known: dict[int, tuple[T, Sequence[Any]]] = field(default_factory=dict)

    def list_owners(self) -> list[int | None]:
        """Return, for each of `raws`, the position of the message that it comes from."""
        owners: list[int | None] = []
        for place in range(len(self.given)):
            owners += [place] * (self.starts[place + 1] - self.starts[place])
        return owners


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """Messages that fit the window: the framework's own objects where nothing was edited.

    `written` is the history in the dialect.
    """

    messages: list[T]
    view: View
    written: WrittenHistory[T]

    @property
    def is_new(self) -> bool:
        """Tell whether this request made a compaction, so that the session's state has changed."""
        return self.view.prepared.checkpoint is not None or bool(self.view.recoveries)


class Adapter(Generic[T]):
    """The guards of one program that uses a framework: one per model, server and session.

    `options` are those of `Guard`. Each session adds the model and its server if the framework
    knows them. If there is no `store`, compactions stay in memory; a session can `dump` and `load`
    them in the framework's own state. Safe to share between threads.
    """

    def __init__(self, form: MessageForm[T], model: str | None = None, **options: Any) -> None:
        if "dialect" in options:
            raise ConfigurationError("dialect= follows from the framework: leave it out")
        self.form = form
        self.model = model
        self.store = options.get("store") or MemoryStore()
        self._options = {**options, "store": self.store, "dialect": form.dialect}
        self._sessions: dict[tuple[Any, ...], GuardedSession[T]] = {}
        self.sent: dict[str | None, Sequence[Any]] = {}
        self._tools: dict[tuple[int, ...], tuple[Sequence[Any], list[Any]]] = {}
        self._lock = threading.Lock()
        self.open()  # raises for options that cannot work

    def open(self, name: str | None = None, **model: Any) -> GuardedSession[T]:
        """Return a session with a model: `model`, `base_url` and `api_key`, as `Guard` takes them.

        A value of None counts as not given. The program's own options take precedence. The key may
        be a Pydantic secret; a key that is created anew for each call is ignored. Two sessions with
        one name share their compactions. If there is no name, the guard finds the conversation by
        its first messages.
        """
        key = model.pop("api_key", None)
        shown = key.get_secret_value() if hasattr(key, "get_secret_value") else key
        model["api_key"] = shown if isinstance(shown, str) and shown else None
        said = {"model": self.model, **self._options}
        named = {k: v for k, v in model.items() if v is not None and said.get(k) is None}
        key = (name, *sorted(named.items()))
        with self._lock:
            made = self._sessions.pop(key, None)
            if made is None:
                guard = Guard(**{**said, **named})
                made = GuardedSession(self, guard if name is None else guard.session(name), name)
            self._sessions[key] = made
            if len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return made

    def note_sent(self, name: str | None, messages: Sequence[Any]) -> None:
        """Remember the last messages sent in a session, for the tools that read what is missing."""
        with self._lock:
            self.sent.pop(name, None)
            self.sent[name] = messages
            if len(self.sent) > MOST_SESSIONS:
                del self.sent[next(iter(self.sent))]

    def count(
        self,
        messages: Sequence[T],
        model: str | None = None,
        tools: Sequence[Any] | None = None,
    ) -> int:
        """Return the tokens of messages and of tools' definitions, counted offline."""
        raws, named = self.write(messages).raws, self.model or model
        return count(raws, model=named, dialect=self.form.dialect, tools=tools).tokens

    def define(
        self, tools: Sequence[Any] | None, convert: Callable[[Any], Any]
    ) -> list[Any] | None:
        """Return tools' definitions in the dialect: the same tools give the same list object."""
        if not tools:
            return None
        key = tuple(map(id, tools))
        found = self._tools.get(key)
        if found is None:
            if len(self._tools) >= MOST_SESSIONS:
                self._tools.clear()
            found = self._tools[key] = (list(tools), [convert(tool) for tool in tools])
        return found[1]

    def write(
        self, messages: Sequence[T], before: Mapping[int, tuple[T, Sequence[Any]]] = NOTHING
    ) -> WrittenHistory[T]:
        """Return a history in the dialect.

        A message that was written `before`, with the same result, reuses the same objects, because
        the guard already knows their contents.
        """
        made: WrittenHistory[T] = WrittenHistory(messages)
        for message in messages:
            _, known = before.get(id(message), (None, None))
            raws = known if known is not None and self.form.frozen else self.form.write(message)
            raws = known if known is not None and raws == known else raws
            made.known[id(message)] = message, raws
            made.raws.extend(raws)
            made.starts.append(len(made.raws))
        return made

    def make_functions(
        self, find: Callable[[], GuardedSession[T]]
    ) -> list[tuple[Spec, Callable[..., str]]]:
        """Return `TOOLS` as functions of their parameters; `find` returns the calling session."""

        def read(reference: str, offset: int = 0, limit: int | None = None) -> str:
            given = {"reference": reference, "offset": offset, "limit": limit}
            kept = {name: value for name, value in given.items() if value is not None}
            return find().answer(recall.SPEC.name, kept)

        def look(query: str) -> str:
            return find().answer(searching.SPEC.name, {"query": query})

        functions: tuple[Callable[..., str], ...] = (read, look)
        made = list(zip(TOOLS, functions, strict=True))
        for spec, function in made:
            function.__name__, function.__doc__ = spec.name, spec.description
        return made


@dataclass(frozen=True, slots=True)
class SentRequest(Generic[T]):
    """A request that was handed to a framework and waits for its response."""

    session: GuardedSession[T]
    fitted: Fitted[T]


class Waiting(dict[Any, SentRequest[T]]):
    """Waiting requests, by the key of their response; drops the oldest first."""

    def keep(self, key: Any, sent: SentRequest[T]) -> None:
        """Add a request."""
        self[key] = sent
        while len(self) > MOST_SESSIONS:
            del self[next(iter(self))]


class GuardedSession(Generic[T]):
    """One conversation of a framework with one model, guarded."""

    def __init__(self, adapter: Adapter[T], guard: Guard, name: str | None) -> None:
        self.guard = guard
        self.name = name
        self._adapter = adapter
        self._loaded = False
        self._known: Mapping[int, tuple[T, Sequence[Any]]] = NOTHING

    @property
    def window(self) -> int | None:
        """The tokens that the model takes as input, or None if unknown."""
        return self.guard.window().input_tokens

    def fit(self, messages: Sequence[T], beside: Beside | None = None) -> Fitted[T]:
        """Return messages that fit. Raises what `Guard.prepare` raises."""
        written = self._write(messages)
        return self._read(self.guard.prepare(**self._ask(written, beside)), written)

    async def afit(self, messages: Sequence[T], beside: Beside | None = None) -> Fitted[T]:
        """Do as `fit`, without blocking the event loop."""
        written = self._write(messages)
        return self._read(await self.guard.aprepare(**self._ask(written, beside)), written)

    def call(
        self,
        send: Callable[[Fitted[T]], R],
        messages: Sequence[T],
        beside: Beside | None = None,
        *,
        report: Callable[[R], Any],
    ) -> tuple[R, Fitted[T]]:
        """Send messages that fit, retry once if that may help, and learn from the answer.

        Returns the answer and the messages sent. `report` returns the usage that an answer reports,
        in the dialect's form, or None. Raises what `send` raises, and what `Guard.prepare` raises.
        """
        written = self._write(messages)
        first = self.guard.prepare(**self._ask(written, beside))
        sent: list[Fitted[T]] = []

        def send_view(view: View) -> R:
            sent.append(self._read(view, written))
            return send(sent[-1])

        view, answer = attempt(self.guard.port, first, send_view)
        said = report(answer)
        if said is not None:
            view.observe(said)
        return answer, sent[-1]

    async def acall(
        self,
        send: Callable[[Fitted[T]], Awaitable[R]],
        messages: Sequence[T],
        beside: Beside | None = None,
        *,
        report: Callable[[R], Any],
    ) -> tuple[R, Fitted[T]]:
        """Do as `call` with an async `send`."""
        written = self._write(messages)
        first = await self.guard.aprepare(**self._ask(written, beside))
        sent: list[Fitted[T]] = []

        async def send_view(view: View) -> R:
            sent.append(self._read(view, written))
            return await send(sent[-1])

        view, answer = await aattempt(self.guard.port, first, send_view)
        said = report(answer)
        if said is not None:
            await view.aobserve(said)
        return answer, sent[-1]

    async def aretry(
        self,
        send: Callable[[Fitted[T]], Awaitable[R]],
        failed: Fitted[T],
        error: Exception,
        *,
        report: Callable[[R], Any],
    ) -> tuple[R, Fitted[T]] | None:
        """Recover after `afit` if the request that was sent failed with `error`.

        This is the second half of `acall`. Returns None if a retry does not help. Raises what
        `send` raises.
        """
        view = await self.guard.port.aretry(failed.view, read_trouble(error))
        if view is None:
            return None
        fitted = self._read(view, failed.written)
        answer = await asend_second(self.guard.port, failed.view, view, lambda second: send(fitted))
        said = report(answer)
        if said is not None:
            await view.aobserve(said)
        return answer, fitted

    def answer(self, name: str, arguments: Any) -> str:
        """Return the result of a call of one of `TOOLS`. It reads only this session's texts.

        No input from a model makes it raise an error.
        """
        store, sent = self._adapter.store, self._adapter.sent.get(self.name, ())
        answer = answer_recall if name == recall.SPEC.name else answer_search
        return answer(arguments, store, messages=sent)

    def dump(self) -> dict[str, Any] | None:
        """Return the state of the session, as data that JSON can carry.

        Returns None if a store of the program keeps the state, or if the session has no name.
        """
        store = self._adapter.store
        if not isinstance(store, MemoryStore) or self.name is None:
            return None
        return dump_state(store, f"|{json.dumps(self.name)}")

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Take in a state that `dump` returned, once per session. Raises StoreError if damaged."""
        store = self._adapter.store
        if state and not self._loaded and isinstance(store, MemoryStore):
            load_state(store, state)
        self._loaded = True

    def _write(self, messages: Sequence[T]) -> WrittenHistory[T]:
        """Return a history in the dialect, and remember it for the next request."""
        written = self._adapter.write(messages, self._known)
        self._known = written.known
        return written

    def _ask(self, written: WrittenHistory[T], beside: Beside | None) -> dict[str, Any]:
        """Return the arguments of `Guard.prepare`, the system prompt where the dialect has it."""
        asked: dict[str, Any] = {k: v for k, v in (beside or {}).items() if v is not None}
        messages, system, ahead = written.raws, asked.pop("system", None), 0
        spoken = dialects.find(dialects.parse_name(self._adapter.form.dialect))
        if system is not None and spoken.fields.system is not None:
            asked["system"] = system
        elif system is not None:
            messages, ahead = [{"role": "system", "content": system}, *messages], 1
        starts = written.starts
        pins = [
            place + ahead
            for pin in sorted(read_pins(asked.pop("pins", ()), len(written.given)))
            for place in range(starts[pin], starts[pin + 1])
        ]
        return {**asked, "messages": messages, "pins": pins}

    def _read(self, view: View, written: WrittenHistory[T]) -> Fitted[T]:
        """Return a view's messages as the framework's: its own objects where nothing was edited."""
        self._adapter.note_sent(self.name, view.messages)
        if _is_untouched(view, written):
            return Fitted(list(written.given), view, written)
        return Fitted(list(self._find_messages(view, written)), view, written)

    def _find_messages(self, view: View, written: WrittenHistory[T]) -> Iterator[T]:
        ahead, starts = len(view.request.messages) - len(written.raws), written.starts
        form, owners = self._adapter.form, [None] * ahead + written.list_owners()
        rows = (
            (None if origin is None else owners[origin], raw)
            for origin, raw in zip(view.origin, view.messages, strict=True)
            if origin is None or origin >= ahead
        )
        for owner, group in groupby(rows, lambda row: row[0]):
            raws = [raw for _, raw in group]
            if owner is None:
                yield from (form.read([raw], None) for raw in raws)
                continue
            was, source = written.raws[starts[owner] : starts[owner + 1]], written.given[owner]
            same = len(raws) == len(was) and all(a is b for a, b in zip(raws, was, strict=True))
            yield source if same else form.read(raws, source)


def make_async(function: Callable[..., str]) -> Callable[..., Awaitable[str]]:
    """Return a function of `make_functions` as async, because some frameworks thread sync tools."""

    @wraps(function)
    async def call(*args: Any, **given: Any) -> str:
        return function(*args, **given)

    return call


def _is_untouched(view: View, written: WrittenHistory[Any]) -> bool:
    """Tell whether the guard changed nothing in a request that holds each of the messages."""
    asked, starts = view.request.messages, written.starts
    return (
        len(view.messages) == len(asked)
        and all(map(operator.is_, view.messages, asked))
        and all(map(operator.lt, starts, starts[1:]))
    )

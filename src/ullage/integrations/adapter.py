"""A framework's history, guarded: its own message objects in, its own objects out.

A framework writes each of its messages as messages of a dialect (`MessageForm`); the guard edits
those. A message that no edit touches comes back as the very object that went in, so that a prompt
stays the same to the byte and the framework's history is left alone. It knows no framework.
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
"""Sessions that an adapter keeps; the one used longest ago goes first. Its state brings it back."""

NOTHING: Final[Mapping[int, Any]] = MappingProxyType({})

TOOLS: Final = (recall.SPEC, searching.SPEC)
"""What a model is given to read and search what was left out: name, description, parameters."""


@dataclass(frozen=True)
class MessageForm(Generic[T]):
    """How a framework's messages are written in a dialect, and read back.

    `write` returns one message of the framework as messages of the dialect, alike each time.
    `read` returns messages of the dialect as one of the framework's, where something in them was
    edited: its second argument is the message that they were, None for one that ullage wrote.
    `frozen` says that no message of the framework ever changes: each is then written once.
    """

    write: Callable[[T], Sequence[Any]]
    read: Callable[[Sequence[Any], T | None], T]
    dialect: str = dialects.DEFAULT
    frozen: bool = False


class Beside(TypedDict, total=False):
    """What a request holds beside its messages.

    `system` is the operator's text where the framework keeps it apart, `tools` are definitions in
    the dialect, `pins` positions of messages. `max_tokens` is lowered where there is no more room,
    for frameworks that can be told. `reserve` are the tokens that the framework asks the
    model to answer at most (`find_output`), which cannot be lowered here: `Guard.prepare`.
    """

    system: str | None
    tools: Sequence[Any] | None
    max_tokens: int | None
    reserve: int | None
    pins: Sequence[int]


@dataclass(frozen=True)
class WrittenHistory(Generic[T]):
    """A history as a dialect has it: message `i` of `given` is `raws[starts[i]:starts[i + 1]]`.

    `known` has each message, which keeps its id, with its `raws`.
    """

    given: Sequence[T]
    raws: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    known: dict[int, tuple[T, Sequence[Any]]] = field(default_factory=dict)

    def list_owners(self) -> list[int | None]:
        """Return of each of `raws` the place of the message that it is of."""
        owners: list[int | None] = []
        for place in range(len(self.given)):
            owners += [place] * (self.starts[place + 1] - self.starts[place])
        return owners


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """Messages that may be sent, the framework's own objects where nothing was edited.

    `written` is the history that they were made of, as the dialect has it.
    """

    messages: list[T]
    view: View
    written: WrittenHistory[T]

    @property
    def is_new(self) -> bool:
        """Whether a compaction was made for this request: the session's state has changed."""
        return self.view.prepared.checkpoint is not None or bool(self.view.recoveries)


class Adapter(Generic[T]):
    """The guards of one program that speaks a framework: one for each model, server and session.

    `options` are those of `Guard`; the model and its server come with each session where they are
    the framework's to say. Without a `store` compactions are kept in memory; sessions `dump` and
    `load` them, for the framework's own state. Safe to share between threads.
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

        What is None is not given; what the program said of its own stands before it. A key may be a
        secret of Pydantic's; one that is made anew for each call is none here. Two sessions
        with one name share what was compacted; without a name the conversation is found by its
        beginning.
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
        """Remember what was sent last of a session: what it left out may be read, whoever asks.

        A tool is called without its model, so this is kept by the session's name alone.
        """
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
        """Return the definitions of tools in the dialect; of the same objects, the same list."""
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
        """Return a history as the dialect has it.

        A message that was written `before`, and is written alike now, is the same objects: what was
        read of them is known.
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
        """Return `TOOLS` as functions of their parameters; `find` says which session calls."""

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
    """A request that was handed to a framework, and waits for what comes of it."""

    session: GuardedSession[T]
    fitted: Fitted[T]


class Waiting(dict[Any, SentRequest[T]]):
    """Requests that wait, by what their answers are known by; the oldest goes first."""

    def keep(self, key: Any, sent: SentRequest[T]) -> None:
        """Take a request in."""
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
        """The tokens that the model takes as input, None where nobody knows."""
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
        """Send messages that fit, once more where that may help, and learn from the answer.

        Returns the answer and what was sent. `report` says what an answer tells of its usage, in
        the dialect's form, or None. Raises what `send` raises, and what `Guard.prepare` does.
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
        """Do the second half of `acall` after `afit`: what was sent has failed by an error.

        Returns None where another try is no use. Raises what `send` raises.
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
        """Return the result of a call of one of `TOOLS`: of this session's texts alone.

        Raises nothing that a model can cause.
        """
        store, sent = self._adapter.store, self._adapter.sent.get(self.name, ())
        answer = answer_recall if name == recall.SPEC.name else answer_search
        return answer(arguments, store, messages=sent)

    def dump(self) -> dict[str, Any] | None:
        """Return what is remembered of the session, as data that JSON can carry.

        None where a store of the program keeps it, and for a session without a name.
        """
        store = self._adapter.store
        if not isinstance(store, MemoryStore) or self.name is None:
            return None
        return dump_state(store, f"|{json.dumps(self.name)}")

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Take in what `dump` returned, the first time. Raises StoreError where it is damaged."""
        store = self._adapter.store
        if state and not self._loaded and isinstance(store, MemoryStore):
            load_state(store, state)
        self._loaded = True

    def _write(self, messages: Sequence[T]) -> WrittenHistory[T]:
        """Return a history as the dialect has it, and remember it for the next request."""
        written = self._adapter.write(messages, self._known)
        self._known = written.known
        return written

    def _ask(self, written: WrittenHistory[T], beside: Beside | None) -> dict[str, Any]:
        """Return the arguments of `Guard.prepare`; operator text goes where the dialect has it."""
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
        """Return a view's messages as the framework's, its own objects where nothing was edited."""
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
    """Return a function of `make_functions` for a framework that runs others in other threads.

    There the session of the call would not be known.
    """

    @wraps(function)
    async def call(*args: Any, **given: Any) -> str:
        return function(*args, **given)

    return call


def _is_untouched(view: View, written: WrittenHistory[Any]) -> bool:
    """Tell whether a request is sent as it was written, and each of the messages is in it."""
    asked, starts = view.request.messages, written.starts
    return (
        len(view.messages) == len(asked)
        and all(map(operator.is_, view.messages, asked))
        and all(map(operator.lt, starts, starts[1:]))
    )

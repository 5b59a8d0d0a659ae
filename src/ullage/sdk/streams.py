"""Streams of a model's answer: the facts in their events, read as they pass.

Events are passed on unchanged. A `Tracker` reads each one and decides: is it content, an error, the
end, a report of usage? The first events are held back until one has content, so that the caller can
still recover from an error inside a 200 response. This module knows no guard and retries nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, ErrorKind
from ullage.core.messages.fields import as_mapping, pick
from ullage.sdk.errors import Trouble, classify_error

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Watch

HELD: Final = 16
"""Most events that are held back; the dialects have at most three before the content."""

Settle = Callable[["Tracker"], object]
AsyncSettle = Callable[["Tracker"], Awaitable[object]]


class Tracker:
    """The facts in the events of one stream so far, in any dialect.

    `known` is set by the first event of a known dialect, `begun` by the first that is more than an
    opening, `ended` by the last one; `failed` is an error event. `report` is the complete usage
    report to learn from. `dialect` is the expected one: it is tried first.
    """

    __slots__ = ("_dialect", "_other", "_watch", "events", "failed")

    def __init__(self, dialect: str | None = None) -> None:
        self.events = 0
        self.failed: Any = None
        self._dialect = dialect
        self._watch: Watch | None = None
        self._other = False

    @property
    def known(self) -> bool:
        """True if an event of a known dialect, or an error, has arrived."""
        return self._watch is not None or self.failed is not None

    @property
    def begun(self) -> bool:
        """True if content has arrived."""
        return self._other or (self._watch is not None and self._watch.begun)

    @property
    def ended(self) -> bool:
        """True if the last event has arrived."""
        return self._watch is not None and self._watch.ended

    @property
    def report(self) -> Any:
        """The usage report once it is complete; None before."""
        return self._watch.report if self._watch is not None else None

    def take(self, event: Any) -> None:
        """Read one event: a mapping or an SDK object; anything else is content."""
        self.events += 1
        kind = pick(event, "type")
        if kind == "chunk":  # the OpenAI SDK's own stream wraps the chunk that it read
            event, kind = pick(event, "chunk"), None
        if self._watch is not None and self._watch.see(event):
            self.failed = self._watch.failed or self.failed
        elif kind == "error" or (kind is None and pick(event, "error")):
            self.failed = event
        elif self._watch is None:
            self._watch = self._find(event)
            self._other = self._other or self._watch is None
            self.failed = self._watch.failed if self._watch is not None else None
        else:
            self._other = True

    def _find(self, event: Any) -> Watch | None:
        """Return a watch for the dialect of this event, after it has read the event."""
        names = (self._dialect, *registry.DIALECTS) if self._dialect else registry.DIALECTS
        for name in names:
            watch = registry.find(name).make_watch()
            if watch.see(event):
                return watch
        return None


@dataclass(slots=True)
class Opened:
    """A stream with its first events read: `stream` is what the client returned."""

    stream: Any
    events: Any
    tracker: Tracker
    held: list[Any] = field(default_factory=list)
    over: bool = False

    @property
    def trouble(self) -> Trouble | None:
        """The failure before any content, or None."""
        failed = self.tracker.failed
        if failed is not None:
            body = as_mapping(failed)
            return Trouble(classify_error(200, body), text=str(body))
        empty = self.over and not (self.tracker.begun or self.tracker.ended)
        if empty and (self.tracker.known or _own(self.stream) is not None):
            return Trouble(
                ErrorKind("other"), lost=True, text="the stream ended before any content"
            )
        return None

    def hold(self, event: Any) -> bool:
        """Hold an early event back; return whether reading can stop."""
        self.tracker.take(event)
        self.held.append(event)
        told = self.tracker.begun or self.tracker.failed is not None
        return told or len(self.held) >= HELD


def open_stream(stream: Any) -> Opened:
    """Read the first events of a stream. Raises the stream's own errors after closing it."""
    source = _own(stream)
    if (source is None and not hasattr(stream, "__iter__")) or hasattr(stream, "model_dump"):
        _no_stream(stream, "stream")
    events = _events(source) if source is not None else iter(stream)
    made = Opened(stream, events, Tracker())
    try:
        for event in events:
            if made.hold(event):
                return made
    except BaseException:
        close(stream)
        raise
    made.over = True
    return made


async def aopen_stream(stream: Any) -> Opened:
    """Do as `open_stream` with an async stream."""
    source = _own(stream)
    if source is None and not hasattr(stream, "__aiter__"):
        _no_stream(stream, "astream")
    events = _events(source) if source is not None else stream.__aiter__()
    made = Opened(stream, events, Tracker())
    try:
        async for event in events:
            if made.hold(event):
                return made
    except BaseException:
        await aclose(stream)
        raise
    made.over = True
    return made


def explain_stop(tracker: Tracker) -> str:
    """Return a sentence if a stream ended too soon, otherwise ""."""
    if not tracker.known or tracker.ended or tracker.failed is not None:
        return ""
    return (
        f"the stream stopped after {tracker.events:,} events without its terminal one: the answer "
        "may be cut short, and nothing is learned from it"
    )


def watch_stream(made: Opened, settle: Settle) -> Any:
    """Return the stream for the caller: the SDK's own object if it is one, otherwise a `Relay`.

    `settle` is called with the tracker once the report is complete, or the stream has ended.
    """
    events = _watching(made.held, made.events, made.tracker, settle)
    return made.stream if _replace_source(made.stream, events) else Relay(made.stream, events)


def awatch_stream(made: Opened, settle: AsyncSettle) -> Any:
    """Do as `watch_stream` with an async stream."""
    events = _awatching(made.held, made.events, made.tracker, settle)
    return made.stream if _replace_source(made.stream, events) else AsyncRelay(made.stream, events)


def _watching(
    held: list[Any], events: Iterator[Any], tracker: Tracker, settle: Settle
) -> Iterator[Any]:
    yield from _settle_held(held, tracker, settle)
    for event in events:
        yield _read(event, tracker, settle)
    _over(tracker, settle)


async def _awatching(
    held: list[Any], events: AsyncIterator[Any], tracker: Tracker, settle: AsyncSettle
) -> AsyncIterator[Any]:
    if tracker.report is not None:
        await settle(tracker)
    for event in held:
        yield event
    async for event in events:
        if _completes(event, tracker):
            await settle(tracker)
        yield event
    if tracker.report is None:
        await settle(tracker)


def _settle_held(held: list[Any], tracker: Tracker, settle: Settle) -> list[Any]:
    """Return the events held back; an answer without content may be complete with them."""
    if tracker.report is not None:
        settle(tracker)
    return held


def _read(event: Any, tracker: Tracker, settle: Settle) -> Any:
    """Return an event; settle at the one that completes the report, as many stop reading there."""
    if _completes(event, tracker):
        settle(tracker)
    return event


def _completes(event: Any, tracker: Tracker) -> bool:
    """Read an event; tell whether it completes the report."""
    before = tracker.report
    tracker.take(event)
    return before is None and tracker.report is not None


def _over(tracker: Tracker, settle: Settle) -> None:
    """Settle a stream that ended without a report."""
    if tracker.report is None:
        settle(tracker)


class Relay:
    """The events of a stream that is not an SDK's own; closing it closes their source.

    All other attributes are those of the stream.
    """

    def __init__(self, stream: Any, events: Any) -> None:
        self.stream = stream
        self._events = events

    def __getattr__(self, name: str) -> Any:
        if name in ("stream", "_events"):  # a copy under construction has none yet
            raise AttributeError(name)
        return getattr(self.stream, name)

    def __iter__(self) -> Relay:
        return self

    def __next__(self) -> Any:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream; unread events teach nothing."""
        self._events.close()
        close(self.stream)


class AsyncRelay:
    """The async version of `Relay`."""

    def __init__(self, stream: Any, events: Any) -> None:
        self.stream = stream
        self._events = events

    def __getattr__(self, name: str) -> Any:
        if name in ("stream", "_events"):  # a copy under construction has none yet
            raise AttributeError(name)
        return getattr(self.stream, name)

    def __aiter__(self) -> AsyncRelay:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the stream; unread events teach nothing."""
        await self._events.aclose()
        await aclose(self.stream)


def close(stream: Any) -> None:
    """Close an object that a client returned, if it can be closed."""
    end = getattr(stream, "close", None)
    if callable(end):
        end()


async def aclose(stream: Any) -> None:
    """Do as `close`: async generators have `aclose`, the SDKs' streams an async `close`."""
    end = getattr(stream, "aclose", None) or getattr(stream, "close", None)
    done = end() if callable(end) else None
    if inspect.isawaitable(done):
        await done


def _own(stream: Any) -> Any:
    """Return the SDK's own stream inside the object that a client returned, or None.

    OpenAI's and Anthropic's streams read their events through `_iterator` and have a `response`;
    their helpers hold such a stream as `_raw_stream`. Mistral's reads through `generator`.
    Replacing the source there leaves the caller the SDK's own object, with its methods.
    """
    source = getattr(stream, "_raw_stream", stream)
    return source if _find_events(source) is not None and hasattr(source, "response") else None


def _find_events(source: Any) -> str | None:
    """Return the attribute through which an SDK's stream reads its events."""
    return next((name for name in ("_iterator", "generator") if hasattr(source, name)), None)


def _events(source: Any) -> Any:
    return getattr(source, _find_events(source) or "")


def _replace_source(stream: Any, events: Any) -> bool:
    """Make an SDK's stream read from `events`; return whether it is one."""
    source = _own(stream)
    if source is None:
        return False
    setattr(source, _find_events(source) or "", events)
    return True


def _no_stream(stream: Any, twin: str) -> NoReturn:
    kind = type(stream).__name__
    if hasattr(stream, "__enter__") or hasattr(stream, "__aenter__"):
        raise ConfigurationError(
            f"Guard.{twin} takes a function that returns a stream, such as "
            f"client.chat.completions.create, and the call returned {kind}, which opens one in a "
            "with block: use that of ullage.wrap(client), which is guarded too"
        )
    raise ConfigurationError(
        f"Guard.{twin} wants a stream of events, and the call returned {kind}: have it stream, "
        "use call or acall for a whole answer, or astream for an async stream"
    )

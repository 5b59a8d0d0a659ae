"""Calls of a turn to its model: over HTTP, or through the caller's own streaming object.

Both return the same answers and raise the same failures. The module does not know turns or guards.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from ullage.core.dialects import registry
from ullage.core.dialects.reply import Delta, Reply, assign_ids
from ullage.core.messages.fields import mapping
from ullage.providers import CallFailed, Client, Provider, bodies
from ullage.sdk.errors import classify_exception, lost_connection

if TYPE_CHECKING:
    from ullage.core.dialects.usage import Usage
    from ullage.providers.client import Wait
    from ullage.providers.listening import Hear

PIECES: Final = "a piece is a text, an event of the dialect, or a Reply as the last one"


class Caller(Protocol):
    """A client of a model; raises CallFailed."""

    async def send(
        self, fields: Mapping[str, Any], hear: Hear, *, wait: Wait | None = None
    ) -> Reply:
        """Return the model's answer; `hear` receives the parts to show as they arrive."""
        ...

    async def aclose(self) -> None:
        """Release its resources."""
        ...


def open_caller(provider: Provider) -> Caller:
    """Return the client for a provider."""
    return Client(provider) if provider.source is None else StreamCaller(provider)


class StreamCaller:
    """Calls an object of the caller's: one stream for each request, without retries."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def send(
        self, fields: Mapping[str, Any], hear: Hear, *, wait: Wait | None = None
    ) -> Reply:
        """Return the answer from the pieces of a stream; `hear` receives each piece."""
        del wait
        made = _Pieces(self._provider, hear)
        source = self._provider.source
        assert source is not None  # noqa: S101 - `open_caller` looks
        try:
            await self._read(source.stream(bodies.body(self._provider, fields)), made)
        except CallFailed:
            raise
        except Exception as error:
            raise made.describe(error) from error
        return made.check(made.reply())

    async def aclose(self) -> None:
        """Do nothing: a stream is closed with its request."""

    async def _read(self, pieces: AsyncIterator[object], made: _Pieces) -> None:
        """Take all pieces; the stream is closed when this returns or raises."""
        limits, loop = self._provider.limits, asyncio.get_running_loop()
        patience, until = limits.stall_s, loop.time() + limits.answer_s
        try:
            while True:
                late = loop.time() + patience > until
                waiting = asyncio.timeout_at(until if late else loop.time() + patience)
                try:
                    async with waiting:
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not waiting.expired():
                        raise
                    silent = f"was silent for {patience:g} s, the longest that is waited"
                    said = limits.refuse_time() if late else silent
                    raise made.fail(said, stalled=True) from error
                made.take(piece)
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()


class _Pieces:
    """The pieces of one answer so far."""

    def __init__(self, provider: Provider, hear: Hear) -> None:
        self._name = f"{provider.model} ({type(provider.source).__name__})"
        self._salt = uuid.uuid4().hex
        self._into = registry.make_reader(provider.dialect, self._salt)
        self._hear = hear
        self._limits = provider.limits
        self._size = 0
        self._texts: list[str] = []
        self._events = 0
        self._whole: Reply | None = None

    def take(self, piece: object) -> None:
        """Take the next piece; raises CallFailed for an invalid one."""
        if self._whole is not None:
            raise self.fail(f"yielded {piece!r:.60} after a Reply: {PIECES}")
        if isinstance(piece, Reply):
            self._take_whole(piece)
        elif isinstance(piece, str):
            self._texts.append(piece)
            self._hear_piece(Delta("text_delta", piece))
        elif (event := mapping(piece)) is not None:
            self._take_event(event)
        else:
            raise self.fail(f"yielded {piece!r:.60}: {PIECES}")
        if self._texts and self._events:
            raise self.fail("yielded texts and events: one answer has either")

    def _take_whole(self, reply: Reply) -> None:
        asked = ((call.id, call.name, call.arguments) for call in reply.calls)
        report = reply.report or _report(reply.usage)
        self._whole = replace(reply, calls=assign_ids(asked, self._salt), report=report)
        if not self._texts and not self._events and reply.text:
            self._hear(Delta("text_delta", reply.text))

    def _take_event(self, event: Mapping[str, Any]) -> None:
        self._events += 1
        for delta in self._into.take(event):
            self._hear_piece(delta)
        if self._into.failed is not None:
            raise self.fail(f"reported an error within its answer: {self._into.failed!r:.300}")

    def _hear_piece(self, delta: Delta) -> None:
        self._size += len(delta.text)
        if self._size > self._limits.answer_bytes:
            most = self._limits.answer_bytes
            raise self.fail(f"answered with more than {most:,} characters, the most that is read")
        self._hear(delta)

    def check(self, reply: Reply) -> Reply:
        """Return an answer; raises CallFailed if it has too many calls."""
        if refused := self._limits.refuse_calls(len(reply.calls)):
            raise self.fail(refused)
        return reply

    def reply(self) -> Reply:
        """Return the answer; raises CallFailed if the stream ended before it did."""
        if self._whole is not None:
            return self._whole
        if not self._events:
            return Reply("".join(self._texts))
        if not self._into.ended:
            raise self.fail("ended its stream before the end of the answer", lost=True)
        return self._into.reply()

    def fail(self, said: str, **facts: Any) -> CallFailed:
        """Return the failure of this call, with the partial answer."""
        into, text = self._into, "".join(self._texts)
        begun = bool(text) or into.begun
        more = {"begun": begun, "called": into.called, "partial": text or into.text}
        return CallFailed(f"{self._name} {said}", **{**more, **facts})

    def describe(self, error: Exception) -> CallFailed:
        """Return the failure for an exception of the object."""
        kind, lost = classify_exception(error), lost_connection(error)
        status = getattr(error, "status_code", None)
        facts = {"kind": kind, "lost": lost, "status": status if type(status) is int else None}
        return self.fail(f"failed: {type(error).__name__}: {error}", **facts)


def _report(usage: Usage | None) -> Mapping[str, Any]:
    """Return a report with a usage in it, in the form that a guard learns from."""
    if usage is None:
        return {}
    cached = {"cached_tokens": usage.cache_read}
    return {
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.output + usage.reasoning,
            "prompt_tokens_details": cached,
        }
    }

"""The client's side of a request: the ASGI channels for its body and its answer.

The module knows neither upstreams nor guards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ullage.begun import wait_within
from ullage.proxy import answers
from ullage.proxy.body import RequestRefused, refuse_body

ECHO: Final = b"x-ullage-request-id"
"""The answer header with the id that the log uses for the request. `x-request-id` is the upstream's
own id, which its support asks for."""


UNWATCHED_S: Final = 0.02
"""Seconds before a client is watched: most short requests end sooner."""


class Gone(Exception):  # noqa: N818 - the client left; nobody is there to be told
    """The client has gone."""


class Left(Gone):
    """The client left while its request was being handled."""


class Channel:
    """The client's side of a request: reads its body, sends one answer."""

    def __init__(
        self, receive: Any, send: Any, patience_s: float | None = None, request_id: str = ""
    ) -> None:
        self.receive = receive
        self._id = request_id.encode()
        self._patience_s = patience_s
        self.begun = False
        self.ended = False
        self.gone = False
        self.status = 0
        self.code = self.why = ""
        self._send = send
        self._head: tuple[int, Any] | None = None

    async def send(self, message: Any) -> None:
        """Send an ASGI message and remember the status.

        Raises Gone if the client reads nothing for `patience_s` seconds.
        """
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            if self._id:
                message["headers"] = [*message["headers"], (ECHO, self._id)]
        try:
            await wait_within(self._patience_s, self._send(message))
        except TimeoutError as error:
            self.gone = True
            raise Gone from error

    async def read(self, most: int, take: Callable[[int], None]) -> bytes:
        """Return the body; raises RequestRefused beyond `most` bytes, errors of `take`, and Gone.

        `take` receives the size of each piece in bytes.
        """
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise refuse_body(most)
            take(len(piece))
            pieces.append(piece)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def run_watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work while the client is there; if it leaves, cancel the work and raise Left.

        Work that ends soon is done without watching the client.
        """
        worker = asyncio.current_task()
        assert worker is not None  # noqa: S101 - this is a coroutine, and some task runs it
        others, watchers = worker.cancelling(), list[asyncio.Task[None]]()

        def begin() -> None:
            watchers.append(asyncio.ensure_future(self._watch(worker)))

        timer = asyncio.get_running_loop().call_later(UNWATCHED_S, begin)
        try:
            await work
        except asyncio.CancelledError:
            if not self.gone or worker.uncancel() > others:
                raise
            raise Left from None
        finally:
            timer.cancel()
            for watcher in watchers:
                watcher.cancel()

    async def _watch(self, worker: asyncio.Task[Any]) -> None:
        """Cancel the worker once the client has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            continue
        if not self.ended:
            self.gone = True
            worker.cancel()

    async def begin(self, status: int, headers: Any) -> None:
        """Send the head of the answer."""
        self._head = None
        await self.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    def hold_head(self, status: int, headers: Any) -> None:
        """Send this head with the first bytes of the answer, instead of one that still waits.

        Once an answer has begun, its head cannot change.
        """
        if not self.begun:
            self._head = status, headers

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send a piece of the answer; an empty one does not begin it."""
        if self._head is not None:
            if more and not data:
                return
            await self.begin(*self._head)
        self.ended = not more
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(self, status: int, headers: Any, data: bytes) -> None:
        """Send a whole answer."""
        await self.begin(status, headers)
        await self.write(data, more=False)

    async def refuse(self, dialect: str, refused: RequestRefused) -> None:
        """Send an answer that the proxy itself wrote."""
        data = refused.body or answers.error(dialect, refused.status, refused.code, refused.text)
        if not self.begun:
            self.code = refused.code
            self.why = refused.text if refused.status >= 500 else ""
            await self.answer(refused.status, answers.headers(refused, data), data)

"""The client of the servers behind the proxy: bytes out, bytes in, nothing decoded or followed.

Behind a protocol of three methods, so that tests and other clients can stand in its place.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import aiohttp
from aiohttp import http_exceptions

from ullage.begun import Begun
from ullage.core.errors import ProviderError
from ullage.transport import Broken, find_proxy, make_tls

if TYPE_CHECKING:
    import ssl

    from ullage.config.serving import Serve

PIECE: Final = 65_536
"""Bytes of an answer that are taken at once: what a client does not read waits as it came."""

WAITING: Final = 16_384
"""Bytes of an answer that wait to be taken; beyond twice as many nothing is read from the upstream
until they are. What one read brought comes to it: 256 KiB at most, by the event loop."""

PLACES: Final = 256
"""URLs of which is known what their requests have in common; a client may put anything in one."""

TRIED: Final = ("3.13.", "3.14.")
"""Versions of aiohttp to whose connections small requests are written: what that takes is little
documented. With any other one all requests go by its session."""

CLOSED_S: Final = 1.0
"""How long to wait for sockets that are closed at once: a turn of the event loop or two."""

SWITCHED: Final = 101
"""The status of an answer that is of another protocol: the last of those that announce one."""

SHORT: Final = 8
"""Characters below which a key is a word like others."""

Headers = Sequence[tuple[bytes, bytes]]

Result = TypeVar("Result")


class Unreached(ProviderError):  # noqa: N818 - named for what happened
    """Report an upstream that could not be reached: nothing was sent.

    `waited` tells that nobody said so: the time to connect ran out.
    """

    code = "upstream_unreachable"
    waited = False


class UpstreamBroken(ProviderError):  # noqa: N818 - named for what happened
    """Report an upstream that broke off or fell silent."""

    code = "upstream_broken"


class Stalled(UpstreamBroken):
    """Report an upstream that fell silent: it may be at work still, so nothing is sent again."""

    code = "upstream_stalled"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way: the URL is the configuration's, the path the client's."""

    method: str
    url: str
    headers: Headers
    body: bytes


class Response(Protocol):
    """An answer of which the head is there."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raises Broken where it breaks off or falls silent."""
        ...

    async def aclose(self) -> None:
        """Let go; a body that was not read to its end is cut off."""
        ...


class Sender(Protocol):
    """Whoever sends requests to upstreams."""

    async def send(self, what: Sent) -> Response:
        """Send; return when the head is there. Raises Unreached, and Broken."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class AiohttpSender:
    """Send by aiohttp: no decoding, no redirects, no cookies.

    The way out, by a proxy or not, and the authorities are those of all requests (`transport`).
    `first_byte_s` bounds the wait for the head and for the first bytes of the body, `idle_s` that
    for any later ones; a client that reads slowly is no silence of the upstream.
    """

    def __init__(self, serve: Serve) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=serve.connect_s)
        self._patience = (serve.first_byte_s, serve.idle_s)
        self._tls: ssl.SSLContext | None = None
        self._places: dict[str, _Place] = {}
        self._knows_way = aiohttp.__version__.startswith(TRIED)
        connector = _Connector if self._knows_way else aiohttp.TCPConnector
        self._session = aiohttp.ClientSession(
            read_bufsize=WAITING,
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=connector(limit=0, ttl_dns_cache=30),
            timeout=timeout,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        )

    async def send(self, what: Sent) -> Response:
        """Send; return when the head is there."""
        first_s, _ = self._patience
        wait = _Wait()
        try:
            opened = await wait.within(first_s, self._open(what))
            if not 200 <= opened.status <= 599:
                wait.end()
                opened.cut()
                raise UpstreamBroken(f"the upstream answered with the status {opened.status}")
            return _Response(opened, self._patience, wait)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            away = Unreached(f"the upstream cannot be reached: {_describe_error(error)}")
            away.waited = isinstance(error, TimeoutError)
            raise away from error
        except TimeoutError as error:
            raise Stalled(f"the upstream gave no answer within {first_s:g} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamBroken(
                f"the upstream broke off before it answered: {_describe_error(error)}"
            ) from error

    async def _open(self, what: Sent) -> _Opened:
        """Send by the shorter way where it does, and return the answer's head."""
        route = self._route(what.url)
        is_small = what.method == "POST" and 0 < len(what.body) <= PIECE
        if is_small and self._knows_way and route["proxy"] is None:
            place = self._find_place(what.url, route["ssl"])
            head = None if place is None else place.write_head(what)
            if place is not None and head is not None:
                return await self._post(place, head + what.body)
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in what.headers]
        response = await self._session.request(
            what.method,
            _exact(what.url),
            data=what.body or None,
            headers=headers,
            allow_redirects=False,
            **route,
        )
        raw = response.raw_headers
        return _Opened(response.status, raw, response.content, response.release, response.close)

    def _find_place(self, url: str, tls: ssl.SSLContext | Literal[True]) -> _Place | None:
        """Return what is the same in all requests for a URL; None for one that carries a user."""
        found = self._places.get(url)
        if found is None:
            exact = _exact(url)
            if exact.raw_user is not None or exact.raw_password is not None:
                return None
            session, loop = self._session, asyncio.get_running_loop()
            asked = aiohttp.ClientRequest("POST", exact, session=session, loop=loop, ssl=tls)
            line = f"POST {exact.raw_path_qs} HTTP/1.1\r\nHost: {asked.headers['Host']}"
            if len(self._places) >= PLACES:
                self._places.clear()
            found = self._places[url] = _Place(asked, line.encode())
        return found

    async def _post(self, place: _Place, data: bytes) -> _Opened:
        """Write a request to a connection of the session's, and return the answer's head.

        What the session does beside that (redirects, cookies, credentials, a task that writes)
        has no part in such a request, and is half of what one costs.
        """
        asked, connector = place.asked, self._session.connector
        assert connector is not None  # noqa: S101 - the session is open
        try:
            connection = await connector.connect(asked, [], self._session.timeout)
        except TimeoutError as error:
            away = f"Connection timeout to host {asked.url}"
            raise aiohttp.ConnectionTimeoutError(away) from error
        try:
            protocol, transport = connection.protocol, connection.transport
            assert protocol is not None and transport is not None  # noqa: PT018, S101 - just taken
            protocol.set_response_params(
                read_until_eof=True, auto_decompress=False, read_bufsize=WAITING
            )
            transport.write(data)
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != SWITCHED:
                message, content = await protocol.read()
        except http_exceptions.HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientResponseError(
                asked.request_info, (), status=error.code, message=error.message
            ) from error
        except BaseException:
            connection.close()
            raise
        content.on_eof(connection.release)
        done, cut = connection.release, connection.close
        return _Opened(message.code, message.raw_headers, content, done, cut)

    def _route(self, url: str) -> dict[str, Any]:
        """Return by which proxy and with which authorities a URL is reached. Raises Unreached."""
        if url.startswith("https:") and self._tls is None:
            self._tls = make_tls()
        try:
            proxy = find_proxy(url)
        except Broken as error:
            raise Unreached(f"the upstream cannot be reached: {error}") from error
        return {"proxy": proxy, "ssl": True if self._tls is None else self._tls}

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Connector(aiohttp.TCPConnector):
    """Knows every connection until its socket is closed.

    The library forgets one that is to end: where TLS waits for the other side's farewell, or bytes
    wait to be sent, its socket would stay open behind the end of the event loop.
    """

    def __init__(self, *, limit: int, ttl_dns_cache: int) -> None:
        super().__init__(limit=limit, ttl_dns_cache=ttl_dns_cache)
        self._open: dict[asyncio.Future[None], asyncio.Transport] = {}

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the library's
    ) -> aiohttp.connector.Connection:
        """Return a connection, one of those that are kept or a new one."""
        connection = await super().connect(req, traces, timeout)
        protocol, transport = connection.protocol, connection.transport
        closed = None if protocol is None else protocol.closed
        if closed is not None and transport is not None and closed not in self._open:
            self._open[closed] = transport
            closed.add_done_callback(self._forget)
        return connection

    def _forget(self, closed: asyncio.Future[None]) -> None:
        del self._open[closed]
        if not closed.cancelled():
            closed.exception()  # else asyncio reports that nobody asked for it

    async def close(self, *, abort_ssl: bool = True) -> None:
        """Close all connections, also those that are ending; return when their sockets are."""
        for transport in self._open.values():
            transport.abort()
        if self._open:
            await asyncio.wait(self._open, timeout=CLOSED_S)
        await super().close(abort_ssl=abort_ssl)


@dataclass(frozen=True, slots=True)
class _Opened:
    """An answer whose head is there: its body, what frees its connection, and what cuts it."""

    status: int
    headers: Headers
    content: aiohttp.StreamReader
    release: Callable[[], object]
    cut: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Place:
    """What is the same in all requests for a URL: `asked` says to whom a connection is."""

    asked: aiohttp.ClientRequest
    line: bytes

    def write_head(self, what: Sent) -> bytes | None:
        """Return the head of a request; None for one that the session is to look at."""
        lines = [self.line, *[b"%b: %b" % pair for pair in what.headers]]
        lines.append(b"Content-Length: %d\r\n\r\n" % len(what.body))
        head = b"\r\n".join(lines)
        ends = len(lines) + 2  # one is in the line itself, one behind the last header
        plain = head.isascii() and b"\0" not in head
        return head if plain and head.count(b"\r") == head.count(b"\n") == ends else None


class _Response:
    def __init__(self, opened: _Opened, patience: tuple[float, float], wait: _Wait) -> None:
        self.status = opened.status
        self.headers: Headers = opened.headers
        self._opened = opened
        self._patience = patience
        self._wait = wait

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        wait_s, idle_s = self._patience
        wait, read = self._wait, self._opened.content.read
        try:
            while chunk := await wait.within(wait_s, read(PIECE)):
                yield chunk
                wait_s = idle_s
        except TimeoutError as error:
            raise Stalled(f"the upstream sent nothing for {wait_s:g} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamBroken(f"the upstream broke off: {_describe_error(error)}") from error
        finally:
            wait.end()

    async def aclose(self) -> None:
        """Let go: a body read to its end leaves the connection to others, else it is cut."""
        self._wait.end()
        if self._opened.content.at_eof():
            self._opened.release()
        else:
            self._opened.cut()


class _Wait:
    """Ends a wait for a head, or for a piece of a body, that lasts too long.

    One timer serves all of an answer: it is not set anew with each, but looks, when it rings,
    until when the wait under way may last. What is there already is not waited for.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._until = math.inf
        self._late = False

    async def within(self, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what is waited for; raises TimeoutError after so many seconds."""
        begun = Begun(work)
        if begun.is_done:
            return begun.result
        reader = self._reader = asyncio.current_task()
        assert reader is not None  # noqa: S101 - this is a coroutine, and some task runs it
        others = reader.cancelling()
        self._until, self._late = self._loop.time() + seconds, False
        if self._timer is None or self._timer.when() > self._until:
            self._set(self._until)
        try:
            result: Result = await begun
            if self._late:  # the work had done before it heard that it was to end
                reader.uncancel()
            return result
        except BaseException as error:
            self.end()
            ours = isinstance(error, asyncio.CancelledError) and self._late
            if ours and reader.uncancel() <= others:
                raise TimeoutError from None
            raise
        finally:
            self._until = math.inf

    def end(self) -> None:
        """Let the timer go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float) -> None:
        self.end()
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._until > self._loop.time():
            if self._until < math.inf:
                self._set(self._until)
        elif self._reader is not None:
            self._late = True
            self._reader.cancel()


class _Discreet:
    """An error of an upstream, without the operator's key: some repeat what they were sent."""

    def __init__(self, response: Response, key: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._key = key

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; as many stars stand for the key."""
        held, kept = b"", len(self._key) - 1
        async for chunk in self._response.chunks():
            data = (held + chunk).replace(self._key, b"*" * len(self._key))
            yield data[:-kept]
            held = data[-kept:]
        yield held

    async def aclose(self) -> None:
        """Let go."""
        await self._response.aclose()


def discreet(response: Response, key: str | None) -> Response:
    """Return an answer that does not tell the operator's key to the client."""
    if response.status < 400 or key is None or len(key) < SHORT:
        return response
    return _Discreet(response, key.encode("ascii"))


@lru_cache(maxsize=256)
def _exact(url: str) -> Any:
    """Return a URL whose path goes out as it is written."""
    import yarl

    return yarl.URL(url, encoded=True)


def _describe_error(error: BaseException) -> str:
    """Return what an error says, without the URL, and the bytes that a broken head is quoted by."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{type(error).__name__}: {error.message.partition(':')[0]}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

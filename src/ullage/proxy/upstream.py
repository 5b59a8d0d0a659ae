"""The client of the servers behind the proxy: bytes out, bytes in; it decodes and follows nothing.

It implements a protocol of few methods, so that tests and other clients can replace it.
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
"""Bytes of an answer that are read at once; bytes that a client does not take stay as they came."""

WAITING: Final = 16_384
"""Bytes of an answer that wait to be taken; at twice as many, reading from the upstream stops. The
last read may add up to 256 KiB, by the event loop."""

PLACES: Final = 256
"""URLs whose common request parts are cached; a client may put anything into a URL."""

TRIED: Final = ("3.13.", "3.14.")
"""Versions of aiohttp with connections to which small requests are written directly. The interface
for that is little documented, so with other versions all requests use the session."""

CLOSED_S: Final = 1.0
"""Seconds to wait for sockets that close at once: a turn of the event loop or two."""

SWITCHED: Final = 101
"""The status of an answer that switches to another protocol; other statuses from 100 to 199 only
precede an answer."""

SHORT: Final = 8
"""Shorter keys are treated as ordinary words."""

Headers = Sequence[tuple[bytes, bytes]]

Result = TypeVar("Result")


class Unreached(ProviderError):  # noqa: N818 - named for what happened
    """Report an upstream that could not be reached: nothing was sent.

    `waited` tells that the time to connect ran out without an answer.
    """

    code = "upstream_unreachable"
    waited = False


class UpstreamBroken(ProviderError):  # noqa: N818 - named for what happened
    """Report an upstream that broke off or fell silent."""

    code = "upstream_broken"


class Stalled(UpstreamBroken):
    """Report an upstream that fell silent: it may still work, so nothing is sent again."""

    code = "upstream_stalled"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way: the URL comes from the configuration, the path from the client."""

    method: str
    url: str
    headers: Headers
    body: bytes


class Response(Protocol):
    """An answer whose head has arrived."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; raises UpstreamBroken if it breaks off or falls silent."""
        ...

    async def aclose(self) -> None:
        """Close the answer; a body that was not read to its end is cut off."""
        ...


class Sender(Protocol):
    """An object that sends requests to upstreams."""

    async def send(self, what: Sent) -> Response:
        """Send; return when the head is there. Raises Unreached and UpstreamBroken."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class AiohttpSender:
    """Sends with aiohttp: no decoding, no redirects, no cookies.

    The route, through a proxy or not, and the authorities are those of all requests (`transport`).
    `first_byte_s` bounds the wait for the head and for the first bytes of the body, `idle_s` the
    wait for any later ones. A client that reads slowly does not count as a silent upstream.
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
        """Send by the shorter way if possible, and return the answer's head."""
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
        """Return the common parts of all requests for a URL, or None if the URL holds a user."""
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
        """Write a request to a connection of the session, and return the answer's head.

        Such a request does not need the session's other work (redirects, cookies, credentials, a
        writing task), which is half of the cost of a request.
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
        """Return the proxy and the authorities for a URL. Raises Unreached."""
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
    """Tracks every connection until its socket is closed.

    The library forgets a connection that is ending. If TLS waits for the other side to close, or
    bytes wait to be sent, its socket would stay open after the event loop has ended.
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
        """Return a kept connection, or a new one."""
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
            closed.exception()  # else asyncio logs it as never retrieved

    async def close(self, *, abort_ssl: bool = True) -> None:
        """Close all connections, including those that are ending; wait for their sockets."""
        for transport in self._open.values():
            transport.abort()
        if self._open:
            await asyncio.wait(self._open, timeout=CLOSED_S)
        await super().close(abort_ssl=abort_ssl)


@dataclass(frozen=True, slots=True)
class _Opened:
    """An answer whose head has arrived: its body, and functions to free or cut its connection."""

    status: int
    headers: Headers
    content: aiohttp.StreamReader
    release: Callable[[], object]
    cut: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Place:
    """The common parts of all requests for a URL: `asked` names the host of a connection."""

    asked: aiohttp.ClientRequest
    line: bytes

    def write_head(self, what: Sent) -> bytes | None:
        """Return the head of a request, or None if the session has to send it."""
        lines = [self.line, *[b"%b: %b" % pair for pair in what.headers]]
        lines.append(b"Content-Length: %d\r\n\r\n" % len(what.body))
        head = b"\r\n".join(lines)
        ends = len(lines) + 2  # one in the line itself, one after the last header
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
        """Close: a body read to its end frees the connection for others, else it is cut."""
        self._wait.end()
        if self._opened.content.at_eof():
            self._opened.release()
        else:
            self._opened.cut()


class _Wait:
    """Ends a wait for a head, or for a piece of a body, that lasts too long.

    One timer serves the whole answer. It is not set anew with each wait: when it rings, it checks
    how long the current wait may last. Data that is already there needs no wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._until = math.inf
        self._late = False

    async def within(self, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of the work; raises TimeoutError after so many seconds."""
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
            if self._late:  # the work ended before the cancellation reached it
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
        """Stop the timer."""
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
    """An upstream's error without the operator's key: some repeat the key that they received."""

    def __init__(self, response: Response, key: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._key = key

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, with stars in place of the key."""
        held, kept = b"", len(self._key) - 1
        async for chunk in self._response.chunks():
            data = (held + chunk).replace(self._key, b"*" * len(self._key))
            yield data[:-kept]
            held = data[-kept:]
        yield held

    async def aclose(self) -> None:
        """Close the answer."""
        await self._response.aclose()


def discreet(response: Response, key: str | None) -> Response:
    """Return an answer that does not show the operator's key to the client."""
    if response.status < 400 or key is None or len(key) < SHORT:
        return response
    return _Discreet(response, key.encode("ascii"))


@lru_cache(maxsize=256)
def _exact(url: str) -> Any:
    """Return a URL whose path is sent as it is written."""
    import yarl

    return yarl.URL(url, encoded=True)


def _describe_error(error: BaseException) -> str:
    """Return the text of an error without the URL and the quoted bytes of a broken head."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{type(error).__name__}: {error.message.partition(':')[0]}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

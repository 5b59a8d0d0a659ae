"""The client of the servers behind the proxy: bytes out, bytes in, nothing decoded or followed.

Behind a protocol of three methods, so that tests and other clients can stand in its place.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import aiohttp

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
        self._session = aiohttp.ClientSession(
            read_bufsize=WAITING,
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
            timeout=timeout,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        )

    async def send(self, what: Sent) -> Response:
        """Send; return when the head is there."""
        first_s, _ = self._patience
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in what.headers]
        wait = _Wait()
        try:
            response = await wait.within(
                first_s,
                self._session.request(
                    what.method,
                    _exact(what.url),
                    data=what.body or None,
                    headers=headers,
                    allow_redirects=False,
                    **self._route(what.url),
                ),
            )
            if not 200 <= response.status <= 599:
                wait.end()
                response.close()
                raise UpstreamBroken(f"the upstream answered with the status {response.status}")
            return _Response(response, self._patience, wait)
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


class _Response:
    def __init__(
        self, response: aiohttp.ClientResponse, patience: tuple[float, float], wait: _Wait
    ) -> None:
        self.status = response.status
        self.headers: Headers = response.raw_headers
        self._response = response
        self._patience = patience
        self._wait = wait

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        wait_s, idle_s = self._patience
        wait, read = self._wait, self._response.content.read
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
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


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

"""The one HTTP client of the library: limits, time-outs and redaction.

`Transport` does small JSON exchanges; a network error there is a response with a `fault`, not an
exception. `StreamingClient` opens responses that are read as they arrive, and `pull` opens files,
which may be long; both raise `Broken`. This module knows URLs and bytes, and nothing of models or
windows. The client library, httpx2 or httpx, is imported on first use, so that `import ullage`
stays fast.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from ullage.core.errors import ConfigurationError, ProviderError
from ullage.core.messages.redaction import Redactor

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator, Mapping

    import httpx2

CONNECT_TIMEOUT_S: Final = 2.0
"""Short, so that an absent server fails fast (window page, caches)."""

READ_TIMEOUT_S: Final = 30.0
"""Long, because a router may have to load a model; the next chat would wait for that anyway."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""The largest body that is read; the longest model listing seen is about 2 MiB."""


CLIENT: Final = "ULLAGE_HTTP_CLIENT"
"""The environment variable that names the client library."""

SECRET_LENGTH: Final = 4
"""Least characters of a key that is masked as a secret; a shorter one would mask parts of words."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time-outs in seconds."""

    connect_s: float = CONNECT_TIMEOUT_S
    read_s: float = READ_TIMEOUT_S


Auth = Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "none"]
"""How a key is sent. `api-key` means `Authorization: Api-Key K`; with `none` it is not sent."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: GET without `body`, POST with it (sent as JSON).

    `extra` are further headers without secrets, in lower case. `private` are headers that may
    contain secrets; they override all others.
    """

    url: str
    body: Mapping[str, Any] | None = None
    api_key: str | None = field(default=None, repr=False)
    auth: Auth = "bearer"
    extra: tuple[tuple[str, str], ...] = ()
    private: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def headers(self) -> dict[str, str]:
        """Return the headers; the key goes to the host of `url` and nowhere else.

        A user and password in the URL are sent as a header, because the client library logs URLs.
        """
        headers = dict(self.extra)
        basic = _basic(self.url)
        if basic:
            headers["authorization"] = f"Basic {basic}"
        elif self.api_key and self.auth in ("bearer", "api-key"):
            scheme = "Bearer" if self.auth == "bearer" else "Api-Key"
            headers["authorization"] = f"{scheme} {self.api_key}"
        if self.api_key and self.auth not in ("bearer", "api-key", "none"):
            headers[self.auth] = self.api_key
        return {**headers, **dict(self.private)}

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that no message may quote: key, private headers, password in the URL."""
        try:
            password = urlsplit(self.url).password or ""
        except ValueError:  # not a URL
            password = ""
        told = (
            self.api_key,
            password,
            unquote(password),
            _basic(self.url),
            *(value for _, value in self.private),
        )
        return tuple(text for text in told if text and len(text) >= SECRET_LENGTH)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; if there was none, `status` is 0 and `fault` describes the error."""

    status: int
    body: bytes = b""
    fault: str = ""

    def json(self) -> Any:
        """Return the parsed body, or None if it is not JSON (or nested too deeply)."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def load_library() -> Any:
    """Return httpx2, or httpx if ULLAGE_HTTP_CLIENT names it or httpx2 cannot be imported.

    This module uses only features that both have. Raises ConfigurationError if neither is
    available.
    """
    named = os.environ.get(CLIENT, "")
    if named not in ("", "httpx", "httpx2"):
        raise ConfigurationError(f"{CLIENT} is {named!r:.80}: name httpx2 or httpx")
    with contextlib.suppress(ImportError):
        if named != "httpx":
            import httpx2

            return httpx2
    with contextlib.suppress(ImportError):
        if named != "httpx2":
            import httpx

            return httpx
    missing = named or "httpx2"
    raise ConfigurationError(f"{missing} cannot be imported: install it: pip install {missing}")


@functools.lru_cache(maxsize=1_000)
def loopback(url: str) -> bool:
    """Tell whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def find_proxy(url: str) -> str | None:
    """Return the proxy for requests to a URL, or None for a direct connection.

    It comes from HTTPS_PROXY, HTTP_PROXY and NO_PROXY or from the system's settings (Python's
    `urllib.request.getproxies`). Requests to this machine use no proxy. Raises Broken for a proxy
    that is neither http nor https.
    """
    if loopback(url):
        return None
    from urllib.request import getproxies, proxy_bypass

    parts, known = urlsplit(url), getproxies()
    found = known.get(parts.scheme) or known.get("all")
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    found = found if "://" in found else f"http://{found}"
    if not found.startswith(("http://", "https://")):
        raise Broken(
            f"requests to {parts.hostname} must use the proxy {mask_url(found)}, and only http and "
            "https proxies are supported: name one in HTTPS_PROXY, or the host in NO_PROXY",
            "unsendable",
        )
    return found


def make_tls() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities; with httpx, certifi's.

    SSL_CERT_FILE and SSL_CERT_DIR override them.
    """
    context: ssl.SSLContext = load_library().create_ssl_context()
    return context


def mask_url(url: str) -> str:
    """Return a URL for messages: without the user and password that it may contain."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


_LOOPBACK: Final = re.compile(r"127(?:\.\d{1,3}){3}")


class Transport:
    """A sync and async HTTP client, made anew per call: exchanges are few and small."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()

    def ask(self, what: HttpRequest) -> HttpResponse:
        """Send one request and read the response; network trouble never raises an exception."""
        library = load_library()
        try:
            call, options = _call(what), _options(what.url, self._timeouts)
        except (Broken, TypeError, ValueError, RecursionError) as error:
            return HttpResponse(0, fault=_fault(what, error))
        try:
            with (
                library.Client(**options) as client,
                client.stream(**call) as response,
            ):
                return _answer(response.status_code, response.iter_bytes())
        except (library.HTTPError, library.InvalidURL, OSError, ValueError) as error:
            return HttpResponse(0, fault=_fault(what, error))

    async def aask(self, what: HttpRequest) -> HttpResponse:
        """Do as `ask`, without blocking the event loop."""
        library = load_library()
        try:
            call, options = _call(what), _options(what.url, self._timeouts)
        except (Broken, TypeError, ValueError, RecursionError) as error:
            return HttpResponse(0, fault=_fault(what, error))
        try:
            async with (
                library.AsyncClient(**options) as client,
                client.stream(**call) as response,
            ):
                chunks = []
                size = 0
                async for chunk in response.aiter_bytes():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MOST_BYTES:
                        break
                return _answer(response.status_code, chunks)
        except (library.HTTPError, library.InvalidURL, OSError, ValueError) as error:
            return HttpResponse(0, fault=_fault(what, error))


def _options(url: str, limits: Timeouts) -> dict[str, Any]:
    """Return the arguments of a client for a URL."""
    import ssl

    library = load_library()

    timeout = library.Timeout(limits.read_s, connect=limits.connect_s)
    # Reading the root certificates takes 25 ms; a context without them trusts no server.
    plain = urlsplit(url).scheme == "http"
    return {
        "timeout": timeout,
        "follow_redirects": False,
        "trust_env": False,
        "proxy": find_proxy(url),
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else make_tls(),
    }


How = Literal["unsendable", "unreached", "stalled", "lost"]
"""How an exchange broke: a faulty request, no server, no more bytes, or a broken connection."""


class Broken(ProviderError):  # noqa: N818 - named for what happened to the exchange
    """Report an exchange that did not finish; `how` tells how it broke."""

    code = "broken"

    def __init__(self, message: str, how: How) -> None:
        self.how = how
        super().__init__(message)


class StreamingClient:
    """Open responses that are read as they arrive; connections are kept for later requests.

    Belongs to one server and one event loop, where it must be closed. Redirects are not followed.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._client: httpx2.AsyncClient | None = None

    async def open(self, what: HttpRequest) -> Incoming:
        """Send a request and return its response once the status has arrived. Raises Broken.

        Close the returned object; a cancellation closes the connection.
        """
        library = load_library()
        try:
            if self._client is None:
                self._client = library.AsyncClient(**_options(what.url, self._timeouts))
            request = self._client.build_request(**_call(what))
        except (library.InvalidURL, TypeError, ValueError, RecursionError) as error:
            broken = Broken(_fault(what, error), "unsendable")
        else:
            try:
                return Incoming(what, await self._client.send(request, stream=True))
            except (library.HTTPError, OSError, ValueError) as error:
                broken = _translate_error(what, error)
        raise broken  # here, so that its context has no library error that quotes the key

    async def aclose(self) -> None:
        """Close the connections. The next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class Incoming:
    """A response that is arriving: its status, its headers with lower-case names, and its bytes."""

    def __init__(self, what: HttpRequest, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers)
        self._what = what
        self._response = response
        self._source = response.aiter_bytes()

    async def next(self) -> bytes | None:
        """Return the next bytes, or None at the end. Raises Broken."""
        try:
            return await anext(self._source, None)
        except (load_library().HTTPError, OSError) as error:
            broken = _translate_error(self._what, error)
        raise broken

    async def body(self, most_bytes: int = MOST_BYTES) -> bytes:
        """Return the body, at most its first `most_bytes`. Raises Broken."""
        body = bytearray()
        while len(body) < most_bytes and (chunk := await self.next()) is not None:
            body += chunk
        return bytes(body[:most_bytes])

    async def aclose(self) -> None:
        """End the response; if bytes are left, the connection is closed."""
        await self._source.aclose()
        await self._response.aclose()


@dataclass(frozen=True, slots=True)
class Route:
    """How files are reached, in addition to the environment's settings.

    `proxy` is the proxy's URL. `authorities` is a PEM file of additional trusted certificates.
    `unchecked` names hosts whose certificates are not checked.
    """

    proxy: str | None = field(default=None, repr=False)
    authorities: str | None = None
    unchecked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pull:
    """A file that is arriving, from offset `start` to `size` (None if unknown).

    `url` is the final URL after all redirects.
    """

    status: int
    url: str
    start: int
    size: int | None
    blocks: Iterator[bytes]


PATIENT: Final = Timeouts(10.0, 60.0)
"""For files from far away: one minute without bytes is a stall."""


@contextlib.contextmanager
def pull(what: HttpRequest, route: Route, *, skip: int = 0) -> Iterator[Pull]:
    """Open a file, from byte `skip` on if the server can do that. Raises Broken.

    Redirects are followed. The key stays with its host: the library drops it for other hosts.
    Reading `blocks` raises Broken too.
    """
    library = load_library()

    try:
        client = library.Client(**_make_client_options(what, route))
        call = _call(what)
        call["headers"]["accept-encoding"] = "identity"
        if skip:
            call["headers"]["range"] = f"bytes={skip}-"
    except (library.InvalidURL, OSError, ValueError) as error:
        raise Broken(_fault(what, error), "unsendable") from None
    with client:
        try:
            response = client.send(client.build_request(**call), stream=True)
        except (library.HTTPError, library.InvalidURL, OSError, ValueError) as error:
            broken = _translate_error(what, error)
        else:
            with contextlib.closing(response):
                yield _make_pull(what, response)
            return
    raise broken  # here, as in `StreamingClient.open`


def _make_client_options(what: HttpRequest, route: Route) -> dict[str, Any]:
    """Return the arguments of a client that follows redirects on this route."""
    chosen = {**_options(what.url, PATIENT), "follow_redirects": True, "max_redirects": 5}
    chosen["verify"] = make_tls()  # also for http: a redirect may lead to an https host
    if route.proxy is not None:
        chosen["proxy"] = route.proxy
    if urlsplit(what.url).hostname in route.unchecked:
        chosen["verify"] = False
    elif route.authorities is not None:
        chosen["verify"].load_verify_locations(route.authorities)
    return chosen


_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
"""The header of a partial response (RFC 9110, section 14.4)."""


def _make_pull(what: HttpRequest, response: httpx2.Response) -> Pull:
    start, size = 0, None
    length = response.headers.get("content-length", "")
    if response.status_code == 206:
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        if found is None:
            raise Broken("the server sent a part of the file and does not say which", "lost")
        start, size = int(found[1]), int(found[2]) if found[2] != "*" else None
    elif length.isdecimal():
        size = int(length)
    return Pull(response.status_code, str(response.url), start, size, _blocks(what, response))


def _blocks(what: HttpRequest, response: httpx2.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes()  # as they arrive, so that bytes before a break are kept
        return
    except (load_library().HTTPError, OSError) as error:
        broken = _translate_error(what, error)
    raise broken


def _translate_error(what: HttpRequest, error: Exception) -> Broken:
    """Return the meaning of an exception of the client library."""
    library = load_library()

    unreached = (
        library.ConnectError,
        library.ConnectTimeout,
        library.PoolTimeout,
        library.ProxyError,
    )
    how: How = "lost"
    if isinstance(error, unreached):
        how = "unreached"
    elif isinstance(error, library.TimeoutException):
        how = "stalled"
    elif isinstance(error, library.UnsupportedProtocol | library.LocalProtocolError | ValueError):
        how = "unsendable"
    return Broken(_fault(what, error), how)


def _basic(url: str) -> str:
    """Return user and password of a URL in the form of HTTP basic authentication."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if not parts.password and not parts.username:
        return ""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return b64encode(pair.encode("utf-8", "replace")).decode("ascii")


def _call(what: HttpRequest) -> dict[str, Any]:
    """Return the arguments of the exchange. Raises if JSON cannot represent the body."""
    url = mask_url(what.url) if _basic(what.url) else what.url
    if what.body is None:
        return {"method": "GET", "url": url, "headers": what.headers()}
    # ASCII, so that a lone surrogate is sent as the escape that it was.
    content = json.dumps(what.body, default=str).encode("ascii")
    headers = {**what.headers(), "content-type": "application/json"}
    return {"method": "POST", "url": url, "content": content, "headers": headers}


def _answer(status: int, chunks: Any) -> HttpResponse:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            return HttpResponse(0, fault=f"the answer is longer than {MOST_BYTES:,} bytes")
    return HttpResponse(status, bytes(body))


def _fault(what: HttpRequest, error: Exception) -> str:
    """Describe an error without the key, which some libraries quote with the request."""
    named = "" if isinstance(error, Broken) else f"{type(error).__name__}: "
    text = f"{named}{error}" if str(error) else type(error).__name__
    return redact(text, what.secrets())


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets, also in their forms in JSON, URLs and basic authentication."""
    return Redactor(secrets, SECRET_LENGTH).text(text)

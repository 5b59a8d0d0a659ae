"""The one HTTP client of the library: small JSON exchanges with limits, time-outs and redaction.

It knows URLs and bytes, nothing of models or windows. A server that cannot be asked is an answer
(`Answer.fault`), not an exception. The client library is imported on first use: `import ullage`
stays light.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

CONNECT_TIMEOUT_S: Final = 2.0
"""A server that is not there fails fast (window page, caches)."""

READ_TIMEOUT_S: Final = 30.0
"""A router may have to load a cold model first, which the next chat would wait for anyway."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""The largest body that is read; the longest model listing seen is about 2 MiB."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds."""

    connect_s: float = CONNECT_TIMEOUT_S
    read_s: float = READ_TIMEOUT_S


Auth = Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "none"]
"""How a key travels. `api-key` is `Authorization: Api-Key K`; with `none` it stays at home."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: GET without `body`, POST with it (sent as JSON).

    `extra` are further headers, in lower case; they hold no secret.
    """

    url: str
    body: Mapping[str, Any] | None = None
    api_key: str | None = field(default=None, repr=False)
    auth: Auth = "bearer"
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> dict[str, str]:
        """Return the headers; the key goes to the host of `url` and nowhere else."""
        headers = dict(self.extra)
        if not self.api_key or self.auth == "none":
            return headers
        if self.auth in ("bearer", "api-key"):
            scheme = "Bearer" if self.auth == "bearer" else "Api-Key"
            return {**headers, "authorization": f"{scheme} {self.api_key}"}
        return {**headers, self.auth: self.api_key}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `status` 0 and a `fault` in words when nothing did."""

    status: int
    body: bytes = b""
    fault: str = ""

    def json(self) -> Any:
        """Return the parsed body, or None when it is no JSON (or nested beyond all reason)."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def loopback(url: str) -> bool:
    """Tell whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def shown(url: str) -> str:
    """Return a URL as it may stand in a message: without the user and password it may hold."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


_LOOPBACK: Final = re.compile(r"127(?:\.\d{1,3}){3}")


class Transport:
    """Ask servers, synchronously or not. Clients are made per call: exchanges are few and small."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()

    def ask(self, what: Ask) -> Answer:
        """Send one request and read the answer; never raises for network trouble."""
        import httpx2

        try:
            call = _call(what)
        except (TypeError, ValueError, RecursionError) as error:
            return Answer(0, fault=_fault(what, error))
        try:
            with (
                httpx2.Client(**self._options(what.url)) as client,
                client.stream(**call) as response,
            ):
                return _answer(response.status_code, response.iter_bytes())
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return Answer(0, fault=_fault(what, error))

    async def aask(self, what: Ask) -> Answer:
        """Do as `ask`, without blocking the event loop."""
        import httpx2

        try:
            call = _call(what)
        except (TypeError, ValueError, RecursionError) as error:
            return Answer(0, fault=_fault(what, error))
        try:
            async with (
                httpx2.AsyncClient(**self._options(what.url)) as client,
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
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return Answer(0, fault=_fault(what, error))

    def _options(self, url: str) -> dict[str, Any]:
        import ssl

        import httpx2

        limits = self._timeouts
        timeout: httpx2.Timeout = httpx2.Timeout(limits.read_s, connect=limits.connect_s)
        options = {"timeout": timeout, "follow_redirects": False, "trust_env": not loopback(url)}
        if urlsplit(url).scheme == "http":
            # Reading the root certificates takes 25 ms; a context without any trusts nobody.
            options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return options


def _call(what: Ask) -> dict[str, Any]:
    """Return the arguments of the exchange. Raises for a body that JSON cannot carry."""
    if what.body is None:
        return {"method": "GET", "url": what.url, "headers": what.headers()}
    # ASCII, so that a lone surrogate travels as the escape that it came as.
    content = json.dumps(what.body, default=str).encode("ascii")
    headers = {**what.headers(), "content-type": "application/json"}
    return {"method": "POST", "url": what.url, "content": content, "headers": headers}


def _answer(status: int, chunks: Any) -> Answer:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            return Answer(0, fault=f"the answer is longer than {MOST_BYTES:,} bytes")
    return Answer(status, bytes(body))


def _fault(what: Ask, error: Exception) -> str:
    """Say what went wrong without the key, which some libraries quote with the request."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    key = what.api_key
    if not key:
        return text
    # Also as a library shows bytes: with its line ends escaped.
    return text.replace(key, "[redacted]").replace(repr(key)[1:-1], "[redacted]")

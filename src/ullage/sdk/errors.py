"""Reads the exceptions of HTTP clients and SDKs: what they mean for a window.

It uses only what they all have (a status, a body, headers, a cause), so that no SDK is imported.
`core.dialects.overflow` reads the wording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ullage.core.dialects.overflow import classify
from ullage.core.errors import ErrorKind


def classify_error(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> ErrorKind:
    """Classify an error response: `body` is text, bytes or parsed JSON. Never raises.

    A `body` of "" is known to be empty; None means unknown. `headers` are those of the response.
    """
    return classify(status, body, headers=headers)


def classify_exception(error: BaseException) -> ErrorKind:
    """Classify an exception of the OpenAI or Anthropic SDK, httpx, aiohttp, or any other.

    Reads `status_code` or `status`, then `body`, the response's text, and the message; then the
    same of its cause, and of the members of a group. A certain reading is preferred to a likely
    one, and a reading by code to one by words, because a framework's error quotes its cause among
    its own words. A broken connection says nothing about the request.
    """
    if lost_connection(error):
        return ErrorKind("other")
    worded: ErrorKind | None = None
    likely: ErrorKind | None = None
    for link in _chain(error):
        for kind in _readings(link):
            if kind.kind == "other" and kind.structured:
                return kind  # the code excludes an overflow, whatever the words quote
            if kind.kind == "other":
                continue
            if kind.certainty != "certain":
                likely = likely or kind
            elif kind.structured:
                return kind
            else:
                worded = worded or kind
    return worded or likely or ErrorKind("other")


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failure of one attempt: its meaning for the window, and its text.

    `lost` says that the connection broke, so that the request may or may not have been too large;
    `away` says that no server could be reached.
    """

    kind: ErrorKind
    lost: bool = False
    text: str = ""
    away: bool = False


def read_trouble(error: BaseException) -> Trouble:
    """Return the meaning of an exception for the request that it ended."""
    kind, lost = classify_exception(error), lost_connection(error)
    return Trouble(kind, lost, str(error), away=not lost and is_unreached(error))


def lost_connection(error: BaseException) -> bool:
    """Tell whether an established connection broke: reset, closed early, or garbled.

    A time-out does not count, and neither does a server that could not be reached. Checks the names
    of the classes of the exception and of its causes. The SDKs' APIConnectionError wraps many
    things; it counts only if it has no cause.
    """
    links = [{kind.__name__ for kind in type(link).__mro__} for link in _chain(error)]
    names = frozenset[str]().union(*links)
    if any("Timeout" in name for name in names) or is_unreached(error):
        return False
    return bool(names & BROKEN) or all("APIConnectionError" in link for link in links)


def is_unreached(error: BaseException) -> bool:
    """Tell whether no server could be reached."""
    chain = [*_chain(error)]
    if any(type(x) is ConnectionError and str(x).startswith(NO_SERVER) for x in chain):
        return True
    return any(kind.__name__ in UNREACHED for link in chain for kind in type(link).__mro__)


BROKEN: Final = frozenset(
    {
        # builtins, asyncio, http.client (RemoteDisconnected is a ConnectionResetError)
        "ConnectionError", "IncompleteReadError", "IncompleteRead",
        # httpx and httpx2; anyio below them
        "ReadError", "WriteError", "CloseError", "RemoteProtocolError", "EndOfStream",
        "BrokenResourceError",
        # aiohttp
        "ClientOSError", "ServerDisconnectedError", "ClientPayloadError",
        # requests and urllib3 (a reset there is raised from the builtin one)
        "ChunkedEncodingError",
        # websockets
        "ConnectionClosed",
    }
)  # fmt: skip
"""Exception classes for a broken established connection, by library."""

UNREACHED: Final = frozenset(
    {
        "ConnectionRefusedError", "gaierror",
        "ConnectError", "ProxyError", "LocalProtocolError", "UnsupportedProtocol",
        "ClientConnectorError",
        "NewConnectionError", "SSLError",
    }
)  # fmt: skip
"""Exception classes after which nothing was sent: compacting or repeating the request does not
help.
"""

NO_SERVER: Final = "Failed to connect"
"""The first words of Ollama's client if nothing was sent; it raises a plain ConnectionError (ollama
0.6, `CONNECTION_ERROR_MESSAGE`).
"""

_LONGEST: Final = 8
"""Most exceptions of one chain that are read."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its members and its causes, outermost first.

    An exception that was only being handled at the time (`__context__`) is left out: it is no
    cause.
    """
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _LONGEST:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        if link.__cause__ is not None:
            waiting.append(link.__cause__)


def _readings(error: BaseException) -> Iterator[ErrorKind]:
    response = getattr(error, "response", None)
    message = str(error)
    status = _status(error) or _status(response) or _find_status(message)
    headers = _headers(response) or _headers(error)
    text = _text(response)
    for body in (getattr(error, "body", None), text, getattr(error, "details", None), message):
        if body and not callable(body):
            yield classify(status, body, headers=headers)
    yield classify(status, "" if text is not None and not text.strip() else None, headers=headers)


def _status(carrier: Any) -> int | None:
    for name in ("status_code", "status", "code"):
        value = getattr(carrier, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    if isinstance(carrier, Mapping):  # botocore's response is a mapping
        status = _mapping(carrier.get("ResponseMetadata")).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    return None


_STATUS: Final = re.compile(
    r"^([45]\d\d)\b|(?:error code|status(?: code)?|http(?:/[\d.]+)?)[: ]{1,2}([45]\d\d)\b",
    re.IGNORECASE,
)


def _find_status(message: str) -> int | None:
    """Return the status at the start of a message, as the SDKs write it."""
    found = _STATUS.search(message[:200])
    return int(found[1] or found[2]) if found else None


def _headers(carrier: Any) -> Mapping[str, str] | None:
    headers = getattr(carrier, "headers", None)
    return headers if isinstance(headers, Mapping) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(response: Any) -> str | None:
    """Return a response's text if it has been read; an unread stream is not touched."""
    if isinstance(response, Mapping):
        error = _mapping(response.get("Error"))
        return f"{error.get('Code')}: {error.get('Message')}"
    try:
        text = response.text
    except (AttributeError, RuntimeError):
        return None
    return text if isinstance(text, str) else None

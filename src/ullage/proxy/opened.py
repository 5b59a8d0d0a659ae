"""An answer of an upstream of which enough is known to go on, or what came in its place.

It sends nothing and hands nothing on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ullage.core.errors import ErrorKind
from ullage.proxy.body import RequestRefused
from ullage.proxy.offering import UNREADABLE
from ullage.proxy.upstream import Response, Stalled, UpstreamBroken
from ullage.sdk.errors import Trouble

if TYPE_CHECKING:
    from ullage.core.dialects.rounds import Rounds
    from ullage.proxy.guarding import Plan
    from ullage.proxy.relay import StreamWatch


@dataclass(slots=True)
class OpenAnswer:
    """An answer of which enough is known to go on: `data` is held back, `found` what went wrong.

    `relay` watches a stream; `rounds` says what the client sees of an answer to a request with
    tools that were added.
    """

    response: Response
    data: bytes = b""
    found: Trouble | None = None
    relay: StreamWatch | None = None
    stream: Any = field(default=None, repr=False)
    whole: bool = False
    rounds: Rounds | None = None


LOST: Final = ErrorKind("other", certainty="likely")


async def let_go(opened: OpenAnswer | UpstreamBroken) -> None:
    """Let go of an answer, where there is one."""
    if isinstance(opened, OpenAnswer):
        await opened.response.aclose()


def check_read(made: OpenAnswer, plan: Plan) -> OpenAnswer:
    """Return an answer; one that may hold calls of added tools, and cannot be read, is trouble."""
    if plan.offer is not None and made.response.status < 400 and not made.whole:
        made.found = Trouble(LOST, text=UNREADABLE)
    return made


def make_refused(error: UpstreamBroken) -> RequestRefused:
    """Return what the client is told of an upstream that broke."""
    return RequestRefused(504 if isinstance(error, Stalled) else 502, error.code, str(error))


def find_trouble(opened: OpenAnswer | UpstreamBroken) -> Trouble | None:
    """Return what went wrong with an attempt, None where it is an answer."""
    if isinstance(opened, UpstreamBroken):
        return Trouble(LOST, lost=not isinstance(opened, Stalled), text=str(opened))
    return opened.found


def get_opened(opened: OpenAnswer | UpstreamBroken) -> OpenAnswer:
    """Return an answer in which no trouble was found."""
    assert isinstance(opened, OpenAnswer)  # noqa: S101 - of what broke, something is found
    return opened


def read_type(response: Response) -> bytes:
    """Return the media type of an answer, in lower case."""
    return _find_header(response, b"content-type").partition(b";")[0].strip().lower()


def is_compressed(response: Response) -> bool:
    """Tell whether an answer is compressed, unasked: then nothing in it can be read, or added."""
    return _find_header(response, b"content-encoding").strip().lower() not in (b"", b"identity")


def _find_header(response: Response, name: bytes) -> bytes:
    return next((value for key, value in response.headers if key.lower() == name), b"")


def parse_object(data: bytes) -> Mapping[str, Any] | None:
    """Return the fields of an answer, None for one that is no JSON object."""
    try:
        value = _parse(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _parse(data: bytes) -> Any:
    """Return JSON as a value; what the quick parser does not take, the lenient one may."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)

"""An upstream's answer, read far enough to continue, or the failure instead.

The module sends nothing and passes nothing on.
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
    """An answer that has been read far enough: `data` is held back, `found` is its failure.

    `relay` watches a stream. `rounds` decides what the client sees of an answer to a request with
    added tools.
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
    """Close an answer, if there is one."""
    if isinstance(opened, OpenAnswer):
        await opened.response.aclose()


def check_read(made: OpenAnswer, plan: Plan) -> OpenAnswer:
    """Return an answer; mark it as failed if it may call added tools but cannot be read."""
    if plan.offer is not None and made.response.status < 400 and not made.whole:
        made.found = Trouble(LOST, text=UNREADABLE)
    return made


def make_refused(error: UpstreamBroken) -> RequestRefused:
    """Return the refusal that tells the client of a broken upstream."""
    return RequestRefused(504 if isinstance(error, Stalled) else 502, error.code, str(error))


def find_trouble(opened: OpenAnswer | UpstreamBroken) -> Trouble | None:
    """Return the failure of an attempt, or None if it is an answer."""
    if isinstance(opened, UpstreamBroken):
        return Trouble(LOST, lost=not isinstance(opened, Stalled), text=str(opened))
    return opened.found


def get_opened(opened: OpenAnswer | UpstreamBroken) -> OpenAnswer:
    """Return an answer without a failure."""
    assert isinstance(opened, OpenAnswer)  # noqa: S101 - of what broke, something is found
    return opened


def read_type(response: Response) -> bytes:
    """Return the media type of an answer, in lower case."""
    return _find_header(response, b"content-type").partition(b";")[0].strip().lower()


def is_compressed(response: Response) -> bool:
    """Tell whether an answer is compressed, unasked: it can be neither read nor extended."""
    return _find_header(response, b"content-encoding").strip().lower() not in (b"", b"identity")


def _find_header(response: Response, name: bytes) -> bytes:
    return next((value for key, value in response.headers if key.lower() == name), b"")


def parse_object(data: bytes) -> Mapping[str, Any] | None:
    """Return the fields of an answer, or None if it is not a JSON object."""
    try:
        value = _parse(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _parse(data: bytes) -> Any:
    """Return JSON as a value; the lenient parser tries what the quick one refuses."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)

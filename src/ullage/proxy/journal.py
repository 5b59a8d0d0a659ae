"""One log line for each request: the client, how full the window is, the work done.

A line holds no text of a conversation and no secret. The handlers of the logger decide where it
goes and in which form.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.tokens.gauge import short

if TYPE_CHECKING:
    from ullage.core.tokens.budget import Cramped

log = logging.getLogger("ullage.proxy.requests")

LEFT: Final = 499
"""The status of a request whose client left before an answer began, as nginx writes it."""

NAMED: Final = 40
"""Most characters of a client's name, since clients choose their own."""

PRODUCT: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:/[A-Za-z0-9!#$%&'*+.^_`|~-]+)?")
"""The first product of a User-Agent (RFC 9110, 10.1.5): only token characters, no control
characters."""


ID_HEADER: Final = b"x-request-id"
ID: Final = re.compile(rb"[A-Za-z0-9._:+/=-]{1,128}")
"""A client's id that is safe to reuse: it neither controls a terminal nor needs quotes."""


@dataclass(slots=True)
class RequestLine:
    """The log data of one request.

    `request_id` is the client's own id, or one made here. `client` is the name of its token, or its
    own name for itself. `conversation` is the short id, `used` and `window` are tokens, `before`
    and `after` those of a compaction that this request caused. `asked` and `given` are tokens of
    output, if they were lowered. `answered` are calls of added tools. `cramped` says that the
    window is too small for the text that must stay, `unguarded` why the guard was not used. `left`
    tells that the client left before the end, `why` is the failure of the proxy.
    """

    method: str
    path: str
    request_id: str = ""
    client: str = ""
    status: int = LEFT
    seconds: float = 0.0
    upstream: str = ""
    model: str = ""
    conversation: str = ""
    used: int | None = None
    window: int | None = None
    strategy: str = ""
    before: int | None = None
    after: int | None = None
    asked: int | None = None
    given: int | None = None
    answered: int = 0
    cramped: Cramped | None = None
    unguarded: str = ""
    code: str = ""
    why: str = ""
    left: bool = False

    def fields(self) -> dict[str, Any]:
        """Return the known data, as JSON can carry it."""
        found = {**asdict(self), "seconds": round(self.seconds, 3), "share": self.share}
        found |= {"answered": self.answered or None, "left": self.left or None}
        return {name: value for name, value in found.items() if value is not None and value != ""}

    def context(self) -> dict[str, Any]:
        """Return the fields that other log lines show about their request."""
        found = {
            "request_id": self.request_id,
            "conversation": self.conversation,
            "upstream": self.upstream,
            "model": self.model,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def share(self) -> float | None:
        """Share of the window that is used, or None if a size is unknown."""
        if self.used is None or not self.window:
            return None
        return round(self.used / self.window, 3)

    def __str__(self) -> str:
        """Return the line for people."""
        parts = [str(self.status), f"{self.method} {self.path}"]
        parts += [self.client or "-", self.conversation or "-", self.request_id or "-"]
        if self.used is not None:
            full = f" {self.used / self.window:.0%}" if self.window else ""
            window = short(self.window) if self.window else "?"
            parts.append(f"ctx={short(self.used)}/{window}{full}")
        if self.before is not None and self.after is not None:
            parts.append(f"compacted {self.before:,} -> {self.after:,} ({self.strategy})")
        if self.given is not None:
            parts.append(f"output {self.asked:,} -> {self.given:,}")
        if self.answered:
            parts.append(f"read back {self.answered:,}")
        if self.cramped is not None:
            parts.append(f"window too small, {self.cramped.needed:,} needed")
        unguarded = self.unguarded and f"unguarded ({self.unguarded})"
        told = (unguarded, self.code, self.why, "client left" if self.left else "")
        parts += [word for word in told if word]
        return "  ".join([*parts, f"{self.seconds:.2f} s"])


def name_client(agent: str, token: str | None) -> str:
    """Return the name of a client: that of its token, or the first product of its User-Agent."""
    if token is not None:
        return token[:NAMED]
    found = PRODUCT.match(agent)
    return found[0][:NAMED] if found is not None else ""


def choose_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id of a request: its own `x-request-id` if that is valid, else a new one."""
    for name, value in headers:
        if name == ID_HEADER and ID.fullmatch(value):
            return value.decode("ascii")
    return f"{random.getrandbits(64):016x}"


def write(line: RequestLine, *, page: bool) -> None:
    """Log a line; lines of the proxy's own pages get only the level DEBUG."""
    level = logging.DEBUG if page else logging.INFO
    if log.isEnabledFor(level):
        log.log(level, "%s", line, extra={"request": line})

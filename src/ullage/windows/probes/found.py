"""The requests, the target and the result of a probe; shared by every server's module.

A probe is a generator: it yields requests, gets the responses and returns `Found`, so that the sync
and the async driver share it. It knows no HTTP client and no server in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from ullage.core.tokens.claim import SMALLEST, Claim, Kind
from ullage.transport import HttpRequest, HttpResponse, mask_url

HTTP_OK: Final = 200
HTTP_LOADING: Final = 503


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a probe: claims, whether it recognised the server, and a complaint if not.

    `counts` is the root URL of a server that counts requests, or "". `passing` means that another
    try soon may help (a model is loading, or not loaded yet). `server` names the recognised server,
    as in `recognise.PROBES`. `slots` is how many slots may share the claimed window. `alternates`
    says whether the chat template refuses two messages of one role in a row, or None if the server
    does not show it. `is_silent` means that no answer came.
    """

    claims: tuple[Claim, ...] = ()
    recognised: bool = False
    complaint: str = ""
    counts: str = ""
    passing: bool = False
    server: str = ""
    slots: int = 1
    alternates: bool | None = None
    is_silent: bool = False


Asking = Generator[HttpRequest, HttpResponse, Found]
Card = Mapping[str, Any]
"""One model of a server's list, unchanged."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server to ask, by its root URL, and the model to ask about (None: its only one).

    `now` is the time of the claims, in seconds since the epoch. `listed` is the server's list of
    models, if it gave one.
    """

    base: str
    model: str | None
    api_key: str | None = field(default=None, repr=False)
    now: float = 0.0
    listed: Sequence[Card] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The server's URL for display, without a password."""
        return mask_url(self.base)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> HttpRequest:
        """Return the request for a path below the root."""
        return HttpRequest(self.base + path, body, self.api_key)

    def claim(self, kind: Kind, tokens: int, confidence: float = 1.0, note: str = "") -> Claim:
        """Return a claim of this server."""
        return Claim(kind, tokens, "probe", self.where, self.now, confidence, note)

    def claim_enforced(self, tokens: int, note: str) -> Claim:
        """Return the claim of a prompt limit that the server enforces.

        Below the smallest published limit only an allocated window is believed, and this is one.
        """
        return self.claim("input" if tokens >= SMALLEST else "allocated", tokens, note=note)

    def silent(self, why: str, *, passing: bool = False) -> Found:
        """Return the result for a recognised server that reports no window."""
        return Found((), recognised=True, complaint=f"{self.where} {why}", passing=passing)

    def loading(self) -> Found:
        """Return the result while the server loads its model; the window is not absent."""
        why = "is still loading its model (503); ask again when it is ready"
        return Found(complaint=f"{self.where} {why}", passing=True)

    def report_unlisted(self) -> Found:
        """Return the result for a server that does not list the model."""
        if self.model is None:
            return self.silent("serves several models, or none: name one to learn its window")
        return self.silent(f"lists no model {self.model!r}")


Probe = Callable[[Target], Asking]


def root(base_url: str) -> str:
    """Return the server's root for a chat base URL: `/v1` stripped, sub-paths kept."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))

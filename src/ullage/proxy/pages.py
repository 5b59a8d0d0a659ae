"""The proxy's own pages: liveness, readiness, metrics and conversations.

An ASGI application for `GET` and `HEAD` on a few paths. It forwards nothing, and shows no text of a
conversation, no URL and no secret. The caller decides who may see a page.
"""

from __future__ import annotations

import asyncio
import html
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Final

from ullage.config.serving import Upstream
from ullage.live.source import Viewer
from ullage.proxy.ledger import Entry, Ledger
from ullage.telemetry import CONTENT_TYPE
from ullage.transport import HttpRequest, Transport

SearchArea = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Reaches = Callable[[Upstream], Coroutine[Any, Any, bool]]

VIEWER: Final = "ullage.viewer"
"""The key of the scope that holds the viewer."""

CONTEXT: Final = "/ullage/context/"
PATHS: Final = ("/", "/healthz", "/readyz", "/metrics", "/ullage/sessions")
OPEN: Final = ("/", "/healthz", "/readyz")
"""Pages that reveal nothing about anybody: an orchestrator asks for them without a token."""

LINKS: Final = (
    ("/healthz", "whether it lives"),
    ("/readyz", "whether it is ready, and which upstreams answer"),
    ("/metrics", "numbers for Prometheus"),
    ("/ullage/sessions", "the last conversations, without their text"),
    ("/ullage/v1/openapi.json", "requests that the proxy answers itself: fit, count, recall"),
)
DOCS: Final = "ullage serve --help, and ullage docs proxy"
HTML: Final = "text/html; charset=utf-8"

JSON: Final = "application/json"
CROWDED: Final = 1.0
"""Waiting requests per place from which on the proxy calls itself overloaded."""

FRESH_S: Final = 60.0
"""Seconds that an upstream counts as reachable after an answer."""

ABSENT_S: Final = 5.0
"""Seconds before an upstream that did not answer is asked again."""

PATIENCE_S: Final = 2.0
"""Seconds that an upstream may take to answer a probe."""


def is_page(path: str) -> bool:
    """Tell whether a path belongs to a page."""
    return path in PATHS or path.startswith(CONTEXT)


def reaching(transport: Transport) -> Reaches:
    """Return a probe: whether anything answers on an upstream's HTTP port, in bounded time.

    An error answer, such as 401 without a key, is an answer: the server is there.
    """

    async def reaches(upstream: Upstream) -> bool:
        what = HttpRequest(f"{upstream.root}/v1/models", api_key=upstream.api_key)
        try:
            answer = await asyncio.wait_for(transport.aask(what), PATIENCE_S)
        except TimeoutError:
            return False
        return answer.status > 0

    return reaches


@dataclass(slots=True)
class Readiness:
    """The reachability of upstreams, by their last answers. For one event loop.

    An upstream that answered within the last minute is not asked; each has at most one probe at a
    time.
    """

    reaches: Reaches
    now: Callable[[], float] = time.monotonic
    _answered: dict[str, tuple[float, bool]] = field(default_factory=dict)
    _asking: dict[str, asyncio.Lock] = field(default_factory=dict)

    def note_answer(self, name: str) -> None:
        """Remember that an upstream has just answered a request and needs no probe."""
        self._answered[name] = (self.now(), True)

    async def of(self, upstreams: Sequence[Upstream]) -> dict[str, bool]:
        """Return for each upstream, by name, whether it can be reached."""
        found = await asyncio.gather(*map(self._one, upstreams))
        return {upstream.name: yes for upstream, yes in zip(upstreams, found, strict=True)}

    async def _one(self, upstream: Upstream) -> bool:
        name = upstream.name
        async with self._asking.setdefault(name, asyncio.Lock()):
            at, yes = self._answered.get(name, (float("-inf"), False))
            if self.now() - at < (FRESH_S if yes else ABSENT_S):
                return yes
            yes = await self.reaches(upstream)
            self._answered[name] = (self.now(), yes)
            return yes


@dataclass(frozen=True, slots=True)
class Pages:
    """Answers for the paths of `is_page`.

    `metrics` returns the text for Prometheus, `upstreams` the upstreams served now, `away_s` the
    seconds since the store went away, or None if it is there. `leaving` tells whether the process
    is about to end, `crowding` the number of waiting requests per place.
    """

    ledger: Ledger
    metrics: Callable[[], str]
    upstreams: Callable[[], Sequence[Upstream]]
    readiness: Readiness
    away_s: Callable[[], float | None] = lambda: None
    leaving: Callable[[], bool] = lambda: False
    crowding: Callable[[], float] = lambda: 0.0

    async def __call__(self, scope: SearchArea, receive: Receive, send: Send) -> None:
        """Answer one request without reading its body."""
        del receive
        method = scope["method"]
        if method in ("GET", "HEAD"):
            if scope["path"] == "/":
                status, kind, body = self._root(scope)
            else:
                viewer = scope.get(VIEWER) or Viewer()
                status, kind, body = await self._page(scope["path"], viewer)
        else:
            told = {"error": f"{method} is not allowed here: use GET or HEAD"}
            status, kind, body = 405, JSON, _json(told)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"" if method == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})

    async def _page(self, path: str, viewer: Viewer) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, JSON, _json({"status": "ok"})
        if path == "/readyz":
            return await self._ready()
        if path == "/metrics":
            return 200, CONTENT_TYPE, self.metrics().encode()
        if path == "/ullage/sessions":
            entries = [entry for entry in self.ledger.all() if _may_see(viewer, entry)]
            listed = [asdict(entry) for entry in entries]
            return 200, JSON, _json({"total": len(entries), "sessions": listed})
        if not path.startswith(CONTEXT):
            return MISSING
        return self._context(path.removeprefix(CONTEXT), viewer)

    def _root(self, scope: SearchArea) -> tuple[int, str, bytes]:
        """Introduce the proxy and its pages: an HTML page for browsers, JSON for all others."""
        host, port = (scope.get("server") or ("", 0))[:2]
        shown = f"[{host}]" if ":" in str(host) else host
        found: dict[str, Any] = {
            "name": "ullage",
            "version": version("ullage"),
            "address": f"http://{shown}:{port}",
            "upstreams": [one.name for one in self.upstreams()],
            "pages": dict(LINKS),
            "docs": DOCS,
        }
        accepted = [v for k, v in scope.get("headers", ()) if bytes(k).lower() == b"accept"]
        if not any(b"text/html" in value for value in accepted):
            return 200, JSON, _json(found)
        rows = "".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in LINKS)
        upstreams = html.escape(", ".join(found["upstreams"]))
        text = (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>ullage</title>"
            f"<h1>ullage {found['version']}</h1><p>This is a guard proxy at "
            f"<code>{html.escape(found['address'])}</code> in front of {upstreams}. Give this "
            f"address to a client as its base URL.</p><ul>{rows}</ul>"
            f"<p>More: {html.escape(DOCS)}.</p></html>\n"
        )
        return 200, HTML, text.encode()

    async def _ready(self) -> tuple[int, str, bytes]:
        """Say whether requests can be served: an upstream answers, few wait, the process stays.

        A missing store does not count: memory replaces it.
        """
        if self.leaving():
            return 503, JSON, _json({"status": "leaving"})
        away_s, upstreams = self.away_s(), await self.readiness.of(self.upstreams())
        crowded = self.crowding() >= CROWDED
        ready = any(upstreams.values()) and not crowded
        told = {
            "status": "ready" if ready else "overloaded" if crowded else "not ready",
            "store": away_s is None,
            "store_away_s": away_s,
            "upstreams": upstreams,
        }
        return 200 if ready else 503, JSON, _json(told)

    def _context(self, name: str, viewer: Viewer) -> tuple[int, str, bytes]:
        entry = self.ledger.get(name)
        if entry is None or not _may_see(viewer, entry):
            told = {"error": "no conversation has this id, or it was forgotten: /ullage/sessions"}
            return 404, JSON, _json(told)
        return 200, JSON, _json(asdict(entry))


def _may_see(viewer: Viewer, entry: Entry) -> bool:
    """Tell whether this viewer may see the numbers of a conversation."""
    return viewer.is_operator or (bool(viewer.name) and entry.owner == viewer.name)


def _json(told: Any) -> bytes:
    return json.dumps(told).encode() + b"\n"


MISSING: Final = (404, JSON, b'{"error": "there is no such page"}\n')

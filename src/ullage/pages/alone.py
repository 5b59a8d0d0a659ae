"""The pages without a proxy: host, origin and token decide who may ask."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from ullage.live.desk import LiveDesk
from ullage.live.source import Viewer
from ullage.pages.app import About, LivePages, is_own_origin

SHOWN_IN: Final = b"x-ullage-token"


class Alone:
    """An ASGI application of pages over a desk; if `token` is set, everybody must send it."""

    def __init__(
        self, desk: LiveDesk, about: About, *, host: str = "127.0.0.1", token: str | None = None
    ) -> None:
        self._host, self._token = host, token
        self._desk = desk
        self.pages = LivePages(desk, self._see, about)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, or the life of the process (ASGI 3)."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            refused = self._find_refusal(scope)
            if refused is None:
                await self.pages(scope, receive, send)
            else:
                await _refuse(send, *refused)

    async def _live(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.pages.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def end_streams(self) -> None:
        """End the streams at once."""
        self._desk.is_closing = True

    def _find_refusal(self, scope: Mapping[str, Any]) -> tuple[int, str] | None:
        hosts = _read_headers(scope, b"host")
        if len(hosts) != 1 or not self._is_served(hosts[0]):
            return 403, "this host is not served here: open the address that `ullage ui` printed"
        origins = _read_headers(scope, b"origin")
        if not all(is_own_origin(origin, hosts[0]) for origin in origins):
            return 403, "pages of other origins may not ask"
        return None

    def _is_served(self, host: str) -> bool:
        """Tell whether a `Host` names this server: another name is a page that rebinds its own."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self._host.strip("[]")):
            return True
        try:
            at = ip_address(name)
        except ValueError:
            return False
        return at.is_loopback or self._host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound

    def _see(self, scope: Mapping[str, Any]) -> Viewer | None:
        if self._token is None:
            return Viewer()
        shown = _read_headers(scope, SHOWN_IN) or [
            one.removeprefix("Bearer ") for one in _read_headers(scope, b"authorization")
        ]
        if len(shown) == 1 and hmac.compare_digest(shown[0].encode(), self._token.encode()):
            return Viewer()
        return None


def _read_headers(scope: Mapping[str, Any], name: bytes) -> list[str]:
    return [v.decode("latin-1") for k, v in scope["headers"] if k.lower() == name]


async def _refuse(send: Any, status: int, text: str) -> None:
    data = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})

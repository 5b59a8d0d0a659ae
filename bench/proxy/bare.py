"""A relay of thirty lines: `python -m bench.proxy.bare --upstream URL --port PORT`.

It stands on the server and the client of the guard proxy and looks at nothing: what it costs, the
stack costs by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import aiohttp
import uvicorn

HOST: Final = "127.0.0.1"
HELD: Final = frozenset({"connection", "content-length", "host", "transfer-encoding"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Bare:
    """Relays every request as it came."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        asked = [(n.decode(), v.decode()) for n, v in scope["headers"] if n.decode() not in HELD]
        async with self._client.request(
            scope["method"],
            self._upstream + scope["path"],
            data=await _body(receive),
            headers=asked,
            allow_redirects=False,
        ) as answer:
            told = [
                (name.lower(), value)
                for name, value in answer.raw_headers
                if name.lower() != b"transfer-encoding"
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": told})
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.proxy.bare", description=__doc__)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvicorn.run(
        Bare(options.upstream),
        host=HOST,
        port=options.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()

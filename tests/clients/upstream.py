"""What stands behind the proxy when real clients are tried: two real llama.cpp servers as one.

The tiny models say one sentence each: one calls a tool, the other talks. They share a
vocabulary and their templates cost the same, so both count alike; a relay that looks at the end of
each request makes them one server: who was just asked calls the tool, who was just told a result
talks. The bytes are the servers' own. It knows nothing of the proxy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.support import tinymodel
from ullage.embedded import Server

CALL: Final = '[CALL=read]{"path":"cellar.txt"}'
"""All that the calling model says; its template writes calls like this, from which the server
learns how to read them. Nothing stands behind the call: the server would take that for text."""

VOCABULARY: Final = tinymodel.train(f"{CALL} {tinymodel.SENTENCE}")
WRITTEN: Final = '\n<tool_call>\n{"name": "read", "arguments": {"path":"cellar.txt"}}\n</tool_call>'
"""The same call as the talking model's template writes it, at more tokens."""

PAD: Final = " a" * (len(VOCABULARY.ids(WRITTEN)) - len(VOCABULARY.ids(CALL)))
"""What makes up for that behind each result."""

CALLING: Final = (
    tinymodel.CHAT_TEMPLATE.replace(r"""'\n<tool_call>\n{"name": "'""", "'[CALL='")
    .replace("""'", "arguments": '""", "']'")
    .replace(r"'}\n</tool_call>'", "''")
    .replace(
        "{%- if message['tool_calls'] -%}",
        f"{{%- if message['role'] == 'tool' -%}}{{{{- '{PAD}' -}}}}{{%- endif -%}}\n"
        "{%- if message['tool_calls'] -%}",
    )
)

TIMEOUT_S: Final = 60.0
HOP: Final = frozenset({b"host", b"connection", b"transfer-encoding", b"content-length"})


def models(folder: Path, call: str = CALL) -> tuple[Path, Path]:
    """Write the calling model and the talking one; return their paths."""
    calling, speaking = folder / "calling.gguf", folder / "speaking.gguf"
    vocabulary = tinymodel.train(f"{call} {tinymodel.SENTENCE}")
    for path, sentence in ((calling, call), (speaking, tinymodel.SENTENCE)):
        walk = vocabulary.ids(sentence)
        assert len(set(walk)) == len(walk), "each token decides the next one"
        tinymodel._write(path, vocabulary, walk, 131_072)
    return calling, speaking


class Pair:
    """The two servers as one ASGI application; keeps the status of each answer to a POST.

    `window` is that of both, in tokens.
    """

    def __init__(self, calling: Server, speaking: Server, window: int) -> None:
        self.window = window
        self._calling = calling
        self._speaking = speaking
        self._client: httpx2.AsyncClient | None = None
        self.statuses: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Relay one request; of the life of the process, end the client with it."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._relay(scope, await read(receive), send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        # A connection that was kept may be ended by the server just as it is used again.
        limits = httpx2.Limits(max_keepalive_connections=0)
        made = httpx2.AsyncClient(timeout=TIMEOUT_S, trust_env=False, limits=limits)
        async with made as self._client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: Any, body: bytes, send: Any) -> None:
        assert self._client is not None
        asked = self._client.build_request(
            scope["method"],
            (self._calling if calls(body) else self._speaking).root_url + scope["path"],
            content=body,
            headers=[pair for pair in scope["headers"] if pair[0] not in HOP],
        )
        answer = await self._client.send(asked, stream=True)
        try:
            if scope["method"] == "POST":
                self.statuses.append(answer.status_code)
            kept = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in HOP]
            await send(
                {"type": "http.response.start", "status": answer.status_code, "headers": kept}
            )
            async for piece in answer.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()


async def read(receive: Any) -> bytes:
    """Return the whole body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def calls(body: bytes) -> bool:
    """Tell whether the calling model is to answer: there are tools, and no result is the latest."""
    if not body.startswith(b"{"):
        return False
    fields = json.loads(body)
    history = fields.get("messages") or fields.get("input")
    if not fields.get("tools") or not isinstance(history, list):
        return False
    last = history[-1]
    return not (_result(last) or any(_result(part) for part in _parts(last)))


def _parts(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _result(part: Any) -> bool:
    kinds = ("tool_result", "function_call_output")
    return isinstance(part, dict) and (part.get("type") in kinds or part.get("role") == "tool")

"""A server in the test's own event loop that answers with raw bytes and sees clients leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ullage.core.dialects.reply import Delta, Reply
from ullage.providers import CallFailed, Client, Limits, Provider

SHORT: Final = Limits(stall_s=20.0, connect_s=5.0)
CHAT: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "hi"}]}


class Script:
    """Answers played in order, the last one stays; None is silence."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.base_url = ""
        self._open: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open[asyncio.current_task()] = writer
        try:
            while await self._answered(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()
            self._open.pop(asyncio.current_task())

    async def hang_up(self) -> None:
        """End every connection."""
        tasks = [task for task in self._open if task is not None]
        for writer in self._open.values():
            writer.close()
        await asyncio.gather(*tasks)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line for line in head.splitlines() if "content-length" in line.lower()]
        size = int(lengths[0].partition(":")[2])
        self.requests.append((head, json.loads(await reader.readexactly(size))))
        self.asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(answer or b"")
        await writer.drain()
        if answer is None or answer.endswith(MORE):
            await reader.read()
            self.gone.set()
            return False
        return b"connection: close" not in answer


MORE: Final = b": more to come\n\n"
"""What a body ends with that is not its last: the server waits for the client to leave."""


def http(status: int, body: bytes, **headers: str) -> bytes:
    """Return an answer with a body of known length."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def of_json(value: Any, status: int = 200, **headers: str) -> bytes:
    return http(status, json.dumps(value).encode(), content_type="application/json", **headers)


def events(*values: Any) -> bytes:
    """Return the bytes of a stream of events."""
    named = [(v.get("type") if isinstance(v, dict) else None, v) for v in values]
    return b"".join(
        (f"event: {name}\n" if name else "").encode()
        + b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"
        for name, value in named
    )  # fmt: skip


def streamed(*values: Any) -> bytes:
    """Return an answer that streams events and ends."""
    return http(200, events(*values), content_type="text/event-stream")


def endless(*values: Any) -> bytes:
    """Return an answer that streams events and then falls silent."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    return head + events(*values) + MORE


def chunk(text: str = "", finish: str | None = None) -> dict[str, Any]:
    delta = {"content": text} if text else {}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


HELLO: Final = streamed(chunk("Hel"), chunk("lo"), chunk("", "stop"), "[DONE]")


@asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[Script]:
    """Serve a script on a loopback port while the block lasts."""
    script = Script(*answers)
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    script.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield script
    finally:
        server.close()
        await script.hang_up()


class Caller:
    """A client that waits for nothing, and what it heard, waited and was told."""

    def __init__(self, base_url: str, chance: float = 0.0, **fields: Any) -> None:
        fields = {"limits": SHORT, **fields}
        self.heard: list[Delta] = []
        self.waits: list[float] = []
        self.told: list[tuple[str, float]] = []
        self.client = Client(
            Provider("m", base_url, **fields), chance=lambda: chance, asleep=self._asleep
        )

    async def _asleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def send(self, fields: Mapping[str, Any] = CHAT) -> Reply:
        """Send and close."""
        try:
            return await self.client.send(
                fields,
                self.heard.append,
                wait=lambda why, seconds: self.told.append((why, seconds)),
            )
        finally:
            await self.client.aclose()

    async def fails(self, fields: Mapping[str, Any] = CHAT) -> CallFailed:
        """Send, and return how it failed."""
        try:
            made = await self.send(fields)
        except CallFailed as failed:
            return failed
        raise AssertionError(f"answered after all: {made}")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async test within bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())

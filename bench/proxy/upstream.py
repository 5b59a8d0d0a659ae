"""A fake model server: `python -m bench.proxy.upstream`. It answers fast, and fails as it is told.

It prints one line of JSON with its port and ends when its standard input does, so with whoever
started it. It answers /v1/chat/completions, /v1/messages and /api/chat, streaming and not.
`POST /fake` with JSON sets `bench.proxy.faking.Settings`; `GET /fake` tells what was asked of it;
`GET /fake/last` gives back the body of the last request for an answer. It is stateless between
requests otherwise, listens on the loopback only, and knows nothing of proxies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from bench.proxy import answers, loops
from bench.proxy.answers import Dialect, Said, Spent
from bench.proxy.faking import Counts, Settings
from bench.proxy.reading import Request, Requests

HOST: Final = "127.0.0.1"
LONGEST_S: Final = 3_600
REASONS: Final[Mapping[int, str]] = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests",
    500: "Internal Server Error",
}  # fmt: skip
STREAMS: Final[Mapping[Dialect, str]] = {
    "chat": "text/event-stream",
    "messages": "text/event-stream",
    "ollama": "application/x-ndjson",
}
GARBAGE: Final = b'data: {"choices": [{"delta":\n\n\xff\xfe: ???\ndata: <html>\n\n'
LAST: Final = b"0\r\n\r\n"


@dataclass(slots=True)
class Fake:
    """The server's state: settings, counts, open connections."""

    settings: Settings
    counts: Counts = field(default_factory=Counts)
    last: bytes = b""
    connections: set[Connection] = field(default_factory=set)

    def fault(self) -> str:
        """Return what is to befall the next request, and have it used up."""
        if not self.settings.faults:
            return ""
        fault, *rest = self.settings.faults
        self.settings = replace(self.settings, faults=tuple(rest))
        return fault

    def restart(self) -> None:
        """Do what a restart does to clients: cut them all, and come back with another window."""
        window = self.settings.smaller or self.settings.window
        self.settings = replace(self.settings, window=window)
        for connection in tuple(self.connections):
            connection.abort()


class Connection(asyncio.Protocol):
    """One client: a request at a time."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self._requests = Requests()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._stream: Stream | None = None
        self._busy = False
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport by type
        self._transport = cast("asyncio.Transport", transport)
        self._fake.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fake.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._fake.counts.left += self._busy

    def data_received(self, data: bytes) -> None:
        self._requests.feed(data)
        self._next()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._stream is not None and self._timer is None:
            self._tick()

    def abort(self) -> None:
        """Cut the connection, whatever is under way."""
        self._busy = False
        self._transport.abort()

    def _next(self) -> None:
        while not self._busy and (request := self._requests.take()):
            self._busy = True
            if request.path in answers.DIALECTS and request.method == "POST":
                self._answer(answers.DIALECTS[request.path], request.body)
            else:
                self._respond(*_told(self._fake, request))

    def _answer(self, dialect: Dialect, body: bytes) -> None:
        fake = self._fake
        fake.counts.requests += 1
        fake.last = body
        fault = fake.fault()
        if fault == "restart":
            fake.restart()
        elif fault in {"429", "500"}:
            self._fail(dialect, int(fault))
        elif fault != "mute":
            try:
                asked = json.loads(body)
            except ValueError:
                self._respond(400, answers.error(dialect, 400, "invalid_request_error", "no JSON"))
                return
            self._say(dialect, asked, fault)

    def _fail(self, dialect: Dialect, status: int) -> None:
        kind = "rate_limit_error" if status == 429 else "server_error"
        self._respond(status, answers.error(dialect, status, kind, f"a {status} was asked for"))

    def _say(self, dialect: Dialect, asked: Mapping[str, Any], fault: str) -> None:
        settings, counts = self._fake.settings, self._fake.counts
        count, window = answers.counted(asked), settings.window
        if window is not None and count >= window:
            if not settings.silent:
                counts.refused += 1
                self._respond(400, answers.overflow(count, window))
                return
            counts.cut += 1
            count = answers.cut(asked, window)
        room = settings.chunks if window is None else min(settings.chunks, window - count)
        said = Said(
            dialect,
            str(asked.get("model", settings.model)),
            max(room, 1),
            Spent(count, max(room, 1)),
            _tells(settings, dialect, asked),
        )
        if asked.get("stream", dialect == "ollama"):
            self._begin(said, fault)
        elif settings.first_s:
            self._timer = self._loop.call_later(settings.first_s, self._whole, said, fault)
        else:
            self._whole(said, fault)

    def _whole(self, said: Said, fault: str) -> None:
        body = answers.whole(said)
        if fault == "garbage":
            self._respond(200, b"<html>what?</html>")
        elif fault in {"cut", "ends"}:
            self._write_head(200, "application/json", f"content-length: {len(body)}")
            self._transport.write(body[: len(body) // 2])
            self._busy = False
            self._transport.close()
        elif fault == "hang":
            self._write_head(200, "application/json", f"content-length: {len(body)}")
        else:
            self._respond(200, body)

    def _begin(self, said: Said, fault: str) -> None:
        settings = self._fake.settings
        self._write_head(200, STREAMS[said.dialect], "transfer-encoding: chunked")
        due = self._loop.time() + settings.first_s
        frames = answers.frames(said)
        self._stream = Stream(frames, said.chunks, settings.interval_s, due, fault)
        if settings.first_s:
            self._timer = self._loop.call_at(due, self._tick)
        else:
            self._tick()

    def _tick(self) -> None:
        """Send the next chunk of the stream, and see when the one after is due."""
        stream = self._stream
        assert stream is not None
        self._timer = None
        if self._paused:
            return
        if stream.stopped:
            self._stop(stream)
            return
        if not stream.sent and stream.frames.head:
            self._transport.write(_chunk(stream.frames.head) + stream.chunk)
        else:
            self._transport.write(stream.chunk)
        stream.sent += 1
        stream.due += stream.interval_s
        if stream.interval_s:
            self._timer = self._loop.call_at(stream.due, self._tick)
        else:
            self._timer = self._loop.call_soon(self._tick)

    def _stop(self, stream: Stream) -> None:
        if stream.fault == "hang":
            return
        self._stream = None
        if stream.fault == "cut":
            self._busy = False
            self._transport.close()
            return
        tail = {"garbage": GARBAGE, "ends": b""}.get(stream.fault, stream.frames.tail)
        self._transport.write((_chunk(tail) if tail else b"") + LAST)
        self._done()

    def _respond(self, status: int, body: bytes, kind: str = "application/json") -> None:
        more = "\r\nretry-after: 1" if status == 429 else ""
        self._write_head(status, kind, f"content-length: {len(body)}{more}", body)
        self._done()

    def _write_head(self, status: int, kind: str, more: str, body: bytes = b"") -> None:
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: {kind}\r\n{more}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _done(self) -> None:
        self._busy = False
        self._fake.counts.answered += 1
        self._loop.call_soon(self._next)


class Stream:
    """A stream under way."""

    def __init__(
        self, frames: answers.Frames, chunks: int, interval_s: float, due: float, fault: str
    ) -> None:
        self.frames = frames
        self.chunk = _chunk(frames.chunk)
        self.interval_s = interval_s
        self.due = due
        self.fault = fault
        self.sent = 0
        self._last = {"hang": 1, "garbage": 1}.get(fault, chunks // 2 if fault else chunks)

    @property
    def stopped(self) -> bool:
        """Whether its last chunk was sent."""
        return self.sent >= self._last


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _tells(settings: Settings, dialect: Dialect, asked: Mapping[str, Any]) -> bool:
    if settings.usage != "asked" or dialect != "chat" or not asked.get("stream"):
        return settings.usage != "never"
    options = asked.get("stream_options") or {}
    return bool(options.get("include_usage"))


def _told(fake: Fake, request: Request) -> tuple[int, bytes]:
    """Return the answer to anything but a request for an answer."""
    if request.path == "/fake":
        try:
            fake.settings = fake.settings.but(json.loads(request.body or b"{}"))
        except ValueError as error:
            return 400, str(error).encode()
        return 200, json.dumps(asdict(fake.counts)).encode()
    if request.path == "/fake/last":
        return 200, fake.last
    fake.counts.probes += 1
    found = _listed(fake.settings, request.path)
    if found is None:
        return 404, json.dumps({"error": {"message": "Not Found", "code": 404}}).encode()
    return 200, json.dumps(found).encode()


def _listed(settings: Settings, path: str) -> dict[str, Any] | None:
    """Return what a server tells of its model and window, where this one is to tell it."""
    model, window = settings.model, settings.window or settings.listed
    if path == "/v1/models":
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "fake"}]}
    if path == "/props" and "props" in settings.tells:
        slot = {"n_ctx": window}
        return {"default_generation_settings": slot, "total_slots": 1, "model_alias": model}
    if "ollama" not in settings.tells:
        return None
    answers_of: dict[str, dict[str, Any]] = {
        "/api/version": {"version": "0.34.2"},
        "/api/ps": {"models": [{"name": model, "model": model, "context_length": window}]},
        "/api/tags": {"models": [{"name": model, "model": model}]},
        "/api/show": {
            "model_info": {"general.architecture": "qwen2", "qwen2.context_length": settings.listed}
        },
    }
    return answers_of.get(path)


async def serve(settings: Settings, port: int, longest_s: float) -> None:
    """Serve until standard input ends, or the time is over."""
    loop = asyncio.get_running_loop()
    fake = Fake(settings)
    server = await loop.create_server(lambda: Connection(fake), HOST, port, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    ended = asyncio.Event()
    transport, _ = await loop.connect_read_pipe(lambda: Leash(ended), sys.stdin)
    try:
        async with asyncio.timeout(longest_s):
            await ended.wait()
    except TimeoutError:
        print(f"the fake upstream ends after {longest_s} s", file=sys.stderr)
    finally:
        transport.close()
        server.close()
        for connection in tuple(fake.connections):
            connection.abort()


class Leash(asyncio.Protocol):
    """Standard input: its end is the end of whoever started this."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.proxy.upstream", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--settings", default="{}", help="JSON of bench.proxy.faking.Settings")
    parser.add_argument("--longest", type=float, default=LONGEST_S, help="seconds")
    options = parser.parse_args()
    settings = Settings().but(json.loads(options.settings))
    loops.run(serve(settings, options.port, options.longest))


if __name__ == "__main__":
    main()

"""The proxy in front of a server, as clients meet it: uvicorn in a thread, on the loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2
import uvicorn

from tests.support.faults import Answer, FaultServer, Request, sse
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule, Serve, Upstream
from ullage.proxy.app import App
from ullage.runtime import Runtime
from ullage.storage.memory import MemoryStore

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
OLLAMA = "/api/chat"
TICK_S: Final = 0.005
GRACE_S: Final = 2.0


class PromptServer(uvicorn.Server):
    """Do what uvicorn does, and look every five milliseconds for what it looks for every 100."""

    async def main_loop(self) -> None:
        """Serve until the end is asked for."""
        await self.on_tick(0)
        while not await self.on_tick(1):  # noqa: ASYNC110 - a flag is all that there is
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets, let answers come to their end for a while, then end them."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(GRACE_S):
                while self.has_work():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(TICK_S)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
        await self.lifespan.shutdown()

    def has_work(self) -> bool:
        """Tell whether a connection is open or a request under way."""
        return bool(self.server_state.connections or self.server_state.tasks)


@contextmanager
def listening(app: App) -> Iterator[str]:
    """Serve an app on a free port of the loopback; yield its address."""
    with running(app) as server:
        yield _address_of(server)


@contextmanager
def running(app: App) -> Iterator[uvicorn.Server]:
    """Serve an app on a free port of the loopback; yield its server."""
    config = uvicorn.Config(app, "127.0.0.1", 0, log_config=None)
    server = PromptServer(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive())
        assert server.started, "the proxy did not start"
        yield server
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the proxy did not stop"


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs: its address, its app, a client of it."""

    url: str
    app: App
    client: httpx2.Client
    server: uvicorn.Server

    def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        """Send a body: bytes as they are, anything else as JSON. Waits for what is noted of it."""
        answer = posted(self.client, self.url + path, body, **headers)
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until no request is under way: much is noted behind the last byte of an answer.

        Goes on after a second: another client may hold a stream open.
        """
        with suppress(AssertionError):
            eventually(lambda: not self.server.server_state.tasks, within_s=1.0)

    def shown(self, name: str, **labels: str) -> float:
        """Return a number of the page of metrics, 0 where it is not there."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = 0.0
        for line in self.client.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(w in line for w in wanted):
                found += float(line.rpartition(" ")[2])
        return found


def posted(client: httpx2.Client, url: str, body: Any, **headers: str) -> httpx2.Response:
    """Send a body as JSON, or bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(url, content=content, headers={"content-type": "application/json", **named})


def ask_and_leave(url: str, body: Any, ready: Callable[[], bool]) -> None:
    """Send a body as JSON, and leave without an answer as soon as `ready()` is true."""
    where = urlsplit(url)
    with closing(HTTPConnection(f"{where.hostname}", where.port)) as client:
        client.request("POST", where.path, json.dumps(body), {"content-type": "application/json"})
        eventually(ready)


@contextmanager
def proxied(
    base_url: str,
    *,
    store: Any = None,
    rules: tuple[ModelRule, ...] = (ModelRule(window=8192),),
    runtime: Runtime | None = None,
    **more: Any,
) -> Iterator[Proxy]:
    """Put a proxy in front of an address; by default the operator names the window."""
    given: dict[str, Any] = {"store": "memory:", "usage": "passive", "rules": rules, **more}
    if "upstreams" not in given:
        given["upstreams"] = (Upstream("main", base_url),)
    app = App(Serve(**given), runtime=runtime or Runtime(), store=store or MemoryStore())
    with (
        running(app) as server,
        httpx2.Client(timeout=20, trust_env=False) as client,
    ):
        yield Proxy(_address_of(server), app, client, server)


def _address_of(server: uvicorn.Server) -> str:
    """Return where a server listens."""
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


def asked(server: FaultServer, method: str = "POST") -> list[Request]:
    """Return what a scripted upstream was asked by a method; probes are GET."""
    return [request for request in server.requests if request.method == method]


class Wire:
    """An upstream of raw bytes: it keeps each request as it came, and answers as it is told.

    `answers` are whole responses, the last of them repeated. `held` keeps the connection open
    after the answer; `gone` tells which of those the other side has closed.
    """

    def __init__(self, *answers: bytes, held: bool = False) -> None:
        self._answers = list(answers)
        self._held = held
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.gone = threading.Event()

    @property
    def root_url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._begin(self._accepting)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _begin(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accepting(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self._begin(self._served, connection)

    def _served(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            data = b""
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65_536)
                if not piece:
                    return
                data += piece
            head, _, body = data.partition(b"\r\n\r\n")
            while len(body) < _length(head):
                body += connection.recv(65_536)
            self.heads.append(head)
            self.bodies.append(body)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            connection.sendall(answer)
            if self._held:
                try:
                    while connection.recv(65_536):
                        continue
                finally:
                    self.gone.set()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def answer(body: bytes, kind: str = "text/event-stream", status: str = "200 OK") -> bytes:
    """Return a whole response, the connection closed behind it."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


def begun(body: bytes, kind: str = "text/event-stream") -> bytes:
    """Return a response that has more to come, in chunks."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    return head.encode() + f"{len(body):x}\r\n".encode() + body + b"\r\n"


def talk(dialect: str, *, stream: bool = True, words: int = 3, **more: Any) -> dict[str, Any]:
    """Return a small request of a dialect."""
    said = [{"role": "user", "content": "hello " * words}]
    body: dict[str, Any] = {"model": "m", "stream": stream}
    body["input" if dialect == "openai_responses" else "messages"] = said
    if dialect == "anthropic":
        body["max_tokens"] = 64
    return {**body, **more}


PATHS: Mapping[str, str] = {
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "anthropic": MESSAGES,
    "ollama_chat": OLLAMA,
}


def conversation(dialect: str, turns: int = 20, **more: Any) -> dict[str, Any]:
    """Return a request with a history of some 5,000 tokens, far below a window of 16,384."""
    body = talk(dialect, **more)
    name = "input" if dialect == "openai_responses" else "messages"
    (asked,) = body[name]
    said = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"question {turn}: " + "what of this? " * 40})
        said.append({"role": "assistant", "content": f"answer {turn}: " + "so it is. " * 40})
    return {**body, name: [*said, asked]}


STREAMS: Mapping[str, tuple[Any, ...]] = {
    "openai_chat": (
        {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "so\u2028it"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": " is"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}},
        "[DONE]",
    ),
    "openai_responses": (
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.in_progress", "response": {"id": "r"}},
        {"type": "response.output_text.delta", "delta": "so it"},
        {"type": "response.output_text.delta", "delta": " is"},
        {
            "type": "response.completed",
            "response": {"id": "r", "usage": {"input_tokens": 9, "output_tokens": 2}},
        },
    ),
    "anthropic": (
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "so it is"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ),
    "ollama_chat": (
        {"message": {"role": "assistant", "content": "so it"}, "done": False},
        {"message": {"role": "assistant", "content": " is"}, "done": False},
        {
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 9,
            "eval_count": 2,
        },
    ),
}
"""The events of a short answer, in each dialect."""

CONTENT: Mapping[str, int] = {
    "openai_chat": 2,
    "openai_responses": 3,
    "anthropic": 3,
    "ollama_chat": 1,
}
"""How many of them there are up to the first content."""


def streamed(dialect: str, events: Any = None, **how: Any) -> Answer:
    """Answer with events as a stream of a dialect, by default a whole answer."""
    chosen = STREAMS[dialect] if events is None else events
    if dialect != "ollama_chat":
        return sse(*chosen, **how)
    lines = tuple(json.dumps(event).encode() + b"\n" for event in chosen)
    return Answer(200, lines, "application/x-ndjson", **how)


def sent(answered: Answer) -> bytes:
    """Return the body of an answer."""
    return b"".join(answered.blocks)


WHOLE: Mapping[str, Any] = {
    "openai_chat": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "so it is"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    },
    "openai_responses": {"id": "r", "output": [], "usage": {"input_tokens": 9, "output_tokens": 2}},
    "anthropic": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 2}},
    "ollama_chat": STREAMS["ollama_chat"][-1],
}
"""An answer that is no stream, in each dialect."""

OVERFLOWS: Mapping[str, Any] = {
    "openai_chat": {
        "error": {
            "message": "This model's maximum context length is 4096 tokens. However, your messages "
            "resulted in 6000 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
    "openai_responses": {
        "error": {
            "message": "Your input exceeds the context window of this model.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "context_length_exceeded",
        }
    },
    "anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 6000 tokens > 4096 maximum",
        },
    },
    "ollama_chat": {
        "error": "the prompt is longer than the context length currently available to the model"
    },
}
"""Refusals of a prompt that is too long, in each dialect."""

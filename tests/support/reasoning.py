"""A real llama.cpp server whose model thinks before it speaks.

It stands before a server of the tiny model, passes every question on, and gives the sizes that
this server reports: the template of the real server decides what of the reasoning is read. Only
what the model says is of its own: some hundred tokens of reasoning, then a call or a text.
It knows no window. With `cut` it drops the oldest messages of a prompt that is longer, without a
word, as Ollama's `chatPrompt` does (server/prompt.go).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx2

from tests.support.faults import sse

Body = Mapping[str, Any]

CHAT: Final = "/v1/chat/completions"
COUNT: Final = "/v1/chat/completions/input_tokens"

THOUGHT: Final = "we look at the first of these and think about what comes after it and then "


class Thinker(ThreadingHTTPServer):
    """The server. `loop` answers call a tool, where there are any, and the next one speaks.

    `thought` is how often the words of a thought are said. With `inline` the thought stands in the
    text, between marks, as servers without a parser of reasoning give it. `sizes` are the prompts
    as they were reported, `refused` what the real server refused. Without `counts` it counts no
    prompts, as most gateways do not.
    """

    daemon_threads = True

    def __init__(self, root_url: str, call: Body, **how: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root_url, self.call = root_url, call
        self.loop: int = how.get("loop", 5)
        self.thought: int = how.get("thought", 20)
        self.inline: bool = how.get("inline", False)
        self.counts: bool = how.get("counts", True)
        self.tells: bool = how.get("tells", True)
        self.cut: int | None = how.get("cut")
        self.dropped = 0
        self.sizes: list[int] = []
        self.refused: list[str] = []
        self.client = httpx2.Client(base_url=root_url, timeout=30, trust_env=False)

    @property
    def url(self) -> str:
        """The address, `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer to a request: what the real server reports of it."""
        wanted = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
        read = {**wanted, "messages": self._cut(wanted), "max_tokens": 1}
        real = self.client.post(CHAT, json=read)
        if real.status_code != httpx2.codes.OK:
            self.refused.append(real.text)
            return real.status_code, real.json()
        found = real.json()
        self.sizes.append(found["usage"]["prompt_tokens"])
        said = self._say(body)
        ended = "tool_calls" if "tool_calls" in said else "stop"
        choice = {"index": 0, "message": said, "finish_reason": ended}
        found.pop("timings", None)
        return 200, {**found, "choices": [choice]}

    def _cut(self, body: Body) -> list[Any]:
        """Return the messages that are read: without the oldest ones, where all are too long."""
        messages = list(body["messages"])
        if self.cut is None:
            return messages
        self.dropped = self.dropped if len(messages) > self.dropped else 0
        while self._count({**body, "messages": messages[self.dropped :]}) > self.cut:
            self.dropped += 1
        return messages[self.dropped :]

    def _count(self, body: Body) -> int:
        counted: int = self.client.post(COUNT, json=body).json()["input_tokens"]
        return counted

    def _say(self, body: Body) -> dict[str, Any]:
        """Return what the model says: a call so many times in a turn, then a text."""
        number = len(self.sizes)
        thought = f"{number} " + THOUGHT * self.thought
        text = f"so it is with {number}"
        if self.inline:
            said: dict[str, Any] = {"role": "assistant", "content": f"<think>{thought}</think>"}
        else:
            said = {"role": "assistant", "content": "", "reasoning_content": thought}
        if not body.get("tools") or number % (self.loop + 1) == 0:
            return {**said, "content": said["content"] + text}
        call = {"id": f"call_{number}", "type": "function", "function": self.call}
        return {**said, "tool_calls": [call]}


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Thinker

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        if not self.server.tells:
            self._send(b'{"error": {"message": "not found"}}', 404)
            return
        real = self.server.client.get(self.path)
        self._send(real.content, real.status_code)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path != CHAT and not self.server.counts:
            self._send(b'{"error": {"message": "not found"}}', 404)
            return
        if self.path != CHAT:
            json_type = {"content-type": "application/json"}
            real = self.server.client.post(self.path, content=data, headers=json_type)
            self._send(real.content, real.status_code)
            return
        body = json.loads(data)
        status, value = self.server.answer(body)
        if status == httpx2.codes.OK and body.get("stream"):
            self._send(b"".join(sse(*stream(value)).blocks), kind="text/event-stream")
        else:
            self._send(json.dumps(value).encode(), status)

    def _send(self, data: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def stream(answer: Body) -> Iterator[Any]:
    """Yield an answer as the events of a stream, its usage behind the last one."""
    (choice,) = answer["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(delta["tool_calls"])]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": answer["model"]}
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{**choice, "message": None, "delta": {}}]}
    yield {**head, "choices": [], "usage": answer["usage"]}
    yield "[DONE]"


LOOK: Body = {"name": "look", "arguments": '{"page": 1}'}


@contextmanager
def thinking(root_url: str, call: Body = LOOK, **how: Any) -> Iterator[Thinker]:
    """Run a thinking model before a real server while the block lasts."""
    server = Thinker(root_url, call, **how)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.client.close()

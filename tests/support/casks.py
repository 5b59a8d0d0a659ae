"""A loopback server of Chat Completions with a window of its own and a vocabulary of its own.

It counts what it is sent by Llama 3's vocabulary and a ChatML template, tools as JSON in the
system text. `counts` is a vLLM: it counts requests when asked and refuses in its words. `silent`
reports no usage. `cuts` reads operator text and the newest messages that fit, as Ollama does, and
says nothing. `numbers` refuses with numbers in OpenAI's words, `words` without any. What its window
is claimed to be stands in its list of models. Sources: vLLM's and OpenAI's API references, Ollama's
docs/faq.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final, Literal

from ullage.counters import Vocabularies

Kind = Literal["counts", "silent", "cuts", "numbers", "words"]
Body = Mapping[str, Any]

KINDS: Final[tuple[Kind, ...]] = ("counts", "silent", "cuts", "numbers", "words")

MODEL: Final = "tern-9"

OPENING: Final = 3
"""Tokens that the template puts before the answer."""

MESSAGE: Final = 4
"""Tokens that the template puts around a message."""


class Cask(ThreadingHTTPServer):
    """The server. `sent` are the sizes of answered requests, as they came; `refused` and `cut`
    those that were over its window; `lost` are those of `marks` that did not stand in what
    the model read, for each answered one. `bodies` takes what was sent, where it is a list.
    """

    daemon_threads = True

    def __init__(self, kind: Kind, window: int, claimed: int, marks: tuple[str, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.window, self.claimed, self.marks = kind, window, claimed, marks
        self.sent: list[int] = []
        self.refused: list[int] = []
        self.cut: list[int] = []
        self.lost: list[tuple[str, ...]] = []
        self.bodies: list[Body] | None = None
        self._counter = Vocabularies().counter("llama3")
        self._counted: dict[str, int] = {}
        self._ids = count()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def measure(self, body: Body) -> int:
        """Return the tokens of a request: what its template makes of it."""
        tools = sum(self._count(json.dumps(tool)) for tool in body.get("tools") or ())
        return tools + sum(map(self._measure_message, body["messages"])) + OPENING

    def _measure_message(self, message: Body) -> int:
        calls = [json.dumps(call["function"]) for call in message.get("tool_calls") or ()]
        texts = [_text(message.get("content")), *calls]
        return MESSAGE + sum(map(self._count, texts))

    def _count(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self._counter.count(text)
        return self._counted[text]

    def _cut(self, body: Body) -> list[Any]:
        """Return the messages that are read: operator text, and the newest that fit."""
        messages = list(body["messages"])
        while self.measure({**body, "messages": messages}) > self.window:
            oldest = next((i for i, m in enumerate(messages) if m["role"] != "system"), 0)
            del messages[oldest]
        return messages

    def list_models(self) -> Any:
        """Return the answer of `/v1/models`."""
        card = {"id": MODEL, "object": "model"}
        if self.kind == "counts":
            return {"data": [{**card, "owned_by": "vllm", "max_model_len": self.claimed}]}
        return {"data": [{**card, "context_length": self.claimed}]}

    def answer(self, body: Body) -> tuple[int, Any, dict[str, int] | None]:
        """Return status, error or text, and the usage of a request."""
        if self.bodies is not None:
            self.bodies.append(body)
        size = self.measure(body)
        if size > self.window and self.kind != "cuts":
            self.refused.append(size)
            return 400, self._refuse(size), None
        read, messages = size, body["messages"]
        if size > self.window:
            self.cut.append(size)
            messages = self._cut(body)
            read = self.measure({**body, "messages": messages})
        self.sent.append(size)
        held = json.dumps(messages)
        self.lost.append(tuple(mark for mark in self.marks if mark not in held))
        text = f"Entry {next(self._ids)} is noted; the wind holds."
        usage = {"prompt_tokens": read, "completion_tokens": 12, "total_tokens": read + 12}
        return 200, text, None if self.kind == "silent" else usage

    def _refuse(self, size: int) -> Any:
        if self.kind == "counts":
            text = (
                f"This model's maximum context length is {self.window} tokens. However, your "
                f"request has {size} input tokens. Please reduce the length of the input messages."
            )
            error = {"message": text, "type": "BadRequestError", "param": "input_tokens"}
            return {"error": {**error, "code": 400}}
        if self.kind == "words":
            text = "The prompt is too long for this model."
            return {"error": {"message": text, "type": "invalid_request_error", "code": None}}
        text = (
            f"This model's maximum context length is {self.window} tokens. However, your messages "
            f"resulted in {size} tokens. Please reduce the length of the messages."
        )
        error = {"message": text, "type": "invalid_request_error", "param": "messages"}
        return {"error": {**error, "code": "context_length_exceeded"}}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text", "")) for part in content)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: else each answer waits for an acknowledgement
    server: Cask

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_GET(self) -> None:
        """Answer what is asked about the server."""
        if self.path == "/v1/models":
            self._send(200, self.server.list_models())
        elif self.path == "/version" and self.server.kind == "counts":
            self._send(200, {"version": "0.11.0"})
        else:
            self._send(404, {"error": "not found"})

    def do_POST(self) -> None:
        """Answer a request, or count it."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        if self.path == "/tokenize" and server.kind == "counts":
            found = {"count": server.measure(body), "max_model_len": server.claimed}
            self._send(200, {**found, "tokens": []})
            return
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": "not found"})
            return
        status, made, usage = server.answer(body)
        if status != 200:
            self._send(status, made)
            return
        head = {"id": "c", "created": 1, "model": body["model"]}
        if body.get("stream"):
            self._stream({**head, "object": "chat.completion.chunk"}, made, usage)
            return
        said = {"role": "assistant", "content": made}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice]}
        self._send(200, whole if usage is None else {**whole, "usage": usage})

    def _stream(self, head: Body, text: str, usage: Any) -> None:
        chunks: list[Any] = [
            {**head, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
        if usage is not None:
            chunks.append({**head, "choices": [], "usage": usage})
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self._write(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())

    def _send(self, status: int, body: Any) -> None:
        self._write(status, "application/json", json.dumps(body).encode())

    def _write(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

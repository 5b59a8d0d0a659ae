"""An Ollama server as its documentation describes it: strict about requests, streaming lines.

The model plays a script. What the real server passes over in silence (an unknown field, a result
without a call) is refused here, so that a test sees it. Source of the shapes and of the words:
ollama docs/api.md ("Generate a chat completion", "List Local Models", "Show Model Information",
"List Running Models"), api/types.go and server/routes.go of 2026-08.
"""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

Fields = Mapping[str, Any]

REQUEST: Final = frozenset(
    {"model", "messages", "stream", "format", "keep_alive", "tools", "options", "think"}
)
MESSAGE: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content", "images"}),
    "assistant": frozenset({"role", "content", "thinking", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_name"}),
}
OPTIONS: Final = frozenset({"num_ctx", "num_predict", "temperature", "seed", "top_k", "top_p"})

BYTES_A_TOKEN: Final = 4
"""Bytes of a request's JSON that count as one token here."""

STAMP: Final = "2026-08-04T08:52:19.385406455-07:00"


@dataclass(frozen=True)
class Turn:
    """An answer of the model: thinking, text, and calls (name, arguments).

    `breaks` ends the stream before its last line, `error` puts an error in the place of that line.
    """

    text: str = ""
    thinking: str = ""
    calls: Sequence[tuple[str, Fields]] = ()
    reason: str = "stop"
    breaks: bool = False
    error: str | None = None


@dataclass
class Ollama:
    """A server with one model, `qwen3:14b`; a loaded model has `window` tokens.

    A request may ask for another window, of `trained` tokens at most. The turns of `script` are
    played in order, the last one stays. `asked` are the bodies that `/api/chat` was sent, `refused`
    what was wrong with some of them, `overflows` how many were too long.
    """

    script: Sequence[Turn]
    window: int = 8_192
    trained: int = 40_960
    models: Sequence[str] = ("qwen3:14b",)
    overflows: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._played = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def listed(self) -> Fields:
        """Return the answer of `/api/tags`."""
        return {
            "models": [
                {"name": name, "model": name, "size": 9_276_198_565, "digest": "bdbd181c33f2"}
                for name in self.models
            ]
        }

    def running(self) -> Fields:
        """Return the answer of `/api/ps`."""
        rows = self.listed()["models"]
        return {"models": [{**row, "context_length": self.window} for row in rows]}

    def answer(self, body: dict[str, Any]) -> tuple[int, Iterator[Fields]]:
        """Return the status and the lines of an answer of `/api/chat`."""
        self.asked.append(body)
        options = body.get("options") or {}
        faults = list(find_faults(body))
        if body.get("model") not in self.models:
            return 404, iter([{"error": f"model '{body.get('model')}' not found"}])
        if faults:
            self.refused += faults
            return 400, iter([{"error": faults[0]}])
        size = len(json.dumps(body)) // BYTES_A_TOKEN
        bound = min(options.get("num_ctx", self.window), self.trained)
        if size > bound:
            self.overflows += 1
            text = "the prompt is longer than the context length currently available to the model"
            return 400, iter([{"error": f"{text}: {size} tokens > {bound}"}])
        turn = self.script[min(self._played, len(self.script) - 1)]
        self._played += 1
        return 200, _lines(turn, body["model"], size)


def find_faults(body: Fields) -> Iterator[str]:
    """Yield what is wrong with a request."""
    yield from (f"unknown field {name!r}" for name in body.keys() - REQUEST)
    yield from (f"unknown option {name!r}" for name in (body.get("options") or {}).keys() - OPTIONS)
    for tool in body.get("tools") or ():
        known = tool.keys() == {"type", "function"} and tool["type"] == "function"
        if not known or tool["function"].keys() != {"name", "description", "parameters"}:
            yield f"no definition of a tool: {tool!r}"
    waiting: list[str] = []
    for place, message in enumerate(body["messages"]):
        where = f"messages[{place}]"
        yield from (f"{where} {fault}" for fault in _find_form(message))
        if message.get("role") == "tool":
            if not waiting or message.get("tool_name") != waiting.pop(0):
                yield f"{where} is the result of no call"
            continue
        if waiting:
            yield f"{where} stands before the results of {waiting}"
        waiting = [call["function"]["name"] for call in message.get("tool_calls", ())]
    if waiting:
        yield f"the results of {waiting} are missing"


def _find_form(message: Fields) -> Iterator[str]:
    """Yield what is wrong with one message by itself."""
    allowed = MESSAGE.get(str(message.get("role")), frozenset())
    if message.keys() - allowed:
        yield f"is no message: {sorted(message)}"
    silent = "content" not in message and "tool_calls" in message  # as Ollama's own client has it
    if not isinstance(message.get("content"), str) and not silent:
        yield "has no text"
    for image in message.get("images", ()):
        b64decode(image, validate=True)
    for call in message.get("tool_calls", ()):
        function = call.get("function", {})
        if call.keys() != {"function"} or function.keys() != {"name", "arguments"}:
            yield f"holds no call: {call!r}"
        if not isinstance(function.get("arguments"), dict):
            yield "has arguments that are no object"


def _lines(turn: Turn, model: str, size: int) -> Iterator[Fields]:
    """Yield the lines of an answer; thinking comes first, every call in a line of its own."""
    head = {"model": model, "created_at": STAMP}

    def said(**more: Any) -> Fields:
        message = {"role": "assistant", "content": "", **more}
        return {**head, "message": message, "done": False}

    for piece in turn.thinking.split(" ") if turn.thinking else ():
        yield said(thinking=f"{piece} ")
    for piece in turn.text.split(" ") if turn.text else ():
        yield said(content=f"{piece} ")
    for name, arguments in turn.calls:
        yield said(tool_calls=[{"function": {"name": name, "arguments": dict(arguments)}}])
    if turn.error is not None:
        yield {"error": turn.error}
    elif not turn.breaks:
        last = {"message": {"role": "assistant", "content": ""}, "done": True}
        counts = {"prompt_eval_count": size, "eval_count": 9, "total_duration": 4_883_583_458}
        yield {**head, **last, "done_reason": turn.reason, **counts}


def _join(lines: Iterator[Fields]) -> Fields:
    """Return the lines of an answer as the one that `"stream": false` asks for."""
    whole: dict[str, Any] = {}
    said: dict[str, Any] = {"role": "assistant", "content": ""}
    for line in lines:
        whole |= line
        message = line.get("message", {})
        said["content"] += message.get("content", "")
        if message.get("thinking"):
            said["thinking"] = said.get("thinking", "") + message["thinking"]
        if message.get("tool_calls"):
            said["tool_calls"] = [*said.get("tool_calls", ()), *message["tool_calls"]]
    return {**whole, "message": said} if "message" in whole else whole


def _handler(server: Ollama) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms

        def do_GET(self) -> None:
            known = {
                "/api/tags": server.listed,
                "/api/ps": server.running,
                "/v1/models": lambda: {
                    "object": "list",
                    "data": [{"id": name, "owned_by": "library"} for name in server.models],
                },
            }
            found = known.get(self.path)
            self._send(404, [{"error": "404 page not found"}]) if found is None else self._send(
                200, [found()]
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/api/chat":
                status, lines = server.answer(body)
                self._send(status, lines if body.get("stream", True) else [_join(lines)])
            elif self.path == "/api/show":
                info = {"general.architecture": "qwen3", "qwen3.context_length": server.trained}
                self._send(200, [{"parameters": "", "template": "", "model_info": info}])
            else:
                self._send(404, [{"error": "404 page not found"}])

        def _send(self, status: int, lines: Any) -> None:
            self.send_response(status)
            kind = "application/x-ndjson" if status == 200 else "application/json"
            self.send_header("content-type", kind)
            self.end_headers()
            for line in lines:
                self.wfile.write(json.dumps(line).encode() + b"\n")
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler

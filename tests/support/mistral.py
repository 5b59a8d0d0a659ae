"""A loopback server of the documented shape of Mistral's chat completions.

It refuses what the service refuses: unknown fields, tool results that match no call, too much
text. Sources: Mistral's API reference ("Chat Completion") and the types of mistralai 3.7; the
refusal is the service's own, as quoted in public issues. A token is four characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.support.loopback import serve

Body = dict[str, Any]

WINDOW: Final = 500
ANSWER: Final = "words of an answer " * 8
FIELDS: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "max_tokens", "temperature"}
)
MESSAGE: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "prefix"})


class Mistral(ThreadingHTTPServer):
    """A server and the bodies that it answered, or refused."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answered: list[Body] = []
        self.refused: list[str] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        """The address, without a version."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running() -> Iterator[Mistral]:
    """Run a server while the block lasts."""
    with serve(Mistral()) as server:
        yield server


def tokens(body: Body) -> int:
    """Return the size of a request, in tokens of four characters."""
    return len(json.dumps(body["messages"])) // 4


def find_fault(body: Body) -> str:
    """Return how a request is refused, "" where it is taken."""
    unknown = body.keys() - FIELDS
    for message in body["messages"]:
        unknown |= message.keys() - MESSAGE
    if unknown:
        return f"Extra inputs are not permitted: {sorted(unknown)}"
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "Not the same number of function calls and responses"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return "Not the same number of function calls and responses"
        waiting += [call["id"] for call in message.get("tool_calls") or ()]
    if tokens(body) > WINDOW:
        return (
            f"Prompt contains {tokens(body)} tokens and 0 draft tokens, too large for model with "
            f"{WINDOW} maximum context length"
        )
    return ""


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Mistral

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_GET(self) -> None:
        """Answer the list of models."""
        self._send(json.dumps({"object": "list", "data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        """Answer a request, whole or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.keys.append(self.headers.get("authorization"))
        fault = find_fault(body)
        if fault:
            self.server.refused.append(fault)
            error = {"object": "error", "message": fault, "type": "invalid_request_prompt"}
            self._send(json.dumps({**error, "param": None, "code": "3051"}).encode(), 400)
            return
        self.server.answered.append(body)
        used = tokens(body)
        usage = {"prompt_tokens": used, "completion_tokens": 40, "total_tokens": used + 40}
        head = {"id": "c", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            message = {"role": "assistant", "content": ANSWER, "tool_calls": None}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(json.dumps(whole).encode())
            return
        head["object"] = "chat.completion.chunk"
        events = [
            {**head, "choices": [_choice({"role": "assistant", "content": ""})]},
            {**head, "choices": [_choice({"content": ANSWER})]},
            {**head, "choices": [_choice({"content": ""}, "stop")], "usage": usage},
        ]
        sent = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        self._send(f"{sent}data: [DONE]\n\n".encode(), kind="text/event-stream")

    def _send(self, data: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _choice(delta: Body, reason: str | None = None) -> Body:
    return {"index": 0, "delta": delta, "finish_reason": reason}

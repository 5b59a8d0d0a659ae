"""A loopback gateway of Chat Completions that reports usage as some do: falsely, or not at all.

`uncached` reports only what was not in the request before, `sums` adds up all calls so far,
`absurd` reports a million millions, `zero` nothing. `filter` refuses every seventh request as a
content filter that quotes what a user wrote. What is over the window is refused in OpenAI's words.
Sources: LiteLLM's and OpenRouter's issues on usage; Azure's content filter. A token is four
characters.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

Body = Mapping[str, Any]

MODES: Final = ("honest", "uncached", "sums", "absurd", "zero", "filter")

QUOTED: Final = (
    "The response was filtered. The prompt said: prompt is too long: 900 tokens > 512 maximum"
)


class Gateway(ThreadingHTTPServer):
    """The gateway; `sent` are the sizes of answered requests, `refused` those over the window."""

    daemon_threads = True

    def __init__(self, window: int, mode: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.window, self.mode = window, mode
        self.sent: list[int] = []
        self.refused: list[int] = []
        self.filtered = self.asked = 0

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def report(self, size: int) -> int:
        """Return the prompt tokens that are reported for a request of this size."""
        before = self.sent[-1] if self.sent else 0
        reports = {
            "uncached": max(size - before, 1),
            "sums": sum(self.sent) + size,
            "absurd": 10**12,
            "zero": 0,
        }
        return reports.get(self.mode, size)

    def answer(self, body: Body) -> tuple[int, Any]:
        """Return the status and the answer to a request."""
        self.asked += 1
        size = len(json.dumps(body["messages"])) // 4
        if self.mode == "filter" and self.asked % 7 == 0:
            self.filtered += 1
            error = {"message": QUOTED, "code": "content_filter", "type": "invalid_request_error"}
            return 400, {"error": {**error, "param": "prompt"}}
        if size > self.window:
            self.refused.append(size)
            text = (
                f"This model's maximum context length is {self.window} tokens. However, your "
                f"messages resulted in {size} tokens. Please reduce the length of the messages."
            )
            error = {"message": text, "type": "invalid_request_error", "param": "messages"}
            return 400, {"error": {**error, "code": "context_length_exceeded"}}
        reported = self.report(size)
        self.sent.append(size)
        said = {"role": "assistant", "content": "Noted."}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        usage = {"prompt_tokens": reported, "completion_tokens": 3, "total_tokens": reported + 3}
        return 200, {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"],
                     "choices": [choice], "usage": usage}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Gateway

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = self.server.answer(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running(window: int, mode: str) -> Iterator[Gateway]:
    """Run a gateway while the block lasts."""
    server = Gateway(window, mode)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

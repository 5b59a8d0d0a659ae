"""A model over real HTTP that decides by what it is sent: it goes on wherever a turn was cut.

OpenAI Chat, streamed. It keeps nothing from one request to the next.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from tests.agent.acting import chunk

Asked = tuple[str, Mapping[str, Any]]
"""A call of a tool: its name and its arguments."""

JOB: Final = re.compile(r"\bjob (\w+)")
"""What a person says names the job; ids of calls carry that name."""

PIECES: Final = 3
"""Pieces that a text is streamed in."""


class Thinking:
    """A server whose model works through `script`, one answer with these calls after the other.

    Where it stands in a job it reads from the ids of the calls that it is shown, so an answer that
    was lost is given again. After the script it ends the job with a text.
    """

    def __init__(self, script: Sequence[Sequence[Asked]]) -> None:
        self.script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answered))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def base_url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answered(self, body: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the events of an answer."""
        messages: list[Mapping[str, Any]] = body["messages"]
        job, step = _stand(messages)
        done = step == len(self.script)
        text = f"The job {job} is done." if done else f"Now step {step} of the job."
        size = -(-len(text) // PIECES)
        for start in range(0, len(text), size):
            yield chunk({"content": text[start : start + size]})
        if not done:
            yield chunk({"tool_calls": _calls(f"{job}-{step}", self.script[step])})
        yield chunk({}, finish="stop" if done else "tool_calls")
        prompt = len(json.dumps(body)) // 4
        report = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
        yield {"object": "chat.completion.chunk", "choices": [], "usage": report}
        yield "[DONE]"


def _stand(messages: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the job that a person gave last, and the step that is due in it."""
    said = [json.dumps(m["content"]) for m in messages if m["role"] == "user"]
    job = [name for text in said for name in JOB.findall(text)][-1]
    ids = [call["id"] for m in messages for call in m.get("tool_calls") or ()]
    steps = [int(parts[1]) for parts in (i.split("-") for i in ids) if parts[0] == job]
    return job, max(steps, default=-1) + 1


def _calls(name: str, asked: Sequence[Asked]) -> list[dict[str, Any]]:
    return [
        {
            "index": place,
            "id": f"{name}-{place}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for place, (tool, arguments) in enumerate(asked)
    ]


def _handler(answered: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for event in answered(body):
                    data = event if isinstance(event, str) else json.dumps(event)
                    self.wfile.write(f"data: {data}\n\n".encode())
            except ConnectionError:
                self.close_connection = True  # who asked was killed

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler

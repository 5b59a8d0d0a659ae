"""A loopback model server for the conformance suite: it counts, refuses and checks what it is sent.

It speaks Chat Completions, whole and streamed. A person's "turn N" is answered by a call of
`read_log`, a result by "turn N is done". It refuses what OpenAI's API refuses: results that answer
no call, calls without results, and more tokens than a model takes, in OpenAI's words. A token is
one of o200k's; four are added for each message, as in OpenAI's cookbook ("How to count tokens with
tiktoken").
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.integrations import model_server_gemini
from tests.laws.judge import tokens

Body = Mapping[str, Any]

OTHERS: Final = 16_000
"""Tokens that a model of another name takes: those of the examples in the docs."""

TOOL: Final = "read_log"
CALLED: Final = "call_{number}"

ENDING: Final = "final_answer"
"""The tool by which smolagents' agents answer a person."""

SEARCH: Final = "ullage_search"
FIND: Final = re.compile(r"turn \d+: find (.+)")
"""A person wants a line of the log that is left out: its first word must come back."""

ASKED: Final = re.compile(r"\A(?:\s*Current Task: |(?:.*\n)?New task:\n)?turn (\d+)\b", re.DOTALL)
"""What a person says, by itself or as CrewAI or smolagents write it (behind the last result)."""


@dataclass
class Watched:
    """What a run's requests showed.

    `refused` are sizes over the window, alone or with the answer that was asked for; `bounded` says
    how many answered requests bounded their answer. `faults` are what no provider takes, `breaks`
    the turns at which a request did not begin with the one before it.
    """

    requests: int = 0
    largest: int = 0
    bounded: int = 0
    refused: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    last: list[Any] = field(default_factory=list)


class ModelServer(ThreadingHTTPServer):
    """The server: `claims` and `takes` are the windows of its models, by name."""

    daemon_threads = True

    def __init__(self, claims: Mapping[str, int], takes: Mapping[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.claims, self.takes = dict(claims), dict(takes)
        self.watched = Watched()
        self._counted: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        if text not in self._counted:
            self._counted[text] = tokens(text)
        return self._counted[text]

    def measure(self, body: Body) -> int:
        """Return the tokens of a request."""
        size = sum(self.count(json.dumps(tool)) for tool in body.get("tools") or ())
        for message in body["messages"]:
            calls = [json.dumps(call["function"]) for call in message.get("tool_calls") or ()]
            size += 4 + sum(map(self.count, [_find_text(message), *calls]))
        return size + 3

    def answer(self, body: Body) -> tuple[int, Any]:
        """Return the status, and a message with its usage, or an error."""
        with self._lock:
            return self._answer(body)

    def _answer(self, body: Body) -> tuple[int, Any]:
        seen, messages = self.watched, body["messages"]
        seen.requests += 1
        fault = find_fault(messages)
        if fault:
            seen.faults.append(fault)
            return 400, _make_error(fault, "invalid_request_error")
        size = self.measure(body)
        window = self.takes.get(body["model"].rpartition("/")[2], OTHERS)
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        if size + asked > window:
            seen.refused.append(size)
            return 400, _make_error(_refuse(size, asked, window), "context_length_exceeded")
        seen.bounded += bool(asked)
        seen.largest = max(seen.largest, size)
        number = find_turn(messages)
        if seen.last != messages[: len(seen.last)]:
            seen.breaks.append(number)
        seen.last = messages
        wanted = find_search(messages)
        if wanted and not is_result(messages[-1]) and has_tool(body, SEARCH):
            made = _make_call(f"find_{number}", SEARCH, {"query": wanted})
        elif wanted and wanted.split()[0] not in _find_text(messages[-1]):
            made = {"content": f"turn {number} found nothing"}
        elif not is_result(messages[-1]):
            made = _make_call(CALLED.format(number=number), TOOL, {"part": number})
        elif has_tool(body, ENDING):
            made = _make_call(f"end_{number}", ENDING, {"answer": f"turn {number} is done"})
        else:
            made = {"content": f"turn {number} is done"}
        usage = {"prompt_tokens": size, "completion_tokens": 12, "total_tokens": size + 12}
        return 200, ({"role": "assistant", **made}, usage)


def find_turn(messages: list[Any]) -> int:
    """Return the number of the newest turn that a person asked for."""
    for message in reversed(messages):
        found = ASKED.match(_find_text(message)) if message["role"] == "user" else None
        if found:
            return int(found[1])
    return 0


def find_search(messages: list[Any]) -> str:
    """Return what a person wants to be found in what was left out, "" where they want nothing."""
    for message in reversed(messages):
        text = _find_text(message) if message["role"] == "user" else ""
        if ASKED.match(text):
            found = FIND.search(text)
            return found[1] if found else ""
    return ""


def is_result(message: Body) -> bool:
    """Whether a message is the result of a call: as such, or as a text that asks nothing."""
    text = _find_text(message)
    return message["role"] == "tool" or ("Observation:" in text and not ASKED.match(text))


def has_tool(body: Body, name: str) -> bool:
    """Whether a request offers a tool."""
    return any(tool["function"]["name"] == name for tool in body.get("tools") or ())


def find_fault(messages: list[Any]) -> str:
    """Return why no provider takes these messages, "" where it does."""
    if not messages or messages[0]["role"] not in ("system", "developer"):
        return "the operator's text is gone"
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                return f"messages[{place}]: a result without a call"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return f"messages[{place}]: {sorted(waiting)} have no result before it"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return f"{sorted(waiting)} have no result" if waiting else ""


def _refuse(size: int, asked: int, window: int) -> str:
    said = f"This model's maximum context length is {window} tokens. However, "
    if not asked:
        said += f"your messages resulted in {size} tokens. "
        return said + "Please reduce the length of the messages."
    said += f"you requested {size + asked} tokens ({size} in the messages, {asked} in the "
    return said + "completion). Please reduce the length of the messages or completion."


def _find_text(message: Body) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text", "")) for part in content)


def _make_call(name: str, tool: str, arguments: Body) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": name, "type": "function", "function": function}]}


def _make_error(text: str, code: str) -> Any:
    error = {"message": text, "type": "invalid_request_error", "param": "messages", "code": code}
    return {"error": error}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: else each answer waits for an acknowledgement
    server: ModelServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_GET(self) -> None:
        """List the models with what they claim."""
        if self.path != "/v1/models":
            self._send(404, {"error": "not found"})
            return
        cards = [
            {"id": name, "object": "model", "context_length": claimed}
            for name, claimed in self.server.claims.items()
        ]
        self._send(200, {"object": "list", "data": cards})

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = model_server_gemini.PATH.fullmatch(self.path)
        if found:
            self._answer_gemini(body, found[1], streamed=bool(found[2]))
            return
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": "not found"})
            return
        status, made = self.server.answer(body)
        if status != 200:
            self._send(status, made)
            return
        message, usage = made
        head = {"id": "c", "created": 1, "model": body["model"]}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        if body.get("stream"):
            self._stream({**head, "object": "chat.completion.chunk"}, message, reason, usage)
            return
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self._send(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _answer_gemini(self, body: Body, model: str, *, streamed: bool) -> None:
        status, made = self.server.answer(model_server_gemini.read_request(model, body))
        if status != 200:
            self._send(status, model_server_gemini.write_error(made["error"]["message"]))
            return
        answer = model_server_gemini.write_answer(*made)
        if streamed:
            self._send_events(b"data: " + json.dumps(answer).encode() + b"\r\n\r\n")
        else:
            self._send(200, answer)

    def _stream(self, head: Body, message: Body, reason: str, usage: Body) -> None:
        self._send_events(b"".join(_write_events(head, message, reason, usage)))

    def _send_events(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send(self, status: int, made: Any) -> None:
        data = json.dumps(made).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _write_events(head: Body, message: Body, reason: str, usage: Body) -> Iterator[bytes]:
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    choices: list[list[Any]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": reason}],
        [],
    ]
    for choice in choices:
        event = {**head, "choices": choice, "usage": None if choice else usage}
        yield b"data: " + json.dumps(event).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"

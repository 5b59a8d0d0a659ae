"""Loopback servers of the documented shape of Gemini and of Bedrock's Converse.

They refuse what the services refuse: turns out of order, results that match no call, too much
text. Sources: Gemini API reference ("generateContent"), the service model of botocore 1.44, the
refusals quoted in public issues of gemini-cli and langchain-aws. A token is four characters.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

from tests.support.loopback import serve

Body = dict[str, Any]

WINDOW = 500
"""Tokens that both servers take."""

LONG = "words of an answer " * 8


class Cloud(ThreadingHTTPServer):
    """A server and the bodies that it answered, or refused."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answered: list[Body] = []
        self.refused: list[str] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running() -> Iterator[Cloud]:
    """Run a server while the block lasts."""
    with serve(Cloud()) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Cloud

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_POST(self) -> None:
        """Answer a request of either service."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.keys.append(self.headers.get("x-goog-api-key"))
        if self.path.endswith(":countTokens"):
            self._send(json.dumps({"totalTokens": tokens(body)}).encode())
            return
        gemini = "generate" in self.path.lower()
        fault = gemini_fault(body) if gemini else converse_fault(body)
        if fault:
            self.server.refused.append(fault)
            error = {"error": {"code": 400, "message": fault, "status": "INVALID_ARGUMENT"}}
            self._send(json.dumps(error if gemini else {"message": fault}).encode(), 400)
            return
        self.server.answered.append(body)
        used = tokens(body)
        if self.path.endswith(":streamGenerateContent"):
            self._send(json.dumps([chunk(LONG, used), chunk("", used, "STOP")], indent=1).encode())
        elif "streamGenerateContent" in self.path:
            events = [chunk(LONG, used), {**chunk("", used, "STOP")}]
            sent = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
            self._send(sent.encode(), kind="text/event-stream")
        elif gemini:
            self._send(json.dumps(chunk(LONG, used, "STOP")).encode())
        elif self.path.endswith("/converse-stream"):
            frames = b"".join(frame(name, fields) for name, fields in converse_events(used))
            self._send(frames, kind="application/vnd.amazon.eventstream")
        else:
            message = {"role": "assistant", "content": [{"text": LONG}]}
            answer = {"output": {"message": message}, "stopReason": "end_turn"}
            measured = {"usage": usage(used), "metrics": {"latencyMs": 1}}
            self._send(json.dumps({**answer, **measured}).encode())

    def _send(self, data: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        if status == 400:
            self.send_header("x-amzn-errortype", "ValidationException")
        self.end_headers()
        self.wfile.write(data)


def tokens(body: Body) -> int:
    """Return the size of a request, in tokens of four characters."""
    held = body.get("contents", body.get("messages"))
    return len(json.dumps(held)) // 4


def gemini_fault(body: Body) -> str:
    """Return how Gemini refuses a request, "" where it takes it."""
    calls = 0
    for content in body["contents"]:
        if set(content) - {"role", "parts"}:
            return f"Invalid JSON payload received. Unknown name: {sorted(content)}"
        results = sum("functionResponse" in part for part in content["parts"])
        if content["role"] == "user" and results != calls:
            return (
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        asked = sum("functionCall" in part for part in content["parts"])
        calls = asked + (calls if content["role"] == "model" else 0)
    if tokens(body) > WINDOW:
        used = tokens(body)
        return (
            f"The input token count ({used}) exceeds the maximum number of tokens allowed "
            f"({WINDOW})."
        )
    return ""


def converse_fault(body: Body) -> str:
    """Return how Converse refuses a request, "" where it takes it."""
    roles = [message["role"] for message in body["messages"]]
    if roles[0] != "user":
        return "A conversation must start with a user message. Try again with a conversation."
    if any(one == other for one, other in pairwise(roles)):
        return "A conversation must alternate between user and assistant roles."
    wanted: list[str] = []
    for message in body["messages"]:
        blocks = message["content"]
        given = [b["toolResult"]["toolUseId"] for b in blocks if "toolResult" in b]
        if sorted(given) != sorted(wanted):
            return "Expected toolResult blocks for the following Ids: " + ", ".join(wanted)
        wanted = [b["toolUse"]["toolUseId"] for b in blocks if "toolUse" in b]
    if tokens(body) > WINDOW:
        return f"prompt is too long: {tokens(body)} tokens > {WINDOW} maximum"
    return ""


def chunk(text: str, used: int, reason: str = "") -> Body:
    """Return a GenerateContentResponse."""
    candidate: Body = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    counts = {"promptTokenCount": used, "candidatesTokenCount": 40, "totalTokenCount": used + 40}
    ended = {"finishReason": reason} if reason else {}
    return {"candidates": [{**candidate, **ended}], "usageMetadata": counts}


def usage(used: int) -> Body:
    """Return a TokenUsage."""
    return {"inputTokens": used, "outputTokens": 40, "totalTokens": used + 40}


def converse_events(used: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the events of a stream."""
    return [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"delta": {"text": LONG}, "contentBlockIndex": 0}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": usage(used), "metrics": {"latencyMs": 1}}),
    ]


def frame(name: str, fields: Mapping[str, Any]) -> bytes:
    """Return an event as AWS frames it (application/vnd.amazon.eventstream)."""
    named = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(key))
        + key.encode()
        + struct.pack("!BH", 7, len(value))
        + value.encode()
        for key, value in named.items()
    )
    payload = json.dumps(fields).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    data = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return data + struct.pack("!I", crc32(data))

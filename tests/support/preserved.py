"""A loopback server of Anthropic's Messages that binds thinking to what stands before it.

A signature is a hash of the model's kind, the system text, the tools and everything in front of
the block. Newer models refuse a block whose hash is another one; older ones demand that responses
of the open tool loop begin with thinking. Blocks that a model cannot read are dropped. Sources:
Anthropic, "Preserved thinking" and "Extended thinking"; the refusals as issues quote them (opencode
48637). A token is four characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.support.faults import Answer, sse
from tests.support.loopback import serve

Body = Mapping[str, Any]

NEWER, OLDER = "claude-opus-5-5", "claude-opus-5"

UNBOUND = (
    "messages.{i}.content.{j}: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the '
    "`thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
)
DEMANDED = (
    "messages.{i}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
    "`tool_use`. When `thinking` is enabled, a final `assistant` message must start with a "
    "thinking block."
)
EMPTY = "messages.{i}: all messages must have non-empty content"
TOO_LONG = "prompt is too long: {n} tokens > {most} maximum"


class Preserving(ThreadingHTTPServer):
    """The server. `bound` are models that check prefixes; `call` is the tool call of each answer.

    `sent` are the requests that were answered, `refused` the texts of refusals.
    """

    daemon_threads = True

    def __init__(self, window: int, bound: frozenset[str], call: Body) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.window, self.bound, self.call = window, bound, call
        self.sent: list[Body] = []
        self.refused: list[str] = []
        self.last = 10**6  # the number of the answer that ends a turn

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def refuse(self, body: Body) -> str | None:
        """Return what is wrong with a request, or None."""
        size = count(body)
        if size > self.window:
            return TOO_LONG.format(n=size, most=self.window)
        newer = body["model"] in self.bound
        return _find_fault(body, newer=newer)

    def answer(self, body: Body) -> dict[str, Any]:
        """Return the answer: a thought that is signed, and a call or a text."""
        number = len(self.sent)
        signed = sign(body, len(body["messages"]), ())
        newer = body["model"] in self.bound
        thought = {
            "type": "thinking",
            "thinking": f"Step {number}: which page comes next? " * 3,
            "signature": f"{'new' if newer else 'old'}:{signed}",
        }
        call = {"type": "tool_use", "id": f"toolu_{number}", **self.call}
        ends = number >= self.last
        said = {"type": "text", "text": "That was all."} if ends else call
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [thought, said],
            "stop_reason": "end_turn" if ends else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": count(body), "output_tokens": 40},
        }


def count(body: Body) -> int:
    """Return the size of a request, in tokens of four characters; signatures are none."""
    held = {k: body.get(k) for k in ("system", "tools")}
    messages = [
        {**m, "content": [{**b, "signature": ""} for b in _blocks(m)]} for m in body["messages"]
    ]
    return len(json.dumps([held, messages])) // 4


MARKED: Final = ', "cache_control": {"type": "ephemeral"}'
"""A cache mark behind the other fields of a block, as JSON."""


def sign(body: Body, messages: int, blocks: Sequence[Any]) -> str:
    """Return the hash of what stands before a block; blocks of other models count as sent.

    Cache marks are no content: they move from call to call (Anthropic's documentation, "Prompt
    caching").
    """
    before = [body.get("system"), body.get("tools"), body["messages"][:messages], list(blocks)]
    text = json.dumps(before).replace(MARKED, "")
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _blocks(message: Body) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _find_fault(body: Body, *, newer: bool) -> str | None:
    messages = body["messages"]
    asked = [i for i, m in enumerate(messages) if _is_question(m)]
    for i, message in enumerate(messages):
        blocks = _blocks(message)
        if not blocks:
            return EMPTY.format(i=i)
        for j, block in enumerate(blocks):
            signature = block.get("signature", "")
            holds = signature == f"new:{sign(body, i, blocks[:j])}"
            if newer and signature.startswith("new:") and not holds:
                return UNBOUND.format(i=i, j=j)
        calls = any(b["type"] == "tool_use" for b in blocks)
        if not newer and calls and asked and i > asked[-1] and blocks[0]["type"] != "thinking":
            return DEMANDED.format(i=i)
    return _find_orphan(messages)


def _is_question(message: Body) -> bool:
    kinds = {block["type"] for block in _blocks(message)}
    return message["role"] == "user" and "tool_result" not in kinds


def _find_orphan(messages: Sequence[Body]) -> str | None:
    waiting: set[str] = set()
    for i, message in enumerate(messages):
        blocks = _blocks(message)
        found = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if found != waiting and message["role"] == "user":
            return f"messages.{i}: `tool_use` ids were found without `tool_result` blocks"
        if message["role"] == "assistant":
            waiting = {b["id"] for b in blocks if b["type"] == "tool_use"}
        else:
            waiting = set()
    return None


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Preserving

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_POST(self) -> None:
        """Answer a request, whole or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.endswith("/messages"):
            self._send(b"{}", 404)
            return
        fault = self.server.refuse(body)
        if fault is not None:
            self.server.refused.append(fault)
            error = {"type": "invalid_request_error", "message": fault}
            self._send(json.dumps({"type": "error", "error": error}).encode(), 400)
            return
        answer = self.server.answer(body)
        self.server.sent.append(body)
        if body.get("stream"):
            self._send(b"".join(streamed(answer).blocks), kind="text/event-stream")
        else:
            self._send(json.dumps(answer).encode())

    def _send(self, data: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def streamed(answer: Body) -> Answer:
    """Return an answer as the events of a stream."""
    opening = {**answer, "content": [], "stop_reason": None}
    events: list[Any] = [{"type": "message_start", "message": opening}]
    for index, block in enumerate(answer["content"]):
        events += _list_events(index, block)
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]
    return sse(*events)


def _list_events(index: int, block: Body) -> list[Any]:
    kind = block["type"]
    empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}
    begun = {**block, **empty.get(kind, {"input": {}})}
    pieces: list[Any] = {
        "thinking": lambda: [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ],
        "text": lambda: [{"type": "text_delta", "text": block["text"]}],
        "tool_use": lambda: [
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        ],
    }[kind]()
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": p} for p in pieces),
        {"type": "content_block_stop", "index": index},
    ]


LOOK: Body = {"name": "look", "input": {"page": 1}}


@contextmanager
def preserving(
    window: int = 2400, bound: frozenset[str] = frozenset({NEWER}), call: Body = LOOK
) -> Iterator[Preserving]:
    """Run a server while the block lasts."""
    with serve(Preserving(window, bound, call)) as server:
        yield server

"""A loopback server that compacts by itself, in the words of Messages and of Responses.

What stands before the newest compaction is not read, and takes nothing. A compaction is made where
a request asks for it and is large enough, and must come back as it was given. Sources: Anthropic,
"Compaction"; OpenAI's guide "Compaction"; the types of both Python SDKs. A token is four
characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.loopback import serve

Body = Mapping[str, Any]

LOOK: Body = {"name": "look", "input": {"page": 1}}


class Compacting(ThreadingHTTPServer):
    """The server. `call` is the tool call of each answer, but for those whose number is in `last`.

    `sent` are the requests that were answered, `refused` the texts of refusals, `made` the
    compactions by number, `standalone` the requests for nothing but a compaction. Answers of
    Responses begin with reasoning, without which what follows it is refused, and the reverse.
    """

    daemon_threads = True

    def __init__(self, window: int, call: Body) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.window, self.call = window, call
        self.sent: list[Body] = []
        self.read: list[int] = []
        self.refused: list[str] = []
        self.made: list[Body] = []
        self.standalone: list[Body] = []
        self.last: frozenset[int] = frozenset()
        self.compacts = True

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def compact(self, read: Sequence[Any], *, readable: bool) -> dict[str, Any]:
        """Return a compaction of what was read."""
        number = len(self.made)
        asked = [t for m in read if m.get("role") == "user" for t in _list_texts(m)]
        told = f"Compaction {number}. What was asked: {' '.join(asked)[:400]}"
        sealed = f"sealed-{number}-" + "QUJD" * 60
        made: dict[str, Any] = {"type": "compaction", "encrypted_content": sealed}
        made |= {"content": told} if readable else {"id": f"cmp_{number}"}
        self.made.append(made)
        return made

    def find_fault(self, messages: Sequence[Any], size: int) -> str | None:
        """Return what is wrong with a request, or None."""
        for piece in _list_compactions(messages):
            if not any(_is_same(piece, made) for made in self.made):
                return "messages: the compaction block is not as it was returned"
        if size > self.window:
            return f"prompt is too long: {size} tokens > {self.window} maximum"
        return None

    def ends(self) -> bool:
        """Tell whether the next answer ends a turn."""
        return len(self.sent) in self.last


def _is_same(piece: Body, made: Body) -> bool:
    return all(piece.get(name) == made.get(name) for name in ("encrypted_content", "content"))


def _list_texts(message: Body) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [b["text"] for b in content or () if isinstance(b.get("text"), str)]


def _list_compactions(messages: Sequence[Any]) -> list[Body]:
    pieces = [m for m in messages if m.get("type") == "compaction"]
    listed = (m["content"] for m in messages if isinstance(m.get("content"), list))
    return [*pieces, *(b for blocks in listed for b in blocks if b["type"] == "compaction")]


def find_read(messages: Sequence[Any]) -> Sequence[Any]:
    """Return what is read of a history: the newest compaction, and what stands behind it."""
    for index in range(len(messages) - 1, -1, -1):
        if any(True for _ in _list_compactions(messages[index : index + 1])):
            before = messages[:index]
            kept = [m for m in before if m.get("role") == "user"]
            whole = kept if len(kept) == index and messages[index].get("type") else []
            return [*whole, *messages[index:]]
    return messages


def count(*held: Any) -> int:
    """Return the size of what is read, in tokens of four characters; ciphertext is none."""
    return len(json.dumps(_strip(held))) // 4


def _strip(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _strip(v) for k, v in value.items() if k != "encrypted_content"}
    return [_strip(v) for v in value] if isinstance(value, list | tuple) else value


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    server: Compacting

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base
        """Stay silent."""

    def do_POST(self) -> None:
        """Answer a request, whole or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"/messages": _answer_messages, "/responses": _answer_responses,
                  "/responses/compact": _answer_compact}  # fmt: skip
        way = answer.get(self.path.split("?")[0].removeprefix("/v1"))
        alone = self.path.endswith("/compact") or body.get("compaction") is not None
        if way is None or (alone and not self.server.compacts):
            self._send({}, 404)
            return
        made = way(self.server, body)
        if isinstance(made, str):
            self.server.refused.append(made)
            error = {"type": "invalid_request_error", "message": made, "code": None, "param": None}
            self._send({"type": "error", "error": error}, 400)
        elif body.get("stream"):
            write = _stream_message if "content" in made else _stream_response
            self._send_bytes(b"".join(map(_event, write(made))), "text/event-stream")
        else:
            self._send(made)

    def _send(self, value: Any, status: int = 200) -> None:
        self._send_bytes(json.dumps(value).encode(), "application/json", status)

    def _send_bytes(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _event(event: Body) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


# --- Messages ------------------------------------------------------------------------------------


def _answer_messages(server: Compacting, body: Body) -> dict[str, Any] | str:
    messages, beside = find_read(body["messages"]), (body.get("system"), body.get("tools"))
    size = count(messages, *beside)
    fault = server.find_fault(body["messages"], size)
    if fault is not None:
        return fault
    content: list[Any] = []
    iterations: list[Any] = []
    spent = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 40}
    if body.get("compaction"):
        server.standalone.append(body)
        made = server.compact(messages, readable=True)
        return _message(body, [made], "compaction", {**spent, "input_tokens": size})
    for edit in (body.get("context_management") or {}).get("edits", ()):
        if size >= (edit.get("trigger") or {}).get("value", 150_000):
            iterations.append({"type": "compaction", "input_tokens": size, **spent})
            content.append(server.compact(messages, readable=True))
            size = count(content, *beside)
    server.read.append(size)
    number, ends = len(server.sent), server.ends()
    call = {"type": "tool_use", "id": f"toolu_{number}", **server.call}
    content.append({"type": "text", "text": "That was all."} if ends else call)
    server.sent.append(body)
    usage: dict[str, Any] = {**spent, "input_tokens": size}
    if iterations:
        usage["iterations"] = [*iterations, {"type": "message", "input_tokens": size, **spent}]
    return _message(body, content, "end_turn" if ends else "tool_use", usage)


def _message(body: Body, content: list[Any], stop: str, usage: Any) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
            "content": content, "stop_reason": stop, "stop_sequence": None,
            "usage": usage}  # fmt: skip


def _stream_message(answer: Body) -> Iterator[Body]:
    yield {"type": "message_start",
           "message": {**answer, "content": [], "stop_reason": None}}  # fmt: skip
    for index, block in enumerate(answer["content"]):
        yield from _stream_block(index, block)
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": answer["usage"]}
    yield {"type": "message_stop"}


def _stream_block(index: int, block: Body) -> Iterator[Body]:
    kind = block["type"]
    begun: Any = {"text": {"type": "text", "text": ""}, "tool_use": {**block, "input": {}},
                  "compaction": {"type": "compaction", "content": None}}[kind]  # fmt: skip
    piece: Any = {**block, "type": "compaction_delta"}
    if kind == "text":
        piece = {"type": "text_delta", "text": block["text"]}
    if kind == "tool_use":
        piece = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    yield {"type": "content_block_delta", "index": index, "delta": piece}
    yield {"type": "content_block_stop", "index": index}


# --- Responses -----------------------------------------------------------------------------------


def _answer_responses(server: Compacting, body: Body) -> dict[str, Any] | str:
    items, beside = find_read(body["input"]), (body.get("instructions"), body.get("tools"))
    size = count(items, *beside)
    fault = server.find_fault(body["input"], size) or _find_lone(items)
    if fault is not None:
        return fault
    output: list[Any] = []
    for entry in body.get("context_management") or ():
        if size >= entry.get("compact_threshold", 150_000):
            output.append(server.compact(items, readable=False))
            size = count(output, *beside)
    server.read.append(size)
    number, ends = len(server.sent), server.ends()
    arguments = json.dumps(server.call["input"])
    output.append({"type": "reasoning", "id": f"rs_{number}", "summary": [],
                   "encrypted_content": "c2VhbGVk" * 40})  # fmt: skip
    if number % 3 == 0:
        output.append(_say(f"msg_{number}", f"Page {number} is next."))
    if ends:
        output.append(_say(f"msg_{number}", "That was all."))
    else:
        output.append({"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
                       "name": server.call["name"], "arguments": arguments,
                       "status": "completed"})  # fmt: skip
    server.sent.append(body)
    return {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": body["model"],
            "status": "completed", "output": output, "parallel_tool_calls": True, "tools": [],
            "tool_choice": "auto", "usage": _usage(size)}  # fmt: skip


def _say(name: str, text: str) -> dict[str, Any]:
    said = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": name, "role": "assistant", "status": "completed",
            "content": [said]}  # fmt: skip


LED = frozenset({"function_call", "reasoning"})


def _find_lone(items: Sequence[Any]) -> str | None:
    """Return that reasoning stands without what it led to, or that without its reasoning."""
    held = {item.get("id") for item in items}
    for place, item in enumerate(items):
        name, kind = item.get("id", ""), item.get("type")
        following = items[place + 1] if place + 1 < len(items) else {}
        led = following.get("role") == "assistant" or following.get("type") in LED
        if kind == "reasoning" and not led:
            return (
                f"Item '{name}' of type '{kind}' was provided without its required following item."
            )
        number = name.partition("_")[2]
        if kind in ("function_call", "message") and number and f"rs_{number}" not in held:
            return (
                f"Item '{name}' of type '{kind}' was provided without its required 'reasoning' "
                f"item: 'rs_{number}'."
            )
    return None


def _answer_compact(server: Compacting, body: Body) -> dict[str, Any] | str:
    """Answer `POST /v1/responses/compact`: the user's messages, and one compaction."""
    items = body["input"]
    server.standalone.append(body)
    kept = [item for item in find_read(items) if item.get("role") == "user"]
    made = server.compact(items, readable=False)
    return {"id": "resp_c", "object": "response.compaction", "created_at": 1,
            "output": [*kept, made], "usage": _usage(count(items))}  # fmt: skip


def _usage(size: int) -> dict[str, Any]:
    return {"input_tokens": size, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": size + 40}  # fmt: skip


def _stream_response(answer: Body) -> Iterator[Body]:
    yield {"type": "response.created", "response": {**answer, "status": "in_progress",
           "output": []}, "sequence_number": 0}  # fmt: skip
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place, "item": item, "sequence_number": place + 1}
        yield {"type": "response.output_item.added", **at}
        yield {"type": "response.output_item.done", **at}
    yield {"type": "response.completed", "response": answer, "sequence_number": 99}


@contextmanager
def compacting(window: int = 4000, call: Body = LOOK) -> Iterator[Compacting]:
    """Run a server while the block lasts."""
    with serve(Compacting(window, call)) as server:
        yield server

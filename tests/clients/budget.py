"""A server of Chat Completions that follows a script and is strict: a window, answered calls.

It asks for `read` once a turn, or as often as it is told to, and then says so. What is over its
window it refuses in OpenAI's words; so it does with a call that has no result. The tokens are those
of `bpe-openai`, which ullage does not count by. It knows no proxy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.clients.upstream import read
from tests.counters.oracle import reference

WINDOW: Final = 16_000
TURN: Final = re.compile(r"Turn (\d+)(?:, (\d+) pages)?")
PAGE: Final = re.compile(r"page (\d+)")


class StrictModel:
    """The server, as an ASGI application. `sizes` are the tokens of what it answered."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.sizes: list[int] = []
        self.refused: list[str] = []
        self._count = reference("o200k_base")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        body = await read(receive)
        if scope["method"] != "POST":
            await self._send(send, 404, {"error": {"message": "nothing here"}})
            return
        asked = json.loads(body)
        tokens = self._measure(asked)
        fault = find_fault(asked["messages"])
        if tokens > self.window:
            fault = (
                f"This model's maximum context length is {self.window} tokens. However, your "
                f"messages resulted in {tokens} tokens. Please reduce the length of the messages."
            )
        if fault:
            self.refused.append(fault)
            code = "context_length_exceeded" if tokens > self.window else None
            told = {"message": fault, "type": "invalid_request_error", "code": code}
            await self._send(send, 400, {"error": {**told, "param": "messages"}})
            return
        self.sizes.append(tokens)
        await self._answer(send, asked, tokens)

    def _measure(self, asked: Mapping[str, Any]) -> int:
        """Return the tokens of all text of a request, and four a message for its frame."""
        held = [asked["messages"], asked.get("tools") or []]
        return sum(map(self._count, _list_texts(held))) + 4 * len(asked["messages"])

    async def _answer(self, send: Any, asked: Mapping[str, Any], tokens: int) -> None:
        message, end = write_answer(asked), "stop"
        if "tool_calls" in message:
            end = "tool_calls"
        usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        head = {"id": "c", "created": 1, "model": asked["model"]}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": end}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            await self._send(send, 200, whole)
            return
        chunk = {**head, "object": "chat.completion.chunk"}
        delta = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": end}
        parts: list[dict[str, Any]] = [
            {"choices": [delta]},
            {"choices": [last]},
            {"choices": [], "usage": usage},
        ]
        lines = [json.dumps({**chunk, **part}) for part in parts] + ["[DONE]"]
        data = "".join(f"data: {line}\n\n" for line in lines).encode()
        await self._send(send, 200, data, b"text/event-stream")

    async def _send(
        self, send: Any, status: int, body: Any, kind: bytes = b"application/json"
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = [(b"content-type", kind), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": data})


def write_answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the script says next: a call of `read`, or that the turn is done."""
    messages = asked["messages"]
    tools = [one["function"] for one in asked.get("tools") or []]
    reads = next((one for one in tools if one["name"] == "read"), None)
    users = [m for m in messages if m["role"] == "user" and TURN.search(_join(m["content"]))]
    if reads is None or not users:
        return {"role": "assistant", "content": "Casks."}
    told = TURN.search(_join(users[-1]["content"]))
    assert told is not None
    turn, pages = int(told[1]), int(told[2] or 1)
    last = messages[-1]
    if last["role"] == "tool":
        seen = PAGE.search(_join(last["content"]))
        page = int(seen[1]) + 1 if seen is not None else pages + turn
        if pages == 1 or page > pages:
            return {"role": "assistant", "content": f"Turn {turn} is done."}
    else:
        page = 1 if pages > 1 else turn
    named = "filePath" if "filePath" in reads["parameters"]["properties"] else "path"
    call = {"name": "read", "arguments": json.dumps({named: f"page{page}.txt"})}
    made = {"index": 0, "id": f"call_{turn}_{page}", "type": "function", "function": call}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def find_fault(messages: list[dict[str, Any]]) -> str:
    """Return what is wrong with calls and results, in OpenAI's words; "" for nothing."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return (
                    "messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'."
                )
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages "
                f"responding to each 'tool_call_id'. No response for: {', '.join(waiting)}"
            )
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return ""


def _join(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            yield key
            yield from _list_texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _list_texts(held)

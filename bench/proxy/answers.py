"""What the fake upstream says, in the shapes of the three dialects.

Shapes: OpenAI Chat Completions, Anthropic Messages, Ollama's native API. It knows no sockets, no
clock and no faults. A token is four characters of what the request says, and four a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

Dialect = Literal["chat", "messages", "ollama"]

DIALECTS: Final[Mapping[str, Dialect]] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
    "/api/chat": "ollama",
}
CHARACTERS: Final = 4
FRAMING: Final = 4
WORD: Final = " word"
CREATED: Final = 1_700_000_000
"""A fixed time: equal requests get equal answers."""


class Spent(NamedTuple):
    """Tokens of a request and of its answer."""

    input: int
    output: int


class Frames(NamedTuple):
    """A stream: what opens it, one chunk (sent so many times), what ends it."""

    head: bytes
    chunk: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """What is to be answered. `usage`: whether its tokens are told."""

    dialect: Dialect
    model: str
    chunks: int
    spent: Spent
    usage: bool = True


def counted(body: Mapping[str, Any]) -> int:
    """Return the tokens of a request by the fake's own rule."""
    rest = sum(_size(body.get(key)) for key in ("system", "tools", "prompt"))
    return rest // CHARACTERS + sum(map(_message, body.get("messages", ())))


def cut(body: Mapping[str, Any], window: int) -> int:
    """Return the tokens that are left where a server drops the oldest messages in silence.

    System messages and the newest one stay; where they alone are too long, half of the window is
    left (Ollama's server/prompt.go, and its runner's shift).
    """
    total = counted(body)
    for message in body.get("messages", ())[:-1]:
        if total < window:
            break
        if message.get("role") != "system":
            total -= _message(message)
    return total if total < window else window // 2


def whole(said: Said) -> bytes:
    """Return the answer to a request that does not stream."""
    text = WORD * said.chunks
    return json.dumps(_WHOLE[said.dialect](said, text)).encode()


def frames(said: Said) -> Frames:
    """Return the frames of a stream."""
    return Frames(*_FRAMES[said.dialect](said))


def error(dialect: Dialect, status: int, kind: str, message: str) -> bytes:
    """Return the body of an error as that dialect's servers write it."""
    told: dict[str, Any] = {"message": message, "type": kind, "code": status}
    if dialect == "ollama":
        return json.dumps({"error": message}).encode()
    if dialect == "messages":
        told = {"type": "error", "error": {"type": kind, "message": message}}
        return json.dumps(told).encode()
    return json.dumps({"error": told}).encode()


def overflow(count: int, window: int) -> bytes:
    """Return the refusal of llama.cpp's server, which is the same on all of its paths.

    Source: tools/server/server-context.cpp, b11549.
    """
    message = (
        f"request ({count} tokens) exceeds the available context size ({window} tokens), "
        "try increasing it"
    )
    kind = "exceed_context_size_error"
    told = {"code": 400, "message": message, "type": kind, "n_prompt_tokens": count}
    return json.dumps({"error": {**told, "n_ctx": window}}).encode()


def _message(message: Mapping[str, Any]) -> int:
    said = _size(message.get("content")) + _size(message.get("tool_calls"))
    return said // CHARACTERS + FRAMING


def _size(value: Any) -> int:
    if value is None:
        return 0
    return len(value) if isinstance(value, str) else len(json.dumps(value))


def _sse(value: Mapping[str, Any], event: str = "") -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _chat_usage(spent: Spent) -> dict[str, Any]:
    total = spent.input + spent.output
    usage = {"prompt_tokens": spent.input, "completion_tokens": spent.output}
    return {**usage, "total_tokens": total}


def _chat_whole(said: Said, text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    told = {"id": "chatcmpl-fake", "object": "chat.completion", "created": CREATED}
    usage = {"usage": _chat_usage(said.spent)} if said.usage else {}
    return {**told, "model": said.model, "choices": [choice], **usage}


def _messages_whole(said: Said, text: str) -> dict[str, Any]:
    told = _messages_begun(said)
    told["content"] = [{"type": "text", "text": text}]
    told["usage"]["output_tokens"] = said.spent.output if said.usage else 0
    return {**told, "stop_reason": "end_turn"}


def _ollama_whole(said: Said, text: str) -> dict[str, Any]:
    message = {"message": {"role": "assistant", "content": text}}
    return {**_ollama(said.model), **message, **_ollama_end(said)}


_WHOLE: Final = {"chat": _chat_whole, "messages": _messages_whole, "ollama": _ollama_whole}


def _chat_frames(said: Said) -> tuple[bytes, bytes, bytes]:
    head, chunk, stop = _chat_fixed(said.model)
    usage = b""
    if said.usage:
        told = {**_chat_chunk(said.model), "choices": [], "usage": _chat_usage(said.spent)}
        usage = _sse(told)
    return head, chunk, stop + usage + b"data: [DONE]\n\n"


@lru_cache(maxsize=64)
def _chat_fixed(model: str) -> tuple[bytes, bytes, bytes]:
    def frame(delta: dict[str, str], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _sse({**_chat_chunk(model), "choices": [choice]})

    return frame({"role": "assistant", "content": ""}, None), frame({"content": WORD}, None), \
        frame({}, "stop")  # fmt: skip


def _chat_chunk(model: str) -> dict[str, Any]:
    told = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": CREATED}
    return {**told, "model": model}


def _messages_begun(said: Said) -> dict[str, Any]:
    told: dict[str, Any] = {"id": "msg_fake", "type": "message", "role": "assistant"}
    usage = {"input_tokens": said.spent.input if said.usage else 0, "output_tokens": 1}
    stop = {"stop_reason": None, "stop_sequence": None}
    return {**told, "model": said.model, "content": [], **stop, "usage": usage}


def _messages_frames(said: Said) -> tuple[bytes, bytes, bytes]:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": WORD}
    ended: dict[str, Any] = {"stop_reason": "end_turn", "stop_sequence": None}
    head = _event("message_start", message=_messages_begun(said)) + _event(
        "content_block_start", index=0, content_block=block
    )
    usage = {"output_tokens": said.spent.output if said.usage else 0}
    tail = (
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=ended, usage=usage)
        + _event("message_stop")
    )
    return head, _event("content_block_delta", index=0, delta=delta), tail


def _event(name: str, **fields: Any) -> bytes:
    return _sse({"type": name, **fields}, name)


def _ollama(model: str) -> dict[str, Any]:
    return {"model": model, "created_at": "2026-01-01T00:00:00Z"}


def _ollama_end(said: Said) -> dict[str, Any]:
    counts = {"prompt_eval_count": said.spent.input, "eval_count": said.spent.output}
    times = dict.fromkeys(("total_duration", "load_duration", "prompt_eval_duration"), 1_000_000)
    end = {"done": True, "done_reason": "stop", **times, "eval_duration": 1_000_000}
    return {**end, **(counts if said.usage else {})}


def _ollama_frames(said: Said) -> tuple[bytes, bytes, bytes]:
    def line(text: str, end: Mapping[str, Any]) -> bytes:
        message = {"message": {"role": "assistant", "content": text}}
        return json.dumps({**_ollama(said.model), **message, **end}).encode() + b"\n"

    return b"", line(WORD, {"done": False}), line("", _ollama_end(said))


_FRAMES: Final = {"chat": _chat_frames, "messages": _messages_frames, "ollama": _ollama_frames}

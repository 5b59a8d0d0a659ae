"""The OpenAI Chat Completions dialect: messages in, neutral transcript out, and back.

Also spoken by llama.cpp, Ollama, LM Studio, vLLM, OpenRouter and most other servers. It knows the
shape of the messages and nothing of tokens, windows or policies. Source of the shape: the OpenAI
API reference, `POST /v1/chat/completions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import MalformedHistoryError
from ullage.core.transcript import Call, Message, Part, PartKind, Raw, Rules, Transcript, digest

if TYPE_CHECKING:
    from collections.abc import MutableMapping

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
KNOWN_KEYS: Final = ("content", "tool_calls", "tool_call_id", "name")
PART_KINDS: Final[Mapping[str, PartKind]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "image_url": "image",
    "input_audio": "audio",
    "file": "file",
}

Fingerprint = tuple[object, ...]
Memo = dict[Fingerprint, Message]
"""Messages read before, by content: a message that comes again costs one dictionary look-up."""


class OpenAIChat:
    """Read and write Chat Completions messages.

    `memo` maps content to the message read from it; pass a shared, bounded mapping to make
    repeated reads of one growing history cheap.
    """

    rules: Rules = Rules("openai_chat")

    def __init__(self, memo: MutableMapping[Fingerprint, Message] | None = None) -> None:
        self._memo: MutableMapping[Fingerprint, Message] = {} if memo is None else memo

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read messages: mappings, or SDK objects with `model_dump`.

        Raises MalformedHistoryError naming the position when something is no message at all.
        What is merely out of order (an orphan result) is read; `core.laws` repairs it.
        """
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
            raise MalformedHistoryError(
                f"messages must be a list of messages, not {type(messages).__name__}: pass the "
                'whole history as a list such as [{"role": "user", "content": "..."}]'
            )
        memo = self._memo
        read = []
        for index, raw in enumerate(messages):
            key = _fingerprint(raw)
            message = memo.get(key) if key is not None else None
            if message is None:
                message = _message(raw, index)
                if key is not None:
                    memo[key] = message
            read.append(message)
        return Transcript(tuple(messages), tuple(read), self.rules)

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls."""
        new = dict(_fields(raw, 0))
        content = new.get("content")
        if parts and isinstance(content, list) and new.get("role") not in ("tool", "function"):
            new["content"] = [
                {"type": "text", "text": parts[i]} if i in parts else part
                for i, part in enumerate(content)
            ]
        elif parts:
            new["content"] = parts[0]
        if calls:
            new["tool_calls"] = [
                _with_arguments(call, calls[i]) if i in calls else call
                for i, call in enumerate(new["tool_calls"])
            ]
        return new

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message; `answers` makes it the result of that call."""
        if answers is not None:
            return {"role": "tool", "tool_call_id": answers, "content": text}
        return {"role": role, "content": text}

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` in which the i-th call, or the result, has a new call id."""
        new = dict(_fields(raw, 0))
        if new.get("role") == "tool":
            new["tool_call_id"] = ids[0]
            return new
        new["tool_calls"] = [
            {**call, "id": ids[i]} if i in ids else call for i, call in enumerate(new["tool_calls"])
        ]
        return new


def _fingerprint(raw: Raw) -> Fingerprint | None:
    """Return a hashable stand-in for everything that is read from `raw`, or None without one.

    Only plain messages have one: string or null content, no key beyond `KNOWN_KEYS`.
    """
    if type(raw) is not dict:
        return None
    role, content = raw.get("role"), raw.get("content")
    if type(role) is not str or (content is not None and type(content) is not str):
        return None
    known = 1 + sum(key in raw for key in KNOWN_KEYS)
    if known != len(raw):
        return None
    try:
        asked = tuple(
            (c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in raw.get("tool_calls") or ()
        )
        key = (role, content, raw.get("tool_call_id"), raw.get("name"), asked)
        hash(key)
    except (TypeError, KeyError):
        return None
    return key


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    if isinstance(raw, Mapping):
        return raw
    dump = getattr(raw, "model_dump", None)
    if callable(dump):
        fields = dump(exclude_none=True)
        if isinstance(fields, Mapping):
            return fields
    raise MalformedHistoryError(
        f"messages[{index}] is a {type(raw).__name__}, not a message: expected a mapping with "
        "'role' and 'content', or an object of the OpenAI SDK",
        index=index,
    )


def _message(raw: Raw, index: int) -> Message:
    fields = _fields(raw, index)
    role = fields.get("role")
    if role not in ROLES:
        raise MalformedHistoryError(
            f"messages[{index}] has the role {role!r}: expected one of {', '.join(ROLES)}",
            index=index,
        )
    name = fields.get("name")
    name = name if isinstance(name, str) else None
    if role in ("tool", "function"):
        answers = fields.get("tool_call_id") if role == "tool" else name
        text = "\n".join(p.text for p in _parts(fields.get("content"), index))
        parts: tuple[Part, ...] = (Part("result", text, _text(answers)),)
        return Message("tool", parts, (), name, digest("tool", parts, (), name))
    parts = _parts(fields.get("content"), index)
    parts += tuple(
        Part("refusal" if key == "refusal" else "reasoning", fields[key])
        for key in ("refusal", "reasoning_content", "reasoning")
        if isinstance(fields.get(key), str)
    )
    calls = _calls(fields, index)
    return Message(role, parts, calls, name, digest(role, parts, calls, name))


def _parts(content: object, index: int) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Part("text", content),)
    if isinstance(content, Sequence):
        return tuple(_part(piece) for piece in content)
    raise MalformedHistoryError(
        f"messages[{index}] has content of type {type(content).__name__}: expected a string, "
        "null, or a list of content parts",
        index=index,
    )


def _part(piece: object) -> Part:
    """Read one content part; an unknown type is kept and counted as its JSON text."""
    if isinstance(piece, str):
        return Part("text", piece)
    if isinstance(piece, Mapping):
        kind = PART_KINDS.get(str(piece.get("type")), "other")
        text = piece.get("text") if kind == "text" else piece.get("refusal")
        if isinstance(text, str):
            return Part(kind, text)
        return Part(kind if kind not in ("text", "refusal") else "other", _json(piece))
    return Part("other", _json(piece))


def _calls(fields: Mapping[str, Any], index: int) -> tuple[Call, ...]:
    asked = fields.get("tool_calls") or ()
    legacy = fields.get("function_call")
    if isinstance(legacy, Mapping):
        asked = (*asked, {"id": legacy.get("name"), "function": legacy})
    calls = []
    for call in asked:
        body = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if not isinstance(body, Mapping):
            raise MalformedHistoryError(
                f"messages[{index}] has a tool call without 'function': {_json(call)[:80]}",
                index=index,
            )
        arguments = body.get("arguments", body.get("input", ""))
        arguments = arguments if isinstance(arguments, str) else _json(arguments)
        calls.append(Call(_text(call.get("id")), _text(body.get("name")), arguments))
    return tuple(calls)


def _with_arguments(call: Mapping[str, Any], arguments: str) -> Mapping[str, Any]:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

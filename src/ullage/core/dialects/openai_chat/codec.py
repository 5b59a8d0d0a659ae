"""The OpenAI Chat Completions dialect: messages in, neutral transcript out, and back.

llama.cpp, Ollama, LM Studio, vLLM, OpenRouter and most other servers use it too. This module knows
the shape of the messages and nothing of tokens, windows or policies. Source of the shape: the
OpenAI API reference, `POST /v1/chat/completions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages import marks, media
from ullage.core.messages.fields import as_text, is_listed, json_text, mapping
from ullage.core.messages.foreign import build_error, check_shape, show_value
from ullage.core.messages.readings import Readings
from ullage.core.messages.transcript import (
    Call,
    Media,
    MediaKind,
    Message,
    Part,
    PartKind,
    Raw,
    Rules,
    Transcript,
)

if TYPE_CHECKING:
    from collections.abc import MutableMapping

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
KNOWN_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
PLAIN: Final = frozenset({str, type(None)})
CACHE_MARK: Final = "cache_control"
PART_KINDS: Final[Mapping[str, PartKind]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "image_url": "image",
    "input_audio": "audio",
    "file": "file",
}
"""Kinds of content parts by their type; other types are counted as their JSON text."""

Fingerprint = tuple[object, ...]
Memo = dict[Fingerprint, Message]
"""Messages read before, by content: reading a repeated message costs one dictionary look-up."""


class OpenAIChat:
    """Reads and writes Chat Completions messages.

    `memo` maps content to the message read from it; pass a shared, bounded mapping, so that a
    message that is in several histories is read once. `readings` keeps whole histories.
    """

    rules: Rules = Rules(names.OPENAI_CHAT)

    def __init__(
        self,
        memo: MutableMapping[Fingerprint, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Fingerprint, Message] = {} if memo is None else memo
        self._readings = Readings() if readings is None else readings

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read messages: mappings, or SDK objects with `model_dump`.

        Raises MalformedHistoryError with the position for anything that is no message. A message
        that is only out of order (an orphan result) is read; `core.compaction.laws` finds it.
        """
        if not is_listed(messages):
            raise MalformedHistoryError(
                f"messages must be a list of messages, not {type(messages).__name__}: pass the "
                'whole history as a list such as [{"role": "user", "content": "..."}]'
            )
        return self._readings.read(tuple(messages), self.rules, self._message)

    def _message(self, raw: Raw, index: int) -> Message:
        key = _fingerprint(raw)
        if key is None:
            return _message(raw, index)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _message(raw, index)
        return message

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls."""
        new = dict(_fields(raw, 0))
        content = new.get("content")
        if not parts:
            pass
        elif isinstance(content, str) or new.get("role") in ("tool", "function"):
            new["content"] = parts[0]
        else:
            new["content"] = [
                {"type": "text", "text": parts[i]} if i in parts else part
                for i, part in enumerate(content or ())
            ]
        asked = new.get("tool_calls") or ()
        if not calls.keys().isdisjoint(range(len(asked))):
            new["tool_calls"] = [
                _with_arguments(call, calls[i]) if i in calls else call
                for i, call in enumerate(asked)
            ]
        if len(asked) in calls:
            new["function_call"] = {**new["function_call"], "arguments": calls[len(asked)]}
        return new

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message; `answers` makes it the result of that call."""
        if answers is not None:
            return {"role": "tool", "tool_call_id": answers, "content": text}
        return {"role": role, "content": text}

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a result with `text` under the call id `name`; all calls have the same form."""
        del raw, call
        return self.author("tool", text, name)

    def mark(self, raw: Raw) -> Any:
        """Return the cache mark of a message, or None."""
        return marks.find_last(raw)

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored message with a cache mark."""
        return marks.put(raw, mark)

    def join(self, first: Raw, second: Raw, gap: str) -> Raw:
        """Return one message with the content of both; their other fields are kept."""
        before, after = _fields(first, 0), _fields(second, 0)
        said = [m.get("content") for m in (before, after)]
        texts = [text for text in said if text]
        content: Any = None
        if all(isinstance(text, str) for text in texts):
            content = gap.join(texts) if texts else said[-1]
        else:
            between = [] if len(texts) < len(said) else [gap]
            content = [*_pieces(said[0]), *map(_as_part, between), *_pieces(said[1])]
        return {**before, **after, "content": content}

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new call ids for its calls at these indexes or its result."""
        new = dict(_fields(raw, 0))
        if new.get("role") in ("tool", "function"):
            return {**new, "role": "tool", "tool_call_id": ids[0]}
        new["tool_calls"] = [
            {**_fields(call, 0), "id": ids[i]} if i in ids else call
            for i, call in enumerate(new["tool_calls"])
        ]
        return new


def _pieces(content: Any) -> list[Any]:
    """Return content as a list of parts."""
    return [_as_part(content)] if isinstance(content, str) else list(content or ())


def _as_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _fingerprint(raw: Raw) -> Fingerprint | None:
    """Return a hashable key for everything that is read from `raw`, or None.

    Only plain messages have one: nothing but strings and nulls, no key beyond `KNOWN_KEYS`. The
    types are checked because 1, 1.0 and True are the same dictionary key and are read differently.
    """
    if type(raw) is not dict or "role" not in raw or not raw.keys() <= KNOWN_KEYS:
        return None
    head = (raw["role"], raw.get("content"), raw.get("tool_call_id"), raw.get("name"))
    try:
        asked = [
            text
            for call in raw.get("tool_calls") or ()
            for text in (call["id"], call["function"]["name"], call["function"]["arguments"])
        ]
    except (TypeError, KeyError):
        return None
    key = (*head, *asked)
    return key if PLAIN.issuperset(map(type, key)) else None


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is not None:
        return fields
    raise build_error(raw, None, index)


def _message(raw: Raw, index: int) -> Message:
    fields = _fields(raw, index)
    check_shape(raw, fields, index)
    role = fields.get("role")
    if role not in ROLES:
        raise MalformedHistoryError(
            f"messages[{index}] has the role {show_value(role)}: expected one of "
            f"{', '.join(ROLES)}",
            index=index,
        )
    name = fields.get("name")
    name = name if isinstance(name, str) else None
    if role in ("tool", "function"):
        answers = fields.get("tool_call_id") if role == "tool" else name
        pieces = _parts(fields.get("content"), index)
        text = "\n".join(p.text for p in pieces if p.media is None)
        result = Part("result", text, as_text(answers))
        seen = tuple(p._replace(answers=result.answers) for p in pieces if p.media is not None)
        return Message("tool", (result, *seen), (), name)
    parts = _parts(fields.get("content"), index)
    parts += tuple(
        Part("refusal" if key == "refusal" else "reasoning", fields[key])
        for key in ("refusal", "reasoning_content", "reasoning")
        if isinstance(fields.get(key), str)
    )
    parts += _beside(fields, index)
    calls = _calls(fields, index)
    return Message(role, parts, calls, name)


def _beside(fields: Mapping[str, Any], index: int) -> tuple[Part, ...]:
    """Return an assistant message's content in other fields: spoken audio, reasoning items.

    `reasoning_details` is OpenRouter's form.
    """
    found = []
    if fields.get("reasoning_details"):
        found.append(Part("reasoning", json_text(fields["reasoning_details"], index)))
    spoken = mapping(fields.get("audio"))
    if spoken is not None:
        found.append(Part("audio", as_text(spoken.get("id")), media=Media("audio")))
    return tuple(found)


def _parts(content: object, index: int) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Part("text", content),)
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return tuple(_part(piece, index) for piece in content)
    raise MalformedHistoryError(
        f"messages[{index}] has content of type {type(content).__name__}: expected a string, "
        "null, or a list of content parts",
        index=index,
    )


def _part(piece: object, index: int) -> Part:
    """Read one content part; an unknown type is counted as its JSON text.

    A cache mark is not part of the text, because it moves from call to call.
    """
    if isinstance(piece, str):
        return Part("text", piece)
    fields = mapping(piece)
    if fields is None:
        return Part("other", json_text(piece, index))
    kind = PART_KINDS.get(str(fields.get("type")), "other")
    text = fields.get("text" if kind == "text" else "refusal")
    if kind in ("text", "refusal") and isinstance(text, str):
        return Part(kind, text)
    if kind in ("image", "audio", "file"):
        return _medium(kind, fields)
    return Part("other", json_text({k: v for k, v in fields.items() if k != CACHE_MARK}, index))


def _medium(kind: MediaKind, fields: Mapping[str, Any]) -> Part:
    """Read an image, a recording or a file, by its headers; nothing is fetched."""
    inner = mapping(fields.get(str(fields.get("type")))) or {}
    place = inner.get("url") or inner.get("data") or inner.get("file_data")
    source = place if isinstance(place, str) else ""
    detail = inner.get("detail")
    known = media.describe(kind, source, detail=detail if isinstance(detail, str) else None)
    named = source or as_text(inner.get("file_id"))
    return Part(kind, media.identity(named), media=known)


def _calls(fields: Mapping[str, Any], index: int) -> tuple[Call, ...]:
    asked = fields.get("tool_calls") or ()
    plain = type(asked) in (list, tuple)
    if not plain and (isinstance(asked, str | Mapping) or not isinstance(asked, Sequence)):
        raise MalformedHistoryError(
            f"messages[{index}] has tool_calls of type {type(asked).__name__}: expected a list",
            index=index,
        )
    calls = [_call(call, index) for call in asked]
    legacy = mapping(fields.get("function_call"))
    if legacy is not None:
        calls.append(_call({"id": legacy.get("name"), "function": legacy}, index))
    return tuple(calls)


def _call(asked: object, index: int) -> Call:
    call = mapping(asked) or {}
    body = mapping(call.get("function")) or mapping(call.get("custom"))
    if not body:
        raise MalformedHistoryError(
            f"messages[{index}] has a tool call without 'function': {show_value(asked)}",
            index=index,
        )
    arguments = body.get("arguments", body.get("input", ""))
    arguments = arguments if isinstance(arguments, str) else json_text(arguments, index)
    return Call(as_text(call.get("id")), as_text(body.get("name")), arguments)


def _with_arguments(asked: Raw, arguments: str) -> Mapping[str, Any]:
    call = _fields(asked, 0)
    kind, slot = ("function", "arguments") if call.get("function") else ("custom", "input")
    return {**call, kind: {**_fields(call[kind], 0), slot: arguments}}

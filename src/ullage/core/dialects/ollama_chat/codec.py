"""Ollama's own dialect: messages of `POST /api/chat` in, neutral transcript out, and back.

Its calls need no ids: a result belongs to a call of the round by its name or by its place. The
neutral view still has ids, made from a call's place in its response; they are never written. This
module knows the shape of the messages and nothing of tokens, windows or policies. Source of the
shape: ollama docs/api.md and api/types.go of 2026-08, and the types of its Python client 0.6.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.fields import as_text, fingerprint, is_listed, json_text, mapping
from ullage.core.messages.foreign import build_error, check_shape, show_value
from ullage.core.messages.media import describe, identity
from ullage.core.messages.readings import Readings
from ullage.core.messages.transcript import Call, Message, Part, Raw, Rules, Transcript

ROLES: Final = ("system", "user", "assistant", "tool")
LEFT_OUT: Final = "[ullage: image left out]"
"""The line that replaces an image that was left out. A message has one text, and its images are in
another field. So such lines at the end of the text are read as parts of their own, and an edit
finds its place again.
"""

MOST_LEFT_OUT: Final = 1_000
"""Most lines of `LEFT_OUT` that are read as parts of their own."""

Key = tuple[str, bytes, str]
"""Dialect, fingerprint, and the call that is answered: one mapping may serve several readers."""


class OllamaChat:
    """Reads and writes messages of Ollama's chat.

    A result names the tool (`tool_name`), the call (`tool_call_id`, if calls came with ids) or
    neither; then it belongs to the next call that waits. `memo` maps content to the message read
    from it; pass a shared, bounded mapping to make repeated reads of one growing history cheap.
    """

    rules: Rules = Rules(names.OLLAMA_CHAT, ordered=True)

    def __init__(
        self,
        memo: MutableMapping[Key, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Key, Message] = {} if memo is None else memo
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
        raws = tuple(messages)
        asked: _Round | None = None

        def read_message(raw: Raw, index: int) -> Message:
            nonlocal asked
            fields, answers = _fields(raw, index), ""
            check_shape(raw, fields, index)
            if _role(fields) == "tool":
                asked = asked or _waiting(raws[:index])
                answers = asked.match_result(fields)
            message = self._message(fields, index, answers)
            if message.calls:
                asked = _Round(_map_names(message.calls), _read_given_ids(fields["tool_calls"]))
            return message

        return self._readings.read(raws, self.rules, read_message)

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls.

        The text of a result replaces all its content, including images. The text for an image is
        added at the end of the message's text.
        """
        new = dict(_fields(raw, 0))
        if calls:
            new["tool_calls"] = [
                _with_arguments(call, calls[i]) if i in calls else call
                for i, call in enumerate(new["tool_calls"])
            ]
        texts, images = _texts(new, 0), _images(new, 0)
        shown = len(texts) + len(images)
        if shown in parts:
            new["thinking"] = parts[shown]
        if min(parts, default=shown) < shown:
            new |= _replace_parts(texts, images, parts, whole=_role(new) == "tool" and 0 in parts)
            if not new["images"]:
                del new["images"]
        return new

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message; a result is matched by its place and names no call."""
        return {"role": role if answers is None else "tool", "content": text}

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a result with `text` for a call, by the name of its tool, and its id if any."""
        asked = _fields(_fields(raw, 0)["tool_calls"][call], 0)
        tool = as_text((mapping(asked.get("function")) or {}).get("name"))
        named = {"tool_name": tool} if tool else {}
        known = {"tool_call_id": name} if asked.get("id") == name else {}
        return {"role": "tool", "content": text, **named, **known}

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new call ids for its calls at these indexes or its result."""
        new = dict(_fields(raw, 0))
        if _role(new) == "tool":
            return {**new, "tool_call_id": ids[0]}
        new["tool_calls"] = [
            {**_fields(call, 0), "id": ids[i]} if i in ids else call
            for i, call in enumerate(new["tool_calls"])
        ]
        return new

    def mark(self, raw: Raw) -> Any:
        """Return None: there are no cache marks here, because the server caches by itself."""
        del raw

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return the message unchanged."""
        del mark
        return raw

    def _message(self, fields: Mapping[str, Any], index: int, answers: str) -> Message:
        content = fingerprint(fields)
        if content is None:
            return _message(fields, index, answers)
        key = (names.OLLAMA_CHAT, content, answers)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _message(fields, index, answers)
        return message


def _waiting(raws: Sequence[Raw]) -> _Round:
    """Return the open round after messages that were read before."""
    results: list[Mapping[str, Any]] = []
    for index in range(len(raws) - 1, -1, -1):
        fields = _fields(raws[index], index)
        if _role(fields) == "tool":
            results.append(fields)
        calls = _calls(fields, index)
        if calls:
            asked = _Round(_map_names(calls), _read_given_ids(fields["tool_calls"]))
            break
    else:
        asked = _Round({})
    for fields in reversed(results):
        asked.match_result(fields)
    return asked


class _Round:
    """The calls of the latest response, and those of them that wait for a result.

    `names` has the name of each call by its id, `given` the ids that the server gave.
    """

    def __init__(self, names: Mapping[str, str], given: frozenset[str] = frozenset()) -> None:
        self._given = given
        self._waiting = set(names)
        self._all = deque(names)
        self._bearing: dict[str, deque[str]] = {}
        for call, name in names.items():
            self._bearing.setdefault(name, deque()).append(call)

    def match_result(self, result: Mapping[str, Any]) -> str:
        """Return the id of the call that the next result is for.

        If that call already has a result, the laws find two; if there is no such call, they find an
        orphan.
        """
        said = as_text(result.get("tool_call_id"))
        if said and (self._given or not self._waiting):
            self._waiting.discard(said)
            return said
        tool = as_text(result.get("tool_name") or result.get("name"))
        bearing = self._bearing.get(tool) if tool else None
        calls, least = (self._all, 0) if bearing is None else (bearing, 1)
        while len(calls) > least and calls[0] not in self._waiting:
            calls.popleft()
        found = calls[0] if calls else ""
        self._waiting.discard(found)
        return found


def _map_names(calls: Sequence[Call]) -> dict[str, str]:
    return {call.id: call.name for call in calls}


def _read_given_ids(asked: Sequence[Any]) -> frozenset[str]:
    """Return the ids that the calls came with."""
    return frozenset(as_text((mapping(call) or {}).get("id")) for call in asked) - {""}


# --- reading --------------------------------------------------------------------------------------


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is not None:
        return fields
    raise build_error(raw, None, index)


def _role(fields: Mapping[str, Any]) -> str:
    """Return the role in lower case; the server ignores case (api/types.go, UnmarshalJSON)."""
    return as_text(fields.get("role")).lower()


def _message(fields: Mapping[str, Any], index: int, answers: str) -> Message:
    role = _role(fields)
    if role not in ROLES:
        raise MalformedHistoryError(
            f"messages[{index}] has the role {show_value(fields.get('role'))}: expected one of "
            f"{', '.join(ROLES)}",
            index=index,
        )
    texts = _texts(fields, index)
    seen = tuple(_image(source) for source in _images(fields, index))
    if role == "tool":
        result = Part("result", texts[0], answers)
        return Message(role, (result, *(part._replace(answers=answers) for part in seen)))
    thought = fields.get("thinking")
    thoughts = (Part("reasoning", thought),) if isinstance(thought, str) else ()
    parts = (*(Part("text", text) for text in texts), *seen, *thoughts)
    return Message(role, parts, _calls(fields, index))


def _texts(fields: Mapping[str, Any], index: int) -> list[str]:
    """Return the texts of a message: its content, and a line for each image that was left out."""
    content = fields.get("content")
    if content is not None and not isinstance(content, str):
        raise MalformedHistoryError(
            f"messages[{index}] has content of type {type(content).__name__}: this API takes a "
            "string, or null; images go into 'images' as base64 text",
            index=index,
        )
    if _role(fields) == "tool":
        return [content or ""]
    if content is None:
        return []
    line, end, lines = f"\n{LEFT_OUT}", len(content), 0
    while lines < MOST_LEFT_OUT and content.endswith(line, 0, end):
        end, lines = end - len(line), lines + 1
    return [content[:end], *[LEFT_OUT] * lines]


def _images(fields: Mapping[str, Any], index: int) -> Sequence[Any]:
    return _list(fields, "images", index)


def _list(fields: Mapping[str, Any], name: str, index: int) -> Sequence[Any]:
    values = fields.get(name) or ()
    if isinstance(values, list | tuple):
        return values
    raise MalformedHistoryError(
        f"messages[{index}] has {name} of type {type(values).__name__}: expected a list",
        index=index,
    )


def _image(source: object) -> Part:
    """Read the header of an image as base64 text; bytes exist only in the Python client."""
    text = source if isinstance(source, str) else ""
    return Part("image", identity(text), media=describe("image", text))


def _calls(fields: Mapping[str, Any], index: int) -> tuple[Call, ...]:
    """Read calls; one without an id, or with the id of another, is identified by its place."""
    asked = [_read_call_fields(call, index) for call in _list(fields, "tool_calls", index)]
    given = _read_given_ids(asked)
    free = set(given)
    calls: list[Call] = []
    for place, call in enumerate(asked):
        known = as_text(call.get("id"))
        if known in free:
            free.remove(known)
        else:
            known = f"#{place}"
            while known in given:
                known += "~"
        body = mapping(call["function"]) or {}
        arguments = body.get("arguments", {})
        arguments = arguments if isinstance(arguments, str) else json_text(arguments, index)
        calls.append(Call(known, as_text(body.get("name")), arguments))
    return tuple(calls)


def _read_call_fields(call: object, index: int) -> Mapping[str, Any]:
    fields = mapping(call) or {}
    if mapping(fields.get("function")):
        return fields
    raise MalformedHistoryError(
        f"messages[{index}] has a tool call without 'function': {show_value(call)}",
        index=index,
    )


# --- writing --------------------------------------------------------------------------------------


def _with_arguments(call: Raw, arguments: str) -> Mapping[str, Any]:
    """Return a call with new arguments; the API takes an object, so other JSON is put into one."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    given = value if isinstance(value, dict) else {"arguments": value}
    fields = _fields(call, 0)
    return {**fields, "function": {**_fields(fields["function"], 0), "arguments": given}}


def _replace_parts(
    texts: Sequence[str], images: Sequence[Any], parts: Mapping[int, str], *, whole: bool
) -> dict[str, Any]:
    """Return content and images with new text in these parts; with `whole`, one text for all."""
    if whole:
        return {"content": parts[0], "images": []}
    said = [parts.get(place, text) for place, text in enumerate(texts)]
    places = range(len(texts), len(texts) + len(images))
    said += [parts[place] for place in places if place in parts]
    kept = [image for place, image in zip(places, images, strict=True) if place not in parts]
    return {"content": "\n".join(said), "images": kept}

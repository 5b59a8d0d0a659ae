"""The Bedrock Converse dialect: messages in, neutral transcript out, and back.

A content block is identified by its field, not by a type. This module knows the shape of the
messages and nothing of tokens, windows or policies. The operator's text, which the API takes
outside the messages, is not handled here. Source of the shape: botocore 1.44, the service model of
`bedrock-runtime` (ContentBlock, ToolUseBlock, ToolResultBlock, ReasoningContentBlock,
CachePointBlock).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.fields import as_text, fingerprint, is_listed, json_text, mapping
from ullage.core.messages.foreign import build_error, show_value
from ullage.core.messages.media import describe, identity
from ullage.core.messages.readings import Readings
from ullage.core.messages.transcript import (
    THOUGHT_TEXT,
    Call,
    MediaKind,
    Message,
    Part,
    Raw,
    Rules,
    Transcript,
)

ROLES: Final = ("user", "assistant")
CALL: Final = "toolUse"
RESULT: Final = "toolResult"
CACHE_MARK: Final = "cachePoint"
THOUGHT: Final = "reasoningContent"
MEDIA: Final[Mapping[str, MediaKind]] = {
    "image": "image",
    "audio": "audio",
    "document": "file",
    "video": "file",
}

Key = tuple[str, bytes]
"""Dialect and fingerprint: one mapping may serve several readers."""


class Converse:
    """Reads and writes messages of Converse.

    The API wants user and assistant to take turns ("A conversation must alternate between user and
    assistant roles"). Here several messages of one role in a row are read as one turn; `join_turns`
    joins them before a request is sent. A call id may be used once and has the characters of
    ToolUseId. `memo` maps content to the message read from it; pass a shared, bounded mapping to
    make repeated reads of one growing history cheap.
    """

    rules: Rules = Rules(
        names.BEDROCK_CONVERSE, first_roles=frozenset({"user"}), joins=True, signed=True, twin="_"
    )

    def __init__(
        self,
        memo: MutableMapping[Key, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Key, Message] = {} if memo is None else memo
        self._readings = Readings() if readings is None else readings

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read messages, which are mappings in boto3's form.

        Raises MalformedHistoryError with the position for anything that is no message.
        """
        if not is_listed(messages):
            raise MalformedHistoryError(
                f"messages must be a list of messages, not {type(messages).__name__}: pass the "
                'whole history as a list such as [{"role": "user", "content": [{"text": "..."}]}]'
            )
        return self._readings.read(tuple(messages), self.rules, self._message)

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls.

        The text of a result replaces all content of the result; its id and its status stay. Blocks
        without new text are the caller's own.
        """
        fields = _fields(raw, 0)
        made: list[Any] = []
        part = call = 0
        for block in _blocks(fields, 0):
            if CALL in block:
                made.append(_with_input(block, calls[call]) if call in calls else block)
                call += 1
                continue
            width = len(_read(block, 0))
            said = {i: parts[part + i] for i in range(width) if part + i in parts}
            made.append(_rewrite_block(block, said) if said else block)
            part += width
        return {**fields, "content": made}

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message; `answers` makes it a user message with the result of that call."""
        if answers is None:
            return {"role": role, "content": [{"text": text}]}
        result = {"toolUseId": answers, "content": [{"text": text}]}
        return {"role": "user", "content": [{RESULT: result}]}

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a user message with one result that is marked as an error."""
        del raw, call
        result = {"toolUseId": name, "content": [{"text": text}], "status": "error"}
        return {"role": "user", "content": [{RESULT: result}]}

    def mark(self, raw: Raw) -> Any:
        """Return the last cache mark of a message, or None."""
        found = [block for block in _blocks(_fields(raw, 0), 0) if CACHE_MARK in block]
        return found[-1] if found else None

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored message with a cache mark at its end."""
        return {**raw, "content": [*raw["content"], mark]}

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` in which calls or results at these indexes have new call ids.

        If the message has no calls, the indexes are those of its results.
        """
        fields = _fields(raw, 0)
        blocks = _blocks(fields, 0)
        kind = CALL if any(CALL in block for block in blocks) else RESULT
        made, place = [], 0
        for block in blocks:
            found = kind in block
            made.append(_rename_block(block, kind, ids[place]) if found and place in ids else block)
            place += found
        return {**fields, "content": made}

    def gather(self, host: Raw | None, results: Sequence[tuple[Raw, int, str]]) -> Raw | None:
        """Return a message with these results first, then the other content of `host`.

        A result is the i-th of a message, with its new call id. Returns None if there is no
        content.
        """
        fields = {"role": "user", "content": ()} if host is None else _fields(host, 0)
        content = [
            _rename_block(_results(raw)[place], RESULT, name) for raw, place, name in results
        ]
        content += [block for block in _blocks(fields, 0) if RESULT not in block]
        return {**fields, "content": content} if content else None

    def drop_reasoning(self, raw: Raw) -> Raw:
        """Return a copy of `raw` without reasoning; if nothing else is in it, a text says so."""
        fields = _fields(raw, 0)
        blocks = _blocks(fields, 0)
        kept = [block for block in blocks if THOUGHT not in block]
        if len(kept) == len(blocks):
            return raw
        said = any(CACHE_MARK not in block for block in kept)
        return {**fields, "content": kept if said else [{"text": THOUGHT_TEXT}]}

    def _message(self, raw: Raw, index: int) -> Message:
        content = fingerprint(raw)
        if content is None:
            return _message(_fields(raw, index), index)
        key = (names.BEDROCK_CONVERSE, content)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _message(_fields(raw, index), index)
        return message


def join_turns(messages: Sequence[Raw]) -> list[Raw]:
    """Return messages in which user and assistant take turns, as Converse requires.

    Several messages of one role in a row become one; others are the same objects.
    """
    made: list[Any] = []
    for raw in messages:
        if made and made[-1].get("role") == raw.get("role"):
            made[-1] = {**made[-1], "content": [*made[-1]["content"], *raw["content"]]}
        else:
            made.append(raw)
    return made


# --- reading --------------------------------------------------------------------------------------


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is None:
        raise build_error(raw, None, index)
    return fields


def _blocks(fields: Mapping[str, Any], index: int) -> Sequence[Mapping[str, Any]]:
    content = fields.get("content")
    if isinstance(content, list | tuple) and all(isinstance(block, Mapping) for block in content):
        return content
    raise MalformedHistoryError(
        f"messages[{index}] has content of type {type(content).__name__}: Converse takes a list of "
        'content blocks, such as [{"text": "..."}]',
        index=index,
    )


def _message(fields: Mapping[str, Any], index: int) -> Message:
    role = fields.get("role")
    if role not in ROLES:
        hint = ": pass the operator's text as system=" if role == "system" else ""
        raise MalformedHistoryError(
            f"messages[{index}] has the role {show_value(role)}: expected one of "
            f"{', '.join(ROLES)}{hint}",
            index=index,
        )
    parts: list[Part] = []
    calls: list[Call] = []
    for block in _blocks(fields, index):
        asked = mapping(block.get(CALL))
        if asked is None:
            parts += _read(block, index)
            continue
        written = json_text(asked.get("input", {}), index)
        calls.append(Call(as_text(asked.get("toolUseId")), as_text(asked.get("name")), written))
    return Message(str(role), tuple(parts), tuple(calls))


def _read(block: Mapping[str, Any], index: int) -> list[Part]:
    """Read a block that is no call into its parts, usually one; a cache mark has none."""
    if CACHE_MARK in block:
        return []
    result = mapping(block.get(RESULT))
    if result is not None:
        answers = as_text(result.get("toolUseId"))
        inner = [part for own in _inner(result) for part in _read(own, index)]
        text = "\n".join(part.text for part in inner if part.media is None)
        seen = [part._replace(answers=answers) for part in inner if part.media is not None]
        return [Part("result", text, answers), *seen]
    if isinstance(block.get("text"), str):
        return [Part("text", block["text"])]
    thought = mapping(block.get(THOUGHT))
    if thought is not None:
        return [_read_thought(thought)]
    return [_read_other(block, index)]


def _read_other(block: Mapping[str, Any], index: int) -> Part:
    kind = next((name for name in MEDIA if isinstance(block.get(name), Mapping)), None)
    if kind is not None:
        return _medium(block[kind], MEDIA[kind], index)
    return Part("other", json_text(block.get("json", block), index))


def _inner(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = result.get("content")
    listed = content if isinstance(content, list | tuple) else ()
    return [block for block in listed if isinstance(block, Mapping)]


def _read_thought(thought: Mapping[str, Any]) -> Part:
    """Read reasoning: its text, or the form that only the provider can read."""
    said = mapping(thought.get("reasoningText")) or {}
    text = as_text(said.get("text"))
    hidden = thought.get("redactedContent") or said.get("signature")
    sealed = b64encode(hidden).decode("ascii") if isinstance(hidden, bytes) else as_text(hidden)
    return Part("reasoning", text) if text else Part("sealed", sealed)


def _medium(held: Mapping[str, Any], kind: MediaKind, index: int) -> Part:
    """Read an image, a recording or a file; boto3 has bytes, JSON has their base64."""
    source = mapping(held.get("source")) or {}
    data = source.get("bytes")
    if isinstance(source.get("text"), str):
        return Part("text", source["text"])
    if data is None:  # an S3 location, or blocks of content
        return Part(kind, json_text(held, index), media=describe(kind, ""))
    text = b64encode(data).decode("ascii") if isinstance(data, bytes) else as_text(data)
    return Part(kind, identity(text), media=describe(kind, text))


# --- writing --------------------------------------------------------------------------------------


def _results(raw: Raw) -> list[Mapping[str, Any]]:
    return [block for block in _blocks(_fields(raw, 0), 0) if RESULT in block]


def _rename_block(block: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    held = block[kind]
    return block if held.get("toolUseId") == name else {kind: {**held, "toolUseId": name}}


def _with_input(block: Mapping[str, Any], arguments: str) -> Mapping[str, Any]:
    """Return a call with new arguments; the API takes an object, so other JSON is put into one."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    given = value if isinstance(value, dict) else {"arguments": value}
    return {CALL: {**block[CALL], "input": given}}


def _rewrite_block(block: Mapping[str, Any], said: Mapping[int, str]) -> Mapping[str, Any]:
    """Return a block with new text in these of its parts (`_read`)."""
    if RESULT not in block:
        thought = mapping(block.get(THOUGHT))
        if thought is not None and "reasoningText" in thought:
            new = {**thought["reasoningText"], "text": said[0]}
            return {THOUGHT: {"reasoningText": new}}
        return {"text": said[0]}
    held = block[RESULT]
    if 0 in said:
        return {RESULT: {**held, "content": [{"text": said[0]}]}}
    inner, place = [], 1
    for own in _inner(held):
        seen = any(part.media is not None for part in _read(own, 0))
        inner.append({"text": said[place]} if seen and place in said else own)
        place += seen
    return {RESULT: {**held, "content": inner}}

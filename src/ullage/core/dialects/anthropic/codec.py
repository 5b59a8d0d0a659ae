"""The Anthropic Messages dialect: messages in, neutral transcript out, and back.

llama.cpp and gateways in front of other models use it too. This module knows the shape of the
messages and nothing of tokens, windows or policies. The operator's text, which the API takes
outside the messages, is not handled here. Source of the shape: the Messages API reference, `POST
/v1/messages`, and the types of Anthropic's Python SDK 2.12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages import marks
from ullage.core.messages.fields import as_text, fingerprint, is_listed, json_text, mapping
from ullage.core.messages.foreign import build_error, check_shape, show_value
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

ROLES: Final = ("user", "assistant", "system")
CACHE_MARK: Final = "cache_control"
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
TITLES: Final = ("title", "context")
"""Fields of a document that are read as one part."""

Key = tuple[str, bytes]
"""Dialect and fingerprint: one mapping may serve several readers."""


class Anthropic:
    """Reads and writes Anthropic messages.

    Consecutive messages of one role are valid: the API joins them into one turn (reference of
    `messages`). A call id may be used once in a request and has letters, digits, `_` and `-` (the
    API's own refusals: "`tool_use` ids must be unique", "String should match pattern
    '^[a-zA-Z0-9_-]+$'"). `memo` maps content to the message read from it; pass a shared, bounded
    mapping to make repeated reads of one growing history cheap.
    """

    rules: Rules = Rules(
        names.ANTHROPIC, first_roles=frozenset({"user"}), joins=True, signed=True, twin="_"
    )

    def __init__(
        self,
        memo: MutableMapping[Key, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Key, Message] = {} if memo is None else memo
        self._readings = Readings() if readings is None else readings

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read messages: mappings, or SDK objects with `model_dump`, whole or as blocks.

        Raises MalformedHistoryError with the position for anything that is no message, and for a
        system message at the start. Later ones are valid: models since Claude Opus 4.8 accept
        instructions after a user turn (Anthropic, "What's new in Claude 4.8").
        """
        if not is_listed(messages):
            raise MalformedHistoryError(
                f"messages must be a list of messages, not {type(messages).__name__}: pass the "
                'whole history as a list such as [{"role": "user", "content": "..."}]'
            )
        read = self._readings.read(tuple(messages), self.rules, self._message)
        if len(read) and read.messages[0].is_system:
            raise MalformedHistoryError(
                "messages[0] has the role 'system': this API takes the system text in a field of "
                "its own, so pass it as system=",
                index=0,
            )
        return read

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls.

        The text of a result replaces all content of the result; its id, error flag and cache mark
        stay. Blocks without new text are the caller's own.
        """
        fields = _fields(raw, 0)
        content = fields.get("content")
        if isinstance(content, str):
            return {**fields, "content": parts.get(0, content)}
        made: list[Any] = []
        part = call = 0
        for block in content or ():
            known = mapping(block) or block
            if _type(known) == "tool_use":
                made.append(_set_arguments(known, calls[call]) if call in calls else block)
                call += 1
                continue
            width = len(_read(known, 0))
            said = {i: parts[part + i] for i in range(width) if part + i in parts}
            made.append(_rewrite_block(known, said) if said else block)
            part += width
        return {**fields, "content": made}

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new message; `answers` makes it a user message with the result of that call."""
        if answers is None:
            return {"role": role, "content": text}
        result = {"type": "tool_result", "tool_use_id": answers, "content": text}
        return {"role": "user", "content": [result]}

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a user message with one result that is marked as an error."""
        del raw, call
        result = {"type": "tool_result", "tool_use_id": name, "is_error": True, "content": text}
        return {"role": "user", "content": [result]}

    def mark(self, raw: Raw) -> Any:
        """Return the cache mark of a message, or None."""
        return marks.find_last(raw)

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored message with a cache mark."""
        return marks.put(raw, mark)

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` in which calls or results at these indexes have new call ids.

        If the message has no calls, the indexes are those of its results.
        """
        fields = _fields(raw, 0)
        kinds = [_type(mapping(block)) for block in fields["content"]]
        kind, slot = ("tool_use", "id") if "tool_use" in kinds else ("tool_result", "tool_use_id")
        places = [place for place, found in enumerate(kinds) if found == kind]
        new = {places[i]: name for i, name in ids.items()}
        content = [
            {**_fields(block, 0), slot: new[place]} if place in new else block
            for place, block in enumerate(fields["content"])
        ]
        return {**fields, "content": content}

    def gather(self, host: Raw | None, results: Sequence[tuple[Raw, int, str]]) -> Raw | None:
        """Return a message with these results first, then the other content of `host`.

        A result is the i-th of a message, with its new call id. Returns None if there is no
        content.
        """
        fields = {"role": "user", "content": ()} if host is None else _fields(host, 0)
        content = [_rename_result(_results(raw)[place], name) for raw, place, name in results]
        content += [b for b in fields["content"] if _type(mapping(b)) != "tool_result"]
        return {**fields, "content": content} if content else None

    def drop_reasoning(self, raw: Raw) -> Raw:
        """Return a copy of `raw` without reasoning; if nothing else is in it, a text says so.

        The marks of the other blocks stay; blocks of reasoning have none.
        """
        fields = _fields(raw, 0)
        blocks = fields.get("content")
        if not isinstance(blocks, list | tuple):
            return raw
        kept = [block for block in blocks if _type(mapping(block)) not in THOUGHTS]
        if len(kept) == len(blocks):
            return raw
        return {**fields, "content": kept or [{"type": "text", "text": THOUGHT_TEXT}]}

    def _message(self, raw: Raw, index: int) -> Message:
        content = fingerprint(raw)
        if content is None:
            raw = _plain(raw, index)
            content = fingerprint(raw)
        if content is None:
            return _message(raw, index)
        key = (names.ANTHROPIC, content)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _message(raw, index)
        return message


def _plain(raw: Raw, index: int) -> dict[str, Any]:
    """Return a message and its blocks as plain mappings; an SDK returns both as objects."""
    fields = _fields(raw, index)
    check_shape(raw, fields, index)
    content = fields.get("content")
    if isinstance(content, list | tuple):
        return {**fields, "content": [mapping(block) or block for block in content]}
    return dict(fields)


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is not None:
        return fields
    raise build_error(raw, None, index)


def _message(fields: Mapping[str, Any], index: int) -> Message:
    check_shape(fields, fields, index)
    role = fields.get("role")
    if role not in ROLES:
        raise MalformedHistoryError(
            f"messages[{index}] has the role {show_value(role)}: expected one of "
            f"{', '.join(ROLES)}",
            index=index,
        )
    parts: list[Part] = []
    calls: list[Call] = []
    for block in _pieces(fields.get("content"), index):
        if _type(block) == "tool_use":
            calls.append(_call(block, index))
        else:
            parts += _read(block, index)
    return Message(role, tuple(parts), tuple(calls))


def _pieces(content: object, index: int) -> Sequence[Any]:
    """Return the blocks of a content; a string becomes one block of text."""
    if content is None:
        return ()
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return [mapping(block) or block for block in content]
    raise MalformedHistoryError(
        f"messages[{index}] has content of type {type(content).__name__}: expected a string, "
        "null, or a list of content blocks",
        index=index,
    )


def _type(block: object) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _call(block: Mapping[str, Any], index: int) -> Call:
    arguments = json_text(block.get("input", {}), index)
    return Call(as_text(block.get("id")), as_text(block.get("name")), arguments)


def _read(block: Any, index: int) -> list[Part]:
    """Read one block that is no call into its parts, usually one."""
    match _type(block):
        case "tool_result":
            inner = _inner(block.get("content"), index)
            said = "\n".join(part.text for part in inner if part.media is None)
            answers = as_text(block.get("tool_use_id"))
            seen = (part._replace(answers=answers) for part in inner if part.media is not None)
            return [Part("result", said, answers), *seen]
        case "document" if _type(block.get("source")) == "content":
            return [*_titles(block), *_inner(block["source"].get("content"), index)]
        case "thinking":
            return [_read_thought(block)]
        case "redacted_thinking":
            return [Part("sealed", as_text(block.get("data")))]
        case "compaction":
            return _read_compaction(block)
    return _leaf(block, index)


def _read_thought(block: Mapping[str, Any]) -> Part:
    """Read a block of thinking; if its text is withheld, the signature holds it encrypted."""
    said = as_text(block.get("thinking"))
    return Part("reasoning", said) if said else Part("sealed", as_text(block.get("signature")))


def _read_compaction(block: Mapping[str, Any]) -> list[Part]:
    """Read a summary by the provider; one without text failed, and replaces nothing (SDK)."""
    if not isinstance(block.get("content"), str):
        return []
    made = [Part("compaction", block["content"])]
    sealed = block.get("encrypted_content")
    return [*made, Part("sealed", sealed)] if isinstance(sealed, str) else made


def _inner(content: object, index: int) -> list[Part]:
    """Read the content of a result or a document; one level, because the API nests no deeper."""
    return [part for block in _pieces(content, index) for part in _leaf(block, index)]


def _leaf(block: Any, index: int) -> list[Part]:
    """Read a block without inner blocks; an unknown type is counted as its JSON text.

    A cache mark is not part of the text, because it moves from call to call.
    """
    kind = _type(block)
    if isinstance(block, str):
        return [Part("text", block)]
    if kind == "text" and isinstance(block.get("text"), str):
        return [Part("text", block["text"])]
    if kind in ("image", "document") and isinstance(block.get("source"), Mapping):
        return [*_titles(block), _source(block, "image" if kind == "image" else "file", index)]
    return [Part("other", _dump_without_mark(block, index))]


def _source(block: Mapping[str, Any], kind: MediaKind, index: int) -> Part:
    source = block["source"]
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return Part("text", source["data"])
    held = [source[k] for k in ("data", "url") if isinstance(source.get(k), str)]
    if not held:  # a file_id, or a later addition to the API
        return Part(kind, _dump_without_mark(block, index), media=describe(kind, ""))
    return Part(kind, identity(held[0]), media=describe(kind, held[0]))


def _titles(block: Mapping[str, Any]) -> list[Part]:
    """Return the text that comes with a document: its title and its context."""
    said = [block[k] for k in TITLES if isinstance(block.get(k), str)]
    return [Part("text", "\n".join(said))] if said else []


def _dump_without_mark(block: object, index: int) -> str:
    if isinstance(block, Mapping):
        block = {k: v for k, v in block.items() if k != CACHE_MARK}
    return json_text(block, index)


# --- writing --------------------------------------------------------------------------------------


def _results(raw: Raw) -> list[Any]:
    blocks = _fields(raw, 0)["content"]
    return [block for block in blocks if _type(mapping(block)) == "tool_result"]


def _rename_result(result: Any, name: str) -> Any:
    fields = _fields(result, 0)
    return result if fields.get("tool_use_id") == name else {**fields, "tool_use_id": name}


def _set_arguments(block: Mapping[str, Any], arguments: str) -> Mapping[str, Any]:
    """Return a call with new arguments; the API takes an object, so other JSON is put into one."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    return {**block, "input": value if isinstance(value, dict) else {"arguments": value}}


def _rewrite_block(block: Any, said: Mapping[int, str]) -> Any:
    """Return a block with new text in these of its parts (`_read`)."""
    kind = _type(block)
    if kind == "tool_result":
        content = said[0] if 0 in said else _inside(block["content"], said, 1, media=True)
        return {**block, "content": content}
    if kind == "document" and _type(block["source"]) == "content":
        titles = len(_titles(block))
        inner = _inside(block["source"].get("content"), said, titles, media=False)
        titled = _replace_title(block, said) if titles else block
        return {**titled, "source": {**block["source"], "content": inner}}
    return _leaf_with(block, said)


def _inside(content: object, said: Mapping[int, str], first: int, *, media: bool) -> list[Any]:
    """Return inner blocks with new text; parts (with `media`: only media) count from `first`."""
    made: list[Any] = []
    place = first
    for block in _pieces(content, 0):
        slots = [i for i, p in enumerate(_leaf(block, 0)) if p.media is not None or not media]
        mine = {slot: said[place + n] for n, slot in enumerate(slots) if place + n in said}
        made.append(_leaf_with(block, mine) if mine else block)
        place += len(slots)
    return made


def _leaf_with(block: Any, said: Mapping[int, str]) -> Mapping[str, Any]:
    """Return a block without inner blocks with new text; other blocks become text blocks."""
    fields: Mapping[str, Any] = block if isinstance(block, Mapping) else {}
    if _type(block) == "document":
        titles = len(_titles(fields))
        titled = _replace_title(fields, said) if titles else fields
        if titles not in said:
            return titled
        source = {"type": "text", "media_type": "text/plain", "data": said[titles]}
        return {**titled, "source": source}
    if _type(block) == "text":
        # citations point to positions in the old text
        return {**{k: v for k, v in fields.items() if k != "citations"}, "text": said[0]}
    kept = {k: v for k, v in fields.items() if k == CACHE_MARK}
    return {"type": "text", "text": said[max(said)], **kept}


def _replace_title(block: Mapping[str, Any], said: Mapping[int, str]) -> Mapping[str, Any]:
    """Return a document with a new text instead of its title and context."""
    if 0 not in said:
        return block
    return {**{k: v for k, v in block.items() if k not in TITLES}, "context": said[0]}

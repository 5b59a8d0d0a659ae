"""The OpenAI Responses dialect: input items in, neutral transcript out, and back.

Each item is one message of the transcript: a message, a call, a result, a reasoning item. This
module knows the shape of the items and nothing of tokens, windows or policies. `instructions`, and
a history on the server, are not handled here. Source of the shape: the OpenAI API reference, `POST
/v1/responses`, and the types of OpenAI's Python SDK 3.54.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages import marks
from ullage.core.messages.fields import as_text, fingerprint, json_text, mapping
from ullage.core.messages.foreign import build_error, check_shape, show_value
from ullage.core.messages.media import describe, identity
from ullage.core.messages.readings import Readings
from ullage.core.messages.transcript import Call, MediaKind, Message, Part, Raw, Rules, Transcript

ROLES: Final = ("user", "assistant", "system", "developer")
TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
MEDIA: Final[Mapping[str, tuple[MediaKind, Sequence[str]]]] = {
    "input_image": ("image", ("image_url",)),
    "computer_screenshot": ("image", ("image_url",)),
    "input_file": ("file", ("file_data", "file_url")),
    "input_audio": ("audio", ("data",)),
}
"""Content parts that are not text: their kind, and the fields that may hold them."""

CALLS: Final[Mapping[str, tuple[str | None, Sequence[str]]]] = {
    "function_call": (None, ("arguments",)),
    "custom_tool_call": (None, ("input",)),
    "local_shell_call": ("local_shell", ("action",)),
    "shell_call": ("shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
    "computer_call": ("computer", ("action", "actions")),
}
"""Items that need a result: the tool (None if the item names it), and the fields of the arguments.
Calls that the server runs itself (web_search_call, mcp_call, ...) need none and are of kind
`other`.
"""

RESULTS: Final = frozenset(f"{kind}_output" for kind in CALLS)

COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
"""Items that replace everything before them ("Compaction" of OpenAI's guides; the second is Codex's
name). The output of `POST /v1/responses/compact` has the user's messages before such an item.
"""

Key = tuple[str, bytes]
"""Dialect and fingerprint: one mapping may serve several readers."""


class OpenAIResponses:
    """Reads and writes the input of the Responses API.

    `memo` maps content to the message read from it; pass a shared, bounded mapping to make repeated
    reads of one growing history cheap.
    """

    rules: Rules = Rules(names.OPENAI_RESPONSES, split_calls=True, keeps_requests=True)

    def __init__(
        self,
        memo: MutableMapping[Key, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Key, Message] = {} if memo is None else memo
        self._readings = Readings() if readings is None else readings

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read items: mappings, or SDK objects with `model_dump`; a string is one user message.

        Raises MalformedHistoryError with the position for anything that is no item. An item that is
        only out of order (an orphan result) is read; `core.compaction.laws` finds it.
        """
        if isinstance(messages, str):
            spoken = _message({"role": "user", "content": messages}, 0)
            return Transcript((messages,), (spoken,), self.rules)
        if isinstance(messages, bytes | Mapping) or not isinstance(messages, Sequence):
            raise MalformedHistoryError(
                f"messages must be a string or a list of input items, not "
                f"{type(messages).__name__}: pass the whole input as a list such as "
                '[{"role": "user", "content": "..."}]'
            )
        return self._readings.read(tuple(messages), self.rules, self._item)

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts, and new arguments of its call.

        The text of a result replaces all its content. Content in a special form (a shell's
        commands, a patch) keeps that form around the text.
        """
        if isinstance(raw, str):
            return {"role": "user", "content": parts.get(0, raw)}
        fields = _fields(raw, 0)
        kind = as_text(fields.get("type"))
        if kind in CALLS:
            return {**fields, **_write_arguments(kind, fields, calls[0])} if calls else dict(fields)
        slot = "output" if kind in RESULTS else "content"
        if 0 in parts and kind in RESULTS:
            return {**fields, "output": _write_output(kind, fields.get("output"), parts[0])}
        content = fields.get(slot)
        if isinstance(content, str):
            return {**fields, slot: parts.get(0, content)}
        spoken = "output_text" if fields.get("role") == "assistant" else "input_text"
        places = _places(content, media=kind in RESULTS)
        made = [
            _with_text(piece, parts[places[i]], spoken) if places.get(i) in parts else piece
            for i, piece in enumerate(content or ())
        ]
        return {**fields, slot: made} if parts else dict(fields)

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new item: a message, or with `answers` the result of that function call."""
        if answers is not None:
            return {"type": "function_call_output", "call_id": answers, "output": text}
        return {"type": "message", "role": role, "content": text}

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a result with `text`, of the kind that the call `raw` needs."""
        del call
        kind = f"{_fields(raw, 0)['type']}_output"
        slot = "id" if kind == "local_shell_call_output" else "call_id"
        status = {"status": "failed"} if kind == "apply_patch_call_output" else {}
        return {"type": kind, slot: name, "output": _write_output(kind, None, text), **status}

    def mark(self, raw: Raw) -> Any:
        """Return the cache mark of an item, or None."""
        return marks.find_last(raw)

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return an authored item with a cache mark."""
        return marks.put(raw, mark, "input_text")

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of a call, or of a result, with a new call id."""
        fields = _fields(raw, 0)
        slot = "call_id" if fields["type"] in CALLS or "call_id" in fields else "id"
        return {**fields, slot: ids[0]}

    def _item(self, raw: Raw, index: int) -> Message:
        content = fingerprint(raw)
        if content is None:
            raw = _plain(raw, index)
            content = fingerprint(raw)
        if content is None:
            return _item(raw, index)
        key = (names.OPENAI_RESPONSES, content)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _item(raw, index)
        return message


def _plain(raw: Raw, index: int) -> dict[str, Any]:
    """Return an item and its content parts as plain mappings; an SDK returns objects."""
    fields = _fields(raw, index)
    check_shape(raw, fields, index)
    plain = dict(fields)
    for key, value in fields.items():
        if isinstance(value, list | tuple):
            plain[key] = [mapping(piece) or piece for piece in value]
    return plain


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is not None:
        return fields
    raise build_error(raw, None, index)


def _item(fields: Mapping[str, Any], index: int) -> Message:
    """Read one item by its type; an item without a type is a message, or refers to another item."""
    check_shape(fields, fields, index)
    kind, role = fields.get("type"), fields.get("role")
    if kind == "message" or (kind is None and role is not None):
        return _message(fields, index)
    if kind is None and isinstance(fields.get("id"), str):
        kind = "item_reference"
    if not isinstance(kind, str):
        raise MalformedHistoryError(
            f"messages[{index}] is no input item: expected a 'role' (one of {', '.join(ROLES)}) "
            f"or a 'type' such as 'function_call', not {show_value(kind)}",
            index=index,
        )
    if kind in CALLS:
        asked = (_call(kind, fields, index),)
        return Message("assistant", (), asked)
    if kind in RESULTS:
        return Message("tool", _result(fields, index))
    if kind == "reasoning":
        return Message("assistant", _reasoning(fields, index))
    if kind in COMPACTIONS:
        return Message("assistant", (Part("compaction", as_text(fields.get("id"))), *_seal(fields)))
    role = role if role in ROLES else "assistant"
    return Message(role, (Part("other", _dump_without_mark(fields, index)),))


def _message(fields: Mapping[str, Any], index: int) -> Message:
    role = fields.get("role")
    if role not in ROLES:
        raise MalformedHistoryError(
            f"messages[{index}] has the role {show_value(role)}: expected one of "
            f"{', '.join(ROLES)}",
            index=index,
        )
    return Message(role, _parts(fields.get("content"), index))


def _call(kind: str, fields: Mapping[str, Any], index: int) -> Call:
    tool, slots = CALLS[kind]
    asked = next((fields[slot] for slot in slots if fields.get(slot) is not None), "")
    arguments = asked if isinstance(asked, str) else json_text(asked, index)
    return Call(as_text(fields.get("call_id")), tool or as_text(fields.get("name")), arguments)


def _result(fields: Mapping[str, Any], index: int) -> tuple[Part, ...]:
    """Read a result: its text as one part, then its media.

    The output of a local shell call has its call's id as `id` (SDK: LocalShellCallOutput).
    """
    answers = fields.get("call_id", fields.get("id"))
    output = mapping(fields.get("output"))
    inner = _parts(fields.get("output") if output is None else [output], index)
    said = "\n".join(part.text for part in inner if part.media is None)
    result = Part("result", said, as_text(answers))
    seen = (p._replace(answers=result.answers) for p in inner if p.media is not None)
    return (result, *seen)


def _reasoning(fields: Mapping[str, Any], index: int) -> tuple[Part, ...]:
    """Read a reasoning item: its readable text, and its sealed content."""
    kept = [part for key in ("summary", "content") for part in _parts(fields.get(key), index)]
    sealed = _seal(fields)
    if sealed and not kept:
        return sealed
    return (Part("reasoning", "\n".join(part.text for part in kept)), *sealed)


def _seal(fields: Mapping[str, Any]) -> tuple[Part, ...]:
    """Read the content that only the server can read."""
    sealed = fields.get("encrypted_content")
    return (Part("sealed", sealed),) if isinstance(sealed, str) else ()


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
    fields = mapping(piece) or {}
    kind = as_text(fields.get("type"))
    if kind in TEXTS and isinstance(fields.get("text"), str):
        return Part("text", fields["text"])
    if kind == "refusal" and isinstance(fields.get("refusal"), str):
        return Part("refusal", fields["refusal"])
    if kind in MEDIA:
        return _medium(kind, fields, index)
    return Part("other", _dump_without_mark(fields or piece, index))


def _medium(piece: str, fields: Mapping[str, Any], index: int) -> Part:
    kind, slots = MEDIA[piece]
    holder = mapping(fields.get("input_audio")) or fields
    held = [holder[slot] for slot in slots if isinstance(holder.get(slot), str)]
    detail = fields.get("detail")
    detail = detail if isinstance(detail, str) else None
    if not held:  # a file_id: the file is on the server
        return Part(
            kind, _dump_without_mark(fields, index), media=describe(kind, "", detail=detail)
        )
    return Part(kind, identity(held[0]), media=describe(kind, held[0], detail=detail))


def _dump_without_mark(value: object, index: int) -> str:
    if isinstance(value, Mapping):
        value = {k: v for k, v in value.items() if k not in marks.MARKS}
    return json_text(value, index)


# --- writing --------------------------------------------------------------------------------------

SLOTS: Final[Mapping[str, str]] = {
    "local_shell_call": "command",
    "shell_call": "commands",
    "apply_patch_call": "diff",
}
"""The field with the text of a call whose arguments have a special form."""


def _write_arguments(kind: str, fields: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    """Return the field of a call with new arguments, in the form of its kind.

    A computer's action stays unchanged, because it has no field for text.
    """
    _, slots = CALLS[kind]
    if kind in ("function_call", "custom_tool_call"):
        return {slots[0]: arguments}
    form = mapping(fields.get(slots[0])) or {}
    slot = SLOTS.get(kind)
    if slot is None or slot not in form:
        return {}
    return {slots[0]: {**form, slot: arguments if slot == "diff" else [arguments]}}


def _write_output(kind: str, output: Any, text: str) -> Any:
    """Return the output of a result with `text`, in the form of its kind."""
    if kind == "computer_call_output":
        return {"type": "computer_screenshot"} if output is None else output
    if kind != "shell_call_output":
        return text
    chunks = output if isinstance(output, list | tuple) else ()
    ends = [known["outcome"] for c in chunks if (known := mapping(c)) and "outcome" in known]
    outcome = ends[-1] if ends else {"type": "exit", "exit_code": 1}
    return [{"stdout": text, "stderr": "", "outcome": outcome}]


def _places(content: Any, *, media: bool) -> dict[int, int]:
    """Return the part number of each piece of a content; in a result, media follow the text."""
    read = [_part(piece, 0) for piece in content or ()]
    shown = [i for i, part in enumerate(read) if part.media is not None or not media]
    return {i: place + media for place, i in enumerate(shown)}


def _with_text(piece: Any, text: str, spoken: str) -> dict[str, Any]:
    """Return a content part with new text; other parts become text, in the speaker's form."""
    fields = mapping(piece) or {}
    kept = {k: v for k, v in fields.items() if k in marks.MARKS}
    kind = fields.get("type")
    made = {"type": kind if kind in TEXTS else spoken, "text": text, **kept}
    return {**made, "annotations": []} if made["type"] == "output_text" else made

"""The Gemini dialect: `contents` in, neutral transcript out, and back.

A content has a role (`user`, `model`) and parts; a part is identified by its field, not by a type.
Names are camelCase in JSON and snake_case in objects and dicts of Google's SDK. Both are read, and
the spelling is kept. A call may have no id; then its result is matched by the name of its function
and by its place. This module knows nothing of tokens, windows or policies. Source of the shape: the
types of google-genai 3.4 (Content, Part, FunctionCall, FunctionResponse) and the Gemini API
reference, "Function calling" and "Thought signatures".
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from ullage.core.dialects import names
from ullage.core.dialects.spelling import find_key, pick_field
from ullage.core.errors import MalformedHistoryError
from ullage.core.messages.fields import as_text, fingerprint, is_listed, json_text, mapping
from ullage.core.messages.foreign import build_error, show_value
from ullage.core.messages.media import describe, identity
from ullage.core.messages.readings import Readings
from ullage.core.messages.transcript import Call, MediaKind, Message, Part, Raw, Rules, Transcript

ROLES: Final[Mapping[str, str]] = {"user": "user", "function": "user", "model": "assistant"}
"""Roles of contents, and their names in the neutral view. `function` is an older name for the
user's turn with results.
"""

PLACED: Final = "#"
"""Prefix of the id that the neutral view gives to a call without one; it is never written."""

SAID: Final = frozenset({"output", "error", "result"})
"""Keys of a response that hold its text, if it has a single key (FunctionResponse.response)."""

Key = tuple[Any, ...]
"""Dialect, fingerprint, the place of the first call, the calls that are answered."""


class Gemini:
    """Reads and writes contents of the Gemini API.

    Several contents of one role in a row are one turn. The results of a turn are in the user's
    content right after it, as many as there were calls ("the number of function response parts is
    equal to the number of function call parts of the function call turn"). A part keeps its
    `thoughtSignature` when other fields are edited. `memo` maps content to the message read from
    it; pass a shared, bounded mapping to make repeated reads of one growing history cheap.
    """

    rules: Rules = Rules(
        names.GEMINI, first_roles=frozenset({"user"}), joins=True, ordered=True, twin="_"
    )

    def __init__(
        self,
        memo: MutableMapping[Key, Message] | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._memo: MutableMapping[Key, Message] = {} if memo is None else memo
        self._readings = Readings() if readings is None else readings

    def read(self, messages: Sequence[Raw]) -> Transcript:
        """Read contents: mappings, or the SDK's objects, in either spelling.

        Raises MalformedHistoryError with the position for anything that is no content.
        """
        if not is_listed(messages):
            raise MalformedHistoryError(
                f"contents must be a list of contents, not {type(messages).__name__}: pass the "
                'whole history as a list such as [{"role": "user", "parts": [{"text": "..."}]}]'
            )
        raws = tuple(messages)
        turn: _Turn | None = None

        def read_content(raw: Raw, index: int) -> Message:
            nonlocal turn
            fields = _fields(raw, index)
            role, parts = _role(fields, index), _parts(fields, index)
            asks = role == "assistant" and any(_read_part_field(part, CALL) for part in parts)
            answers = any(_read_part_field(part, RESULT) for part in parts)
            if turn is None and (asks or answers):
                turn = _find_turn(raws[:index])
            if turn is not None:
                turn.open(role)
            given = [turn.answer(part) for part in _find_parts(parts, RESULT)] if turn else []
            first = turn.size if turn is not None else 0
            message = self._message(fields, index, first, tuple(given))
            if turn is not None:
                turn.ask(message.calls)
            return message

        return self._readings.read(raws, self.rules, read_content)

    def rewrite(self, raw: Raw, parts: Mapping[int, str], calls: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` with new text in these parts and new arguments in these calls.

        The text of a result replaces its response; its id and its name stay. Parts without new text
        are the caller's own.
        """
        fields = _fields(raw, 0)
        made: list[Any] = []
        part = call = 0
        for own, known in zip(_read_parts(fields), _parts(fields, 0), strict=True):
            if _read_part_field(known, CALL):
                made.append(_with_arguments(known, calls[call]) if call in calls else own)
                call += 1
                continue
            width = len(_read(known, 0, ""))
            said = {i: parts[part + i] for i in range(width) if part + i in parts}
            made.append(_rewrite_part(known, said) if said else own)
            part += width
        return {**fields, "parts": made}

    def author(self, role: str, text: str, answers: str | None = None) -> Raw:
        """Return a new content; `answers` makes it a user's content with the result of that call.

        The name of its function is then missing; if the call is available, use `answer`.
        """
        if answers is None:
            return {
                "role": "model" if role == "assistant" else "user",
                "parts": [{"text": text}],
            }
        return _result({}, answers, {"output": text})

    def answer(self, raw: Raw, call: int, text: str, name: str) -> Raw:
        """Return a user's content with one result that reports an error."""
        asked = _read_part_field(_find_parts(_parts(_fields(raw, 0), 0), CALL)[call], CALL) or {}
        return _result({"name": as_text(asked.get("name"))}, name, {"error": text})

    def readdress(self, raw: Raw, ids: Mapping[int, str]) -> Raw:
        """Return a copy of `raw` in which calls or results at these indexes have new call ids.

        If the content has no calls, the indexes are those of its results.
        """
        fields = _fields(raw, 0)
        known = _parts(fields, 0)
        kind = CALL if any(_read_part_field(part, CALL) for part in known) else RESULT
        made, place = [], 0
        for own, part in zip(_read_parts(fields), known, strict=True):
            found = _read_part_field(part, kind) is not None
            made.append(_rename_part(part, kind, ids[place]) if found and place in ids else own)
            place += found
        return {**fields, "parts": made}

    def mark(self, raw: Raw) -> Any:
        """Return None: contents have no cache marks; a cache is named in another field."""
        del raw

    def add_mark(self, raw: Raw, mark: Any) -> Raw:
        """Return the content unchanged."""
        del mark
        return raw

    def gather(self, host: Raw | None, results: Sequence[tuple[Raw, int, str]]) -> Raw | None:
        """Return a content with these results first, then the other parts of `host`.

        A result is the i-th of a content, with its new call id. Returns None if there are no parts.
        """
        made: list[Any] = []
        for raw, place, name in results:
            fields = _fields(raw, 0)
            owned = zip(_read_parts(fields), _parts(fields, 0), strict=True)
            own, part = [pair for pair in owned if _read_part_field(pair[1], RESULT) is not None][
                place
            ]
            made.append(own if _id(part) in (name, "") else _rename_part(part, RESULT, name))
        fields = {"role": "user", "parts": ()} if host is None else _fields(host, 0)
        beside = zip(_read_parts(fields), _parts(fields, 0), strict=True)
        made += [own for own, part in beside if _read_part_field(part, RESULT) is None]
        return {**fields, "parts": made} if made else None

    def _message(
        self, fields: Mapping[str, Any], index: int, first: int, answers: tuple[str, ...]
    ) -> Message:
        content = fingerprint(fields)
        if content is None:
            return _message(fields, index, first, answers)
        key = (names.GEMINI, content, first, answers)
        message = self._memo.get(key)
        if message is None:
            message = self._memo[key] = _message(fields, index, first, answers)
        return message


CALL: Final = "functionCall"
RESULT: Final = "functionResponse"


class _Turn:
    """The calls of the model's latest turn, and those of them that wait for a result."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._waiting: list[Call] = []
        self._open = True

    @property
    def size(self) -> int:
        """The number of calls in the turn so far; 0 if a call would begin a new turn."""
        return len(self._calls) if self._open else 0

    def open(self, role: str) -> None:
        """Take the role of the next content: any other role than the model's ends the turn."""
        self._open = self._open and role == "assistant"

    def ask(self, calls: Sequence[Call]) -> None:
        """Take the calls of the model's next content."""
        if not calls:
            return
        if not self._open:
            self._calls, self._waiting, self._open = [], [], True
        self._calls += calls
        self._waiting += calls

    def answer(self, part: Mapping[str, Any]) -> str:
        """Return the id of the call that the next result is for.

        If that call already has a result, `laws` finds two; if there is no such call, it finds an
        orphan.
        """
        given, name = _id(part), as_text((_read_part_field(part, RESULT) or {}).get("name"))
        named = [call for call in self._calls if not call.id.startswith(PLACED)]
        if given and (named or not self._calls):
            found = next((call for call in self._waiting if call.id == given), None)
            if found is not None:
                self._waiting.remove(found)
            return given
        bearing = [call for call in self._calls if call.name == name] or self._calls
        found = next((call for call in self._waiting if call in bearing), None)
        if found is not None:
            self._waiting.remove(found)
            return found.id
        return bearing[-1].id if bearing else given


def _find_turn(raws: Sequence[Raw]) -> _Turn:
    """Return the open turn after contents that were read before."""
    first = len(raws)
    for index in range(len(raws) - 1, -1, -1):
        fields = _fields(raws[index], index)
        if any(_read_part_field(part, CALL) for part in _parts(fields, index)):
            first = index
        elif first < len(raws) and _role(fields, index) != "assistant":
            break
    turn = _Turn()
    for index in range(first, len(raws)):
        fields = _fields(raws[index], index)
        parts = _parts(fields, index)
        turn.open(_role(fields, index))
        for part in _find_parts(parts, RESULT):
            turn.answer(part)
        turn.ask(_calls(parts, index, turn.size))
    return turn


# --- reading --------------------------------------------------------------------------------------


def _fields(raw: Raw, index: int) -> Mapping[str, Any]:
    fields = mapping(raw)
    if fields is None or ("parts" not in fields and set(fields) - {"role"}):
        raise build_error(raw, fields, index)
    return fields


def _role(fields: Mapping[str, Any], index: int) -> str:
    """Return the role; the API reads a content without one as the user's."""
    role = fields.get("role") or "user"
    if isinstance(role, str) and role in ROLES:
        return ROLES[role]
    hint = ": pass the operator's text as system_instruction" if role == "system" else ""
    raise MalformedHistoryError(
        f"contents[{index}] has the role {show_value(role)}: expected one of "
        f"{', '.join(ROLES)}{hint}",
        index=index,
    )


def _read_parts(fields: Mapping[str, Any]) -> Sequence[Any]:
    parts = fields.get("parts")
    return parts if isinstance(parts, list | tuple) else ()


def _parts(fields: Mapping[str, Any], index: int) -> list[Mapping[str, Any]]:
    """Return the parts as mappings; a text becomes a part of text."""
    parts = fields.get("parts")
    if parts is not None and not isinstance(parts, list | tuple):
        raise MalformedHistoryError(
            f"contents[{index}] has parts of type {type(parts).__name__}: expected a list",
            index=index,
        )
    made = []
    for part in parts or ():
        known = {"text": part} if isinstance(part, str) else mapping(part)
        if known is None:
            raise build_error(part, None, index)
        made.append(known)
    return made


def _read_part_field(part: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a field of a part as a mapping, or None."""
    return mapping(pick_field(part, name))


def _find_parts(parts: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [part for part in parts if _read_part_field(part, name) is not None]


def _id(part: Mapping[str, Any]) -> str:
    return as_text((_read_part_field(part, RESULT) or {}).get("id"))


def _message(
    fields: Mapping[str, Any], index: int, first: int, answers: tuple[str, ...]
) -> Message:
    known, left = _parts(fields, index), iter(answers)
    parts: list[Part] = []
    for part in known:
        if _read_part_field(part, CALL) is None:
            answered = next(left, "") if _read_part_field(part, RESULT) is not None else ""
            parts += _read(part, index, answered)
    return Message(_role(fields, index), tuple(parts), _calls(known, index, first))


def _calls(parts: Sequence[Mapping[str, Any]], index: int, first: int) -> tuple[Call, ...]:
    """Read calls; a call without an id is identified by its place in its turn."""
    made = []
    for place, part in enumerate(_find_parts(parts, CALL), first):
        asked = _read_part_field(part, CALL) or {}
        given = as_text(asked.get("id")) or f"{PLACED}{place}"
        arguments = asked.get("args")
        written = json_text({} if arguments is None else arguments, index)
        made.append(Call(given, as_text(asked.get("name")), written))
    return tuple(made)


def _read(part: Mapping[str, Any], index: int, answers: str) -> list[Part]:
    """Read a part that is no call, usually into one; the media of a result follow it."""
    result = _read_part_field(part, RESULT)
    if result is not None:
        seen = [inner for own in _inner(result, index) for inner in _read(own, index, "")]
        shown = [inner._replace(answers=answers) for inner in seen if inner.media is not None]
        return [Part("result", _response_text(result, index), answers), *shown]
    text = part.get("text")
    if isinstance(text, str):
        return [Part("reasoning" if part.get("thought") is True else "text", text)]
    for name in ("inlineData", "fileData"):
        held = _read_part_field(part, name)
        if held is not None:
            return [_medium(held)]
    hidden = {find_key(part, "thoughtSignature")}
    return [Part("other", json_text({k: v for k, v in part.items() if k not in hidden}, index))]


def _inner(result: Mapping[str, Any], index: int) -> Iterator[Mapping[str, Any]]:
    for own in result.get("parts") or ():
        known = mapping(own)
        if known is None:
            raise build_error(own, None, index)
        yield known


def _response_text(result: Mapping[str, Any], index: int) -> str:
    """Return the text of a response: its single text, if that is all, else its JSON."""
    response = result.get("response")
    if isinstance(response, Mapping) and len(response) == 1:
        ((name, said),) = response.items()
        if name in SAID and isinstance(said, str):
            return said
    return json_text({} if response is None else response, index)


def _medium(held: Mapping[str, Any]) -> Part:
    """Read a blob or a file by its media type; in the SDK a blob is bytes."""
    media = as_text(pick_field(held, "mimeType"))
    kind: MediaKind = "file"
    if media.startswith("image/"):
        kind = "image"
    elif media.startswith("audio/"):
        kind = "audio"
    data = held.get("data")
    source = b64encode(data).decode("ascii") if isinstance(data, bytes) else as_text(data)
    source = source or as_text(pick_field(held, "fileUri"))
    return Part(kind, identity(source), media=describe(kind, source))


# --- writing --------------------------------------------------------------------------------------


def _result(known: Mapping[str, Any], name: str, response: Mapping[str, Any]) -> Raw:
    given = {} if name.startswith(PLACED) else {"id": name}
    return {"role": "user", "parts": [{RESULT: {**given, **known, "response": response}}]}


def _rename_part(part: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    """Return a call or a result with another id; ids of the neutral view are not written."""
    held = {k: v for k, v in (_read_part_field(part, kind) or {}).items() if k != "id"}
    given = {} if name.startswith(PLACED) else {"id": name}
    return {**part, find_key(part, kind): {**given, **held}}


def _with_arguments(part: Mapping[str, Any], arguments: str) -> Mapping[str, Any]:
    """Return a call with new arguments; the API takes an object, so other JSON is put into one."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    given = value if isinstance(value, dict) else {"arguments": value}
    return {**part, find_key(part, CALL): {**(_read_part_field(part, CALL) or {}), "args": given}}


def _rewrite_part(part: Mapping[str, Any], said: Mapping[int, str]) -> Mapping[str, Any]:
    """Return a part with new text in these of its neutral parts (`_read`)."""
    result = _read_part_field(part, RESULT)
    if result is None:
        if isinstance(part.get("text"), str):
            return {**part, "text": said[0]}
        sign = find_key(part, "thoughtSignature")
        return {"text": said[0], **({sign: part[sign]} if sign in part else {})}
    if 0 in said:
        new = {k: v for k, v in result.items() if k != "parts"} | {"response": {"output": said[0]}}
        return {**part, find_key(part, RESULT): new}
    inner, place = [], 1
    for own, known in zip(result["parts"], _inner(result, 0), strict=True):
        seen = any(p.media is not None for p in _read(known, 0, ""))
        inner.append({"text": said[place]} if seen and place in said else own)
        place += seen
    return {**part, find_key(part, RESULT): {**result, "parts": inner}}

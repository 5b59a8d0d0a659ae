"""The body of a request: read once, its values kept as the bytes that arrived.

Values without an edit are sent on byte for byte. The module knows the places of values, not their
meaning, apart from the limits on size and nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NoReturn

import msgspec

DEEPEST: Final = 64
"""Levels of nesting (60-safety, the table of input)."""

PASSES: Final = 6
"""Innermost levels that are removed before the rest is counted: most bodies have no more."""

BLOCK: Final = 65_536

MOST_VALUES: Final = 1_000_000
"""Most values in a body: the smallest ones take about 30 times their bytes once parsed."""


class RequestRefused(Exception):  # noqa: N818 - an answer, not a fault
    """A refused request: the status, a code for programs, a sentence for people."""

    def __init__(self, status: int, code: str, text: str) -> None:
        self.status = status
        self.code = code
        self.text = text
        self.body = b""
        """Bytes to send instead of the text, if a dialect has its own shape for this."""
        self.again_s = 0
        """Seconds after which the client may come again, 0 if unknown."""
        self.allow = ""
        """The allowed methods, if the request used another one."""
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments and attributes: the proxy raises a worker's refusal again."""
        return type(self), (self.status, self.code, self.text), vars(self)


def refuse_body(most: int) -> RequestRefused:
    """Return the refusal of a body that is too large by its header or by its real size."""
    text = f"the body is over {most:,} bytes: send less, or raise max_body in [serve]"
    return RequestRefused(413, "body_too_large", text)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest body that is accepted."""

    messages: int = 100_000
    choices: int = 8
    depth: int = DEEPEST


@dataclass(slots=True)
class Body:
    """A request body. `fields` are its top-level values; `history` are the parsed messages.

    `slices` are the bytes of each message, or None if only the slower reader accepted the body;
    then edits write the whole history anew. An `opaque` body cannot be read here. `grown` is the
    number of messages added after those that arrived.
    """

    raw: bytes
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)
    slices: list[bytes] | None = None
    opaque: bool = False
    grown: int = 0
    _values: dict[str, bytes] = field(default_factory=dict)

    def splice(self, edits: Mapping[str, bytes]) -> bytes:
        """Return the body with these top-level values replaced.

        All other bytes stay as they came; new fields are added at the end.
        """
        if not edits:
            return self.raw
        spans = _spans(self.raw, self._values)
        if spans is None:  # a name twice, or one with escapes: write the whole object anew
            return _write_object({**self._values, **edits})
        made: list[bytes] = []
        done = 0
        for name, (start, stop) in spans.items():
            if name in edits:
                made += [self.raw[done:start], edits[name]]
                done = stop
        new = {name: value for name, value in edits.items() if name not in spans}
        end = self.raw.rindex(b"}")
        made.append(self.raw[done:end])
        if new:
            inner = _write_object(new)[1:-1]
            made.append(b"," + inner if spans else inner)
        made.append(self.raw[end:])
        return b"".join(made)

    def extend(self, messages: Sequence[Any]) -> Body:
        """Return the body with more messages after its history; `raw` stays as it arrived."""
        slices = None
        if self.slices is not None:
            slices = [*self.slices, *map(encode_json, messages)]
        grown = self.grown + len(messages)
        return replace(self, history=[*self.history, *messages], slices=slices, grown=grown)

    def bytes_of(self, name: str) -> bytes:
        """Return the bytes of a top-level value as they came, empty if there is no such value."""
        return self._values.get(name, b"")

    def rewrite_history(self, messages: Sequence[Any]) -> bytes:
        """Return a history as JSON, reusing the bytes of the body's own messages."""
        own = dict(zip(map(id, self.history), self.slices or (), strict=bool(self.slices)))
        parts = [own.get(id(message)) or encode_json(message) for message in messages]
        return b"[" + b",".join(parts) + b"]"


def read(raw: bytes, name: str, bounds: Bounds = Bounds()) -> Body:
    """Read a body with its history under `name`.

    Raises RequestRefused for a body that is nested too deeply, holds an invalid number, or exceeds
    a bound. A body that no parser accepts is opaque: it is forwarded as it is.
    """
    if len(raw) > MOST_VALUES and raw.count(b",") > MOST_VALUES and _commas(raw) > MOST_VALUES:
        text = f"the body holds more than {MOST_VALUES:,} values: send less, such as fewer messages"
        raise RequestRefused(413, "too_many_values", text)
    try:
        body = _quickly(raw, name, bounds.depth)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _flat(raw, bounds.depth)
        body = _slowly(raw, name)
    except RecursionError as error:  # the parser's own bound, at some hundred levels
        raise _too_deep(bounds.depth) from error
    return _check_bounds(body, bounds)


def _quickly(raw: bytes, name: str, depth: int) -> Body:
    """Read with the C parser, which first finds only the values and then parses each alone."""
    values = {key: bytes(value) for key, value in _TOP.decode(raw).items()}
    body = Body(raw, _values=values)
    found = sum([len(key) + len(value) + 4 for key, value in values.items()])
    few = raw.count(b"[") + raw.count(b"{") <= depth - 2  # if so, no part nests too deep
    if len(raw) - found > depth:  # a name that stands twice: its first value is sent on, too
        _flat(raw, depth)
    for key, value in values.items():
        if key == name and value[:1] == b"[" and depth > 1:
            pieces = body.slices = [bytes(piece) for piece in _LIST.decode(value)]
            for piece in () if few else pieces:
                _flat(piece, depth, inside=2)
            body.history = [_ANY.decode(piece) for piece in pieces]
        else:
            if not few:
                _flat(value, depth, inside=1)
            body.fields[key] = _ANY.decode(value)
    return body


def _flat(raw: bytes, most: int, inside: int = 0) -> None:
    """Raise RequestRefused for a part of the body that is nested deeper than `most` levels."""
    if len(raw) > most - inside and not shallow(raw, most - inside):
        raise _too_deep(most)


def _too_deep(most: int) -> RequestRefused:
    text = (
        f"the body is nested deeper than {most} levels: send the inner part as text, or raise "
        "max_depth in [serve]"
    )
    return RequestRefused(400, "nested_too_deep", text)


def shallow(raw: bytes, most: int = DEEPEST) -> bool:
    """Tell whether JSON is nested at most `most` levels deep, in linear time, without a parser.

    Few openings mean few levels. Otherwise it removes escapes, so that quotes bound strings. Then
    it removes the strings and a few of the innermost levels, which is quick, and counts the levels
    that are left. Unbalanced text is invalid JSON and left to the parser.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return True
    bare = raw.translate(None, _MUTE).replace(rb"\\", b"").replace(rb"\"", b"")
    bare = bare.translate(None, _REST)
    bare = _STRINGS.sub(b"", bare).translate(_LEVELS, b'"')
    taken = min(PASSES, most)
    for _ in range(taken):
        bare = bare.replace(b"()", b"")
    return not bare or not _deeper(bare, most - taken)


def _commas(raw: bytes) -> int:
    """Return the number of commas outside of strings."""
    bare = raw.translate(None, _TEXT).replace(rb"\\", b"").replace(rb"\"", b"")
    bare = bare.translate(None, _WORDS).replace(b'""', b"")
    return _STRINGS.sub(b"", bare).count(b",")


def _deeper(levels: bytes, most: int) -> bool:
    """Tell whether parentheses ever open more than `most` levels; closing is not checked."""
    level = 0
    for start in range(0, len(levels), BLOCK):
        steps = accumulate(map(_STEP.__getitem__, levels[start : start + BLOCK]), initial=level)
        reached = list(steps)
        if max(reached) > most:
            return True
        level = reached[-1]
    return False


def encode_json(value: Any) -> bytes:
    """Return a value as JSON; an unpaired surrogate is written as its escape."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value).encode("ascii")


_MUTE: Final = bytes(set(range(256)) - set(b'[]{}"\\/bfnrtu'))  # keeps ends of escapes
_REST: Final = bytes(set(range(256)) - set(b'[]{}"'))
_TEXT: Final = bytes(set(range(256)) - set(b',"\\/bfnrtu'))  # keeps ends of escapes
_WORDS: Final = bytes(set(range(256)) - set(b',"'))
_STRINGS: Final = re.compile(rb'"[^"]*"')
_LEVELS: Final = bytes.maketrans(b"[]{}", b"()()")
_STEP: Final = tuple({40: 1, 41: -1}.get(code, 0) for code in range(256))
_TOP: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()


def _slowly(raw: bytes, name: str) -> Body:
    """Read with the standard library's parser, which accepts unpaired surrogates."""
    try:
        fields = json.loads(raw, parse_constant=_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return Body(raw, opaque=True)
    if not isinstance(fields, dict):
        return Body(raw, opaque=True)
    body = Body(raw, _values={k: json.dumps(v).encode("ascii") for k, v in fields.items()})
    history = fields.pop(name, None)
    body.fields = fields
    if isinstance(history, list):
        body.history = history
    elif history is not None:
        body.fields[name] = history
    return body


def _constant(text: str) -> NoReturn:
    raise RequestRefused(400, "not_a_number", f"the body holds {text}, which is no number of JSON")


def _finite(text: str) -> float:
    """Read a number; raises ValueError if it is infinite and could not be written again."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _check_bounds(body: Body, bounds: Bounds) -> Body:
    if len(body.history) > bounds.messages:
        raise RequestRefused(
            413,
            "too_many_messages",
            f"the request has {len(body.history):,} messages, and at most {bounds.messages:,} are "
            "accepted: send fewer, or raise max_messages in [serve]",
        )
    choices = body.fields.get("n")
    if type(choices) in (int, float) and choices > bounds.choices:  # type: ignore[operator]  # a number
        raise RequestRefused(
            400, "too_many_choices", f"n is {choices}, and at most {bounds.choices} is accepted"
        )
    return body


def _spans(raw: bytes, values: Mapping[str, bytes]) -> dict[str, tuple[int, int]] | None:
    """Return the span of each top-level value, or None if a name cannot be found as written.

    The parser gave the values in order; only names, colons and commas stand between them.
    """
    spans: dict[str, tuple[int, int]] = {}
    at = raw.index(b"{") + 1
    for name, value in values.items():
        found = _NAME.match(raw, at)
        if found is None or found[1] != name.encode():
            return None
        start = found.end()
        stop = start + len(value)
        if raw[start:stop] != value:
            return None
        spans[name] = (start, stop)
        comma = _COMMA.match(raw, stop)
        at = comma.end() if comma is not None else stop
    return spans if raw[at:].strip() == b"}" else None


_NAME: Final = re.compile(rb'\s*"([^"\\]*)"\s*:\s*')
_COMMA: Final = re.compile(rb"\s*,")


def _write_object(values: Mapping[str, bytes]) -> bytes:
    pairs = (json.dumps(name).encode("ascii") + b":" + value for name, value in values.items())
    return b"{" + b",".join(pairs) + b"}"

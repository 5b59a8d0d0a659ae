"""The events of a session: one frozen value per event, in past tense, never changed.

An event that is read back equals the one that was written. Types and versions that this program
does not know are kept and passed on byte for byte. This module knows no store and no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NoReturn

from ullage.core.errors import StoreError

VERSION: Final = 1
"""The version of the data of events that this program writes."""

FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "user_message": {"text": str},
    "assistant_message": {"text": str, "model": str},
    "reasoning": {"model": str},
    "tool_call": {"call_id": str, "name": str, "arguments": str},
    "tool_result": {"call_id": str, "text": str},
    "permission_decision": {"call_id": str, "decision": str},
    "provider_usage": {"model": str},
    "context_state": {"state": Mapping},
    "history_compaction": {"checkpoint": Mapping},
    "turn_started": {"turn": str},
    "turn_completed": {"turn": str},
    "turn_failed": {"turn": str, "reason": str},
    "turn_interrupted": {"turn": str},
    "snapshot_taken": {"turn": str, "workspace": str, "manifest": str},
    "file_changes": {"turn": str, "workspace": str, "files": list},
    "files_restored": {"turn": str, "files": list},
    "session_created": {},
    "session_fork": {"parent": str, "seq": int},
    "branch_summary": {"text": str},
    "skill_activation": {"name": str, "hash": str},
    "message_pinned": {"seq": int},
    "subagent_event": {},
    "event_erased": {"type": str},
    "session_purged": {"events": int},
}
"""The required data of each type; more may be present."""

DURABLE: Final = frozenset(FIELDS)
"""Types that are recorded."""

EPHEMERAL: Final = frozenset(
    {"text_delta", "reasoning_delta", "status", "plan", "context_pressure"}
)
"""Types that are shown only while they happen; the log refuses them."""

HEAD: Final = ("id", "session_id", "seq", "ts", "type", "v")
"""The envelope without the data, in the order of a line; the data come last."""

MOST: Final = 2**53
"""Whole numbers in a line are below it: JSON readers differ above (RFC 8259, section 6)."""

DATA: Final = ', "data": '

Upcast = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Converts the data of one version of a type to the next version."""

Upcasts = Mapping[tuple[str, int], Upcast]
"""The step from each version of a type to the next one."""

UPCASTS: Final[Mapping[tuple[str, int], Upcast]] = {}
"""Empty: there is only one version so far."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An event to be recorded; the append gives it its place and time.

    Raises StoreError for types that are not recorded, for text that cannot be written in a line,
    and for data without the fields that the type needs.
    """

    type: str
    data: Mapping[str, Any]
    v: int = VERSION

    def __post_init__(self) -> None:
        if self.type in EPHEMERAL:
            raise StoreError(f"{self.type} events are shown, not recorded: the log takes none")
        if not (_sound("type", self.type) and _sound("v", self.v)):
            raise StoreError(
                f"an event of type {self.type!r:.60} and version {self.v!r:.60} cannot be "
                f"recorded: expected text that UTF-8 can carry, and a number from 1 to {MOST - 1}"
            )
        lacking = _lacking(self.type, self.data) if self.v == VERSION else ""
        if lacking:
            raise StoreError(f"a {self.type} cannot be recorded: {lacking}")


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded event: `seq` counts from 1 without gaps, `ts` is in Unix seconds.

    `text` is the data as JSON text exactly as it was written; this text is stored and passed on.
    `id` is a hash of the whole event and of the previous `id`, so that the ids of a session form a
    chain.
    """

    session_id: str
    seq: int
    ts: float
    type: str
    v: int
    id: str
    text: str
    _data: Mapping[str, Any] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def data(self) -> Mapping[str, Any]:
        """The data, parsed on first use; raises StoreError for invalid data."""
        if self._data is None:
            read_once = _object(self.text, self)
            object.__setattr__(self, "_data", read_once)
            return read_once
        return self._data

    def __str__(self) -> str:
        return f"event {self.seq} of session {self.session_id}"

    @property
    def text_bytes(self) -> int:
        """The bytes of the text in UTF-8."""
        text = self.text
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    @property
    def known(self) -> bool:
        """True if this program knows the type and version of the event."""
        return self.type in DURABLE and self.v <= VERSION

    def line(self) -> str:
        """Return the event as a line of NDJSON, without its end, the data byte for byte."""
        head = encode_data({name: getattr(self, name) for name in HEAD})
        return f"{head[:-1]}{DATA}{self.text}}}"

    def follows(self, before: str) -> bool:
        """Tell whether the id is the correct one for the content and the previous id `before`."""
        content = (self.session_id, self.seq, repr(self.ts), self.type, self.v, self.text)
        return self.id == _id(before, content)


def make_event(session_id: str, seq: int, ts: float, draft: Draft, before: str = "") -> Event:
    """Return the event of a draft after the event whose id is `before`.

    Raises StoreError for data that JSON cannot represent and for an invalid time.
    """
    text, at = encode_data(draft.data), float(ts)
    if not _sound("ts", at):
        raise StoreError(f"an event cannot be recorded at {at} s: expected Unix seconds")
    id_ = _id(before, (session_id, seq, repr(at), draft.type, draft.v, text))
    return Event(session_id, seq, at, draft.type, draft.v, id_, text)


def upcast_data(
    event: Event, upcasts: Upcasts = UPCASTS, current: int = VERSION
) -> Mapping[str, Any] | None:
    """Return the data in the shape of the current version, or None if it is unknown.

    Raises StoreError if the data lack fields that their type needs.
    """
    if event.type not in FIELDS or event.v > current:
        return None
    data = event.data
    for version in range(event.v, current):
        step = upcasts.get((event.type, version))
        data = data if step is None else step(data)
    if lacking := _lacking(event.type, data):
        raise StoreError(f"{event} is a corrupt {event.type}: {lacking}")
    return data


def encode_data(data: Mapping[str, Any]) -> str:
    """Return data as JSON text in valid UTF-8; raises StoreError if JSON cannot represent it."""
    try:
        _check_keys(data)
        text = _ENCODER.encode(dict(data))
        if not _encodable(text):  # a lone surrogate: JSON writes it as an escape
            text = json.dumps(dict(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"an event's data cannot be recorded: {error}") from error
    return text


def read(line: str, where: str = "the line") -> Event:
    """Read one event from a line of NDJSON; raises StoreError with the place of an invalid one."""
    head_text, found, rest = line.rstrip("\r\n").partition(DATA)
    if not found or not rest.endswith("}"):
        raise StoreError(f"{where} is no event: expected {', '.join(HEAD)} and then data")
    head = _object(head_text + "}", where)
    text = rest[:-1]
    _object(text, where)
    if tuple(head) != HEAD:
        raise StoreError(f"{where} is no event: it has {', '.join(head)}, not {', '.join(HEAD)}")
    if not _encodable(text) or not all(_sound(name, head[name]) for name in HEAD):
        raise StoreError(f"{where} is no event: {head_text + '}':.200} cannot be")
    return Event(
        head["session_id"],
        head["seq"],
        float(head["ts"]),
        head["type"],
        head["v"],
        head["id"],
        text,
    )


def _sound(name: str, value: object) -> bool:
    """Tell whether a field of the head has a valid value."""
    if name == "ts":
        return isinstance(value, int | float) and type(value) is not bool and -MOST < value < MOST
    if name in {"seq", "v"}:
        return type(value) is int and 0 < value < MOST
    return isinstance(value, str) and bool(value) and _encodable(value)


def _lacking(kind: str, data: Mapping[str, Any]) -> str:
    """Return a sentence about the first missing field of a type's data, or ""."""
    for name, wanted in FIELDS.get(kind, {}).items():
        if not isinstance(data.get(name), wanted):
            return f"{name} is {data.get(name)!r:.60}, not {wanted.__name__}"
    return ""


def _id(before: str, content: Sequence[object]) -> str:
    """Return the hash of an event and of the previous id; lengths separate the parts."""
    link = bytearray()
    for part in (before, *content):
        body = str(part).encode("utf-8", "surrogatepass")
        link += b"%d:%b" % (len(body), body)
    return blake2b(link, digest_size=16).hexdigest()


def _check_keys(value: object) -> None:
    """Raise TypeError for a key that is not a string: JSON would convert it silently."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r:.60} is no text")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(text: str, where: object) -> dict[str, Any]:
    try:
        value, end = _DECODER.raw_decode(text)
        if end != len(text):  # white space, or more than one value, which `decode` refuses
            value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where} is no event: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{where} is no event: expected an object, not {text:.60}")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_constant)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""Made once: a new one per text costs more than reading or writing it."""

"""Histories that a server keeps: how large they are, by what it reported of them last.

The id of a response stands for all that led to it, and for itself; that of a conversation for
the same; that of a stored prompt for what it adds to a request. Numbers alone are kept: in memory,
and for other replicas where the store shares records. It changes no request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import as_mapping
from ullage.core.messages.size import Size
from ullage.core.tokens.counting import Count, Measure

if TYPE_CHECKING:
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.gauge import Assessment
    from ullage.proxy.sharing import Sharing

MOST: Final = 10_000
"""Ids that are kept; the one heard of longest ago is forgotten first."""

RESPONSE: Final = "previous_response_id"
CONVERSATION: Final = "conversation"
PROMPT: Final = "prompt"

NAMES: Final = (RESPONSE, CONVERSATION, PROMPT)
"""Fields that name a history, the one that holds the others first (OpenAI, Responses API)."""

LONGEST: Final = 200
"""Characters of an id."""

WRITING_S: Final = 0.05
"""Seconds in which another replica has written the size of what it has just answered. They are
waited once for an id that nobody has told of, by a request whose history the server keeps."""

TOPIC: Final = "history"
"""What replicas call the sizes of histories among their shared records."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What an id stands for: tokens of the model, from a report.

    `fixed` is what instructions and tools took in that request, in the counter's own tokens: they
    do not come along, the next request brings its own. `name` is what the conversation is called.
    """

    size: Size
    fixed: Size
    name: str

    def with_(self, new: Measure) -> Count:
        """Return the size of a request: what the server holds, and what the request brings."""
        scale = new.scale
        added = scale.of(new.total)
        low, best, high = (one + other for one, other in zip(self.size, added, strict=True))
        if new.fixed != self.fixed:
            was, now = scale.of(self.fixed), scale.of(new.fixed)
            low += now.low - was.high
            best += now.best - was.best
            high += now.high - was.low
        return Count(max(best, 0), max(low, 0), max(high, 0), "calibrated", new)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return {"size": [*self.size], "fixed": [*self.fixed], "name": self.name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Held:
        """Read what `to_dict` wrote; raises KeyError and TypeError for anything else."""
        return cls(Size(*data["size"]), Size(*data["fixed"]), str(data["name"]))


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """A request whose response will have an id: by itself, and what it is called.

    `key` is the history that it names, None where it brings its own. `found` says how full the
    window is with both, `basis` what that rests on; a guarded request has these of its guard.
    """

    scope: str
    name: str
    own: Measure = field(repr=False)
    key: Key | None = None
    found: Assessment | None = None
    basis: str = ""
    model: str | None = None
    prices: tuple[Price, ...] = ()


class Histories:
    """What is known of histories by their ids, each scope apart. Safe to share between threads.

    With `sharing` other replicas know it, too.
    """

    def __init__(self, most: int = MOST, sharing: Sharing | None = None) -> None:
        self._most, self._sharing = most, sharing
        self._held: OrderedDict[Key, Held] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, scope: str, key: Key | None) -> Held | None:
        """Return what a history holds, None where nobody has told."""
        with self._lock:
            held = self._held.get((scope, *key)) if key is not None else None
            if held is not None and key is not None:
                self._held.move_to_end((scope, *key))
            return held

    async def fetch(self, scope: str, key: Key | None) -> Held | None:
        """Do as `find`; what this process does not know, another replica may have written."""
        held = self.find(scope, key)
        if held is not None or key is None or self._sharing is None:
            return held
        name = _hash_key(key)
        told = await self._sharing.find(TOPIC, scope, name)
        if told is None and self._sharing.is_on:  # its answer may have been another's a moment ago
            await asyncio.sleep(WRITING_S)
            told = await self._sharing.find(TOPIC, scope, name)
        if told is None:
            return None
        try:
            held = Held.from_dict(told)
        except (KeyError, TypeError):
            return None  # of another version
        self._put((scope, *key), held)
        return held

    def learn(self, sent: MeasuredRequest, report: Any) -> Usage | None:
        """Remember what a report says of the history that was named, and of its response's id.

        Returns its usage, None where it has none.
        """
        usage = Usage.from_report(report)
        if usage is None:
            return None
        low = usage.prompt_tokens + usage.output
        # Reasoning stays as long as the model calls tools, and is left out after that.
        after = Held(Size(low, low, low + usage.reasoning), sent.own.fixed, sent.name)
        response = (as_mapping(report) or {}).get("id")
        if isinstance(response, str) and len(response) <= LONGEST:
            self._keep(sent.scope, (RESPONSE, response), after)
        if sent.key is not None and sent.key[0] == CONVERSATION:
            self._keep(sent.scope, sent.key, after)
        elif sent.key is not None and sent.key[0] == PROMPT:
            own = sent.own.scale.of(sent.own.total)
            edges = (max(usage.prompt_tokens - edge, 0) for edge in (own.high, own.best, own.low))
            self._keep(sent.scope, sent.key, Held(Size(*edges), sent.own.fixed, sent.name))
        return usage

    def _keep(self, scope: str, key: Key, held: Held) -> None:
        self._put((scope, *key), held)
        if self._sharing is not None:
            self._sharing.tell(TOPIC, scope, _hash_key(key), held.to_dict())

    def _put(self, key: Key, held: Held) -> None:
        with self._lock:
            self._held[key] = held
            self._held.move_to_end(key)
            if len(self._held) > self._most:
                self._held.popitem(last=False)


def _hash_key(key: Key) -> str:
    """Return what a history is called in the store, which need not know its id."""
    said = json.dumps(key).encode("ascii")
    return hashlib.blake2b(said, digest_size=16).hexdigest()


def key_of(fields: Mapping[str, Any]) -> Key | None:
    """Return which history a request names, None where its id is none."""
    for name in NAMES:
        value = fields.get(name)
        if value is None:
            continue
        parts = [value]
        if isinstance(value, Mapping):
            parts = [value.get("id"), value.get("version") or ""]
        if all(isinstance(part, str) and len(part) <= LONGEST for part in parts):
            return (name, *parts)
        return None
    return None


def name_of(scope: str, key: Key | None) -> str:
    """Return what a conversation is called of which nothing but an id is known."""
    said = "|".join((scope, *(key or ()))).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=8).hexdigest()

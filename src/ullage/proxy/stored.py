"""The sizes of histories that a server keeps, from its last reports.

The id of a response names everything that led to it and the response itself; the id of a
conversation means the same. The id of a stored prompt names its addition to a request. Only numbers
are kept: in memory, and for other replicas if the store shares records. The module changes no
request.
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
"""Most ids that are kept; the least recently used one is dropped first."""

RESPONSE: Final = "previous_response_id"
CONVERSATION: Final = "conversation"
PROMPT: Final = "prompt"

NAMES: Final = (RESPONSE, CONVERSATION, PROMPT)
"""Fields that name a history, the one that contains the others first (OpenAI, Responses API)."""

LONGEST: Final = 200
"""Most characters of an id."""

WRITING_S: Final = 0.05
"""Seconds within which another replica writes the size of its last answer. A request whose history
the server keeps waits this long once for an unknown id."""

TOPIC: Final = "history"
"""The topic under which replicas share the sizes of histories."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The size of a history with an id: tokens of the model, from a report.

    `fixed` is the size of instructions and tools in that request, in the counter's own tokens: they
    are not part of the history, since the next request brings its own. `name` is the name of the
    conversation.
    """

    size: Size
    fixed: Size
    name: str

    def with_(self, new: Measure) -> Count:
        """Return the size of a request: the history at the server plus the new part."""
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
        """Read the data of `to_dict`; raises KeyError and TypeError for anything else."""
        return cls(Size(*data["size"]), Size(*data["fixed"]), str(data["name"]))


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """A request with a response that will have an id: its size, and its conversation's name.

    `key` is the history that it names, None if it brings its own. `found` says how full the window
    is with both, `basis` is the source of that. A guarded request has both from its guard.
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
    """The known sizes of histories by id, each scope apart. Safe to share between threads.

    With `sharing`, other replicas know them too.
    """

    def __init__(self, most: int = MOST, sharing: Sharing | None = None) -> None:
        self._most, self._sharing = most, sharing
        self._held: OrderedDict[Key, Held] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, scope: str, key: Key | None) -> Held | None:
        """Return the size of a history, or None if it is unknown."""
        with self._lock:
            held = self._held.get((scope, *key)) if key is not None else None
            if held is not None and key is not None:
                self._held.move_to_end((scope, *key))
            return held

    async def fetch(self, scope: str, key: Key | None) -> Held | None:
        """Do the same as `find`; if it is unknown here, ask the records of other replicas."""
        held = self.find(scope, key)
        if held is not None or key is None or self._sharing is None:
            return held
        name = _hash_key(key)
        told = await self._sharing.find(TOPIC, scope, name)
        if told is None and self._sharing.is_on:  # another replica may have answered a moment ago
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
        """Remember the reported size of the named history, and of its response's id.

        Returns the usage of the report, or None without one.
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
    """Return the name of a history in the store, which hides its id."""
    said = json.dumps(key).encode("ascii")
    return hashlib.blake2b(said, digest_size=16).hexdigest()


def key_of(fields: Mapping[str, Any]) -> Key | None:
    """Return the history that a request names, or None without a valid id."""
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
    """Return the name of a conversation that is known only by an id."""
    said = "|".join((scope, *(key or ()))).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=8).hexdigest()

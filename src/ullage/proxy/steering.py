"""The wishes of an operator for conversations, from a page: pinned messages, spared histories.

A conversation is known again by its upstream, its party and its beginning, a message by its text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.policy import Policy

if TYPE_CHECKING:
    from ullage.proxy.call import ProxyCall


@dataclass(frozen=True, slots=True)
class Steering:
    """Pinned messages by conversation, and conversations whose last compaction was undone.

    Conversations and messages are digests. False if there are no wishes.
    """

    pins: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    spared: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pins or self.spared)

    @property
    def size(self) -> int:
        """Number of pinned messages."""
        return sum(map(len, self.pins.values()))

    def toggle(self, conversation: bytes, message: bytes) -> Steering:
        """Pin a message, or unpin it if it is pinned."""
        kept = self.pins.get(conversation, frozenset()) ^ {message}
        rest = {name: held for name, held in self.pins.items() if name != conversation}
        return replace(self, pins={**rest, conversation: kept} if kept else rest)

    def spare(self, conversation: bytes, *, yes: bool) -> Steering:
        """Compact a conversation only if it does not fit, or again as its policy says."""
        spared = self.spared | {conversation} if yes else self.spared - {conversation}
        return replace(self, spared=spared)

    def put(self, conversation: bytes, pins: frozenset[bytes], *, spared: bool) -> Steering:
        """Replace the pinned messages of a conversation, and set whether it is spared."""
        rest = {name: held for name, held in self.pins.items() if name != conversation}
        return replace(
            self.spare(conversation, yes=spared),
            pins={**rest, conversation: pins} if pins else rest,
        )

    def apply(self, call: ProxyCall) -> tuple[ProxyCall, bytes | None]:
        """Return a call with these wishes applied, and its conversation if it is spared."""
        if not self:
            return call, None
        named = digest_conversation(call.body.history, find_whom(call))
        if named in self.pins:
            call = replace(call, pinned=self.pins[named])
        if named not in self.spared:
            return call, None
        policy = (call.rule.policy or Policy.ladder()).spare()
        return replace(call, rule=replace(call.rule, policy=policy)), named


def find_whom(call: ProxyCall) -> str:
    """Return the owner of a conversation: its upstream and its party."""
    return make_whom(f"{call.upstream.root}/v1", call.party)


def make_whom(base_url: str | None, party: str) -> str:
    """Return a key that separates equal conversations of several servers and clients."""
    return f"{base_url or ''}|{party}"


def digest_conversation(history: Sequence[Any], whom: str) -> bytes:
    """Return the digest of a conversation: of all messages up to the first of its user."""
    spoken = (isinstance(one, Mapping) and one.get("role") == "user" for one in history)
    first = next((place for place, said in enumerate(spoken) if said), 0)
    return _digest([whom, *map(_settle, history[: first + 1])])


def digest_message(message: Any) -> bytes:
    """Return the digest of a message, unique only within its conversation."""
    return _digest(_settle(message))


def _settle(value: Any) -> Any:
    """Return a message without the parts that clients change each time: marks of their cache."""
    if isinstance(value, Mapping):
        settled = {key: _settle(one) for key, one in value.items() if key != "cache_control"}
        content = settled.get("content")
        if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
            settled["content"] = content[0]["text"]
        return settled
    return [_settle(one) for one in value] if isinstance(value, list | tuple) else value


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] == "text"


def _digest(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

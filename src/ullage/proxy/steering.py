"""What an operator asked of conversations on a page: which messages stay, which histories too.

A conversation is known again by whom it is for and by how it begins, a message by its text.
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
    """Pinned messages by conversation, and conversations whose last compaction was taken back.

    Conversations and messages are digests. False where nothing was asked.
    """

    pins: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    spared: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pins or self.spared)

    @property
    def size(self) -> int:
        """How many messages are pinned."""
        return sum(map(len, self.pins.values()))

    def toggle(self, conversation: bytes, message: bytes) -> Steering:
        """Pin a message that is not pinned; let one go that is."""
        kept = self.pins.get(conversation, frozenset()) ^ {message}
        rest = {name: held for name, held in self.pins.items() if name != conversation}
        return replace(self, pins={**rest, conversation: kept} if kept else rest)

    def spare(self, conversation: bytes, *, yes: bool) -> Steering:
        """Have a conversation compacted where it does not fit alone, or as its policy says."""
        spared = self.spared | {conversation} if yes else self.spared - {conversation}
        return replace(self, spared=spared)

    def put(self, conversation: bytes, pins: frozenset[bytes], *, spared: bool) -> Steering:
        """Have of a conversation these messages pinned and no others, and it spared or not."""
        rest = {name: held for name, held in self.pins.items() if name != conversation}
        return replace(
            self.spare(conversation, yes=spared),
            pins={**rest, conversation: pins} if pins else rest,
        )

    def apply(self, call: ProxyCall) -> tuple[ProxyCall, bytes | None]:
        """Return a call as it is to be planned, and its conversation where it is spared."""
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
    """Return whom a conversation is for: its upstream and its party."""
    return make_whom(f"{call.upstream.root}/v1", call.party)


def make_whom(base_url: str | None, party: str) -> str:
    """Return what tells apart equal conversations of several servers and clients."""
    return f"{base_url or ''}|{party}"


def digest_conversation(history: Sequence[Any], whom: str) -> bytes:
    """Return what names a conversation when it comes again: all up to what its user said first."""
    spoken = (isinstance(one, Mapping) and one.get("role") == "user" for one in history)
    first = next((place for place, said in enumerate(spoken) if said), 0)
    return _digest([whom, *map(_settle, history[: first + 1])])


def digest_message(message: Any) -> bytes:
    """Return what names a message when it comes again, in its conversation alone."""
    return _digest(_settle(message))


def _settle(value: Any) -> Any:
    """Return a message without what clients write otherwise each time: marks of their cache."""
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

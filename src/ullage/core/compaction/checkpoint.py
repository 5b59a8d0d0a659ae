"""The durable record of a compaction, and the hash chain that recognises a known prefix.

A checkpoint is planned once and stored whole. Every later request that begins with the same
messages replays it; it is never planned again. This module knows no store, policy or dialect.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ullage.core.compaction.edits import Script
from ullage.core.dialects.usage import Usage
from ullage.core.errors import StoreError
from ullage.core.messages.transcript import DIGEST_BYTES
from ullage.core.tokens.cost import Saving, measure_saving, saving
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.counting import Measure

VERSION: Final = 1
"""Schema version of a stored checkpoint."""

Trigger = Literal[
    "manual",
    "pressure",
    "preflight",
    "overflow_recovery",
    "transport_recovery",
    "model_switch",
    "unbound_reasoning",
]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The record of a compaction of the first `count` messages of a history, in model tokens.

    `prefix` is the chain hash of those messages, in hex. `scope` keeps upstreams and credentials
    apart. `generation` counts the checkpoints that this one builds on; of two for one prefix the
    higher wins. `whole` is the chain hash of the history at planning time and `bound` the size that
    it had to fit: the same history under the same bound is not planned again. `resolved` is the
    known window, 0 if unknown. `room` is the tokens that the answer needed. `raw_after` is the size
    after compaction by the counter, and `high_after` the most that this can be in model tokens; 0
    if not recorded.

    `first` is the first touched message, `source_count` the number of messages left out,
    `tail_count` the number after the last touched one. `kept_tokens` stand before the first edit
    and stay cached. `summary` is the text of the block, `facts` the facts that code carried into
    it, `aside` the rules and open tasks that did not fit. `usage` is the summariser's, `seen` the
    share of the removed text that it was shown. `since` is the aftermath of the compaction before
    (`Aftermath`), None for the first. The next usage report fills `tokens_after_measured` and
    `cache_read_measured`.
    """

    scope: str
    prefix: str
    count: int
    script: Script
    strategy: str
    trigger: Trigger
    policy: str
    basis: str
    tokens_before: int
    tokens_after: int
    tokens_after_measured: int | None = None
    fallback_reason: str | None = None
    generation: int = 0
    whole: str = ""
    bound: int = 0
    resolved: int = 0
    room: int = 0
    raw_after: int = 0
    high_after: int = 0
    window: str = ""
    first: int = 0
    source_count: int = 0
    tail_count: int = 0
    kept_tokens: int = 0
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] | None = None
    seen: float | None = None
    cache_read_measured: int | None = None
    since: Mapping[str, int] | None = None
    aside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: int = VERSION

    def __repr__(self) -> str:
        sizes = f"{self.tokens_before:,} -> {self.tokens_after:,} tokens"
        return line("Checkpoint", self.strategy, sizes, trigger=self.trigger, count=self.count)

    @property
    def range(self) -> tuple[int, int]:
        """The range [from, to) of messages in the history that the script covers."""
        return self.first, self.count

    @property
    def planned_size(self) -> int:
        """The number of messages in the history that was planned."""
        return self.count + self.tail_count

    @property
    def cached_tokens_lost(self) -> int:
        """The estimated tokens of the new prompt that must be written to the cache once more."""
        return max(0, self.tokens_after - self.kept_tokens)

    def saving(self, turns: int, prices: Sequence[Price] = ()) -> Saving:
        """Return the saving over so many calls; measured, once the provider has reported."""
        after = self.tokens_after
        kept = min(self.kept_tokens, self.tokens_before, after)
        saved = saving(self.tokens_before, after, kept, prices, turns=turns)
        if self.tokens_after_measured is None:
            return saved
        read = self.cache_read_measured or 0
        return measure_saving(saved, Usage(self.tokens_after_measured - read, read))

    def settles(self, whole: str, bound: int, size: Measure, room: int = 0) -> bool:
        """Tell whether this plan was made for exactly this history and bound.

        `size` is the size now. Growth of 2 % is allowed for recalibrated estimates. The very same
        request may measure larger if it fits, or if it stays within its earlier upper edge. `room`
        is the tokens that the answer needs. A plan that missed its target also counts: planning
        again would only cut further into its result.
        """
        if whole != self.whole or bound < self.bound or room > self.room:
            return False
        count = size.count()
        most = max(self.high_after, bound - room)
        same = size.raw().best == self.raw_after and count.high <= most
        return same or count.tokens <= self.tokens_after * 1.02

    def with_usage(self, usage: Usage) -> Checkpoint:
        """Return the checkpoint with the usage that the provider reported after it."""
        tokens, read = usage.prompt_tokens, usage.cache_read
        return replace(self, tokens_after_measured=tokens, cache_read_measured=read)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "script": self.script.to_list()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Read the data of `to_dict`; raises StoreError on another version or a corrupt record."""
        version = data.get("version")
        if version != VERSION:
            raise StoreError(
                f"a checkpoint of schema version {version!r} cannot be read: this ullage reads "
                f"version {VERSION}; upgrade ullage or start from an empty store"
            )
        try:
            kept = pick_known(cls, data)
            return cls(**{**kept, "script": Script.from_list(data["script"])})
        except (KeyError, TypeError) as error:
            raise StoreError(f"a stored checkpoint is corrupt ({error}): remove it") from error


def pick_known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of plain data that the class has fields for.

    A later ullage may have written more fields. Fields that must not be ignored get a new version.
    """
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}


def chain(transcript: Transcript) -> tuple[str, ...]:
    """Return the chain hashes of a transcript in hex: the i-th covers the first i + 1 messages."""
    done, known = transcript.memo.get(_CHAIN, (0, ()))
    messages = transcript.messages
    if done == len(messages):
        return cast("tuple[str, ...]", known)
    hashes: list[str] = []
    last = bytes.fromhex(known[-1]) if known else transcript.rules.dialect.encode()
    for message in messages[done:]:
        link = blake2b(last + _identity(message), digest_size=DIGEST_BYTES)
        last = link.digest()
        hashes.append(link.hexdigest())
    found = (*known, *hashes)
    transcript.memo[_CHAIN] = (len(messages), found)
    return found


_CHAIN: Final = "chain"


def _identity(message: Message) -> bytes:
    """Return what identifies a message: its digest, or only the role for operator text.

    Operator text may change between requests (a date).
    """
    return message.role.encode() if message.is_system else message.digest

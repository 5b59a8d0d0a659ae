"""The durable record of a compaction, and the chain by which a known prefix is recognised.

A checkpoint is planned once and stored whole: it is replayed on every later request that begins
with the same messages, never planned again. It knows no store, no policy and no dialect.
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
    """What a compaction did to the first `count` messages of a history, in model tokens.

    `prefix` is the chain hash of those messages, in hex; `scope` keeps upstreams and credentials
    apart. `generation` counts the checkpoints that this one builds on: of two for one prefix the
    higher holds. `whole` is the chain hash of the history it was planned for and `bound` the
    window then: the same history under the same bound is not planned again. `resolved` is the
    window as it was known, 0 where it was not: `bound` is then what the history had to fit. `room`
    are the tokens that the plan left, or could not leave, for the answer. `raw_after` is the size
    after it by the counter and `high_after` the most that this is in the model's tokens; 0 where
    nobody noted them.

    `first` is the first message that was touched, `source_count` how many were left out and
    `tail_count` how many stand behind the last one touched. `kept_tokens` stand before the first
    edit and stay cached. `summary` is the block that replaces the dropped messages, `facts` what
    code carried over in it, `aside` the rules and open tasks that it had no room for. `usage` is
    the summariser's, `seen` the share of the text left out that it was shown. `since` is what came
    of the compaction before it (`Aftermath`), None for the first. `tokens_after_measured` and
    `cache_read_measured` are filled by the next usage report.
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
        """The messages [from, to) of the history that the script reaches over."""
        return self.first, self.count

    @property
    def planned_size(self) -> int:
        """The messages of the history that it was planned for."""
        return self.count + self.tail_count

    @property
    def cached_tokens_lost(self) -> int:
        """The tokens of the new prompt that are written to the cache anew, once (estimated)."""
        return max(0, self.tokens_after - self.kept_tokens)

    def saving(self, turns: int, prices: Sequence[Price] = ()) -> Saving:
        """Return what the compaction saves over so many calls, measured once it was reported."""
        after = self.tokens_after
        kept = min(self.kept_tokens, self.tokens_before, after)
        saved = saving(self.tokens_before, after, kept, prices, turns=turns)
        if self.tokens_after_measured is None:
            return saved
        read = self.cache_read_measured or 0
        return measure_saving(saved, Usage(self.tokens_after_measured - read, read))

    def settles(self, whole: str, bound: int, size: Measure, room: int = 0) -> bool:
        """Tell whether this plan was made for the very history and bound at hand.

        `size` is what goes out now; 2 % of growth is left to recalibrated estimates. The very same
        request may be found larger, as long as it fits, or is no larger than it was thought to be
        at most. `room` are the tokens that the answer needs. A plan that missed its target settles
        no less: the next one would only take its result further apart.
        """
        if whole != self.whole or bound < self.bound or room > self.room:
            return False
        count = size.count()
        most = max(self.high_after, bound - room)
        same = size.raw().best == self.raw_after and count.high <= most
        return same or count.tokens <= self.tokens_after * 1.02

    def with_usage(self, usage: Usage) -> Checkpoint:
        """Return the checkpoint with what the provider reported after it."""
        tokens, read = usage.prompt_tokens, usage.cache_read
        return replace(self, tokens_after_measured=tokens, cache_read_measured=read)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return {**asdict(self), "script": self.script.to_list()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Read what `to_dict` wrote; raises StoreError on a newer version or a corrupt record."""
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
    """Return of plain data what a class has fields for.

    A later ullage may have written more: what must not be passed over gets another version.
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
    """Return what a message is known by; operator text may change (a date) and is left out."""
    return message.role.encode() if message.is_system else message.digest

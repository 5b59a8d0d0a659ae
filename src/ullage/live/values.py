"""What is shown of conversations: rows, requests, events and compactions, as plain values.

Tokens are the model's, times Unix seconds, money dollars; None is unknown. It draws nothing and
knows no source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final, Literal, NamedTuple

from ullage.core.dialects.usage import Usage

RECENT: Final = 5
"""Requests over which growth is measured."""

GONE: Final = "gone"
"""The state of a row whose conversation its source has no more: it is taken away."""

Fate = Literal["kept", "shortened", "left out", "reasoning left out", "added"]
"""What became of a message in a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A conversation as it stands.

    `source` says who keeps it (proxy, ullage, claude, codex, opencode), `id` is its name there.
    `title` is what it began with, "" where no text may be shown. `owner` is the token that it came
    with. `used`, `window` and `compaction_at` are tokens, `growth` tokens a request, `left` the
    requests until it is compacted, or full. `cached` is the share of the prompts read from the
    provider's cache, `saved` the tokens that compactions took away, `faults` how often something
    was asked for again. `last` says in words what happened last.
    """

    source: str
    id: str
    at: float = 0.0
    project: str = ""
    title: str = ""
    owner: str = ""
    model: str = ""
    upstream: str = ""
    state: str = "idle"
    used: int | None = None
    window: int | None = None
    window_source: str = ""
    compaction_at: int | None = None
    basis: str = ""
    tier: str = "unavailable"
    growth: int | None = None
    left: int | None = None
    messages: int = 0
    requests: int = 0
    dollars: float | None = None
    cached: float | None = None
    compactions: int = 0
    saved: int = 0
    faults: int = 0
    last: str = ""

    @property
    def key(self) -> str:
        """What names it among all sources."""
        return f"{self.source}/{self.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            name: getattr(self, name) for name in self.__slots__
        }  # asdict takes ten times as long


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One request of a conversation: its size, and what was reported of it.

    `usage` is the provider's report, `tokens` the prompt as reported, else as counted (`basis`).
    `note` says what was special: a cache that was lost, a cut, a refusal.
    """

    at: float
    tokens: int | None = None
    window: int | None = None
    tier: str = "unavailable"
    basis: str = ""
    usage: Usage | None = None
    dollars: float | None = None
    compacted: bool = False
    counted: int | None = None
    status: int = 0
    note: str = ""

    @property
    def cache_read(self) -> int | None:
        """The tokens that were read from the provider's cache."""
        return None if self.usage is None else self.usage.cache_read

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        told = asdict(self)
        told["usage"] = None if self.usage is None else asdict(self.usage)
        return told


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened: `kind` is one word for it, `text` a sentence without mark-up."""

    at: float
    kind: str
    text: str
    number: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LiveCompaction:
    """A compaction in numbers; `number` counts those of a conversation from 1.

    `lost` are the tokens whose cache is written anew, `dollars` what that costs. `since` is what
    came of it, as far as it is known (`core.compaction.aftermath.Aftermath`).
    """

    number: int
    at: float
    before: int
    after: int
    measured: int | None = None
    strategy: str = ""
    trigger: str = ""
    policy: str = ""
    left_out: int | None = None
    lost: int | None = None
    dollars: float | None = None
    undone: bool = False
    since: Mapping[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Waste:
    """Tokens that every request carries for nothing, or nearly; `dollars` a request, if priced."""

    kind: str
    name: str
    tokens: int
    advice: str
    dollars: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReviewedUnit:
    """One message in a compaction, before and after, in tokens of the model.

    `lives_on` says what of a message that went is still there, and where; `reference` is what it
    can be recalled by. Texts are whole up to `LONGEST` characters, "" where none may be shown.
    """

    number: int
    role: str
    label: str
    fate: Fate
    before: int
    after: int
    reason: str = ""
    lives_on: str = ""
    carried: float | None = None
    references: tuple[str, ...] = ()
    text: str = ""
    now: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """One message of the request as it stands, by its place from 0; `tokens` are the model's."""

    number: int
    role: str
    label: str
    tokens: int
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CompactionReview:
    """A compaction as a change to review; `laws` are sentences on what was proved of it."""

    compaction: LiveCompaction
    units: tuple[ReviewedUnit, ...]
    laws: tuple[tuple[str, bool], ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "compaction": self.compaction.to_dict(),
            "units": [unit.to_dict() for unit in self.units],
            "laws": [{"law": law, "holds": holds} for law, holds in self.laws],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class SessionDetail:
    """All that is known of one conversation.

    `report` is the form of `ullage context --json`, None where nothing can be counted; `window`
    has the claims on the window, and `notes` say what is not known here, and why.
    """

    session: LiveSession
    requests: tuple[LiveRequest, ...] = ()
    events: tuple[LiveEvent, ...] = ()
    compactions: tuple[LiveCompaction, ...] = ()
    report: Mapping[str, Any] | None = None
    window: Mapping[str, Any] | None = None
    waste: tuple[Waste, ...] = ()
    can: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "session": self.session.to_dict(),
            "requests": [one.to_dict() for one in self.requests],
            "events": [one.to_dict() for one in self.events],
            "compactions": [one.to_dict() for one in self.compactions],
            "report": None if self.report is None else dict(self.report),
            "window": None if self.window is None else dict(self.window),
            "waste": [one.to_dict() for one in self.waste],
            "can": sorted(self.can),
            "notes": list(self.notes),
        }


class Pace(NamedTuple):
    """How fast a window fills: tokens a request, and requests left at that pace."""

    growth: int | None
    left: int | None


def measure_pace(sizes: Sequence[int | None], bound: int | None) -> Pace:
    """Return the median growth over the last requests, and how many fit under `bound`.

    A step down is a compaction, or another branch, and no growth. A window that does not grow is
    never full.
    """
    known = [size for size in sizes if size is not None][-RECENT - 1 :]
    steps = [b - a for a, b in pairwise(known) if b >= a]
    if not steps:
        return Pace(None, None)
    growth = round(median(steps))
    if bound is None or growth <= 0:
        return Pace(growth, None)
    return Pace(growth, max(0, bound - known[-1]) // growth)


def share_cached(usages: Sequence[Usage]) -> float | None:
    """Return the share of the prompts that was read from the cache, None without a report."""
    prompts = sum(usage.prompt_tokens for usage in usages)
    return round(sum(usage.cache_read for usage in usages) / prompts, 4) if prompts else None

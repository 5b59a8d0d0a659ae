"""The values that viewers see: rows, requests, events and compactions as plain data.

Tokens are the model's, times Unix seconds, money dollars; None means unknown. The module draws
nothing and knows no source.
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
"""The state of a row whose source no longer has the conversation: viewers remove it."""

Fate = Literal["kept", "shortened", "left out", "reasoning left out", "added"]
"""The fate of a message in a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """The current state of a conversation.

    `source` is its keeper (proxy, ullage, claude, codex, opencode), `id` its name there. `title` is
    how it began, "" if no text may be shown. `owner` is the name of its token. `used`, `window` and
    `compaction_at` are tokens, `growth` is tokens a request, `left` the number of requests until it
    is compacted, or full. `cached` is the share of the prompts read from the provider's cache,
    `saved` the tokens that compactions removed, `faults` how often the model asked again for
    something. `last` is the last event in words.
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
        """Its name among all sources."""
        return f"{self.source}/{self.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            name: getattr(self, name) for name in self.__slots__
        }  # asdict takes ten times as long


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One request of a conversation: its size, and the report about it.

    `usage` is the provider's report, `tokens` the reported size of the prompt, or the counted one
    (`basis`). `note` names a special event: a lost cache, a cut, a refusal.
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
        """Tokens that were read from the provider's cache."""
        return None if self.usage is None else self.usage.cache_read

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        told = asdict(self)
        told["usage"] = None if self.usage is None else asdict(self.usage)
        return told


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event: `kind` is one word for it, `text` a sentence without mark-up."""

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

    `lost` are the tokens whose cache is written anew, `dollars` the cost of that. `since` counts
    what happened after it, as far as known (`core.compaction.aftermath.Aftermath`).
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
    """Tokens that every request carries with little or no use; `dollars` a request, if priced."""

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

    `lives_on` says which part of a removed message is still there, and where; `references` recall
    it. Texts are whole up to `LONGEST` characters, or "" if text must not be shown.
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
    """One message of the current request, by its place from 0; `tokens` are the model's."""

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
    """A compaction as a change to review; `laws` are the checked laws, and whether each holds."""

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
    """All known data about one conversation.

    `report` has the form of `ullage context --json`, or is None if nothing can be counted. `window`
    has the claims on the window. `notes` say which facts are unknown here, and why.
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
    """Return the median growth over the last requests, and how many more fit under `bound`.

    A step down is a compaction or another branch, and is ignored. A window that does not grow is
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
    """Return the share of the prompts that was read from the cache, or None without a report."""
    prompts = sum(usage.prompt_tokens for usage in usages)
    return round(sum(usage.cache_read for usage in usages) / prompts, 4) if prompts else None

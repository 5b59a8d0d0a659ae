"""Results of sessions under a policy, as numbers that can be added; without any text.

Dollars are whole billionths, so that the sum does not depend on the order of the sessions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NANO: Final = 1_000_000_000
"""Billionths in a dollar."""

OWN: Final = "own_ms"
"""The only number that differs between two equal runs."""


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """The results of sessions under one policy; all but `peak_tokens` are sums.

    `refused` counts turns whose request could not be made to fit. `carried_tokens` are all prompt
    tokens, `cached_tokens` those read from the provider's cache. `rewritten_tokens` were cached and
    are new again after a compaction, `expired_tokens` after a pause longer than the cache's life.
    `nanodollars` is the cost of the calls, `unpriced` the number of calls without a known price.

    `taken_*` counts the earlier terms that later turns use, `lost_*` those of them that were
    missing from the request: rare `words`, `files` by name or path, `values` with a digit.
    `calls_again` counts repeated calls whose earlier result was gone. `faults` counts messages with
    a lost term that was needed: each requires another call; `fault_tokens` is the tokens that these
    bring, and `fault_nanodollars` their cost. `left_out` counts messages that compactions removed
    or changed. `hasty` counts compactions within two answers of the previous one. `own_ms` is
    ullage's own CPU time, in milliseconds.
    """

    sessions: int = 0
    turns: int = 0
    refused: int = 0
    compactions: int = 0
    hasty: int = 0
    carried_tokens: int = 0
    peak_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    rewritten_tokens: int = 0
    expired: int = 0
    expired_tokens: int = 0
    nanodollars: int = 0
    unpriced: int = 0
    taken_words: int = 0
    taken_files: int = 0
    taken_values: int = 0
    lost_words: int = 0
    lost_files: int = 0
    lost_values: int = 0
    left_out: int = 0
    calls_again: int = 0
    faults: int = 0
    fault_tokens: int = 0
    fault_nanodollars: int = 0
    own_ms: float = 0.0

    def __add__(self, other: object) -> Self:
        if not isinstance(other, ReplayTotals):
            return NotImplemented
        summed = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return replace(self, **summed | {"peak_tokens": max(self.peak_tokens, other.peak_tokens)})

    @property
    def dollars(self) -> float | None:
        """The cost of the calls, or None if any price is unknown."""
        return None if self.unpriced else self.nanodollars / NANO

    @property
    def burden_dollars(self) -> float | None:
        """The additional cost of repeated work, or None if any price is unknown."""
        return None if self.unpriced else self.fault_nanodollars / NANO

    @property
    def loss(self) -> float | None:
        """The lost share of the terms that later turns use, or None if they use none."""
        taken = self.taken_words + self.taken_files + self.taken_values
        return (self.lost_words + self.lost_files + self.lost_values) / taken if taken else None

    @property
    def fault_rate(self) -> float | None:
        """The share of removed messages that were needed again, or None if none were removed."""
        return self.faults / self.left_out if self.left_out else None

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers and the derived ones, with None if unknown."""
        told = ("dollars", "burden_dollars", "loss", "fault_rate")
        return asdict(self) | {name: getattr(self, name) for name in told}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReplayTotals:
        """Read the result of `to_dict`; raises KeyError if a number is missing."""
        return cls(**{f.name: data[f.name] for f in fields(cls)})


def add_totals(found: Iterable[ReplayTotals]) -> ReplayTotals:
    """Return the sum of totals."""
    return sum(found, ReplayTotals())

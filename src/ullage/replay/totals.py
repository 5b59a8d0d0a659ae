"""What a session came to under a policy, as numbers that add up; they know no session's text.

Dollars are kept in billionths, as whole numbers: the same sum whatever the order of the sessions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NANO: Final = 1_000_000_000
"""Billionths in a dollar."""

OWN: Final = "own_ms"
"""The one number that another run does not give again."""


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """What sessions came to under one policy; all but `peak_tokens` are sums.

    `refused` are turns whose request did not fit whatever was done. `carried_tokens` are all prompt
    tokens, `cached_tokens` those read from the provider's cache, `rewritten_tokens` those that were
    cached and are new again after a compaction, `expired_tokens` after a pause longer than the
    cache lives. `nanodollars` is what the calls cost, `unpriced` the calls without a known price.

    Of what later turns took up, `taken_*` counts all and `lost_*` what no longer stood in the
    request: rare `words`, `files` by name or path, `values` with a digit. `calls_again` are
    calls made once more whose earlier result was gone. `faults` are messages out of which something
    lost was wanted: each a call that has to be made again; `fault_tokens` is what they bring and
    `fault_nanodollars` what that costs. `left_out` are messages that compactions took out of
    requests or changed there. `hasty` are compactions within two answers of the one before.
    `own_ms` is the CPU time of ullage itself, in milliseconds.
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
        """What the calls cost, None where any has no known price."""
        return None if self.unpriced else self.nanodollars / NANO

    @property
    def burden_dollars(self) -> float | None:
        """What has to be done again costs so much more, None where the price is unknown."""
        return None if self.unpriced else self.fault_nanodollars / NANO

    @property
    def loss(self) -> float | None:
        """The share of what later turns took up that was gone, None where they took up nothing."""
        taken = self.taken_words + self.taken_files + self.taken_values
        return (self.lost_words + self.lost_files + self.lost_values) / taken if taken else None

    @property
    def fault_rate(self) -> float | None:
        """How many of the messages that left were wanted again, None where none left."""
        return self.faults / self.left_out if self.left_out else None

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, and what follows from them; None is unknown."""
        told = ("dollars", "burden_dollars", "loss", "fault_rate")
        return asdict(self) | {name: getattr(self, name) for name in told}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReplayTotals:
        """Read what `to_dict` wrote; raises KeyError where a number is missing."""
        return cls(**{f.name: data[f.name] for f in fields(cls)})


def add_totals(found: Iterable[ReplayTotals]) -> ReplayTotals:
    """Return the sum of totals."""
    return sum(found, ReplayTotals())

"""Options, rows and the comparison of a replay, as values.

They can be pickled and written as JSON; they know no process and no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ullage.config.settings import Settings
from ullage.core.errors import ConfigurationError
from ullage.core.guard.warmth import LIFE_S
from ullage.replay.totals import ReplayTotals, add_totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ullage.core.compaction.policy import Policy
    from ullage.core.tokens.cost import Price


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay.

    `policies` are tried by their labels. `window` is the model's window in tokens and `model` its
    name, where None is the session's own. `prices` are dollars per million tokens, where None is
    the table's. `cache_life_s` is the life of a provider's cache in seconds. `source` is the
    program that wrote the files. With `thorough` every turn is prepared, even if nothing can
    happen.
    """

    policies: Mapping[str, Policy]
    window: int | None = None
    model: str | None = None
    prices: tuple[Price, ...] | None = None
    cache_life_s: float = LIFE_S
    source: str | None = None
    thorough: bool = False
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not self.policies:
            raise ConfigurationError("no policy is named: give at least one, such as ladder")
        if self.window is not None and self.window < 1:
            raise ConfigurationError(
                f"a window must be a positive number of tokens, not {self.window}"
            )
        if not self.cache_life_s >= 0:
            raise ConfigurationError(f"a cache lives 0 seconds or more, not {self.cache_life_s!r}")

    def name_run(self) -> dict[str, Any]:
        """Return the options that two runs must share to use one file."""
        return {
            "policies": {label: repr(policy) for label, policy in self.policies.items()},
            "window": self.window,
            "model": self.model,
            "cache_life_s": self.cache_life_s,
        }


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """The result of one session under one policy; `fault` says why there are no totals.

    `size` is the size of its place when it was replayed, or None if unknown.
    """

    place: str
    policy: str
    totals: ReplayTotals | None = None
    fault: str = ""
    size: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key of a row, unique within a run."""
        return self.place, self.policy

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        told = None if self.totals is None else self.totals.to_dict()
        held = {"place": self.place, "policy": self.policy, "totals": told, "fault": self.fault}
        return held if self.size is None else held | {"size": self.size}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReplayRow:
        """Read the result of `to_dict`; raises KeyError if something is missing."""
        told = data["totals"]
        totals = None if told is None else ReplayTotals.from_dict(told)
        return cls(data["place"], data["policy"], totals, data["fault"], data.get("size"))


SHOWN: Final = 20
"""Most failed sessions that are listed by name."""


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The results of all sessions under each policy, by label; sessions without one in `faults`."""

    totals: Mapping[str, ReplayTotals]
    faults: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        told = {label: found.to_dict() for label, found in self.totals.items()}
        return {"policies": told, "faults": dict(self.faults)}

    @classmethod
    def of(cls, rows: Iterable[ReplayRow], labels: Iterable[str]) -> PolicyComparison:
        """Return the comparison of rows; each session and policy counts once."""
        found: dict[str, dict[str, ReplayTotals]] = {label: {} for label in labels}
        faults: dict[str, str] = {}
        for row in rows:
            if row.totals is None:
                faults[row.place] = row.fault
            elif row.policy in found:
                found[row.policy][row.place] = row.totals
        return cls({label: add_totals(held.values()) for label, held in found.items()}, faults)

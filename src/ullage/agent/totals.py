"""The totals of a session: requests, tokens, dollars, and how full the window was over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ullage.core.session.log.event import Event, upcast_data

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Totals:
    """Answered requests, prompt and output tokens, dollars as far as prices are known.

    `pressures` are shares of the window by report, in order, without reports that lack a window.
    `faults` count requests for text that a compaction left out. `calls` are those in the 20 answers
    after each compaction, `repeated` those of them that were made before; both are known once the
    next compaction came.
    """

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None
    pressures: tuple[float, ...] = ()
    faults: int = 0
    calls: int = 0
    repeated: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return asdict(self)

    def describe(self) -> str:
        """Return the sums in words for people."""
        plural = "s"[: self.requests != 1]
        said = [f"{self.requests:,} request{plural}", f"{self.prompt_tokens:,} tokens sent"]
        said.append(f"{self.output_tokens:,} answered")
        if self.dollars is not None:
            said.append(f"${self.dollars:,.4f}")
        if self.pressures:
            last, most = self.pressures[-1], max(self.pressures)
            said.append(f"window at {last:.0%}, at most {most:.0%}")
        if self.faults:
            said.append(f"{self.faults:,} asked again after a compaction")
        if self.repeated:
            said.append(f"{self.repeated:,} of {self.calls:,} calls after compactions repeated")
        return ", ".join(said)


@dataclass(slots=True)
class Sums:
    """The same sums while they are added up, event by event; all are plain numbers."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None
    pressures: list[float] = field(default_factory=list)
    faults: int = 0
    calls: int = 0
    repeated: int = 0

    def take(self, event: Event) -> None:
        """Take in an event; raises StoreError for a corrupt one."""
        if event.type == "provider_usage":
            self._add_report(upcast_data(event) or {})
        elif event.type == "history_compaction":
            self._add_calls(upcast_data(event) or {})

    def total(self) -> Totals:
        """Return the totals."""
        return Totals(**{**asdict(self), "pressures": tuple(self.pressures)})

    def _add_report(self, report: Data) -> None:
        self.requests += 1
        self.prompt_tokens += read_tokens(report, "input", "cache_read", "cache_write")
        self.output_tokens += read_tokens(report, "output", "reasoning")
        self.faults += _read_faults(report)
        dollars, ratio = report.get("dollars"), read_ratio(report)
        if isinstance(dollars, int | float):
            self.dollars = (self.dollars or 0) + dollars
        if ratio is not None:
            self.pressures.append(ratio)

    def _add_calls(self, compaction: Data) -> None:
        """Add the calls after a compaction, unless the event repeats it."""
        if compaction.get("measured") or compaction.get("undone"):
            return
        past = compaction.get("checkpoint", {}).get("since")
        if isinstance(past, Mapping):
            self.calls += past["calls"]
            self.repeated += past["repeated"]


def add_up(events: Iterable[Event]) -> Totals:
    """Return the sums over a session's reports of usage."""
    sums = Sums()
    for event in events:
        sums.take(event)
    return sums.total()


def _read_faults(report: Data) -> int:
    context = report.get("context")
    found = context.get("faults") if isinstance(context, Mapping) else None
    return found if type(found) is int else 0


def read_tokens(report: Data, *names: str) -> int:
    """Return the tokens of some buckets of a report."""
    return sum(n for n in map(report.get, names) if type(n) is int)


def read_ratio(report: Data) -> float | None:
    """Return the share of the window by a report, or None if unknown."""
    context = report.get("context")
    found = context.get("ratio") if isinstance(context, Mapping) else None
    return found if isinstance(found, int | float) else None


def describe_report(report: Data) -> str:
    """Return one report in words: tokens, pressure, cost."""
    said = [f"{read_tokens(report, 'input', 'cache_read', 'cache_write'):,} tokens sent"]
    said.append(f"{read_tokens(report, 'output', 'reasoning'):,} answered")
    context, ratio = report.get("context"), read_ratio(report)
    held: Data = context if isinstance(context, Mapping) else {}
    if ratio is not None:
        tier = held.get("tier", "none")
        said.append(f"window at {ratio:.0%}" + (f" ({tier})" if tier != "none" else ""))
    elif held.get("reason"):
        said.append(f"window unavailable ({held['reason']})")
    if isinstance(report.get("dollars"), int | float):
        said.append(f"${report['dollars']:,.4f}")
    return ", ".join(said)

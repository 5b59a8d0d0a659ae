"""What a session has come to: requests, tokens, dollars, and how full the window was over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ullage.core.session.log.event import Event, upcast_data

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Totals:
    """Answered requests, prompt and output tokens, dollars as far as prices are known.

    `pressures` are shares of the window by report, in order; reports without a window are left out.
    `faults` count what was asked for again after a compaction left it out. Of the `calls` in the 20
    answers behind compactions `repeated` were made before; these are known once the next one came.
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
            said.append(f"{self.repeated:,} of {self.calls:,} calls behind compactions repeated")
        return ", ".join(said)


def add_up(events: Sequence[Event]) -> Totals:
    """Return the sums over a session's reports of usage."""
    reports = [upcast_data(e) or {} for e in events if e.type == "provider_usage"]
    priced = [r["dollars"] for r in reports if isinstance(r.get("dollars"), int | float)]
    return Totals(
        len(reports),
        sum(read_tokens(r, "input", "cache_read", "cache_write") for r in reports),
        sum(read_tokens(r, "output", "reasoning") for r in reports),
        sum(priced) if priced else None,
        tuple(ratio for ratio in map(read_ratio, reports) if ratio is not None),
        sum(map(_read_faults, reports)),
        *_add_calls(events),
    )


def _add_calls(events: Sequence[Event]) -> tuple[int, int]:
    """Return the calls behind compactions, and how many of them were made before."""
    made = [upcast_data(e) or {} for e in events if e.type == "history_compaction"]
    first = [r for r in made if not (r.get("measured") or r.get("undone"))]  # not told again
    pasts = [r["checkpoint"].get("since") for r in first if "checkpoint" in r]
    known = [past for past in pasts if isinstance(past, Mapping)]
    return sum(past["calls"] for past in known), sum(past["repeated"] for past in known)


def _read_faults(report: Data) -> int:
    context = report.get("context")
    found = context.get("faults") if isinstance(context, Mapping) else None
    return found if type(found) is int else 0


def read_tokens(report: Data, *names: str) -> int:
    """Return the tokens of some buckets of a report."""
    return sum(n for n in map(report.get, names) if type(n) is int)


def read_ratio(report: Data) -> float | None:
    """Return how full the window was by a report, None where that is not known."""
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

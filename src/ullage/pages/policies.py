"""The comparison of policies as a page: a table, and a picture of cost against loss.

The module reads the kept results of a replay, replays nothing, and shows no text of any session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.errors import ConfigurationError
from ullage.pages.drawing import Drawer
from ullage.pages.static import Assets
from ullage.replay.choice import find_front, recommend, weigh_cost
from ullage.replay.records import read_records
from ullage.replay.values import PolicyComparison

if TYPE_CHECKING:
    from ullage.replay.choice import PolicyChoice
    from ullage.replay.totals import ReplayTotals

SHOWN: Final = 20
"""Most replays that are listed, the newest first."""


class PolicyPoint(NamedTuple):
    """A policy in the picture, which is 200 wide and 100 high."""

    label: str
    x: float
    y: float
    on_front: bool


class KeptReplay(NamedTuple):
    """A replay with kept results: its file's name, and its time of writing in seconds."""

    name: str
    at: float


def list_kept(folder: Path) -> list[KeptReplay]:
    """Return the replays in a folder, the newest first."""
    found = []
    for path in folder.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            found.append(KeptReplay(path.stem, path.stat().st_mtime))
    return sorted(found, key=lambda kept: -kept.at)[:SHOWN]


def read_kept(folder: Path, name: str | None = None) -> PolicyComparison | None:
    """Return the comparison of a kept replay; without a name the newest readable one, or None.

    Raises ConfigurationError for a name that no replay has.
    """
    kept = [one.name for one in list_kept(folder)]
    if name is not None and name not in kept:
        raise ConfigurationError(f"no replay is kept under the name {name!r:.40}")
    for one in kept if name is None else [name]:
        try:
            head, rows = read_records(folder / f"{one}.jsonl")
        except ConfigurationError:
            if name is not None:
                raise
            continue  # a damaged file hides no other
        return PolicyComparison.of(rows, head.get("policies", {}))
    return None


def describe(found: PolicyComparison, choice: PolicyChoice | None = None) -> dict[str, Any]:
    """Return the data for the template."""
    held = {label: totals for label, totals in found.totals.items() if totals.turns}
    if held and choice is None:
        choice = recommend(found)
    return {
        "held": held,
        "points": _place_points(held),
        "choice": choice,
        "priced": not any(totals.unpriced for totals in held.values()),
        "faults": len(found.faults),
    }


def _place_points(held: Mapping[str, ReplayTotals]) -> list[PolicyPoint]:
    """Return the places of the policies with the fewest refused turns: cost to the right, loss up.

    The axes reach from the least to the largest value, so that close policies stay apart.
    """
    fewest = min((totals.refused for totals in held.values()), default=0)
    fit = {label: totals for label, totals in held.items() if totals.refused == fewest}
    front = find_front(fit)
    across = _spread([weigh_cost(totals) for totals in fit.values()])
    up = _spread([totals.loss or 0.0 for totals in fit.values()])
    return [
        PolicyPoint(label, round(2 * x, 1), round(100 - y, 1), label in front)
        for label, x, y in zip(fit, across, up, strict=True)
    ]


def _spread(values: Sequence[float]) -> list[float]:
    """Return values as places from 5 to 95."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    if most == least:
        return [50.0] * len(values)
    return [5 + 90 * (value - least) / (most - least) for value in values]


def draw_alone(found: PolicyComparison, choice: PolicyChoice | None) -> str:
    """Return the comparison as one HTML file that loads nothing."""
    told = describe(found, choice)
    return Drawer(Assets(), "").draw_alone("policies.html", title="Policies", kept=[], **told)

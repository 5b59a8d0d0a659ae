"""Tests policies on recorded work: runs sessions through the guard again, without a model.

::

    from ullage import replay

    places = replay.list_places(["~/sessions"])
    options = replay.ReplayOptions({"ladder": ullage.Policy.ladder(), "off": ullage.Policy.off()})
    found = replay.replay_corpus(places, options)
    print(replay.recommend(found).label)

It sends nothing and asks nobody. Each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.replay.choice import PolicyChoice, find_front, recommend, write_settings
    from ullage.replay.corpus import replay_corpus
    from ullage.replay.engine import ReplayEngine
    from ullage.replay.on_ray import replay_on_ray
    from ullage.replay.places import SessionPlace, list_log, list_places, load_place
    from ullage.replay.records import ReplayRecords, read_records
    from ullage.replay.totals import ReplayTotals
    from ullage.replay.values import PolicyComparison, ReplayOptions, ReplayRow

_HOME: Final[Mapping[str, Sequence[str]]] = {
    "choice": ("PolicyChoice", "find_front", "recommend", "write_settings"),
    "corpus": ("replay_corpus",),
    "engine": ("ReplayEngine",),
    "places": ("SessionPlace", "list_log", "list_places", "load_place"),
    "on_ray": ("replay_on_ray",),
    "records": ("ReplayRecords", "read_records"),
    "totals": ("ReplayTotals",),
    "values": ("PolicyComparison", "ReplayOptions", "ReplayRow"),
}

__all__ = [
    "PolicyChoice",
    "PolicyComparison",
    "ReplayEngine",
    "ReplayOptions",
    "ReplayRecords",
    "ReplayRow",
    "ReplayTotals",
    "SessionPlace",
    "find_front",
    "list_log",
    "list_places",
    "load_place",
    "read_records",
    "recommend",
    "replay_corpus",
    "replay_on_ray",
    "write_settings",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    for home, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

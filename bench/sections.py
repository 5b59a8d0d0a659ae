"""The sections of the page by name: how each is measured, and which results it writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench import aftermath, compacting, costs, fidelity, known, log, search, survival, textual
from bench.measure import Bench, Results


class Section(NamedTuple):
    """A function that measures, and the keys of the results that it fills."""

    measure: Callable[[Bench], None]
    keys: tuple[str, ...]


SECTIONS: Mapping[str, Section] = {
    "counting": Section(Bench.counting, ("count",)),
    "trimming": Section(Bench.trimming, ("trim",)),
    "after": Section(compacting.after, ("after",)),
    "loops": Section(Bench.loops, ("loop", "manage")),
    "known": Section(known.known, ("known",)),
    "sweep": Section(Bench.sweep, ("sweep",)),
    "cover": Section(compacting.cover, ("cover",)),
    "survival": Section(survival.survival, ("survival",)),
    "fidelity": Section(fidelity.fidelity, ("fidelity",)),
    "search": Section(search.search, ("search",)),
    "aftermath": Section(aftermath.aftermath, ("aftermath",)),
    "kinds": Section(Bench.kinds, ("kinds",)),
    "texts": Section(textual.texts, ("texts",)),
    "appending": Section(textual.appending, ("append",)),
    "memory": Section(costs.memory, ("held",)),
    "imports": Section(costs.imports, ("imports",)),
    "context": Section(costs.context, ("context", "session")),
    "log": Section(log.log, ("log",)),
}


def run(bench: Bench, names: Sequence[str]) -> None:
    """Measure sections again, and replace their old results."""
    for name in names:
        section = SECTIONS[name]
        for key in section.keys:
            bench.results.pop(key, None)
        started = time.monotonic()
        section.measure(bench)
        bench.say(f"== {name}: {(time.monotonic() - started) / 60:.1f} minutes")


def present(results: Results) -> set[str]:
    """Return the sections for which the results are complete."""
    return {name for name, section in SECTIONS.items() if set(section.keys) <= set(results)}

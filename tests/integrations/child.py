"""Runs one framework's driver, in the framework's own environment: orders in, lines of JSON out.

`python -m tests.integrations.child NAME` reads orders from stdin, one JSON array each, and answers
each with one line. What the framework prints goes to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.integrations import scenario
from tests.integrations.scenario import Driver, Setup


class Child:
    """The orders, by name."""

    def __init__(self, name: str) -> None:
        self.open_driver: Callable[[Setup], Driver] = import_module(
            f"tests.integrations.drivers.{name}"
        ).open_driver
        self.driver: Driver | None = None

    def open(self, words: int, **setup: Any) -> list[str]:
        """Open the driver; return its sizes."""
        scenario.SIZE["words"] = words
        self.driver = self.open_driver(Setup(**{**setup, "folder": Path(setup["folder"])}))
        return list(self.driver.sizes)

    def run(self, first: int, last: int) -> list[str]:
        """Run turns."""
        assert self.driver is not None
        return scenario.run(self.driver, first, last)

    def search(self, number: int) -> list[str]:
        """Have the model search what was left out."""
        assert self.driver is not None
        return scenario.search(self.driver, number)

    def switch(self, model: str, window: int) -> None:
        """Go on with another model."""
        assert self.driver is not None
        self.driver.switch(model, window)

    def reopen(self) -> bool:
        """Go on from what was persisted."""
        assert self.driver is not None
        return self.driver.reopen()

    def check(self, last: int) -> dict[str, Any]:
        """Return what is lost of the stored history, and what the small sizes say."""
        assert self.driver is not None
        return {"lost": scenario.list_lost(self.driver, last), **scenario.describe(self.driver)}

    def compare(self, turns: int, settled: int, **setup: Any) -> dict[str, float]:
        """Return the median CPU seconds of a turn, guarded and bare, side by side.

        They take turns at being first, and what they have settled is not collected in between: a
        collection of a large history would be told of whoever runs when it is due.
        """
        drivers = {}
        for guarded in (True, False):
            folder = Path(setup["folder"]) / str(guarded)
            folder.mkdir(parents=True, exist_ok=True)
            made = self.open_driver(Setup(**{**setup, "folder": folder, "guarded": guarded}))
            assert not scenario.run(made, 1, settled)
            drivers["guarded" if guarded else "bare"] = made
        seconds: dict[str, list[float]] = {name: [] for name in drivers}
        gc.collect()
        gc.freeze()
        for number in range(settled + 1, settled + turns + 1):
            for name in sorted(drivers, reverse=number % 2 == 0):
                begun = time.process_time()
                drivers[name].say(scenario.make_turn(number))
                seconds[name].append(time.process_time() - begun)
        gc.unfreeze()
        return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Answer orders until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    child = Child(sys.argv[1])
    for line in sys.stdin:
        name, args, options = json.loads(line)
        print(json.dumps(getattr(child, name)(*args, **options)), file=answers, flush=True)


if __name__ == "__main__":
    main()

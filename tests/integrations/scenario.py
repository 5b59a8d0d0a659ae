"""What the conformance suite does with each framework, and what a driver of one has to offer.

It runs in the framework's own environment, where neither pytest nor the test servers are: only the
framework, ullage and what both require.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

INSTRUCTIONS: Final = "You run a weather station. Never delete an entry of the journal."

WORDS: Final = [
    "anemometer",
    "gust",
    "squall",
    "barometer",
    "falling",
    "veering",
    "northerly",
    "swell",
    "horizon",
    "drizzle",
    "clearing",
    "visibility",
    "gauge",
    "mast",
    "reading",
    "calibrated",
    "sensor",
    "battery",
    "offset",
    "drift",
    "sample",
    "interval",
    "archive",
]


@dataclass(frozen=True)
class Setup:
    """Where the model is, what it is called, and whether the framework is guarded.

    `window` is what its server claims, for frameworks whose seam does not show the server.
    `folder` is for what the framework persists. `asynchronous` asks for the framework's awaited
    calls, where it has both. `answer` are the most tokens of an answer, which the program asks for.
    """

    url: str
    model: str
    window: int
    folder: Path
    guarded: bool = True
    asynchronous: bool = False
    answer: int | None = None

    def limit(self, name: str = "max_tokens") -> dict[str, Any]:
        """Return the bound of an answer as keywords of a framework, none without one."""
        return {} if self.answer is None else {name: self.answer}


class Driver(Protocol):
    """An agent of a framework with the tool `read_log(part: int) -> str`, guarded or bare.

    The tool returns what `read_log` below returns. `sizes` says which of the three sizes the
    framework has: window, counter, guard.
    """

    sizes: Sequence[str]

    def say(self, text: str) -> str:
        """Run one turn: return the model's last text. Raises what the framework raises."""
        ...

    def switch(self, model: str, window: int) -> None:
        """Go on with another model of the same server."""
        ...

    def reopen(self) -> bool:
        """Go on as a new process would: from what the framework persisted alone.

        Returns False where the framework persists nothing, and nothing was done.
        """
        ...

    def read_results(self) -> list[str]:
        """Return the results of `read_log` in the history that the framework stores."""
        ...

    def find_window(self) -> int | None:
        """Return the size *window*: what the framework takes for the model's window now."""
        ...

    def count(self, text: str) -> int:
        """Return the size *counter*: the tokens of one message of a person by our counter."""
        ...


SIZE: Final = {"words": 1_500}
"""Words of each result; a run sets it before it begins."""


def read_log(part: int) -> str:
    """Return the entries of a part of the journal: alike for one part, different for each."""
    chance = random.Random(part)
    entries = (
        f"{part:02}:{line:02} {' '.join(chance.choices(WORDS, k=9))} {chance.randrange(10_000)}"
        for line in range(SIZE["words"] // 10)
    )
    return "\n".join(entries)


def make_turn(number: int) -> str:
    """Return what a person says in a turn."""
    return f"turn {number}: read part {number} of the log, and say when it is done"


def make_search(number: int) -> str:
    """Return what a person says who wants the first line of the first part."""
    return f"turn {number}: find {read_log(1).splitlines()[0]}"


def search(driver: Driver, number: int) -> list[str]:
    """Run a turn in which the model searches what was left out; return what failed."""
    return _say(driver, number, make_search(number))


def run(driver: Driver, first: int, last: int) -> list[str]:
    """Run turns [first, last]; return what failed."""
    numbers = range(first, last + 1)
    return [fault for number in numbers for fault in _say(driver, number, make_turn(number))]


def _say(driver: Driver, number: int, text: str) -> list[str]:
    try:
        answer = driver.say(text).strip()
    except Exception as error:  # noqa: BLE001 - a failed turn is a row of the table
        return [f"turn {number}: {type(error).__name__}: {str(error)[:300]}"]
    done = answer == f"turn {number} is done"
    return [] if done else [f"turn {number}: answered {answer[:200]!r}"]


def list_lost(driver: Driver, last: int) -> list[int]:
    """Return the parts whose results are not in the stored history just as the tool gave them."""
    held = driver.read_results()
    return [part for part in range(1, last + 1) if read_log(part) not in held]


def describe(driver: Driver) -> dict[str, Any]:
    """Return what the sizes *window* and *counter* say."""
    return {"window": driver.find_window(), "count": driver.count(INSTRUCTIONS)}

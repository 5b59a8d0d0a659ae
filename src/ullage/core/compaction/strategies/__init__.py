"""The strategies of the package, one file each: each file holds its value as `STRATEGY`.

They do not know each other; `core.compaction.plan` runs them in the order of a policy's rungs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from ullage.core.compaction.strategy import Strategy
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

FILES: Final = (
    "clear",
    "trim_oldest",
    "summarise_middle",
    "excerpt",
    "strip_media",
    "native",
)
"""Names that a rung may use: each is the name of a file."""


PROSE: Final = frozenset({"summarise_middle"})
"""Strategies that want a summary; their values say so, too."""


@cache
def _load(name: str) -> Strategy:
    value: Strategy = import_module(f"{__name__}.{name}").STRATEGY
    return value


def find(strategy: Strategy | str) -> Strategy:
    """Return the given strategy, or the one of this name."""
    return _load(check(strategy)) if isinstance(strategy, str) else strategy


def check(strategy: object) -> str:
    """Return the name of a strategy; raises ConfigurationError for an unknown one.

    It loads no strategy for a name, so that a policy can be made without them.
    """
    if isinstance(strategy, Strategy):
        if strategy.name in FILES and strategy is not _load(strategy.name):
            raise ConfigurationError(
                f"a strategy of your own is named {strategy.name!r}, as one of the package is: "
                "give it another name"
            )
        return strategy.name
    if isinstance(strategy, str) and strategy in FILES:
        return strategy
    near = suggest(strategy, FILES) if isinstance(strategy, str) else ""
    raise ConfigurationError(
        f"unknown strategy {strategy!r:.80}: {near and f'{near} '}known are {', '.join(FILES)}; "
        "one of your own is a ullage.Strategy(name, plan)"
    )


def wants_prose(strategy: Strategy | str) -> bool:
    """Tell whether a strategy wants a summary of the messages that it drops."""
    return strategy.prose if isinstance(strategy, Strategy) else strategy in PROSE


def names(strategies: Sequence[Strategy | str]) -> tuple[str, ...]:
    """Return the names of strategies; raises ConfigurationError for a duplicate."""
    found = tuple(check(strategy) for strategy in strategies)
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"the strategy {twice!r} is in one rung twice: give it once")
    return found

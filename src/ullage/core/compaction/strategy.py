"""Strategies: a name and a plan. Strategies of the package and of users work the same way.

A plan takes a `Situation` and returns a `Script`: the edits that reach its target, or come as near
as they can. It calls no model and does no I/O. Its result is checked: a plan may drop whole units
and shorten texts, and never touches a pin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script
    from ullage.core.compaction.situation import Situation

    Plan = Callable[[Situation], Script]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to make a conversation smaller.

    ::

        def plan(situation):
            return Script.of(Drop(i) for i in ...)

        Rung(0.8, 0.6, (Strategy("mine", plan), "trim_oldest"))

    `plan` takes a `Situation` and returns a `Script`. `drops` says that it drops whole messages,
    which a block of facts then replaces. `prose` says that this block should hold a summary.
    `silent` says that no block replaces the dropped messages. `always` makes it run in every
    compaction, even if the target is already met. Raises ConfigurationError for an invalid name
    or plan.
    """

    name: str
    plan: Plan
    drops: bool = True
    prose: bool = False
    silent: bool = False
    always: bool = False

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name.strip() or "+" in name:
            raise ConfigurationError(
                f"the name of a strategy is {self.name!r:.80}: give a word without '+', such as "
                "'drop_logs'"
            )
        if not callable(self.plan):
            raise ConfigurationError(
                f"the plan of the strategy {self.name!r} is {self.plan!r:.80}: give a function of "
                "a Situation that returns a Script"
            )
        flaw = _find_flaw(self.plan)
        if flaw is not None:
            raise ConfigurationError(
                f"the plan of the strategy {self.name!r} {flaw}: give a function of one argument, "
                "a Situation"
            )

    def __repr__(self) -> str:
        return f"Strategy({self.name!r})"


def _find_flaw(plan: Callable[..., Any]) -> str | None:
    """Return why a plan cannot be called with one argument, None if it can."""
    if any(is_later(plan) for is_later in _LATER):
        return "is async or a generator"
    try:
        inspect.signature(plan).bind(None)
    except TypeError as error:
        return f"cannot be called with one argument ({error})"
    except ValueError:
        return None  # written in C without a signature: an error shows at the call
    return None


_LATER: Final = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)
"""Tests for functions that return something to await or iterate instead of a script."""

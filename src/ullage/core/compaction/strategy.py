"""What a strategy is: a name and a plan. Those of the package and those of users are alike.

A plan is given a `Situation` and returns a `Script`: the edits that bring it to its target, or as
near to it as they can. It calls no model and does no I/O. What it returns is checked: a plan may
leave out whole units and shorten texts, and never touches a pin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    `plan` takes a `Situation` and returns a `Script`. `drops` says that it leaves out whole
    messages, in whose place a block of facts is to stand; `prose` that this block is to hold a
    summary; `silent` that what it leaves out goes without one. `always` has it run whatever the
    target is. Raises ConfigurationError for an invalid name or plan.
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
    """Return what keeps a function from being called with one argument, None where nothing does."""
    code = getattr(plan, "__code__", None)
    if code is None or getattr(plan, "__self__", None) is not None:
        return None  # a callable object, a method or a partial: known when it is called
    if code.co_flags & _ASYNC:
        return "is async"
    needed = code.co_argcount - len(getattr(plan, "__defaults__", None) or ())
    takes_more = bool(code.co_flags & _VARARGS)
    if needed > 1 or (code.co_argcount < 1 and not takes_more):
        return f"takes {code.co_argcount} arguments"
    return None


_VARARGS = 0x04
_ASYNC = 0x80 | 0x20 | 0x200
"""Flags of a code object: coroutine, generator, async generator (Python, inspect.CO_*)."""

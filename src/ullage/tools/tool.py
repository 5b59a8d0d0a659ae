"""What a tool is to the executor, and how it says that a call went wrong.

It knows no tool by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ullage.core.session.permissions import Access
    from ullage.core.session.tools import Intent, Preview, Spec, ToolOutcome

Arguments = Mapping[str, Any]
"""The arguments of a call, as its schema has them."""


class Fault(Exception):  # noqa: N818 - an answer to a model, not an error of the program
    """Report a call that came to nothing; the message is written for the model that made it."""


class Tool(Protocol):
    """One tool. The executor has checked the arguments by the schema of its spec."""

    @property
    def spec(self) -> Spec:
        """How it is offered."""
        ...

    def access(self, arguments: Arguments) -> Access:
        """Return what a call would touch, without touching it. May raise Fault."""
        ...

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Do a call, or with `dry_run` only say what it would do. May raise Fault or OSError.

        `key` is one of the call's own, the same if it is run again after a crash.
        """
        ...


@runtime_checkable
class Foreseen(Protocol):
    """A tool that can say what a call would do; others are shown by their arguments."""

    async def preview(self, arguments: Arguments) -> Preview:
        """Return what a call would do, whole, and change nothing.

        Raise Fault or OSError where the call must fail: nobody is asked about it then.
        """
        ...


@runtime_checkable
class Varying(Protocol):
    """A tool whose calls differ in whether they change anything; of others the spec says it."""

    def intent(self, arguments: Arguments) -> Intent:
        """Return what is recorded of a call before it runs."""
        ...

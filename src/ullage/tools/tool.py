"""The protocol between a tool and the executor, and the error for a failed call.

It knows no tool by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ullage.core.session.permissions import Access
    from ullage.core.session.tools import Intent, Preview, Spec, ToolOutcome

Arguments = Mapping[str, Any]
"""The arguments of a call, in the form of its schema."""


class Fault(Exception):  # noqa: N818 - an answer to a model, not an error of the program
    """Report a call that failed; the message is written for the model that made it."""


class Tool(Protocol):
    """One tool. The executor has checked the arguments by the schema in its spec."""

    @property
    def spec(self) -> Spec:
        """The description offered to a model."""
        ...

    def access(self, arguments: Arguments) -> Access:
        """Return what a call would touch, without touching it. May raise Fault."""
        ...

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Run a call, or with `dry_run` only report what it would do. May raise Fault or OSError.

        `key` identifies the call; it is the same if the call runs again after a crash.
        """
        ...


@runtime_checkable
class Foreseen(Protocol):
    """A tool that can show what a call would do; for other tools the arguments are shown."""

    async def preview(self, arguments: Arguments) -> Preview:
        """Return the complete effect of a call, and change nothing.

        Raise Fault or OSError if the call must fail: then nobody is asked about it.
        """
        ...


@runtime_checkable
class Varying(Protocol):
    """A tool where only some calls change something; other tools declare it in their spec."""

    def intent(self, arguments: Arguments) -> Intent:
        """Return the record of a call before it runs."""
        ...

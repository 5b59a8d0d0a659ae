"""The protocol of a source of conversations, and the rights of a viewer.

Only the operator may see text of conversations, or change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ullage.core.errors import UllageError
from ullage.live.values import CompactionReview, LiveMessage, LiveSession, SessionDetail


class UnknownConversation(UllageError):  # noqa: N818 - named for what was not found
    """Report a conversation, or a compaction of one, that a source does not have."""

    code = "unknown_conversation"


class NotPossible(UllageError):  # noqa: N818 - named for what cannot be done
    """Report an action that a source cannot do, with the reason."""

    code = "not_possible"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who looks. `name` is that of their token, "" without one.

    An operator sees every conversation and may change them; others see the numbers of their own.
    `reads` says that text may be shown.
    """

    name: str = ""
    is_operator: bool = True
    reads: bool = True

    def sees(self, row: LiveSession) -> bool:
        """Tell whether a conversation is shown to this viewer."""
        return self.is_operator or (bool(self.name) and row.owner == self.name)

    def trim(self, row: LiveSession) -> LiveSession:
        """Return a row without the parts that this viewer may not see."""
        from dataclasses import replace

        if self.reads:
            return row
        return replace(row, title="", project="", last="" if row.source != "proxy" else row.last)


class LiveSource(Protocol):
    """A source of conversations: a log, a program's folder, a proxy.

    Every method may block, and is called from a thread, one call at a time for each source. `name`
    is the `source` of its rows.
    """

    @property
    def name(self) -> str:
        """The `source` of its rows."""
        ...

    @property
    def is_behind(self) -> bool:
        """True if the last look left conversations for the next one."""
        ...

    def list_rows(self) -> Sequence[LiveSession]:
        """Return the conversations that changed since the last call; the first call returns all."""
        ...

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all data about one conversation; raises UnknownConversation."""
        ...

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Return a compaction as a change; raises UnknownConversation, NotPossible."""
        ...

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        """Return the messages of the current request; raises as `review` does."""
        ...

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        """Do an action for a person; raises UnknownConversation, NotPossible."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...

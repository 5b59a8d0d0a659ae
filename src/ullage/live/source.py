"""What shows conversations to those who look: the protocol, and what a viewer may do.

Text of conversations, and every change, belong to the operator.
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
    """Report an action that a source cannot do, and why."""

    code = "not_possible"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks. `name` is that of a token, "" without one.

    An operator sees every conversation, and may change them; others see the numbers of their own.
    `reads` says that text may be shown.
    """

    name: str = ""
    is_operator: bool = True
    reads: bool = True

    def sees(self, row: LiveSession) -> bool:
        """Tell whether a conversation is shown to this viewer."""
        return self.is_operator or (bool(self.name) and row.owner == self.name)

    def trim(self, row: LiveSession) -> LiveSession:
        """Return a row with what this viewer may see of it."""
        from dataclasses import replace

        if self.reads:
            return row
        return replace(row, title="", project="", last="" if row.source != "proxy" else row.last)


class LiveSource(Protocol):
    """Who knows conversations: a log, a program's folder, a proxy.

    Every method may block, and is called from a thread, one call at a time for each source. `name`
    is the `source` of its rows.
    """

    @property
    def name(self) -> str:
        """What its rows name as their source."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether the last look left conversations for the next one."""
        ...

    def list_rows(self) -> Sequence[LiveSession]:
        """Return the conversations that changed since the last call, all at the first."""
        ...

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all that is known of one; raises UnknownConversation."""
        ...

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Return a compaction as a change; raises UnknownConversation, NotPossible."""
        ...

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        """Return the messages of the request as it stands; raises as `review` does."""
        ...

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        """Do what a person asked for; raises UnknownConversation, NotPossible."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...

"""The protocol of a queue that runs turns elsewhere, and the names of turns."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ullage.agent.session import Session
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.agent.options import TurnOptions
    from ullage.core.session.log.fold import Fold

Ticket = TypeVar("Ticket")
Told_co = TypeVar("Told_co", covariant=True)


class TakesTurns(Protocol[Told_co]):
    """A queue, such as `ullage.JobQueue`: it accepts turns and returns a ticket for each."""

    store: str
    """The URL of the log that its workers write, without a password."""

    async def asubmit(self, session: str, text: str, **options: Any) -> Told_co:
        """Queue a turn."""
        ...

    def submit(self, session: str, text: str, **options: Any) -> Told_co:
        """Do the same as `asubmit`, blocking."""
        ...


def name_turn(fold: Fold, options: TurnOptions) -> str:
    """Return the id of a new turn; raises ConfigurationError if the session used it before."""
    name = options.get("turn")
    if name is None:
        return uuid.uuid4().hex[:12]
    if not name or name in fold.turns:
        raise ConfigurationError(
            f"session {fold.session} had a turn {name!r:.80} already: go on with it by resume, or "
            "give the new one another id"
        )
    return name


def check_place(queue: TakesTurns[Any], session: Session | str) -> str:
    """Return the name of a session; raises ConfigurationError if it is in another store."""
    if isinstance(session, str):
        return session
    if _cut(session.log.url) != _cut(queue.store):
        raise ConfigurationError(
            f"session {session.name} is in {session.log.url}, and the workers of this queue write "
            f"to {queue.store}: open both with one URL"
        )
    return session.name


def _cut(url: str) -> str:
    """Return a URL in a form that can be compared: a file's by its path."""
    scheme, _, rest = url.partition(":")
    return f"{scheme}:{rest.lstrip('/')}" if scheme == "sqlite" else url

"""What a log says of its sessions before some of them go, and how one is taken out of it.

The logs that come with the package can do both. It knows no rules and no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

BATCH: Final = 5_000
"""Events that one transaction takes out: another writer waits for no more."""


@dataclass(frozen=True, slots=True)
class SessionExtent:
    """How old and how large a session is: `last` is the time of its last event, in Unix seconds.

    One without an event has the time of its creation. `size` is in bytes of data, 0 where it was
    not asked for.
    """

    session: str
    created: float
    last: float
    events: int
    size: int = 0


@runtime_checkable
class RemovesSessions(Protocol):
    """A log whose sessions can be taken out whole, name and all."""

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` all data is looked at."""
        ...

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Take up to `most` of the last events out of a session; return whether it is gone.

        Said until then: what is left in between is a whole session that ends earlier. With the last
        events go its name, its leases, and what was indexed of it. Raises Fenced where `epoch` does
        not hold the lease.
        """
        ...

"""The right to write to a session, and writes that survive a short outage of its log.

The module does not know turns; the caller decides how to wait.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from ullage.core.errors import BusyWriter, Fenced, StoreAway
from ullage.storage.log import Head, Owner, stamp

if TYPE_CHECKING:
    from ullage.core.session.log.event import Draft, Event
    from ullage.storage.log import AsyncEventLog, Lease

Result = TypeVar("Result")

Pause = Callable[[float], Awaitable[None]]
"""Lets a caller wait some seconds: on its event loop, or in its thread."""

AWAY_S: Final = 30.0
"""Seconds that a write waits for a log that is away; a lease survives its writer as long."""

PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between two tries; the last value repeats."""


class WriterClaim:
    """The claim of a living session of this process to write, or to ask for that."""

    def __init__(self, url: str, session: str) -> None:
        self.of = (url, session)
        with _LOCK:
            _CLAIMS.add(self)

    def is_only_one(self) -> bool:
        """Tell whether no other living session of this process writes here."""
        if self._count_others():
            gc.collect()  # an unused one may be in a cycle
        return not self._count_others()

    def _count_others(self) -> int:
        with _LOCK:
            return sum(other.of == self.of for other in _CLAIMS) - 1


_LOCK: Final = threading.Lock()
_CLAIMS: Final[WeakSet[WriterClaim]] = WeakSet()
"""All claims of this process: a lease of this process that no claim covers is unused."""


class LogEnd(NamedTuple):
    """The target of a write: a session, in an epoch, after an event."""

    session: str
    epoch: int
    head: int


async def ask_lease(
    log: AsyncEventLog, claim: WriterClaim, now: float, *, take_over: bool
) -> Lease:
    """Return the lease; raises BusyWriter while another writer has it.

    A lease that this process holds, but none of its living sessions, is taken at once.
    """
    name, owner = claim.of[1], Owner.here()
    insisting: dict[str, Any] = {"take_over": True}
    try:
        return await log.aacquire(name, owner, now, **insisting if take_over else {})
    except BusyWriter:
        leases = await log.aleases(name)
        held = replace(leases[-1].owner, name=owner.name) if leases else None
        if not owner.started or held != owner or not claim.is_only_one():
            raise
    return await log.aacquire(name, owner, now, **insisting)


async def outlast(work: Callable[[], Awaitable[Result]], pause: Pause) -> Result:
    """Return the result of work on a log; while the log is away, repeat it for `AWAY_S`."""
    until = time.monotonic() + AWAY_S
    for seconds in chain(PAUSES_S, repeat(PAUSES_S[-1])):
        try:
            return await work()
        except (StoreAway, BusyWriter):
            if time.monotonic() + seconds > until:
                raise
            await pause(seconds)
    raise AssertionError  # pragma: no cover - the pauses never end


async def append(
    log: AsyncEventLog, to: LogEnd, drafts: Sequence[Draft], now: float, pause: Pause
) -> Sequence[Event]:
    """Append events; a log that is away for a short time loses no answer.

    A failed write may have succeeded all the same: it is found, not made twice. Raises the errors
    of the log.
    """
    tries = 0

    async def write() -> Sequence[Event]:
        nonlocal tries
        tries += 1
        try:
            return await log.aappend(to.session, to.epoch, to.head, drafts, now)
        except Fenced:
            found = await _find_written(log, to, drafts, now) if tries > 1 else ()
            if not found:
                raise
            return found

    return await outlast(write, pause)


async def _find_written(
    log: AsyncEventLog, to: LogEnd, drafts: Sequence[Draft], now: float
) -> Sequence[Event]:
    """Return the events that a failed write left after the head, empty if it left none."""
    events = await log.aread(to.session, max(to.head - 1, 0), to.head + len(drafts))
    before = events.pop(0).id if to.head and events else ""
    made = stamp(Head(to.session, 0.0, to.head, before), to.head, drafts, now)
    return events if [event.id for event in events] == [event.id for event in made] else ()

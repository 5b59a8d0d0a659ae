"""The protocol of an event log (sessions, fenced appends, leases), and the rules of all logs.

Clocks only decide when another process may try to become the writer of a session. The epoch decides
which writer may write. Every log follows the same rules; the tests run the same operations on all.
It knows no store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ullage.core.errors import BusyWriter, CorruptLog, Fenced, StoreError, UnknownSession
from ullage.core.session.log.event import Draft, Event, make_event

LEASE_S: Final = 30.0
"""Seconds of silence after which a writer counts as gone."""

LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that writes: `place` is the boot and the process namespace of its `pid`.

    `started` distinguishes two processes with the same number. Empty values mean that the system
    does not provide them; then only the clock ends a lease.
    """

    name: str
    pid: int
    started: str
    place: str

    @classmethod
    def here(cls, name: str = "") -> Owner:
        """Return this process."""
        pid = os.getpid()
        return cls(name or f"process {pid}", pid, _read_start_time(pid), _place())

    def __str__(self) -> str:
        number = str(self.pid)
        return self.name if number in self.name.split() else f"{self.name} (pid {number})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a session: the lease of the highest epoch holds, until it is released.

    `seen` is the owner's last heartbeat, in Unix seconds. Leases are kept after their end, as the
    record of writers and take-overs (`taken` is the reason).
    """

    session: str
    epoch: int
    owner: Owner
    acquired: float
    seen: float
    released: float | None = None
    taken: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a session: the seq and id of its last event (0 and "" before the first)."""

    session: str
    created: float
    seq: int = 0
    id: str = ""
    epoch: int = 0


Stamped = tuple[int, Event]
"""An event and the epoch it was written in; the epoch is 0 for an imported event."""


class EventLog(Protocol):
    """The events of sessions. Safe to share between threads.

    Every method that takes a session raises StoreError if no session has that name.
    """

    @property
    def url(self) -> str:
        """The URL that opens it."""
        ...

    def create(self, session: str, now: float) -> Head:
        """Begin a session; raises StoreError if the name is taken or invalid."""
        ...

    def sessions(self) -> list[Head]:
        """Return all sessions, oldest first."""
        ...

    def head(self, session: str) -> Head:
        """Return the end of a session."""
        ...

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Record events as one unit after event `expected_head`, on disk when this returns.

        Raises Fenced if `epoch` does not hold the lease or the log has moved on. Then, as after any
        other StoreError, no seq is used. The exception is a lost connection to a server: the
        outcome is unknown, so read the head again.
        """
        ...

    def restore(self, events: Sequence[Event], now: float) -> Head:
        """Import a whole session unchanged, under its own name, which must be free."""
        ...

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Return the events with `after` < seq <= `upto`, each checked against the previous one.

        Raises CorruptLog, which names the event, if one is missing or damaged.
        """
        ...

    def read_stamped(self, session: str) -> list[Stamped]:
        """Return the stored events of a session with their epochs, unchecked: for `faults_of`."""
        ...

    def acquire(self, session: str, owner: Owner, now: float, *, take_over: bool = False) -> Lease:
        """Become the writer, with a new epoch.

        Raises BusyWriter unless the previous writer released its lease, is dead on this host, or
        let the lease expire. With `take_over` it does not wait for that writer, whose later writes
        are refused.
        """
        ...

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:
        """Renew the lease; raises Fenced if another writer holds it."""
        ...

    def release(self, session: str, epoch: int, now: float) -> None:
        """Release the lease; do nothing the second time, or after a take-over."""
        ...

    def leases(self, session: str) -> list[Lease]:
        """Return all leases of a session, past and present, by epoch."""
        ...

    def rewrite(self, session: str, epoch: int, events: Sequence[Event]) -> None:
        """Replace all recorded events of a session, and leave nothing of the old ones.

        This also removes the search index of the old events. Raises Fenced if `epoch` does not hold
        the lease.
        """
        ...

    def scrub(self) -> str:
        """Overwrite deleted data as far as the store can; return where some may still be.

        "" means that the store's files hold none of it.
        """
        ...

    def close(self) -> None:
        """Close files; a log in memory is forgotten."""
        ...


class AsyncEventLog(Protocol):
    """The events of sessions, for an event loop: each method does as the one without its `a`.

    A log that has these in addition to the blocking methods is awaited. Any other log is driven in
    threads, see `threaded`.
    """

    async def acreate(self, session: str, now: float) -> Head:
        """Do as `create`."""
        ...

    async def asessions(self) -> list[Head]:
        """Do as `sessions`."""
        ...

    async def ahead(self, session: str) -> Head:
        """Do as `head`."""
        ...

    async def aappend(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Do as `append`."""
        ...

    async def arestore(self, events: Sequence[Event], now: float) -> Head:
        """Do as `restore`."""
        ...

    async def aread(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Do as `read`."""
        ...

    async def aread_stamped(self, session: str) -> list[Stamped]:
        """Do as `read_stamped`."""
        ...

    async def aacquire(
        self, session: str, owner: Owner, now: float, *, take_over: bool = False
    ) -> Lease:
        """Do as `acquire`."""
        ...

    async def aheartbeat(self, session: str, epoch: int, now: float) -> Lease:
        """Do as `heartbeat`."""
        ...

    async def arelease(self, session: str, epoch: int, now: float) -> None:
        """Do as `release`."""
        ...

    async def aleases(self, session: str) -> list[Lease]:
        """Do as `leases`."""
        ...


# --- the rules -----------------------------------------------------------------------------------


def check_name(session: str) -> str:
    """Return the name of a session; raises StoreError for an invalid name."""
    if not session.strip() or len(session) > LONGEST_NAME or not session.isprintable():
        raise StoreError(
            f"{session!r:.60} cannot name a session: expected 1 to {LONGEST_NAME} printable "
            "characters"
        )
    return session


def absent(session: str) -> UnknownSession:
    """Return the error for an unknown session."""
    return UnknownSession(f"there is no session {session!r:.60} in this log: check its name")


def make_taken_error(session: str) -> StoreError:
    """Return the error for a session name that is taken."""
    return StoreError(f"there is a session {session!r} in this log: give another name")


class LeaseTerms(NamedTuple):
    """The terms of a lease: the clock, and the longest silence of a writer, in seconds.

    `local` means that only this machine writes to the log; `take_over` means not to wait for the
    holder.
    """

    now: float
    lease_s: float
    local: bool = False
    take_over: bool = False


def grant_lease(head: Head, held: Lease | None, owner: Owner, terms: LeaseTerms) -> Lease:
    """Return the lease for an owner; raises BusyWriter while another writer holds one."""
    reason = ""
    if held is not None and held.released is None:
        reason = find_end(held, terms)
        if not reason:
            left = held.seen + terms.lease_s - terms.now
            raise BusyWriter(
                f"session {head.session} is being written by {held.owner}: end it, or try again "
                f"when it gave no sign for {left:.0f} s, or take over (--take-over, "
                "Session.acquire(take_over=True)), and what it writes from then on is refused"
            )
    epoch = 1 + (0 if held is None else held.epoch)
    return Lease(head.session, epoch, owner, terms.now, terms.now, None, reason)


def find_end(held: Lease, terms: LeaseTerms) -> str:
    """Return why a lease no longer holds, or "" if it holds.

    A last heartbeat in the future was given before the clock was set back. It does not show how
    long ago that was. If the writer's process is visible from here, the process itself shows it.
    """
    who = f"the writer before, {held.owner},"
    silence = terms.now - held.seen
    if terms.take_over:
        return f"{who} was not waited for"
    if dead(held.owner):
        return f"{who} is dead"
    if terms.local and _is_of_another_boot(held.owner):
        return f"{who} ran before this machine was started"
    if silence > terms.lease_s:
        return f"{who} gave no sign for {terms.lease_s:g} s"
    if silence < -terms.lease_s and not _is_seen(held.owner):
        return f"{who} gave its last sign before the clock went back"
    return ""


def holding(session: str, held: Lease | None, epoch: int) -> Lease:
    """Return the current lease if it has this epoch; raises Fenced otherwise."""
    if held is None or held.epoch != epoch:
        now = "nobody" if held is None else f"{held.owner.name} in epoch {held.epoch}"
        raise Fenced(
            f"epoch {epoch} may not write to session {session} any more: {now} may; nothing was "
            "written"
        )
    if held.released is not None:
        raise Fenced(
            f"epoch {epoch} of session {session} was released: acquire it anew; nothing was written"
        )
    return held


def stamp(head: Head, expected: int, drafts: Sequence[Draft], now: float) -> list[Event]:
    """Return the drafts as events after the head; raises Fenced if the head has moved."""
    if head.seq != expected:
        raise Fenced(
            f"session {head.session} stands at event {head.seq}, not {expected}: read it anew; "
            "nothing was written"
        )
    events: list[Event] = []
    before = head.id
    for seq, draft in enumerate(drafts, head.seq + 1):
        events.append(make_event(head.session, seq, now, draft, before))
        before = events[-1].id
    return events


def check_chain(head: Head, found: list[Event], after: int, until: int) -> list[Event]:
    """Return the events after `after`, checked as one chain; raise CorruptLog if it is broken.

    `found` is the stored events from event `after` on; that event gives the id that the next one
    builds on. The error names the event that was changed, removed or inserted; it is never
    returned.
    """
    events = [event for event in found if event.seq > after]
    least = min(head.seq, until)
    linked = not after or len(events) < len(found)
    if not linked and after < least:
        raise _lacking(head.session, after)
    before = found[0].id if after and linked else ""
    seq = after
    for event in events:
        seq += 1
        if event.seq != seq:
            raise _lacking(head.session, seq)
        if not event.follows(before) or (seq == head.seq and event.id != head.id):
            raise _make_damage_error(head.session, seq)
        before = event.id
    if seq < least:
        raise _lacking(head.session, seq + 1)
    return events


def _lacking(session: str, seq: int) -> CorruptLog:
    return CorruptLog(f"session {session} lacks event {seq}: {_ways_out(session, seq)}")


def _make_damage_error(session: str, seq: int) -> CorruptLog:
    return CorruptLog(
        f"event {seq} of session {session} was changed after it was written, or events before it "
        f"are gone: {_ways_out(session, seq)}"
    )


def _ways_out(session: str, seq: int) -> str:
    """Return the user's options for a session that is sound only up to the event before."""
    ways = f"nothing of it was used. `ullage verify {session}` lists what is wrong; "
    if seq > 1:
        ways += (
            f"`ullage fork {session} --at {seq - 1}` goes on from before it, `ullage export "
            f"{session} --at {seq - 1}` saves that much; "
        )
    return f"{ways}or restore an export"


def restorable(events: Sequence[Event]) -> str:
    """Return the name of the session; raises CorruptLog if the events are no whole session."""
    if not events:
        raise CorruptLog("there are no events to bring in: expected those of one session")
    for fault in faults_of((0, event) for event in events):
        raise CorruptLog(f"nothing was brought in: {fault}")
    return check_name(events[0].session_id)


def faults_of(stamped: Iterable[Stamped], head: Head | None = None) -> Iterator[str]:
    """Yield each violation of the rules: no gaps from 1, one chain of ids, no falling epochs."""
    seq, before, epoch, session = 0, "", 0, None if head is None else head.session
    for stamped_epoch, event in stamped:
        session = event.session_id if session is None else session
        where = f"event {event.seq} of session {event.session_id}"
        if event.session_id != session:
            yield f"{where} is not of session {session}"
        if event.seq != seq + 1:
            yield f"{where} follows event {seq}"
        if not event.follows(before):
            yield f"{where} was changed after it was written, or events before it are gone"
        if stamped_epoch < epoch:
            yield f"{where} was written in epoch {stamped_epoch}, after one of epoch {epoch}"
        seq, before, epoch = event.seq, event.id, max(epoch, stamped_epoch)
    if head is not None and (head.seq, head.id) != (seq, before):
        yield f"session {head.session} ends at event {seq}, and event {head.seq} was written"


def verify(log: EventLog, session: str) -> list[str]:
    """Return the faults of a session of a log; an empty list if it is sound.

    The head is read first; events written after that are not checked.
    """
    head = log.head(session)
    there = (stamped for stamped in log.read_stamped(session) if stamped[1].seq <= head.seq)
    return list(faults_of(there, head))


# --- who is alive --------------------------------------------------------------------------------

PROC: Final = Path("/proc")


def _is_of_another_boot(owner: Owner) -> bool:
    here = _place()
    return bool(owner.place and here) and owner.place.split()[0] != here.split()[0]


def _is_seen(owner: Owner) -> bool:
    """Tell whether an owner's process would be visible from here if it ran."""
    return bool(owner.place and owner.started) and owner.place == _place()


def dead(owner: Owner) -> bool:
    """Tell whether an owner is known to be dead: same boot, and its process has ended."""
    if not _is_seen(owner):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    started = _read_start_time(owner.pid)
    return started != owner.started and bool(started)


def _place() -> str:
    """Return this boot and process namespace, or "" if the system does not provide them."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _read_start_time(pid: int) -> str:
    """Return a process's start time in ticks since boot, or `dead` for a zombie.

    Fields 3 and 22 of proc_pid_stat(5). Field 2, the name, may hold any character, but ends with
    the last parenthesis.
    """
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "dead" if fields[0] in {"Z", "X"} else fields[19]

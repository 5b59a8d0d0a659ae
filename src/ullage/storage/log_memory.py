"""A log of events in memory; it ends with the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ullage.core.search.index import MemoryIndex
from ullage.core.session.log.event import Draft, Event
from ullage.core.values.pickling import Unpicklable
from ullage.storage import log
from ullage.storage.log import LEASE_S, Head, Lease, Owner, Stamped
from ullage.storage.retaining import BATCH, SessionExtent
from ullage.storage.threaded import AT_ONCE


class MemoryLog(Unpicklable):
    """The events of sessions in memory; `lease_s` is how long a silent writer keeps its lease."""

    instead = "take one that outlives it, ullage.open_log('sqlite:FILE'), and open it there too"

    url: Final = "memory:"
    desk: Final = AT_ONCE

    def __init__(self, *, lease_s: float = LEASE_S) -> None:
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._events: dict[str, list[Stamped]] = {}
        self._leases: dict[str, list[Lease]] = {}
        self.passages = MemoryIndex()

    def create(self, session: str, now: float) -> Head:
        """Begin a session; raises StoreError if the name is taken or invalid."""
        with self._lock:
            return self._begin_session(Head(log.check_name(session), now), [])

    def sessions(self) -> list[Head]:
        """Return all sessions, oldest first."""
        with self._lock:
            return list(self._heads.values())

    def head(self, session: str) -> Head:
        """Return the end of a session."""
        with self._lock:
            return self._head(session)

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        """Record events as one unit after event `expected_head`."""
        with self._lock:
            head = self._head(session)
            log.holding(session, self._find_lease(session), epoch)
            events = log.stamp(head, expected_head, drafts, now)
            if events:
                last = events[-1]
                self._events[session] += [(epoch, event) for event in events]
                self._heads[session] = replace(head, seq=last.seq, id=last.id, epoch=epoch)
            return events

    def restore(self, events: Sequence[Event], now: float) -> Head:
        """Import a whole session unchanged, under its own name, which must be free."""
        session = log.restorable(events)
        with self._lock:
            head = Head(session, now, events[-1].seq, events[-1].id)
            return self._begin_session(head, [(0, event) for event in events])

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        """Return the events with `after` < seq <= `upto`, each checked against the previous one."""
        with self._lock:
            head = self._head(session)
            until = head.seq if upto is None else max(upto, 0)
            found = [event for _, event in self._events[session][max(after - 1, 0) : until]]
            return log.check_chain(head, found, after, until)

    def read_stamped(self, session: str) -> list[Stamped]:
        """Return the stored events of a session with their epochs."""
        with self._lock:
            self._head(session)
            return list(self._events[session])

    def acquire(self, session: str, owner: Owner, now: float, *, take_over: bool = False) -> Lease:
        """Become the writer, with a new epoch; raises BusyWriter while another lease holds."""
        with self._lock:
            head = self._head(session)
            terms = log.LeaseTerms(now, self.lease_s, local=True, take_over=take_over)
            lease = log.grant_lease(head, self._find_lease(session), owner, terms)
            self._leases[session].append(lease)
            return lease

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:
        """Renew the lease; raises Fenced if another writer holds it."""
        with self._lock:
            self._head(session)
            held = log.holding(session, self._find_lease(session), epoch)
            self._leases[session][-1] = beaten = replace(held, seen=now)
            return beaten

    def release(self, session: str, epoch: int, now: float) -> None:
        """Release the lease; do nothing the second time, or after a take-over."""
        with self._lock:
            self._head(session)
            held = self._find_lease(session)
            if held is not None and held.epoch == epoch and held.released is None:
                self._leases[session][-1] = replace(held, released=now)

    def leases(self, session: str) -> list[Lease]:
        """Return all leases of a session, past and present, by epoch."""
        with self._lock:
            self._head(session)
            return list(self._leases[session])

    def rewrite(self, session: str, epoch: int, events: Sequence[Event]) -> None:
        """Replace all recorded events of a session."""
        with self._lock:
            head = self._head(session)
            log.holding(session, self._find_lease(session), epoch)
            self._events[session] = [(epoch, event) for event in events]
            last = events[-1]
            self._heads[session] = replace(head, seq=last.seq, id=last.id, epoch=epoch)
            self.passages.forget_session(session, last.seq)

    def survey(self, *, sized: bool) -> list[SessionExtent]:
        """Return all sessions, oldest first; with `sized` it measures all data."""
        with self._lock:
            return [self._measure(head, sized=sized) for head in self._heads.values()]

    def remove(self, session: str, epoch: int, most: int = BATCH) -> bool:
        """Remove up to `most` of the last events of a session; return whether it is gone."""
        with self._lock:
            head = self._head(session)
            log.holding(session, self._find_lease(session), epoch)
            self.passages.forget_session(session, head.seq)
            left = self._events[session][: max(head.seq - most, 0)]
            if left:
                written, last = left[-1]
                self._events[session] = left
                self._heads[session] = replace(head, seq=last.seq, id=last.id, epoch=written)
                return False
            self.passages.forget_session(session, 0)
            for kept in (self._heads, self._events, self._leases):
                del kept[session]
            return True

    def _measure(self, head: Head, *, sized: bool) -> SessionExtent:
        events = [event for _, event in self._events[head.session]]
        last = events[-1].ts if events else head.created
        size = sum(event.text_bytes for event in events) if sized else 0
        return SessionExtent(head.session, head.created, last, head.seq, size)

    def scrub(self) -> str:
        """Do nothing: data removed from memory is gone."""
        return ""

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            for kept in (self._heads, self._events, self._leases):
                kept.clear()

    def _head(self, session: str) -> Head:
        found = self._heads.get(session)
        if found is None:
            raise log.absent(session)
        return found

    def _find_lease(self, session: str) -> Lease | None:
        leases = self._leases[session]
        return leases[-1] if leases else None

    def _begin_session(self, head: Head, events: list[Stamped]) -> Head:
        if head.session in self._heads:
            raise log.make_taken_error(head.session)
        self._heads[head.session] = head
        self._events[head.session] = events
        self._leases[head.session] = []
        return head

"""Erases the text of sessions for good: events, search index, kept file contents.

A session keeps its name, the times and types of its events, and its cost. The module does not know
commands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.agent.continuing import read_link
from ullage.agent.session import find_folder
from ullage.core.errors import BusyWriter, StoreError
from ullage.core.session.log.erasing import erase_events, is_purged
from ullage.core.session.originals import find_parents
from ullage.storage.blobs import Blobs
from ullage.storage.log import Owner

if TYPE_CHECKING:
    from ullage.core.session.log.event import Event
    from ullage.storage.log import EventLog, Head


@dataclass(frozen=True, slots=True)
class Purge:
    """The result of a purge.

    `sessions` lost their text, including those of subagents; `busy` are those with another writer,
    with the message about it. `files` is the number of file contents that were deleted. `linked`
    are sessions that were forked from these or continue them: they hold some of the text. `left`
    describes the places on disk that may still hold it, or is "".
    """

    sessions: tuple[str, ...] = ()
    busy: tuple[tuple[str, str], ...] = ()
    files: int = 0
    linked: tuple[str, ...] = ()
    left: str = ""


def purge_sessions(
    log: EventLog, sessions: Sequence[str], *, now: Callable[[], float] = time.time
) -> Purge:
    """Erase the text of sessions, and of their subagents' sessions, for good.

    A whole chain of empty events remains of each. Sessions that were forked from them or continue
    them are named, not changed. Raises UnknownSession for an unknown name.
    """
    waiting, purged, busy, names = list(sessions), list[str](), list[tuple[str, str]](), set[str]()
    blobs = Blobs(find_folder(log.url))
    while waiting:
        session = waiting.pop(0)
        if session in purged:
            continue
        try:
            events = _erase(log, session, now)
        except BusyWriter as error:
            busy.append((session, str(error)))
            continue
        purged.append(session)
        names |= set(list_contents(events, blobs))
        waiting += _list_children(log, events)
    linked = list[str]()
    for head in log.sessions() if purged else ():
        if head.session not in purged:
            events = [event for _, event in log.read_stamped(head.session)]
            names -= set(list_contents(events, blobs))
            linked += [head.session] if _goes_on_from(events, purged) else []
    for name in names:
        blobs.forget(name)
    left = log.scrub() if purged else ""
    return Purge(tuple(purged), tuple(busy), len(names), tuple(linked), left)


def list_old_sessions(log: EventLog, before: float) -> list[str]:
    """Return the sessions whose last event is older than `before` (Unix seconds), oldest first.

    Purged sessions and those without an event are left out.
    """
    return [head.session for head in log.sessions() if _is_old(log, head, before)]


def _is_old(log: EventLog, head: Head, before: float) -> bool:
    if head.created > before or not head.seq:
        return False
    try:
        last = log.read(head.session, after=head.seq - 1)
    except StoreError:  # damaged: the remaining events tell its age
        last = [event for _, event in log.read_stamped(head.session)]
    return not is_purged(last) and max(event.ts for event in last) < before


def _erase(log: EventLog, session: str, now: Callable[[], float]) -> list[Event]:
    """Erase one session as its writer; return its events. Raises BusyWriter."""
    lease = log.acquire(session, Owner.here("ullage purge"), now())
    try:
        events = [event for _, event in log.read_stamped(session)]
        if events and not is_purged(events):
            log.rewrite(session, lease.epoch, erase_events(events, now()))
    finally:
        log.release(session, lease.epoch, now())
    return events


def read_data(event: Event) -> dict[str, Any]:
    """Return the data of an event, empty for a damaged one."""
    try:
        return dict(event.data)
    except StoreError:
        return {}


def _list_children(log: EventLog, events: Sequence[Event]) -> list[str]:
    """Return the existing sessions of subagents that a session began."""
    named = {read_data(e).get("child") for e in events if e.type == "subagent_event"}
    return [head.session for head in log.sessions() if head.session in named] if named else []


def _goes_on_from(events: Sequence[Event], purged: Sequence[str]) -> bool:
    """Tell whether a session shares the text of a purged one."""
    forked = (read_data(e).get("parent") for e in events if e.type == "session_fork")
    continued = find_parents(event for event in events if read_data(event))
    return any(parent in purged for parent in (*forked, *continued)) or any(
        read_link(event) in purged for event in events if read_data(event)
    )


def list_contents(events: Sequence[Event], blobs: Blobs) -> Iterator[str]:
    """Yield the names of the file contents that a session recorded."""
    for event in events:
        data = read_data(event)
        if event.type == "snapshot_taken":
            yield from _list_manifest(str(data.get("manifest")), blobs)
        elif event.type == "file_changes":
            for file in data.get("files", ()):
                yield from _list_hashes(file.get("before"), file.get("after"))


def _list_manifest(name: str, blobs: Blobs) -> Iterator[str]:
    found = blobs.read(name)
    if found is not None:
        yield name
        yield from _list_hashes(*json.loads(found).values())


def _list_hashes(*states: Any) -> Iterator[str]:
    for state in states:
        if isinstance(state, dict) and isinstance(state.get("hash"), str):
            yield state["hash"]

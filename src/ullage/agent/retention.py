"""Removes sessions from a log by rules of age, tenant and size: names, events, leases, index.

Related sessions are removed together: a session with those of its subagents and those that continue
it. The module does not know commands or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.purging import list_contents, read_data
from ullage.agent.session import find_folder
from ullage.core.errors import BusyWriter, ConfigurationError, StoreError, UnknownSession
from ullage.core.session.originals import find_parents
from ullage.storage.blobs import Blobs
from ullage.storage.log import Owner
from ullage.storage.pieces import read_pieces
from ullage.storage.retaining import BATCH, DropsSessions, RemovesSessions, SessionExtent

if TYPE_CHECKING:
    from ullage.core.session.log.event import Event
    from ullage.storage.log import EventLog

BEGINNING: Final = 2
"""Events that tell the owner of a session and what it continues."""

DAY_S: Final = 24 * 3600.0

NO_RULES: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How long sessions are kept, in days since their last event, and how much of them, in bytes.

    Without a rule (None) they are kept for ever, and without a limit. `tenant_days` replaces `days`
    for the tenants that it names; infinity keeps theirs for ever. Beyond `most_bytes` the oldest
    are removed until the rest fits. Raises ConfigurationError for invalid values, and without any
    rule.
    """

    days: float | None = None
    tenant_days: Mapping[str, float] = field(default_factory=lambda: NO_RULES)
    most_bytes: int | None = None

    def __reduce__(self) -> tuple[type[RetentionRules], tuple[Any, ...]]:
        """Pickle the days of tenants as a plain dict, since a read-only view cannot be pickled."""
        return type(self), (self.days, dict(self.tenant_days), self.most_bytes)

    def __post_init__(self) -> None:
        told = [*self.tenant_days.values(), *([] if self.days is None else [self.days])]
        wrong = [days for days in told if not days > 0]
        if wrong:
            raise ConfigurationError(
                f"sessions are kept for a number of days over 0, not {wrong[0]:g}"
            )
        if self.most_bytes is not None and self.most_bytes < 0:
            raise ConfigurationError(f"sessions are kept up to 0 bytes or more: {self.most_bytes}")
        if not told and self.most_bytes is None:
            raise ConfigurationError("give a limit: days, days for a tenant, or bytes")

    def find_days(self, tenant: str | None) -> float | None:
        """Return the days for a tenant, or None for ever."""
        return self.days if tenant is None else self.tenant_days.get(tenant, self.days)


@dataclass(frozen=True, slots=True)
class SessionFamily:
    """Sessions that are removed together, the oldest first: with subagents and continuations.

    `last` is the time of their last event, `size` their bytes (0 without a rule of size), `tenant`
    the name in the creation of the first one. `why` names the rule that removes them.
    """

    members: tuple[str, ...]
    last: float
    size: int
    tenant: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a removal.

    `busy` are sessions with another writer, or written since they were chosen, with the message
    about it. `events` is how many the sessions held, `files` how many file contents were deleted.
    """

    sessions: tuple[str, ...] = ()
    busy: tuple[tuple[str, str], ...] = ()
    events: int = 0
    files: int = 0


def plan_retention(log: EventLog, rules: RetentionRules, now: float) -> list[SessionFamily]:
    """Return the families of sessions that these rules remove at `now`, the oldest first.

    Raises ConfigurationError for a log that cannot remove sessions.
    """
    sized = rules.most_bytes is not None
    families = _list_families(log, _require(log).survey(sized=sized))
    due = {family.members: _choose_by_age(family, rules, now) for family in families}
    if rules.most_bytes is not None:
        left = sum(family.size for family in families if not due[family.members])
        for family in families:
            if left > rules.most_bytes and not due[family.members]:
                due[family.members] = f"beyond {rules.most_bytes:,} bytes"
                left -= family.size
    return [
        SessionFamily(one.members, one.last, one.size, one.tenant, due[one.members])
        for one in families
        if due[one.members]
    ]


def apply_retention(
    log: EventLog,
    families: Sequence[SessionFamily],
    now: Callable[[], float],
    *,
    batch: int = BATCH,
    told: Callable[[str], object] = lambda _: None,
) -> Removal:
    """Remove these families, except those with another writer; `told` gets each name.

    A transaction removes at most `batch` events. If the process ends in between, each session is
    whole or gone, the newest of a family first; another call continues.
    """
    gone, busy, names = list[SessionExtent](), list[tuple[str, str]](), set[str]()
    blobs, extents = Blobs(find_folder(log.url)), _survey_by_name(log)
    dropped = _drop_partitions(log, families)
    gone += [extents[name] for name in dropped if name in extents]
    for name in dropped:
        told(name)
    for family in _leave_out(families, dropped):
        try:
            names |= _remove_family(log, family, now, batch, blobs)
        except (BusyWriter, UnknownSession) as error:
            busy.append((family.members[0], str(error)))
            continue
        gone += [extents[name] for name in family.members if name in extents]
        for name in family.members:
            told(name)
    if names:
        names -= _list_used(log, blobs)
    for name in names:
        blobs.forget(name)
    events = sum(one.events for one in gone)
    return Removal(tuple(one.session for one in gone), tuple(busy), events, len(names))


def _drop_partitions(log: EventLog, families: Sequence[SessionFamily]) -> list[str]:
    """Drop whole partitions if possible; the file contents of their sessions expire by age."""
    if not isinstance(log, DropsSessions):
        return []
    return log.drop({name: family.last for family in families for name in family.members})


def _leave_out(
    families: Sequence[SessionFamily], dropped: Sequence[str]
) -> Iterator[SessionFamily]:
    """Yield families without the removed members, skipping those that are gone entirely."""
    gone = set(dropped)
    for family in families:
        left = tuple(name for name in family.members if name not in gone)
        if left:
            yield replace(family, members=left)


def _require(log: EventLog) -> RemovesSessions:
    if not isinstance(log, RemovesSessions):
        raise ConfigurationError(
            f"sessions of {log.url} cannot be taken out: its log needs `survey` and `remove` "
            "(ullage.storage.retaining)"
        )
    return log


def _survey_by_name(log: EventLog) -> dict[str, SessionExtent]:
    return {extent.session: extent for extent in _require(log).survey(sized=False)}


def _choose_by_age(family: SessionFamily, rules: RetentionRules, now: float) -> str:
    """Return why a family is removed, or "" if it stays."""
    days = rules.find_days(family.tenant)
    if days is None or now - family.last < days * DAY_S:
        return ""
    whose = "" if family.tenant is None else f" (tenant {family.tenant})"
    return f"no event for {(now - family.last) / DAY_S:,.1f} days, kept for {days:g}{whose}"


def _list_families(log: EventLog, extents: Sequence[SessionExtent]) -> list[SessionFamily]:
    """Return all families, the longest inactive first."""
    first = {extent.session: extent.session for extent in extents}
    order = {extent.session: number for number, extent in enumerate(extents)}
    tenants: dict[str, str] = {}
    for extent in extents:
        events = _read_beginning(log, extent.session)
        for elder in _find_elders(events):
            if elder in first:
                pair = (_find_root(first, elder), _find_root(first, extent.session))
                first[max(pair, key=order.__getitem__)] = min(pair, key=order.__getitem__)
        tenants.update(_find_tenant(extent.session, events))
    made: dict[str, list[SessionExtent]] = {}
    for extent in extents:
        made.setdefault(_find_root(first, extent.session), []).append(extent)
    families = [
        SessionFamily(
            tuple(one.session for one in members),
            max(one.last for one in members),
            sum(one.size for one in members),
            tenants.get(root),
        )
        for root, members in made.items()
    ]
    return sorted(families, key=lambda family: family.last)


def _read_beginning(log: EventLog, session: str) -> list[Event]:
    """Return the first events of a session; for a damaged one, those that can be read."""
    try:
        return log.read(session, upto=BEGINNING)
    except UnknownSession:  # another process removed it meanwhile
        return []
    except StoreError:
        return [event for _, event in log.read_stamped(session)][:BEGINNING]


def _find_elders(events: Iterable[Event]) -> Iterator[str]:
    """Yield the sessions that this one belongs to: its parent, and those that it continues."""
    for event in events:
        if event.type == "session_created" and isinstance(read_data(event).get("parent"), str):
            yield read_data(event)["parent"]
        elif read_data(event):
            yield from find_parents([event])


def _find_tenant(session: str, events: Iterable[Event]) -> dict[str, str]:
    created = (read_data(event) for event in events if event.type == "session_created")
    found = next(created, {}).get("tenant")
    return {session: found} if isinstance(found, str) else {}


def _find_root(first: Mapping[str, str], session: str) -> str:
    """Return the session that a family began with."""
    while first[session] != session:
        session = first[session]
    return session


def _remove_family(
    log: EventLog,
    family: SessionFamily,
    now: Callable[[], float],
    batch: int,
    blobs: Blobs,
) -> set[str]:
    """Remove a family as the writer of all its sessions; return the names of file contents.

    Raises BusyWriter, with nothing removed, if another process writes or wrote meanwhile.
    """
    held: dict[str, int] = {}
    names = set[str]()
    try:
        for session in family.members:
            held[session] = log.acquire(session, Owner.here("ullage retention"), now()).epoch
        _demand_unchanged(log, family)
        for session in family.members:
            names |= _list_files(log, session, blobs)
        for session in reversed(family.members):
            while not _require(log).remove(session, held[session], batch):
                log.heartbeat(session, held[session], now())
            del held[session]
    finally:
        for session, epoch in held.items():
            with suppress(StoreError):
                log.release(session, epoch, now())
    return names


def _demand_unchanged(log: EventLog, family: SessionFamily) -> None:
    """Raise BusyWriter if a session was written since the family was chosen."""
    for session in family.members:
        seq = log.head(session).seq
        try:
            last = log.read(session, after=seq - 1) if seq else []
        except StoreError:  # a damaged one is removed like any other
            continue
        if any(event.ts > family.last for event in last):
            raise BusyWriter(f"session {session} was written since it was chosen: it stays")


def _list_files(log: EventLog, session: str, blobs: Blobs) -> set[str]:
    """Return the names of the file contents that a session recorded, read in pieces."""
    try:
        return {name for piece in read_pieces(log, session) for name in list_contents(piece, blobs)}
    except StoreError:
        return set(list_contents([event for _, event in log.read_stamped(session)], blobs))


def _list_used(log: EventLog, blobs: Blobs) -> set[str]:
    """Return the names of the file contents of the remaining sessions."""
    return {name for head in log.sessions() for name in _list_files(log, head.session, blobs)}

"""`ullage sessions`: list the sessions of a log with their state; `purge` a store."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from ullage.agent.overview import Overview
from ullage.agent.overviews import Overviews
from ullage.agent.totals import Totals
from ullage.cli import desk
from ullage.cli.lines import brief, out, when
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.session.log.event import upcast_data
from ullage.storage import open_store
from ullage.storage.log import LEASE_S, EventLog, Head, LeaseTerms, find_end
from ullage.storage.place import PROXY, default_url

SUMMARY = "list the sessions of a log, the newest first"

ABOUT: Final = 60
"""Cells of a person's first message in a line."""

MOST: Final = 50
"""Sessions that are listed by default, since the new events of each are read."""

State = Literal["idle", "held", "running", "cut off", "corrupt"]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session: times in Unix seconds, `turn` is the unfinished turn.

    `served` is the number of the last event with its model and folder, or 0.

    `state` is running (a turn with a living writer), held (a writer without a turn), cut off (a
    turn without a writer), corrupt (it cannot be read; `fault` says why) or idle.
    """

    name: str
    begun: float
    last: float
    events: int
    turns: int
    state: State
    turn: str | None = None
    writer: str | None = None
    forked_from: tuple[str, int] | None = None
    parent: str | None = None
    children: tuple[str, ...] = ()
    continues: str | None = None
    continued_in: str | None = None
    about: str = ""
    fault: str = ""
    totals: Totals = Totals()
    served: int = 0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    desk.add_log(parser)
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "purge"),
        default="list",
        help="list them (the default), or have the proxy's store, or that of --store, forget the "
        "checkpoints, states and originals that nobody used for a week; events stay",
    )
    parser.add_argument(
        "--limit", type=int, default=MOST, metavar="N", help=f"how many to list ({MOST})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(given: argparse.Namespace) -> int:
    """Print one line for each session, or one document; or delete expired data."""
    if given.action == "purge":
        return purge_store(given.store or default_url(PROXY))
    if given.limit < 1:
        raise ConfigurationError(f"--limit is how many sessions to list, 1 or more: {given.limit}")
    with desk.lend_log(given) as log:
        heads = log.sessions()[::-1]
        overviews = desk.open_overviews(log)
        rows = link_rows([read(log, head, overviews) for head in heads[: given.limit]])
        overviews.save(heads[::-1])
        url = log.url
    if given.json:
        document = {
            "store": url,
            "total": len(heads),
            "sessions": [_row_to_dict(row) for row in rows],
        }
        print(json.dumps(document, indent=2))
        return 0
    for line in draw_table(rows):
        out(line)
    if not heads:
        desk.say(f"no sessions yet in {url}: ullage run TEXT begins one")
    elif len(heads) > len(rows):
        desk.say(f"{len(heads) - len(rows):,} older ones: --limit {len(heads)} lists them")
    return 0


def purge_store(url: str) -> int:
    """Delete expired entries of a store, and report their number."""
    store = open_store(url, create=False)
    try:
        forgotten = store.purge(time.time())
        out(f"{forgotten:,} record{'s'[: forgotten != 1]} forgotten in {store.url}")
    finally:
        store.close()
    return 0


def read(log: EventLog, head: Head, overviews: Overviews) -> SessionRow:
    """Return the row of a session; if it cannot be read, the row says so."""
    try:
        found = overviews.read(head)
        about = _read_about(log, head.session, found)
    except StoreError as error:
        return SessionRow(
            head.session, head.created, head.created, head.seq, 0, "corrupt", fault=str(error)
        )
    writer = alive(log, head.session)
    return SessionRow(
        head.session,
        head.created,
        found.last if found.seq else head.created,
        found.seq,
        found.turns,
        state_of(found.turn, writer),
        turn=found.turn,
        writer=writer,
        forked_from=found.forked_from,
        parent=found.parent,
        children=tuple(found.children),
        continues=found.continues,
        continued_in=found.continued_in,
        about=about,
        totals=found.sums.total(),
        served=found.served,
    )


def _read_about(log: EventLog, session: str, found: Overview) -> str:
    """Return the first message, read from its event, since overviews hold no text."""
    if found.erased is not None:
        return f"erased on {when(found.erased)}"
    events = log.read(session, found.said - 1, found.said) if found.said else []
    texts = ((upcast_data(event) or {}).get("text", "") for event in events)
    return brief(next(texts, ""), ABOUT)


def link_rows(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return rows with links on both sides, even if a crash recorded only one side."""
    begun = {row.continues: row.name for row in reversed(rows) if row.continues is not None}
    return [
        row
        if row.continued_in is not None or row.name not in begun
        else replace(row, continued_in=begun[row.name])
        for row in rows
    ]


def state_of(turn: str | None, writer: str | None) -> State:
    """Return the state of a session with this open turn and this living writer."""
    if turn is None:
        return "idle" if writer is None else "held"
    return "cut off" if writer is None else "running"


def alive(log: EventLog, session: str) -> str | None:
    """Return the living writer of a session, or None."""
    leases = log.leases(session)
    if not leases or leases[-1].released is not None:
        return None
    held = leases[-1]
    if find_end(held, LeaseTerms(time.time(), LEASE_S)):
        return None
    return f"{held.owner.name} (pid {held.owner.pid})"


def _row_to_dict(row: SessionRow) -> dict[str, Any]:
    forked = row.forked_from
    link = None if forked is None else {"session": forked[0], "seq": forked[1]}
    made = {**asdict(row), "forked_from": link}
    del made["served"]
    return made


def draw_table(rows: Sequence[SessionRow]) -> list[str]:
    """Return rows as a table with its head, or no lines without rows."""
    if not rows:
        return []
    cells = [
        ("SESSION", "BEGUN", "LAST EVENT", "EVENTS", "TURNS", "WINDOW", "COST", "STATE", "ABOUT")
    ]
    cells += [
        (
            row.name,
            when(row.begun),
            when(row.last),
            f"{row.events:,}",
            f"{row.turns:,}",
            f"{row.totals.pressures[-1]:.0%}" if row.totals.pressures else "",
            "" if row.totals.dollars is None else f"${row.totals.dollars:,.4f}",
            row.state,
            _about(row),
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(8)]
    return ["  ".join([*map(str.ljust, line[:8], widths), line[8]]).rstrip() for line in cells]


def _about(row: SessionRow) -> str:
    if row.fault:
        return brief(row.fault, 2 * ABOUT)
    notes = [f"subagent of {row.parent}"] if row.parent is not None else []
    if row.forked_from is not None:
        notes.append(f"fork of {row.forked_from[0]} at {row.forked_from[1]}")
    if row.children:
        notes.append(f"subagents {', '.join(row.children)}")
    if row.continues is not None:
        notes.append(f"goes on from {row.continues}")
    if row.continued_in is not None:
        notes.append(f"goes on in {row.continued_in}")
    if row.writer is not None:
        notes.append(f"written by {row.writer}")
    return f"{row.about} ({brief('; '.join(notes), 2 * ABOUT)})" if notes else row.about

"""A capacity model: lines fitted to measured points, and what they say of more sessions.

Plain functions on plain numbers. A fit says how far it is from the points that it was made of, and
from one that was held out. What lies beyond the measured points is extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

DAY_S: Final = 24 * 3600.0
XIDS: Final = 2.0e9
"""Transactions that may be without a freeze: PostgreSQL stops at about two thousand million."""

BEAT_S: Final = 10.0
"""Seconds between two signs of life of a turn (`ullage.agent.turning.BEAT_S`)."""


@dataclass(frozen=True)
class Fit:
    """Coefficients of a line, its largest error on its own points and on the one held out.

    Errors are shares of the measured value.
    """

    terms: tuple[str, ...]
    values: tuple[float, ...]
    error: float
    held_out: float

    def predict(self, *terms: float) -> float:
        """Return the value at these terms."""
        return float(sum(a * b for a, b in zip(self.values, terms, strict=True)))


def fit_line(
    names: Sequence[str],
    points: Sequence[tuple[Sequence[float], float]],
    held: tuple[Sequence[float], float],
) -> Fit:
    """Return the least squares of relative errors; `points` are terms with what was measured."""
    rows = np.array([[x / y for x in terms] for terms, y in points])
    values = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)[0]
    made = Fit(tuple(names), tuple(map(float, values)), 0.0, 0.0)
    errors = [abs(made.predict(*terms) / y - 1) for terms, y in (*points, held)]
    return replace(made, error=max(errors[:-1]), held_out=errors[-1])


@dataclass(frozen=True)
class Scaling:
    """The universal scalability law: how rivals at once share what is one.

    `alone` is the seconds of one append without rivals, `shared` the share that cannot be done at
    once, `crosstalk` what each pair costs (N. Gunther, Guerrilla Capacity Planning, 2007).
    """

    fit: Fit

    def rate(self, clients: int) -> float:
        """Return appends a second of so many at once."""
        return clients / self.fit.predict(*_list_usl(clients))


def _list_usl(clients: int) -> tuple[float, float, float]:
    return 1.0, clients - 1.0, clients * (clients - 1.0)


def fit_scaling(rows: Sequence[Mapping[str, Any]], held: int) -> Scaling:
    """Return the law of measured rates by threads; that of `held` threads is left out."""
    points = [(_list_usl(r["threads"]), r["threads"] / r["rate"]) for r in rows]
    kept = [p for p, r in zip(points, rows, strict=True) if r["threads"] != held]
    left = next(p for p, r in zip(points, rows, strict=True) if r["threads"] == held)
    return Scaling(fit_line(("alone", "shared", "crosstalk"), kept, left))


def fit_turns(rows: Sequence[Mapping[str, Any]], key: str) -> Fit:
    """Return what a turn writes, by its events and the bytes of their data."""

    def point(row: Mapping[str, Any]) -> tuple[Sequence[float], float]:
        return (1.0, row["events"], row["data_bytes"]), read_figure(row, key)

    kept = [point(row) for row in rows if not row["held_out"]]
    left = next(point(row) for row in rows if row["held_out"])
    return fit_line(("turn", "event", "byte of data"), kept, left)


def read_figure(row: Mapping[str, Any], key: str) -> float:
    """Return a counter of a measured turn, such as `wal_bytes` or `events.index_bytes`."""
    table, _, column = key.rpartition(".")
    spent = row["spent"]["tables"][table] if table else row["spent"]
    return float(spent[column])


def fit_resumes(rows: Sequence[Mapping[str, Any]], held: int) -> Fit:
    """Return the seconds of a resume by the events of its session."""
    points = [((1.0, r["events"]), r["resume"]) for r in rows if r["events"] != held]
    left = next(((1.0, r["events"]), r["resume"]) for r in rows if r["events"] == held)
    return fit_line(("resume", "event"), points, left)


@dataclass(frozen=True)
class Mix:
    """What a session is: an assumption, stated with the results.

    Means of TraceLab (4,265 sessions, 357,161 steps): 84 calls. How many turns those are in, and
    how long a call takes with its model, is assumed.
    """

    turns: float = 10.0
    calls: float = 8.4
    result_bytes: float = 2_000.0
    call_s: float = 10.0
    kept_days: float = 30.0

    @property
    def active_s(self) -> float:
        """Seconds in which a session has a turn under way."""
        return self.turns * (self.calls + 1) * self.call_s


@dataclass(frozen=True)
class Costs:
    """What was measured and fitted, as the model takes it: for each event, append, sign of life.

    `event_data` is bytes of data for each byte of a result, with what each event has besides.
    """

    events: Fit
    data: Fit
    wal: Fit
    table: Fit
    index_event: float
    commits: Fit
    appends: Fit
    server_cpu: float
    syncs: float
    append_s: float
    beat_wal: float
    beat_cpu: float
    beat_dead: float
    delete_s: float
    vacuum_s: float


@dataclass(frozen=True)
class Machine:
    """What a server has: cores, syncs and bytes of WAL a second, connections, disk, memory."""

    name: str
    cores: float
    syncs: float
    wal: float
    connections: float
    disk: float
    memory: float


@dataclass(frozen=True)
class Need:
    """What so many sessions begun a second need, a second where nothing else is said."""

    sessions: float
    active: float
    turns: float
    appends: float
    events: float
    commits: float
    beats: float
    wal: float
    syncs: float
    cores: float
    connections: float
    table_day: float
    index_day: float
    dead: float
    purge_cores: float
    xid_hours: float


def predict(sessions: float, mix: Mix, costs: Costs) -> Need:
    """Return what so many sessions begun a second need in the long run."""
    turns = sessions * mix.turns
    events = costs.events.predict(1.0, mix.calls)
    data = costs.data.predict(1.0, mix.calls, mix.calls * mix.result_bytes)
    appends, commits = costs.appends.predict(1.0, mix.calls), costs.commits.predict(1.0, mix.calls)
    active = sessions * mix.active_s
    beats = active / BEAT_S
    writes = turns * appends + beats
    return Need(
        sessions=sessions,
        active=active,
        turns=turns,
        appends=turns * appends,
        events=turns * events,
        commits=turns * commits + beats,
        beats=beats,
        wal=turns * costs.wal.predict(1.0, events, data) + beats * costs.beat_wal,
        syncs=writes * costs.syncs,
        cores=turns * commits * costs.server_cpu + beats * costs.beat_cpu,
        connections=writes * costs.append_s,
        table_day=turns * costs.table.predict(1.0, events, data) * DAY_S,
        index_day=turns * events * costs.index_event * DAY_S,
        dead=turns * appends + beats,
        purge_cores=turns * events * (costs.delete_s + costs.vacuum_s),
        xid_hours=XIDS / max(writes, 1e-9) / 3600,
    )


def find_limits(mix: Mix, costs: Costs, machine: Machine) -> list[tuple[str, float]]:
    """Return each resource with the sessions a second at which it is used up, the first first."""
    one = predict(1.0, mix, costs)
    stored = (one.table_day + one.index_day) * mix.kept_days
    used = {
        "cores of the server": one.cores / machine.cores,
        "syncs of the WAL": one.syncs / machine.syncs,
        "bytes of WAL": one.wal / machine.wal,
        "connections": one.connections / machine.connections,
        f"disk for {mix.kept_days:g} days": stored / machine.disk,
        "one vacuum behind deleted rows": one.purge_cores,
        "transaction numbers (a freeze of all tables every 2 h)": 2 / one.xid_hours,
    }
    return sorted(((name, 1 / share) for name, share in used.items()), key=lambda one: one[1])

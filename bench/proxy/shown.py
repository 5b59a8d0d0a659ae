"""The section `The guard proxy` of the page, from results alone.

What a proxy adds is its own percentile less that of the direct calls of the same round; shown is
the median over the rounds. CPU is all seconds of all rounds by all requests or chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from bench.cells import Row, short, table

HEAD: Final = "## The guard proxy"
DIRECT: Final = "direct"
OURS: Final = "ullage"
PEER: Final = "LiteLLM"
RELAY: Final = "bare relay"
DEARER: Final = 8
"""How many times more the peer is to cost."""

AGAINST: Final = (
    "**Against the targets.** The targets for the CPU of 1 KB and for the first chunk are for a "
    "machine on which the bare relay\ntakes 0.23 ms and adds 0.8 ms:"
)

Rounds = Sequence[Row]

INTRODUCTION: Final = (
    HEAD
    + """

Written by `make bench-proxy` in {minutes:.0f} minutes; {machine}. {versions}.

A fake upstream that answers at once or at a set pace, a driver that sends when it is time to
(open loop), and between them nobody (`direct`), ullage, nginx and LiteLLM's proxy, each as one
process and in its default set-up but for access logs and nginx's buffering, which are off. `bare
relay` is thirty lines on ullage's own server and client (uvicorn, aiohttp) that look at nothing.
The driver and the upstream share {rig}, whoever is measured has {proxy}; {rounds} rounds, in each
of which all take their turn. *Added* is a percentile less that of the direct calls of the same
round, the median over the rounds; CPU is that of the proxy's processes (/proc, user and system).
ullage is `ullage serve --window 256000` with its store in a file, and compacts nothing here: shown
is what looking costs.
"""
)
TITLES: Final[Mapping[str, str]] = {
    "small": "Requests of 1 KB, 200 a second, each another conversation, answered at once. Times "
    "to the whole answer, ms:",
    "calm": "The same, 20 a second, at which nobody is behind:",
    "stream": "Streams of {chunks} chunks at 50 a second, eight at a time. Times to the first "
    "chunk and gaps between chunks, ms; CPU with all that the request costs, µs a chunk:",
    "crowd": "The same, {crowd} at a time. Who leaves some unfinished, is not asked again:",
    "first": "Prompts of 100,000 tokens (0.4 MB), sessions never seen before, ms:",
    "again": "The same sessions with one turn more, ms:",
    "idle": "Memory, MB: after the rounds before, and what {idle} streams that stand still add, "
    "KB each:",
}


class Target(NamedTuple):
    """A figure that is to be kept, and where it is found."""

    said: str
    workload: str
    limit: float
    unit: str
    find: Callable[[Row, str], float | None]


def section(results: Row) -> str:
    """Return the section; it needs `plan`, `machine`, `readings` and whatever else was measured."""
    told = {**results["plan"], **results["facts"]}
    parts = [INTRODUCTION.format(**told)]
    for name, title in TITLES.items():
        rows = results["readings"].get(name)
        if rows:
            write = SHOWN[name]
            parts.append(title.format(**told) + "\n\n" + write(rows))
    if "soak" in results:
        parts.append(soak(results["soak"]))
    parts.append(targets(results))
    return "\n".join(parts).rstrip() + "\n"


def spliced(page: str, text: str) -> str:
    """Return the page with its section replaced, or put before the losses, or at the end."""
    parts = page.split("\n## ")
    kept = [part for part in parts if not part.startswith(HEAD.removeprefix("## ") + "\n")]
    own = text.removeprefix("## ").rstrip() + "\n"
    ends = (n for n, part in enumerate(kept) if part.startswith("Where ullage is behind"))
    at = next(ends, len(kept))
    kept[at:at] = [own]
    return "\n## ".join(part.rstrip("\n") + "\n" for part in kept)


def carried(before: str, page: str) -> str:
    """Return a page that was written anew with the section that the one before had, if it had."""
    parts = before.split("\n## ")
    mine = [part for part in parts if part.startswith(HEAD.removeprefix("## ") + "\n")]
    return spliced(page, f"## {mine[0]}") if mine else page


def answered(rows: Mapping[str, Rounds]) -> str:
    """Return a table of requests that do not stream."""
    heads = ["", "p50", "p99", "added p50", "added p99", "CPU ms a request", "failed"]
    return table(
        heads,
        (
            [name, *_times(rows, name, "end"), _ms(cpu(rounds, "done")), _failed(rounds)]
            for name, rounds in rows.items()
        ),
    )


def streamed(rows: Mapping[str, Rounds]) -> str:
    """Return a table of streams."""
    heads = ["", "first p50", "first p99", "added p50", "added p99", "gap p50", "gap p99",
             "CPU µs a chunk", "chunks a second", "failed"]  # fmt: skip
    return table(
        heads,
        (
            [
                name,
                *_times(rows, name, "first"),
                *(_ms(_middle(rounds, "gap", share)) for share in ("p50", "p99")),
                _us(cpu(rounds, "events")),
                f"{median(r['events'] / r['seconds'] for r in rounds):,.0f}",
                _failed(rounds),
            ]
            for name, rounds in rows.items()
        ),
    )


def idle(rows: Mapping[str, Rounds]) -> str:
    """Return a table of memory."""
    return table(
        ["", "MB before", "KB a stream"],
        (
            [name, f"{row['before_mb']:,.0f}", f"{_each_kb(row):,.0f}"]
            for name, (row, *_) in rows.items()
        ),
    )


def soak(row: Row) -> str:
    """Tell of a soak."""
    hours = row["points"][-1][0]
    return (
        f"A soak of {hours * 60:.3g} minutes, 50 streams of 25 chunks begun a second, a tenth of "
        f"them left by their client: {row['sent']:,} sent, {row['done']:,} answered, "
        f"{row['aborted']:,} left, failed: {_failed([row])}. Memory {row['points'][0][1]:.0f} MB "
        f"at its start and {row['points'][-1][1]:.0f} MB at its end; after the first quarter it "
        f"rises by {row['slope']:.2f} MB an hour.\n"
    )


def targets(results: Row) -> str:
    """Return what was to be kept, and whether it was."""
    found = ((target, target.find(results, target.workload)) for target in TARGETS)
    rows = [
        [t.said, f"{t.limit:g} {t.unit}", f"{short(value)} {t.unit}", _kept(value <= t.limit)]
        for t, value in found
        if value is not None
    ]
    rows += [
        [f"{PEER} over ullage: {said}", str(DEARER), short(times), _kept(times >= DEARER)]
        for said, times in ratios(results["readings"])
    ]
    return AGAINST + "\n\n" + table(["", "target", "measured", "kept"], rows)


def ratios(readings: Row) -> Iterator[tuple[str, float]]:
    """Yield how many times more the peer adds and takes than ullage."""
    for name, (said, time, unit) in COMPARED.items():
        rows = readings.get(name, {})
        if OURS not in rows or PEER not in rows:
            continue
        ours, theirs = added(rows, OURS, time, "p50"), added(rows, PEER, time, "p50")
        if ours is not None and theirs is not None and ours > 0:
            yield f"{said}, added p50", theirs / ours
        ours, theirs = cpu(rows[OURS], unit), cpu(rows[PEER], unit)
        if ours and theirs:
            yield f"{said}, CPU", theirs / ours


def added(rows: Mapping[str, Rounds], name: str, time: str, share: str) -> float | None:
    """Return the seconds that a contender adds to the direct calls of its rounds."""
    pairs = zip(rows.get(name, ()), rows.get(DIRECT, ()), strict=False)
    found = [r[time][share] - d[time][share] for r, d in pairs if r[time] and d[time]]
    return median(found) if found and name != DIRECT else None


def cpu(rounds: Rounds, unit: str) -> float | None:
    """Return the CPU seconds of a request or a chunk; None where nothing was counted."""
    spent, count = sum(r["cpu_s"] for r in rounds), sum(r[unit] for r in rounds)
    return spent / count if spent and count else None


def _times(rows: Mapping[str, Rounds], name: str, time: str) -> list[str]:
    own = [_ms(_middle(rows[name], time, share)) for share in ("p50", "p99")]
    return own + [_ms(added(rows, name, time, share)) for share in ("p50", "p99")]


def _middle(rounds: Rounds, time: str, share: str) -> float | None:
    found = [row[time][share] for row in rounds if row[time]]
    return median(found) if found else None


def _failed(rounds: Rounds) -> str:
    total: dict[str, int] = {}
    for row in rounds:
        for why, count in row["failed"].items():
            total[why] = total.get(why, 0) + count
    return ", ".join(f"{count:,} {why}" for why, count in total.items()) or "0"


def _each_kb(row: Row) -> float:
    count: int = row["sent"]
    spread: float = row["most_mb"] - row["before_mb"]
    return spread * 1000 / count


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.2f}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e6:.0f}"


def _kept(kept: bool) -> str:
    return "yes" if kept else "**no**"


def _adds(time: str, share: str) -> Callable[[Row, str], float | None]:
    def find(results: Row, workload: str) -> float | None:
        value = added(results["readings"].get(workload, {}), OURS, time, share)
        return None if value is None else value * 1e3

    return find


def _chunk_us(results: Row, workload: str) -> float | None:
    value = cpu(results["readings"].get(workload, {}).get(OURS, ()), "events")
    return None if value is None else value * 1e6


def _request_ms(results: Row, workload: str) -> float | None:
    value = cpu(results["readings"].get(workload, {}).get(OURS, ()), "done")
    return None if value is None else value * 1e3


def _over_relay(results: Row, workload: str) -> float | None:
    """Return how many times the CPU of the bare relay a request takes."""
    rows = results["readings"].get(workload, {})
    ours, relay = cpu(rows.get(OURS, ()), "done"), cpu(rows.get(RELAY, ()), "done")
    return ours / relay if ours and relay else None


def _start_mb(results: Row, _: str) -> float | None:
    found: dict[str, float] = results.get("start_mb", {})
    return found.get(OURS)


def _missing(results: Row, workload: str) -> float | None:
    """Return the per cent of chunks that did not come in the time of the direct calls."""
    rows = results["readings"].get(workload, {})
    pairs = zip(rows.get(OURS, ()), rows.get(DIRECT, ()), strict=False)
    found = [1 - r["events"] / r["seconds"] * d["seconds"] / d["events"] for r, d in pairs]
    return max(median(found), 0.0) * 100 if found else None


def _held(pick: Callable[[Row], float]) -> Callable[[Row, str], float | None]:
    def find(results: Row, workload: str) -> float | None:
        rounds = results["readings"].get(workload, {}).get(OURS)
        return pick(rounds[0]) if rounds else None

    return find


def _slope(results: Row, _: str) -> float | None:
    found: dict[str, Any] = results.get("soak", {})
    return found.get("slope")


SHOWN: Final[Mapping[str, Callable[[Mapping[str, Rounds]], str]]] = {
    "small": answered,
    "calm": answered,
    "stream": streamed,
    "crowd": streamed,
    "first": answered,
    "again": answered,
    "idle": idle,
}
COMPARED: Final[Mapping[str, tuple[str, str, str]]] = {
    "calm": ("1 KB, 20 a second", "end", "done"),
    "stream": ("streams", "first", "events"),
    "first": ("100,000 tokens, first", "end", "done"),
    "again": ("100,000 tokens, again", "end", "done"),
}
"""The workloads that are compared: their name, the time that counts, what CPU is divided by."""

TARGETS: Final = (
    Target("1 KB, added p50", "small", 1, "ms", _adds("end", "p50")),
    Target("1 KB, added p99", "small", 5, "ms", _adds("end", "p99")),
    Target("1 KB, CPU a request", "small", 0.5, "ms", _request_ms),
    Target("1 KB, CPU over the bare relay's", "small", 2.2, "times", _over_relay),
    Target("stream, first chunk, added p50", "stream", 1.5, "ms", _adds("first", "p50")),
    Target("stream, CPU a chunk", "stream", 80, "µs", _chunk_us),
    Target("crowd, CPU a chunk", "crowd", 80, "µs", _chunk_us),
    Target("crowd, behind the pace", "crowd", 1, "%", _missing),
    Target("100,000 tokens, first, added p50", "first", 25, "ms", _adds("end", "p50")),
    Target("100,000 tokens, again, added p50", "again", 5, "ms", _adds("end", "p50")),
    Target("memory at the start", "", 150, "MB", _start_mb),
    Target("memory a stream", "idle", 64, "KB", _held(_each_kb)),
    Target("soak, slope of memory", "soak", 1, "MB/h", _slope),
)

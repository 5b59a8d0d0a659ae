"""`make bench-proxy`: measure the guard proxy beside nobody, nginx and LiteLLM's proxy.

Writes build/bench-proxy/results.json and, unless it is a smoke run or leaves somebody out, the
section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench import venvs
from bench.__main__ import PAGE, machine
from bench.proxy import contenders, rounds, shown
from bench.proxy.contenders import DIRECT, OURS, PROXIES, Contender
from bench.proxy.processes import Cores
from bench.proxy.rounds import Rig
from bench.proxy.workloads import QUICK, Bodies, Plan, Workload

OWN: Final = ("ullage", "uvicorn", "aiohttp", "uvloop", "httptools")


def main() -> None:
    """Parse the arguments, measure, write the results and the section."""
    options = _options()
    # What was started is ended on the way out, also when this is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = venvs.ROOT / "build" / ("bench-proxy-quick" if options.quick else "bench-proxy")
    saved = options.saved
    if saved is None:
        saved = _measured(_plan(options), folder)
    results = json.loads(saved.read_text(encoding="utf-8"))
    text = shown.section(results)
    print(text)
    whole = {DIRECT, *PROXIES} <= set(results["readings"].get("small", {}))
    if options.page or (whole and not options.quick):
        page = options.page or venvs.ROOT / PAGE
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(shown.spliced(before, text), encoding="utf-8")
        print(f"wrote {page.name}")
    else:
        print("no page written: this was a smoke run, or somebody is missing")


def _measured(plan: Plan, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    begun, cores = time.monotonic(), Cores.found()
    if cores.rig is not None:
        os.sched_setaffinity(0, {cores.rig})
    with rounds.set_up(folder, cores) as rig, ExitStack() as stack:
        names = [name for name in (DIRECT, *PROXIES) if not plan.names or name in plan.names]
        there = [
            contender
            for name in names
            if (contender := stack.enter_context(
                contenders.started(name, folder, rig.port, cores)
            ))
        ]  # fmt: skip
        results = run(rig, there, plan)
    results["plan"] = asdict(plan)
    results["facts"] = {
        "minutes": (time.monotonic() - begun) / 60,
        "machine": "; ".join(f"{key}: {value}" for key, value in machine().items()),
        "versions": "; ".join(_versions({contender.name for contender in there})),
        "rig": "one core" if cores.rig is not None else "all cores",
        "proxy": "another" if cores.proxy is not None else "all cores",
    }
    file = folder / "results.json"
    file.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return file


def run(rig: Rig, there: list[Contender], plan: Plan) -> dict[str, Any]:
    """Measure everything, round by round; return the results."""
    bodies = Bodies(rig.folder / "bodies", plan)
    proxies = [contender for contender in there if contender.program]
    warm = replace(bodies.small(), name="warm", count=20, rate=50.0)
    rig.round(there, warm)
    del rig.readings["warm"]
    start_mb = {who.name: who.program.resident_mb() for who in there if who.program}
    for number in range(plan.rounds):
        # Whose turn it is first, changes from round to round.
        turn = there[number % len(there) :] + there[: number % len(there)]
        for workload in (
            bodies.small(),
            bodies.calm(),
            bodies.stream(),
            bodies.long(number, again=False),
            bodies.long(number, again=True),
        ):
            _say(number, workload)
            rig.round(turn, workload)
    for contender in proxies:
        held = rounds.held_by_idle(rig, contender, bodies.idle())
        rig.readings.setdefault("idle", {})[contender.name] = [held]
        rounds.settle(contender)
    for number in range(plan.crowd_rounds):
        _say(number, bodies.crowd())
        rig.round(_keeping_up(rig, there), bodies.crowd())
    results: dict[str, Any] = {"readings": _ordered(rig, there), "start_mb": start_mb}
    ours = [contender for contender in proxies if contender.name == OURS]
    if plan.soak_min and ours:
        results["soak"] = rounds.soaked(rig, ours[0], bodies.soak())
    return results


def _keeping_up(rig: Rig, there: list[Contender]) -> list[Contender]:
    """Leave out who left streams of an earlier crowd unfinished."""
    seen = rig.readings.get("crowd", {})
    return [who for who in there if not any(row["failed"] for row in seen.get(who.name, ()))]


def _ordered(rig: Rig, there: list[Contender]) -> dict[str, Any]:
    """Return the readings with the contenders in their order, not in that of the last turn."""
    return {
        workload: {who.name: rows[who.name] for who in there if who.name in rows}
        for workload, rows in rig.readings.items()
    }


def _say(number: int, workload: Workload) -> None:
    print(f"== {time.strftime('%T')} round {number + 1}: {workload.name}", flush=True)


def _versions(there: set[str]) -> list[str]:
    """Return the names and versions of what was measured."""
    found = [f"{name} {_version(name)}" for name in OWN]
    if "nginx" in there:
        told = shutil.which("nginx") or "/usr/sbin/nginx"
        said = subprocess.run([told, "-v"], capture_output=True, text=True, check=False)
        found.append(said.stderr.strip().rpartition(" ")[2])
    python = venvs.ready("litellm-proxy") if "LiteLLM" in there else None
    if python is not None:
        asked = "from importlib.metadata import version; print(version('litellm'))"
        said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
        found.append(f"litellm {said.stdout.strip()}")
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    return replace(plan, soak_min=options.soak, names=tuple(options.only or ()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no page")
    parser.add_argument(
        "--only",
        type=lambda text: [name.strip() for name in text.split(",")],
        help=f"only these, by comma: {', '.join((DIRECT, *PROXIES))}",
    )
    parser.add_argument("--rounds", type=int, help="rounds (5)")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="soak ullage")
    parser.add_argument("--page", type=Path, help=f"the page to write the section to ({PAGE})")
    parser.add_argument("--from", dest="saved", type=Path, help="write it from saved results")
    return parser.parse_args()


if __name__ == "__main__":
    main()

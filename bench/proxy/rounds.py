"""Rounds: each workload by every contender in turn, so that all meet the same weather.

The driver and the upstream have one core, whoever is measured has the other. A reading is what the
driver saw, the CPU seconds that the contender took meanwhile, and the memory it holds.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.proxy.contenders import KEY, Contender, environment
from bench.proxy.processes import HOST, Cores, Program
from bench.proxy.workloads import PATH, Workload

Reading = dict[str, Any]

SETTLED_CORE: Final = 0.1
"""The share of a core below which a contender is at rest."""

SETTLE_S: Final = 20.0
WATCH_S: Final = 0.3


@dataclass(slots=True)
class Rig:
    """The upstream, under way, and what is needed to drive it."""

    folder: Path
    cores: Cores
    upstream: Program
    port: int
    turn: int = 0
    """Requests of one turn are the same for all, and others than those of every other turn."""

    readings: dict[str, dict[str, list[Reading]]] = field(default_factory=dict)

    def set(self, settings: Mapping[str, Any]) -> None:
        """Tell the fake how to behave from now on."""
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=10)) as link:
            link.request("POST", "/fake", json.dumps(settings))
            answer = link.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"the fake upstream refused {settings}: {answer.read()!r}")

    def round(self, contenders: Sequence[Contender], workload: Workload) -> None:
        """Measure a workload with each contender, one after the other."""
        self.turn += 1
        self.set(workload.settings)
        for contender in contenders:
            reading = self.measure(contender, workload)
            rows = self.readings.setdefault(workload.name, {})
            rows.setdefault(contender.name, []).append(reading)
            settle(contender)

    def measure(
        self, contender: Contender, workload: Workload, watch: Callable[[], None] | None = None
    ) -> Reading:
        """Load one contender; `watch` is called over and over meanwhile."""
        program = contender.program
        before = program.cpu_s() if program else 0.0
        seen = self._driven(contender, workload, watch)
        spent = program.cpu_s() - before if program else 0.0
        held = program.resident_mb() if program else 0.0
        return {**seen, "cpu_s": spent, "mb": held}

    def _driven(
        self, contender: Contender, workload: Workload, watch: Callable[[], None] | None
    ) -> Reading:
        job = {
            "port": contender.port,
            "path": PATH,
            "bodies": workload.bodies,
            "rate": workload.rate,
            "count": workload.count,
            "headers": {"authorization": f"Bearer {KEY}"},
            "aborts": workload.aborts,
            "limit_s": workload.limit_s,
            "seed": self.turn,
        }
        longest = workload.count / workload.rate + workload.limit_s + 60
        command = [sys.executable, "-m", "bench.proxy.load"]
        env = environment(self.folder)
        with Program(command, self.folder / "errors.txt", self.cores.rig, env) as driver:
            if watch is not None:
                driver.begin(json.dumps(job).encode())
                until = time.monotonic() + longest
                while not driver.ended and time.monotonic() < until:
                    watch()
                    time.sleep(WATCH_S)
                told = driver.told(None, longest)
            else:
                told = driver.told(json.dumps(job).encode(), longest)
        if not told:
            raise RuntimeError(f"the driver failed: see {self.folder / 'errors.txt'}")
        seen: Reading = json.loads(told)
        return seen


@contextmanager
def set_up(folder: Path, cores: Cores) -> Iterator[Rig]:
    """Start the upstream; end it after."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.proxy.upstream"]
    with Program(command, folder / "errors.txt", cores.rig, environment(folder)) as upstream:
        yield Rig(folder, cores, upstream, json.loads(upstream.line())["port"])


def settle(contender: Contender) -> None:
    """Wait until a contender is at rest, so that its remains do not burden the next one."""
    if contender.program is None:
        return
    until = time.monotonic() + SETTLE_S
    before = contender.program.cpu_s()
    while time.monotonic() < until:
        time.sleep(WATCH_S)
        now = contender.program.cpu_s()
        if now - before < SETTLED_CORE * WATCH_S:
            return
        before = now


def held_by_idle(rig: Rig, contender: Contender, workload: Workload) -> Reading:
    """Measure the memory of streams that stand still."""
    program = contender.program
    assert program is not None
    before = program.resident_mb()
    held: list[float] = []
    rig.set(workload.settings)
    reading = rig.measure(contender, workload, lambda: held.append(program.resident_mb()))
    return {**reading, "before_mb": before, "most_mb": max(held, default=before)}


def soaked(rig: Rig, contender: Contender, workload: Workload) -> Reading:
    """Load a contender for long; return its memory over time, in hours and MB."""
    program = contender.program
    assert program is not None
    start, points = time.monotonic(), [(0.0, program.resident_mb())]

    def watch() -> None:
        at = (time.monotonic() - start) / 3600
        if at - points[-1][0] > 1 / 3600:
            points.append((at, program.resident_mb()))

    rig.set(workload.settings)
    reading = rig.measure(contender, workload, watch)
    return {**reading, "points": points, "slope": slope(points[len(points) // 4 :])}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the rise of the straight line that lies nearest to the points; 0 for one or none."""
    if len(points) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    level = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0

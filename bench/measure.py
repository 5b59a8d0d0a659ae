"""Runs the workloads: which peer does what, in which order, how often, and for how long at most.

Each reading comes from a process that did nothing else before. Rounds go over all peers before the
next begins, in a new order each time, so that a slow minute of the machine touches everybody.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench import peers, transcript, venvs
from bench.transcript import Shape

Results = dict[str, Any]
Answer = dict[str, Any]

START_S: Final = 120
PATIENCE: Final = 5
"""Times `limit_s` on the wall clock after which a job that sleeps or starves is cut off, too."""

SLOW_S: Final = 10
"""A reading above this is taken once."""

REFEREE: Final = "tiktoken"

PROBE: Final = (
    "import sys, time; start = time.process_time(); {}; "
    "print(time.process_time() - start, len(sys.modules))"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `limit_s` is CPU seconds for one job."""

    sizes: Sequence[int] = (200, 2_000, 20_000)
    rounds: int = 5
    turns: int = 500
    window: int = 100_000
    output: int = 4_000
    budgets: int = 38
    limit_s: float = 90
    names: Sequence[str] = tuple(peers.HOMES)

    def loop(self) -> Shape:
        """Return the shape of the transcript that has enough turns."""
        return Shape(max(60, self.turns * 4))


QUICK: Final = Plan(
    sizes=(200,), rounds=1, turns=60, window=8_000, output=500, budgets=3, limit_s=30
)

SWEPT: Final = (Shape(200), Shape(200, end="tool"), Shape(200, end="tool", single_user=True))


class Worker:
    """A peer in a process of its own."""

    def __init__(self, name: str, python: Path, errors: Path) -> None:
        home = peers.HOMES[name][0]
        self.name = name
        self._libraries = peers.LIBRARIES[home]
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            [python, "-m", "bench.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=venvs.environment(home),
            cwd=venvs.ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def versions(self) -> Answer:
        """Wait until the peer is set up; return its versions."""
        return self.ask({"op": "versions", "libraries": self._libraries}, START_S)

    def ask(self, job: dict[str, Any], limit_s: float) -> Answer:
        """Send a job and return its answer: `{"cut": limit_s}` where it took more CPU seconds.

        Where the worker died, that is `{"error": ...}`. Either way it answers no more.
        """
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        try:
            pipe_in.write(json.dumps(job).encode() + b"\n")
            pipe_in.flush()
        except BrokenPipeError:
            return {"error": "died before"}
        spent, started = cpu_s(self._process.pid), time.monotonic()
        while not select.select([pipe_out], [], [], 0.5)[0]:
            waited = time.monotonic() - started
            if cpu_s(self._process.pid) - spent > limit_s or waited > PATIENCE * limit_s:
                return {"cut": limit_s}
        line = pipe_out.readline()
        answer: Answer = json.loads(line) if line else {"error": "died; see errors.txt"}
        return answer


class Bench:
    """Measures by a plan, with scratch files in `folder`."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._pythons = {home: venvs.ready(home) for home in [venvs.BASE, *peers.LIBRARIES]}
        if self._pythons[venvs.BASE] is None:
            raise SystemExit("the judge could not be set up; without it nothing is measured")
        venvs.vocabulary()
        self.names = [n for n in plan.names if self._pythons[peers.HOMES[n][0]] is not None]
        self.results: Results = {"versions": {}, "tokens": {}}

    def run(self) -> Results:
        """Measure everything and return it."""
        with self._worker(REFEREE) as referee:
            self._sizes(referee)
            self._loops(referee)
            self._sweep(referee)
        self._kinds()
        self._imports()
        return self.results

    def _sizes(self, referee: Worker) -> None:
        for size in self.plan.sizes:
            shape = Shape(size)
            tokens = self._tokens(referee, shape)
            rounds = self.plan.rounds if size < 10_000 else min(3, self.plan.rounds)
            job: dict[str, Any] = {"op": "count", "transcript": self._file(shape)}
            self._table("count", size, self._rounds(job, self.names, rounds))
            job |= {"op": "trim", "transcript": self._file(shape), "budget": tokens // 2}
            names = [name for name in self.names if name in peers.TRIMMING]
            self._table("trim", size, self._rounds(job, names, rounds))
            self._judged("trim", size, referee, job)

    def _loops(self, referee: Worker) -> None:
        plan, shape = self.plan, self.plan.loop()
        self._tokens(referee, shape)
        job: dict[str, Any] = {
            "op": "loop", "transcript": self._file(shape), "turns": plan.turns,
            "limit_s": plan.limit_s / 2,
        }  # fmt: skip
        rounds = min(3, plan.rounds)
        self._table("loop", plan.turns, self._rounds(job, self.names, rounds))
        job |= {"op": "manage", "window": plan.window, "output": plan.output}
        names = [name for name in self.names if name in peers.TRIMMING]
        self._table("manage", plan.turns, self._rounds(job, names, rounds))
        self._judged("manage", plan.turns, referee, job | {"budget": plan.window - plan.output})

    def _sweep(self, referee: Worker) -> None:
        table = self.results["sweep"] = {}
        for name in self.names:
            if name not in peers.TRIMMING:
                continue
            for shape in SWEPT:
                full = self._tokens(referee, shape)
                steps = range(2, 40, 38 // self.plan.budgets)
                job: dict[str, Any] = {
                    "op": "sweep", "transcript": self._file(shape), "out": self._out(name),
                    "budgets": [full * step // 40 for step in steps],
                }  # fmt: skip
                self._say(f"sweep {name}, {shape.name}")
                with self._worker(name) as worker:
                    done = worker.ask(job, 5 * self.plan.limit_s)
                if done:
                    table.setdefault(name, {})[shape.name] = None
                else:
                    judged = referee.ask(job | {"op": "verdicts"}, START_S)
                    table.setdefault(name, {})[shape.name] = judged

    def _kinds(self) -> None:
        table = self.results["kinds"] = {}
        for name in self.names:
            if name == peers.SAME_COUNTS:
                continue
            with self._worker(name) as worker:
                table[name] = worker.ask({"op": "kinds"}, START_S)

    def _imports(self) -> None:
        table: dict[str, Any] = {}
        for _ in range(1 + self.plan.rounds):
            for home, statements in peers.IMPORTS.items():
                for label, statement in statements.items():
                    reading = self._import(home, statement)
                    if reading:
                        table.setdefault(label, []).append(reading)
        # the first round writes byte code and warms the disk
        self.results["imports"] = {
            label: {"s": [s for s, _ in readings[1:]], "modules": readings[-1][1]}
            for label, readings in table.items()
        }

    def _import(self, home: str, statement: str) -> tuple[float, int] | None:
        python = self._pythons[home]
        if python is None:
            return None
        script = f"exec({PROBE.format(statement)!r})"
        done = subprocess.run(
            [python, "-c", script], env=venvs.environment(home), cwd=venvs.ROOT,
            capture_output=True, text=True, check=False, timeout=START_S,
        )  # fmt: skip
        if done.returncode:
            self._say(f"   {statement!r} failed: {done.stderr[-300:]}")
            return None
        seconds, modules = done.stdout.split()[-2:]
        return float(seconds), int(modules)

    def _rounds(
        self, job: dict[str, Any], names: Sequence[str], rounds: int
    ) -> Iterator[tuple[str, Answer]]:
        over: set[str] = set()
        for number in range(rounds):
            turned = number % len(names)
            for name in [*names[turned:], *names[:turned]]:
                if name in over:
                    continue
                with self._worker(name) as worker:
                    answer = worker.ask(job | {"out": self._out(name)}, self.plan.limit_s)
                yield name, answer
                if any(not isinstance(v, int | float) or v > SLOW_S for v in _seconds(answer)):
                    over.add(name)

    def _table(self, op: str, size: int, readings: Iterator[tuple[str, Answer]]) -> None:
        """Gather the readings of rounds: lists of seconds, and what came last of all else."""
        table = self.results.setdefault(op, {}).setdefault(str(size), {})
        for name, answer in readings:
            row = table.setdefault(name, {})
            for key, value in answer.items():
                if key.endswith("_s"):
                    row.setdefault(key, []).append(value)
                else:
                    row[key] = value
            self._say(f"{op} {size} {name}: {answer}")

    def _judged(self, op: str, size: int, referee: Worker, job: dict[str, Any]) -> None:
        for name, row in self.results[op][str(size)].items():
            if "cut" in row or "error" in row:
                continue
            transcript_file = job["transcript"]
            if op == "manage":
                transcript_file = self._turned(transcript_file, row["turns"])
            asked = {
                "op": "verdict", "transcript": transcript_file, "out": self._out(name),
                "budget": job["budget"],
            }  # fmt: skip
            row["verdict"] = referee.ask(asked, START_S)

    def _turned(self, file: str, turns: int) -> str:
        """Return a file with the history as it was after so many turns."""
        history: list[Any] = []
        for turn in list(transcript.turns(json.loads(Path(file).read_text())))[:turns]:
            history += turn
        cut = self.folder / "turned.json"
        cut.write_text(json.dumps(history))
        return str(cut)

    def _tokens(self, referee: Worker, shape: Shape) -> int:
        """Return the judge's count of a whole transcript."""
        tokens: dict[str, int] = self.results["tokens"]
        if shape.name not in tokens:
            job = {"op": "count", "transcript": self._file(shape)}
            tokens[shape.name] = referee.ask(job, START_S)["tokens"]
        return tokens[shape.name]

    def _file(self, shape: Shape) -> str:
        file = self.folder / f"{shape.name}.json"
        if not file.exists():
            file.write_text(json.dumps(transcript.write(shape)))
        return str(file)

    def _out(self, name: str) -> str:
        return str(self.folder / f"out-{name.replace(' ', '-')}.json")

    def _worker(self, name: str) -> Worker:
        home = peers.HOMES[name][0]
        python = self._pythons[home]
        assert python is not None
        worker = Worker(name, python, self.folder / "errors.txt")
        versions = worker.versions()
        if "error" in versions or "cut" in versions:
            raise SystemExit(f"{name} does not start: see {self.folder / 'errors.txt'}")
        self.results["versions"].setdefault(home, versions)
        return worker

    def _say(self, text: str) -> None:
        print(text, flush=True)


def cpu_s(process: int) -> float:
    """Return the CPU seconds a process has used; 0 where the system does not tell."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _seconds(answer: Answer) -> Iterator[Any]:
    """Yield the times of an answer, or what it has instead of any."""
    times = [value for key, value in answer.items() if key.endswith("_s")]
    yield from times or [None]

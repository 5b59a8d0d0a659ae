"""Runs the workloads: peers, order, number of readings, and time limits.

Each reading comes from a fresh process. Each round covers all peers before the next begins, and
starts with another peer, so a slow minute of the machine affects all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import peers, transcript, venvs
from bench.transcript import Shape
from bench.workers import START_S, Answer, Worker

Results = dict[str, Any]

SLOW_S: Final = 10
"""Seconds above which a reading is taken only once."""

REFEREE: Final = "tiktoken"

READINGS: Final = ("_s", "_mb")
"""Suffixes of the keys of readings, of which the page takes medians."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Amounts to measure: `limit_s` is CPU seconds for one job, sizes are in messages."""

    sizes: Sequence[int] = (200, 2_000, 20_000)
    rounds: int = 5
    turns: int = 500
    window: int = 100_000
    output: int = 4_000
    budgets: int = 38
    limit_s: float = 60
    texts: int = 3_000
    letters: int = 1_000_000
    letters_limit_s: float = 15
    grown: int = 1_000_000
    held: int = 20_000
    viewed: int = 2_000
    after: Sequence[int] = (2_000, 5_000, 10_000, 20_000)
    after_limit_s: float = 30
    covered: int = 2_000
    windows: Sequence[int] = (4_096, 8_192, 32_768)
    sessions: int = 2
    session_turns: int = 60
    shares: Sequence[float] = (0.05, 0.1, 0.2)
    chain_limit_s: float = 30
    summarizer: str = ""
    summarizer_model: str = ""
    model_sessions: int = 1
    model_turns: int = 20
    model_authors: int = 2
    model_shares: Sequence[float] = (0.2,)
    session_mb: float = 20
    asked: int = 4
    searched: int = 100_000
    worked: Sequence[int] = (16_000, 32_000, 64_000)
    agents: int = 3
    names: Sequence[str] = tuple(peers.HOMES)

    def loop(self) -> Shape:
        """Return the shape of the transcript that has enough turns."""
        return Shape(max(60, self.turns * 4))


QUICK: Final = Plan(
    sizes=(200,), rounds=1, turns=60, window=8_000, output=500, budgets=3, limit_s=30, texts=300,
    letters=50_000, letters_limit_s=3, grown=100_000, held=500, viewed=200, session_mb=1,
    after=(200,), covered=200, windows=(4_096,), sessions=1, session_turns=15, shares=(0.2,),
    asked=1, searched=2_000, worked=(16_000,), agents=1,
)  # fmt: skip

SWEPT: Final = (Shape(200), Shape(200, end="tool"), Shape(200, end="tool", single_user=True))


class Bench:
    """Measures by a plan, with scratch files in `folder`; adds to `results`."""

    def __init__(self, plan: Plan, folder: Path, results: Results) -> None:
        self.plan = plan
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.pythons = {home: venvs.ready(home) for home in [venvs.BASE, *peers.LIBRARIES]}
        if self.pythons[venvs.BASE] is None:
            raise SystemExit("the judge could not be set up; without it nothing is measured")
        venvs.vocabulary()
        self.names = [n for n in plan.names if self.pythons[peers.home(n)] is not None]
        self.results: Results = {"versions": {}, "tokens": {}, **results}

    def counting(self) -> None:
        """Count histories of all sizes."""
        for size in self.plan.sizes:
            job = {"op": "count", "transcript": self.file(Shape(size))}
            self.table("count", size, self._rounds(job, self.names, self.often(size)))

    def trimming(self) -> None:
        """Trim histories of all sizes to half; a peer that was cut off gets no larger one."""
        names = self.trimmers()
        with self.referee() as referee:
            for size in self.plan.sizes:
                shape = Shape(size)
                half = self.tokens(referee, shape) // 2
                job = {"op": "trim", "transcript": self.file(shape), "budget": half}
                self.table("trim", size, self._rounds(job, names, self.often(size)))
                rows = self.results["trim"][str(size)]
                self.judged("trim", size, referee, job)
                names = [name for name in names if "cut" not in rows[name]]
                gone = {name: {"cut": self.plan.limit_s} for name in self.trimmers()}
                self.results["trim"][str(size)] = {**gone, **rows}

    def loops(self) -> None:
        """Let an agent take many turns: counting, and managing a window."""
        plan, shape = self.plan, self.plan.loop()
        job: dict[str, Any] = {
            "op": "loop", "transcript": self.file(shape), "turns": plan.turns,
            "limit_s": plan.limit_s / 2,
        }  # fmt: skip
        rounds = min(3, plan.rounds)
        self.table("loop", plan.turns, self._rounds(job, self.names, rounds))
        job |= {"op": "manage", "window": plan.window, "output": plan.output}
        self.table("manage", plan.turns, self._rounds(job, self.trimmers(), rounds))
        with self.referee() as referee:
            budget = plan.window - plan.output
            self.judged("manage", plan.turns, referee, job | {"budget": budget})

    def sweep(self) -> None:
        """Trim three transcripts to many budgets; ullage also without a block."""
        names = [*(n for n in peers.AFTER if n == peers.ALONE), *self.trimmers()]
        with self.referee() as referee:
            self.results["sweep"] = {name: self._swept(name, referee) for name in names}

    def kinds(self) -> None:
        """Count texts of each kind."""
        table = self.results["kinds"] = {}
        for name in self.names:
            if name not in peers.SAME_COUNTS:
                with self.worker(name) as worker:
                    table[name] = worker.ask({"op": "kinds"}, START_S)

    def _swept(self, name: str, referee: Worker) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for shape in SWEPT:
            full = self.tokens(referee, shape)
            steps = range(2, 40, 38 // self.plan.budgets)
            job: dict[str, Any] = {
                "op": "sweep", "transcript": self.file(shape), "out": self.out(name),
                "budgets": [full * step // 40 for step in steps],
            }  # fmt: skip
            self.say(f"sweep {name}, {shape.name}")
            with self.worker(name) as worker:
                failed = worker.ask(job, 5 * self.plan.limit_s)
            judged = None if failed else referee.ask(job | {"op": "verdicts"}, START_S)
            table[shape.name] = judged
        return table

    def trimmers(self) -> list[str]:
        """Return the peers that trim."""
        return [name for name in self.names if name in peers.TRIMMING]

    def often(self, size: int) -> int:
        """Return how many readings to take of a history of this size."""
        return self.plan.rounds if size < 10_000 else min(3, self.plan.rounds)

    def _rounds(
        self, job: dict[str, Any], names: Sequence[str], rounds: int, limit_s: float | None = None
    ) -> Iterator[tuple[str, Answer]]:
        limit_s = limit_s or self.plan.limit_s
        over: set[str] = set()
        for name in self.order(names, rounds):
            if name in over:
                continue
            with self.worker(name) as worker:
                answer = worker.ask(job | {"out": self.out(name)}, limit_s)
            yield name, answer
            if slow(answer):
                over.add(name)

    def order(self, names: Sequence[str], rounds: int) -> Iterator[str]:
        """Yield every name in every round; each round begins with another."""
        for number in range(rounds if names else 0):
            turned = number % len(names)
            yield from [*names[turned:], *names[:turned]]

    def measured(
        self,
        job: dict[str, Any],
        size: int,
        names: Sequence[str],
        rounds: int,
        limit_s: float | None = None,
    ) -> None:
        """Measure a job in rounds over peers and keep the readings under its name and size."""
        self.table(job["op"], size, self._rounds(job, names, rounds, limit_s))

    def table(self, op: str, size: int | str, readings: Iterator[tuple[str, Answer]]) -> None:
        """Gather the readings of rounds: lists of seconds, and the last value of other keys."""
        table = self.results.setdefault(op, {}).setdefault(str(size), {})
        for name, answer in readings:
            row = table.setdefault(name, {})
            for key, value in answer.items():
                if key.endswith(READINGS):
                    row.setdefault(key, []).append(value)
                else:
                    row[key] = value
            self.say(f"{op} {size} {name}: {answer}")

    def judged(self, op: str, size: int, referee: Worker, job: dict[str, Any]) -> None:
        """Let the judge check the results of a job, one per peer."""
        for name, row in self.results[op][str(size)].items():
            if "cut" in row or "error" in row:
                continue
            transcript_file = job["transcript"]
            if op == "manage":
                transcript_file = self._turned(transcript_file, row["turns"])
            asked = {
                "op": "verdict", "transcript": transcript_file, "out": self.out(name),
                "budget": job["budget"],
            }  # fmt: skip
            row["verdict"] = referee.ask(asked, START_S)

    def _turned(self, file: str, turns: int) -> str:
        """Return a file with the history after this many turns."""
        history: list[Any] = []
        for turn in list(transcript.turns(json.loads(Path(file).read_text())))[:turns]:
            history += turn
        cut = self.folder / "turned.json"
        cut.write_text(json.dumps(history))
        return str(cut)

    def tokens(self, referee: Worker, shape: Shape) -> int:
        """Return the judge's count of a whole transcript."""
        tokens: dict[str, int] = self.results["tokens"]
        if shape.name not in tokens:
            job = {"op": "tokens", "transcript": self.file(shape)}
            tokens[shape.name] = referee.ask(job, START_S)["tokens"]
        return tokens[shape.name]

    def homes(self) -> set[str]:
        """Return the environments that exist."""
        return {home for home, python in self.pythons.items() if python is not None}

    def file(self, shape: Shape) -> str:
        """Return the file that holds a transcript; write it if necessary."""
        file = self.folder / f"{shape.name}.json"
        if not file.exists():
            file.write_text(json.dumps(transcript.write(shape)))
        return str(file)

    def out(self, name: str) -> str:
        """Return the file that a peer writes its results to."""
        return str(self.folder / f"out-{name.replace(' ', '-')}.json")

    def worker(self, name: str, module: str = "bench.worker") -> Worker:
        """Start a process that holds a peer."""
        home = peers.home(name)
        python = self.pythons[home]
        assert python is not None
        worker = Worker(name, python, self.folder / "errors.txt", module)
        versions = worker.versions()
        if "error" in versions or "cut" in versions:
            raise SystemExit(f"{name} does not start: see {self.folder / 'errors.txt'}")
        self.results["versions"][home] = versions
        return worker

    def referee(self) -> Worker:
        return self.worker(REFEREE)

    def say(self, text: str) -> None:
        """Report progress."""
        print(text, flush=True)


def slow(answer: Answer) -> bool:
    """Return whether a job was cut off, failed, or took so long that once is enough."""
    times = [value for key, value in answer.items() if key.endswith("_s")]
    return "cut" in answer or "error" in answer or max(times, default=0) > SLOW_S

"""Measures what an agent reads again after a window was fitted.

A made-up agent works on one part of a checkout after another. Each step needs a line of a file. If
the request contains that line, the agent goes on. Otherwise it reads the file, again if it must. So
each way to fit a window gets the calls that it causes. No model is asked.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import ullage
from bench import content
from bench.cells import table
from bench.measure import Bench
from bench.peers import History, Message
from bench.peers.ours import MODEL
from ullage.core.compaction.aftermath import NEAR
from ullage.core.dialects.usage import Usage
from ullage.storage import MemoryStore

OUTPUT: Final = 1_000
FILES: Final = 160
PART: Final = 15
"""Answers until the work moves on, to two earlier files and three new ones."""

OURS: Final = "ullage"
TAIL: Final = "newest that fit"
CUT: Final = "newest to 60 %, from 80 %"

Fit = Callable[[History], History]


class Agent:
    """Works for a number of answers, and counts the files that it must read again."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"aftermath {seed}")
        self.files = dict(_write_file(rng, number) for number in range(FILES))
        self.history: History = [{"role": "system", "content": "You are a coding agent."}]
        self.needed: list[str] = []
        self.known: list[str] = []
        self.read: dict[str, int] = {}
        """Files that were read, each with the position of its last result."""
        self.again: list[int] = []
        """The answers in which a file was read again."""

    def work(self, answers: int, fit: Fit) -> None:
        """Give this many answers, each to the request that `fit` makes of the history."""
        for answer in range(answers):
            if answer % PART == 0:
                self.history.append(self._ask())
            shown = json.dumps(fit(self.history), ensure_ascii=False)
            self._answer(answer, shown)

    def _ask(self) -> Message:
        """Return a person's next request."""
        new = [path for path in self.files if path not in self.known]
        old = self.rng.sample(self.known, min(2, len(self.known)))
        self.needed = old + self.rng.sample(new, 3)
        said = content.remark(self.rng, "Please {deed} the {thing} next.")
        return {"role": "user", "content": f"{said} See {', '.join(self.needed)}."}

    def _answer(self, answer: int, shown: str) -> None:
        path = self.rng.choice(self.needed)
        lines, place = self.files[path]
        line = lines[place]
        if line not in shown:
            self._read(answer, path)
        elif self.rng.random() < 0.3:
            new = f"{line.partition(' = ')[0]} = {self.rng.randrange(1_000, 100_000)}"
            lines[place] = new
            self._call("edit", {"path": path, "old": line, "new": new}, "1 file changed")
        else:
            command = f"pytest -q tests/test_{path.rpartition('/')[2]}"
            told = content.run_output(self.rng, self.rng.randint(200, 2_500))
            self._call("run", {"command": command}, told, f"With {line} the bound holds.")

    def _read(self, answer: int, path: str) -> None:
        if path in self.read:
            self.again.append(answer)
        else:
            self.known.append(path)
        self._call("read_file", {"path": path}, "\n".join(self.files[path][0]))
        self.read[path] = len(self.history) - 1

    def _call(self, name: str, arguments: Message, result: str, said: str | None = None) -> None:
        ident = f"call_{len(self.history):05}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": ident, "type": "function", "function": function}
        self.history += [
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": ident, "content": result},
        ]


def _write_file(rng: random.Random, number: int) -> tuple[str, tuple[list[str], int]]:
    """Return a file's path, its lines, and the index of the needed line."""
    lines = content.source(rng, rng.randint(1_500, 6_000)).split("\n")
    place = rng.randrange(len(lines))
    lines.insert(place, f"{content.word(rng).upper()}_{number} = {rng.randrange(1_000, 100_000)}")
    return f"app/{content.word(rng)}_{number}.py", (lines, place)


class Followed:
    """A way to fit a window, and a record of what left the requests and when.

    A break is a request that does not begin with the previous request. `silent` counts the breaks
    without a compaction. `left` counts messages whose original text left the requests.
    """

    def __init__(self, fit: Callable[[History], tuple[History, bool]]) -> None:
        self._fit = fit
        self._before: list[str] = []
        self._said: set[str] = set()
        self._read = 0
        self.answers = 0
        self.breaks: list[int] = []
        self.silent = 0
        self.left: Counter[str] = Counter()

    def __call__(self, history: History) -> History:
        self._said.update(json.dumps(m, sort_keys=True) for m in history[self._read :])
        self._read = len(history)
        sent, compacted = self._fit(history)
        now = [json.dumps(message, sort_keys=True) for message in sent]
        if now[: len(self._before)] != self._before:
            self.breaks.append(self.answers)
            self.silent += not compacted
            gone = self._said.intersection(self._before).difference(now)
            self.left.update(json.loads(text)["role"] for text in gone)
        self._before = now
        self.answers += 1
        return sent


def aftermath(bench: Bench) -> None:
    """Let agents work in windows of several sizes, each fitted in several ways."""
    plan = bench.plan
    rows: dict[str, dict[str, int]] = {}
    for window in plan.worked:
        for name in (OURS, TAIL, CUT):
            counted: Counter[str] = Counter()
            for seed in range(plan.agents):
                counted.update(_follow(name, window, seed, plan.turns))
            rows[f"{window} {name}"] = dict(counted)
            bench.say(f"aftermath {window:,} {name}: {dict(counted)}")
    bench.results["aftermath"] = {"rows": rows, "agents": plan.agents, "answers": plan.turns}


def _follow(name: str, window: int, seed: int, answers: int) -> Mapping[str, int]:
    """Return how often an agent read files again, and how much had left."""
    told: Counter[str] = Counter()
    fit = Followed(_guard(window, told) if name == OURS else _trim(window, whole=name == TAIL))
    agent = Agent(seed)
    agent.work(answers, fit)
    near = sum(any(0 <= at - then < NEAR for then in fit.breaks) for at in agent.again)
    return {
        "compactions": len(fit.breaks), "again": len(agent.again), "near": near,
        "results": fit.left["tool"], "left": fit.left.total(), "silent": fit.silent,
        "faults": told["CompactionFault"], "busts": told["CacheBust"], "reads": len(agent.read),
    }  # fmt: skip


def _guard(window: int, told: Counter[str]) -> Callable[[History], tuple[History, bool]]:
    """Return ullage's guard, which gets the usage and cached tokens of each request."""

    def note(event: object) -> None:
        told[type(event).__name__] += 1

    guard = ullage.Guard(MODEL, window=window, store=MemoryStore(), on_event=note)
    before: History = []

    def fit(history: History) -> tuple[History, bool]:
        view = guard.prepare(history, max_tokens=OUTPUT)
        sent = list(view.messages)
        size, cached = _count(sent), 0
        if sent[: len(before)] == before:
            cached = _count(before) if before else 0
        view.observe(Usage(size - cached, cache_read=cached, output=60))
        before[:] = sent
        return sent, view.compaction is not None and view.compaction.changed

    return fit


def _trim(window: int, *, whole: bool) -> Callable[[History], tuple[History, bool]]:
    """Return a rule that keeps the newest messages: all that fit, or down to a mark."""
    sizes: dict[int, int] = {}
    room, start = window - OUTPUT, 1

    def size(history: History, place: int) -> int:
        if place not in sizes:
            sizes[place] = _count([history[place]])
        return sizes[place]

    def fit(history: History) -> tuple[History, bool]:
        nonlocal start
        total = sum(size(history, place) for place in range(start, len(history)))
        first, most = start, room if whole else room * 0.8
        least = room if whole else room * 0.6
        while total > most or (start > first and total > least):
            total -= size(history, start)
            start += 1
        while history[start]["role"] == "tool":
            start += 1
        return history[:1] + history[start:], start > first

    return fit


def _count(messages: Sequence[Message]) -> int:
    return int(ullage.count(list(messages), model=MODEL))


# --- the page -------------------------------------------------------------------------------------


def shown(results: Mapping[str, Any]) -> str:
    """Return the section on what is read again."""
    found = results["aftermath"]
    return (
        f"## What is asked for again\n\n{found['agents']} made-up agents in each window "
        f"(`bench/aftermath.py`), {found['answers']:,} answers each: one works on five files, for "
        f"{PART} answers, then on three new ones and two of before. At each step it needs a line "
        "of a file. Where that stands in the request it edits or tests, else it reads the file. So "
        "each way to fit the window meets the reads that it causes. A *break* is a request that "
        "does not begin with the one before: the provider's cache is lost from there on. *Left* "
        "are messages that were no longer shown as they were said, *read* the files, and *again* "
        f"how often one was read once more. *Near* are these in the {NEAR} answers behind a break, "
        "with their share of the results that had left. *Faults* are `CompactionFault`s and their "
        "share of what had left. *Silent* are breaks without a compaction, and `CacheBust`s:\n\n"
        + table(
            ["window", "", "breaks", "left", "read", "again", "near", "faults", "silent"],
            _list_rows(found["rows"]),
        )
    )


def _list_rows(rows: Mapping[str, Mapping[str, int]]) -> Iterator[list[str]]:
    for key, row in rows.items():
        window, _, name = key.partition(" ")
        ours = name == OURS
        yield [
            f"{int(window):,}", name, f"{row['compactions']:,}", f"{row['left']:,}",
            f"{row['reads']:,}", f"{row['again']:,}", _share(row["near"], row["results"]),
            _share(row["faults"], row["left"]) if ours else "-",
            f"{row['silent'] + row['busts']:,}" if ours else "-",
        ]  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else f"{part:,} of 0"

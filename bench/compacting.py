"""Compares compaction with its peers: trims after counting, and what a summarizer is shown.

A trim is timed in a process that counted the same history once before, with each library's own
call. Only requests and results are read, not how they were made.
"""

from __future__ import annotations

import json
from typing import Any, Final

from bench import peers, transcript
from bench.measure import Bench
from bench.transcript import Shape
from bench.workers import START_S

OURS: Final = "ullage"


def after(bench: Bench) -> None:
    """Trim a counted history to half, at sizes that show how the cost grows."""
    plan = bench.plan
    names = [*peers.AFTER, *(n for n in bench.trimmers() if n != OURS)]
    names = [name for name in names if peers.home(name) in bench.homes()]
    table: dict[str, Any] = {}
    with bench.referee() as referee:
        for size in plan.after:
            shape = Shape(size)
            half = bench.tokens(referee, shape) // 2
            job = {"op": "after", "transcript": bench.file(shape), "budget": half}
            bench.measured(job, size, names, min(3, plan.rounds), plan.after_limit_s)
            table = bench.results["after"]
            bench.judged("after", size, referee, job)
            rows = table[str(size)]
            names = [name for name in names if "cut" not in rows[name]]
            gone = {name: {"cut": plan.after_limit_s} for name in next(iter(table.values()))}
            table[str(size)] = {**gone, **rows}


def cover(bench: Bench) -> None:
    """Compact a marked history with summarizers of several windows; report what they were shown."""
    plan = bench.plan
    rows: dict[str, Any] = {}
    shapes = (Shape(plan.covered), Shape(plan.covered, end="tool", single_user=True))
    with bench.referee() as referee:
        for shape in shapes:
            file = bench.folder / f"marked-{shape.name}.json"
            file.write_text(json.dumps(marked(transcript.write(shape))), encoding="utf-8")
            asked: dict[str, Any] = {"transcript": str(file), "out": bench.out(OURS)}
            asked["budget"] = referee.ask({"op": "tokens", **asked}, START_S)["tokens"] // 5
            for window in plan.windows:
                job = {"op": "cover", **asked, "window": window}
                with bench.worker(OURS) as worker:
                    answer = worker.ask(job, plan.limit_s)
                if "cut" not in answer and "error" not in answer:
                    answer |= referee.ask(job | {"op": "covered"}, START_S)
                rows[f"{shape.name}/{window}"] = answer
                bench.say(f"cover {shape.name} {window}: {answer}")
    bench.results["cover"] = rows


def marked(messages: list[transcript.Message]) -> list[transcript.Message]:
    """Return the messages, each text except the system's marked at its head and tail."""
    return [
        {**m, "content": f"[[H{i:05}]] {m['content']} [[T{i:05}]]"}
        if m.get("content") and m["role"] != "system"
        else m
        for i, m in enumerate(messages)
    ]

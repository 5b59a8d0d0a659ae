"""Compares counters of plain text: throughput, short texts, one letter, appends.

In each round, one fresh process per counter does all of these. The history comes first, so its
texts are new to the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench import peers
from bench.measure import Bench, slow
from bench.transcript import Shape

APPENDING: Final = ("ullage, counter alone", "ullage.count_text", "toktok-rs", "tiktoken")
"""The counters that are measured on appends; the others recount, like toktok-rs and tiktoken."""


def texts(bench: Bench) -> None:
    """Measure loading, a whole history, short texts, and one letter many times over."""
    plan = bench.plan
    limit_s = plan.limit_s
    jobs: Mapping[str, tuple[dict[str, Any], float]] = {
        "loaded": ({}, limit_s),
        "history": ({"transcript": bench.file(Shape(plan.texts))}, limit_s),
        "short": ({}, limit_s),
        "letter": ({"letters": plan.letters}, plan.letters_limit_s),
    }
    _asked(bench, "texts", jobs, list(peers.TEXTS))


def appending(bench: Bench) -> None:
    """Measure appends to a long text, with its tokens after each."""
    jobs = {"append": ({"grown": bench.plan.grown}, bench.plan.limit_s)}
    _asked(bench, "append", jobs, APPENDING)


def _asked(
    bench: Bench, table: str, jobs: Mapping[str, tuple[dict[str, Any], float]], names: Sequence[str]
) -> None:
    """Send all jobs to a process of each counter in every round, and keep the readings."""
    over: set[tuple[str, str]] = set()
    names = [name for name in names if bench.pythons[peers.home(name)] is not None]
    for name in bench.order(names, bench.plan.rounds):
        with bench.worker(name, "bench.textworker") as worker:
            for op, (job, limit_s) in jobs.items():
                if (name, op) in over:
                    continue
                answer = worker.ask({"op": op, **job}, limit_s)
                bench.table(table, op, iter([(name, answer)]))
                if slow(answer):
                    over.add((name, op))
                if "cut" in answer or "error" in answer:
                    break  # this worker does not answer any more

"""Measures what a known history costs: an agent's loop, and one more turn of a long session.

As a program, it is the worker that takes the turns. For comparison, tiktoken recounts the same loop
in the same rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any, Final

import ullage
from bench import peers, transcript, venvs, worker
from bench.cells import Row, ms, table
from bench.measure import REFEREE, Bench
from bench.transcript import Shape
from bench.worker import Answer, Job, answer_all
from ullage.guard.view import View

LONG: Final = 2_000
"""Messages of the long session that is continued."""

MORE: Final = 200
"""Messages added to the long session."""

WIDE: Final = 1_000_000
"""Tokens of a window in which nothing is compacted."""

MODEL: Final = "gpt-4o"


def known(bench: Bench) -> None:
    """Measure the loop in a window that fills repeatedly, and a further turn."""
    plan = bench.plan
    job = {"transcript": bench.file(plan.loop()), "turns": plan.turns, "limit_s": plan.limit_s}
    long = bench.file(Shape(min(LONG, plan.turns * 4)))
    for _ in range(min(3, plan.rounds)):
        for label, window in (("filled", plan.window), ("wide", WIDE)):
            told = job | {"op": "take", "window": window, "output": plan.output}
            _ask(bench, label, venvs.OURS, "bench.known", told)
            told |= {"op": "go_on", "transcript": long}
            _ask(bench, f"{label}, long", venvs.OURS, "bench.known", told)
        if REFEREE in bench.names:
            _ask(bench, "recount", REFEREE, "bench.worker", job | {"op": "loop"})


def _ask(bench: Bench, label: str, name: str, module: str, job: Job) -> None:
    with bench.worker(name, module) as found:
        answer = found.ask(job, bench.plan.limit_s)
    bench.table("known", label, iter([(name, answer)]))


def take(guard: ullage.Guard, job: Job) -> Answer:
    """Take turn after turn: prepare the request, and learn from a report of its size."""
    history: list[Any] = []
    spent, compacted, learned = [], 0.0, 0.0
    count = 0
    gc.collect()
    for turn in list(transcript.turns(worker.load_messages(job["transcript"])))[: job["turns"]]:
        history += turn
        view, prepare_s, observe_s = _turn(guard, history, job["output"])
        spent.append(prepare_s)
        learned += observe_s
        if view.compaction is not None:
            compacted += prepare_s
            count += 1
    return {
        "loop_s": sum(spent) + learned,
        "compacted_s": compacted,
        "observed_s": learned,
        "compactions": count,
        "messages": len(history),
        **_spread(spent),
    }


def go_on(guard: ullage.Guard, job: Job) -> Answer:
    """Continue a long known session, one message at a time."""
    history = worker.load_messages(job["transcript"])
    messages = len(history)
    for end in range(2, messages, 50):  # grow it, with compactions on the way
        if history[end]["role"] != "tool":
            _turn(guard, history[:end], job["output"])
    _turn(guard, history, job["output"])
    spent = []
    gc.collect()
    for number in range(MORE):
        role = "assistant" if number % 2 == 0 else "user"
        history.append({"role": role, "content": f"Step {number} is done."})
        spent.append(_turn(guard, history, job["output"])[1])
    return {"messages": messages, **_spread(spent)}


def _turn(guard: ullage.Guard, history: list[Any], output: int) -> tuple[View, float, float]:
    """Return a view, the CPU seconds of its preparation, and those of learning from its report."""
    start = time.process_time()
    view = guard.prepare(history, max_tokens=output)
    middle = time.process_time()
    usage = {"prompt_tokens": view.prepared.count.tokens, "completion_tokens": 50}
    begin = time.process_time()
    view.observe({"usage": usage})
    return view, middle - start, time.process_time() - begin


def _spread(spent: list[float]) -> Answer:
    ordered = sorted(spent)
    return {"p50_s": ordered[len(ordered) // 2], "p90_s": ordered[len(ordered) * 9 // 10]}


def shown(results: Mapping[str, Any]) -> str:
    """Return the section on a known history: the whole loop, and one turn."""
    found: Mapping[str, Mapping[str, Row]] = results["known"]
    plan = results["plan"]
    ours = {label: rows[venvs.OURS] for label, rows in found.items() if venvs.OURS in rows}
    windows = {"filled": f"a window of {plan['window']:,} tokens", "wide": "nothing compacted"}
    loops = [
        [
            windows[label],
            *(ms(ours[label], key) for key in ("loop_s", "compacted_s", "observed_s")),
            *(ms(ours[label], key) for key in ("p50_s", "p90_s")),
        ]
        for label in windows
    ]
    recount = found.get("recount", {}).get(REFEREE)
    longs = [
        [windows[label], *(ms(ours[f"{label}, long"], key) for key in ("p50_s", "p90_s"))]
        for label in windows
    ]
    size = ours["wide, long"]["messages"]
    return (
        f"## A history that is known\n\nAn agent of {plan['turns']} turns that prepares each "
        "request and learns from its report, ms of CPU; in the same rounds, tiktoken counting "
        f"the history anew each turn took {ms(recount, 'loop_s')} ms:\n\n"
        + table(["", "all", "of it compacting", "learning", "p50 a prepare", "p90"], loops)
        + f"\nOne message more behind a session of {size:,}, ms of CPU a prepare:\n\n"
        + table(["", "p50", "p90"], longs)
    )


def main() -> None:
    """Answer jobs, each with its own guard, in a process that has loaded its vocabulary."""
    warm = make_guard(2_000)
    for size in (30, 60):
        _turn(warm, transcript.write(Shape(size, seed=9)), 10)
    jobs = {"take": take, "go_on": go_on}
    answer_all(
        {
            "versions": worker.versions,
            **{name: _with_guard(job) for name, job in jobs.items()},
        },
        lambda: peers.load(venvs.OURS),
    )


def make_guard(window: int) -> ullage.Guard:
    """Return a guard with this window."""
    return ullage.Guard(MODEL, window=window)


def _with_guard(job: Any) -> Any:
    return lambda _, told: job(make_guard(told["window"]), told)


if __name__ == "__main__":
    main()

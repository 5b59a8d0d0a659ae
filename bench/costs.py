"""Measures costs of ullage and its peers apart from counting: memory, imports, context view."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Final

from bench import claude, peers, venvs
from bench.measure import Bench
from bench.transcript import Shape
from bench.workers import START_S

WINDOW: Final = 200_000

PROBE: Final = (
    "import sys, time; start = time.process_time(); {}; "
    "print(time.process_time() - start, len(sys.modules))"
)


def memory(bench: Bench) -> None:
    """Hold and count one long session in each peer's types, once, since memory hardly varies."""
    size = bench.plan.held
    job = {"op": "held", "transcript": bench.file(Shape(size))}
    bench.measured(job, size, bench.names, 1)


def imports(bench: Bench) -> None:
    """Import in fresh processes."""
    table: dict[str, Any] = {}
    for _ in range(1 + bench.plan.rounds):
        for home, statements in peers.IMPORTS.items():
            for label, statement in statements.items():
                reading = _import(bench, home, statement)
                if reading:
                    table.setdefault(label, []).append(reading)
    # the first round writes byte code and warms the disk
    bench.results["imports"] = {
        label: {"s": [s for s, _ in readings[1:]], "modules": readings[-1][1]}
        for label, readings in table.items()
    }


def context(bench: Bench) -> None:
    """Measure the context view of a list of messages and of a session file of Claude Code."""
    plan = bench.plan
    ours, window = [venvs.OURS], WINDOW
    transcript = bench.file(Shape(plan.viewed))
    job = {"op": "context", "transcript": transcript, "window": window}
    bench.measured(job, plan.viewed, ours, plan.rounds)
    file = bench.folder / f"claude-{plan.session_mb:g}.jsonl"
    if not file.exists():
        claude.write(file, plan.session_mb)
    size = file.stat().st_size
    job = {"op": "session", "session": str(file), "window": window}
    bench.measured(job, size, ours, plan.rounds)
    command = [sys.executable, "-m", "ullage.cli.main", "context", str(file)]
    command += ["--window", str(window)]
    for _ in range(plan.rounds):
        spent = _command_s(command)
        answer = {"error": "the command failed"} if spent is None else {"command_s": spent}
        bench.table("session", size, iter([(venvs.OURS, answer)]))


def _command_s(command: list[str]) -> float | None:
    """Return the CPU seconds of a command, or None if it failed."""
    before = os.times()
    done = subprocess.run(
        command, env=venvs.environment(venvs.OURS), cwd=venvs.ROOT, capture_output=True,
        check=False, timeout=START_S,
    )  # fmt: skip
    after = os.times()
    if done.returncode:
        return None
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def _import(bench: Bench, home: str, statement: str) -> tuple[float, int] | None:
    python = bench.pythons[home]
    if python is None:
        return None
    script = f"exec({PROBE.format(statement)!r})"
    done = subprocess.run(
        [python, "-c", script], env=venvs.environment(home), cwd=venvs.ROOT,
        capture_output=True, text=True, check=False, timeout=START_S,
    )  # fmt: skip
    if done.returncode:
        bench.say(f"   {statement!r} failed: {done.stderr[-300:]}")
        return None
    seconds, modules = done.stdout.split()[-2:]
    return float(seconds), int(modules)

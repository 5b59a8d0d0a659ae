"""Processes that measure: each holds one peer, answers jobs, and is stopped at a time limit.

The module does not depend on plans, rounds, or the kind of job.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench import peers, venvs

Answer = dict[str, Any]

START_S: Final = 120
PATIENCE: Final = 5
"""Multiple of `limit_s` in wall-clock time at which a sleeping or starved job is cut off."""


class Worker:
    """A peer in its own process; `module` is the program that answers."""

    def __init__(self, name: str, python: Path, errors: Path, module: str = "bench.worker") -> None:
        home = peers.home(name)
        self.name = name
        self._libraries = peers.LIBRARIES[home]
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            [python, "-m", module, name],
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
        """Send a job and return its answer, or `{"cut": limit_s}` if it took more CPU seconds.

        If the worker died, the answer is `{"error": ...}`. In both cases it answers no more jobs.
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


def cpu_s(process: int) -> float:
    """Return the CPU seconds a process has used, or 0 if the system does not tell."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""Programs that are measured: started on a core, watched from outside, ended by their own id.

CPU and memory are read from /proc, with all that a program has started in turn; where there is no
/proc they are nought. It knows nothing of what the programs do.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

PROC: Final = Path("/proc")
PATIENCE_S: Final = 10.0
HOST: Final = "127.0.0.1"


class Cores(NamedTuple):
    """The core of the driver and the upstream, and that of the proxies; None: not pinned."""

    rig: int | None
    proxy: int | None

    @classmethod
    def found(cls) -> Cores:
        """Return two cores of this machine where it has two and can pin."""
        if not hasattr(os, "sched_getaffinity"):
            return cls(None, None)
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[1]) if len(cores) > 1 else cls(None, None)


class Program:
    """A program under way. Its standard input stays open until it is to end.

    What it prints is read by `line` and `told`; of one that is not `heard` it goes to `errors`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        errors: Path,
        core: int | None,
        env: Mapping[str, str],
        *,
        heard: bool = True,
    ) -> None:
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if heard else self._errors,
            stderr=self._errors,
            env=dict(env),
            cwd=Path(__file__).parents[2],
        )
        if core is not None:
            os.sched_setaffinity(self._process.pid, {core})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is no more."""
        return self._process.poll() is not None

    def line(self) -> bytes:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def begin(self, text: bytes) -> None:
        """Tell it something, and that there is no more to come."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.close()
        self._process.stdin = None

    def told(self, text: bytes | None, limit_s: float) -> bytes:
        """Tell it something, wait for its end and return its output.

        Raises:
            TimeoutError: it took longer than `limit_s`.
        """
        try:
            out: bytes = self._process.communicate(text, limit_s)[0]
            return out
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no end after {limit_s} s") from None

    def end(self) -> None:
        """End it, and what it has started: first asked, then not."""
        _, *children = list_tree(self._process.pid)
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for child in children:
            with suppress(ProcessLookupError):  # it has gone with its parent
                os.kill(child, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._errors.close()

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used."""
        return sum(map(_cpu_s, list_tree(self._process.pid)))

    def resident_mb(self) -> float:
        """Return the megabytes of memory it holds."""
        return sum(map(_resident_mb, list_tree(self._process.pid)))


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def listening(program: Program, port: int, limit_s: float) -> bool:
    """Wait until somebody listens on the port; False where nobody does in time."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not program.ended:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return True
        time.sleep(0.1)
    return False


def list_tree(process: int) -> Iterator[int]:
    """Yield a process and all that it has started in turn."""
    yield process
    for file in PROC.glob(f"{process}/task/*/children"):
        for child in _read(file).split():
            yield from list_tree(int(child))


def _cpu_s(process: int) -> float:
    fields = _read(PROC / str(process) / "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _resident_mb(process: int) -> float:
    fields = _read(PROC / str(process) / "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if fields else 0.0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:  # it has ended since
        return ""

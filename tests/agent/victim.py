"""A program that runs turns of an agent, and is killed or stopped at any step that a job names.

Run as `python -m tests.agent.victim` it reads jobs from its input, a line of JSON each, and runs
each in a process of its own, forked from this one, which has one thread and no file open. What a
worker did it leaves in files of the job's folder: the steps it passed, the events it was told are
on disk, the keys its tool used, and how it ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, cast

from tests.agent.thinking import Asked
from tests.support.waiting import eventually
from ullage import threads
from ullage.agent import Agent, Live, Session, turning
from ullage.core.errors import BusyWriter, Fenced
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.permissions import Access
from ullage.core.session.tools import Spec, ToolOutcome
from ullage.providers import Limits, Provider
from ullage.storage import log_postgres
from ullage.storage.log import LEASE_S, EventLog, Head, Lease, Owner
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.tools import Arguments, Executor, Tool, Workspace
from ullage.tools.reading import ReadTool

SESSION: Final = "s"

WINDOW: Final = 6_000

QUICK: Final = Limits(stall_s=20.0, connect_s=5.0, attempts=3, longest_wait_s=0.01)

LONGEST_S: Final = 60
"""Seconds after which a worker is ended, whatever it does."""

FENCED: Final = 7
"""The exit code of a worker that another took over from."""

BUSY: Final = 5
"""The exit code of a worker that found another at work."""

BUMP: Final = Spec(
    name="bump",
    description="Count one up.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)


LONG: Final[Asked] = ("read", {"path": "long.txt"})
SHORT: Final[Asked] = ("read", {"path": "short.txt"})
UP: Final[Asked] = ("bump", {})

SCRIPT: Final[Sequence[Sequence[Asked]]] = (
    (UP, LONG),
    (UP,),
    (LONG, SHORT, UP, UP),
    (UP, LONG),
)
"""Calls of both kinds, alone and together, and enough text that a history is compacted."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker does: it goes on with a cut turn, or begins one with `text`.

    `anew` begins one in any case. At the `nth` time of the step `at` it gets the signal `by`.
    `folder` holds its files and the workspace, `log` is the URL of the log, `model` that of the
    model. `lease_s` is how long the log waits for a silent writer, `beat_s` how often one gives a
    sign.
    """

    folder: str
    log: str
    model: str
    text: str
    at: str = ""
    nth: int = 1
    by: int = signal.SIGKILL
    anew: bool = False
    lease_s: float = 30.0
    beat_s: float = LEASE_S / turning.BEATS

    @property
    def keeps_lock(self) -> bool:
        """Whether a worker stopped within a write keeps the lock, and all others out, for good.

        SQLite's locks are the process's. PostgreSQL ends them (`test_postgres_database`).
        """
        return self.by == signal.SIGSTOP and self.log.startswith("sqlite:")


class Came(NamedTuple):
    """What a worker came to: its process, how far, and its exit code or the signal it got."""

    pid: int
    how: Literal["ended", "killed", "stopped"]
    code: int


class Steps:
    """Count the steps of a worker, leave their names, and end or stop it at the one of its job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._passed: Counter[str] = Counter()
        self._names = _appending(job.folder, "steps")
        self._acknowledged = _appending(job.folder, "acknowledged")
        self.writing = threading.Lock()

    def __call__(self, name: str) -> None:
        """Pass a step."""
        os.write(self._names, f"{name}\n".encode())
        self._passed[name] += 1
        if (name, self._passed[name]) == (self._job.at, self._job.nth):
            with self.writing if self._job.keeps_lock else nullcontext():
                # To this very thread: it must not go on until another is met.
                signal.pthread_kill(threading.get_ident(), self._job.by)

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Leave word that these events are said to be on disk."""
        said = "".join(f"{event.seq} {event.id}\n" for event in events)
        os.write(self._acknowledged, said.encode())

    def hear(self, told: Event | Live) -> None:
        """Pass the step of an event that is published."""
        if isinstance(told, Event):
            self.acknowledge([told])
            self(f"published {told.type}")
        elif told.type != "context_pressure":
            self(f"shown {told.type}")


class Watched:
    """A log whose changes are steps; all else is the log's own."""

    def __init__(self, log: EventLog, step: Steps) -> None:
        self._log, self._step = log, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create(self, session: str, now: float) -> Head:
        self._step("create: before")
        with self._step.writing:
            made = self._log.create(session, now)
        self._step("create: after")
        return made

    def append(
        self, session: str, epoch: int, expected_head: int, drafts: Sequence[Draft], now: float
    ) -> list[Event]:
        name = "append " + "+".join(dict.fromkeys(draft.type for draft in drafts))
        self._step(f"{name}: before")
        with self._step.writing:
            events = self._log.append(session, epoch, expected_head, drafts, now)
        self._step.acknowledge(events)
        self._step(f"{name}: after")
        return events

    def acquire(self, session: str, owner: Owner, now: float) -> Lease:
        self._step("acquire: before")
        with self._step.writing:
            lease = self._log.acquire(session, owner, now)
        self._step("acquire: after")
        return lease

    def heartbeat(self, session: str, epoch: int, now: float) -> Lease:
        self._step("heartbeat: before")
        with self._step.writing:
            lease = self._log.heartbeat(session, epoch, now)
        self._step("heartbeat: after")
        return lease

    def release(self, session: str, epoch: int, now: float) -> None:
        self._step("release: before")
        with self._step.writing:
            self._log.release(session, epoch, now)
        self._step("release: after")


class Bump:
    """A tool that must not run twice: each run leaves its key on disk."""

    spec = BUMP

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def access(self, _arguments: Arguments) -> Access:
        return Access()

    async def run(self, _arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        del dry_run
        keys = _appending(self._folder, "bumps")
        os.write(keys, f"{key}\n".encode())
        os.fsync(keys)
        os.close(keys)
        return ToolOutcome("one more")


class Ticking:
    """A tool whose effect is a step."""

    def __init__(self, tool: Tool, step: Steps) -> None:
        self._tool, self._step = tool, step
        self.spec = tool.spec

    def access(self, arguments: Arguments) -> Access:
        return self._tool.access(arguments)

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        self._step(f"tool {self.spec.name}: before")
        outcome = await self._tool.run(arguments, key=key, dry_run=dry_run)
        self._step(f"tool {self.spec.name}: after")
        return outcome


# ── a folder ────────────────────────────────────────────────────────────────────────────────────


def place(folder: Path) -> Path:
    """Make a folder ready for a job."""
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "long.txt").write_text("line of a long file\n" * 400)
    (folder / "work" / "short.txt").write_text("a line\n")
    return folder


def lines(folder: Path | str, name: str) -> list[str]:
    """Return what workers left in a file."""
    file = Path(folder) / name
    return file.read_text().splitlines() if file.exists() else []


# ── a worker ────────────────────────────────────────────────────────────────────────────────────


def toolbox(folder: str) -> tuple[Tool, ...]:
    """Return the tools of a job's folder."""
    return ReadTool(Workspace(Path(folder) / "work")), Bump(folder)


def opened(url: str, lease_s: float) -> EventLog:
    """Open the log of a job."""
    if url == MemoryLog.url:
        return MemoryLog()
    if url.startswith("sqlite://"):
        return SqliteLog(Path(url.removeprefix("sqlite://")), lease_s=lease_s)
    return log_postgres.PostgresLog(url, lease_s=lease_s)


def work(job: Job) -> int:
    """Do a job; return the exit code."""
    step = Steps(job)
    setattr(turning, "find_beat", lambda _: job.beat_s)  # noqa: B010 - this process runs one job
    log = cast("EventLog", Watched(opened(job.log, job.lease_s), step))
    tools = [Ticking(tool, step) for tool in toolbox(job.folder)]
    agent = Agent(
        Provider("model", job.model, limits=QUICK),
        executor=lambda _: Executor(Path(job.folder) / "work", tools=tools),
        window=WINDOW,
    )
    ended: dict[str, Any] = {"outcome": "refused"}
    code = 0
    try:
        with _session(log) as session:
            session.hear(step.hear)
            fold = session.fold
            done = None
            if fold.turn is not None and not job.anew:
                done = agent.resume(session)
            elif job.anew or not fold.items:
                done = agent.run(session, job.text)
        ended = {"outcome": done.outcome if done else "nothing", "text": done.text if done else ""}
    except (Fenced, BusyWriter) as error:
        ended["text"] = str(error)
        code = BUSY if isinstance(error, BusyWriter) else FENCED
    log.close()
    os.write(_appending(job.folder, "ended"), (json.dumps(ended) + "\n").encode())
    return code


def _session(log: EventLog) -> Session:
    if any(head.session == SESSION for head in log.sessions()):
        return Session(log, SESSION)
    return Session.create(log, SESSION)


def _appending(folder: str, name: str) -> int:
    return os.open(Path(folder) / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)


# ── the program that forks them ─────────────────────────────────────────────────────────────────


def serve() -> None:
    """Run jobs until the input ends, then end what is still there."""
    stopped: set[int] = set()
    warm = False
    for line in sys.stdin:
        asked = json.loads(line)
        if not warm:
            _warmed(Job(**asked))
            warm = True
        pid = asked.get("continue") or _forked(Job(**asked))
        if pid in stopped:
            os.kill(pid, signal.SIGCONT)
        came = _waited(pid)
        (stopped.add if came.how == "stopped" else stopped.discard)(pid)
        sys.stdout.write(json.dumps(came) + "\n")
        sys.stdout.flush()
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _warmed(job: Job) -> None:
    """Do a job in memory, so that no worker needs to load what is loaded when it is needed."""
    idle_s = threads.IDLE_S
    setattr(threads, "IDLE_S", 0.0)  # noqa: B010 - a fork wants no thread that waits for work
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(job.folder) / "work", Path(folder) / "work")
        work(replace(job, folder=folder, log=MemoryLog.url, at=""))
    eventually(lambda: len(list(Path("/proc/self/task").iterdir())) == 1)
    setattr(threads, "IDLE_S", idle_s)  # noqa: B010 - as above


def _forked(job: Job) -> int:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise AssertionError(f"a fork with {threads} threads is not safe")
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(LONGEST_S)
        code = work(job)
    finally:
        if code == 1:
            sys.excepthook(*sys.exc_info())
        os._exit(code)


def _waited(pid: int) -> Came:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return Came(pid, "stopped", os.WSTOPSIG(status))
    if os.WIFSIGNALED(status):
        return Came(pid, "killed", os.WTERMSIG(status))
    return Came(pid, "ended", os.WEXITSTATUS(status))


class Workers:
    """The program, started by a test; its workers end with it."""

    def __enter__(self) -> Self:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.victim"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._program.communicate(timeout=LONGEST_S)

    def run(self, job: Job) -> Came:
        """Run a job as far as it goes."""
        return self._asked(asdict(job))

    def go_on(self, pid: int) -> Came:
        """Let a worker go on that was stopped."""
        return self._asked({"continue": pid})

    def _asked(self, message: dict[str, Any]) -> Came:
        program = self._program
        if program.stdin is None or program.stdout is None:
            raise AssertionError("the program has pipes")
        program.stdin.write(json.dumps(message) + "\n")
        program.stdin.flush()
        return Came(*json.loads(program.stdout.readline()))


if __name__ == "__main__":
    serve()

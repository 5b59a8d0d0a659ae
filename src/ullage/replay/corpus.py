"""Replays many sessions under several policies, in processes on this machine.

The largest sessions go first, so that no long one is left at the end. A dead process loses no
results: its running sessions are replayed one by one, and one that kills its process again is
recorded as broken. Rows are reported as they arrive.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.errors import ConfigurationError
from ullage.core.values.progress import Progress, ignore
from ullage.replay.engine import ReplayEngine
from ullage.replay.values import PolicyComparison, ReplayRow

if TYPE_CHECKING:
    from ullage.replay.places import SessionPlace
    from ullage.replay.values import ReplayOptions

Take = Callable[[Sequence[ReplayRow]], object]
"""Takes the rows of a session as soon as they are there."""

AHEAD: Final = 4
"""Sessions handed to each process in advance."""


class ReplayTask(NamedTuple):
    """A session to replay, its policies, and its size in bytes."""

    place: str
    labels: tuple[str, ...]
    size: int = 0


def list_tasks(
    places: Iterable[SessionPlace],
    labels: Sequence[str],
    done: Mapping[tuple[str, str], ReplayRow],
) -> list[ReplayTask]:
    """Return the remaining tasks, largest sessions first; a session that has grown runs again."""
    tasks = []
    for place in places:
        left = tuple(label for label in labels if _is_left(place, done.get((place.name, label))))
        if left:
            tasks.append(ReplayTask(place.name, left, place.size))
    return sorted(tasks, key=lambda task: -task.size)


def _is_left(place: SessionPlace, row: ReplayRow | None) -> bool:
    return row is None or row.size not in (None, place.size)


def replay_corpus(
    places: Sequence[SessionPlace],
    options: ReplayOptions,
    *,
    jobs: int | None = None,
    done: Sequence[ReplayRow] = (),
    take: Take = tuple,
    report: Progress = ignore,
) -> PolicyComparison:
    """Replay sessions in `jobs` processes (by default one per core) and compare the policies.

    `done` are rows of an earlier run: these sessions are not replayed again unless their size has
    changed. `take` gets new rows as they arrive, `report` the number of bytes done. The processes
    load the calling program, so call this below `if __name__ == "__main__":`. Raises
    ConfigurationError for fewer than one process.
    """
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    if jobs < 1:
        raise ConfigurationError(f"a replay needs one process or more, not {jobs}")
    labels, asked = tuple(options.policies), {place.name for place in places}
    known = {row.key: row for row in done if row.place in asked}
    tasks = list_tasks(places, labels, known)
    total = sum(place.size for place in places)
    ready = total - sum(task.size for task in tasks)
    report(ready, total)
    for task, found in _run_all(tasks, options, jobs):
        take(found)
        known.update((row.key, row) for row in found)
        ready += task.size
        report(ready, total)
    return PolicyComparison.of(known.values(), labels)


def _run_all(
    tasks: Sequence[ReplayTask], options: ReplayOptions, jobs: int
) -> Iterator[tuple[ReplayTask, Sequence[ReplayRow]]]:
    if jobs == 1 or len(tasks) < 2:
        engine = ReplayEngine(options)
        for task in tasks:
            yield task, _note_size(engine.replay_place(task.place, task.labels), task)
        return
    yield from _Pool(tasks, options, jobs).run()


class _Pool:
    """Processes and their tasks; when one dies, new ones are started."""

    def __init__(self, tasks: Sequence[ReplayTask], options: ReplayOptions, jobs: int) -> None:
        self._left = list(reversed(tasks))
        self._suspects: list[ReplayTask] = []
        self._options = pickle.dumps(options)
        self._jobs = jobs

    def run(self) -> Iterator[tuple[ReplayTask, Sequence[ReplayRow]]]:
        while self._left or self._suspects:
            if self._suspects:
                yield self._run_alone(self._suspects.pop())
            else:
                yield from self._run_together()

    def _run_together(self) -> Iterator[tuple[ReplayTask, Sequence[ReplayRow]]]:
        given: dict[Future[list[ReplayRow]], ReplayTask] = {}
        try:
            with _lend_pool(self._jobs) as pool:
                while self._left or given:
                    while self._left and len(given) < self._jobs * AHEAD:
                        task = self._left[-1]
                        given[self._submit(pool, task)] = task
                        self._left.pop()
                    ended, _ = wait(given, return_when=FIRST_COMPLETED)
                    for future in ended:
                        found = future.result()
                        yield given.pop(future), found
        except BrokenProcessPool:
            self._suspects = list(given.values())

    def _run_alone(self, task: ReplayTask) -> tuple[ReplayTask, Sequence[ReplayRow]]:
        """Replay one session that ran when a process died, to find the one that killed it."""
        try:
            with _lend_pool(1) as pool:
                return task, self._submit(pool, task).result()
        except BrokenProcessPool:
            fault = "killed its process, once among others and once alone: out of memory?"
            rows = (ReplayRow(task.place, label, fault=fault) for label in task.labels)
            return task, _note_size(rows, task)

    def _submit(self, pool: ProcessPoolExecutor, task: ReplayTask) -> Future[list[ReplayRow]]:
        """Submit a session to a process; processes started here ignore Ctrl-C, this one handles it.

        A process that is interrupted while it uses a queue leaves the others waiting for ever.
        """
        if sys.platform == "win32":
            return pool.submit(run_task, self._options, task)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return pool.submit(run_task, self._options, task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _lend_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Lend processes; an error here terminates them at once, without waiting."""
    pool = ProcessPoolExecutor(jobs, CONTEXT)
    try:
        yield pool
    except BrokenProcessPool:
        raise
    except BaseException:
        for process in list(pool._processes.values()):  # noqa: SLF001 - `terminate_workers` is of 3.14
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


COLLECTED_AT: Final = 100_000
"""Objects created since the last collection after which the garbage collector runs again; the
default is 700 to 2,000."""

CONTEXT: Final = multiprocessing.get_context("spawn")
"""A forked process would inherit threads and locks of this one."""


def run_task(options: bytes, task: ReplayTask) -> list[ReplayRow]:
    """Replay a session in this process; `options` are pickled, the same for a whole run."""
    return _note_size(_lend_engine(options).replay_place(task.place, task.labels), task)


def _note_size(rows: Iterable[ReplayRow], task: ReplayTask) -> list[ReplayRow]:
    return [replace(row, size=task.size) for row in rows]


@lru_cache(maxsize=1)
def _lend_engine(options: bytes) -> ReplayEngine:
    """Return the engine of this process, which was started for one replay run.

    A long session is hundreds of thousands of objects that stay until it is done. Python's default
    number of searches for reference cycles among them took a sixth of the time.
    """
    gc.set_threshold(COLLECTED_AT, 50, 100)
    return ReplayEngine(pickle.loads(options))  # noqa: S301 - written by the process that started this one

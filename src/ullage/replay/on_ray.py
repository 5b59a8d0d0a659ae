"""Replays on a cluster: sessions are rows of Ray Data, results are Parquet, each once.

Ray schedules the tasks, and retries if a worker dies. Tasks have a similar number of bytes, so none
takes much longer than the others; the largest sessions go first. Results are saved in parts in one
folder, and the same call continues from them. The extra `ullage[ray]` brings Ray and pyarrow.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import command
from ullage.core.values.progress import Progress, ignore
from ullage.replay.corpus import ReplayTask, list_tasks, run_task
from ullage.replay.totals import ReplayTotals
from ullage.replay.values import PolicyComparison, ReplayRow

if TYPE_CHECKING:
    from ullage.replay.places import SessionPlace
    from ullage.replay.values import ReplayOptions

RUN: Final = "run.json"
"""The file that describes the run of the results in a folder."""

SHARES: Final = 16
"""Approximate tasks per worker: the last ones are then short compared with the whole run."""

KEPT: Final = 64
"""Tasks whose results are written as one part."""

TRIES: Final = 3
"""How often Ray retries a task whose worker died (`max_retries` of its tasks)."""


def replay_on_ray(
    places: Sequence[SessionPlace],
    options: ReplayOptions,
    folder: str | Path,
    *,
    workers: int | None = None,
    report: Progress = ignore,
) -> PolicyComparison:
    """Replay sessions on the Ray cluster of this process, or on this machine.

    The places must be readable under the same names on all its machines. `folder` receives the
    parts of the results. `workers` limits how many tasks run at once. Raises ConfigurationError if
    the folder holds another run, or if Ray is not installed.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigurationError(
            f"a replay on Ray needs {error.name}, which is not installed: {command('ray')}"
        ) from error
    parts = ReplayParts(Path(folder), options.name_run())
    labels, rows = tuple(options.policies), parts.read_rows()
    tasks = list_tasks(places, labels, rows)
    total = sum(place.size for place in places)
    ready = total - sum(task.size for task in tasks)
    report(ready, total)
    if tasks:
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks = -1  # a session that kills its worker is a row, see below
        context.enable_progress_bars = False
        batches = split_tasks(tasks, (workers or int(ray.cluster_resources()["CPU"])) * SHARES)
        items = [{"tasks": pickle.dumps(batch)} for batch in batches]
        given = pickle.dumps(options)
        answered = (
            ray.data.from_items(items, override_num_blocks=len(items))
            .map_batches(
                _run_batch,
                batch_size=1,
                fn_args=(given,),
                num_cpus=1,
                compute=ray.data.TaskPoolStrategy(size=workers),
            )
            .iter_batches(batch_size=None, batch_format="pyarrow")
        )
        sizes = {task.place: task.size for task in tasks}
        for found in _collect(answered, rows, parts):
            ready += sum(sizes[place] for place in found)
            report(ready, total)
    # Not kept: the same call tries them again.
    lost = [ReplayRow(task.place, label, fault=LOST) for task in tasks for label in task.labels]
    rows = {row.key: row for row in lost} | rows
    return PolicyComparison.of(rows.values(), labels)


LOST: Final = (
    f"no result came back: its worker died {TRIES + 1} times, or cannot load ullage; give the same "
    "command to try it again"
)


def _collect(
    answered: Iterator[Any], rows: dict[tuple[str, str], ReplayRow], parts: ReplayParts
) -> Iterator[set[str]]:
    """Collect results as they arrive, write them in parts, and yield the finished sessions."""
    new: list[ReplayRow] = []
    try:
        for number, table in enumerate(answered, 1):
            found = [_read_row(one) for one in table.to_pylist()]
            fresh = [row for row in found if row.key not in rows]
            rows.update((row.key, row) for row in fresh)
            new += fresh
            if number % KEPT == 0:
                parts.add(new)
                new = []
            yield {row.place for row in fresh}
    finally:
        parts.add(new)  # also if the run is stopped


def split_tasks(tasks: Sequence[ReplayTask], number: int) -> list[list[ReplayTask]]:
    """Return at most `number` batches of similar size in bytes; large tasks stay alone."""
    share = max(sum(task.size + 1 for task in tasks) / max(number, 1), 1)
    batches: list[list[ReplayTask]] = []
    held = share
    for task in tasks:
        if held + task.size + 1 > share:
            batches.append([])
            held = 0
        batches[-1].append(task)
        held += task.size + 1
    return batches


def _run_batch(batch: Mapping[str, Any], options: bytes) -> dict[str, list[Any]]:
    """Replay the sessions of a batch, in a Ray task; return the columns of their rows."""
    rows: list[dict[str, Any]] = []
    for held in batch["tasks"]:
        for task in pickle.loads(held):  # noqa: S301 - written by the driver of this run
            rows += [_write_row(row) for row in run_task(options, task)]
    return {name: [row[name] for row in rows] for name in COLUMNS}


NUMBERS: Final = tuple(f.name for f in fields(ReplayTotals))
COLUMNS: Final = ("place", "policy", "fault", *NUMBERS)


def _write_row(row: ReplayRow) -> dict[str, Any]:
    totals = {} if row.totals is None else {name: getattr(row.totals, name) for name in NUMBERS}
    held = {"place": row.place, "policy": row.policy, "fault": row.fault}
    return dict.fromkeys(NUMBERS, -1) | totals | held


def _read_row(data: Mapping[str, Any]) -> ReplayRow:
    fault = data["fault"]
    totals = None if fault else ReplayTotals(**{name: data[name] for name in NUMBERS})
    return ReplayRow(data["place"], data["policy"], totals, fault)


class ReplayParts:
    """The folder of a run: its description, and its results in Parquet parts.

    A part is written whole or not at all. Raises ConfigurationError for a folder of another run.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        named = folder / RUN
        if not named.exists():
            if any(folder.iterdir()):
                raise ConfigurationError(f"{folder} holds something else: give an empty folder")
            named.write_text(json.dumps(run), encoding="utf-8")
        elif json.loads(named.read_text(encoding="utf-8")) != run:
            raise ConfigurationError(
                f"{folder} holds the results of a replay with other options: give the same to go "
                "on with it, or another folder"
            )

    def read_rows(self) -> dict[tuple[str, str], ReplayRow]:
        """Return the rows of all parts."""
        from pyarrow import parquet

        found: dict[tuple[str, str], ReplayRow] = {}
        for part in sorted(self._folder.glob("*.parquet")):
            for data in parquet.read_table(part).to_pylist():
                row = _read_row(data)
                found[row.key] = row
        return found

    def add(self, rows: Sequence[ReplayRow]) -> None:
        """Write a part."""
        if not rows:
            return
        import pyarrow as pa
        from pyarrow import parquet

        name = self._folder / f"part-{uuid4().hex}.parquet"
        draft = name.with_suffix(".new")
        table = pa.Table.from_pylist([_write_row(row) for row in rows])
        parquet.write_table(table, draft)
        draft.rename(name)


def drop_parts(folder: Path) -> None:
    """Delete the results of a run in a folder, and no other files."""
    try:
        held = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(held, dict) and "policies" in held:
        for part in (*folder.glob("part-*.parquet"), *folder.glob("part-*.new"), folder / RUN):
            part.unlink(missing_ok=True)

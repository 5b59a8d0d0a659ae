"""A replay on Ray: batches, and a real cluster where `make replay-ray` installed it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.traces import write_corpus
from ullage.core.errors import ConfigurationError
from ullage.replay.corpus import ReplayTask
from ullage.replay.on_ray import ReplayParts, split_tasks

INSTALLED: Final = Path(
    os.environ.get("ULLAGE_RAY", Path(__file__).parents[2] / ".venv-ray/bin/python")
)


@given(st.lists(st.integers(0, 10**9), max_size=60), st.integers(1, 20))
def test_batches_hold_every_task_once_and_none_more_than_its_share(
    sizes: list[int], number: int
) -> None:
    tasks = [ReplayTask(str(n), ("ladder",), size) for n, size in enumerate(sizes)]
    batches = split_tasks(tasks, number)
    assert [task for batch in batches for task in batch] == tasks
    share = max(sum(size + 1 for size in sizes) / number, 1)
    assert all(len(b) == 1 or sum(t.size for t in b) <= share for b in batches)
    assert len(batches) <= 2 * number + 1


def test_a_folder_of_something_else_or_of_another_run_is_refused(tmp_path: Path) -> None:
    ReplayParts(tmp_path / "run", {"window": 1})
    ReplayParts(tmp_path / "run", {"window": 1})
    with pytest.raises(ConfigurationError, match="with other options"):
        ReplayParts(tmp_path / "run", {"window": 2})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigurationError, match="holds something else"):
        ReplayParts(tmp_path / "other", {"window": 1})


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not INSTALLED.exists(), reason="`make replay-ray` installs it")
def test_ray_comes_to_the_same_with_any_number_of_workers_and_one_killed(tmp_path: Path) -> None:
    write_corpus(tmp_path / "sessions", sessions=50)
    command = [str(INSTALLED), "-m", "tests.replay.ray_runs"]
    command += [str(tmp_path / "sessions"), str(tmp_path / "out")]
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "RAY_USAGE_STATS_ENABLED": "0"}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4_000:]
    assert "Ray, 2 workers, 1 killed: the same" in ran.stdout

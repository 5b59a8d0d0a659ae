"""The corpus in the shape of a published one."""

from __future__ import annotations

from pathlib import Path

from bench.traces import CALLS, SESSIONS, list_sizes, write_corpus
from ullage import importers
from ullage.replay.history import read_history


def test_the_sessions_have_as_many_calls_as_were_published() -> None:
    sizes = list_sizes()
    assert (len(sizes), sum(sizes), min(sizes)) == (SESSIONS, CALLS, 1)
    assert sizes[SESSIONS // 2] == 25
    assert abs(sizes[SESSIONS * 9 // 10] - 176) <= 2
    assert abs(sizes[SESSIONS * 99 // 100] - 1_438) < 30
    assert len(list_sizes(40)) == 40


def test_each_file_is_a_session_with_its_calls_times_and_reports(tmp_path: Path) -> None:
    write_corpus(tmp_path, 9)
    for path, calls in zip(sorted(tmp_path.iterdir()), list_sizes(9), strict=True):
        history = read_history(importers.load(path))
        assert len(history.turns) == calls
        times = [turn.at for turn in history.turns]
        assert None not in times
        assert times == sorted(times)  # type: ignore[type-var]
        assert all(
            turn.usage is not None and turn.usage.prompt_tokens > 16_000 for turn in history.turns
        )
    write_corpus(tmp_path / "again", 9)
    assert (tmp_path / "again" / "00003.jsonl").read_bytes() == (
        tmp_path / "00003.jsonl"
    ).read_bytes()

"""The rows of a run in a file: a run that stops goes on, and no row stands there twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError
from ullage.replay import ReplayOptions, ReplayRecords, ReplayRow, ReplayTotals, read_records

RUN = ReplayOptions({"ladder": Policy.ladder()}, window=1_000).name_run()
ROWS = [ReplayRow(str(n), "ladder", ReplayTotals(sessions=1, turns=n)) for n in range(3)]


def test_rows_come_back_and_a_torn_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    with ReplayRecords(path, RUN) as records:
        records.add(ROWS[:2])
        records.add(ROWS[:2])
    whole = path.read_bytes()
    assert whole.count(b"\n") == 3
    for cut in range(len(whole.split(b"\n")[0]) + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with ReplayRecords(path, RUN) as records:
            assert list(records.rows.values()) == ROWS[: whole[:cut].count(b"\n") - 1]
            records.add(ROWS)
        assert read_records(path)[1] == ROWS
    path.write_bytes(whole[:20])  # not even the first line was whole
    with ReplayRecords(path, RUN) as records:
        assert records.rows == {}
        records.add([ReplayRow("x", "ladder", fault="broken")])
    assert read_records(path) == (
        json.loads(whole.split(b"\n")[0]),
        [ReplayRow("x", "ladder", fault="broken")],
    )


def test_the_file_of_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ReplayRecords(path, RUN).close()
    with pytest.raises(ConfigurationError, match="another window: give the same options"):
        ReplayRecords(path, RUN | {"window": 2_000})
    other = ReplayOptions({"ladder": Policy.advisory()}, window=1_000).name_run()
    with pytest.raises(ConfigurationError, match="another policy ladder"):
        ReplayRecords(path, other)
    more = ReplayOptions({"off": Policy.off()}, window=1_000).name_run()
    ReplayRecords(path, more).close()  # one more policy may join
    path.write_text('{"messages": []}\n')
    with pytest.raises(ConfigurationError, match="is no file of a replay"):
        ReplayRecords(path, RUN)
    with pytest.raises(ConfigurationError, match="holds no replay"):
        read_records(path)

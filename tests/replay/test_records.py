"""The rows of a run in a file: a run that stops goes on, and no row stands there twice."""

from __future__ import annotations

import json
import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ullage.core.compaction.policy import Policy
from ullage.core.errors import ConfigurationError, StoreError
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


@pytest.mark.parametrize("afresh", [False, True])
@pytest.mark.parametrize("text", ["precious notes\n", '{\n "messages": []\n}\n', '{"ullage', "[1]"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, text: str, afresh: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    if text == '{"ullage':  # what a replay that broke off in its first line leaves
        ReplayRecords(path, RUN, afresh=afresh).close()
        assert read_records(path)[1] == []
        return
    with pytest.raises(ConfigurationError, match="is no file of a replay: give another name"):
        ReplayRecords(path, RUN, afresh=afresh)
    assert path.read_text() == text


def test_a_run_afresh_drops_what_is_there_of_whichever_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with ReplayRecords(path, RUN | {"window": 2_000}) as records:
        records.add(ROWS)
    with ReplayRecords(path, RUN, afresh=True) as records:
        assert records.rows == {}
    assert read_records(path)[0]["window"] == 1_000


def test_a_second_run_over_the_same_file_is_refused_while_the_first_writes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with ReplayRecords(path, RUN) as records:
        for afresh in (False, True):
            with pytest.raises(ConfigurationError, match="written by another replay: wait"):
                ReplayRecords(path, RUN, afresh=afresh)
        records.add(ROWS)
    with ReplayRecords(path, RUN) as records:
        assert list(records.rows.values()) == ROWS


def test_results_that_cannot_be_written_or_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: Is a directory"):
        ReplayRecords(tmp_path, RUN)
    path = tmp_path / "run.jsonl"
    ReplayRecords(path, RUN).close()
    for line in ('{"place": "a"}\n', '{"place":"a","policy":"b","totals":5,"fault":""}\n'):
        path.write_text(path.read_text().splitlines()[0] + "\n" + line)
        with pytest.raises(ConfigurationError, match=r"no row of a replay .* replay afresh"):
            ReplayRecords(path, RUN)
        with pytest.raises(ConfigurationError, match="no row of a replay"):
            read_records(path)


def test_a_full_disk_is_told_and_what_was_written_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    records = ReplayRecords(path, RUN)
    records.add(ROWS[:1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with pytest.raises(StoreError, match=r"run\.jsonl cannot take more results"):
            records.add(ROWS[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
        with suppress(OSError):
            records.close()
    assert read_records(path)[1][:1] == ROWS[:1]

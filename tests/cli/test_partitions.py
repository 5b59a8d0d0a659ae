"""`ullage partitions`: what there is, begin, ahead, end; and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ullage.agent import Draft, Session
from ullage.cli.main import main
from ullage.storage import open_log

Capture = pytest.CaptureFixture[str]


def test_partitions_begin_and_end(postgres_database: Callable[[], str], capsys: Capture):
    url = postgres_database()
    with closing(open_log(url)) as log, Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": "hello"})])
    assert main(["partitions", "--store", url]) == 0
    assert capsys.readouterr().err.endswith(": none\n")
    assert main(["partitions", "begin", "--every", "week", "--ahead", "2", "--store", url]) == 0
    first, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("events_before  begin ")
    assert len(more) >= 2
    assert main(["partitions", "ahead", "--ahead", "3", "--store", url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["verify", "s", "--store", url]) == 0
    assert main(["partitions", "list", "--store", url]) == 0
    assert capsys.readouterr().err.endswith(": week\n")
    assert main(["partitions", "end", "--store", url]) == 0
    assert main(["verify", "s", "--store", url]) == 0


def test_only_postgresql_has_them(tmp_path: Path, capsys: Capture):
    url = f"sqlite:{tmp_path / 's.db'}"
    open_log(url).close()
    assert main(["partitions", "begin", "--store", url]) in {1, 2}
    assert "only a log in PostgreSQL has partitions" in capsys.readouterr().err

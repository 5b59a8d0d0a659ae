"""The last report of a log's session, read from its last events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import recorded as made
from ullage.core.session.log.event import Draft
from ullage.storage import tail


def reported(tokens: int | None, **more: Any) -> Draft:
    context = {"tokens": tokens, "window": 8192, "source": "probe", **more}
    usage = {"input": tokens, "cache_read": 40, "cache_write": 0, "output": 5, "reasoning": 1}
    return Draft("provider_usage", {"model": "qwen3", "round": 1, **usage, "context": context})


def log(folder: Path, name: str, *drafts: Draft, workspace: str = "/srv") -> str:
    url = made.recorded(folder, name, [made.began("t1", served={"workspace": workspace}), *drafts])
    return url.removeprefix("sqlite:")


def test_the_last_report_of_the_newest_session_is_told(tmp_path: Path) -> None:
    log(tmp_path, "first", reported(100), workspace="/srv")
    path = log(tmp_path, "second", reported(1000), reported(2000), workspace="/else")
    one = tail.read_fullness(path)
    assert (one.session, one.tokens, one.window, one.origin) == ("second", 2000, 8192, "reported")
    assert (one.model, one.cached) == ("qwen3", 40)
    assert tail.read_fullness(path, folder="/srv").session == "first"
    assert tail.read_fullness(path, session="fi").tokens == 100
    assert tail.read_fullness(path, folder="/nowhere").reason == "no session"
    name, calls = tail.read_reports(path, "/else", 2)
    assert (name, [(call.tokens, call.output) for call in calls]) == (
        "second",
        [(2040, 6), (1040, 6)],
    )
    assert tail.read_reports(path, "/nowhere", 2) == ("", [])


@pytest.mark.parametrize(("source", "origin"), [("table", "table"), ("override", "given")])
def test_who_told_the_window_is_said(tmp_path: Path, source: str, origin: str) -> None:
    assert tail.read_fullness(log(tmp_path, "s", reported(9, source=source))).origin == origin


def test_a_compaction_makes_the_size_unknown(tmp_path: Path) -> None:
    cut = Draft("history_compaction", {"checkpoint": {}})
    path = log(tmp_path, "s", reported(9), cut)
    assert tail.read_fullness(path).reason == "compacted, no report since"
    assert [call.tokens for call in tail.read_reports(path, "/srv", 2)[1]] == [None, 49]


def test_a_session_without_reports_is_unknown(tmp_path: Path) -> None:
    one = tail.read_fullness(log(tmp_path, "s"))
    assert (one.tokens, one.window, one.reason) == (None, None, "no report yet")


def test_without_the_package_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(tail.NoLog, match="sqlite"):
        tail.read_fullness(str(tmp_path / "x.db"))


def test_what_is_no_log_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all, only text" * 50)
    for name in ("x.db", "none.db"):
        with pytest.raises(tail.NoLog, match=name):
            tail.read_fullness(str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]

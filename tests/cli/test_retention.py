"""`ullage retention`: what would go, what went, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ullage.agent import Draft, Session
from ullage.cli.main import main
from ullage.storage import open_log

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]
DAY = 24 * 3600.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:{tmp_path / 's.db'}"
    log = open_log(made)
    for name, days, tenant in (("old", 40, None), ("ann's", 20, "ann"), ("new", 1, None)):
        at = time.time() - days * DAY
        with Session.create(log, name, tenant=tenant, now=lambda at=at: at) as session:  # type: ignore[misc]
            session.record([Draft("user_message", {"text": "hello"})])
    log.close()
    return made


@pytest.fixture
def run(url: str) -> Run:
    return lambda *words: main(["retention", *words, "--store", url])


def left(url: str) -> list[str]:
    log = open_log(url)
    try:
        return [head.session for head in log.sessions()]
    finally:
        log.close()


def test_a_dry_run_says_what_would_go_and_changes_nothing(run: Run, url: str, capsys: Capture):
    assert run("--days", "30", "--tenant-days", "ann=10", "--dry-run") == 0
    out = capsys.readouterr()
    assert "old: no event for 40.0 days, kept for 30\n" in out.out
    assert "ann's: no event for 20.0 days, kept for 10 (tenant ann)\n" in out.out
    assert "2 sessions of" in out.err
    assert run("--days", "30", "--dry-run", "--json") == 0
    (due,) = json.loads(capsys.readouterr().out)["due"]
    assert (due["sessions"], due["tenant"]) == (["old"], None)
    assert left(url) == ["old", "ann's", "new"]


def test_what_is_due_goes(run: Run, url: str, capsys: Capture):
    assert run("--days", "10", "--tenant-days", "ann=never", "--yes") == 0
    assert capsys.readouterr().out == "gone  old\n"
    assert left(url) == ["ann's", "new"]
    assert run("--days", "30", "--yes") == 0
    assert capsys.readouterr().out == "nothing is due\n"
    assert run("--most", "0", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "gone": ["ann's", "new"],
        "busy": [],
        "events": 4,
    }
    assert left(url) == []


def test_a_busy_session_stays_and_is_told(run: Run, url: str, capsys: Capture):
    log = open_log(url)
    with Session(log, "old") as session:
        session.acquire()
        assert run("--days", "30", "--yes") == 5
    log.close()
    assert "left  old: session old is being written by" in capsys.readouterr().out
    assert "old" in left(url)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give a limit"),
        (("--tenant-days", "ann"), "NAME=DAYS"),
        (("--tenant-days", "ann=0"), "NAME=DAYS"),
        (("--tenant-days", "ann=x"), "NAME=DAYS"),
        (("--most", "many"), "such as 500G"),
        (("--most", ""), "such as 500G"),
        (("--most", "infG"), "such as 500G"),
        (("--days", "-1"), "over 0, not -1\n"),
        (("--days", "30"), "--yes"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, url: str, capsys: Capture, words: tuple, told: str):
    assert run(*words) in {1, 2}
    assert told in capsys.readouterr().err
    assert len(left(url)) == 3


@pytest.mark.parametrize(
    ("text", "bytes_"), [("5", 5), ("2k", 2048), ("1.5G", 1610612736), ("3MB", 3145728)]
)
def test_sizes_have_units(text: str, bytes_: int):
    from ullage.cli.retention import _read_bytes

    assert _read_bytes(text) == bytes_

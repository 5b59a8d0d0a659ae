"""The page on policies: what replays came to, for operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.test_alone import watching
from tests.pages.watching import JSON, read
from tests.proxy.sockets import ask, request
from tests.support.browser import Browser, obtain
from ullage.core.errors import ConfigurationError
from ullage.pages.policies import describe, list_kept, read_kept
from ullage.replay import PolicyComparison, ReplayOptions, ReplayRecords, ReplayRow, ReplayTotals
from ullage.storage.log_sqlite import SqliteLog


def keep(folder: Path, name: str, lost: int) -> None:
    """Keep a replay of two policies."""
    from tests.replay.recording import presets

    with ReplayRecords(folder / f"{name}.jsonl", ReplayOptions(presets()).name_run()) as records:
        for label, cost, gone in (("ladder", 7, lost), ("off", 5, 0)):
            totals = ReplayTotals(
                sessions=1, turns=9, nanodollars=cost * 10**9, taken_values=100, lost_values=gone,
                carried_tokens=1_000, refused=3 if label == "off" else 0,
            )  # fmt: skip
            records.add([ReplayRow("a.jsonl", label, totals)])
        records.add([ReplayRow("b.jsonl", "ladder", fault="broken <b>")])


def test_the_newest_replay_is_shown_and_an_older_one_by_its_name(tmp_path: Path) -> None:
    SqliteLog(tmp_path / "log.db").close()
    keep(tmp_path / "replays", "first", 5)
    with watching(tmp_path, "--from", "ullage") as port:
        told = read(port, "/ullage/policies")
        assert told["policies"]["ladder"]["loss"] == 0.05
        assert told["faults"] == 1
        gone = ask(port, request("GET", "/ullage/policies?name=other", b"", JSON))
        assert gone.status == 409
        with Browser(obtain()) as browser:
            page = browser.open(f"http://127.0.0.1:{port}/ullage/policies")
            assert "ladder recommended" in page.text
            assert "5.0%" in page.text
            assert "1 sessions have no result" in page.text
            assert page.console == ()


def test_a_folder_without_replays_says_what_to_run(tmp_path: Path) -> None:
    assert list_kept(tmp_path / "none") == []
    assert read_kept(tmp_path) is None
    told = describe(PolicyComparison({}))
    assert (told["held"], told["points"], told["choice"]) == ({}, [], None)
    keep(tmp_path, "one", 1)
    found = read_kept(tmp_path, "one")
    assert found is not None
    assert [point.label for point in describe(found)["points"]] == ["ladder"]
    with pytest.raises(ConfigurationError, match="no replay is kept under the name"):
        read_kept(tmp_path, "../x")


def test_a_replay_that_is_deleted_meanwhile_is_not_listed(tmp_path: Path) -> None:
    keep(tmp_path, "first", 5)
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert [kept.name for kept in list_kept(tmp_path)] == ["first"]


def test_a_damaged_replay_hides_no_other(tmp_path: Path) -> None:
    keep(tmp_path, "one", 1)
    (tmp_path / "two.jsonl").write_text("damaged")
    found = read_kept(tmp_path)
    assert found is not None
    assert found.totals["ladder"].loss == 0.01
    with pytest.raises(ConfigurationError, match="holds no replay"):
        read_kept(tmp_path, "two")

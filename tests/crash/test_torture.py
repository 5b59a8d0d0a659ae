"""The torture in its short form, and that it can fail."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from tests.crash.torture import Kind, make_page, report, run_all
from ullage.core.session.log.event import Draft
from ullage.storage.log import Owner
from ullage.storage.log_memory import MemoryLog


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="who is alive is read from /proc")
def test_a_few_rounds_of_each_kind_violate_nothing() -> None:
    kinds = run_all(60, 1, tell=lambda _: None)
    assert [said for kind in kinds for said in kind.wrong] == []
    assert [kind.store for kind in kinds if kind.rounds].count("SQLite") >= 3
    page = make_page(kinds, "make torture", 1)
    assert page.count("\n| ") == len(kinds) + 1
    assert "0 violations" in page


@pytest.mark.parametrize(
    ("told", "tried", "said"),
    [
        ({3: "another"}, 3, "event 3 was acknowledged and is lost"),
        ({1: "", 4: "x"}, 4, "event 4 was acknowledged and is lost"),
        ({}, 2, "3 events are there, and 2 were attempted"),
    ],
)
def test_what_is_lost_or_was_never_tried_is_told(
    told: dict[int, str], tried: int, said: str
) -> None:
    kind = Kind("a fault", "memory")
    with closing(MemoryLog()) as log:
        log.create("s", 1.0)
        epoch = log.acquire("s", Owner("o", 1, "", ""), 1.0).epoch
        log.append("s", epoch, 0, [Draft("user_message", {"text": "x"})] * 3, 1.0)
        kind.judge(log, told, tried)
    assert said in kind.wrong


def test_a_violation_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Kind("a fault", "SQLite", rounds=1, wrong=["event 3 was acknowledged and is lost"])
    assert report([broken], make_page([broken], "make torture", 7)) == 1
    shown = capsys.readouterr()
    assert "Seed 7: 1 kills" in shown.out
    assert "event 3 was acknowledged and is lost" in shown.err

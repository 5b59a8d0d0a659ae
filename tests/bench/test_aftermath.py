"""The agent of the bench reads again just what it is not shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench import aftermath

TURNS = 60


def test_who_is_shown_all_reads_each_file_once() -> None:
    agent = aftermath.Agent(1)
    agent.work(TURNS, lambda history: history)
    assert agent.again == []
    assert len(agent.read) >= 5


def test_who_is_shown_the_end_alone_reads_again_and_breaks_each_time() -> None:
    agent = aftermath.Agent(1)
    fit = aftermath.Followed(lambda history: (history[:1] + history[-2:], True))
    agent.work(TURNS, fit)
    assert len(agent.again) > len(agent.read)
    assert fit.left.total() > TURNS
    assert (len(fit.breaks), fit.silent) == (TURNS - 1, 0)


def test_a_break_that_no_compaction_explains_is_silent() -> None:
    fit = aftermath.Followed(lambda history: (history[-1:], False))
    aftermath.Agent(1).work(3, fit)
    assert fit.silent == 2


def test_the_newest_messages_fit_and_no_result_stands_without_its_call() -> None:
    for whole in (True, False):
        fit = aftermath._trim(6_000, whole=whole)
        agent = aftermath.Agent(2)

        def checked(history: Any, fit: Any = fit) -> Any:
            sent, _ = fit(history)
            assert sent[1]["role"] != "tool"
            assert aftermath._count(sent[1:]) <= 6_000
            return sent

        agent.work(TURNS, checked)


def test_a_small_run_gives_all_that_the_page_shows() -> None:
    said: list[str] = []
    plan = SimpleNamespace(worked=(8_000,), agents=1, turns=TURNS)
    bench: Any = SimpleNamespace(plan=plan, results={}, say=said.append)
    aftermath.aftermath(bench)
    rows = bench.results["aftermath"]["rows"]
    ours, tail = rows[f"8000 {aftermath.OURS}"], rows[f"8000 {aftermath.TAIL}"]
    assert ours["compactions"] > 0 == ours["silent"] == ours["busts"]
    assert ours["again"] < tail["again"]
    page = aftermath.shown(bench.results)
    assert f"| 8,000 | {aftermath.OURS} | {ours['compactions']} |" in page
    assert len(said) == len(rows) == 3

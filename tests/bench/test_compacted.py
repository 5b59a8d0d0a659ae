"""The parts of the page on compaction are made of what was measured."""

from __future__ import annotations

from typing import Any

from bench import compacted

GOOD = {"pairs": True, "budget": True, "start": True, "task": True}


def kept(**shares: int) -> dict[str, Any]:
    """Return a row of one set in which of ten rules and ten old values that many are right."""
    found = {"seen/rule": shares["rule"], "seen/rule/of": 10}
    found |= {"seen/superseded": shares["gone"], "seen/superseded/of": 10}
    checks = {"sessions": 2, "lawful": 1}
    return {"0.05": {"kept": found, "checks": checks}}


def survived(recorded: Any = None) -> dict[str, Any]:
    """Return results with one strategy."""
    rows = {"ullage, trim alone": kept(rule=3, gone=9)}
    return {"survival": {"rows": rows, "sessions": 2, "tokens": [10, 20], "recorded": recorded}}


def test_growth_is_one_where_ten_times_the_messages_cost_ten_times_as_much() -> None:
    sizes = {
        "2000": {"a": {"trim_s": [0.001], "again_s": [0.001], "verdict": GOOD}},
        "20000": {"a": {"trim_s": [0.01], "again_s": [0.02], "verdict": GOOD}},
    }
    page = compacted.after({"after": sizes})
    assert "| a | 1.0 | 10.0 | 1.00 |" in page
    assert "| a | 1.0 | 20.0 |\n" in page
    assert "| a | yes | yes | yes | yes |" in page


def test_who_was_cut_off_has_no_growth_and_no_verdict() -> None:
    sizes = {"2000": {"a": {"trim_s": [0.1]}}, "20000": {"a": {"cut": 20}}}
    page = compacted.after({"after": sizes})
    assert "| a | 100 | cut off | - |" in page
    assert "| a | - | - | - | - |" in page


def test_survival_is_in_per_cent_and_old_values_stand_apart() -> None:
    page = compacted.survival(survived())
    assert (
        "| ullage, trim alone | 5 % | 30 | - | - | - | - | - | - | **30** | 90 | 1 of 2 |" in page
    )
    assert "| ullage, trim alone | 30 | - | - |" in page


def test_a_recorded_run_of_a_model_is_a_table_of_its_own() -> None:
    row = kept(rule=4, gone=10)
    row["0.05"]["told"] = [["hierarchical", None, 5], ["summarise_middle", "summary_empty", 2]]
    told = {"model": "tiny", "tokens": [9_000], "rows": {compacted.BY_MODEL: row}}
    page = compacted.survival(survived(told))
    assert "With a real model, tiny, a recorded run over smaller sessions (9,000 tokens)" in page
    assert "It was asked 7 times; in 1 of 2 compactions" in page
    assert "| ullage, summary by a model | 5 % | 40 |" in page


def test_without_a_recorded_run_the_page_says_how_to_make_one() -> None:
    assert "no run is recorded" in compacted.survival(survived())


def test_what_a_summariser_was_shown_is_a_share_of_what_was_left_out() -> None:
    row = {"dropped": 200, "seen": 199, "whole": 100, "requests": 7, "largest": 3000, "over": 0}
    page = compacted.cover({"cover": {"x/4096": row, "y/8192": {"cut": 30}}})
    assert "| x | 4,096 | 200 | 99.5 % | 50.0 % | 7 | 3,000 | 0 |" in page
    assert "| y | 8,192 | cut off |" in page

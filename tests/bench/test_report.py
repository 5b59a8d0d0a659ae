"""The page is made of what was measured, and says where ullage is behind."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from bench import report
from bench.measure import QUICK


def results(**measured: Any) -> dict[str, Any]:
    """Return results with the facts that every page has."""
    return {
        "plan": {**asdict(QUICK), "minutes": 1.0, "again": []},
        "machine": {"system": "Linux"},
        "versions": {"ullage": {"ullage": "1"}},
        **measured,
    }


LOOP = {
    "500": {
        "ullage": {"loop_s": [0.2, 0.1, 0.3], "turns": 500},
        "ullage.Tally": {"loop_s": [0.05], "turns": 500},
        "LiteLLM": {"loop_s": [30.0], "turns": 250},
        "tiktoken with sums kept": {"loop_s": [0.04], "turns": 500},
    }
}
MANAGE = {"500": {"ullage": {"loop_s": [1.0], "turns": 500, "extending": 490}}}


def text_row(tokens: int, seconds: float) -> dict[str, Any]:
    """Return a row of every text job."""
    return {
        "tokens": tokens, "history_s": [seconds], "history_mb": [1.0], "bytes": 10**6, "texts": 9,
        "short_s": [1e-6], "letter_s": [0.2], "load_s": [0.3], "load_mb": [64.0],
    }  # fmt: skip


def test_a_page_has_what_was_measured_and_nothing_else() -> None:
    page = report.page(results(loop=LOOP, manage=MANAGE))
    assert "## An agent of 500 turns" in page
    assert "## Memory" not in page
    assert "again" not in page.splitlines()[2]


def test_the_loop_says_how_many_times_cheaper_a_turn_is() -> None:
    page = report.loops(results(loop=LOOP, manage=MANAGE))
    assert "A turn of `ullage.count` costs 1; of LiteLLM 300 times that." in page
    assert "A turn of `ullage.Tally` costs 1; of LiteLLM 1,200 times that." in page


def test_a_peer_that_is_ahead_is_named_with_both_figures() -> None:
    page = report.losses(results(loop=LOOP))
    assert (
        "* counting in the loop, 500 turns: tiktoken with sums kept 40 ms; "
        "ullage 200 ms, ullage.Tally 50 ms\n"
    ) in page
    assert "LiteLLM" not in page


def test_other_counts_and_cut_offs_are_shown_in_the_table_of_texts() -> None:
    table = {
        op: {"ullage.count_text": text_row(7, 0.1), "tiktoken": text_row(7, 0.05),
             "toktok-rs": text_row(8, 0.01)}
        for op in ("loaded", "history", "short", "letter")
    }  # fmt: skip
    table["letter"]["tiktoken"] = {"cut": 15}
    page = report.texts(results(texts=table))
    assert "| ullage.count_text | 10.0 | 1.00 | 200 | 300 | 64 | 1.0 | yes |" in page
    assert "| tiktoken | 20.0 | 1.00 | cut off |" in page
    assert page.count("**no**") == 1


def test_a_part_measured_again_is_named() -> None:
    facts = results(loop=LOOP, manage=MANAGE)
    facts["plan"]["again"] = ["loops"]
    assert "; measured again since: loops; do not edit" in report.page(facts)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.0, "2 s"), (0.25, "250 ms"), (3e-4, "300 µs"), (4e-8, "0.04 µs")]
)
def test_times_have_the_unit_that_suits_them(seconds: float, shown: str) -> None:
    assert report._time(seconds) == shown

"""The terminal's face of a context report: its sums, its width, its words, what it lets through."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli import real, reports
from ullage.cli.glyphs import cells, clean, cut
from ullage.cli.picture import basis, brief, count_left, draw, percent
from ullage.pages.inks import INKS

NAMES = sorted(reports.samples())
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = st.integers(40, 160)
LAST_ITEM = "one that is not drawn"


def term(drawn: str, name: str) -> int:
    """Return the number of a line that begins with a sign and this name."""
    found = re.findall(rf"(?m)^[=+].{{0,3}}{name} +(-?[\d,]+)", drawn)
    assert len(found) == 1, found
    return int(found[0].replace(",", ""))


def rows(drawn: str) -> list[int]:
    """Return the numbers of the rows of the table."""
    return [
        int(number.replace(",", ""))
        for number in re.findall(r"(?m)^  [A-Z?] .+? (-?[\d,]+)(?: +[<>]?-?\d+ %)?  \w", drawn)
    ]


@pytest.mark.parametrize("name", ["worked", "over", "overcounted", "long"])
def test_the_sums_can_be_added_up_from_what_is_seen(name: str) -> None:
    drawn = draw(reports.samples()[name])
    terms = ("used", "free", "safety margin", "reserved output")
    assert sum(term(drawn, each) for each in terms) == term(drawn, "window")
    assert sum(rows(drawn)) == term(drawn, "used")


def test_the_worked_example_is_drawn_as_it_was_worked() -> None:
    lines = draw(reports.worked()).split("\n")
    assert lines[0] == "claude-sonnet-4-5 · claude · session 7f3a · x.jsonl"
    assert "pressure: advisory · used 128,000 of 200,000 (64 %)" in lines
    assert "  25,000 tokens left to compaction" in lines
    for wanted in (
        r"  T tool schemas +21,480 +11 %  est ±3 %",
        r"      read_file 12\u00d7 +41,002",
        r"        3 duplicates, 11,870 reclaimable",
        r"  \? unattributed +1,552 +<1 %  inferred",
        r"\+ · free +52,000 +26 %",
        r" +compaction at 153,000 \^",
        r"  12  tool result: read_file +5,210   sent 14\u00d7, 67,730 again",
        r"since the last report: 900 tokens · 3 messages",
        r"growth: \+4,150 tokens a turn · median of the last 5",
        r"session spend \(cumulative\) · input 41,200 · .*",
    ):
        assert any(re.fullmatch(wanted, line) for line in lines), wanted


def test_the_bar_has_a_cell_for_every_share_of_the_window() -> None:
    bar = next(line for line in draw(reports.worked()).split("\n") if line.startswith("["))
    assert len(bar) == 80
    counts = {letter: bar.count(letter) for letter in "STUACRI·░▒"}
    assert counts["R"] == pytest.approx(78 * 68_240 / 200_000, abs=1)
    assert counts["·"] == pytest.approx(78 * 52_000 / 200_000, abs=1)
    assert counts["▒"] == pytest.approx(78 * 16_000 / 200_000, abs=1)


def test_no_two_kinds_of_row_share_a_letter_or_a_colour() -> None:
    assert len({ink.letter for ink in INKS.values()}) == len(INKS)
    assert len({ink.ansi for ink in INKS.values()}) == len(INKS)
    assert len({ink.css for ink in INKS.values()}) == len(INKS)


def test_every_letter_of_the_bar_stands_beside_a_name() -> None:
    drawn = draw(reports.worked())
    bar = next(line for line in drawn.split("\n") if line.startswith("["))
    for letter in set(bar) - set("[]"):
        assert re.search(rf"(?m)^(  |\+ ){re.escape(letter)} \w", drawn), letter


def test_an_unknown_window_is_given_no_share_and_no_rest() -> None:
    drawn = draw(reports.unknown())
    assert "window unknown: absolute tokens only" in drawn
    assert "free" not in drawn
    assert not re.search(r"\d %(?! *$)", re.sub(r"±\d+ %", "", drawn))
    assert brief(reports.unknown()) == "ctx=12.2k · window unknown · est ±3 %"


def test_over_the_limit_is_said_in_words_and_the_window_is_marked() -> None:
    drawn = draw(reports.over())
    assert "19,000 tokens over the limit" in drawn
    assert "over by 19,000" in drawn
    assert re.search(r"(?m)window at 200,000 \^$", drawn)
    assert brief(reports.over()).startswith("over by 19.0k · 199.0k/200.0k 99 % · overflow")


def test_the_brief_line_is_the_documented_one() -> None:
    report = reports.worked()
    report["used"] = {**report["used"], "basis": "calibrated", "error": 0.01}
    assert brief(report) == "25.0k left · 128.0k/200.0k 64 % · advisory · est ±1 %"
    assert count_left({**report, "compaction_at": None}) == (52_000, "left")
    assert count_left({**report, "compaction_at": 9}) == (0, "left to compaction")


def test_an_exact_unknown_has_no_estimate_in_its_line() -> None:
    report = reports.report([reports.row("user", 12_210)], None)
    assert brief(report) == "ctx=12.2k · window unknown"


def test_turns_show_every_compaction() -> None:
    drawn = draw(reports.long(), turns=True)
    marks = next(line for line in drawn.split("\n") if re.fullmatch(r" *C +C", line))
    assert [at - 2 for at, sign in enumerate(marks) if sign == "C"] == [28, 46]
    assert "tokens per turn" not in draw(reports.long())


def test_more_turns_than_columns_share_them_and_say_so() -> None:
    report = {**reports.worked(), "turns": reports.turns(500, 200_000, (3, 499))}
    drawn = draw(report, turns=True)
    assert "up to 7 turns a column, the tallest shown" in drawn
    assert any(re.fullmatch(r" *C +C", line) for line in drawn.split("\n"))


def test_a_list_is_no_longer_than_asked_and_names_its_rest() -> None:
    items = [reports.item(f"tool {number}", 10 + number) for number in range(9)]
    items.append(reports.item(LAST_ITEM, 1))
    report = reports.report([reports.row("tools", 145, items=items)])
    drawn = draw(report, top=9)
    assert LAST_ITEM not in drawn
    assert re.search(r"1 more +1", drawn)
    assert "largest" not in draw(reports.worked(), top=0)


def test_a_warning_is_whole_however_narrow() -> None:
    said = "the counts of three messages are estimates as no tokenizer is known for this model"
    drawn = draw({**reports.over(), "warnings": [said]}, width=40)
    assert " ".join(drawn[drawn.index("! ") + 2 :].split()) == said


@pytest.mark.parametrize("turns", [False, True])
@given(reports.any_report(), WIDTHS)
def test_no_line_is_wider_than_asked(turns: bool, report: dict[str, Any], width: int) -> None:
    for line in draw(report, width=width, turns=turns).split("\n"):
        assert cells(line) <= width
    for line in draw(report, width=width, turns=turns, ascii=True).split("\n"):
        assert len(line) <= width


@given(reports.any_report(), WIDTHS)
def test_colour_adds_nothing_but_colour(report: dict[str, Any], width: int) -> None:
    plain = draw(report, width=width)
    assert "\x1b" not in plain
    assert ESCAPE.sub("", draw(report, width=width, colour=True)) == plain


@given(reports.any_report())
def test_ascii_is_ascii(report: dict[str, Any]) -> None:
    assert draw(report, ascii=True, turns=True).isascii()


@given(reports.any_report())
def test_the_terms_add_up_whatever_they_are(report: dict[str, Any]) -> None:
    report["model"], report["warnings"], report["largest"] = None, [], []
    for each in report["rows"]:
        each["name"], each["note"], each["items"] = each["id"], "", []
    drawn = draw(report, width=120)
    assert term(drawn, "used") == report["used"]["tokens"]
    if report["window"] is not None:
        terms = ("used", "free", "safety margin", "reserved output")
        assert sum(term(drawn, each) for each in terms) == term(drawn, "window")


@given(st.text())
def test_nothing_that_steers_a_terminal_gets_through(text: str) -> None:
    shown = clean(text)
    assert all(sign.isprintable() or sign.isspace() for sign in shown)
    assert len(f"{shown}.".splitlines()) == 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", shown)
    assert clean(text, ascii=True).isascii()


def test_a_hostile_name_is_shown_and_does_nothing() -> None:
    drawn = draw(reports.hostile(), width=120, turns=True)
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202egnp.exe" in drawn
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", drawn)
    assert clean("\U000e0041 \ud800 a\ufe0f") == "\\U000e0041 \\ud800 a"


def test_wide_signs_count_as_two_cells_and_marks_as_none() -> None:
    assert (cells("日本"), cells("e\u0301"), cells("ab")) == (4, 1, 2)
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 100, "0 %"),
        (1, 1_000, "<1 %"),
        (-1, 1_000, ">-1 %"),
        (-30, 100, "-30 %"),
        (995, 1_000, "99 %"),
        (999_999, 1_000_000, "99 %"),
        (1_000, 1_000, "100 %"),
        (1_001, 1_000, "101 %"),
        (5, 0, ""),
    ],
)
def test_a_share_is_full_only_when_it_is(part: int, whole: int, said: str) -> None:
    assert percent(part, whole) == said


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("exact", None, "exact"),
        ("provider", None, "provider"),
        ("inferred", None, "inferred"),
        ("estimate", 0.03, "est ±3 %"),
        ("calibrated", 0.001, "est ±1 %"),
        ("estimate", None, "est"),
    ],
)
def test_what_a_number_rests_on_is_said(name: str, error: float | None, said: str) -> None:
    assert basis(name, error) == said


def test_a_report_of_nothing_is_drawn_without_a_bar() -> None:
    drawn = draw(reports.report([], None))
    assert "[" not in drawn
    assert term(drawn, "used") == 0


def test_a_price_that_is_not_known_is_no_zero() -> None:
    report = reports.worked()
    report["spent"] = {**report["spent"], "dollars": None}
    assert "no price known" in draw(report)


# --- real reports ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(real.reports()))
def test_a_real_report_is_drawn_and_can_be_added_up(name: str) -> None:
    report = real.reports()[name]
    drawn = draw(report, turns=True)
    assert sum(rows(drawn)) == term(drawn, "used") == report["used"]["tokens"]
    if report["window"] is not None:
        terms = ("used", "free", "safety margin", "reserved output")
        assert sum(term(drawn, each) for each in terms) == term(drawn, "window")
    assert draw(report, ascii=True, turns=True).isascii()
    assert brief(report).count("\n") == 0


def test_what_is_assumed_and_what_is_estimated_is_marked() -> None:
    drawn = draw(reports.over(), width=100)
    assert ", window assumed)" in drawn
    assert "listing, assumed" in drawn
    assert "--window N corrects it" in drawn
    assert brief(reports.over()).endswith("window assumed")
    assert "assumed" not in draw(reports.worked(), width=100)
    spent = draw(reports.worked(), width=200)
    assert "output 24,960 est (563 reported)" in spent
    assert "$1.84 est" in spent


def test_calls_are_named_below_their_tool() -> None:
    lines = draw(reports.worked(), width=100).splitlines()
    place = next(n for n, line in enumerate(lines) if "read_file 12" in line)
    assert "9,120  read_file src/ledger.py, turn 14" in lines[place + 1]

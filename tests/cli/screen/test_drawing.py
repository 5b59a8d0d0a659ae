"""Rows of a terminal: whatever models and tools write, only our own colours steer it."""

from __future__ import annotations

import re

import pytest
import wcwidth
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.screen.corpus import ESCAPES
from ullage.cli.screen import drawing
from ullage.cli.screen.drawing import Canvas, clean, make_code, make_diff, make_text
from ullage.cli.screen.feed import FoldedText, draw_block, draw_short_diff

OURS = re.compile(r"\x1b\[[0-9;]*m")
STEERS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ue000]"
)
WIDTHS = (20, 40, 80, 200)


def assert_steers_nothing(drawn: str) -> None:
    """Check that nothing but colours is left when our own sequences are taken out."""
    found = STEERS.search(OURS.sub("", drawn))
    assert found is None, repr(drawn[max(found.start() - 40, 0) : found.end() + 40])


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_an_answer_of_anything_steers_no_terminal(name: str, columns: int) -> None:
    for canvas in (Canvas(columns), Canvas(columns, colour=False)):
        assert_steers_nothing(draw_block(ESCAPES[name], canvas))


@pytest.mark.parametrize("name", ESCAPES)
def test_neither_does_a_call_a_diff_or_code(name: str) -> None:
    text, canvas = ESCAPES[name], Canvas(80)
    assert_steers_nothing(FoldedText(text, text, text).draw(canvas))
    assert_steers_nothing(draw_short_diff(f"+{text}", canvas))
    for made in (make_text(text), make_diff(text), make_code(text, "python"), make_code(text, "")):
        assert_steers_nothing(canvas.draw(made))


@given(st.text(max_size=300), st.sampled_from(WIDTHS))
def test_no_text_at_all_steers_a_terminal(text: str, columns: int) -> None:
    assert_steers_nothing(draw_block(text, Canvas(columns)))


@pytest.mark.parametrize("name", ["rich", "rich link", "emoji code"])
def test_mark_up_of_rich_is_shown_as_it_stands(name: str) -> None:
    plain = Canvas(200, colour=False).draw(make_text(ESCAPES[name]))
    assert plain.strip() == ESCAPES[name]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[x](http://a.example/b)", "x (http://a.example/b)"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("![alt](http://a.example/x.png)", "!alt (http://a.example/x.png)"),
        ("&#x202e;evil &amp;", "&#x202e;evil &amp;"),
        ("<b>x</b> List<String>", "<b>x</b> List<String>"),
        ("<!-- hidden -->", "<!-- hidden -->"),
        ("[a]: http://a.example", "[a]: http://a.example"),
    ],
)
def test_nothing_that_a_model_writes_is_hidden(text: str, shown: str) -> None:
    assert OURS.sub("", draw_block(text, Canvas(80))).strip() == shown


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "text",
    [
        ESCAPES["quotes"],
        ESCAPES["lists"],
        "\n".join(">" * n + f" q{n}" for n in range(1, 30)),
        "| a | b |\n|---|---|\n| " + "w" * 300 + " | " + "v" * 300 + " |",
        "|".join(["", *(f"h{n}" for n in range(40)), ""])
        + "\n"
        + "|-" * 40
        + "|\n"
        + "|".join(["", *(f"c{n}" for n in range(40)), ""]),
    ],
    ids=["quotes", "lists", "deeper quotes", "long words", "many columns"],
)
def test_nothing_is_left_out_where_it_is_deep_or_wide(text: str, columns: int) -> None:
    drawn = OURS.sub("", draw_block(text, Canvas(columns)))
    written, seen = ("".join(re.findall(r"\w", each)) for each in (text, drawn))
    assert sorted(written) == sorted(seen)


@pytest.mark.parametrize("columns", WIDTHS)
def test_rows_end_at_the_width(columns: int) -> None:
    text = "\n\n".join(
        ["A sentence of many words that is longer than a row. " * 8, "- " + "item " * 60]
    )
    for row in OURS.sub("", draw_block(text, Canvas(columns))).split("\n"):
        assert wcwidth.wcswidth(row) <= columns
        assert row == row.rstrip()


def test_no_colour_is_drawn_where_none_is_wanted() -> None:
    drawn = Canvas(80, colour=False).draw(make_diff("+a\n-b"), make_code("x = 1", "python"))
    assert "\x1b" not in drawn


def test_a_diff_has_its_colours() -> None:
    drawn = Canvas(80).draw(make_diff("@@ -1 +1 @@\n-old\n+new\n same"))
    assert "\x1b[31m-old" in drawn
    assert "\x1b[32m+new" in drawn
    assert "\n same" in drawn


@pytest.mark.parametrize(("value", "wanted"), [("1", False), ("", True), (None, True)])
def test_no_color_is_heeded(monkeypatch, value: str | None, wanted: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if value is not None:
        monkeypatch.setenv("NO_COLOR", value)
    assert drawing.has_colours() is wanted


def test_tabs_and_windows_line_ends_are_no_escapes() -> None:
    assert clean("a\tb\r\nc") == "a   b\nc"

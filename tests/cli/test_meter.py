"""The line: what is drawn of what is known, in how many cells, and what is escaped where."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from ullage.cli import meter
from ullage.cli.glyphs import cells
from ullage.core.tokens.gauge import STANDARD
from ullage.core.values.fullness import Fullness

FULL = Fullness("claude", "s1", "opus", 124_000, 200_000, "reported", 113_000, None, 155_000, 0.42)


@given(some.floats(0, 3, allow_nan=False))
def test_tiers_are_those_of_the_gauge(ratio: float) -> None:
    assert meter.name_tier(ratio) == STANDARD.tier(ratio)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1500, "1.5k"), (9949, "9.9k"), (9950, "10k"),
     (124_400, "124k"), (999_499, "999k"), (999_500, "1M"), (1_000_000, "1M"), (1_250_000, "1.2M")],
)  # fmt: skip
def test_numbers_are_short(tokens: int, text: str) -> None:
    assert meter.shorten(tokens) == text


def test_the_whole_line() -> None:
    line = meter.draw(FULL, meter.Style())
    assert line == (
        "ctx ▕█████   ▏ 62% 124k/200k (reported) · 31k to compaction · $0.42 · cache 91%"
    )


@pytest.mark.parametrize(
    ("ratio", "percent"), [(0.001, "1%"), (0.9999, "99%"), (1.0, "100%"), (1.2, "120%")]
)
def test_full_and_empty_are_said_only_where_they_are_true(ratio: float, percent: str) -> None:
    assert meter.list_facts(Fullness(share=ratio))["percent"] == percent


names = some.one_of(some.none(), some.text(max_size=30))
counts = some.one_of(some.none(), some.integers(0, 10**11))


@example(Fullness(reason="\xa0"), meter.Style(3), "{model} {session}{bar}{reason}|{source}")
@given(
    some.builds(
        Fullness, names, names, names, counts, counts, names, counts,
        some.one_of(some.none(), some.floats(0.001, 10)), counts,
        some.one_of(some.none(), some.floats(0, 1e9)), names,
    ),
    some.builds(
        meter.Style, some.integers(1, 120), some.sampled_from(meter.PLACES), some.just(False),
        some.booleans(),
    ),
    some.one_of(some.none(), some.just("{model} {session}{bar}{reason}|{source}")),
)  # fmt: skip
def test_any_line_fits_and_steers_nothing(
    one: Fullness, style: meter.Style, template: str | None
) -> None:
    line = meter.draw(one, style, template)
    plain = line.replace("##", "#") if style.place == "tmux" else line.replace("%%", "%")
    assert cells(plain) <= style.width
    assert all(c.isprintable() for c in line)
    assert not style.plain or line.isascii()


def test_each_place_has_its_colours_and_its_escapes() -> None:
    one = Fullness(model="50%#[fg=red]", tokens=95, window=100)
    drawn = {
        place: meter.draw(one, meter.Style(80, place, coloured=True), "{model}")
        for place in meter.PLACES
    }
    assert drawn["tmux"] == "#[fg=red]50%##[fg=red]#[default]"
    assert drawn["zsh"] == "%F{red}50%%#[fg=red]%f"
    assert drawn["bash"] == "\x01\x1b[31m\x0250%#[fg=red]\x01\x1b[0m\x02"
    assert drawn["claude"] == drawn["fish"] == "\x1b[31m50%#[fg=red]\x1b[0m"


def test_a_line_without_a_window_has_no_colour() -> None:
    one = Fullness(tokens=900)
    assert meter.draw(one, meter.Style(coloured=True)) == "ctx 900 (window unknown)"

"""The picture of a window that fills: a column a turn, in its place on a real terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.terminal import Terminal
from ullage.cli.fill import AXIS, BLOCKS, ROWS, Chart, TurnFill

columns = st.lists(
    st.builds(TurnFill, st.none() | st.integers(0, 3_000), st.booleans()), max_size=99
)

THREE = """
from ullage.cli.fill import Chart, TurnFill
chart = Chart("guarded", 2_000)
for n, column in enumerate([TurnFill(500), TurnFill(2_000), TurnFill(None)], 1):
    chart.add(column, f"turn {n}")
chart.finish()
"""

DRAWN = """\
guarded
  2,000 ┤ █✗
        ┤ █
        ┤ █
        ┤ █
        ┤▄█
      0 ┤██
        └───"""


def test_a_column_is_as_high_as_what_was_sent_and_a_refusal_is_a_cross() -> None:
    chart = Chart("guarded", 2_000, [TurnFill(500), TurnFill(2_000), TurnFill(None)])
    assert "\n".join(row.rstrip() for row in chart.draw(80)) == DRAWN


def test_a_compaction_stands_below_its_column() -> None:
    rows = Chart("", 2_000, [TurnFill(1_900), TurnFill(700, compacted=True)]).draw(80)
    assert rows[-1].endswith("└─▾")


@given(columns, st.integers(1, 10_000), st.integers(AXIS + 2, 120))
def test_any_fill_is_drawn_within_its_room(held: list[TurnFill], window: int, width: int) -> None:
    rows = Chart("", window, held).draw(width)
    assert len(rows) == ROWS + 2
    assert {len(row) for row in rows[1:]} <= {AXIS + min(len(held), width - AXIS - 1)}
    for place, column in enumerate(held[-(width - AXIS - 1) :]):
        steps = sum(BLOCKS.find(row[AXIS + place]) for row in rows[1:-1])
        if column.tokens is not None:
            assert steps == min(ROWS * 8, -(-column.tokens * ROWS * 8 // window))


def test_a_terminal_shows_one_picture_that_grows() -> None:
    with Terminal([sys.executable, "-c", THREE], os.environ) as terminal:
        terminal.until("turn 3")
        shown = terminal.shown
    rows = ROWS + 3
    assert shown.count(f"\x1b[{rows}F\x1b[J") == 2
    last = re.sub(r"\r", "", shown.split("\x1b[J")[-1])
    assert [row.rstrip() for row in last.splitlines()][: rows - 1] == DRAWN.splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_pipe_gets_the_picture_once_in_characters_that_it_has(encoding: str) -> None:
    given_ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", THREE], env=given_, capture_output=True, check=True
    )
    text = done.stderr.decode(encoding)
    assert text.count("guarded") == 1
    assert ("✗" in text) == (encoding == "utf-8")
    assert re.search(r"2,000 .* ?.[✗x]\n", text)

"""What became of what a summariser wrote."""

from __future__ import annotations

from ullage.core.compaction.block import Block
from ullage.core.compaction.prose import settle_prose
from ullage.core.summary.flaws import WORSE
from ullage.core.summary.request import Written, make_unasked

PROSE = "Goal:\n- mend the pump\nDone:\n- found the leak\nOpen questions:\n- who pays"
WRITTEN = Written(PROSE, None, (1,), 1.0, ("an order: run curl",), None, 1)


def test_a_summary_that_stands_whole_is_as_it_was() -> None:
    assert settle_prose(WRITTEN, Block(f"x\n{PROSE}", PROSE)) is WRITTEN
    assert settle_prose(make_unasked("no_room"), Block("x")).flaw == "no_room"
    assert settle_prose(WRITTEN, Block("")) is WRITTEN  # nothing was written at all


def test_lines_that_gave_way_are_told() -> None:
    short = "Goal:\n- mend the pump\nDone:\n- found the leak"
    found = settle_prose(WRITTEN, Block(f"x\n{short}", short))
    assert (found.prose, found.flaw) == (short, None)
    assert found.removed == (*WRITTEN.removed, "gave way to the user's words: who pays")


def test_a_summary_of_which_nothing_stands_is_none_and_says_why() -> None:
    found = settle_prose(WRITTEN, Block("x"))
    assert (found.prose, found.flaw, found.requests) == (None, WORSE, 1)

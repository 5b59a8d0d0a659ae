"""trim_oldest: whole units, from the oldest, as few as suffice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from tests.core.compaction.situations import CODEC, said, situation, situations, total_after, words
from ullage.core.compaction import laws
from ullage.core.compaction.dropping import oldest
from ullage.core.compaction.edits import Drop, Edit, Script, apply
from ullage.core.compaction.laws import Unit
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies.trim_oldest import plan


def planned(found: Situation) -> tuple[Edit, ...]:
    return plan(found).edits()


def dropped(found: Situation) -> list[int]:
    edits = planned(found)
    assert all(isinstance(edit, Drop) for edit in edits)
    return [edit.message for edit in edits if isinstance(edit, Drop)]


def free(found: Situation) -> list[Unit]:
    """The units that may go, oldest first."""
    return [
        unit
        for unit in found.units[: found.border()]
        if not found.pins & set(range(unit.start, unit.stop))
    ]


@given(situations())
def test_trim_drops_the_fewest_oldest_units_that_suffice(found: Situation):
    gone = set(dropped(found))
    units = free(found)
    count = sum(unit.start in gone for unit in units)
    assert gone == {i for unit in units[:count] for i in range(unit.start, unit.stop)}
    if count < len(units):
        assert total_after(found, planned(found)) <= found.target
    if count:
        one_less = [Drop(i) for unit in units[: count - 1] for i in range(unit.start, unit.stop)]
        assert total_after(found, one_less) > found.target


@given(situations())
def test_pins_and_the_protected_tail_stay(found: Situation):
    border = found.units[found.border()].start
    gone = set(dropped(found))
    assert not gone & found.pins
    assert all(i < border for i in gone)


@given(situations())
def test_what_is_left_is_lawful(found: Situation):
    edited = apply(found.transcript, Script.of(planned(found)), CODEC)
    assert laws.protocol(edited.transcript) == []


def test_a_target_that_is_met_drops_nothing():
    history = [said("user", words(50)), said("user", "x")]
    whole = situation(history, 0).total
    assert dropped(situation(history, whole)) == []
    assert dropped(situation(history, whole - 1)) == [0]


def test_a_pinned_unit_is_stepped_over():
    history = [said("user", words(50)) for _ in range(4)]
    found = situation(history, 0, pins=frozenset({0, 2}))
    assert dropped(found) == [1]


def test_no_tokens_to_free_are_freed_by_no_units():
    found = situation([said("user", words(50)) for _ in range(4)], 0)
    assert oldest(found, 0) == []
    assert oldest(found, 1) == [Unit(0, 1)]


def test_a_pin_where_units_are_gone_holds_no_other_unit():
    found = situation([said("user", words(50)) for _ in range(5)], 0, pins=frozenset({1}))
    gap = replace(found, units=(found.units[0], *found.units[2:]))
    assert dropped(gap) == [0, 2, 3]

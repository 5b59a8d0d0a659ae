"""Calibration: a vocabulary's ratio and an overhead learned apart, never led astray."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ullage.core.tokens.calibration import (
    NARROWEST,
    OTHERS,
    SANE,
    STEADY,
    WIDEST,
    WORST,
    Calibration,
    Outside,
    ReportedSize,
    Variances,
    learn,
)

RATIOS = st.floats(0.6, 3.0)
READINGS = st.builds(
    ReportedSize,
    st.integers(0, 500_000),
    st.integers(0, 200_000),
    st.integers(0, 20_000),
    st.none() | st.tuples(st.integers(0, 500_000), st.integers(0, 200_000)),
)
GROWTH = st.lists(st.integers(250, 4000), min_size=12, max_size=20)
"""What a conversation grows by between two reports, in counted tokens."""


def course(ratio: float, overhead: float, fixed: int, growth: list[int]) -> list[ReportedSize]:
    """Return the reports of a server that takes `overhead` tokens for what stands outside."""
    content, readings = 0, list[ReportedSize]()
    for grown in growth:
        content += grown
        reading = ReportedSize(round(overhead + ratio * content), content, fixed)
        before = (readings[-1].reported, readings[-1].content) if readings else None
        readings.append(replace(reading, before=before))
    return readings


def taught(readings: list[ReportedSize]) -> Calibration:
    learned = None
    for reading in readings:
        learned = learn(learned, reading)
    assert learned is not None
    return learned


def test_the_first_reading_gives_the_ratio_of_the_whole_and_a_wide_band():
    learned = taught([ReportedSize(1500, 900, 100)])
    assert (learned.ratio, learned.outside, learned.seen) == (1.5, Outside(100, 150.0), 1)
    width = WIDEST - (WIDEST - NARROWEST) / STEADY
    assert learned.scale.low == pytest.approx(1.5 * (1 - width))
    assert learned.scale.high == pytest.approx(1.5 * (1 + width))


def test_a_first_report_of_a_few_words_gives_no_ratio():
    """A template that leaves a tool out makes a third of a small prompt, and of nothing else."""
    few = taught([ReportedSize(51, 20, 130), ReportedSize(60, 28, 130, (51, 20))])
    assert few.seen == 0
    assert few.ratio == pytest.approx(1.0, rel=0.01)
    grown = learn(few, ReportedSize(1_060, 1_028, 130, (60, 28)))
    assert grown is not None
    assert grown.seen == 1
    assert grown.ratio == pytest.approx(1.0, rel=0.01)
    assert grown.outside == pytest.approx((130, 32.0, 1), rel=0.05)


def test_two_reports_of_one_growing_conversation_tell_content_and_the_rest_apart():
    learned = taught(course(1.2, 600, 30, [1000] * 20))
    assert learned.ratio == pytest.approx(1.2, rel=0.02)
    assert learned.outside == pytest.approx(Outside(30, 600), rel=0.5)


@given(RATIOS, st.floats(0, 3000), st.integers(3, 3000), GROWTH)
def test_a_ratio_and_an_overhead_are_learned_to_within_the_band(
    ratio: float, overhead: float, fixed: int, growth: list[int]
):
    readings = course(ratio, overhead, fixed, growth)
    learned = taught(readings)
    assume(learned.seen >= len(readings) - 1)  # an overhead over all reason is no sane reading
    assert learned.scale.low <= ratio <= learned.scale.high
    grown = readings[-1].content + 1000
    expected = learned.predict(grown, fixed)
    # tools that a server leaves out outweigh what is told of them in twelve short turns
    assert expected == pytest.approx(ratio * grown + overhead, rel=2 * NARROWEST)


@given(
    st.floats(0.6, 2.4),
    st.lists(st.tuples(st.integers(500, 90_000), st.integers(3, 900)), min_size=1),
)
def test_the_band_holds_the_truth_of_a_server_of_constant_ratio(
    ratio: float, sizes: list[tuple[int, int]]
):
    learned = taught([ReportedSize(round(ratio * (c + f)), c, f) for c, f in sizes])
    assert learned.scale.low <= ratio <= learned.scale.high
    for content, fixed in sizes:
        whole = ratio * (content + fixed)
        assert learned.predict(content, fixed) == pytest.approx(whole, rel=NARROWEST)


@given(st.lists(READINGS, max_size=30))
def test_no_reading_whatever_leads_out_of_what_a_vocabulary_can_have(readings: list[ReportedSize]):
    learned = None
    for reading in readings:
        learned = learn(learned, reading)
        if learned is None:
            continue
        assert SANE[0] - 1e-9 <= learned.ratio <= SANE[1] + 1e-9
        assert all(tokens >= 0 for _, tokens in learned.counted_outside)
        scale = learned.scale
        assert 0 < scale.low < scale.best < scale.high
        width = scale.high / scale.best - 1
        assert NARROWEST - 1e-9 <= width <= WORST + 1e-9
        assert width >= min(3 * learned.error, WORST) - 1e-9


def test_an_overhead_that_outweighs_the_first_messages_is_told_by_the_second_report():
    first = taught([ReportedSize(3000, 90, 10)])
    assert first.seen == 0
    second = learn(first, ReportedSize(3000 + 600, 590, 10, (3000, 90)))
    assert second is not None
    assert second.seen == 1
    assert second.ratio == pytest.approx(1.2, rel=0.05)
    assert second.predict(1590, 10) == pytest.approx(3600 + 1200, rel=0.02)


def test_a_report_on_nothing_counted_teaches_nothing():
    assert learn(None, ReportedSize(50, 0, 0)) is None


def test_other_tools_are_not_sized_by_what_was_learned_of_these():
    learned = taught(course(1.2, 600, 30, [1000] * 30))
    with_these, with_others = learned.predict(5000, 30), learned.predict(5000, 31)
    assert with_others == pytest.approx(learned.ratio * 5031)
    assert with_these > with_others + 400


def test_a_report_with_other_tools_leaves_what_was_learned_apart_alone():
    learned = taught(course(1.2, 600, 30, [1000] * 8))
    after = learn(learned, ReportedSize(9000, 6000, 800))
    assert after is not None
    assert after.ratio == pytest.approx(learned.ratio, rel=0.01)
    assert after.outside == learned.outside
    assert after.seen == learned.seen + 1


@pytest.mark.parametrize(
    "reading",
    [
        ReportedSize(1500, 900, 30, (1600, 1000)),  # a shorter history
        ReportedSize(9000, 2000, 30, (1600, 1000)),  # a difference that no vocabulary makes
        ReportedSize(1650, 2000, 30, (1600, 1000)),  # the same
        ReportedSize(250, 1000, 30),  # less than any vocabulary makes of it
        ReportedSize(250, 0, 30),
    ],
)
def test_a_report_that_no_vocabulary_makes_teaches_nothing(reading: ReportedSize):
    learned = taught([ReportedSize(1600, 1000, 30)])
    assert learn(learned, reading) is learned


def test_many_good_readings_narrow_the_band_and_a_miss_widens_it_again():
    readings = course(1.0, 0, 3, [1000] * 30)
    one, many = taught(readings[:1]), taught(readings)
    assert many.scale.high - many.scale.low < one.scale.high - one.scale.low
    missed = learn(many, ReportedSize(60_000, 31_000, 3))
    assert missed is not None
    assert missed.scale.high / missed.scale.best > many.scale.high / many.scale.best


def test_a_change_of_the_server_is_followed_slowly_and_surely():
    learned: Calibration | None = taught([ReportedSize(1000, 990, 10)] * 20)
    learned = learn(learned, ReportedSize(2000, 990, 10))
    assert learned is not None
    assert 1.0 < learned.ratio < 1.2
    for _ in range(60):
        learned = learn(learned, ReportedSize(2000, 990, 10))
        assert learned is not None
    assert learned.predict(990, 10) == pytest.approx(2000, rel=NARROWEST)


TALKS = st.lists(
    st.tuples(st.floats(0.85, 1.15), st.integers(300, 60_000), GROWTH), min_size=3, max_size=12
)
"""Conversations: how far their words are off the ratio, how many come first, and what then."""


@given(RATIOS, st.floats(0, 2000), TALKS, st.randoms(use_true_random=False))
def test_many_conversations_at_once_teach_one_ratio(
    ratio: float, overhead: float, talks: list[tuple[float, int, list[int]]], dice: random.Random
):
    """Each alone grows, all have the same tools, and their reports come in any order."""
    waiting = [
        [
            replace(reading, reported=round(overhead + own * ratio * reading.content))
            for reading in course(ratio, overhead, 40, [begun, *growth])
        ]
        for own, begun, growth in talks
    ]
    waiting = [list(_link(readings)) for readings in waiting]
    learned = None
    while any(waiting):
        learned = learn(learned, dice.choice([left for left in waiting if left]).pop(0))
    assert learned is not None
    assert 0.8 * ratio <= learned.ratio <= 1.2 * ratio


def _link(readings: list[ReportedSize]) -> Iterator[ReportedSize]:
    """Yield readings, each with the one before it."""
    yield readings[0]
    for before, one in pairwise(readings):
        yield replace(one, before=(before.reported, before.content))


def test_a_false_first_report_is_forgotten():
    learned: Calibration | None = taught([ReportedSize(90_000, 90, 30)])
    for number in range(12):
        content = 4_000 + 700 * number
        learned = learn(learned, ReportedSize(round(1.2 * content) + 400, content, 30))
    assert learned is not None
    assert learned.predict(5_000, 30) == pytest.approx(6_400, rel=0.05)


def test_much_in_front_of_a_short_prompt_is_no_ratio():
    learned = taught([ReportedSize(1_000, 270, 3), ReportedSize(10_000, 12_270, 3)])
    assert learned.ratio == pytest.approx(0.75, rel=0.1)


@pytest.mark.parametrize("reported", [0, 10**15])
def test_a_report_that_is_no_size_teaches_nothing(reported: int):
    learned = taught([ReportedSize(1600, 1000, 30)])
    assert learn(learned, ReportedSize(reported, 1100, 30, (1600, 1000))) is learned


@pytest.mark.parametrize(
    "odd",
    [
        {"seen": -3},
        {"spread": Variances(0.0, 5.0, 0.0)},
        {"spread": Variances(0.1, float("nan"), 1.0)},
        {"outside": Outside(30, -1e300)},
    ],
)
def test_a_calibration_out_of_a_file_is_looked_at(odd: dict[str, Any]):
    learned = taught(course(1.2, 50, 10, [1000] * 4))
    assert learned.is_sane
    assert not replace(learned, **odd).is_sane


def test_what_an_older_ullage_learned_goes_on():
    """It kept no variances: they are those of a first guess."""
    older = Calibration(1.2, Outside(30, 500.0), 0.02, 9)
    other_tools = learn(older, ReportedSize(9_000, 6_000, 800))
    assert other_tools is not None
    assert (other_tools.outside, other_tools.seen) == (older.outside, 10)
    assert other_tools.is_sane
    grown = learn(other_tools, ReportedSize(7_700, 6_000, 30, (6_500, 5_000)))
    assert grown is not None
    assert grown.ratio == pytest.approx(1.2, rel=0.1)


def test_what_two_sets_of_tools_take_is_learned_where_they_come_in_turn() -> None:
    held: Calibration | None = None
    real = {40: 60.0, 2_000: 2_900.0}  # the second is counted as less than it takes, like the first
    for turn in range(12):
        fixed = (40, 2_000)[turn % 2]
        content = 1_000 + 300 * turn
        held = learn(held, ReportedSize(round(1.2 * content + real[fixed]), content, fixed))
    assert held is not None
    for fixed, own in real.items():
        assert held.predict(5_000, fixed) == pytest.approx(6_000 + own, rel=0.03)
    assert dict(held.counted_outside).keys() == real.keys()


def test_of_many_sets_of_tools_the_last_are_kept() -> None:
    held: Calibration | None = None
    for fixed in range(100, 1_000, 100):
        held = learn(held, ReportedSize(6_000 + fixed, 6_000, fixed))
    assert held is not None
    assert len(held.others) == OTHERS
    assert len(held.counted_outside) == 1  # one report of a set may be off like any other


def test_who_goes_on_with_other_tools_keeps_those_before() -> None:
    held = learn(None, ReportedSize(6_100, 6_000, 100))
    held = learn(held, ReportedSize(10_200, 7_200, 2_600, before=(8_900, 6_000)))
    assert held is not None
    assert held.outside is not None
    assert held.outside.counted == 2_600
    assert [each.counted for each in held.others] == [100]

"""Calibration: a vocabulary's ratio and an overhead learned apart, never led astray."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ullage.core.tokens.calibration import (
    NARROWEST,
    SANE,
    STEADY,
    WIDEST,
    WORST,
    Calibration,
    Outside,
    ReportedSize,
    learn,
)

RATIOS = st.floats(0.6, 3.0)
READINGS = st.builds(
    ReportedSize, st.integers(0, 500_000), st.integers(0, 200_000), st.integers(0, 20_000)
)
GROWTH = st.lists(st.integers(250, 4000), min_size=12, max_size=20)
"""What a conversation grows by between two reports, in counted tokens."""


def course(ratio: float, overhead: float, fixed: int, growth: list[int]) -> list[ReportedSize]:
    """Return the reports of a server that takes `overhead` tokens for what stands outside."""
    content, readings = 0, []
    for grown in growth:
        content += grown
        readings.append(ReportedSize(round(overhead + ratio * content), content, fixed))
    return readings


def taught(readings: list[ReportedSize]) -> Calibration:
    learned = None
    for reading in readings:
        learned = learn(learned, reading)
    assert learned is not None
    return learned


def test_the_first_reading_gives_the_ratio_of_the_whole_and_a_wide_band():
    learned = taught([ReportedSize(1500, 900, 100)])
    assert (learned.ratio, learned.outside, learned.seen) == (1.5, None, 1)
    width = WIDEST - (WIDEST - NARROWEST) / STEADY
    assert learned.scale.low == pytest.approx(1.5 * (1 - width))
    assert learned.scale.high == pytest.approx(1.5 * (1 + width))


def test_a_first_report_of_a_few_words_gives_no_ratio():
    """A template that leaves a tool out makes a third of a small prompt, and of nothing else."""
    first = learn(None, ReportedSize(51, 20, 130))
    assert first is not None
    assert (first.ratio, first.seen) == (1.0, 0)
    again = learn(first, ReportedSize(60, 28, 130))
    assert again is not None
    assert again.seen == 0
    grown = learn(again, ReportedSize(1_060, 1_028, 130))
    assert grown is not None
    assert (grown.seen, grown.ratio, grown.outside) == (1, 1.0, (130, 32.0))


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
    assert expected == pytest.approx(ratio * grown + overhead, rel=NARROWEST)


@given(RATIOS, st.lists(st.tuples(st.integers(500, 90_000), st.integers(3, 900)), min_size=1))
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
        assert learned.outside is None or learned.outside.tokens >= 0
        scale = learned.scale
        assert 0 < scale.low < scale.best < scale.high
        width = scale.high / scale.best - 1
        assert NARROWEST - 1e-9 <= width <= WORST + 1e-9
        assert width >= min(3 * learned.error, WORST) - 1e-9


@given(st.lists(READINGS, max_size=6), st.integers(1, 90_000), st.floats(0, 50))
def test_an_insane_reading_changes_nothing(
    readings: list[ReportedSize], counted: int, ratio: float
):
    reported = round(ratio * counted)
    assume(not SANE[0] <= reported / counted <= SANE[1])
    learned = None
    for reading in readings:
        learned = learn(learned, reading)
    after = learn(learned, ReportedSize(reported, 0, counted))
    assume(learned is None or learned.last is None or learned.last.fixed != counted)
    if learned is None:
        assert after is None or after.seen == 0
    else:
        assert after is learned


def test_an_overhead_that_outweighs_the_first_messages_is_told_by_the_second_report():
    first = learn(None, ReportedSize(3000, 90, 10))
    assert first is not None
    assert first.seen == 0
    second = learn(first, ReportedSize(3000 + 600, 590, 10))
    assert second is not None
    assert second.seen == 1
    assert second.ratio == pytest.approx(1.2)
    assert second.predict(1590, 10) == pytest.approx(3600 + 1200)


def test_a_base_that_no_report_agrees_with_is_left():
    learned = None
    for reading in (ReportedSize(90_000, 90, 10), *course(1.2, 50, 10, [1000] * 12)):
        learned = learn(learned, reading)
    assert learned is not None
    assert learned.outside is not None
    assert learned.scale.low <= 1.2 <= learned.scale.high


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
    assert (after.ratio, after.outside) == (learned.ratio, learned.outside)
    assert after.seen == learned.seen + 1


@pytest.mark.parametrize(
    "reading",
    [
        ReportedSize(1700, 1100, 30),  # too little came since
        ReportedSize(1500, 900, 30),  # a shorter history
        ReportedSize(9000, 2000, 30),  # a difference that no vocabulary makes
        ReportedSize(3000, 2000, 90),  # other tools
    ],
)
def test_two_reports_that_tell_nothing_apart_move_the_whole_ratio_only(reading: ReportedSize):
    first = ReportedSize(1600, 1000, 30)
    learned = taught([first, reading])
    assert learned.outside is None
    whole = [r.reported / (r.content + r.fixed) for r in (first, reading)]
    assert learned.ratio == pytest.approx(sum(whole) / 2)


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
    assert learned.ratio == pytest.approx(2.0, abs=0.01)

"""The clock that stands still."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock


def test_only_advance_moves_it() -> None:
    clock = FakeClock(5.0)
    assert clock() == clock() == 5.0
    clock.advance(2.5)
    assert clock() == 7.5


@pytest.mark.parametrize("step", [-1.0, float("inf"), float("nan")])
def test_it_goes_neither_back_nor_off_the_scale(step: float) -> None:
    with pytest.raises(ValueError, match="cannot advance"):
        FakeClock().advance(step)

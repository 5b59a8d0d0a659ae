"""Faults in what is done beside a request: counted, logged, and ended where they may."""

from __future__ import annotations

import logging

import pytest

from ullage.proxy.faults import FaultsBeside


def test_a_fault_is_counted_and_logged_and_goes_no_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[int] = []
    with caplog.at_level(logging.ERROR), FaultsBeside(lambda: counted.append(1), ends=True):
        raise KeyError("beside")
    assert counted == [1]
    assert "a fault outside a request" in caplog.text
    assert "KeyError" in caplog.text


def test_a_fault_goes_on_where_nothing_goes_out_unguarded() -> None:
    counted: list[int] = []
    with pytest.raises(KeyError), FaultsBeside(lambda: counted.append(1), ends=False):
        raise KeyError("beside")
    assert counted == [1]


def test_an_interruption_is_no_fault() -> None:
    counted: list[int] = []
    with pytest.raises(KeyboardInterrupt), FaultsBeside(lambda: counted.append(1), ends=True):
        raise KeyboardInterrupt
    with FaultsBeside(lambda: counted.append(1), ends=True):
        pass
    assert counted == []

"""Waiting with a bound."""

from __future__ import annotations

import pytest

from tests.support.waiting import eventually


def test_it_asks_until_the_claim_is_true() -> None:
    answers = iter([False, False, True])
    eventually(lambda: next(answers))
    assert next(answers, None) is None


def test_it_gives_up_at_its_bound() -> None:
    with pytest.raises(AssertionError, match=r"not true within 0\.02 s"):
        eventually(lambda: False, within_s=0.02)

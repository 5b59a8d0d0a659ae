"""What the assertions hold true, and how they say what is not."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from ullage.testing import assert_fits, assert_lawful

HISTORY: list[dict[str, Any]] = [
    {"role": ("user", "assistant")[n % 2], "content": f"{n}: the pump of deck {n} is worn. " * 9}
    for n in range(30)
]


def fail(pattern: str, *args: Any, **options: Any) -> None:
    with pytest.raises(AssertionError, match=pattern):
        assert_lawful(*args, **options)


def test_what_a_compaction_makes_is_lawful() -> None:
    made = ullage.compact(HISTORY, target_tokens=900, pins=[3], runtime=ullage.Runtime())
    assert_lawful(HISTORY, made.messages, window=900, pins=[3], model="gpt-4o")
    assert_lawful(HISTORY, HISTORY)
    assert_lawful(HISTORY, window=100_000)


def test_each_law_that_is_broken_is_named_with_its_message() -> None:
    fail(r"law 2 \(smaller\) is broken: [\d,]+ tokens became", HISTORY[:4], HISTORY)
    fail(r"law 3 \(fits\) is broken", HISTORY, HISTORY[:9], window=50)
    fail(r"law 3 \(fits\) is broken", HISTORY, window=50)
    fail(r"law 4 \(pins\) is broken: messages\[1\] ", HISTORY, HISTORY[4:], pins=[1])
    swapped = [HISTORY[4], HISTORY[3], HISTORY[2]]
    fail(r"law 5 \(untouched\) is broken by the result\[1\] .*at 3", HISTORY, swapped)
    fail(r"law 5 \(untouched\) is broken", HISTORY, [HISTORY[2], HISTORY[3], HISTORY[2]])
    orphan = {"role": "tool", "tool_call_id": "c", "content": "lost"}
    fail(r"law 1 \(protocol\) is broken by the history|messages\[\d+\]", [*HISTORY, orphan])


def test_a_request_that_fits_fits_with_its_answer() -> None:
    assert_fits(HISTORY, model="gpt-4o", max_tokens=4_000)
    used = ullage.context(HISTORY, model="gpt-4o").report.used.high
    assert_fits(HISTORY, model="gpt-4o", window=used)
    with pytest.raises(AssertionError, match="and 9 for the answer") as failed:
        assert_fits(HISTORY, model="gpt-4o", window=used, max_tokens=9)
    assert str(failed.value).count("messages[") == 3


def test_an_unknown_window_is_no_pass() -> None:
    with pytest.raises(AssertionError, match="window of nobodys-model is unknown: give window="):
        assert_fits(HISTORY, model="nobodys-model")
    with pytest.raises(AssertionError, match="window of no model is unknown"):
        assert_fits(HISTORY)

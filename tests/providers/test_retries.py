"""How long is waited between two attempts, and what is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ErrorKind
from ullage.providers import CallFailed
from ullage.providers.retries import read_retry_after, wait_s, worthwhile

CHANCES = st.floats(0, 1)


@given(st.integers(1, 50), st.floats(0.1, 1000), CHANCES)
def test_waits_grow_and_are_never_longer_than_allowed(
    attempt: int, longest: float, chance: float
) -> None:
    failed = CallFailed("x", lost=True)
    seconds = wait_s(failed, attempt, longest, lambda: chance)
    assert 0 < seconds <= longest
    assert seconds <= wait_s(failed, attempt + 1, longest, lambda: chance)


@given(st.floats(0, 100), CHANCES)
def test_a_wait_that_was_asked_for_is_never_shortened_but_by_the_limit(
    asked: float, chance: float
) -> None:
    failed = CallFailed("x", status=429, headers={"Retry-After": str(asked)})
    seconds = wait_s(failed, 1, 30.0, lambda: chance)
    assert min(asked, 30.0) <= seconds <= min(asked + 1, 30.0)


def test_chance_tells_callers_apart() -> None:
    failed = CallFailed("x", lost=True)
    assert wait_s(failed, 2, 30.0, lambda: 0.0) == 3.0
    assert wait_s(failed, 2, 30.0, lambda: 1.0) == 1.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "Mon, 99 Foo 2026 10:00:00 GMT"}, None),
        ({"retry-after": "Sun, 22 Nov 99999 10:00:00 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        (
            {
                "retry-after": "Sun, 22 Nov 2026 10:00:09 GMT",
                "date": "Sun, 22 Nov 2026 10:00:00 GMT",
            },
            9.0,
        ),
        (
            {
                "retry-after": "Sun, 22 Nov 2026 10:00:09 -0000",
                "date": "Sun, 22 Nov 2026 11:00:00 +0100",
            },
            9.0,
        ),
        (
            {
                "retry-after": "Sun, 22 Nov 2026 09:00:00 GMT",
                "date": "Sun, 22 Nov 2026 10:00:00 GMT",
            },
            0.0,
        ),
    ],
)
def test_what_a_server_asks_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


def test_a_date_without_the_servers_own_is_compared_with_the_clock() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    seconds = read_retry_after({"retry-after": until})
    assert seconds is not None
    assert 3000 < seconds <= 3600


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        (CallFailed("x", lost=True), True),
        (CallFailed("x", lost=True, begun=True), False),
        (CallFailed("x", unreached=True), True),
        (CallFailed("x", stalled=True), False),
        (CallFailed("x"), False),
        (CallFailed("x", status=503), True),
        (CallFailed("x", status=503, kind=ErrorKind("input")), False),
        (CallFailed("x", status=429, kind=ErrorKind("quota")), False),
        (CallFailed("x", status=500, kind=ErrorKind("input", certainty="likely")), False),
        (CallFailed("x", status=200, kind=ErrorKind("rate_limit"), body={}), True),
        (CallFailed("x", status=200, body={"error": {"type": "invalid_request_error"}}), False),
        (CallFailed("x", status=200, body={"error": {"code": 400}}), False),
        (CallFailed("x", status=200, body={"error": {"code": 501}}), False),
        (CallFailed("x", status=200, body={"code": "Internal_Server_Error"}), True),
        (CallFailed("x", status=200, body={"response": {"error": {"code": "server_error"}}}), True),
        (CallFailed("x", status=200, body="text"), False),
        (CallFailed("x", status=505), False),
    ],
)
def test_only_what_may_pass_is_tried_again(failed: CallFailed, again: bool) -> None:
    assert worthwhile(failed) is again

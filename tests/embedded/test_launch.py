"""The launch options and what they refuse."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ullage.core.errors import ConfigurationError
from ullage.embedded import Launch


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"window": 1}, "window is 1, the server needs at least 2"),
        ({"slots": 0}, "slots is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"port": -1}, "port is -1"),
        ({"port": 65536}, "port is 65536, the largest one is 65535"),
        ({"start_timeout_s": 0}, "start_timeout_s is 0"),
        ({"start_timeout_s": float("nan")}, "start_timeout_s is nan"),
    ],
)
def test_what_cannot_work_is_refused_with_the_value(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Launch(**wish)


def test_without_a_wish_it_computes_on_the_processors_of_this_process() -> None:
    assert Launch().processors == len(os.sched_getaffinity(0))
    assert Launch(threads=3).processors == 3

"""Numbers of rows: pace, shares; and why a cache broke."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.usage import Usage
from ullage.live.breaks import find_break, is_broken, list_parts
from ullage.live.values import LiveRequest, measure_pace, share_cached

SIZES = st.lists(st.one_of(st.none(), st.integers(0, 100_000)), max_size=20)


@given(SIZES, st.one_of(st.none(), st.integers(1, 100_000)))
def test_a_pace_is_a_growth_that_was_seen_and_never_negative(sizes: list[Any], bound: Any):
    growth, left = measure_pace(sizes, bound)
    known = [size for size in sizes if size is not None]
    assert growth is None or 0 <= growth <= max(known)
    assert left is None or left >= 0
    assert (left is None) == (growth in (None, 0) or bound is None)


def test_a_compaction_is_no_growth():
    assert measure_pace([100, 200, 300, 50, 150, 250], 1_000) == (100, 7)
    assert measure_pace([300, 200], 1_000) == (None, None)
    assert measure_pace([100, 100], 1_000) == (0, None)
    assert measure_pace([None, 100, None, 200], 150) == (100, 0)


def test_the_cached_share_is_of_all_prompts():
    assert share_cached([]) is None
    assert share_cached([Usage(0)]) is None
    assert share_cached([Usage(10), Usage(0, 30)]) == 0.75
    assert LiveRequest(0.0, usage=Usage(1, 2)).cache_read == 2
    assert LiveRequest(0.0).cache_read is None


SYSTEM = "You are a helper. Today is 2026-11-25, 10:31. "


@pytest.mark.parametrize(
    ("change", "part", "what"),
    [
        (("2026-11-25", "2026-11-26"), "the system text", "a date or a time"),
        (("10:31", "10:32"), "the system text", "a date or a time"),
        (("helper", "helpful one"), "the system text", ""),
    ],
)
def test_a_change_of_the_system_text_is_named_by_its_byte(
    change: tuple[str, str], part: str, what: str
):
    said = [{"role": "user", "content": "größe"}]
    before = list_parts([], SYSTEM, said)
    after = list_parts([], SYSTEM.replace(*change), said)
    found = find_break(before, after)
    assert found is not None
    assert (found.part, found.what) == (part, what)
    sent, again = SYSTEM.encode(), SYSTEM.replace(*change).encode()
    assert sent[: found.byte] == again[: found.byte]
    assert sent[found.byte : found.byte + 1] != again[found.byte : found.byte + 1]
    assert f"byte {found.byte:,} changed" in found.describe()


def test_a_message_that_went_and_one_that_changed_are_named():
    said: list[Any] = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    parts = list_parts(None, None, said)
    assert find_break(parts, list_parts(None, None, [*said, {"role": "user"}])) is None
    assert find_break(parts, parts) is None
    gone = find_break(parts, list_parts(None, None, said[:1]))
    assert gone is not None
    assert gone.what == "it is gone"
    changed = find_break(parts, list_parts(None, None, [said[0], {"role": "user", "content": "b"}]))
    assert changed is not None
    assert changed.part == "message 2"
    tools = find_break(list_parts([{"name": "a"}], "", said), list_parts([{"name": "b"}], "", said))
    assert tools is not None
    assert tools.part == "the tools"


def test_a_cache_is_lost_only_where_there_was_one():
    assert is_broken(1_000, 0, 900, 800)
    assert not is_broken(1_000, 850, 900, 800)
    assert not is_broken(1_000, 0, 900, 0), "a provider that never reads from a cache"
    assert not is_broken(400, 0, 900, 800), "another branch, or a compaction"

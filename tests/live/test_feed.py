"""The stream: whoever asks by the last change that they know ends with the rows that there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ConfigurationError
from ullage.live.feed import LateRow, RowFeed
from ullage.live.values import LiveSession

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 6), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("look"), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


def row(name: object, **facts: Any) -> LiveSession:
    return LiveSession(source="proxy", id=str(name), **facts)


class Watcher:
    """Keeps what it was told, as a page does."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[str, LiveSession] = {}

    def look(self, feed: RowFeed) -> None:
        changes = feed.list_changes(self.version)
        if changes.whole:
            self.rows.clear()
        self.rows |= {one.key: one for one in changes.rows}
        for key in changes.gone:
            self.rows.pop(key, None)
        self.version = changes.version


@given(STEPS, st.integers(1, 4))
def test_every_viewer_ends_with_what_is_there(steps: list[Any], most: int):
    feed, watchers = RowFeed(most), [Watcher() for _ in range(3)]
    for what, name, used in steps:
        if what == "put":
            feed.put(row(name, used=used))
        elif what == "drop":
            feed.drop(f"proxy/{name}")
        else:
            watchers[name].look(feed)
    for watcher in watchers:
        watcher.look(feed)
        assert watcher.rows == {one.key: one for one in feed.list_rows()}
    assert len(feed.list_rows()) <= most


def test_the_same_row_again_is_no_change():
    feed = RowFeed()
    feed.put(row("a", used=1))
    before = feed.version
    feed.put(row("a", used=1))
    assert feed.version == before
    assert feed.list_changes(before) == (before, [], [], False)
    feed.put(row("a", used=2))
    assert [one.used for one in feed.list_changes(before).rows] == [2]


def test_a_row_is_found_by_its_key():
    feed = RowFeed()
    feed.put(row("a"))
    assert feed.get("proxy/a") == row("a")
    assert feed.get("proxy/b") is None
    feed.drop("proxy/b")
    with pytest.raises(ConfigurationError, match="at least one"):
        RowFeed(0)


def test_a_late_row_is_drawn_once_somebody_looks():
    drawn: list[int] = []

    def draw() -> LiveSession:
        drawn.append(1)
        return row(1, used=len(drawn))

    feed, watcher = RowFeed(), Watcher()
    feed.put_late("proxy/1", LateRow(draw))
    assert feed.version == 1
    assert not drawn
    watcher.look(feed)
    assert feed.list_rows() == [feed.get("proxy/1")] == [row(1, used=1)] == [*watcher.rows.values()]
    feed.put_late("proxy/1", LateRow(draw))
    watcher.look(feed)
    assert watcher.rows == {"proxy/1": row(1, used=2)}

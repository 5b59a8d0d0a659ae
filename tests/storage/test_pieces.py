"""Sessions read in pieces: the same events, bounded pieces, and no mix of two states."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import CorruptLog, StoreError
from ullage.core.session.log.erasing import erase_events
from ullage.core.session.log.event import Draft, Event
from ullage.storage import pieces
from ullage.storage.log import Head, Owner, check_chain
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import END
from ullage.storage.pieces import Pieces, read_pieces


def recorded(sizes: list[int]) -> MemoryLog:
    log = MemoryLog()
    log.create("s", 0.0)
    lease = log.acquire("s", Owner.here(), 0.0)
    log.append("s", lease.epoch, 0, [Draft("user_message", {"text": "x" * n}) for n in sizes], 1.0)
    return log


class Lossy(MemoryLog):
    """A log whose disk lost an event."""

    def __init__(self, left: list[Event]) -> None:
        super().__init__()
        self.left = left

    def head(self, session: str) -> Head:
        return Head(session, 0.0, self.left[-1].seq, self.left[-1].id)

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        until = END if upto is None else upto
        found = [event for event in self.left if max(after, 1) <= event.seq <= until]
        return check_chain(self.head(session), found, after, until)


@given(
    st.lists(st.integers(0, 300), max_size=60),
    st.integers(0, 70),
    st.none() | st.integers(0, 70),
)
def test_the_pieces_are_the_events_in_their_order(sizes, after, upto):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "FIRST", 3)
        patch.setattr(pieces, "BYTES", 500)
        log = recorded(sizes)
        found = list(read_pieces(log, "s", after, upto))
        assert list(chain.from_iterable(found)) == log.read("s", after, upto)
        assert all(found)
        assert all(len(piece) <= 500 // len('{"text": ""}') for piece in found[1:])


def test_the_next_piece_is_as_long_as_those_before_were_large(monkeypatch):
    monkeypatch.setattr(pieces, "BYTES", 1_000)
    monkeypatch.setattr(pieces, "FIRST", 2)
    found = list(read_pieces(recorded([400] * 4 + [10] * 200), "s"))
    assert [len(piece) for piece in found][:3] == [2, 2, 2]
    assert max(map(len, found)) <= 1_000 // 20


def test_damage_is_told_at_its_piece(monkeypatch):
    monkeypatch.setattr(pieces, "FIRST", 2)
    whole = recorded([1] * 6).read("s")
    log = Lossy([event for event in whole if event.seq != 4])
    reading = read_pieces(log, "s")
    assert [event.seq for event in next(reading)] == [1, 2]
    with pytest.raises(CorruptLog, match="lacks event 4"):
        list(reading)


def test_a_session_that_is_rewritten_meanwhile_is_not_mixed(monkeypatch):
    monkeypatch.setattr(pieces, "FIRST", 2)
    log = recorded([1] * 6)
    reading = read_pieces(log, "s")
    next(reading)
    log.rewrite("s", 1, erase_events(log.read("s"), 2.0))
    with pytest.raises(StoreError, match="was rewritten while it was read"):
        next(reading)


def test_a_log_that_returns_nothing_ends_the_reading():
    found = Pieces(0, 1_000)
    assert (found.upto, found.is_last) == (256, False)
    found.take(list[Event]())
    assert (found.after, found.end, found.is_last) == (0, 0, True)

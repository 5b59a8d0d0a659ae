"""Events: read back equal to what was recorded; what is not understood is passed on as it came."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import StoreError
from ullage.core.session.log.event import (
    DURABLE,
    EPHEMERAL,
    Draft,
    encode_data,
    make_event,
    read,
    upcast_data,
)

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
ANY_TEXT = st.text(st.characters(codec=None))
DATA = st.dictionaries(
    ANY_TEXT,
    st.recursive(
        LEAVES | ANY_TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
KINDS = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: text not in EPHEMERAL | DURABLE
)
TIMES = st.floats(min_value=0, max_value=1e11)


def line(**changes: object) -> str:
    """Return a line of an event, with other fields where they are given."""
    head = {"id": "i", "session_id": "s", "seq": 1, "ts": 1.5, "type": "t", "v": 1, "data": {}}
    return json.dumps({**head, **changes})


@given(DATA, TIMES, KINDS)
def test_an_event_read_back_equals_the_one_written(data, ts, kind):
    event = make_event("s", 1, ts, Draft(kind, data))
    again = read(event.line())
    assert again == event
    assert again.data == event.data
    assert again.follows("")
    event.line().encode()


def test_what_is_not_known_passes_byte_for_byte():
    text = '{"b":1.50,  "a": "\\u00e9\\ud800", "big": 1e2, "b": 2}'
    head = '{"id": "x", "session_id": "s", "seq": 7, "ts": 1.5, "type": "dreamt", "v": 9'
    event = read(f'{head}, "data": {text}}}\n')
    assert event.text == text
    assert event.line() == f'{head}, "data": {text}}}'
    assert not event.known
    assert upcast_data(event) is None


def test_data_may_hold_what_looks_like_the_border_of_the_data():
    event = make_event('a, "data": {', 1, 0, Draft("user_message", {"text": ', "data": {"}'}))
    assert read(event.line()) == event


@pytest.mark.parametrize("kind", sorted(EPHEMERAL))
def test_what_is_only_shown_is_refused(kind: str):
    with pytest.raises(StoreError, match="shown, not recorded"):
        Draft(kind, {})


def test_data_that_lack_what_their_type_needs_are_refused():
    with pytest.raises(StoreError, match="user_message cannot be recorded: text is None, not str"):
        Draft("user_message", {})
    assert Draft("user_message", {}, v=2).v == 2


@pytest.mark.parametrize(("kind", "v"), [("", 1), ("\ud800", 1), ("t", 0), ("t", 2**53)])
def test_a_type_or_version_that_no_line_can_carry_is_refused(kind: str, v: int):
    with pytest.raises(StoreError, match="cannot be recorded: expected text that UTF-8"):
        Draft(kind, {}, v)


@pytest.mark.parametrize("ts", [float("nan"), float("inf"), 1e300])
def test_a_time_that_is_none_is_refused(ts: float):
    with pytest.raises(StoreError, match="cannot be recorded at"):
        make_event("s", 1, ts, Draft("t", {}))


@pytest.mark.parametrize(
    "data", [{1: "x"}, {"a": [{2: 1}]}, {"a": float("nan")}, {"a": object()}, {"a": ({3: 1},)}]
)
def test_what_json_cannot_carry_is_refused(data):
    with pytest.raises(StoreError, match="cannot be recorded"):
        encode_data(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "{",
        line(seq=0),
        line(seq=True),
        line(seq=2**60),
        line(ts=True),
        line(ts="1"),
        line(ts=10**400),
        line(v=0),
        line(type=""),
        line(id=None),
        line(session_id="\ud800"),
        line(data=[]),
        line()[:-1],
        line().replace("1.5", "NaN"),
        line().replace('"id": "i", ', ""),
        line(more=1),
        line().replace("{}", '{"a": "\ud800"}'),
    ],
)
def test_what_is_no_event_is_refused_and_the_place_told(text: str):
    with pytest.raises(StoreError, match="line 3 is no event"):
        read(text, "line 3")


def test_the_id_is_of_the_content_and_of_what_was_before():
    one = make_event("s", 1, 2.0, Draft("user_message", {"text": "a"}))
    assert one == make_event("s", 1, 2.0, Draft("user_message", {"text": "a"}))
    others = [
        make_event("t", 1, 2.0, Draft("user_message", {"text": "a"})),
        make_event("s", 2, 2.0, Draft("user_message", {"text": "a"})),
        make_event("s", 1, 3.0, Draft("user_message", {"text": "a"})),
        make_event("s", 1, 2.0, Draft("branch_summary", {"text": "a"})),
        make_event("s", 1, 2.0, Draft("user_message", {"text": "b"})),
        make_event("s", 1, 2.0, Draft("user_message", {"text": "a"}), "before"),
    ]
    assert len({one.id, *(other.id for other in others)}) == 7
    assert not others[-1].follows("")


def test_data_that_are_corrupt_are_told_with_their_place():
    event = read(line(type="user_message", data={"text": 1}))
    with pytest.raises(StoreError, match="event 1 of session s is a corrupt user_message: text"):
        upcast_data(event)


def test_data_of_an_older_version_are_brought_forward_step_by_step():
    event = read(line(type="user_message", data={"said": "x"}))
    steps = {
        ("user_message", 1): lambda data: {"text": data["said"]},
        ("user_message", 3): lambda data: {"text": data["text"] + "!"},
    }
    assert upcast_data(event, steps, current=4) == {"text": "x!"}
    assert event.line() == line(type="user_message", data={"said": "x"})

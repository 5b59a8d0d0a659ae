"""Whatever happens to a file, it is read or refused: no other error, and no range out of bounds."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ConfigurationError
from ullage.importers import SAMPLE, SOURCES, ImportedSession, parse

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings" / "sessions").glob("*.jsonl"))
FILES = [path.read_bytes().splitlines(keepends=True) for path in (SAMPLE, *RECORDINGS)]
SOURCE = st.sampled_from([None, *SOURCES])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def read(data: bytes, source: str | None) -> ImportedSession | None:
    try:
        session = parse(data, source=source)
    except ConfigurationError:
        return None
    length = len(session.messages)
    assert 0 <= session.start <= length
    for number, turn in enumerate(session.turns, 1):
        assert turn.number == number
        assert 0 <= turn.start <= turn.stop <= length
        assert turn.tokens is None or turn.tokens > 0
    assert session.turns == tuple(sorted(session.turns, key=lambda turn: turn.stop))
    assert (session.tokens is None) == (session.covered is None)
    assert session.covered is None or session.start <= session.covered <= length
    assert session.tokens is None or session.tokens > 0
    assert all(0 <= place < length for place in session.summaries)
    assert all(isinstance(message, dict) for message in session.messages)
    assert all(number > 0 for number in session.unread.values())
    return session


@given(st.sampled_from(FILES), st.randoms(use_true_random=False), SOURCE)
def test_lines_in_any_order_are_read_or_refused(lines, chance, source):
    lines = list(lines)
    chance.shuffle(lines)
    read(b"".join(lines), source)


@given(st.sampled_from(FILES), st.data(), SOURCE)
def test_a_file_with_lines_lost_or_repeated_is_read_or_refused(lines, data, source):
    places = st.lists(st.integers(0, len(lines) - 1), max_size=3 * len(lines))
    read(b"".join(lines[place] for place in data.draw(places)), source)


@given(st.sampled_from(FILES), st.data(), SOURCE)
def test_a_file_that_is_cut_off_or_overwritten_is_read_or_refused(lines, data, source):
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    hole = data.draw(st.binary(max_size=40))
    place = data.draw(st.integers(0, cut))
    read(whole[:place] + hole + whole[place + len(hole) : cut], source)


@given(st.sampled_from(FILES), st.data(), SOURCE)
def test_a_file_whose_fields_hold_anything_is_read_or_refused(lines, data, source):
    values = [json.loads(line) for line in lines]
    for _ in range(data.draw(st.integers(1, 6))):
        inner = data.draw(st.sampled_from(values))
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            nested = inner[key] if key is not None else None
            if not isinstance(nested, dict | list) or not nested or data.draw(st.booleans()):
                break
            inner = nested
        if key is not None:
            inner[key] = data.draw(JSON)
    read(b"".join(json.dumps(value).encode() + b"\n" for value in values), source)


@given(st.binary(max_size=200), SOURCE)
def test_any_bytes_are_read_or_refused(data, source):
    read(data, source)


@given(st.lists(JSON, max_size=4), SOURCE)
def test_any_values_are_read_or_refused(values, source):
    read(b"".join(json.dumps(value).encode() + b"\n" for value in values), source)
    read(json.dumps(values).encode(), source)


def test_every_recording_is_read():
    for path in RECORDINGS:
        assert read(path.read_bytes(), path.name.split("-")[0]) is not None


@given(st.integers(0, len(FILES[0])))
def test_the_beginning_of_the_sample_is_the_session_as_it_was_then(count):
    whole = read(b"".join(FILES[0]), "claude")
    part = read(b"".join(FILES[0][:count]), "claude")
    if part is not None and whole is not None:
        known = len(part.turns)
        assert [t.tokens for t in part.turns] == [t.tokens for t in whole.turns[:known]]
        assert part.messages[:-1] == whole.messages[: max(len(part.messages) - 1, 0)]

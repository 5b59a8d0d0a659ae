"""Server-sent events: any cut of the bytes gives the same events, and lines end where they do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.sse import MOST_BYTES, Events, Garbled, SseEvent

ENDS = (b"\n", b"\r\n", b"\r")
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00")
TEXTS = st.text(LETTERS, max_size=20)


def read(*pieces: bytes) -> list[SseEvent]:
    events = Events()
    return [event for piece in pieces for event in events.feed(piece)] + events.end()


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw a stream of fields, comments, empty lines and nonsense, with line ends of each kind."""
    names = st.sampled_from(["data", "event", "id", "retry", "", ": hm", "dat", "data "])
    lines = st.tuples(names, st.sampled_from(["", ":", ": ", ":  "]), TEXTS, st.sampled_from(ENDS))
    made = b"".join(
        (name + colon + text).encode() + end if name else end
        for name, colon, text, end in draw(st.lists(lines, max_size=20))
    )
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + made


@given(streams(), st.data())
def test_any_cut_of_the_bytes_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*pieces) == read(stream) == read(*(bytes([byte]) for byte in stream))


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))), st.sampled_from(ENDS))
def test_events_that_were_written_are_read(written: list, end: bytes) -> None:
    stream = b"".join(
        b"event: " + name.encode() + end
        + b"".join(b"data: " + line.encode() + end for line in lines) + end
        for name, lines in written
    )  # fmt: skip
    assert read(stream) == [SseEvent(name, "\n".join(lines)) for name, lines in written]


@pytest.mark.parametrize("end", ENDS)
def test_a_line_separator_of_unicode_is_text(end: bytes) -> None:
    text = json.dumps({"a": "x\u2028y\u2029\x85\x0b\x0cz"}, ensure_ascii=False)
    assert read(b"data: " + text.encode() + end + end) == [SseEvent("", text)]


def test_an_escaped_lone_surrogate_and_torn_utf8_pass() -> None:
    assert read(b'data: "\\ud800"\n\n') == [SseEvent("", '"\\ud800"')]
    assert read(b"data: \xe2\x82\n\n") == [SseEvent("", "\ufffd")]


def test_a_letter_of_several_bytes_may_be_cut() -> None:
    stream = "data: zażółć 😀\n\n".encode()
    for cut in range(len(stream)):
        assert read(stream[:cut], stream[cut:]) == [SseEvent("", "zażółć 😀")]


@pytest.mark.parametrize("pieces", [[b"data: a\r", b"\n\r\n"], [b"data: a\r", b"\n", b"\r", b"\n"]])
def test_a_line_end_may_be_cut(pieces: list[bytes]) -> None:
    events = Events()
    assert [e.data for piece in pieces for e in events.feed(piece)] == ["a"]
    assert events.end() == []


def test_comments_and_fields_that_nobody_reads_are_no_events() -> None:
    assert read(b": ping\n\nid: 7\nretry: 1\n\nevent: lonely\n\nnonsense\n\n") == []


def test_a_name_belongs_to_one_event_only() -> None:
    assert read(b"event: a\ndata: 1\n\ndata: 2\n\n") == [SseEvent("a", "1"), SseEvent("", "2")]


def test_one_space_behind_the_colon_is_no_data() -> None:
    assert read(b"data:x\n\ndata: x\n\ndata:  x\n\ndata\n\n") == [
        SseEvent("", "x"), SseEvent("", "x"), SseEvent("", " x"), SseEvent("", ""),
    ]  # fmt: skip


def test_an_end_without_an_empty_line_still_gives_the_event() -> None:
    assert read(b"data: [DONE]") == read(b"data: [DONE]\n") == [SseEvent("", "[DONE]")]


@pytest.mark.parametrize("block", [7, 100, 1000])
def test_an_event_over_the_bound_is_refused_however_it_comes(block: int) -> None:
    for stream in (b"data: " + b"x" * 95, b"data: x\n" * 20):
        events = Events(most_bytes=100)
        pieces = [stream[at : at + block] for at in range(0, len(stream), block)]
        with pytest.raises(Garbled, match="longer than 100 bytes"):
            [events.feed(piece) for piece in pieces]


def test_comments_and_many_events_are_under_the_bound() -> None:
    events = Events(most_bytes=100)
    for _ in range(200):
        assert events.feed(b": still here, still here\n") == []
        assert events.feed(b"data: x\n\n") == [SseEvent("", "x")]
    assert MOST_BYTES == 16 * 1024 * 1024


def test_many_small_pieces_of_a_long_line_cost_what_they_weigh() -> None:
    events = Events()
    for _ in range(200_000):
        assert events.feed(b"data: x"[:7]) == []
    assert len(events.feed(b"\n\n")[0].data) == 7 * 200_000 - len("data: ")

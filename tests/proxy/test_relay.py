"""Streams on their way: the bytes that go on, and what they tell, however they are cut up."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.core.dialects.registry import find
from ullage.proxy.relay import MOST, EventRelay, LineRelay

ENDS = st.sampled_from(["\n", "\r", "\r\n"])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6) | (
    st.sampled_from(["\u2028", "\u0085", "\x0b\x0c\x1c", "é你🙂", "data: x", ""])
)
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


def written(event: Any) -> str:
    return json.dumps(event, ensure_ascii=False)


@st.composite
def frames(draw: st.DrawFn, data: str) -> bytes:
    """Draw a frame around data, with any line ends and anything else that may stand there."""
    before = draw(st.lists(TEXT.map(": {}".format) | st.sampled_from(["id: 7", "retry: 3"])))
    lines = [*before, f"data:{draw(st.sampled_from(['', ' ']))}{data}"]
    written = "".join(line + draw(ENDS) for line in lines)
    end = draw(ENDS)
    if written.endswith("\r") and end == "\n":
        end = "\r\n"  # CR and LF together are one end
    return (written + end).encode()


def chunked(data: st.DataObject, stream: bytes) -> list[bytes]:
    """Cut a stream into chunks, often small ones."""
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    return [stream[a:b] for a, b in pairwise(sorted([0, *cuts, len(stream)]))]


def passed(relay: EventRelay | LineRelay, chunks: list[bytes]) -> bytes:
    return b"".join([*map(relay.feed, chunks), relay.rest()])


def naive(stream: bytes) -> list[bytes]:
    """Return the data of whole events, read line by line as the HTML Standard says."""
    found, data = [], list[bytes]()
    *lines, _ = re.split(rb"\r\n|\r|\n", stream)
    for line in lines:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            found.append(b"\n".join(data))
            data = []
    return found


# --- the bytes ------------------------------------------------------------------------------------


@given(
    st.binary(max_size=60) | st.text("data: {}\r\n[DONE]", max_size=60).map(str.encode), st.data()
)
def test_nothing_is_held_back_or_changed_where_nothing_was_asked_for(
    stream: bytes, data: st.DataObject
) -> None:
    relay = EventRelay("openai_chat")
    for chunk in chunked(data, stream):
        assert relay.feed(chunk) == chunk
    assert relay.rest() == b""


@given(st.data(), st.lists(TEXT, max_size=4), st.booleans(), st.booleans())
def test_exactly_the_usage_that_was_asked_for_is_left_out(
    data: st.DataObject, words: list[str], early: bool, done: bool
) -> None:
    events = [written(said(word, usage=None)) for word in words]
    events += [written(FINISH), written({**USAGE, "usage": None})]
    usage = data.draw(frames(written(USAGE)))
    made = [data.draw(frames(event)) for event in events]
    last = [data.draw(frames("[DONE]"))] if done else []
    rest = [*last, b": bye\n\n"] if early else last
    stream = b"".join([*made, usage, *rest])
    relay = EventRelay("openai_chat", spliced=True)
    assert passed(relay, chunked(data, stream)) == b"".join([*made, *rest])
    assert relay.report["usage"] == USAGE["usage"]
    assert relay.ended


@given(st.data())
def test_a_stream_tells_the_same_however_it_is_cut(data: st.DataObject) -> None:
    events = data.draw(st.lists(st.sampled_from([said("a"), said("é\u2028"), FINISH, USAGE, {}])))
    stream = b"".join(data.draw(frames(written(event))) for event in events)
    whole, cut = EventRelay("openai_chat"), EventRelay("openai_chat")
    passed(whole, [stream])
    passed(cut, chunked(data, stream))
    assert whole.events == cut.events
    assert (whole.begun, whole.ended, whole.report) == (cut.begun, cut.ended, cut.report)


@given(st.text(": data[1]\r\n", max_size=40))
@example("data: [1]\r\r\ndata: [2]\n\n")
@example("data: {}\r\n\r")
def test_events_are_those_that_a_reader_of_lines_finds(text: str) -> None:
    stream = text.replace("[", '{"choices": [').replace("]", "]}").encode()
    relay = EventRelay("openai_chat")
    passed(relay, [stream[at : at + 1] for at in range(len(stream))])
    heard = [event for event in naive(stream) if event.lstrip().startswith(b"{")]
    whole = sum(1 for event in heard if _object(event))
    assert relay.tracker.events in (whole, whole + 1)  # the last one may lack its blank line


def _object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


@pytest.mark.parametrize(
    "separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e"]
)
def test_a_character_that_only_python_takes_for_a_line_end_is_text(separator: str) -> None:
    event = {"choices": [{"delta": {"content": "X"}, "finish_reason": None}]}
    raw = f"data: {json.dumps(event).replace('X', f'a{separator}b')}\n\n".encode()
    relay = EventRelay("openai_chat")
    assert passed(relay, [raw[at : at + 1] for at in range(len(raw))]) == raw
    assert relay.events == 1


def test_the_report_is_left_out_also_where_no_answer_came_before_it_in_one_piece() -> None:
    relay = EventRelay("openai_chat", spliced=True)
    assert relay.feed(f"data: {written(USAGE)}\n\n".encode()) == b""


def test_half_a_frame_that_has_gone_out_is_never_left_without_its_other_half() -> None:
    raw = f"data: {written(USAGE)}\n\n".encode()
    relay = EventRelay("openai_chat", spliced=True)
    assert relay.feed(raw[:20]) + relay.feed(raw[20:]) == raw


@pytest.mark.parametrize("ended", [b"", b"\n", b"\r", b"\r\n", b"\r\r"])
def test_a_last_frame_without_its_blank_line_is_read_all_the_same(ended: bytes) -> None:
    finish, usage = f"data: {written(FINISH)}\n\n".encode(), f"data: {written(USAGE)}".encode()
    relay = EventRelay("openai_chat", spliced=True)
    assert passed(relay, [finish, usage + ended]) == finish
    assert relay.report["usage"] == USAGE["usage"]


def test_done_ends_an_answer_that_gave_no_reason() -> None:
    relay = EventRelay("openai_chat")
    relay.feed(f"data: {written(said('a'))}\n\n".encode())
    assert not relay.ended
    relay.feed(b"data: [DONE]\n\n")
    assert relay.ended


@pytest.mark.parametrize(
    "frame",
    [b'data: {"choices": \n\n', b"data: nonsense\n\n", b"data: [1]\n\n", b'data: "\xff"\n\n',
     b": a comment\n\n", b"event: ping\n\n", b"data: " + b"[" * 100_000 + b"\n\n"],
    ids=["half", "nonsense", "list", "no text", "comment", "name", "bomb"],
)  # fmt: skip
def test_garbage_passes_and_tells_nothing(frame: bytes) -> None:
    relay = EventRelay("openai_chat", spliced=True)
    assert relay.feed(frame) == frame
    assert (relay.events, relay.begun, relay.ended, relay.failed) == (1, False, False, None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "choices",
                        "usage",
                        "delta",
                        "error",
                        "response",
                        "message",
                        "finish_reason",
                    ]
                ),
                inner | st.sampled_from(["message_start", "message_delta", "response.completed"]),
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(["openai_chat", "openai_responses", "anthropic"]),
)
def test_no_event_whatever_it_holds_stops_a_stream(event: Any, dialect: str) -> None:
    raw = f"data: {json.dumps(event)}\n\n".encode()
    assert passed(EventRelay(dialect), [raw, raw]) == raw * 2


def test_a_frame_beyond_all_bounds_is_relayed_and_no_longer_read() -> None:
    relay = EventRelay("openai_chat", spliced=True)
    finish = f"data: {written(FINISH)}\n\n".encode()
    piece = b"data: " + b"x" * (1024 * 1024)
    stream = [finish, *[piece] * (MOST // len(piece) + 2), b"\n\n", b"data: more\n\n"]
    assert passed(relay, stream) == b"".join(stream)
    assert not relay.known
    assert relay.cut("broken").startswith(b"\n\ndata: {")


# --- what ends too early --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "between"),
    [(b"", b""), (b"data: {}\n\n", b""), (b"data: {}\r\n\r\n", b""), (b"data: {}\r\r", b""),
     (b'data: {"cho', b"\n\n"), (b"data: {}\n", b"\n\n")],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
@pytest.mark.parametrize("rested", [False, True])
def test_the_event_that_tells_of_a_break_stands_by_itself(
    sent: bytes, between: bytes, dialect: str, rested: bool
) -> None:
    relay = EventRelay(dialect)
    made = relay.feed(sent) + (relay.rest() if rested else b"") + relay.cut("it broke")
    assert made == sent + between + find(dialect).errors.break_off("it broke", b"")


def test_what_was_held_back_goes_out_before_a_break_is_told() -> None:
    relay = EventRelay("openai_chat", spliced=True)
    finish, half = f"data: {written(FINISH)}\n\n".encode(), b'data: {"choices": [], "usa'
    assert relay.feed(finish + half) == finish
    assert relay.cut("it broke") == half + b"\n\n" + find("openai_chat").errors.break_off(
        "it broke", b""
    )


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
def test_a_break_is_read_as_an_error_and_never_as_an_end(dialect: str) -> None:
    relay = EventRelay(dialect)
    relay.feed(find(dialect).errors.break_off("it broke", b""))
    assert relay.failed is not None
    assert not relay.ended


# --- lines of JSON --------------------------------------------------------------------------------


@given(st.binary(max_size=60) | st.lists(TEXT).map(lambda t: "\n".join(t).encode()), st.data())
def test_lines_go_on_as_they_came(stream: bytes, data: st.DataObject) -> None:
    lines = LineRelay("ollama_chat")
    for chunk in chunked(data, stream):
        assert lines.feed(chunk) == chunk
    assert lines.rest() == b""


def test_lines_tell_of_content_an_end_and_a_report() -> None:
    lines = LineRelay("ollama_chat")
    lines.feed(b'{"message": {"content": ""}, "done": false}\n')
    assert (lines.events, lines.begun, lines.ended) == (1, False, False)
    lines.feed(b'{"message": {"content": "a\xe2\x80\xa8"}, "done": false}\n{"done"')
    assert (lines.events, lines.begun, lines.ended) == (2, True, False)
    lines.feed(b': true, "prompt_eval_count": 7}\n')
    assert (lines.ended, lines.failed, lines.report) == (True, None, {"prompt_eval_count": 7})


@pytest.mark.parametrize(("sent", "between"), [(b"", b""), (b"{}\n", b""), (b'{"mess', b"\n")])
def test_a_line_tells_of_a_break(sent: bytes, between: bytes) -> None:
    lines = LineRelay("ollama_chat")
    lines.feed(sent)
    assert lines.cut("it broke") == between + b'{"error": "it broke"}\n'


@pytest.mark.parametrize("ended", [b"\n", b""])
def test_a_line_that_is_a_bomb_passes_and_ends_the_reading(ended: bytes) -> None:
    bomb = b'{"message": ' + b"[" * 100_000 + ended
    lines = LineRelay("ollama_chat")
    assert lines.feed(bomb) + lines.rest() == bomb
    assert not lines.known
    assert lines.feed(b"{}\n") == b"{}\n"
    assert lines.events == 0


def test_a_line_beyond_all_bounds_passes_and_ends_the_reading() -> None:
    lines = LineRelay("ollama_chat")
    piece = b"x" * (9 * 1024 * 1024)
    assert lines.feed(piece) == piece
    assert lines.known
    assert lines.feed(piece) == piece
    assert not lines.known

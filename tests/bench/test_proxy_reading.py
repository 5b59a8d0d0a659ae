"""Reading HTTP as the bench's ends do: requests and answers, however they are cut up."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.proxy.reading import Answer, Request, Requests

PLAIN = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd"
CHUNKED = (
    b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n"
)
EVENTS = (b"data: 1\n\n", b"event: x\ndata: 2\n\n", b"data: [DONE]\n\n")
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    [*(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS), b"0\r\n\r\n"]
)


def pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.sets(st.integers(1, 160)))
def test_requests_are_read_however_they_are_cut_up(cuts):
    requests, found = Requests(), []
    for piece in pieces(PLAIN + CHUNKED, cuts):
        requests.feed(piece)
        while (request := requests.take()) is not None:
            found.append(request)
    assert [(r.method, r.path, r.body) for r in found] == [
        ("POST", "/v1/messages", b"abcd"),
        ("POST", "/a", b"abcd"),
    ]


def test_names_of_headers_are_small():
    requests = Requests()
    requests.feed(PLAIN)
    assert requests.take() == Request(
        "POST", "/v1/messages", {"host": "h", "content-length": "4"}, b"abcd"
    )


@given(st.sets(st.integers(1, 160)))
def test_a_stream_s_events_are_counted_however_it_is_cut_up(cuts):
    answer, found = Answer(), 0
    for piece in pieces(STREAM, cuts):
        assert not answer.ended
        found += answer.feed(piece)
    assert (found, answer.events, answer.ended, answer.status) == (3, 3, True, 200)


@given(st.sets(st.integers(1, 80)))
def test_an_answer_of_known_length_ends_with_its_last_byte(cuts):
    answer = Answer()
    for piece in pieces(
        b"HTTP/1.1 400 Bad\r\nConnection: close\r\nContent-Length: 5\r\n\r\nab\n\nc", cuts
    ):
        assert not answer.ended
        answer.feed(piece)
    assert (answer.status, answer.closes, answer.ended) == (400, True, True)


@pytest.mark.parametrize(
    "body", [b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"Server: x\r\n\r\n"]
)
def test_an_empty_answer_ends_at_once(body):
    answer = Answer()
    assert answer.feed(b"HTTP/1.1 204 No Content\r\n" + body) == 0
    assert answer.ended


def test_what_is_no_answer_is_refused():
    with pytest.raises(ValueError, match="no HTTP/1 answer: 'SSH-"):
        Answer().feed(b"SSH-2.0 x y\r\n\r\n")

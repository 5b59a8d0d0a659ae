"""What is no HTTP, too large or too slow: refused, in bounded memory, one request out at most."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.proxy.sockets import BOUNDED, Behind, Line, Served, ask, chat, request, serving

CHAT: Final = "/v1/chat/completions"
BODY: Final = chat()
SIZE: Final = len(BODY)
MB: Final = 1 << 20
MOST_MB: Final = 600
"""What the server may use at most; by itself it uses about 120 MB."""

CHUNKED: Final = b"%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)


@pytest.fixture(scope="module")
def behind() -> Iterator[Behind]:
    with Behind() as found:
        yield found


@pytest.fixture(scope="module")
def proxy(behind: Behind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("floods"), [behind.url]) as found:
        ask(found.port, request("POST", CHAT, BODY))
        yield found
        assert found.alive
        assert "Traceback" not in found.log
        assert found.memory() < MOST_MB


def posts(behind: Behind) -> int:
    return sum(head.startswith(b"POST") for head in behind.heads)


# --- smuggling ------------------------------------------------------------------------------------


def sized(line: str) -> bytes:
    return request("POST", CHAT, BODY, line, length=False)


def coded(line: str, body: bytes = CHUNKED) -> bytes:
    return request("POST", CHAT, body, line, length=False)


def head(ends: bytes, last: bytes = b"\r\n") -> bytes:
    """Return a request with something unlawful between two header lines."""
    return (
        b"POST %b HTTP/1.1\r\nHost: localhost%bContent-Length: %d\r\n%b" % (
            CHAT.encode(), ends, SIZE, last,
        )
    ) + BODY  # fmt: skip


HIDDEN: Final = request("POST", CHAT, BODY)
TE: Final = "Transfer-Encoding: "
SMUGGLED: Final = {
    "two lengths, equal": request("POST", CHAT, BODY, f"Content-Length: {SIZE}"),
    "two lengths": request("POST", CHAT, BODY, "Content-Length: 3"),
    "length 0 and another": request("POST", CHAT, BODY, "Content-Length: 0"),
    "a list of lengths": sized(f"Content-Length: {SIZE}, {SIZE}"),
    "length below 0": sized("Content-Length: -1"),
    "length with a sign": sized(f"Content-Length: +{SIZE}"),
    "length in hex": sized(f"Content-Length: 0x{SIZE:x}"),
    "length with an underscore": sized("Content-Length: 6_6"),
    "length beyond all bounds": sized(f"Content-Length: {'9' * 30}"),
    "length that is none": sized("Content-Length: many"),
    "length and chunks": request("POST", CHAT, CHUNKED, f"{TE}chunked"),
    "chunks and length 0": request("POST", CHAT, b"0\r\n\r\n" + HIDDEN, f"{TE}chunked"),
    "chunks and junk": coded(f"{TE}chunked, junk"),
    "junk alone": coded(f"{TE}xchunked"),
    "identity": coded(f"{TE}identity"),
    "chunked twice": coded(f"{TE}chunked\r\n{TE}identity"),
    "chunks, folded": coded("Transfer-Encoding:\r\n chunked"),
    "chunk size below 0": coded(f"{TE}chunked", b"-5\r\nhello\r\n0\r\n\r\n"),
    "chunk size beyond all bounds": coded(f"{TE}chunked", b"f" * 17 + b"\r\nx\r\n0\r\n\r\n"),
    "chunk size with 0x": coded(f"{TE}chunked", b"0x5\r\nhello\r\n0\r\n\r\n"),
    "chunk longer than its size": coded(f"{TE}chunked", b"3\r\nhello\r\n0\r\n\r\n"),
    "line feed in a chunk's extension": coded(f"{TE}chunked", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "chunk without a carriage return": coded(f"{TE}chunked", b"5\nhello\r\n0\r\n\r\n"),
    "a length in the trailer": coded(f"{TE}chunked", CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n"),
    "space before a colon": sized(f"Content-Length : {SIZE}"),
    "folded header": request("POST", CHAT, BODY, "X-Title: a\r\n b"),
    "line feed alone": head(b"\n"),
    "line feeds everywhere": head(b"\n").replace(b"\r\n", b"\n"),
    "carriage return alone": head(b"\rX: y\r\n"),
    "NUL in a value": head(b"\r\nX-Title: a\0b\r\n"),
    "NUL in a name": head(b"\r\nX-Ti\0tle: a\r\n"),
    "control character": head(b"\r\nX-Title: a\x01\r\n"),
    "space in a name": head(b"\r\nX Title: a\r\n"),
    "no name": head(b"\r\n: a\r\n"),
    "no colon": head(b"\r\nX-Title\r\n"),
    "version": HIDDEN.replace(b"HTTP/1.1", b"HTTP/1.9"),
    "two versions": HIDDEN.replace(b"HTTP/1.1", b"HTTP/1.1 HTTP/1.1"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "rubbish": b"\xff\xfe\x00" * 100 + b"\r\n\r\n",
    "method": HIDDEN.replace(b"POST", b"PO ST"),
}  # fmt: skip


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_may_be_read_two_ways_is_refused_and_the_connection_ended(
    proxy: Served, behind: Behind, name: str
):
    before = posts(behind)
    with Line(proxy.port) as line:
        line.send(SMUGGLED[name])
        line.send(HIDDEN)
        found = line.read(until=0)
    assert [reply.status for reply in found] == [400]
    assert found[0].closed
    assert posts(behind) == before


CLEAN: Final = {
    "chunks": coded(f"{TE}chunked"),
    "a chunk's extension": coded(f"{TE}chunked", b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)),
    "a chunk for each byte": coded(
        f"{TE}chunked", b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    ),
    "a trailer": coded(f"{TE}chunked", CHUNKED[:-2] + b"X-Title: later\r\n\r\n"),
    "blank lines first": b"\r\n\r\n" + HIDDEN,
    "it is expected": request("POST", CHAT, BODY, "Expect: 100-continue"),
    "bytes in a value": HIDDEN.replace(b"\r\n\r\n", b"\r\nX-Title: \xff\xfe\r\n\r\n", 1),
}


@pytest.mark.parametrize("name", CLEAN)
def test_one_request_in_is_one_request_out(proxy: Served, behind: Behind, name: str):
    before = posts(behind)
    reply = ask(proxy.port, CLEAN[name])
    assert reply.status == 200
    assert posts(behind) == before + 1
    assert behind.bodies[-1] == BODY


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_a_web_socket_is_refused_since_its_body_would_be_lost(proxy: Served, behind: Behind):
    before, lines = posts(behind), ("Connection: Upgrade", "Upgrade: WebSocket")
    reply = ask(proxy.port, request("POST", CHAT, BODY, *lines))
    assert (reply.status, posts(behind)) == (400, before)
    assert b"WebSocket" in reply.body


def offers(to: str) -> bytes:
    """Return a request as Java's HTTP client writes it to a server of which it knows nothing."""
    settings = "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"
    lines = "Connection: Upgrade, HTTP2-Settings", settings, f"Upgrade: {to}"
    return request("POST", CHAT, BODY, *lines)


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
@pytest.mark.parametrize("to", ["h2c", "TLS/1.0", "h2c, websocket"])
def test_an_offered_protocol_is_ignored_and_the_body_is_read(
    proxy: Served, behind: Behind, to: str
):
    before, whole = posts(behind), offers(to)
    with Line(proxy.port) as line:
        for cut in (len(whole), len(whole) - SIZE, len(whole) - 5, 30, 1):
            line.send(whole[:cut])
            time.sleep(0.05)
            line.send(whole[cut:])
            assert [reply.status for reply in line.read(until=1)] == [200]
            assert behind.bodies[-1] == BODY
        line.send(whole + HIDDEN + whole)
        assert [reply.status for reply in line.read(until=3)] == [200] * 3
    assert posts(behind) == before + 8


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_an_offer_hides_no_request_in_its_body(proxy: Served, behind: Behind):
    before = posts(behind)
    outer = request("POST", CHAT, offers("h2c"), "Connection: Upgrade", "Upgrade: h2c")
    assert ask(proxy.port, outer).status == 200  # no JSON: it goes on as it came
    assert (posts(behind), behind.bodies[-1]) == (before + 1, offers("h2c"))
    coded = f"{TE}gzip\r\nConnection: Upgrade\r\nUpgrade: h2c"
    both = request("POST", CHAT, BODY, *coded.split("\r\n"))
    assert ask(proxy.port, both).status in (400, 415)
    assert posts(behind) == before + 1


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_a_coded_body_is_not_taken(proxy: Served, behind: Behind):
    before = posts(behind)
    for line in ("Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip\r\n" + TE + "chunked"):
        assert ask(proxy.port, coded(line)).status == 415
    assert posts(behind) == before


def test_what_follows_the_last_request_of_a_connection_is_not_read(proxy: Served, behind: Behind):
    before = posts(behind)
    with Line(proxy.port) as line:
        line.send(request("POST", CHAT, BODY, "Connection: close") + HIDDEN)
        assert len(line.read(until=0)) == 1
    assert posts(behind) == before + 1


def test_a_request_that_ends_early_goes_nowhere(proxy: Served, behind: Behind):
    before = posts(behind)
    for cut in (1, 5, SIZE, SIZE + 2, SIZE + 30):
        with Line(proxy.port) as line:
            line.send(HIDDEN[:-cut])
            line.end()
        with Line(proxy.port) as line:
            line.send(coded(f"{TE}chunked")[:-cut])
    assert ask(proxy.port, HIDDEN).status == 200
    assert posts(behind) == before + 1


# --- bombs ----------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    return BODY[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}"


def many(what: bytes, times: int) -> bytes:
    return b",".join([what] * times)


def saying(text: str) -> bytes:
    return chat(messages=[{"role": "user", "content": text}])


def bombs() -> Iterator[tuple[str, bytes, int]]:
    """Yield a name, a body and the status that it gets."""
    said = b'{"role":"user","content":"x"}'
    yield "33 MiB", b'{"a":"' + b"x" * (33 * MB) + b'"}', 413
    yield "65 levels", nested(65), 400
    yield "10,000 levels", nested(10_000), 400
    yield "5,000,000 levels", nested(5_000_000), 400
    yield "31 MiB of brackets", b"[" * (31 * MB), 400
    yield "100,001 messages", b'{"messages":[' + many(said, 100_001) + b"]}", 413
    yield "15,000,000 messages", b'{"messages":[' + many(b"0", 15 * MB) + b"]}", 413
    yield "10,000,000 lists", BODY[:-1] + b',"x":[' + many(b"[]", 10 * MB) + b"]}", 413
    yield "2,000,000 fields", BODY[:-1] + b"," + many(b'"a":0', 2 * MB) + b"}", 413
    yield "9 answers", chat(n=9), 400
    yield "9.5 answers", chat(n=9.5), 400
    for value in (b"NaN", b"Infinity", b"-Infinity"):
        yield value.decode(), BODY[:-1] + b',"temperature":' + value + b"}", 400
    yield "a number beyond all bounds", BODY[:-1] + b',"seed":' + b"9" * MB + b"}", 200
    yield "1 MB of one letter", saying("a" * MB), 200
    yield "1 MB of spaces and a letter", saying(" " * MB + "a"), 200
    yield "60,000 of one letter", saying("a" * 60_000), 200
    yield "60,000 spaces and a letter", saying(" " * 60_000 + "a"), 200
    yield "half pairs", saying("\ud800" * 1000), 200
    yield "a half pair as the model", chat(model="\ud800"), 200
    yield (
        "a name of 30 MB",
        BODY[:-1] + b',"stream":true,"' + b"k" * (30 * MB) + b'":1}',
        200,
    )
    yield "a name of escapes", BODY[:-1] + b',"stream":true,"' + b"\\n" * (9 * MB) + b'":1}', 200
    yield "a list", b"[]", 200
    yield "no JSON", b"\xff\xfe{", 200
    yield "a mark first", b"\xef\xbb\xbf" + BODY, 200


@pytest.mark.slow
@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_bombs_get_their_status_in_bounded_memory_and_others_are_answered_meanwhile(
    proxy: Served, behind: Behind
):
    for name, body, status in bombs():
        before = posts(behind)
        with Line(proxy.port) as line:
            line.send(request("POST", CHAT, body))
            assert proxy.lives(), name
            found = line.read()
        assert [reply.status for reply in found] == [status], name
        assert posts(behind) == before + (status == 200), name
        if status == 200:
            assert json_or_raw(behind.bodies[-1]) == json_or_raw(body), name
    assert proxy.memory() < MOST_MB


def json_or_raw(body: bytes) -> object:
    """Return what a body says, without the one field that the proxy may add to a stream."""
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if isinstance(value, dict):
        value.pop("stream_options", None)
    return value


@pytest.mark.parametrize("length", ["99999999999", "0" * 5_000 + "99999999999", "9" * 19])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(
    proxy: Served, behind: Behind, length: str
):
    before = posts(behind)
    with Line(proxy.port) as line:
        line.send(coded(f"content-length: {length}", b"{"))
        assert [reply.status for reply in line.read(wait_s=5)] == [413]
    assert posts(behind) == before


def test_a_body_without_a_length_is_cut_where_it_is_too_large(proxy: Served, behind: Behind):
    before = posts(behind)
    with Line(proxy.port) as line:
        line.send(coded(f"{TE}chunked", b""))
        for _ in range(40):
            if not line.send(b"%x\r\n%b\r\n" % (MB, b"x" * MB)):
                break
        line.send(b"0\r\n\r\n")
        assert [reply.status for reply in line.read()] == [413]
    assert posts(behind) == before


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
@pytest.mark.parametrize(
    "opening",
    [
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Title: ",
        b"POST /",
        b"POST /v1/models HTTP/1.1\r\n",
        request("POST", CHAT, b"5;", f"{TE}chunked", length=False),
        coded(f"{TE}chunked")[:-2],
    ],
    ids=["value", "path", "name", "extension", "trailer"],
)
def test_a_head_without_an_end_is_ended(proxy: Served, opening: bytes):
    with Line(proxy.port) as line:
        line.send(opening)
        assert not all(line.send(b"y" * MB) for _ in range(50))
    assert proxy.lives()
    assert proxy.memory("VmRSS") < MOST_MB


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_a_head_of_100_000_lines_or_1_mb_is_refused(proxy: Served, behind: Behind):
    before = posts(behind)
    lines = [f"X-{number}: y" for number in range(100_000)]
    for more in (lines, ["X-Title: " + "y" * MB]):
        with Line(proxy.port) as line:
            line.send(request("POST", CHAT, BODY, *more))
            assert [reply.status for reply in line.read(until=0)] in ([400], [])
    assert posts(behind) == before


@pytest.mark.skipif(not BOUNDED, reason="needs the bounds of ullage.cli.listening")
def test_requests_without_end_on_one_connection_are_ended(proxy: Served):
    with Line(proxy.port) as line:
        assert not all(line.send(request("GET", "/v1/models") * 1000) for _ in range(1000))
    assert proxy.lives()


def test_slow_requests_keep_nobody_waiting(proxy: Served):
    with ExitStack() as held:
        for number in range(300):
            line = held.enter_context(Line(proxy.port))
            line.send(HIDDEN[: 20 if number % 2 else -5])
        assert ask(proxy.port, HIDDEN).status == 200
        assert proxy.lives()

"""The one HTTP client against servers that misbehave: an answer or a fault in words, never more."""

from __future__ import annotations

import asyncio
import http.server
import json
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    cut_short,
    drip,
    hanging,
    html,
    of_json,
)
from ullage.core.errors import ConfigurationError
from ullage.embedded import Server
from ullage.transport import (
    CLIENT,
    MOST_BYTES,
    Broken,
    HttpRequest,
    Incoming,
    StreamingClient,
    Timeouts,
    Transport,
    _fault,
    load_library,
    loopback,
    mask_url,
    redact,
)
from ullage.transport import HttpResponse as Got

PATIENT = Timeouts(connect_s=30, read_s=30)
SHORT = Timeouts(connect_s=0.5, read_s=0.2)


@pytest.fixture(params=["httpx2", "httpx"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have each test run on each client library."""
    monkeypatch.setenv(CLIENT, request.param)
    return str(request.param)


def sync(what: HttpRequest, timeouts: Timeouts = PATIENT) -> Got:
    return Transport(timeouts).ask(what)


def awaited(what: HttpRequest, timeouts: Timeouts = PATIENT) -> Got:
    return asyncio.run(Transport(timeouts).aask(what))


@pytest.fixture(params=[sync, awaited])
def ask(request: pytest.FixtureRequest) -> Callable[..., Got]:
    asking: Callable[..., Got] = request.param
    return asking


def test_the_named_library_is_taken(library: str) -> None:
    assert load_library().__name__ == library


def test_where_httpx2_cannot_be_imported_httpx_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLIENT)
    assert load_library().__name__ == "httpx2"
    monkeypatch.setitem(sys.modules, "httpx2", None)
    assert load_library().__name__ == "httpx"


def test_a_library_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigurationError, match=f"install it: pip install {library}$"):
        load_library()
    monkeypatch.setenv(CLIENT, "curl")
    with pytest.raises(ConfigurationError, match="ULLAGE_HTTP_CLIENT is 'curl': name httpx2 or"):
        load_library()


def test_a_real_server_is_asked_and_its_stream_is_read(ask, tiny_server: Server) -> None:
    assert ask(HttpRequest(tiny_server.root_url + "/health")).json() == {"status": "ok"}
    messages = [{"role": "user", "content": "Which cask?"}]
    body = {"messages": messages, "stream": True, "max_tokens": 4}
    what = HttpRequest(tiny_server.base_url + "/chat/completions", body)

    async def read() -> bytes:
        client = StreamingClient(Timeouts())
        answer = await client.open(what)
        try:
            return await answer.body()
        finally:
            await answer.aclose()
            await client.aclose()

    assert asyncio.run(read()).rstrip().endswith(b"data: [DONE]")


def test_an_answer_has_status_and_json(ask) -> None:
    with FaultServer({"/x": of_json({"a": [1]}, 418)}) as server:
        got = ask(HttpRequest(server.root_url + "/x"))
    assert (got.status, got.json(), got.fault) == (418, {"a": [1]}, "")


def test_a_body_makes_it_a_post_of_json(ask) -> None:
    with FaultServer({"POST /x": of_json({})}) as server:
        assert ask(HttpRequest(server.root_url + "/x", {"text": "zażółć"})).status == 200
        (request,) = server.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {"text": "zażółć"}


def test_a_lone_surrogate_and_a_foreign_value_can_be_sent(ask) -> None:
    with FaultServer({"POST /x": of_json({})}) as server:
        assert (
            ask(HttpRequest(server.root_url + "/x", {"text": "\ud800", "data": b"raw"})).status
            == 200
        )
        (request,) = server.requests
    assert json.loads(request.body) == {"text": "\ud800", "data": "b'raw'"}


@pytest.mark.parametrize("body", [{(1, 2): "no key of JSON"}, {"self": []}])
def test_a_body_that_json_cannot_carry_is_a_fault_and_sends_nothing(ask, body) -> None:
    if "self" in body:
        body["self"].append(body)
    with FaultServer({}) as server:
        got = ask(HttpRequest(server.root_url + "/x", body))
        assert server.requests == ()
    assert got.status == 0
    assert "Error" in got.fault


def test_the_key_goes_along_as_bearer_and_only_where_there_is_one(ask) -> None:
    with FaultServer({"/x": of_json({})}) as server:
        ask(HttpRequest(server.root_url + "/x", api_key="sk-1"))
        ask(HttpRequest(server.root_url + "/x"))
        first, second = server.requests
    assert first.headers["authorization"] == "Bearer sk-1"
    assert "authorization" not in second.headers


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ("bearer", {"authorization": "Bearer sk-1"}),
        ("api-key", {"authorization": "Api-Key sk-1"}),
        ("x-api-key", {"x-api-key": "sk-1"}),
        ("x-goog-api-key", {"x-goog-api-key": "sk-1"}),
        ("none", {}),
    ],
)
def test_the_key_goes_along_in_the_providers_own_style(ask, auth, header) -> None:
    with FaultServer({"/x": of_json({})}) as server:
        what = HttpRequest(
            server.root_url + "/x", api_key="sk-1", auth=auth, extra=(("x-version", "7"),)
        )
        assert ask(what).status == 200
        (request,) = server.requests
    assert {n: v for n, v in request.headers.items() if "sk-1" in v} == header
    assert request.headers["x-version"] == "7"
    assert "sk-1" not in request.path
    assert "sk-1" not in repr(what)


@pytest.mark.parametrize("auth", ["bearer", "api-key", "x-api-key", "x-goog-api-key"])
@pytest.mark.parametrize("key", ["sk-gehéim", "sk-line\n", "sk-\x00"])
def test_no_style_lets_a_fault_quote_the_key(ask, auth, key) -> None:
    with FaultServer({}) as server:
        got = ask(HttpRequest(server.root_url + "/x", api_key=key, auth=auth))
    assert got.status == 0
    assert key not in got.fault
    assert "sk-" not in got.fault


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends everybody to `target`."""

    disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms
    target = ""

    def do_GET(self) -> None:
        self.send_response(307)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Stay silent."""


def test_a_redirect_is_not_followed_so_a_key_never_wanders(ask) -> None:
    with FaultServer({}) as other, http.server.HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        _Elsewhere.target = other.root_url + "/x"
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        got = ask(HttpRequest(f"http://127.0.0.1:{server.server_port}/x", api_key="sk-1"))
        thread.join()
        assert got.status == 307
        assert other.requests == ()


def test_a_dead_port_is_a_fault(ask) -> None:
    with closed_port() as port:
        got = ask(HttpRequest(f"http://127.0.0.1:{port}/x"))
    assert got.status == 0
    assert "ConnectError" in got.fault
    assert got.json() is None


def test_a_server_that_speaks_no_tls_is_a_fault_of_an_https_address(ask) -> None:
    with FaultServer({}) as server:
        got = ask(HttpRequest(server.root_url.replace("http:", "https:") + "/x"))
    assert got.status == 0
    assert "SSL" in got.fault


def test_a_server_that_takes_no_connection_is_given_up_soon(ask) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            # Linux takes one more than the backlog and lets the others wait.
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        got = ask(HttpRequest(f"http://127.0.0.1:{full.getsockname()[1]}/x"), SHORT)
    assert got.status == 0
    assert "ConnectTimeout" in got.fault


def test_a_hanging_server_is_a_fault(ask) -> None:
    with FaultServer({"/x": hanging()}) as server:
        got = ask(HttpRequest(server.root_url + "/x"), SHORT)
    assert got.status == 0
    assert "ReadTimeout" in got.fault


def test_a_cut_answer_is_a_fault_and_not_half_an_answer(ask) -> None:
    with FaultServer({"/x": cut_short(b'{"n_ctx": 20')}) as server:
        got = ask(HttpRequest(server.root_url + "/x"))
    assert (got.status, got.body) == (0, b"")
    assert got.fault


def test_an_answer_in_pieces_is_put_together(ask) -> None:
    with FaultServer({"/x": drip(b'{"a": 1}', block=3, pause_s=0.001)}) as server:
        assert ask(HttpRequest(server.root_url + "/x")).json() == {"a": 1}


def test_an_endless_answer_is_given_up_at_the_limit(ask) -> None:
    with FaultServer({"/x": Answer(blocks=(b" " * (MOST_BYTES + 1),))}) as server:
        got = ask(HttpRequest(server.root_url + "/x"))
    assert got.status == 0
    assert f"{MOST_BYTES:,}" in got.fault


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/x",
        f"http://{'a' * 70}.invalid/x",
        "http://127.0.0.1:port/x",
        "http://[::1",
        "ftp://127.0.0.1/x",
        "no url",
    ],
)
def test_an_address_that_is_none_is_a_fault(ask, url) -> None:
    got = ask(HttpRequest(url))
    assert got.status == 0
    assert got.fault


@pytest.mark.parametrize("key", ["sk-gehéim", "sk-line\n", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_a_fault_that_does_not_quote_it(ask, key) -> None:
    with FaultServer({}) as server:
        got = ask(HttpRequest(server.root_url + "/x", api_key=key))
    assert key not in got.fault
    assert "sk-" not in got.fault


@pytest.mark.parametrize("key", ["sk-1", "sk-1\n"])
def test_a_fault_that_quotes_the_key_is_redacted(key) -> None:
    for quoted in (key, repr(key), repr(key.encode())):
        said = _fault(HttpRequest("http://h", api_key=key), OSError(f"illegal value {quoted}"))
        assert "sk-1" not in said
        assert "[redacted]" in said


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff\xfe", b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}"],
    ids=["empty", "html", "no utf-8", "deep", "a number without end"],
)
def test_what_is_no_json_reads_as_none(body) -> None:
    assert Got(200, body).json() is None


def test_html_reads_as_none(ask) -> None:
    with FaultServer({"/x": html()}) as server:
        got = ask(HttpRequest(server.root_url + "/x"))
    assert (got.status, got.json()) == (200, None)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1", True),
        ("http://127.8.9.1:80", True),
        ("http://[::1]:80/v1", True),
        ("http://127.evil.example/v1", False),
        ("https://api.openai.com/v1", False),
        ("nothing", False),
    ],
)
def test_loopback_means_this_machine_only(url, local) -> None:
    assert loopback(url) is local


def test_a_shown_url_has_no_password() -> None:
    assert mask_url("https://me:secret@h:1/v1?x=1") == "https://h:1/v1?x=1"
    assert mask_url("http://h/v1") == "http://h/v1"


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(ask, monkeypatch) -> None:
    with FaultServer({}) as proxy, FaultServer({"/x": of_json({})}) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.root_url)
        monkeypatch.setenv("ALL_PROXY", proxy.root_url)
        assert ask(HttpRequest(server.root_url + "/x")).status == 200
        assert proxy.requests == ()


def opened(
    what: HttpRequest, read: Callable[[Incoming], Awaitable[bytes]], timeouts: Timeouts
) -> bytes:
    """Open an answer on a line of its own, read it, and close both."""

    async def reading() -> bytes:
        line = StreamingClient(timeouts)
        try:
            incoming = await line.open(what)
            try:
                return await read(incoming)
            finally:
                await incoming.aclose()
        finally:
            await line.aclose()

    return asyncio.run(reading())


def broken(what: HttpRequest, timeouts: Timeouts = PATIENT) -> Broken:
    """Read an answer to its end, and return how it broke."""
    with pytest.raises(Broken) as caught:
        opened(what, lambda incoming: incoming.body(), timeouts)
    return caught.value


def test_an_answer_is_read_as_it_arrives() -> None:
    pieces: list[bytes] = []

    async def read(incoming: Incoming) -> bytes:
        assert (incoming.status, incoming.headers["content-type"]) == (200, "text/plain")
        while (piece := await incoming.next()) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    blocks = (b"one", b"two", b"three")
    with FaultServer({"/x": Answer(200, blocks, "text/plain", pause_s=0.02)}) as server:
        assert opened(HttpRequest(server.root_url + "/x"), read, PATIENT) == b"onetwothree"
    assert len(pieces) > 1


def test_a_body_is_read_up_to_its_bound() -> None:
    with FaultServer({"/x": Answer(404, (b"abc", b"def"))}) as server:
        what = HttpRequest(server.root_url + "/x")
        assert opened(what, lambda incoming: incoming.body(), PATIENT) == b"abcdef"
        assert opened(what, lambda incoming: incoming.body(4), PATIENT) == b"abcd"


@pytest.mark.parametrize(
    ("answer", "timeouts", "how"),
    [
        (hanging(), SHORT, "stalled"),
        (cut_short(b"abc"), PATIENT, "lost"),
        (Answer(drop=True), PATIENT, "lost"),
    ],
)
def test_an_answer_that_breaks_says_where(answer: Answer, timeouts: Timeouts, how: str) -> None:
    with FaultServer({"/x": answer}) as server:
        assert broken(HttpRequest(server.root_url + "/x"), timeouts).how == how


def test_a_server_that_is_not_there_is_unreached() -> None:
    with closed_port() as port:
        assert broken(HttpRequest(f"http://127.0.0.1:{port}/x")).how == "unreached"
    with FaultServer({}) as server:
        tls = server.root_url.replace("http:", "https:")
        assert broken(HttpRequest(tls + "/x")).how == "unreached"


@pytest.mark.parametrize(
    "what",
    [
        HttpRequest("http://a..b/x"),
        HttpRequest("http://[::1"),
        HttpRequest("ftp://127.0.0.1/x"),
        HttpRequest("no url"),
        HttpRequest("http://127.0.0.1:1/x", {(1, 2): "x"}),  # type: ignore[dict-item]  # the data under test
        HttpRequest("http://127.0.0.1:1/x", api_key="sk-gehéim"),
        HttpRequest("http://127.0.0.1:1/x", private=(("x-a", "sk-line\n"),)),
    ],
)
def test_what_cannot_be_sent_says_so_and_quotes_no_secret(what: HttpRequest) -> None:
    error = broken(what)
    assert error.how in ("unsendable", "unreached")
    assert "sk-" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


def test_private_headers_win_and_are_not_shown() -> None:
    private = (("authorization", "Bearer own"), ("x-more", "1"))
    what = HttpRequest("http://h/x", api_key="sk-1", extra=(("x-more", "0"),), private=private)
    assert what.headers() == {"authorization": "Bearer own", "x-more": "1"}
    assert "own" not in repr(what)


def test_secrets_are_the_key_private_headers_and_a_password() -> None:
    private = (("x-a", "header-secret"), ("x-b", "1"))
    what = HttpRequest("http://me:pass-word@h/x", api_key="sk-1", private=private)
    assert set(what.secrets()) == {"sk-1", "pass-word", "bWU6cGFzcy13b3Jk", "header-secret"}
    assert "a b c" in HttpRequest("http://me:a%20b%20c@h/x").secrets()
    assert HttpRequest("http://[::1", api_key="k").secrets() == ()


@pytest.mark.parametrize("secret", ["sk-1", 'sk-"1\\', "sk-ü\n"])
def test_secrets_are_blotted_out_however_they_are_written(secret: str) -> None:
    forms = (secret, repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    said = redact(f"a {' '.join(forms)} z", [secret])
    assert "sk-" not in said
    assert said.count("[redacted]") == 4


def test_a_password_in_an_address_reaches_the_server_and_no_log(ask, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    with FaultServer({"/x": of_json({})}) as server:
        url = server.root_url.replace("//", "//me:senti%20nel@") + "/x"
        assert ask(HttpRequest(url, api_key="sk-1")).status == 200
        opened(HttpRequest(url, {}), lambda incoming: incoming.body(), PATIENT)
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Basic bWU6c2VudGkgbmVs"] * 2
    assert "/x" in caplog.text
    assert not any(secret in caplog.text for secret in ("senti", "bWU6", "sk-1"))


def test_a_redirect_of_a_line_is_not_followed() -> None:
    with FaultServer({}) as other, http.server.HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        _Elsewhere.target = other.root_url + "/x"
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        what = HttpRequest(f"http://127.0.0.1:{server.server_port}/x", api_key="sk-1")
        opened(what, lambda incoming: incoming.body(), PATIENT)
        thread.join()
        assert other.requests == ()


def test_a_line_that_never_opened_is_closed_like_any_other() -> None:
    asyncio.run(StreamingClient(PATIENT).aclose())

"""The server that plays scripted faults."""

from __future__ import annotations

import http.client
import threading
from typing import Self

import pytest

from tests.support import faults
from tests.support.faults import Answer, FaultServer
from tests.support.waiting import eventually


class Client:
    """One HTTP connection to a server under test."""

    def __init__(self, server: FaultServer, timeout_s: float = 10.0) -> None:
        host = server.root_url.removeprefix("http://")
        self.connection = http.client.HTTPConnection(host, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        self.connection.request(method, path, body, {"X-Test": "1"})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_a_script_is_played_in_order_and_its_last_answer_stays() -> None:
    routes = {"/health": (faults.loading(), faults.of_json({"status": "ok"}))}
    with FaultServer(routes) as server, Client(server) as client:
        assert [client.ask("/health")[0] for _ in range(3)] == [503, 200, 200]


def test_what_was_asked_is_kept() -> None:
    with FaultServer({"POST /v1/chat": Answer()}) as server, Client(server) as client:
        client.ask("/v1/chat?x=1", "POST", b"{}")
        client.ask("/v1/chat", "POST", b"[]")
        asked = server.requests
    assert [(r.method, r.path, r.body) for r in asked] == [
        ("POST", "/v1/chat?x=1", b"{}"),
        ("POST", "/v1/chat", b"[]"),
    ]
    assert asked[0].headers["x-test"] == "1"


@pytest.mark.parametrize(
    ("path", "method", "winner"),
    [
        ("/props", "GET", "bare"),
        ("/props", "POST", "post"),
        ("/props?model=a", "GET", "exact"),
        ("/props?model=b", "GET", "long stem"),
        ("/proper", "GET", "short stem"),
        ("/else", "GET", "File Not Found"),
    ],
)
def test_the_closest_key_wins(path: str, method: str, winner: str) -> None:
    routes = {
        "/props": faults.of_json("bare"),
        "POST /props": faults.of_json("post"),
        "/props?model=a": faults.of_json("exact"),
        "/prop*": faults.of_json("short stem"),
        "/props?*": faults.of_json("long stem"),
    }
    with FaultServer(routes) as server, Client(server) as client:
        assert winner.encode() in client.ask(path, method)[2]


def test_a_route_without_an_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer at all: /x"):
        FaultServer({"/x": ()})


def test_html_is_html() -> None:
    with FaultServer({"/props": faults.html()}) as server, Client(server) as client:
        status, headers, body = client.ask("/props")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert body.startswith(b"<!doctype html>")


def test_a_hanging_answer_ends_with_the_server_and_not_before() -> None:
    failures: list[type[Exception]] = []
    with FaultServer({"/props": faults.hanging()}) as server:

        def wait() -> None:
            with Client(server) as client:
                try:
                    client.ask("/props")
                except (OSError, http.client.HTTPException) as error:
                    failures.append(type(error))

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: len(server.requests) == 1)
        assert waiter.is_alive()
    waiter.join()
    assert failures == [http.client.RemoteDisconnected]


def test_a_hanging_answer_outlasts_the_clients_patience() -> None:
    with (
        FaultServer({"/props": faults.hanging()}) as server,
        Client(server, 0.05) as client,
        pytest.raises(TimeoutError),
    ):
        client.ask("/props")


def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    with FaultServer({"/": Answer()}) as server:
        client = Client(server)
        client.ask("/")
    client.connection.auto_open = 0
    with client, pytest.raises((OSError, http.client.HTTPException)):
        client.ask("/")


def test_dripped_bytes_all_arrive() -> None:
    body = b"data: one\n\ndata: [DONE]\n\n"
    routes = {"/s": faults.drip(body, block=5, pause_s=0.001)}
    with FaultServer(routes) as server, Client(server) as client:
        assert client.ask("/s")[2] == body


def test_a_drip_ends_with_the_server() -> None:
    with FaultServer({"/s": faults.drip(b"ab", pause_s=3600)}) as server:
        client = Client(server)
        client.connection.request("GET", "/s")
        answer = client.connection.getresponse()
    with client, answer, pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_a_body_that_is_cut_short_is_seen_as_such() -> None:
    with (
        FaultServer({"/s": faults.cut_short(b"half")}) as server,
        Client(server) as client,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        client.ask("/s")
    assert caught.value.partial == b"half"


def test_a_dropped_request_gets_no_answer_at_all() -> None:
    with (
        FaultServer({"/s": faults.dropped()}) as server,
        Client(server) as client,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        client.ask("/s")
    assert [asked.path for asked in server.requests] == ["/s"]


def test_a_reset_connection_is_seen_as_such() -> None:
    with (
        FaultServer({"/s": faults.Answer(reset=True)}) as server,
        Client(server) as client,
        pytest.raises(ConnectionResetError),
    ):
        client.ask("/s")


def test_events_are_named_by_their_type() -> None:
    routes = {"/s": faults.sse({"type": "ping"}, {"choices": []}, "[DONE]")}
    with FaultServer(routes) as server, Client(server) as client:
        status, headers, body = client.ask("/s")
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    named = b'event: ping\ndata: {"type": "ping"}\n\n'
    assert body == named + b'data: {"choices": []}\n\ndata: [DONE]\n\n'


def test_too_large_a_body_is_refused_unread() -> None:
    with FaultServer({"/s": Answer()}) as server, Client(server) as client:
        client.connection.putrequest("POST", "/s")
        client.connection.putheader("Content-Length", str(1 << 40))
        client.connection.endheaders()
        assert client.connection.getresponse().status == 413
        assert server.requests == ()


def test_a_closed_port_refuses() -> None:
    with faults.closed_port() as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with pytest.raises(ConnectionRefusedError):
            connection.request("GET", "/")

"""`ullage serve` as an operator sees it: one line a request, the page at the root, early ends."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx2
import pytest

from tests.support.faults import FaultServer, drip, of_json
from tests.support.waiting import eventually

SECRET: Final = "sentinel-text-of-the-conversation"
KEY: Final = "sentinel-key-0123456789"
CHAT: Final = "/v1/chat/completions"
ANSWER: Final = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 1, "total_tokens": 901},
}


class Running:
    """A proxy in a process of its own, its log as it is written, and a client of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.client = httpx2.Client(timeout=20, trust_env=False)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually(lambda: self.port > 0, within_s=60)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def port(self) -> int:
        """Where it listens, 0 as long as that is not known."""
        said = r"listening on http://127\.0\.0\.1:(\d+)|\"port\": (\d+)"
        found = re.search(said, "\n".join(self.lines))
        return int(found[1] or found[2]) if found else 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def told(self, part: str) -> str:
        """Return the line with these words, once it is there."""
        eventually(lambda: any(part in line for line in list(self.lines)))
        return next(line for line in self.lines if part in line)

    def end(self) -> None:
        """End it."""
        self.client.close()
        self.process.terminate()
        self.process.wait(30)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def running(upstream: Any, *words: str) -> Iterator[Running]:
    """Start `ullage serve` in front of a scripted upstream."""
    command = [sys.executable, "-m", "ullage.cli.main", "serve", "--upstream", upstream.root_url]
    command += ["--port", "0", "--store", "memory:", "--window", "2000", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    made = Running(process)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def upstream() -> Iterator[FaultServer]:
    routes = {
        f"POST {CHAT}": of_json(ANSWER),
        "GET /v1/models": of_json({"object": "list", "data": [{"id": "m"}]}),
    }
    with FaultServer(routes) as server:
        yield server


def talk(turns: int) -> list[dict[str, str]]:
    """Return a history with a secret in each message."""
    found = []
    for turn in range(turns):
        found.append({"role": "user", "content": f"{SECRET} {turn} " + "what is there? " * 12})
        found.append({"role": "assistant", "content": f"{SECRET} nothing"})
    return [*found, {"role": "user", "content": "And now?"}]


def post(proxy: Running, turns: int, **headers: str) -> httpx2.Response:
    """Send a request with some turns behind it."""
    named = {"authorization": f"Bearer {KEY}", **headers}
    return proxy.client.post(
        proxy.url + CHAT, json={"model": "m", "messages": talk(turns)}, headers=named
    )


def test_each_request_is_one_line_without_any_text_or_key(upstream: FaultServer) -> None:
    with running(upstream) as proxy:
        agent = "claude-cli/2.1 (external)"
        assert post(proxy, 3, **{"user-agent": agent}).status_code == 200
        line = proxy.told(f"POST {CHAT}")
        shape = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} 200  POST \S+  claude-cli/2\.1  "
        assert re.match(
            shape + r"[0-9a-f]{8}  [0-9a-f]{16}  ctx=900/2\.0k 45%  \d+\.\d\d s$", line
        ), line
        assert post(proxy, 40).status_code == 200
        assert re.search(r"compacted [\d,]+ -> [\d,]+ \(.+\)", proxy.told("compacted")), line
        assert proxy.client.get(f"{proxy.url}/nowhere").status_code == 404
        assert "no_such_route" in proxy.told("/nowhere")
        proxy.client.get(f"{proxy.url}/healthz")
        proxy.client.get(f"{proxy.url}/v1/models")
        proxy.told("/v1/models")
        everything = "\n".join(proxy.lines)
    assert "/healthz" not in everything.partition("numbers ")[2].partition("\n")[2]
    assert SECRET not in everything
    assert KEY not in everything


@pytest.mark.slow
def test_verbose_shows_pages_too_and_quiet_shows_no_request(upstream: FaultServer) -> None:
    with running(upstream, "-v") as proxy:
        proxy.client.get(f"{proxy.url}/healthz")
        assert "200  GET /healthz" in proxy.told("GET /healthz")
    with running(upstream, "-q") as proxy:
        assert post(proxy, 3).status_code == 200
    assert proxy.lines  # the banner comes in by a thread of its own, before or after
    assert not any("POST" in line for line in proxy.lines)


def test_as_json_every_line_is_an_object(upstream: FaultServer) -> None:
    with running(upstream, "--log-format", "json") as proxy:
        assert post(proxy, 40, **{"x-ullage-session": 'mine "quoted" \\ name'}).status_code == 200
        found = json.loads(proxy.told('"request"'))
    assert found["time"].endswith("+00:00")
    assert (found["level"], found["event"], found["status"]) == ("info", "request", 200)
    assert (found["model"], found["window"]) == ("m", 2000)
    assert 0 < found["after"] < found["before"]
    assert found["share"] == round(found["used"] / 2000, 3)
    assert found["seconds"] >= 0
    assert SECRET not in json.dumps(found)


def test_a_clients_name_steers_no_terminal(upstream: FaultServer) -> None:
    with running(upstream) as proxy:
        body = json.dumps({"model": "m", "messages": talk(1)}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a\x9b2J/1\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(head.encode("latin-1") + body)
            client.recv(4096)
        proxy.told("POST /v1")
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for line in proxy.lines for c in line)


@pytest.mark.parametrize("accept", ["text/html,application/xhtml+xml", "*/*"])
def test_the_root_says_what_this_is_and_where_to_look(upstream: FaultServer, accept: str) -> None:
    with running(upstream) as proxy:
        answer = proxy.client.get(proxy.url, headers={"accept": accept})
        assert answer.status_code == 200
        for link in ("/healthz", "/readyz", "/metrics", "/ullage/sessions"):
            assert link in answer.text
            assert proxy.client.get(proxy.url + link).status_code == 200
        assert proxy.url in answer.text
        if "html" in accept:
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.text.startswith("<!doctype html>")
        else:
            found: Mapping[str, Any] = answer.json()
            assert found["name"] == "ullage"
            assert re.match(r"\d+\.\d+", found["version"])
            assert len(found["upstreams"]) == 1


def test_a_stream_that_its_client_ended_early_counts_as_a_conversation() -> None:
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    slow = drip(piece * 400, block=len(piece), pause_s=0.05)
    answer = type(slow)(200, slow.blocks, "text/event-stream", slow.pause_s)
    with FaultServer({f"POST {CHAT}": answer}) as server, running(server) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
        body = {"model": "m", "messages": talk(2), "stream": True}
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        reply.read(60)
        reply.close()
        connection.close()
        line = proxy.told("client left")
        assert "200  POST" in line
        shown = proxy.client.get(f"{proxy.url}/ullage/sessions").json()
    (session,) = shown["sessions"]
    assert (session["last_status"], session["model"], session["messages"]) == (200, "m", 5)
    assert session["used"] > 100


def test_responses_of_plain_text_are_measured_and_sent_as_they_came() -> None:
    answer = of_json({"id": "resp_1", "object": "response", "output": []})
    with FaultServer({"POST /v1/responses": answer}) as server, running(server) as proxy:
        body = b'{"model": "m",  "input": "' + b"what is there? " * 100 + b'"}'
        named = {"content-type": "application/json"}
        told = proxy.client.post(f"{proxy.url}/v1/responses", content=body, headers=named)
        used = re.match(r"used=(\d+); window=2000", told.headers["x-ullage-context"])
        assert used is not None
        assert 300 < int(used[1]) < 700
        assert [r.body for r in server.requests if r.method == "POST"] == [body]
        (session,) = proxy.client.get(f"{proxy.url}/ullage/sessions").json()["sessions"]
    assert (session["used"], session["dialect"]) == (int(used[1]), "openai_responses")

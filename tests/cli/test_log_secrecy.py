"""What a service logs holds no secret and no text, whatever happens, at the lowest level."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import pytest

from tests.cli.test_serve_log import KEY, SECRET, Running, running
from tests.proxy.sockets import Behind, answered, of_json
from ullage.cli import logs
from ullage.cli.main import main
from ullage.logs import begin_work
from ullage.proxy.journal import RequestLine

CHAT: Final = "/v1/chat/completions"
FAULTS: Final = ("400", "401", "404", "413", "429", "500", "503")


def echo(head: bytes, body: bytes) -> bytes:
    """Answer as the request says; an error repeats all that it was sent."""
    said = {"error": {"message": (head + body[:3_000]).decode("latin-1"), "code": "x"}}
    for status in FAULTS:
        if f"say {status}".encode() in body:
            return of_json(said, f"{status} No", "Retry-After: 0")
    if b"say broken" in body:
        frame = json.dumps({"choices": [{"index": 0, "delta": {"content": SECRET}}]}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: %b\n\n" % frame
    if b"say rubbish" in body:
        return b"\x00\xff rubbish " + head + body
    if b"say overflow" in body and len(body) > 3_000:
        words = f"maximum context length is 700 tokens, you sent 5000: {SECRET}"
        return of_json({"error": {"message": words, "code": "context_length_exceeded"}}, "400 No")
    return answered(head, body)


def write_body(order: str, size: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a request with a secret in every place that may hold text."""
    call = {"name": "f", "arguments": json.dumps({"a": SECRET})}
    said: list[dict[str, Any]] = [{"role": "system", "content": SECRET}]
    for number in range(size):
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        said += [
            {"role": "user", "content": f"{SECRET} {number} " + "what is there? " * 20},
            {"role": "assistant", "content": SECRET, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"{SECRET} {KEY}"},
        ]
    said.append({"role": "user", "content": f"say {order} {SECRET}"})
    tool = {"type": "function", "function": {"name": "f", "description": SECRET, "parameters": {}}}
    return {"model": "m", "messages": said, "tools": [tool], "user": SECRET, **fields}


def drive(proxy: Running) -> None:
    """Send what works, what is refused, and what fails on each side."""
    named = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "cookie": f"a={KEY}"}

    def post(path: str, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with suppress(httpx2.HTTPError):
            proxy.client.post(f"{proxy.url}{path}?key={KEY}", content=data, headers=named)

    for order in ("hello", "broken", "rubbish", *FAULTS):
        post(CHAT, write_body(order))
        post(CHAT, write_body(order, stream=True))
    post(CHAT, write_body("overflow", 40))
    post(CHAT, write_body("hello", 1_200))  # in a worker
    post(CHAT, write_body("hello", 40))
    for bad in (SECRET, [SECRET], {"role": SECRET}, [{"role": "user", "content": {SECRET: 1}}]):
        post(CHAT, {"model": "m", "messages": bad})
    post(CHAT, json.dumps(write_body("hello")).encode()[:-9])
    post("/v1/messages", {"model": "m", "max_tokens": 9, "system": SECRET, "messages": [SECRET]})
    post("/v1/responses", {"model": "m", "input": SECRET, "previous_response_id": "x"})
    post("/v1/embeddings", {"model": "m", "input": [SECRET]})
    for path in ("fit", "count", "recall", "search"):
        post(f"/ullage/v1/{path}", {**write_body("hello", 40), "query": SECRET, "window": 900})
    proxy.client.get(f"{proxy.url}/metrics", headers=named)


@pytest.fixture(scope="module")
def logged() -> list[str]:
    words = ("--log-format", "json", "--log-level", "debug", "-v", "--recall-tools")
    with Behind(echo) as behind, running(at(behind.url), *words) as proxy:
        drive(proxy)
    with running(at("http://127.0.0.1:1"), *words) as other:
        other.client.post(other.url + CHAT, json=write_body("hello"))
    return [*proxy.lines, *other.lines]


def at(url: str) -> SimpleNamespace:
    """Return an upstream as `running` takes it."""
    return SimpleNamespace(root_url=url)


@pytest.mark.slow
def test_no_line_holds_a_secret_or_text(logged: list[str]) -> None:
    assert len(logged) > 40
    assert [line for line in logged if SECRET in line or KEY in line] == []


def test_each_line_of_json_is_an_object_with_time_level_room_and_message(
    logged: list[str],
) -> None:
    found = [json.loads(line) for line in logged]
    for one in found:
        assert datetime.fromisoformat(one["time"]).utcoffset() == timedelta(0)
        assert one["level"] in logs.LEVELS
        assert one["room"]
        assert one["message"]
    events = [one["event"] for one in found]
    assert (events[0], events[-1]) == ("started", "ended")
    asked = [one for one in found if one["event"] == "request"]
    assert all(one["request_id"] and one["status"] and "seconds" in one for one in asked)
    beside = [one for one in found if one["event"] == "log" and "request_id" in one]
    assert {one["request_id"] for one in beside} <= {one["request_id"] for one in asked}
    assert any(one["message"].endswith("ended a stream before its answer did") for one in beside)


def test_a_request_that_took_no_time_and_used_nothing_says_so() -> None:
    quick = RequestLine("GET", "/v1/models", status=200, seconds=0.0004, used=0, window=4_096)
    found = quick.fields()
    assert (found["seconds"], found["used"], found["share"]) == (0.0, 0, 0.0)
    assert not found.keys() & {"answered", "left", "given", "model"}


def test_an_id_of_the_client_is_taken_over_and_an_unfit_one_is_not() -> None:
    with Behind() as behind, running(at(behind.url)) as proxy:
        for given, kept in (("client-1:a/b", True), ("a b", False), ("x" * 129, False)):
            found = proxy.client.get(f"{proxy.url}/v1/models", headers={"x-request-id": given})
            known = found.headers["x-ullage-request-id"]
            assert (known == given) is kept
            assert known in proxy.told(f"  {known}  ")
            assert kept or re.fullmatch("[0-9a-f]{16}", known)


# ── levels ──────────────────────────────────────────────────────────────────────────────────────


def test_levels_come_by_room_and_what_is_none_is_named(capsys: Any) -> None:
    assert logs.read_levels("proxy=debug, storage=error") == {"proxy": "debug", "storage": "error"}
    assert logs.read_levels("info") == {"all": "info"}
    for text, said in (("proxi=debug", "did you mean 'proxy'"), ("loud", "'loud' is no level")):
        with pytest.raises(SystemExit):
            main(["serve", "--log-level", text])
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_levels_of_the_file_hold_and_those_of_the_option_over_them(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('[logging]\nrequests = "error"\nserve = "error"\n')
    with Behind() as behind:
        upstream = at(behind.url)
        with running(upstream, "--config", str(file)) as proxy:
            proxy.client.get(f"{proxy.url}/v1/models")
        with running(upstream, "--config", str(file), "--log-level", "requests=info") as other:
            other.client.get(f"{other.url}/v1/models")
    assert not any("GET /v1" in line for line in proxy.lines)
    assert any("GET /v1" in line for line in other.lines)


# ── the form ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_is_told_by_its_places_and_kinds_and_ours_by_their_words(as_json: bool) -> None:
    form = logs.Discreet(as_json=as_json)
    error = KeyError(SECRET)
    error.__cause__ = OSError("disk is full")
    begin_work(lambda: {"job": "j1"})
    told = (KeyError, error, None)
    record = logging.LogRecord("ullage.x", 40, "f", 1, "it failed", (), told)
    record.fields = {"n": 3}
    line = form.format(record)
    begin_work(dict)
    assert SECRET not in line
    for part in ("Traceback", "KeyError", "OSError: disk is full", "j1"):
        assert part in line
    if as_json:
        found = json.loads(line)
        assert (found["room"], found["job"], found["n"]) == ("x", "j1", 3)
    else:
        assert line.split("\n")[0].endswith("it failed  job=j1  n=3")

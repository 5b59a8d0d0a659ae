"""The driver: what it tells is what was seen, and it waits for nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.proxy.contenders import environment
from bench.proxy.load import MARK, SHARES, Client, Job, Load, percentiles
from bench.proxy.processes import Program, free_port
from bench.proxy.workloads import PATH
from tests.support.waiting import eventually

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


class Clock:
    """Times as they are set."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class Wire:
    """A transport that keeps what was written, and whether it was closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@pytest.fixture
def body(tmp_path: Path) -> str:
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"stream": True, "messages": [{"role": "user", "content": "x"}]}))
    return str(file)


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[tuple[Program, int]]:
    command = [sys.executable, "-m", "bench.proxy.upstream", "--longest", "60", "--settings"]
    settings = json.dumps({"chunks": 3, "faults": []})
    with Program([*command, settings], tmp_path / "up.txt", None, environment(tmp_path)) as program:
        yield program, json.loads(program.line())["port"]


def chunk(*events: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def event(text: str = "x") -> bytes:
    return f"data: {text}\n\n".encode()


def driven(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.proxy.load"]
    with Program(command, folder / "load.txt", None, environment(folder)) as driver:
        told = driver.told(json.dumps(job).encode(), 60)
    assert told, (folder / "load.txt").read_text()
    seen: dict[str, Any] = json.loads(told)
    return seen


@pytest.fixture
def client(body: str) -> tuple[Client, Load, Clock, Wire]:
    clock, wire, job = Clock(), Wire(), Job(1, PATH, (body,), 1.0, 1)
    load = Load(job, clock)
    client = Client(load)
    client.connection_made(wire)  # type: ignore[arg-type] # a transport by its methods
    client.send(b"asked")
    return client, load, clock, wire


def test_a_stream_s_times_are_those_of_its_schedule(client):
    link, load, clock, _ = client
    for now, data in (
        (1.2, HEAD),
        (1.5, chunk(event("1"))),
        (1.75, chunk(event("2"))),
        (2.75, chunk(event("3"), event("4"))),
        (3.0, LAST),
    ):
        clock.now = now
        link.data_received(data)
    record = load.record
    assert list(record.first) == [0.5]
    assert list(record.gaps) == [0.25, 1.0, 0.0]
    assert list(record.end) == [2.0]
    assert (record.done, record.events, record.failed) == (1, 4, {})
    assert load.idle == [link]


def test_a_whole_answer_s_first_byte_is_its_end(client):
    link, load, clock, _ = client
    clock.now = 1.5
    link.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab")
    assert (list(load.record.first), list(load.record.end)) == ([0.5], [0.5])
    assert load.idle == []


def test_a_refusal_is_a_failure_and_has_no_end(client):
    link, load, _, _ = client
    link.data_received(b"HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n")
    assert load.record.failed == {"status 429": 1}
    assert not load.record.end


@pytest.mark.parametrize(
    ("data", "why"), [(b"what?\r\n\r\n", "no answer"), (HEAD + chunk(event()), "lost")]
)
def test_a_broken_answer_is_a_failure(client, data, why):
    link, load, _, _ = client
    link.data_received(data)
    link.connection_lost(None)
    assert load.record.failed == {why: 1}
    assert load.record.done == 0


def test_more_than_was_asked_for_ends_the_connection(client):
    link, load, _, wire = client
    link.data_received(HEAD + LAST)
    link.data_received(b"more")
    assert wire.closed
    assert load.record.done == 1


def test_requests_are_due_at_their_rate(body: str):
    job = Job(1, PATH, (body,), 50.0, 4)
    assert [job.due_s(number) for number in range(job.count)] == [0.0, 0.02, 0.04, 0.06]


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"count": 0}, {"bodies": ()}])
def test_a_job_has_a_rate_a_count_and_bodies(wrong):
    with pytest.raises(ValueError, match="a job needs a rate, a count and bodies, and has"):
        Job(**{"port": 1, "path": "/", "bodies": ("x",), "rate": 1.0, "count": 1, **wrong})


def test_percentiles_of_a_known_schedule():
    assert percentiles([n / 1000 for n in range(1, 1001)]) == {
        "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0,
    }  # fmt: skip
    assert percentiles([]) == {}
    assert percentiles([0.5]) == dict.fromkeys(SHARES, 0.5)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_a_percentile_is_a_reading_that_its_share_is_not_above(values):
    found = percentiles(values)
    for name, share in SHARES.items():
        assert found[name] in values
        assert sum(value <= found[name] for value in values) >= share * len(values)


def test_all_that_is_sent_is_seen(tmp_path, upstream, body):
    seen = driven(
        tmp_path,
        {"port": upstream[1], "path": PATH, "bodies": [body], "rate": 500.0, "count": 50},
    )
    # A role, three chunks, a stop and [DONE].
    assert (seen["sent"], seen["done"], seen["events"]) == (50, 50, 300)
    assert seen["failed"] == {}
    assert seen["connections"] <= 50
    assert set(seen["first"]) == set(seen["gap"]) == set(SHARES)


def test_it_sends_whether_or_not_it_is_answered(tmp_path, upstream, body):
    told(upstream[1], {"faults": ["mute"] * 20})
    job = {"port": upstream[1], "path": PATH, "bodies": [body], "rate": 500.0, "count": 20}
    seen = driven(tmp_path, {**job, "limit_s": 0.2})
    assert (seen["sent"], seen["done"], seen["connections"]) == (20, 0, 20)
    assert seen["failed"] == {"timed out": 1, "unfinished": 20}


def test_clients_that_leave_are_not_failures(tmp_path, upstream, body):
    told(upstream[1], {"faults": ["hang"] * 10})
    job = {"port": upstream[1], "path": PATH, "bodies": [body], "rate": 200.0, "count": 10}
    seen = driven(tmp_path, {**job, "aborts": 1.0, "abort_s": 0.05})
    assert (seen["aborted"], seen["failed"]) == (10, {})
    eventually(lambda: told(upstream[1], {})["left"] == 10)


def test_nobody_there_is_said(tmp_path, body):
    job = {"port": free_port(), "path": PATH, "bodies": [body], "rate": 100.0, "count": 3}
    seen = driven(tmp_path, job)
    assert (seen["failed"], seen["sent"], seen["first"]) == ({"not reached": 3}, 0, {})


def told(port: int, settings: dict[str, Any]) -> dict[str, Any]:
    link = HTTPConnection("127.0.0.1", port, timeout=20)
    link.request("POST", "/fake", json.dumps(settings))
    found: dict[str, Any] = json.loads(link.getresponse().read())
    link.close()
    return found


def test_every_request_says_a_number_of_its_own(tmp_path):
    body = tmp_path / "marked.json"
    body.write_bytes(b'{"x": "%b"}' % MARK)
    loads = [Load(Job(1, PATH, (str(body),), 1.0, 3, seed=seed)) for seed in (1, 2)]
    said = [load._message(number) for load in loads for number in range(3)]
    assert len(set(said)) == 6
    assert {len(message) for message in said} == {len(load._messages[0]) for load in loads}
    assert MARK not in b"".join(said)

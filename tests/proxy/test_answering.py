"""What surrounds rounds whose calls the proxy answers: clients that leave, slow stores, room."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.proxy.rounds import (
    EVENTS,
    FIND,
    OURS,
    RULES,
    SECRET,
    Counting,
    bodies,
    body,
    names,
    results,
    running,
    streamed,
    whole,
)
from tests.proxy.serving import CHAT, ask_and_leave, posted, proxied
from tests.support.faults import Answer, FaultServer, hanging, of_json, sse
from tests.support.waiting import eventually
from ullage.core.dialects import registry
from ullage.core.search.names import SEARCH
from ullage.core.search.ranking import EVERYWHERE, HITS, Hit, SearchArea
from ullage.proxy import answering as module
from ullage.proxy import exchange, rounds
from ullage.proxy.answering import UNREAD
from ullage.proxy.body import Body, read
from ullage.proxy.guarding import Guarding
from ullage.proxy.offering import Offer, write_tools
from ullage.proxy.rounds import RoundRelay
from ullage.storage.memory import MemoryOriginals, MemoryStore

DIALECT = "openai_chat"


@pytest.mark.parametrize("text", ["", "I look it up."], ids=["nothing said", "something said"])
def test_a_client_that_leaves_in_a_later_round_ends_it(text: str):
    with running(DIALECT, streamed(DIALECT, text, FIND), hanging()) as (proxy, server):
        streamed_body = body(DIALECT, stream=True)
        ask_and_leave(proxy.url + CHAT, streamed_body, lambda: len(bodies(server)) == 2)
        if text:
            eventually(lambda: proxy.shown("ullage_streams_aborted_total", side="client") == 1)
        assert proxy.client.get(f"{proxy.url}/healthz").status_code == 200


@pytest.mark.parametrize("text", ["", "I look it up."], ids=["nothing said", "something said"])
def test_the_end_of_the_proxy_in_a_later_round_is_told(text: str):
    script = (streamed(DIALECT, text, FIND), hanging())
    with (
        FaultServer({f"POST {CHAT}": script}) as server,
        httpx2.Client(timeout=20, trust_env=False) as client,
        ThreadPoolExecutor(1) as clients,
    ):
        with proxied(server.root_url, rules=RULES) as proxy:
            going = clients.submit(posted, client, proxy.url + CHAT, body(DIALECT, stream=True))
            eventually(lambda: len(server.requests) >= 2)
        got = going.result(20)
    if text:
        assert b"the proxy was ended" in got.content.strip().split(b"\n\n")[-1]
    else:
        assert (got.status_code, got.headers["x-ullage-error"]) == (503, "proxy_ended")


class Slow:
    """Originals that are read when they are let."""

    def __init__(self, until: threading.Event) -> None:
        self._until = until

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep nothing."""

    def read(self, reference: str) -> str | None:
        """Wait."""
        self._until.wait(10)
        return None

    def search(self, query: str, hits: int = HITS, area: SearchArea = EVERYWHERE) -> list[Any]:
        """Wait."""
        self._until.wait(10)
        return []


def test_a_store_that_is_slow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    store, until = MemoryStore(), threading.Event()
    store.originals = Slow(until)  # type: ignore[assignment]  # in their place
    with running(DIALECT, whole(DIALECT, "", FIND), whole(DIALECT, "."), store=store) as (
        proxy,
        server,
    ):
        assert proxy.post(CHAT, body(DIALECT)).status_code == 200
        until.set()
        _, second = bodies(server)
    assert results(second) == [UNREAD]


class Unsearchable:
    """Originals that can be read alone."""

    def keep(self, items: Mapping[str, str]) -> None:
        """Keep nothing."""

    def read(self, reference: str) -> str | None:
        """Find nothing."""


def test_a_store_that_cannot_be_searched_offers_no_search():
    store = MemoryStore()
    store.originals = Unsearchable()  # type: ignore[assignment]  # in their place
    with running(DIALECT, whole(DIALECT, "."), store=store) as (proxy, server):
        proxy.post(CHAT, body(DIALECT))
        (request,) = bodies(server)
    assert names(request) == ["ullage_recall"]


def test_a_guard_that_fails_in_a_later_round_lets_the_request_go_on_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
):
    of = Guarding._of

    def failing(self: Guarding, call: Any, *more: Any) -> Any:
        if call.round is not None:
            raise RuntimeError("odd")
        return of(self, call, *more)

    monkeypatch.setattr(Guarding, "_of", failing)
    with running(DIALECT, whole(DIALECT, "", FIND), whole(DIALECT, "Fine.")) as (proxy, server):
        got = proxy.post(CHAT, body(DIALECT))
        _, second = bodies(server)
    assert got.json()["choices"][0]["message"]["content"] == "Fine."
    assert second["messages"] == body(DIALECT)["messages"]


def test_what_is_too_large_all_the_same_goes_without_its_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_find_room", lambda *_: None)  # as if the window were not known
    found = [Hit("u:0123456789abcdef", 0, "word " * 2_000, 1.0)]
    monkeypatch.setattr(MemoryOriginals, "search", lambda *_: found)
    script = (whole(DIALECT, "", *[FIND] * 9), whole(DIALECT, "."))
    with running(DIALECT, *script) as (proxy, server):
        proxy.post(CHAT, body(DIALECT))
        _, second = bodies(server)
    assert {r.split("\n")[0] for r in results(second)} == {module.NO_ROOM}


def test_an_answer_too_large_to_read_is_asked_for_without_our_tools(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(exchange, "WHOLE", 1_000)
    big = of_json({"choices": [{"message": {"content": "x" * 5_000}}]})
    with running(DIALECT, big) as (proxy, server):
        got = proxy.post(CHAT, body(DIALECT))
        first, second = bodies(server)
    assert got.content == b"".join(big.blocks)
    assert (set(names(first)), "tools" in second) == (OURS, False)


def test_a_window_without_room_for_the_tools_gets_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ullage.proxy.offering.is_over", lambda _: True)
    with running(DIALECT, whole(DIALECT, "Fine.")) as (proxy, server):
        for _ in range(2):
            proxy.post(CHAT, body(DIALECT))
        sends = bodies(server)
    assert [each.get("tools") for each in sends] == [None, None]


def test_the_log_tells_how_often_something_was_read_back(caplog: pytest.LogCaptureFixture):
    with (
        running(DIALECT, whole(DIALECT, "", FIND, FIND), whole(DIALECT, "."), kind=Counting) as (
            proxy,
            _,
        ),
        caplog.at_level(logging.INFO, "ullage.proxy.requests"),
    ):
        proxy.post(CHAT, body(DIALECT))
        eventually(lambda: "read back 2" in caplog.text)
    (line,) = [r.__dict__["request"] for r in caplog.records if "request" in r.__dict__]
    assert line.fields()["answered"] == 2


# --- small parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (b"", b'[{"a": 1}]'),
        (b"null", b'[{"a": 1}]'),
        (b" [ ] ", b'[{"a": 1}]'),
        (b'[ {"b" :2} ]', b'[ {"b" :2} , {"a": 1}]'),
    ],
)
def test_tools_are_put_behind_those_that_came(given: bytes, made: bytes):
    assert write_tools(given, Offer(frozenset(), ({"a": 1},))) == made


def test_a_body_grows_behind_what_came():
    raw = b'{"messages": [{"role":"user","content":"a" }]}'
    grown = read(raw, "messages").extend([{"b": 1}]).extend([{"c": 2}])
    assert (grown.grown, len(grown.history), grown.raw) == (2, 3, raw)
    assert grown.rewrite_history(grown.history) == (
        b'[{"role":"user","content":"a" },{"b":1},{"c":2}]'
    )
    bare = Body(b"{}", history=[{"a": 1}]).extend([{"b": 1}])
    assert bare.rewrite_history(bare.history) == b'[{"a":1},{"b":1}]'


def relay() -> RoundRelay:
    added = registry.find(DIALECT).added_tools
    assert added is not None
    return RoundRelay(DIALECT, added.make_rounds(frozenset(OURS)))


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_frames_are_passed_however_they_are_cut(size: int, end: bytes):
    stream = b"".join(sse(*EVENTS[DIALECT]("x", "so it is", [])).blocks).replace(b"\n", end)
    stream = b": hello" + end + end + stream
    made = relay()
    out = b"".join(made.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    assert out + made.rest() == stream
    assert (made.ended, made.known, made.reply().text) == (True, True, "so it is")


def test_a_stream_that_breaks_off_in_a_frame_has_the_frame_ended_first():
    made = relay()
    made.feed(b"".join(sse(*list(EVENTS[DIALECT]("x", "so it is", []))[:3]).blocks))
    cut = made.feed(b'data: {"choices": [') + made.cut("no more")
    assert cut.startswith(b'data: {"choices": [\n\ndata: {"error"')


def test_what_is_no_event_is_passed():
    made = relay()
    made.feed(b"".join(sse(*list(EVENTS[DIALECT]("x", "so it is", []))[:3]).blocks))
    odd = b"data: {torn\n\ndata: [1]\n\n"
    assert made.feed(odd) == odd


def test_a_frame_beyond_all_bounds_is_passed_and_no_longer_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rounds, "MOST", 100)
    made = relay()
    made.feed(b"".join(sse(*list(EVENTS[DIALECT]("x", "so", []))[:2]).blocks))
    frame = b"data: " + b"x" * 200
    assert made.feed(frame) + made.feed(b"y\n\n") == frame + b"y\n\n"
    assert not made.known


def test_what_comes_behind_a_call_in_such_a_frame_is_not_passed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rounds, "MOST", 400)
    made = relay()
    made.feed(b"".join(sse(*list(EVENTS[DIALECT]("x", "", [FIND]))[:3]).blocks))
    assert made.feed(b"data: " + b"x" * 500) + made.feed(b"y" * 10) == b""


def make_one_id(answer: Answer) -> Answer:
    """Return a whole answer of Chat Completions, its calls under one id."""
    made = json.loads(b"".join(answer.blocks))
    for call in made["choices"][0]["message"]["tool_calls"]:
        call["id"] = "same"
    return of_json(made)


def test_calls_under_one_id_are_answered_each():
    dialect = "openai_chat"
    other = (SEARCH, json.dumps({"query": "what the pump is made of"}))
    script = (make_one_id(whole(dialect, "", FIND, other)), whole(dialect, "It is 8123."))
    with running(dialect, *script) as (proxy, server):
        told = proxy.post(CHAT, body(dialect))
        _, second = bodies(server)
    assert told.json()["choices"][0]["message"]["content"] == "It is 8123."
    found = results(second)
    assert len(found) == 2
    assert SECRET in found[0]
    ids = [one["tool_call_id"] for one in second["messages"] if one["role"] == "tool"]
    assert len(set(ids)) == 2


def test_a_round_whose_calls_cannot_be_read_is_asked_for_again():
    dialect = "openai_chat"
    odd = json.loads(b"".join(whole(dialect, "", FIND).blocks))
    odd["choices"][0]["index"] = 1  # what is read of an answer is its choice 0
    with running(dialect, of_json(odd), whole(dialect, "Fine.")) as (proxy, server):
        told = proxy.post(CHAT, body(dialect))
        first, second = bodies(server)
    assert told.json()["choices"][0]["message"]["content"] == "Fine."
    assert second["messages"] == first["messages"]

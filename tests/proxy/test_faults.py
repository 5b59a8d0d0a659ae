"""Upstreams that fail, in every way they do: the client is told the truth, and nothing hangs."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.proxy.serving import (
    CHAT,
    CONTENT,
    OVERFLOWS,
    PATHS,
    STREAMS,
    WHOLE,
    Wire,
    answer,
    asked,
    begun,
    conversation,
    posted,
    proxied,
    sent,
    streamed,
    talk,
)
from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    cut_short,
    dropped,
    hanging,
    html,
    of_json,
    sse,
)
from tests.support.waiting import eventually
from ullage.config.serving import ModelRule
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.registry import find

DIALECTS = tuple(PATHS)
WIDE = (ModelRule(window=16_384),)
QUICK: dict[str, Any] = {"first_byte_s": 1.0, "idle_s": 0.2}


def size(body: bytes) -> int:
    """Return how many messages a request has."""
    fields = json.loads(body)
    return len(fields.get("messages") or fields.get("input"))


def told(dialect: str, text: bytes) -> str:
    """Return the message of the error that a stream ends with."""
    if dialect == "ollama_chat":
        return str(json.loads(text.splitlines()[-1])["error"])
    last = json.loads(text.strip().rpartition(b"data: ")[2])
    return str((last.get("error") or last)["message"])


# --- streams that break off -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "reset"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_is_killed_ends_in_an_error_and_in_no_end(dialect: str, how: str) -> None:
    part = STREAMS[dialect][: CONTENT[dialect]]
    killed = streamed(dialect, part, **{how: True})
    with FaultServer({PATHS[dialect]: killed}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(PATHS[dialect], talk(dialect))
    assert got.status_code == 200
    if how == "cut":  # a reset may overtake bytes that were sent before it
        assert got.content.startswith(sent(killed))
    assert "broke off" in told(dialect, got.content)
    assert b"[DONE]" not in got.content
    assert b"message_stop" not in got.content
    assert len(asked(upstream)) <= (1 if how == "cut" else 2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_ends_in_good_order_but_too_early_ends_in_an_error(dialect: str) -> None:
    part = streamed(dialect, STREAMS[dialect][: CONTENT[dialect]])
    with FaultServer({PATHS[dialect]: part}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(PATHS[dialect], talk(dialect))
        assert proxy.shown("ullage_streams_aborted_total", side="upstream") == 1
    assert got.content.startswith(sent(part))
    assert told(dialect, got.content) == "the upstream ended before its answer did"


def test_half_a_frame_is_ended_before_the_error_is_told() -> None:
    half = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: {"cho'
    with Wire(answer(half)) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    ended = find("openai_chat").errors.break_off("the upstream ended before its answer did", b"")
    assert got.content == half + b"\n\n" + ended


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_falls_silent_ends_in_an_error(dialect: str) -> None:
    kind = "application/x-ndjson" if dialect == "ollama_chat" else "text/event-stream"
    part = sent(streamed(dialect, STREAMS[dialect][: CONTENT[dialect]]))
    with (
        Wire(begun(part, kind), held=True) as upstream,
        proxied(upstream.root_url, **QUICK) as proxy,
    ):
        got = proxy.post(PATHS[dialect], talk(dialect))
        assert upstream.gone.wait(10)
    assert got.content.startswith(part)
    assert told(dialect, got.content) == "the upstream sent nothing for 0.2 seconds"
    assert len(upstream.bodies) == 1


def test_silence_before_the_first_byte_is_told_with_a_status_and_asked_about_once() -> None:
    with (
        FaultServer({CHAT: hanging()}) as upstream,
        proxied(upstream.root_url, first_byte_s=0.3) as proxy,
    ):
        got = proxy.post(CHAT, talk("openai_chat"))
    assert got.status_code == 504
    assert got.headers["x-ullage-error"] == "upstream_stalled"
    assert "no answer within 0.3 seconds" in got.json()["error"]["message"]
    assert len(asked(upstream)) == 1


def test_silence_between_head_and_first_frame_is_told_with_a_status() -> None:
    with (
        Wire(begun(b": wait\n\n"), held=True) as upstream,
        proxied(upstream.root_url, **QUICK) as proxy,
    ):
        got = proxy.post("/v1/messages", talk("anthropic"))
    assert got.status_code == 504
    assert got.json()["error"]["type"] == "timeout_error"


@pytest.mark.parametrize(
    "garbage",
    [b"data: nonsense\n\n" * 3, b"\x00\xff\xfe" * 50, b'data: {"choi\n\n', b"", b": ping\n\n" * 40],
    ids=["no json", "no text", "half", "nothing", "comments"],
)
def test_garbage_is_handed_on_as_it_is_and_ends_in_an_error(garbage: bytes) -> None:
    with Wire(answer(garbage)) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    assert got.status_code == 200
    assert got.content.startswith(garbage)
    assert told("openai_chat", got.content) == "the upstream ended before its answer did"


@pytest.mark.parametrize("bound", [{"answer_bytes": 3_000}, {"answer_s": 0.000_1}])
def test_an_answer_without_an_end_is_broken_off(bound: dict[str, Any]) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "so " * 50}, "finish_reason": None}]}
    endless = streamed("openai_chat", [*STREAMS["openai_chat"][:2], *[delta] * 400])
    with FaultServer({CHAT: endless}) as upstream, proxied(upstream.root_url, **bound) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
        assert proxy.shown("ullage_streams_aborted_total", side="upstream") == 1
    assert got.status_code == 200
    assert len(got.content) < len(sent(endless))
    assert "the answer" in told("openai_chat", got.content)


def test_a_client_that_reads_nothing_is_left() -> None:
    chunk = b"data: " + json.dumps({"choices": [{"delta": {"content": "x" * 60_000}}]}).encode()
    begin = begun(b"".join([chunk + b"\n\n"] * 400))
    with (
        Wire(begin, held=True) as upstream,
        proxied(upstream.root_url, idle_s=0.5, first_byte_s=5) as proxy,
        socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2]))) as client,
    ):
        body = json.dumps(talk("openai_chat")).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: proxy.shown("ullage_request_bytes") > 0)
        eventually(lambda: proxy.shown("ullage_request_bytes") == 0)
        assert len(upstream.bodies) == 1


def test_a_page_in_the_place_of_an_answer_is_handed_on() -> None:
    with FaultServer({CHAT: html()}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    assert got.content == sent(html())
    assert got.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_an_answer_that_ends_with_its_head_is_whole_whatever_length_it_names(
    path: str, status: str
) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-length: 50\r\nx-request-id: a\x01b\r\n\r\n"
    with Wire(head.encode()) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(path, talk("openai_chat"))
    assert (got.status_code, got.content) == (int(status[:3]), b"")
    assert "x-request-id" not in got.headers  # no value of a header


@pytest.mark.parametrize("status", ["101 Switching Protocols", "600 Beyond"])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_status_that_is_none_is_told_as_a_fault_of_the_upstream(path: str, status: str) -> None:
    with Wire(answer(b"{}", status=status)) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(path, talk("openai_chat"))
    assert (got.status_code, got.headers["x-ullage-error"]) == (502, "upstream_broken")
    assert f"the status {status[:3]}" in got.json()["error"]["message"]


def test_a_stream_that_is_compressed_unasked_is_handed_on_and_nothing_is_put_into_it() -> None:
    packed = gzip.compress(sent(streamed("openai_chat")))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
    whole = head + f"content-length: {len(packed)}\r\n\r\n".encode() + packed
    with Wire(whole) as upstream, proxied(upstream.root_url, usage="inject") as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    assert got.content == sent(streamed("openai_chat"))
    assert len(upstream.bodies) == 1


def test_the_error_about_a_broken_head_quotes_neither_its_bytes_nor_the_address() -> None:
    broken = b"HTTP/1.1 200 OK\r\nsecret words\x00\r\n\r\n"
    with Wire(broken) as upstream, proxied(upstream.root_url) as proxy:
        address = upstream.root_url
        got = proxy.post(CHAT, talk("openai_chat"))
    assert (got.status_code, got.headers["x-ullage-error"]) == (502, "upstream_broken")
    assert b"secret" not in got.content
    assert address not in got.text


# --- connections that break -----------------------------------------------------------------------


@pytest.mark.parametrize("how", [dropped(), cut_short(b'{"choices": ['), Answer(reset=True)])
def test_an_answer_that_broke_before_it_began_is_asked_for_once_more(how: Answer) -> None:
    script = (how, of_json(WHOLE["openai_chat"]))
    with FaultServer({CHAT: script}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat", stream=False), idempotency_key="k1")
    assert (got.status_code, got.json()) == (200, WHOLE["openai_chat"])
    first, second = asked(upstream)
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "k1"


def test_a_stream_that_ended_before_any_content_is_asked_for_once_more() -> None:
    opening = sse(STREAMS["openai_chat"][0])
    script = (opening, streamed("openai_chat"))
    with FaultServer({CHAT: script}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    assert got.content == sent(streamed("openai_chat"))
    assert len(asked(upstream)) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_breaks_twice_is_told_in_the_words_of_the_dialect(dialect: str) -> None:
    with FaultServer({PATHS[dialect]: dropped()}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(PATHS[dialect], talk(dialect))
    assert (got.status_code, len(asked(upstream))) == (502, 2)
    assert got.headers["x-ullage-error"] == "upstream_broken"
    error = got.json()["error"]
    assert "broke off before it answered" in (error if dialect == "ollama_chat" else str(error))


@pytest.mark.parametrize(
    ("dialect", "shape"),
    [
        ("openai_chat", {"error": {"type": "server_error", "code": "upstream_unreachable"}}),
        ("openai_responses", {"error": {"type": "server_error", "code": "upstream_unreachable"}}),
        ("anthropic", {"type": "error", "error": {"type": "api_error"}}),
        ("ollama_chat", {}),
    ],
)
def test_a_server_that_is_not_there_is_told_in_the_words_of_the_dialect(
    dialect: str, shape: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ullage.proxy.requests")
    with closed_port() as port, proxied(f"http://127.0.0.1:{port}") as proxy:
        got = proxy.post(PATHS[dialect], talk(dialect))
        assert proxy.shown("ullage_requests_total", outcome="error") == 1
    assert got.status_code == 502
    assert got.headers["x-ullage-error"] == "upstream_unreachable"
    made = got.json()
    text = made["error"] if dialect == "ollama_chat" else made["error"]["message"]
    assert "cannot be reached" in text
    assert made.get("type") == shape.get("type")
    if shape:
        assert shape["error"].items() <= made["error"].items()
    (told,) = [r.getMessage() for r in caplog.records if r.name == "ullage.proxy.requests"]
    assert "upstream_unreachable" in told
    assert "cannot be reached" in told


def test_a_body_that_breaks_off_is_short_and_never_made_whole() -> None:
    with (
        FaultServer({"/v1/embeddings": cut_short(b'{"data": [')}) as upstream,
        proxied(upstream.root_url) as proxy,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        proxy.post("/v1/embeddings", {"input": "a"})


@pytest.mark.parametrize(("how", "status"), [(dropped(), 502), (hanging(), 504)])
def test_a_route_that_is_only_forwarded_fails_in_good_order(how: Answer, status: int) -> None:
    with (
        FaultServer({"POST /v1/messages/count_tokens": how}) as upstream,
        proxied(upstream.root_url, first_byte_s=0.3) as proxy,
    ):
        got = proxy.post("/v1/messages/count_tokens", {"messages": []})
    assert got.status_code == status
    assert got.json()["type"] == "error"


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [429, 500, 503, 401, 404])
def test_an_error_is_handed_on_as_it_is(status: int, stream: bool) -> None:
    body = b'{"error": {"message": "slow down \\u2028", "type": "rate_limit"}}'
    raw = (
        f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nretry-after: 7\r\n"
        f"x-ratelimit-remaining-tokens: 0\r\nx-request-id: r1\r\nset-cookie: a=b\r\n"
        f"x-ullage-error: mine\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    with Wire(raw) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat", stream=stream))
    assert (got.status_code, got.content) == (status, body)
    assert got.headers["retry-after"] == "7"
    assert got.headers["x-ratelimit-remaining-tokens"] == "0"
    assert got.headers["x-request-id"] == "r1"
    assert "set-cookie" not in got.headers
    assert "x-ullage-error" not in got.headers
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_overflow_is_compacted_and_answered(dialect: str) -> None:
    script = (of_json(OVERFLOWS[dialect], 400), streamed(dialect))
    with (
        FaultServer({PATHS[dialect]: script}) as upstream,
        proxied(upstream.root_url, rules=WIDE) as proxy,
    ):
        body = json.dumps(conversation(dialect)).encode()
        got = proxy.post(PATHS[dialect], body, idempotency_key="k1")
        assert proxy.shown("ullage_overflow_recoveries_total", outcome="recovered") == 1
    assert (got.status_code, got.content) == (200, sent(streamed(dialect)))
    first, second = asked(upstream)
    assert first.body == body
    assert size(second.body) < size(first.body)
    assert first.headers["idempotency-key"] == "k1" != second.headers["idempotency-key"]
    assert "before=" in got.headers["x-ullage-compaction"]


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
def test_an_overflow_inside_a_stream_before_any_content_is_recovered_from(dialect: str) -> None:
    error = OVERFLOWS[dialect]
    if dialect == "openai_responses":
        error = {**error["error"], "type": "error"}
    opening = () if dialect == "openai_chat" else STREAMS[dialect][:1]
    script = (sse(*opening, error), streamed(dialect))
    with (
        FaultServer({PATHS[dialect]: script}) as upstream,
        proxied(upstream.root_url, rules=WIDE) as proxy,
    ):
        got = proxy.post(PATHS[dialect], conversation(dialect))
    assert got.content == sent(streamed(dialect))
    first, second = asked(upstream)
    assert size(second.body) < size(first.body)


def test_an_overflow_after_content_is_passed_on() -> None:
    events = (*STREAMS["openai_chat"][:2], OVERFLOWS["openai_chat"])
    with (
        FaultServer({CHAT: sse(*events)}) as upstream,
        proxied(upstream.root_url, rules=WIDE) as proxy,
    ):
        got = proxy.post(CHAT, conversation("openai_chat"))
    assert got.content == sent(sse(*events))
    assert len(asked(upstream)) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_second_refusal_is_the_upstreams_own(dialect: str) -> None:
    error = of_json(OVERFLOWS[dialect], 400)
    with (
        FaultServer({PATHS[dialect]: error}) as upstream,
        proxied(upstream.root_url, rules=WIDE) as proxy,
    ):
        got = proxy.post(PATHS[dialect], conversation(dialect))
        assert proxy.shown("ullage_overflow_recoveries_total", outcome="gave_up") == 1
    assert (got.status_code, got.content) == (400, sent(error))
    assert "x-ullage-error" not in got.headers
    assert len(asked(upstream)) == 2


def test_what_cannot_be_made_smaller_is_the_upstreams_to_refuse() -> None:
    error = of_json(OVERFLOWS["openai_chat"], 400)
    with FaultServer({CHAT: error}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
        assert proxy.shown("ullage_overflow_recoveries_total", outcome="no_progress") == 1
    assert (got.status_code, got.content) == (400, sent(error))
    assert len(asked(upstream)) == 1


def test_a_limit_that_was_learned_holds_for_the_next_request() -> None:
    script = (of_json(OVERFLOWS["openai_chat"], 400), streamed("openai_chat"))
    with (
        FaultServer({CHAT: script}) as upstream,
        proxied(upstream.root_url, rules=(ModelRule(),)) as proxy,
    ):
        proxy.post(CHAT, conversation("openai_chat"))
        got = proxy.post(CHAT, conversation("openai_chat"))
    assert "window=4096" in got.headers["x-ullage-context"]
    first, second, third = asked(upstream)
    assert size(third.body) < size(first.body)
    assert second.body == third.body


def test_an_upstream_that_rejects_the_report_of_usage_is_never_asked_for_it_again() -> None:
    refusal = {"error": {"message": "Unrecognized request argument supplied: stream_options"}}
    script = (of_json(refusal, 400), streamed("openai_chat"))
    with (
        FaultServer({CHAT: script}) as upstream,
        proxied(upstream.root_url, usage="inject") as proxy,
    ):
        got = proxy.post(CHAT, talk("openai_chat"))
        proxy.post(CHAT, talk("openai_chat"))
    assert got.content == sent(streamed("openai_chat"))
    assert ["stream_options" in json.loads(r.body) for r in asked(upstream)] == [True, False, False]


def test_a_history_that_was_refused_as_malformed_is_repaired_and_sent_again() -> None:
    error = {
        "error": {
            "message": "An assistant message with 'tool_calls' must be followed by tool messages "
            "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
            "messages: c1",
            "type": "invalid_request_error",
        }
    }
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = talk("openai_chat")
    body["messages"][:0] = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    script = (of_json(error, 400), streamed("openai_chat"))
    with FaultServer({CHAT: script}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, body)
    assert got.content == sent(streamed("openai_chat"))
    first, second = asked(upstream)
    assert json.loads(first.body) == body
    roles = [message["role"] for message in json.loads(second.body)["messages"]]
    assert roles in (["user", "assistant", "tool", "user"], ["user", "user"])


def test_a_history_that_nothing_is_wrong_with_is_not_sent_again() -> None:
    error = {"error": {"message": "messages with role 'tool' must be a response to a preceding "
                       "message with 'tool_calls'."}}  # fmt: skip
    with FaultServer({CHAT: of_json(error, 400)}) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(CHAT, talk("openai_chat"))
    assert (got.status_code, got.json()) == (400, error)
    assert len(asked(upstream)) == 1


def test_a_rule_that_only_observes_recovers_from_nothing() -> None:
    error = of_json(OVERFLOWS["openai_chat"], 400)
    rule = replace(WIDE[0], observe=True, policy=Policy.ladder())
    with (
        FaultServer({CHAT: error}) as upstream,
        proxied(upstream.root_url, rules=(rule,)) as proxy,
    ):
        got = proxy.post(CHAT, conversation("openai_chat"))
    assert (got.status_code, got.content, len(asked(upstream))) == (400, sent(error), 1)


# --- who leaves -----------------------------------------------------------------------------------


def left(url: str, body: Any, *, after: int) -> None:
    """Ask for a stream and leave after some bytes of it."""
    with httpx2.Client(timeout=20, trust_env=False) as client:
        made = client.build_request("POST", url, json=body)
        response = client.send(made, stream=True)
        for _, _ in zip(range(after), response.iter_raw(), strict=False):
            continue
        response.close()


def test_a_client_that_leaves_a_stream_takes_the_upstream_with_it() -> None:
    part = sent(streamed("openai_chat", STREAMS["openai_chat"][:2]))
    with Wire(begun(part), held=True) as upstream, proxied(upstream.root_url) as proxy:
        left(proxy.url + CHAT, talk("openai_chat"), after=1)
        assert upstream.gone.wait(5)
        eventually(lambda: proxy.shown("ullage_streams_aborted_total", side="client") == 1)
        assert proxy.shown("ullage_requests_total", outcome="sent") == 1


def test_answers_that_outlast_the_proxy_are_told_of_its_end() -> None:
    part = sent(streamed("openai_chat", STREAMS["openai_chat"][:2]))
    with (
        Wire(begun(part), b"", held=True) as upstream,
        httpx2.Client(timeout=20, trust_env=False) as client,
        ThreadPoolExecutor(2) as clients,
    ):
        with proxied(upstream.root_url) as proxy:
            begins = clients.submit(posted, client, proxy.url + CHAT, talk("openai_chat"))
            eventually(lambda: len(upstream.bodies) == 1)
            waits = clients.submit(posted, client, proxy.url + CHAT, talk("openai_chat"))
            eventually(lambda: len(upstream.bodies) == 2)
        stream, none = begins.result(20), waits.result(20)
    assert stream.content.startswith(part)
    assert "proxy was ended" in told("openai_chat", stream.content)
    assert (none.status_code, none.headers["x-ullage-error"]) == (503, "proxy_ended")


def leave(proxy: str, path: str, body: Any, when: Callable[[], bool]) -> None:
    """Send a request, and close the connection as soon as something is true."""
    host, port = proxy.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + content)
        eventually(when)


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_client_that_leaves_before_the_answer_takes_the_upstream_with_it(path: str) -> None:
    with Wire(b"", held=True) as upstream, proxied(upstream.root_url) as proxy:
        leave(proxy.url, path, talk("openai_chat"), lambda: len(upstream.bodies) == 1)
        assert upstream.gone.wait(20)


def test_a_client_that_leaves_while_its_request_is_recovered_leaves_nothing_open() -> None:
    error = json.dumps(OVERFLOWS["openai_chat"]).encode()
    refusal = answer(error, "application/json", "400 Bad Request")
    with Wire(refusal, b"", held=True) as upstream, proxied(upstream.root_url, rules=WIDE) as proxy:
        talked = conversation("openai_chat")
        leave(proxy.url, CHAT, talked, lambda: len(upstream.bodies) == 2)
        assert upstream.gone.wait(20)

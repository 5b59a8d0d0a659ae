"""With room to spare the proxy is not there: the bytes of a direct call, both ways.

In `passive` mode to the byte; in `inject` mode but for the report of usage that it asks for.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conversations import conversation as spoken
from tests.proxy.serving import (
    CHAT,
    OLLAMA,
    PATHS,
    STREAMS,
    WHOLE,
    Wire,
    answer,
    posted,
    proxied,
    sent,
    streamed,
    talk,
)
from ullage.config.serving import ModelRule
from ullage.embedded import Server

DIALECTS = tuple(PATHS)
WIDE = (ModelRule(window=131_072),)
ODDLY = ": hello\r\n\r\nevent: x\rid: 1\r\r"
NDJSON = "application/x-ndjson"


def both(
    upstream: Wire, path: str, body: bytes, **more: Any
) -> tuple[httpx2.Response, httpx2.Response]:
    """Return the answers to a direct call, and to one through a proxy."""
    with proxied(upstream.root_url, rules=WIDE, **more) as proxy:
        direct = posted(proxy.client, upstream.root_url + path, body)
        return direct, proxy.post(path, body)


def bodies(dialect: str) -> list[bytes]:
    """Return requests of a dialect as different clients write them."""
    plain = talk(dialect, words=20, temperature=0.10, seed=7, user="u\u2028é")
    compact = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    escaped = compact.replace('"model"', r'"mod\u0065l"')
    return [
        json.dumps(plain).encode(),
        json.dumps(plain, indent=3).encode().replace(b"\n", b"\r\n"),
        compact.encode(),
        escaped.encode(),
        json.dumps({**plain, "user": "\ud800"}).encode(),
        b'{"messages": not json',
        json.dumps({**plain, "messages": None, "input": None}).encode(),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_requests_and_streams_pass_to_the_byte(dialect: str) -> None:
    stream = sent(streamed(dialect))
    if dialect != "ollama_chat":
        stream = ODDLY.encode() + stream.replace(b"\n", b"\r\n", 3)
    kind = NDJSON if dialect == "ollama_chat" else "text/event-stream; charset=utf-8"
    for body in bodies(dialect):
        with Wire(answer(stream, kind)) as upstream:
            direct, through = both(upstream, PATHS[dialect], body)
        assert direct.content == through.content == stream
        assert (through.status_code, through.headers["content-type"]) == (200, kind)
        assert upstream.bodies == [body, body]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_requests_and_whole_answers_pass_to_the_byte(dialect: str) -> None:
    whole = json.dumps(WHOLE[dialect], indent=1, ensure_ascii=False).encode()
    body = json.dumps(talk(dialect, stream=False)).encode()
    with Wire(answer(whole, "application/json; x=y")) as upstream:
        direct, through = both(upstream, PATHS[dialect], body)
    assert direct.content == through.content == whole
    assert through.headers["content-length"] == str(len(whole))
    assert upstream.bodies == [body, body]


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d != "openai_chat"])
def test_asking_for_usage_is_a_matter_of_chat_completions_alone(dialect: str) -> None:
    stream = sent(streamed(dialect))
    kind = NDJSON if dialect == "ollama_chat" else "text/event-stream"
    for body in bodies(dialect):
        with Wire(answer(stream, kind)) as upstream:
            direct, through = both(upstream, PATHS[dialect], body, usage="inject")
        assert direct.content == through.content
        assert upstream.bodies == [body, body]


@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": False}, {"chunk_size": 3}], ids=repr
)
def test_injection_adds_the_option_and_takes_the_frame_out_again(options: Any) -> None:
    plain = {**talk("openai_chat"), "top_p": 0.50}
    if options is not None:
        plain = {"stream_options": options, **plain}
    body = json.dumps(plain).encode()
    usage = sent(streamed("openai_chat", STREAMS["openai_chat"][-2:-1]))
    with Wire(answer(sent(streamed("openai_chat")))) as upstream:
        direct, through = both(upstream, CHAT, body, usage="inject")
    assert through.content == direct.content.replace(usage, b"")
    asked = json.dumps({**(options or {}), "include_usage": True}, separators=(",", ":")).encode()
    if options is None:
        assert upstream.bodies[1] == body[:-1] + b',"stream_options":' + asked + b"}"
    else:
        assert upstream.bodies[1] == body.replace(json.dumps(options).encode(), asked)


@pytest.mark.parametrize(
    "change",
    [{"stream": False}, {"stream": None}, {"stream_options": {"include_usage": True}}],
    ids=["no stream", "null", "asked for"],
)
def test_injection_leaves_alone_what_needs_none(change: dict[str, Any]) -> None:
    body = json.dumps(talk("openai_chat", **change) | change).encode()
    with Wire(answer(sent(streamed("openai_chat")))) as upstream:
        direct, through = both(upstream, CHAT, body, usage="inject")
    assert through.content == direct.content == sent(streamed("openai_chat"))
    assert upstream.bodies == [body, body]


def test_a_rule_that_observes_asks_for_nothing() -> None:
    body = json.dumps(talk("openai_chat")).encode()
    with (
        Wire(answer(sent(streamed("openai_chat")))) as upstream,
        proxied(
            upstream.root_url, rules=(ModelRule(window=8192, observe=True),), usage="inject"
        ) as proxy,
    ):
        got = proxy.post(CHAT, body)
    assert got.content == sent(streamed("openai_chat"))
    assert upstream.bodies == [body]


@given(st.integers(0, 10_000), st.sampled_from([None, 0, 2]), st.booleans())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_conversations_with_tools_pass_to_the_byte(
    through_and_upstream: Any, seed: int, indent: int | None, ascii_: bool
) -> None:
    proxy, upstream = through_and_upstream
    messages, tools = spoken(seed)
    plain = {"tools": tools, "model": "m", "messages": messages, "stream": True}
    body = json.dumps(plain, indent=indent, ensure_ascii=ascii_).encode()
    assert proxy.post(CHAT, body).content == sent(streamed("openai_chat"))
    assert upstream.bodies[-1] == body


@pytest.fixture
def through_and_upstream() -> Any:
    with (
        Wire(answer(sent(streamed("openai_chat")))) as upstream,
        proxied(upstream.root_url, rules=WIDE) as proxy,
    ):
        yield proxy, upstream


def test_headers_go_on_by_a_list_and_the_credential_with_them() -> None:
    with (
        Wire(answer(sent(streamed("openai_chat")))) as upstream,
        proxied(upstream.root_url) as proxy,
    ):
        proxy.post(
            CHAT + "?a=%2F&b",
            talk("openai_chat"),
            authorization="Bearer key-of-mine",
            openai_organization="o",
            x_stainless_lang="js",
            cookie="c=1",
            x_forwarded_host="evil.example",
        )
    head = upstream.heads[0].decode().lower()
    assert head.startswith("post /v1/chat/completions?a=%2f&b http/1.1")
    assert "authorization: bearer key-of-mine" in head
    assert "openai-organization: o" in head
    assert "x-stainless-lang: js" in head
    assert "accept-encoding: identity" in head
    assert "cookie" not in head
    assert "evil.example" not in head


def test_the_option_of_ollamas_window_is_all_that_changes() -> None:
    body = json.dumps(talk("ollama_chat", options={"temperature": 0})).encode()
    with Wire(answer(sent(streamed("ollama_chat")), NDJSON)) as upstream:
        direct, through = both(upstream, OLLAMA, body, num_ctx=8192)
    assert direct.content == through.content
    changed = body.replace(b'{"temperature": 0}', b'{"temperature":0,"num_ctx":8192}')
    assert upstream.bodies == [body, changed]


# --- a real server --------------------------------------------------------------------------------

VARYING = frozenset({"id", "created", "timings", "system_fingerprint", "completion_id", "usage"})


def events(text: str) -> list[Any]:
    """Return the events of a stream without what differs from call to call."""
    found = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    parsed = [json.loads(data) if data != "[DONE]" else data for data in found]
    return [_plain(event) for event in parsed]


def _plain(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    return {name: _plain(value) for name, value in event.items() if name not in VARYING}


@pytest.mark.parametrize("usage", ["passive", "inject"])
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_a_real_server_answers_the_same_through_the_proxy(
    tiny_server: Server, dialect: str, usage: str
) -> None:
    body = json.dumps(talk(dialect, temperature=0, seed=1, max_tokens=24)).encode()
    with proxied(tiny_server.root_url, rules=(ModelRule(),), usage=usage) as proxy:
        direct = posted(proxy.client, tiny_server.root_url + PATHS[dialect], body)
        through = proxy.post(PATHS[dialect], body)
    assert direct.status_code == through.status_code == 200
    assert events(through.text) == events(direct.text)
    assert "window=2048" in through.headers["x-ullage-context"]


def test_a_real_server_answers_the_same_without_a_stream(tiny_server: Server) -> None:
    body = json.dumps(talk("openai_chat", stream=False, temperature=0, seed=1, max_tokens=24))
    with proxied(tiny_server.root_url, rules=(ModelRule(),)) as proxy:
        direct = posted(proxy.client, tiny_server.root_url + CHAT, body.encode())
        through = proxy.post(CHAT, body.encode())
    assert _plain(through.json()) == _plain(direct.json())

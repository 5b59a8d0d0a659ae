"""One model called over HTTP: what is sent, what is tried again, and how a call fails."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.providers.serving import (
    CHAT,
    HELLO,
    Caller,
    chunk,
    endless,
    http,
    of_json,
    run,
    serving,
    streamed,
)
from tests.support.faults import Answer, FaultServer, closed_port, cut_short, dropped, html, sse
from ullage.core.dialects.reply import Delta
from ullage.providers import Client, Limits, Provider

BUSY = {"error": {"message": "slow down", "type": "rate_limit_error"}}
OVERFLOW = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, your messages "
        "resulted in 5000 tokens. Please reduce the length of the messages.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}
KEY = 'sk-sentinel"\\ü-7'
"""A key that JSON writes otherwise than it is."""


def call(base_url: str, **fields: Any) -> Caller:
    return Caller(base_url, **fields)


def test_an_answer_is_heard_as_it_arrives_and_returned_whole() -> None:
    async def test() -> None:
        async with serving(HELLO) as server:
            caller = call(server.base_url)
            made = await caller.send()
        assert caller.heard == [Delta("text_delta", "Hel"), Delta("text_delta", "lo")]
        assert (made.text, made.stop) == ("Hello", "end")
        assert (caller.waits, caller.told) == ([], [])

    run(test)


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "100"}, 30.0),
        ({"retry_after_ms": "1500"}, 1.5),
        (
            {
                "date": "Sun, 22 Nov 2026 10:00:00 GMT",
                "retry_after": "Sun, 22 Nov 2026 10:00:12 GMT",
            },
            12.0,
        ),
        ({"retry_after": "soon"}, 1.0),
        ({}, 1.0),
    ],
)
def test_what_a_busy_server_asks_to_wait_is_waited(headers: dict, waits: float) -> None:
    async def test() -> None:
        async with serving(of_json(BUSY, 429, **headers), HELLO) as server:
            caller = call(server.base_url)
            assert (await caller.send()).text == "Hello"
            assert len(server.requests) == 2
        assert caller.waits == [waits]
        ((why, seconds),) = caller.told
        assert seconds == waits
        assert "answered 429: slow down" in why

    run(test)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_refusals_that_pass_are_tried_again_up_to_the_limit(status: int) -> None:
    async def test() -> None:
        async with serving(of_json({"error": "busy"}, status)) as server:
            caller = call(server.base_url)
            failed = await caller.fails()
            assert len(server.requests) == 4
        assert (failed.status, failed.attempts, failed.body) == (status, 4, {"error": "busy"})
        assert caller.waits == [1.0, 3.0, 9.0]

    run(test)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 422, 501])
def test_refusals_that_stay_are_not_tried_again(status: int) -> None:
    async def test() -> None:
        async with serving(of_json({"detail": "no"}, status, location="/x")) as server:
            caller = call(server.base_url)
            failed = await caller.fails()
            assert len(server.requests) == 1
        assert f"answered {status}: no" in str(failed)
        assert (failed.status, failed.attempts, caller.waits) == (status, 1, [])

    run(test)


@pytest.mark.parametrize("status", [400, 413, 429, 500, 503])
def test_an_overflow_is_never_tried_again_whatever_its_status(status: int) -> None:
    async def test() -> None:
        async with serving(of_json(OVERFLOW, status)) as server:
            failed = await call(server.base_url, limits=Limits(attempts=2)).fails()
            requests = len(server.requests)
        if status == 429:  # by itself a rate limit, whatever it says
            assert failed.kind.kind == "rate_limit"
        else:
            assert requests == 1
            assert (failed.kind.kind, failed.kind.limit) == ("input", 4096)

    run(test)


def test_a_quota_that_ran_out_is_not_waited_for() -> None:
    async def test() -> None:
        error = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
        async with serving(of_json(error, 429)) as server:
            failed = await call(server.base_url).fails()
            assert len(server.requests) == 1
        assert failed.kind.kind == "quota"

    run(test)


def test_an_overflow_within_the_stream_is_told_as_such() -> None:
    async def test() -> None:
        async with serving(streamed(chunk(), OVERFLOW)) as server:
            failed = await call(server.base_url).fails()
            assert len(server.requests) == 1
        assert (failed.status, failed.kind.kind, failed.begun) == (200, "input", False)
        assert failed.body == OVERFLOW

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"type": "overloaded_error"}},
        {"error": {"code": 503, "message": "x"}},
        {"error": {"code": "502"}},
        {"error": {"code": "rate_limit_exceeded", "message": "x"}},
        {"object": "error", "code": 500, "message": "x"},
    ],
)
def test_an_error_within_the_stream_that_passes_is_tried_again(error: dict) -> None:
    async def test() -> None:
        async with serving(streamed(chunk(), error), HELLO) as server:
            caller = call(server.base_url)
            assert (await caller.send()).text == "Hello"
        assert "reported an error within its answer" in caller.told[0][0]

    run(test)


def test_an_error_within_the_stream_after_content_is_not_tried_again() -> None:
    async def test() -> None:
        async with serving(streamed(chunk("so far"), {"error": {"code": 503}})) as server:
            failed = await call(server.base_url).fails()
            assert len(server.requests) == 1
        assert (failed.partial, failed.begun, failed.lost) == ("so far", True, False)

    run(test)


def test_an_error_event_by_name_alone_is_an_error() -> None:
    async def test() -> None:
        for data in (b'{"message": "it broke"}', b"it broke"):
            body = b"event: error\ndata: " + data + b"\n\n"
            async with serving(http(200, body)) as server:
                assert "it broke" in str(await call(server.base_url).fails())

    run(test)


def test_a_server_that_is_not_there_is_tried_again_and_then_unreached() -> None:
    async def test() -> None:
        with closed_port() as port:
            caller = call(f"http://127.0.0.1:{port}/v1")
            failed = await caller.fails()
        assert (failed.unreached, failed.lost, failed.attempts) == (True, False, 4)
        assert failed.status is None
        assert f"m at http://127.0.0.1:{port}/v1/chat/completions cannot be reached" in str(failed)
        assert len(caller.waits) == 3

    run(test)


@pytest.mark.parametrize(
    "broken",
    [
        dropped(),
        cut_short(b""),
        cut_short(b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'),
        Answer(blocks=(b"data: {",), reset=True),
        Answer(blocks=(b'data: {"choi',)),
        Answer(blocks=(b'{"choices": [{"message": {"cont',)),
        Answer(blocks=(b"",)),
        sse("[DONE]"),
        sse(chunk()),
    ],
    ids=["dropped", "cut", "cut early", "reset", "torn", "torn whole", "empty", "done", "no end"],
)
def test_a_connection_that_breaks_before_any_content_is_tried_again(broken: Answer) -> None:
    good = sse(chunk("Hello"), chunk("", "stop"), "[DONE]")
    with FaultServer({"/v1/chat/completions": (broken, good)}) as server:
        caller = call(server.base_url)
        made = asyncio.run(caller.send())
        assert len(server.requests) == 2
    assert made.text == "Hello"
    assert len(caller.waits) == 1


@pytest.mark.parametrize("how", [{"cut": True}, {"reset": True}, {}])
def test_a_connection_that_breaks_after_content_is_lost_with_what_had_arrived(how: dict) -> None:
    with FaultServer({"/v1/chat/completions": sse(chunk("so "), chunk("far"), **how)}) as server:
        caller = call(server.base_url)
        failed = asyncio.run(caller.fails())
        assert len(server.requests) == 1
    assert (failed.lost, failed.called, failed.stalled) == (True, False, False)
    # a reset may overtake what was sent before it
    assert failed.partial == "so far" or "reset" in how
    assert failed.partial == "".join(delta.text for delta in caller.heard)


def test_a_call_of_a_tool_that_broke_off_says_so() -> None:
    fragment = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}
    event = {"choices": [{"index": 0, "delta": {"tool_calls": [fragment]}}]}
    with FaultServer({"/v1/chat/completions": sse(event, cut=True)}) as server:
        failed = asyncio.run(call(server.base_url).fails())
        assert len(server.requests) == 1
    assert (failed.lost, failed.called, failed.begun, failed.partial) == (True, True, True, "")


def test_a_break_behind_the_end_of_the_answer_costs_nothing() -> None:
    answer = sse(chunk("Hello"), chunk("", "stop"), cut=True)
    with FaultServer({"/v1/chat/completions": answer}) as server:
        assert asyncio.run(call(server.base_url).send()).text == "Hello"


def test_silence_before_the_answer_is_a_stall_and_never_tried_again() -> None:
    async def test() -> None:
        async with serving(None) as server:
            failed = await call(server.base_url, limits=Limits(stall_s=0.1)).fails()
            await server.gone.wait()
            assert len(server.requests) == 1
        assert (failed.stalled, failed.lost, failed.begun) == (True, False, False)
        assert "was silent for 0.1 s" in str(failed)

    run(test)


def test_silence_within_the_answer_is_a_stall_that_keeps_what_had_arrived() -> None:
    async def test() -> None:
        async with serving(endless(chunk("so far"))) as server:
            failed = await call(server.base_url, limits=Limits(stall_s=0.2)).fails()
            await server.gone.wait()
            assert len(server.requests) == 1
        assert (failed.stalled, failed.partial) == (True, "so far")

    run(test)


def test_an_answer_without_an_end_is_broken_off_and_what_had_arrived_is_kept() -> None:
    drips = sse(*(chunk("so ") for _ in range(100)), pause_s=0.02)
    with FaultServer({"/v1/chat/completions": drips}) as server:
        failed = asyncio.run(call(server.base_url, limits=Limits(answer_s=0.3)).fails())
        assert len(server.requests) == 1
    assert (failed.stalled, failed.begun) == (True, True)
    assert failed.partial.startswith("so so")
    assert "took more than 0.3 s for one answer" in str(failed)


def test_an_answer_of_too_many_bytes_is_not_read_on() -> None:
    with FaultServer({"/v1/chat/completions": sse(*[chunk("so far")] * 1_000)}) as server:
        failed = asyncio.run(call(server.base_url, limits=Limits(answer_bytes=10_000)).fails())
        assert len(server.requests) == 1
    assert "longer than 10,000 bytes" in str(failed)


def test_an_answer_that_asks_for_too_many_tools_runs_none() -> None:
    calls = [
        {"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(4)
    ]
    event = {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
    answer = sse(event, chunk("", "tool_calls"), "[DONE]")
    with FaultServer({"/v1/chat/completions": answer}) as server:
        taken = asyncio.run(call(server.base_url, limits=Limits(most_calls=4)).send())
        failed = asyncio.run(call(server.base_url, limits=Limits(most_calls=3)).fails())
        assert len(server.requests) == 2
    assert len(taken.calls) == 4
    assert "asked for 4 calls of tools at once, and 3 are the most" in str(failed)


@pytest.mark.parametrize("answer", [None, endless(chunk("so far"))], ids=["waiting", "streaming"])
def test_a_cancelled_call_closes_its_connection(answer: bytes | None) -> None:
    async def test() -> None:
        async with serving(answer) as server:
            started = asyncio.Event()
            client = Client(Provider("m", server.base_url))
            task = asyncio.ensure_future(client.send(CHAT, lambda delta: started.set()))
            await (server.asked if answer is None else started).wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.gone.wait()
            await client.aclose()

    run(test)


def test_who_listens_may_raise_and_the_connection_is_closed() -> None:
    async def test() -> None:
        def hear(delta: Delta) -> None:
            raise RuntimeError(delta.text)

        async with serving(endless(chunk("stop here"))) as server:
            client = Client(Provider("m", server.base_url))
            with pytest.raises(RuntimeError, match="stop here"):
                await client.send(CHAT, hear)
            await server.gone.wait()
            await client.aclose()

    run(test)


def test_a_connection_serves_the_next_call_as_well() -> None:
    async def test() -> None:
        async with serving(of_json(BUSY, 429), HELLO) as server:
            client = Client(Provider("m", server.base_url), asleep=call("http://h").client._asleep)
            for _ in range(3):
                assert (await client.send(CHAT, lambda delta: None)).text == "Hello"
            await client.aclose()
            assert (len(server.requests), server.connections) == (4, 1)

    run(test)


def test_a_closed_client_opens_anew() -> None:
    async def test() -> None:
        async with serving(HELLO) as server:
            caller = call(server.base_url)
            await caller.send()
            await caller.send()
            await caller.client.aclose()
            assert server.connections == 2

    run(test)


def test_the_real_pause_is_that_of_asyncio() -> None:
    async def test() -> None:
        async with serving(of_json(BUSY, 429, retry_after="0"), HELLO) as server:
            client = Client(Provider("m", server.base_url))
            assert (await client.send(CHAT, lambda delta: None)).text == "Hello"
            await client.aclose()

    run(test)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (html(), "holds no events: '<!doctype html>"),
        (Answer(blocks=(b"data: nonsense\n\ndata: x\n\n",)), "other than JSON objects: 'nonsense'"),
        (Answer(blocks=(b"data: [1]\n\ndata: x\n\n",)), "other than JSON objects: '[1]'"),
        (Answer(blocks=(b": hm\n\nid: 7\n\n",)), "holds no events"),
    ],
    ids=["html", "nonsense", "list", "comments"],
)
def test_an_answer_that_is_none_is_quoted_and_not_tried_again(answer: Answer, said: str) -> None:
    with FaultServer({"/v1/chat/completions": answer}) as server:
        failed = asyncio.run(call(server.base_url).fails())
        assert len(server.requests) == 1
    assert said in str(failed)
    assert not failed.lost


def test_garbage_within_an_answer_is_a_lost_one() -> None:
    body = b'data: {"choices": [{"delta": {"content": "so far"}}]}\n\ndata: \xff\xfe\n\ndata: 1\n\n'
    with FaultServer({"/v1/chat/completions": Answer(blocks=(body,))}) as server:
        failed = asyncio.run(call(server.base_url).fails())
    assert (failed.lost, failed.partial) == (True, "so far")


WHOLE = {
    "openai_chat": {
        "choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}],
    },
    "openai_responses": {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}],
    },
    "anthropic": {
        "type": "message",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
    },
}


@pytest.mark.parametrize("dialect", WHOLE)
def test_an_answer_in_one_piece_is_taken_though_a_stream_was_asked_for(dialect: str) -> None:
    async def test() -> None:
        async with serving(of_json(WHOLE[dialect])) as server:
            caller = call(server.base_url, dialect=dialect)
            assert (await caller.send()).text == "Hello"
        assert caller.heard == [Delta("text_delta", "Hello")]

    run(test)


def test_an_answer_in_one_piece_without_a_reason_to_stop_is_one() -> None:
    async def test() -> None:
        async with serving(of_json({"choices": [{"message": {"content": "Hi"}}]})) as server:
            assert (await call(server.base_url).send()).text == "Hi"

    run(test)


def test_a_stream_that_only_says_done_at_its_end_has_ended() -> None:
    async def test() -> None:
        async with serving(streamed(chunk("Hi"), "[DONE]", chunk("late"))) as server:
            assert (await call(server.base_url).send()).text == "Hi"

    run(test)


REFUSED = [
    pytest.param(
        "openai_chat", CHAT, "stream_options", None,
        "Unrecognized request argument supplied: stream_options", id="stream_options",
    ),
    pytest.param(
        "openai_chat", {**CHAT, "max_tokens": 9}, "max_tokens", "max_completion_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.", id="max_tokens",
    ),
    pytest.param(
        "openai_responses", {"input": "hi"}, "store", None,
        "Unknown parameter: 'store'.", id="store",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "fields", "name", "instead", "words"), REFUSED)
@pytest.mark.parametrize("status", [400, 422])
def test_a_field_that_a_server_refuses_is_left_out_from_then_on(
    dialect: str, fields: dict, name: str, instead: str | None, words: str, status: int
) -> None:
    async def test() -> None:
        error = of_json({"error": {"message": words}}, status)
        async with serving(error, of_json(WHOLE[dialect])) as server:
            caller = call(server.base_url, dialect=dialect)
            assert (await caller.send(fields)).text == "Hello"
            assert (await caller.send(fields)).text == "Hello"
            first, second, third = (body for _, body in server.requests)
        assert name in first
        assert name not in second
        assert second == third
        assert instead is None or second[instead] == first[name]
        assert caller.waits == []

    run(test)


def test_a_field_that_the_operator_set_is_not_left_out() -> None:
    async def test() -> None:
        error = of_json({"error": "stream_options is unknown"}, 400)
        async with serving(error) as server:
            caller = call(server.base_url, options={"stream_options": {"x": 1}})
            failed = await caller.fails()
            assert [body["stream_options"] for _, body in server.requests] == [{"x": 1}]
        assert failed.status == 400

    run(test)


def test_a_server_that_refuses_a_field_for_ever_is_not_asked_for_ever() -> None:
    async def test() -> None:
        async with serving(of_json("stream_options, still", 400)) as server:
            await call(server.base_url).fails()
            assert len(server.requests) == 2

    run(test)


def _forms(key: str) -> list[str]:
    return [key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1], repr(key)[1:-1]]


def _everything(failed: BaseException) -> str:
    """Return all that a log may show of an exception."""
    links: list[BaseException] = []
    link: BaseException | None = failed
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    shown = [f"{one!r} {one} {one.args} {vars(one)}" for one in links]
    return " ".join([*shown, json.dumps(getattr(failed, "body", None), ensure_ascii=False)])


@pytest.mark.parametrize("how", ["key", "header", "password"])
def test_no_way_to_fail_quotes_a_secret(how: str) -> None:
    key = "sentinel-7" if how != "key" else KEY
    echo = {"error": {"message": f"bad key {key}", key: [key]}}
    answers = {
        "plain": http(401, f"bad key {key}".encode(), www_authenticate=f"x {key!a}"),
        "json": of_json(echo, 401),
        "unescaped": http(401, json.dumps(echo, ensure_ascii=False).encode()),
        "stream": streamed(echo),
        "nonsense": http(200, f"data: {key}\n\ndata: x\n\n".encode()),
        "page": http(200, f"<p>{key}".encode()),
        "cut": http(200, f"data: {'x' * 495}{key}\n\ndata: x\n\n".encode()),
        "long": http(200, f"{'x' * 495}{key}".encode()),
        "break": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n",
        "garbage": f"HTTP/9 {key}\r\n\r\n".encode(),
    }
    fields: dict[str, Any] = {"limits": Limits(attempts=1, stall_s=20)}
    if how == "key":
        fields["api_key"] = key
    elif how == "header":
        fields["headers"] = {"X-Secret": key}

    async def test() -> None:
        for name, answer in answers.items():
            async with serving(answer) as server:
                base = server.base_url
                if how == "password":
                    base = base.replace("//", f"//me:{key}@")
                caller = call(base, **fields)
                failed = await caller.fails()
            told = f"{_everything(failed)} {caller.client!r} {caller.told}"
            assert not any(form in told for form in _forms(key)), (name, told)
            assert key[:5] not in told, (name, told)

    run(test)


@pytest.mark.parametrize("key", ["sk-gehéim", "sk-line\nbreak", "sk-\x00nul"])
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_a_key_that_no_header_can_carry_is_not_quoted_and_nothing_is_sent(
    key: str, dialect: str
) -> None:
    async def test() -> None:
        async with serving(HELLO) as server:
            failed = await call(server.base_url, api_key=key, dialect=dialect).fails()
            assert server.requests == []
        assert "cannot be asked" in str(failed)
        assert not any(form in _everything(failed) for form in _forms(key))

    run(test)


def test_a_body_that_json_cannot_carry_is_a_failure_and_sends_nothing() -> None:
    async def test() -> None:
        async with serving(HELLO) as server:
            failed = await call(server.base_url).fails({"messages": [{(1, 2): "x"}]})
            assert server.requests == []
        assert (failed.attempts, failed.unreached, failed.lost) == (1, False, False)

    run(test)


def test_a_long_error_is_shortened_in_words_and_kept_as_body() -> None:
    async def test() -> None:
        for body in ("x" * 9000, {"errors": ["y" * 9000]}, "[" * 90_000, ""):
            answer = of_json(body, 400) if isinstance(body, dict) else http(400, body.encode())
            async with serving(answer) as server:
                failed = await call(server.base_url).fails()
            assert len(str(failed)) < 700
            assert failed.body == body
            assert re.search(r"answered 400: \S", str(failed))

    run(test)

"""Guarded streams: events pass as they came, early faults are recovered from, late ones are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.resources.chat import Completions
from openai.types import Completion

import ullage
from tests.support.faults import Answer, FaultServer, dropped, hanging, of_json, sse
from tests.voyage import TOOLS, log_of, of, opening, same_objects
from ullage import events
from ullage.core.guard.events import Event
from ullage.embedded import Server
from ullage.guard.call import read_call
from ullage.guard.driver import Pause
from ullage.runtime import Runtime
from ullage.sdk.streams import HELD, Relay, Tracker

MODEL = "gpt-4o"
FULL = {
    "message": "Your input exceeds the context window of this model. Please adjust your input.",
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
}
LIMITED = {"message": "Rate limit reached for requests", "code": "rate_limit_exceeded"}


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    fixed = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**fixed, "choices": choices, **more}


ROLE = chunk({"role": "assistant", "content": ""})
WORD = chunk({"content": "hi"})
STOP = chunk(finish="stop")
USED = {**chunk(), "choices": [], "usage": {"prompt_tokens": 321, "completion_tokens": 2}}
GOOD = sse(ROLE, WORD, STOP, USED, "[DONE]")


class Waits:
    """The pauses of a guard, none of them waited for."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.pause = Pause(0.5, lambda: 0.5, self.waited.append, self._later)

    async def _later(self, seconds: float) -> None:
        self.waited.append(seconds)


class Talk:
    """A guard over the OpenAI SDK, blocking or awaiting; keeps what was sent and told."""

    def __init__(self, server: FaultServer | Server | None, awaits: bool, **options: Any) -> None:
        self.told: list[Event] = []
        self.sent: list[dict[str, Any]] = []
        self.waits = Waits()
        self.awaits = awaits
        self.timeout = 20.0
        self.url = server.base_url if server is not None else ""
        given = {"runtime": Runtime(), "on_event": self.told.append, "pause": self.waits.pause}
        self.guard = ullage.Guard(MODEL, **{**given, **options})

    def events(self, history: list[Any], **options: Any) -> list[Any]:
        if self.awaits:
            return asyncio.run(self._aevents(history, options))
        with openai.OpenAI(
            base_url=self.url, api_key="k", max_retries=0, timeout=self.timeout
        ) as client:

            def create(**kwargs: Any) -> Any:
                self.sent.append(kwargs)
                return client.chat.completions.create(**{**kwargs, "model": "m"})

            return list(self.guard.stream(create, history, **options))

    async def _aevents(self, history: list[Any], options: dict[str, Any]) -> list[Any]:
        async with openai.AsyncOpenAI(
            base_url=self.url, api_key="k", max_retries=0, timeout=self.timeout
        ) as client:

            async def create(**kwargs: Any) -> Any:
                self.sent.append(kwargs)
                return await client.chat.completions.create(**{**kwargs, "model": "m"})

            stream = await self.guard.astream(create, history, **options)
            return [event async for event in stream]

    def sizes(self) -> list[int]:
        """Return the sizes told: one for each preparation, and one for each report."""
        return [e.assessment.input_tokens or 0 for e in of(events.ContextPressure, self.told)]

    def notices(self) -> list[str]:
        return [notice.text for notice in of(events.Notice, self.told)]


@pytest.fixture(params=[False, True], ids=["blocks", "awaits"])
def awaits(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def posts(server: FaultServer) -> int:
    return sum(asked.method == "POST" for asked in server.requests)


def playing(*answers: Answer) -> FaultServer:
    return FaultServer({"POST *": answers})


# --- a stream that is well ------------------------------------------------------------------------


def test_a_stream_of_a_real_server_teaches_its_size(awaits, tiny_server: Server) -> None:
    talk = Talk(tiny_server, awaits, window=10**6)
    options: dict[str, Any] = {"tools": TOOLS, "max_tokens": 8}
    seen = talk.events(log_of(3), **options)
    assert seen[-1].choices[0].finish_reason == "length"
    (sent,) = talk.sent
    assert sent["stream"] is True
    reported = seen[-1].timings["prompt_n"] + seen[-1].timings["cache_n"]
    assert talk.sizes()[1:] == [reported]
    assert talk.guard.prepare(log_of(3), tools=TOOLS).prepared.count.tokens == reported


def test_all_events_come_through_in_order_and_the_usage_is_learned(awaits) -> None:
    with playing(GOOD) as server:
        talk = Talk(server, awaits)
        seen = talk.events(opening())
    assert [bool(event.choices) for event in seen] == [True, True, True, False]
    assert talk.sizes()[1:] == [321]
    assert talk.notices() == []


def test_a_stream_without_any_usage_teaches_nothing_and_is_no_fault(awaits) -> None:
    with playing(sse(ROLE, WORD, STOP, "[DONE]")) as server:
        talk = Talk(server, awaits)
        assert len(talk.events(opening())) == 3
    assert len(talk.sizes()) == 1
    assert talk.notices() == []


# --- before the first content ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [of_json({"error": FULL}, 400), sse({"error": FULL}), sse(ROLE, {"error": FULL})],
    ids=["status", "first", "after the role"],
)
def test_an_overflow_before_any_content_is_recovered_once(awaits, refusal) -> None:
    with playing(refusal, GOOD) as server:
        talk = Talk(server, awaits)
        seen = talk.events(log_of(40))
        assert posts(server) == 2
    assert len(seen) == 4
    (made,) = of(events.Compacted, talk.told)
    assert made.checkpoint.trigger == "overflow_recovery"
    assert len(talk.sent[1]["messages"]) < len(talk.sent[0]["messages"])
    assert talk.waits.waited == []
    assert talk.sizes()[2:] == talk.sizes()[1:2]  # 321 is no size of what was sent


@pytest.mark.parametrize("refusal", [of_json({"error": FULL}, 400), sse({"error": FULL})])
def test_a_second_overflow_is_told_and_passes_through(awaits, refusal) -> None:
    with playing(refusal) as server:
        talk = Talk(server, awaits)
        with pytest.raises(openai.APIError, match="exceeds the context window"):
            talk.events(log_of(40))
        assert posts(server) == 2
    (exhausted,) = of(events.RecoveryExhausted, talk.told)
    assert "refused again after compaction" in exhausted.reason


def test_another_error_before_any_content_passes_through(awaits) -> None:
    with playing(sse({"error": LIMITED})) as server:
        talk = Talk(server, awaits)
        with pytest.raises(openai.APIError, match="Rate limit"):
            talk.events(log_of(4))
        assert posts(server) == 1
    assert {type(event) for event in talk.told} == {events.ContextPressure}


BROKEN = {
    "dropped": dropped(),
    "reset": Answer(reset=True),
    "cut before the first event": sse(cut=True),
    "cut after the role": sse(ROLE, cut=True),
    "ended before the first event": sse(),
    "ended after the role": sse(ROLE),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_connection_that_breaks_before_any_content_is_tried_once_more(awaits, broken) -> None:
    with playing(broken, GOOD) as server:
        talk = Talk(server, awaits)
        history = log_of(3)
        assert len(talk.events(history)) == 4
        assert posts(server) == 2
    assert talk.waits.waited == [0.25]
    assert same_objects(talk.sent[1]["messages"], history)
    assert len(talk.notices()) == 1
    assert "sent again" in talk.notices()[0]
    assert not of(events.Compacted, talk.told)


def test_the_one_retry_is_for_all_causes_together(awaits) -> None:
    with playing(dropped(), of_json({"error": FULL}, 400), GOOD) as server:
        talk = Talk(server, awaits)
        with pytest.raises(openai.BadRequestError):
            talk.events(log_of(40))
        assert posts(server) == 2
    (exhausted,) = of(events.RecoveryExhausted, talk.told)
    assert "its one retry was spent" in exhausted.reason
    with playing(of_json({"error": FULL}, 400), dropped(), GOOD) as server:
        talk = Talk(server, awaits)
        with pytest.raises(openai.APIConnectionError):
            talk.events(log_of(40))
        assert posts(server) == 2
    assert not of(events.RecoveryExhausted, talk.told)


def test_a_stream_that_stays_empty_is_handed_out_and_told_of(awaits) -> None:
    with playing(sse(ROLE)) as server:
        talk = Talk(server, awaits)
        assert len(talk.events(log_of(3))) == 1
        assert posts(server) == 2
    assert len(talk.notices()) == 2
    assert "stopped after 1 events" in talk.notices()[1]
    assert len(talk.sizes()) == 1


def test_a_stall_is_never_tried_again(awaits) -> None:
    with playing(hanging()) as server:
        talk = Talk(server, awaits)
        talk.timeout = 0.2
        with pytest.raises(openai.APITimeoutError):
            talk.events(log_of(3))
        assert posts(server) == 1


LATE = ullage.Policy(
    name="late", rungs=(ullage.Rung(at=0.99, target=0.9, strategies=("trim_oldest",)),)
)


def test_a_connection_that_breaks_in_a_full_window_is_compacted_first(awaits) -> None:
    history = log_of(40)
    size = ullage.count(history, model=MODEL).high
    with playing(dropped(), GOOD) as server:
        talk = Talk(server, awaits, window=int(size / 0.97), policy=LATE)
        assert len(talk.events(history)) == 4
    assert of(events.ContextPressure, talk.told)[0].assessment.tier == "critical"
    (made,) = of(events.Compacted, talk.told)
    assert made.checkpoint.trigger == "transport_recovery"
    assert len(talk.sent[1]["messages"]) < len(talk.sent[0]["messages"])
    assert talk.waits.waited == []


def test_off_sends_the_same_again_also_in_a_full_window(awaits) -> None:
    history = log_of(40)
    size = ullage.count(history, model=MODEL).high
    with playing(dropped(), GOOD) as server:
        talk = Talk(server, awaits, window=int(size / 0.97), policy=ullage.Policy.off())
        assert len(talk.events(history)) == 4
    assert same_objects(talk.sent[1]["messages"], history)
    assert not of(events.Compacted, talk.told)


# --- after the first content ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (sse(ROLE, WORD, {"error": FULL}), openai.APIError),
        (sse(ROLE, WORD, cut=True), openai.APIConnectionError),
    ],
)
def test_nothing_is_retried_or_learned_after_the_first_content(awaits, answer, raised) -> None:
    with playing(answer, GOOD) as server:
        talk = Talk(server, awaits)
        with pytest.raises(raised):
            talk.events(log_of(40))
        assert posts(server) == 1
    assert {type(event) for event in talk.told} == {events.ContextPressure}
    assert len(talk.sizes()) == 1
    assert talk.guard.window().source == "table"


def test_a_stream_that_stops_short_is_told_of_and_teaches_nothing(awaits) -> None:
    with playing(sse(ROLE, WORD, WORD)) as server:
        talk = Talk(server, awaits)
        assert len(talk.events(log_of(4))) == 3
        assert posts(server) == 1
    (notice,) = talk.notices()
    assert "stopped after 3 events" in notice
    assert len(talk.sizes()) == 1


def test_a_stream_that_is_left_early_is_closed_and_teaches_nothing(awaits) -> None:
    with playing(GOOD) as server:
        talk = Talk(server, awaits)

        async def leave() -> Any:
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
                create = partial(client.chat.completions.create, model="m")
                async with await talk.guard.astream(create, opening()) as stream:
                    await anext(stream)
                return stream

        if awaits:
            stream = asyncio.run(leave())
        else:
            with openai.OpenAI(base_url=server.base_url, api_key="k") as client:
                create = partial(client.chat.completions.create, model="m")
                with talk.guard.stream(create, opening()) as stream:
                    next(stream)
        assert stream.response.is_closed
    assert len(talk.sizes()) == 1
    assert talk.notices() == []


# --- the other dialects ---------------------------------------------------------------------------

START = {
    "type": "message_start",
    "message": {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 1}},
}  # fmt: skip
SAID = [
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
]
DELTA = {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
         "usage": {"output_tokens": 9}}  # fmt: skip
CLAUDE = sse(START, *SAID, DELTA, {"type": "message_stop"})
TOO_LONG = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9000 tokens > 8000 maximum",
    },
}


@pytest.mark.parametrize("refusal", [sse(TOO_LONG), sse(START, TOO_LONG)])
def test_an_error_event_of_anthropic_is_recovered_from_and_two_reports_are_one(refusal) -> None:
    with playing(refusal, CLAUDE) as server:
        talk = Talk(server, False, dialect="anthropic")
        root = server.root_url
        with anthropic.Anthropic(base_url=root, api_key="k", max_retries=0) as client:
            stream = talk.guard.stream(
                lambda **kw: client.messages.create(**{**kw, "model": "c"}),
                [m for m in log_of(40) if m["role"] in ("user", "assistant") and m["content"]],
                max_tokens=50,
            )
            assert type(stream) is anthropic.Stream
            assert [event.type for event in stream][-1] == "message_stop"
        assert posts(server) == 2
    assert talk.guard.window().input_tokens == 128_000  # one sentence, far from the table's word
    assert talk.sizes()[2:] == talk.sizes()[1:2]  # 140 is no size of what was sent


def test_a_reader_who_stops_at_the_terminal_event_has_taught_already() -> None:
    talk = Talk(None, False)
    stream = talk.guard.stream(lambda **_: iter([START, *SAID, DELTA, {"type": "message_stop"}]),
                               opening())  # fmt: skip
    for event in stream:
        if event["type"] == "message_stop":
            break
    assert talk.sizes()[1:] == [140]


# --- streams of other makes -----------------------------------------------------------------------


def whole(**_: Any) -> Iterator[Any]:
    yield from (ROLE, WORD, STOP, USED)


async def awhole(**_: Any) -> AsyncIterator[Any]:
    for event in whole():
        yield event


def test_any_iterator_of_events_is_watched() -> None:
    talk = Talk(None, False)
    with talk.guard.stream(whole, opening()) as stream:
        seen = list(stream)
    assert all(a is b for a, b in zip(seen, (ROLE, WORD, STOP, USED), strict=True))
    assert talk.sizes()[1:] == [321]

    async def run() -> list[Any]:
        async with await talk.guard.astream(awhole, opening()) as stream:
            return [event async for event in stream]

    assert asyncio.run(run()) == seen
    assert talk.sizes()[3:] == [321]


def test_an_answer_without_any_content_teaches_too() -> None:
    talk = Talk(None, False)
    silent = [START, {"type": "message_stop"}]
    assert list(talk.guard.stream(lambda **_: iter(silent), opening())) == silent
    assert talk.sizes()[1:] == [140]
    assert talk.notices() == []


def test_an_iterator_that_is_left_early_is_closed() -> None:
    talk, ended = Talk(None, False), []

    def mine(**_: Any) -> Iterator[Any]:
        try:
            yield from whole()
        finally:
            ended.append("sync")

    async def amine(**_: Any) -> AsyncIterator[Any]:
        try:
            for event in whole():
                yield event
        finally:
            ended.append("async")

    stream = talk.guard.stream(mine, opening())
    assert isinstance(stream, Relay)
    assert next(stream) is ROLE
    stream.close()

    async def run() -> None:
        stream = await talk.guard.astream(amine, opening())
        assert await anext(stream) is ROLE
        await stream.close()

    asyncio.run(run())
    assert ended == ["sync", "async"]
    assert len(talk.sizes()) == 2


def test_an_interrupt_while_the_first_events_are_read_closes_the_stream() -> None:
    talk, ended = Talk(None, False), []

    class Interrupted:
        def __iter__(self) -> Iterator[Any]:
            raise KeyboardInterrupt

        def close(self) -> None:
            ended.append("closed")

    class Cancelled:
        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            raise asyncio.CancelledError

        async def close(self) -> None:
            ended.append("closed")

    class Plain(Interrupted):
        def __iter__(self) -> Iterator[Any]:
            yield ROLE
            raise KeyboardInterrupt

    class Bare(Cancelled):
        close = None  # type: ignore[assignment]  # as an iterator that cannot be closed

    with pytest.raises(KeyboardInterrupt):
        talk.guard.stream(lambda **_: Plain(), opening())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(talk.guard.astream(lambda **_: Cancelled(), opening()))
    assert ended == ["closed", "closed"]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(talk.guard.astream(lambda **_: Bare(), opening()))
    with pytest.raises(ZeroDivisionError):
        talk.guard.stream(lambda **_: map(int.__rfloordiv__, [0], [1]), opening())


def test_events_of_an_unknown_kind_pass_and_nothing_is_told_of_their_end() -> None:
    talk = Talk(None, False)
    for given_ in ([b"data: x", "text", 7, None], []):
        assert list(talk.guard.stream(lambda _s=given_, **_: iter(_s), opening())) == given_
    assert talk.notices() == []
    assert len(talk.sizes()) == 2


@pytest.mark.parametrize("answer", [None, 7, Completion.model_construct()])
def test_what_is_no_stream_is_refused(answer: Any) -> None:
    talk = Talk(None, False)
    with pytest.raises(ullage.ConfigurationError, match=r"Guard\.stream wants a stream"):
        talk.guard.stream(lambda **_: answer, opening())
    with pytest.raises(ullage.ConfigurationError, match=r"Guard\.astream wants a stream"):
        asyncio.run(talk.guard.astream(lambda **_: answer, opening()))


def test_an_error_event_that_is_no_overflow_comes_through_as_it_is() -> None:
    talk = Talk(None, False)
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert list(talk.guard.stream(lambda **_: iter([event]), opening())) == [event]
    assert talk.notices() == []


def takes_stream(messages: Any, stream: bool) -> Any: ...


def takes_none(messages: Any) -> Any: ...


@pytest.mark.parametrize(
    ("fn", "given_"),
    [(takes_stream, True), (takes_none, False), (lambda **_: None, True), (print, False),
     (Completions.create, True), (dir, True)],
)  # fmt: skip
def test_streaming_is_asked_for_where_it_can_be(fn: Callable[..., Any], given_: bool) -> None:
    assert read_call(fn, [], {}, None).streaming() == ({"stream": True} if given_ else {})


# --- the tracker ----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "choices", "delta", "usage", "error", "message", "finish_reason", "chunk",
             "timings", "response", "content"]
        ),
        inner | st.sampled_from([*SAID, "message_stop", "message_start", "message_delta",
                                 "response.completed", "chunk", "error"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(JSON, max_size=8))
def test_events_of_any_shape_are_read_without_complaint(stream: list[Any]) -> None:
    tracker = Tracker()
    for event in stream:
        tracker.take(event)
    assert tracker.events == len(stream)


@given(st.lists(JSON, max_size=8))
def test_what_goes_in_comes_out(stream: list[Any]) -> None:
    guard = ullage.Guard(MODEL, runtime=RUNTIME)
    out = list(guard.stream(lambda **_: iter(stream), opening()))
    assert same_objects(out, stream)


RUNTIME = Runtime()


def test_events_before_any_content_are_held_back_up_to_a_bound() -> None:
    read: list[int] = []

    def quiet(**_: Any) -> Iterator[Any]:
        for n in range(40):
            read.append(n)
            yield {"type": "ping"}

    stream = ullage.Guard(MODEL, runtime=RUNTIME).stream(quiet, opening())
    assert len(read) == HELD
    assert len(list(stream)) == 40


def test_the_openai_helpers_own_events_are_read() -> None:
    tracker = Tracker()
    for piece in (ROLE, WORD, STOP, USED):
        tracker.take({"type": "chunk", "chunk": piece})
    assert tracker.report["usage"]["prompt_tokens"] == 321


def test_a_response_of_the_responses_api_is_the_report() -> None:
    tracker = Tracker()
    response = {"usage": {"input_tokens": 5}, "truncation": "auto"}
    tracker.take({"type": "response.incomplete", "response": response})
    assert (tracker.report, tracker.ended) == (response, True)

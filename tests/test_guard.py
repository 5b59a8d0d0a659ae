"""The guard as its users hold it: a real server, the real SDK, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import ullage
from ullage import events
from ullage.core.events import Event
from ullage.embedded import Server
from ullage.runtime import Runtime
from ullage.testing.faults import FaultServer, closed_port, hanging, loading, of_json
from ullage.transport import Timeouts, Transport

MODEL = "gpt-4o"
WINDOW = 2048
Message = dict[str, Any]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look a thing up in the ship's papers.",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
        },
    }
]


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(transport=Transport(Timeouts(connect_s=1.0, read_s=10.0)))


@pytest.fixture
def client(tiny_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=tiny_server.base_url, api_key="k", max_retries=0) as client:
        yield client


class Chat:
    """The SDK's `create` for the tiny model; keeps what it was given, and what came back."""

    def __init__(self, client: openai.OpenAI) -> None:
        self._client = client
        self.sent: list[dict[str, Any]] = []
        self.answers: list[Any] = []

    def __call__(self, **kwargs: Any) -> Any:
        self.sent.append(kwargs)
        self.answers.append(self._client.chat.completions.create(model="tiny", **kwargs))
        return self.answers[-1]


@pytest.fixture
def chat(client: openai.OpenAI) -> Chat:
    return Chat(client)


def opening() -> list[Message]:
    return [
        {"role": "system", "content": "You keep a ship's log."},
        {"role": "user", "content": "The codeword is marlin. Keep the log for me."},
    ]


def look_up(n: int) -> list[Message]:
    """Return a tool call and its result, about a hundred tokens."""
    call = {
        "id": f"c{n}",
        "type": "function",
        "function": {"name": "look_up", "arguments": json.dumps({"what": f"item {n}"})},
    }
    report = f"Record {n}: " + "wind and water were fair today, all hands well. " * 8
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": report},
    ]


def log_of(turns: int) -> list[Message]:
    messages = opening()
    for n in range(turns):
        messages += look_up(n)
        messages.append({"role": "assistant", "content": f"Item {n} is in the log."})
        messages.append({"role": "user", "content": f"Go on with item {n + 1}, please."})
    return messages


def immovable() -> list[Message]:
    """Return a history that cannot be made smaller: its operator's text alone is too much."""
    return [
        {"role": "system", "content": "word and word " * 1200},
        {"role": "user", "content": "hi"},
    ]


def same_objects(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def of(kind: type, told: list[Event]) -> list[Any]:
    return [event for event in told if isinstance(event, kind)]


# --- a whole conversation with the real server ----------------------------------------------------


def test_sixty_turns_with_tools_never_overflow(runtime, chat, tiny_server: Server) -> None:
    told: list[Event] = []
    guard = ullage.Guard(
        "tiny", base_url=tiny_server.base_url, runtime=runtime, on_event=told.append
    )
    history = opening()
    bases = set()
    for n in range(60):
        history += look_up(n)
        before = copy.deepcopy(history)
        view = guard.prepare(history, tools=TOOLS, max_tokens=64)
        assert history == before
        for message in view.messages:
            if message in history:
                assert any(message is mine for mine in history)
        answer = chat(**view.kwargs)
        seen = view.observe(answer)
        assert seen.state == "known"
        assert seen.input_tokens == answer.usage.prompt_tokens < WINDOW
        bases.add(view.prepared.count.basis)
        if view.prepared.count.basis == "server":
            assert view.prepared.count.tokens == answer.usage.prompt_tokens
        history.append({"role": "assistant", "content": answer.choices[0].message.content})
        history.append({"role": "user", "content": f"Go on with item {n + 1}, please."})
    whole = ullage.count(history, model="tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert whole.basis == "server"
    assert whole.tokens > 5 * WINDOW
    assert "server" in bases
    assert len(chat.answers) == 60
    assert len(of(events.Compacted, told)) > 1
    assert not of(events.RecoveryExhausted, told)
    assert "The codeword is marlin" in str(chat.sent[-1]["messages"])
    # Checkpoints were made with far fewer turns than there were: between them all is replayed.
    assert len(runtime.checkpoints.all()) < 30


def test_a_view_carries_what_was_given_and_nothing_else(runtime, chat, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    history = log_of(1)
    bare = guard.prepare(history)
    assert set(bare.kwargs) == {"messages"}
    assert same_objects(bare.messages, history)
    assert bare.messages is not history
    assert (bare.window.input_tokens, bare.window.source) == (WINDOW, "probe")
    assert bare.compaction is None
    whole = guard.prepare(history, tools=TOOLS, max_tokens=16)
    assert whole.kwargs["tools"] is TOOLS
    assert whole.kwargs["max_tokens"] == 16
    assert chat(**bare.kwargs).usage.prompt_tokens < chat(**whole.kwargs).usage.prompt_tokens


def test_the_same_history_is_never_planned_twice(runtime, tiny_server) -> None:
    told: list[Event] = []
    guard = ullage.Guard(
        "tiny", base_url=tiny_server.base_url, runtime=runtime, on_event=told.append
    )
    history = log_of(30)
    first = guard.prepare(history, tools=TOOLS)
    assert first.compaction is not None
    assert first.compaction.reached
    kept = runtime.checkpoints.all()
    told.clear()
    for again in (guard.prepare(history, tools=TOOLS), guard.prepare(copy.deepcopy(history))):
        assert again.messages == first.messages
        assert again.compaction is None
        assert again.prepared.replayed == kept[-1]
    assert not of(events.Compacted, told)
    assert runtime.checkpoints.all() == kept


def test_a_longer_history_begins_with_the_bytes_that_were_sent(runtime) -> None:
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime)
    history = log_of(40)
    first = guard.prepare(history).messages
    history.append({"role": "assistant", "content": "Item 40 is in the log."})
    history.append({"role": "user", "content": "Thanks."})
    then = guard.prepare(history)
    assert then.compaction is None
    assert then.messages[: len(first)] == first
    assert same_objects(then.messages[len(first) :], history[-2:])


def test_a_report_teaches_how_the_model_counts(runtime, chat, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    history = log_of(2)
    view = guard.prepare(history)
    assert view.prepared.count.basis == "estimate"
    answer = chat(**view.kwargs)
    view.observe(answer)
    learned = guard.prepare(history).prepared.count
    assert learned.basis == "calibrated"
    assert learned.low <= answer.usage.prompt_tokens <= learned.high
    assert learned.tokens == pytest.approx(answer.usage.prompt_tokens, rel=0.02)


@pytest.mark.parametrize("report", [None, "text", {}, {"usage": None}, ValueError("no"), 7])
def test_a_report_that_is_none_teaches_nothing(runtime, report) -> None:
    guard = ullage.Guard("unheard-of", window=4000, runtime=runtime)
    view = guard.prepare(log_of(2))
    assert view.observe(report) == view.assessment
    assert guard.prepare(log_of(2)).prepared.count.basis == "estimate"


def test_a_checkpoint_learns_its_size_from_the_report(runtime) -> None:
    guard = ullage.Guard(MODEL, window=2000, runtime=runtime)
    view = guard.prepare(log_of(40))
    view.observe({"prompt_tokens": 987, "completion_tokens": 1})
    (kept,) = runtime.checkpoints.all()
    assert kept.tokens_after_measured == 987


def test_a_silent_cut_is_told_and_teaches_nothing(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=100_000, runtime=runtime, on_event=told.append)
    view = guard.prepare(log_of(60))
    view.observe({"prompt_tokens": 700, "completion_tokens": 1})
    (cut,) = of(events.TruncationDetected, told)
    assert (cut.reported, cut.counted) == (700, view.prepared.count.tokens)


# --- recovery from a real overflow ----------------------------------------------------------------


def call_sync(guard: ullage.Guard, server: Server, messages: Any, **options: Any) -> Any:
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        sent: list[Any] = []

        def create(**kwargs: Any) -> Any:
            sent.append(kwargs)
            return client.chat.completions.create(model="tiny", **kwargs)

        return guard.call(create, messages, **options), sent


def call_async(guard: ullage.Guard, server: Server, messages: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with openai.AsyncOpenAI(
            base_url=server.base_url, api_key="k", max_retries=0
        ) as client:
            sent: list[Any] = []

            async def create(**kwargs: Any) -> Any:
                sent.append(kwargs)
                return await client.chat.completions.create(model="tiny", **kwargs)

            return await guard.acall(create, messages, **options), sent

    return asyncio.run(run())


@pytest.fixture(params=[call_sync, call_async])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    calling: Callable[..., Any] = request.param
    return calling


@pytest.mark.parametrize("window", [10**6, None])
def test_a_real_overflow_is_learned_from_compacted_and_answered(
    call, runtime, tiny_server, caplog, window
) -> None:
    told: list[Event] = []
    guard = ullage.Guard("tiny", window=window, runtime=runtime, on_event=told.append)
    history = log_of(40)
    before = copy.deepcopy(history)
    answer, sent = call(guard, tiny_server, history, tools=TOOLS, max_tokens=32)
    assert answer.choices[0].message.content
    assert history == before
    assert len(sent) == 2
    assert same_objects(sent[0]["messages"], history)
    assert len(sent[1]["messages"]) < len(history)
    assert sent[1]["messages"][:2] == history[:2]
    assert answer.usage.prompt_tokens <= WINDOW // 2
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.trigger == "overflow_recovery"
    assert (guard.window().input_tokens, guard.window().source) == (WINDOW, "learned")
    # From now on the limit is known: the next call is right at once.
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "Go on."}]
    _, sent = call(guard, tiny_server, history, tools=TOOLS, max_tokens=32)
    assert len(sent) == 1
    assert len(of(events.Compacted, told)) == 1
    assert len(caplog.messages) == (1 if window else 0)


def test_an_overflow_that_cannot_be_helped_is_the_providers_own_error(
    call, runtime, tiny_server
) -> None:
    told: list[Event] = []
    guard = ullage.Guard("tiny", window=10**6, runtime=runtime, on_event=told.append)
    with pytest.raises(openai.BadRequestError) as caught:
        call(guard, tiny_server, immovable())
    assert caught.value.body["type"] == "exceed_context_size_error"  # type: ignore[index]  # JSON
    (exhausted,) = of(events.RecoveryExhausted, told)
    assert "system" in exhausted.reason
    assert not of(events.Compacted, told)


class Stubborn:
    """A provider that finds everything too large."""

    def __init__(self, message: str) -> None:
        self.asked = 0
        self.message = message

    def __call__(self, **kwargs: Any) -> Any:
        self.asked += 1
        raise RuntimeError(f"{self.message} ({self.asked})")

    async def awaited(self, **kwargs: Any) -> Any:
        return self(**kwargs)


def run(guard: ullage.Guard, fn: Stubborn, messages: Any, *, twin: bool, **options: Any) -> Any:
    if twin:
        return asyncio.run(guard.acall(fn.awaited, messages, **options))
    return guard.call(fn, messages, **options)


@pytest.mark.parametrize("twin", [False, True])
def test_a_second_refusal_is_told_and_passes_through(runtime, twin) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append)
    fn = Stubborn("Your input exceeds the context window of this model.")
    with pytest.raises(RuntimeError, match=r"\(2\)"):
        run(guard, fn, log_of(40), twin=twin)
    assert fn.asked == 2
    assert len(of(events.Compacted, told)) == 1
    (exhausted,) = of(events.RecoveryExhausted, told)
    assert "refused again" in exhausted.reason


@pytest.mark.parametrize("twin", [False, True])
def test_any_other_error_passes_through_unchanged_and_teaches_nothing(runtime, twin) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append)
    fn = Stubborn("the disk is full")
    with pytest.raises(RuntimeError, match=r"^the disk is full \(1\)$") as caught:
        run(guard, fn, log_of(10), twin=twin)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert fn.asked == 1
    assert guard.window().source == "table"
    assert {type(event) for event in told} == {events.ContextPressure}


@pytest.mark.parametrize("twin", [False, True])
def test_an_error_of_another_kind_on_the_second_try_is_no_exhaustion(runtime, twin) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append)
    fn = Stubborn("Your input exceeds the context window of this model.")

    class Changing(Stubborn):
        def __call__(self, **kwargs: Any) -> Any:
            if self.asked:
                raise KeyError("something else")
            return super().__call__(**kwargs)

    with pytest.raises(KeyError):
        run(guard, Changing(fn.message), log_of(40), twin=twin)
    assert not of(events.RecoveryExhausted, told)


def test_a_likely_overflow_counts_only_where_our_own_count_agrees(runtime) -> None:
    likely = "the prompt is longer than the context length of the model"
    small = Stubborn(likely)
    guard = ullage.Guard(MODEL, window=100_000, runtime=runtime)
    with pytest.raises(RuntimeError):
        guard.call(small, log_of(3))
    assert small.asked == 1
    large = Stubborn(likely)
    with pytest.raises(RuntimeError):
        ullage.Guard(MODEL, window=12_000, runtime=Runtime()).call(large, log_of(55))
    assert large.asked == 2


def test_an_output_that_was_too_much_is_lowered_without_compaction(runtime) -> None:
    told: list[Event] = []
    sent: list[dict[str, Any]] = []

    def create(**kwargs: Any) -> str:
        sent.append(kwargs)
        if kwargs["max_tokens"] > 4096:
            raise RuntimeError(
                "max_tokens is too large: 9000. This model supports at most 4096 completion tokens"
            )
        return "answered"

    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append)
    history = log_of(3)
    assert guard.call(create, history, max_tokens=9000) == "answered"
    assert [kwargs["max_tokens"] for kwargs in sent] == [9000, 4096]
    assert same_objects(sent[1]["messages"], history)
    assert guard.window().source == "table"


def test_a_rate_limit_of_the_real_sdk_is_no_overflow(runtime) -> None:
    error = {"error": {"message": "Rate limit reached for requests", "code": None}}
    with (
        FaultServer({"POST /v1/chat/completions": of_json(error, 429)}) as server,
        openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client,
    ):
        guard = ullage.Guard(MODEL, runtime=runtime)
        with pytest.raises(openai.RateLimitError):
            Chat(client)(**guard.prepare(opening()).kwargs)
        with pytest.raises(openai.RateLimitError):
            guard.call(Chat(client), opening())
        assert len(server.requests) == 2


# --- before the send ------------------------------------------------------------------------------


def test_what_cannot_fit_a_proven_window_is_refused_before_the_send(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    with pytest.raises(ullage.ContextTooLargeError, match="do not fit into 2,048") as caught:
        guard.prepare(immovable())
    assert caught.value.bound == WINDOW
    assert tiny_server.root_url in str(caught.value)


def test_a_bound_of_the_table_refuses_only_a_strict_guard(runtime) -> None:
    messages = [{"role": "system", "content": "a" + " a" * 9000}, {"role": "user", "content": "x"}]
    view = ullage.Guard("gpt-4", runtime=runtime).prepare(messages)
    assert view.assessment.tier == "overflow"
    assert same_objects(view.messages, messages)
    with pytest.raises(ullage.ContextTooLargeError):
        ullage.Guard("gpt-4", runtime=runtime, strict=True).prepare(messages)


def test_the_output_is_clamped_to_the_room_there_is(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime, on_event=told.append)
    view = guard.prepare(log_of(10), max_tokens=3000)
    assert view.kwargs["max_tokens"] == 4000 - view.prepared.count.high < 3000
    assert same_objects(view.messages, view.prepared.messages)
    assert "max_tokens lowered from 3,000" in of(events.Notice, told)[0].text


@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5])
def test_a_senseless_output_is_refused(runtime, max_tokens) -> None:
    with pytest.raises(ullage.ConfigurationError, match="max_tokens"):
        ullage.Guard(MODEL, runtime=runtime).prepare(opening(), max_tokens=max_tokens)


@pytest.mark.parametrize("pin", [-1, 2])
def test_a_pin_on_nothing_is_refused(runtime, pin) -> None:
    with pytest.raises(ullage.ConfigurationError, match="pins names message"):
        ullage.Guard(MODEL, runtime=runtime).prepare(opening(), pins=[pin])


def test_pins_are_positions_in_what_the_caller_gave_also_after_a_repair(runtime) -> None:
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "stray"}
    history = log_of(40)
    history.insert(2, stray)
    pin = next(i for i, m in enumerate(history) if m["content"] == "Item 3 is in the log.")
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=2000, runtime=runtime, on_event=told.append)
    view = guard.prepare(history, pins=[pin])
    assert view.compaction is not None
    assert any(message is history[pin] for message in view.messages)
    (repaired,) = of(events.Repaired, told)
    assert repaired.repairs[0].fault == "orphan_result"


@pytest.mark.parametrize("messages", [None, "text", {"role": "user"}, [7], [{"role": "alien"}]])
def test_what_is_no_history_is_refused(runtime, messages) -> None:
    guard = ullage.Guard(MODEL, runtime=runtime)
    with pytest.raises(ullage.MalformedHistoryError):
        guard.prepare(messages)
    with pytest.raises(ullage.MalformedHistoryError):
        asyncio.run(guard.aprepare(messages))
    with pytest.raises(ullage.MalformedHistoryError):
        guard.call(Stubborn("never asked"), messages)


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"window": "8k"}, {"base_url": "h:1"}, {"base_url": ""}]
)
def test_a_senseless_guard_cannot_be_made(options) -> None:
    with pytest.raises(ullage.ConfigurationError):
        ullage.Guard("m", **options)


# --- a window that is not known -------------------------------------------------------------------


def unchanged(guard: ullage.Guard) -> ullage.View:
    history = log_of(40)
    for view in (guard.prepare(history, tools=TOOLS), asyncio.run(guard.aprepare(history))):
        assert same_objects(view.messages, history)
        assert not view.window.known
        assert view.assessment.reason == "context_window_unknown"
        assert view.assessment.input_tokens
        assert view.compaction is None
    return view


def test_a_dead_server_stands_in_nobodys_way(runtime) -> None:
    with closed_port() as port:
        view = unchanged(ullage.Guard("m", base_url=f"http://127.0.0.1:{port}/v1", runtime=runtime))
        assert "gave no answer" in view.window.explain()


def test_a_hanging_server_is_waited_for_once() -> None:
    runtime = Runtime(transport=Transport(Timeouts(connect_s=0.5, read_s=0.2)))
    with FaultServer({"/*": hanging()}) as server:
        unchanged(ullage.Guard("m", base_url=server.base_url, runtime=runtime))
        assert len(server.requests) == 1


def test_a_server_that_was_loading_is_known_with_the_next_request(runtime) -> None:
    props = of_json({"default_generation_settings": {"n_ctx": WINDOW}, "total_slots": 1})
    with FaultServer({"/props": (loading(), loading(), props)}) as server:
        guard = ullage.Guard("m", base_url=server.base_url, runtime=runtime)
        unchanged(guard)
        assert guard.prepare(log_of(40)).compaction is not None


def test_without_model_and_window_all_is_sent_as_it_is(runtime) -> None:
    unchanged(ullage.Guard(runtime=runtime))


# --- summaries ------------------------------------------------------------------------------------


def told_of(summarizer: Any, runtime: Runtime, *, twin: bool) -> tuple[ullage.View, list[Event]]:
    told: list[Event] = []
    guard = ullage.Guard(
        MODEL, window=3000, summarizer=summarizer, runtime=runtime, on_event=told.append
    )
    history = log_of(40)
    view = asyncio.run(guard.aprepare(history)) if twin else guard.prepare(history)
    again = guard.prepare(history) if not twin else asyncio.run(guard.aprepare(history))
    assert again.messages == view.messages
    assert again.compaction is None
    return view, told


@pytest.mark.parametrize("twin", [False, True])
def test_a_summarizer_is_asked_once_and_its_text_stands_in_the_middle(runtime, twin) -> None:
    asked: list[ullage.SummaryRequest] = []

    def summarizer(request: ullage.SummaryRequest) -> str:
        asked.append(request)
        return "Goal: keep the log. Done: items 0 to 30."

    view, told = told_of(summarizer, runtime, twin=twin)
    assert len(asked) == 1
    assert "Record 0" in asked[0].quoted
    assert any("Done: items 0 to 30." in str(m["content"]) for m in view.messages)
    assert view.messages[:2] == opening()
    (made,) = of(events.Compacted, told)
    assert "summarise_middle" in made.checkpoint.strategy
    assert made.checkpoint.fallback_reason is None


def test_an_async_summarizer_is_awaited_by_the_async_twins(runtime) -> None:
    async def summarizer(request: ullage.SummaryRequest) -> str:
        await asyncio.sleep(0)
        return "Goal: keep the log."

    view, _ = told_of(summarizer, runtime, twin=True)
    assert any("Goal: keep the log." in str(m["content"]) for m in view.messages)


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


async def an_async_one(request: ullage.SummaryRequest) -> str:
    return "never heard"


@pytest.mark.parametrize("summarizer", [an_async_one, lambda _: Later()])
def test_an_async_summarizer_is_refused_by_a_sync_guard(runtime, summarizer) -> None:
    guard = ullage.Guard(MODEL, window=3000, summarizer=summarizer, runtime=runtime)
    with pytest.raises(ullage.ConfigurationError, match="async"):
        guard.prepare(log_of(40))
    assert runtime.checkpoints.all() == []


def fail(request: ullage.SummaryRequest) -> str:
    raise TimeoutError("no model there")


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(
    ("summarizer", "name"), [(fail, "TimeoutError"), (lambda _: 7, "TypeError")]
)
def test_a_failing_summarizer_is_told_and_the_summary_is_by_rule(
    runtime, summarizer, name, twin
) -> None:
    view, told = told_of(summarizer, runtime, twin=twin)
    assert name in of(events.Notice, told)[0].text
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.fallback_reason == "summariser_failed"
    assert view.compaction is not None
    assert view.compaction.reached


def test_without_a_summarizer_the_summary_is_by_rule_and_says_so(runtime) -> None:
    _, told = told_of(None, runtime, twin=False)
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.fallback_reason == "no_summariser"


# --- looking without touching ---------------------------------------------------------------------


def test_an_assessment_changes_nothing_and_tells_nobody(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime, on_event=told.append)
    found = guard.assess(log_of(20), tools=TOOLS)
    assert (found.available, found.window_tokens) == (True, 4000)
    over = guard.assess(log_of(80))
    assert (over.tier, over.available) == ("overflow", True)
    assert over.ratio is not None
    assert over.ratio > 1
    assert told == []
    assert runtime.checkpoints.all() == []
    guard.prepare(log_of(80))
    assert guard.assess(log_of(80)).tier in ("none", "advisory")


def test_a_guard_tells_its_window_and_who_said_it(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert guard.window() == asyncio.run(guard.awindow())
    assert guard.window().input_tokens == WINDOW
    assert tiny_server.root_url in guard.explain()


def test_off_gauges_and_checks_and_changes_nothing(runtime) -> None:
    guard = ullage.Guard(MODEL, window=5000, policy=ullage.Policy.off(), runtime=runtime)
    history = log_of(60)
    with pytest.raises(ullage.ContextTooLargeError):
        guard.prepare(history)
    view = guard.prepare(history[:102])
    assert same_objects(view.messages, history[:102])
    assert view.assessment.tier in ("warning", "critical")


def test_guards_of_different_policies_do_not_share_a_checkpoint(runtime) -> None:
    history = log_of(40)
    ladder = ullage.Guard(MODEL, window=3000, runtime=runtime).prepare(history)
    other = ullage.Guard(
        MODEL, window=3000, policy=ullage.Policy.advisory(), runtime=runtime
    ).prepare(history)
    assert ladder.compaction is not None
    assert other.compaction is not None
    assert other.prepared.replayed is None


def test_guards_of_different_keys_do_not_share_a_checkpoint(runtime) -> None:
    history = log_of(40)
    for key in ("sk-1", "sk-2"):
        view = ullage.Guard(MODEL, api_key=key, window=3000, runtime=runtime).prepare(history)
        assert view.prepared.replayed is None
    assert len(runtime.checkpoints.all()) == 2


def test_the_async_twin_prepares_the_same_request(tiny_server) -> None:
    history = log_of(40)
    views = []
    for twin in (False, True):
        guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=Runtime())
        options: dict[str, Any] = {"tools": TOOLS, "max_tokens": 100, "pins": [9]}
        if twin:
            views.append(asyncio.run(guard.aprepare(history, **options)))
        else:
            views.append(guard.prepare(history, **options))
    first, second = views
    assert first.kwargs == second.kwargs
    assert first.prepared.count == second.prepared.count
    assert first.prepared.checkpoint == second.prepared.checkpoint


# --- many at once ---------------------------------------------------------------------------------


def test_eight_threads_with_one_history_send_the_same_bytes(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    history = log_of(30)
    barrier = threading.Barrier(8)

    def prepare(_: int) -> list[Any]:
        barrier.wait()
        return guard.prepare(history, tools=TOOLS).messages

    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(prepare, range(8)))
    assert all(messages == sent[0] for messages in sent)
    assert len(runtime.checkpoints.all()) == 1


def test_eight_conversations_through_one_guard_do_not_mix(runtime, chat, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    barrier = threading.Barrier(8)

    def converse(who: int) -> list[int]:
        history = opening()
        history[1] = {"role": "user", "content": f"I am sailor {who}. Keep the log for me."}
        used = []
        barrier.wait()
        for n in range(8):
            for m in range(3):
                history.extend(look_up(3 * n + m))
            view = guard.prepare(history, max_tokens=16)
            assert f"I am sailor {who}." in view.messages[1]["content"]
            answer = chat(**view.kwargs)
            used.append(view.observe(answer).input_tokens or 0)
            history.append({"role": "assistant", "content": answer.choices[0].message.content})
            history.append({"role": "user", "content": f"Sailor {who} says: go on."})
        return used

    with ThreadPoolExecutor(8) as pool:
        for used in pool.map(converse, range(8)):
            assert len(used) == 8
            assert all(0 < tokens < WINDOW for tokens in used)

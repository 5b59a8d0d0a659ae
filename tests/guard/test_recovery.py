"""The guard's recovery: real overflows answered after all, and every other error left alone."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import openai
import pytest

import ullage
from tests.support.faults import FaultServer, of_json
from tests.voyage import TOOLS, WINDOW, Chat, Stubborn, immovable, log_of, of, opening, same_objects
from ullage import events
from ullage.core.guard.events import Event
from ullage.embedded import Server
from ullage.guard.driver import Pause
from ullage.runtime import Runtime
from ullage.sdk.errors import read_trouble

MODEL = "gpt-4o"


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def call_sync(guard: ullage.Guard, server: Server, messages: Any, **options: Any) -> Any:
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        sent: list[Any] = []

        def create(**kwargs: Any) -> Any:
            sent.append(kwargs)
            return client.chat.completions.create(**{**kwargs, "model": "tiny"})

        return guard.call(create, messages, **options), sent


def call_async(guard: ullage.Guard, server: Server, messages: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with openai.AsyncOpenAI(
            base_url=server.base_url, api_key="k", max_retries=0
        ) as client:
            sent: list[Any] = []

            async def create(**kwargs: Any) -> Any:
                sent.append(kwargs)
                return await client.chat.completions.create(**{**kwargs, "model": "tiny"})

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
    # What the server says lowers an unknown window at once, the operator's word the second time.
    found = guard.window()
    learned = (WINDOW, "refusal") if window is None else (window, "override")
    assert (found.input_tokens, found.source) == learned
    # From now on the limit is known: the next call is right at once.
    history += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "Go on."}]
    _, sent = call(guard, tiny_server, history, tools=TOOLS, max_tokens=32)
    assert len(sent) == 1
    assert len(of(events.Compacted, told)) == 1
    assert caplog.messages == []


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
    likely = "the prompt is too long"
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


class Fickle:
    """A provider that raises what it is given, one after the other, and then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.sent: list[dict[str, Any]] = []

    def __call__(self, **kwargs: Any) -> Any:
        self.sent.append(kwargs)
        if self.errors:
            raise self.errors.pop(0)
        return {"usage": {"prompt_tokens": 900, "completion_tokens": 1}}

    async def awaited(self, **kwargs: Any) -> Any:
        return self(**kwargs)


def ask(guard: ullage.Guard, fn: Fickle | Adding, messages: Any, *, twin: bool) -> Any:
    if twin:
        return asyncio.run(guard.acall(fn.awaited, messages))
    return guard.call(fn, messages)


@pytest.mark.parametrize("twin", [False, True])
def test_a_broken_connection_is_tried_once_more_after_a_pause_by_chance(runtime, twin) -> None:
    waited: list[float] = []

    async def later(seconds: float) -> None:
        waited.append(seconds)

    told: list[Event] = []
    pause = Pause(0.5, lambda: 0.25, waited.append, later)
    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append, pause=pause)
    fn, history = Fickle(ConnectionResetError("reset by peer")), log_of(3)
    assert ask(guard, fn, history, twin=twin)["usage"]
    assert waited == [0.125]
    assert all(same_objects(kwargs["messages"], history) for kwargs in fn.sent)
    assert "no answer (reset by peer)" in of(events.Notice, told)[0].text
    fn = Fickle(ConnectionResetError("one"), ConnectionResetError("two"))
    with pytest.raises(ConnectionResetError, match="two"):
        ask(guard, fn, history, twin=twin)
    assert len(waited) == len(fn.sent) == 2


def test_a_pause_is_short_and_is_waited_for_by_its_event_loop(runtime) -> None:
    assert 0 <= Pause().seconds() <= 0.5
    pause = Pause(longest_s=0.001)
    guard = ullage.Guard(MODEL, runtime=runtime, pause=pause)
    assert ask(guard, Fickle(BrokenPipeError()), log_of(3), twin=True)["usage"]
    assert ask(guard, Fickle(BrokenPipeError()), log_of(3), twin=False)["usage"]


@pytest.mark.parametrize("twin", [False, True])
def test_a_time_out_is_not_tried_again(runtime, twin) -> None:
    fn = Fickle(TimeoutError("stalled"))
    with pytest.raises(TimeoutError):
        ask(ullage.Guard(MODEL, runtime=runtime), fn, log_of(3), twin=twin)
    assert len(fn.sent) == 1


@pytest.mark.parametrize("twin", [False, True])
def test_a_broken_connection_in_a_window_that_nothing_can_empty_is_passed_through(
    runtime, twin
) -> None:
    told: list[Event] = []
    count = ullage.count(immovable(), model=MODEL)
    guard = ullage.Guard(
        MODEL, window=int(count.high / 0.97), runtime=runtime, on_event=told.append
    )
    fn = Fickle(ConnectionResetError("reset"))
    with pytest.raises(ConnectionResetError):
        ask(guard, fn, immovable(), twin=twin)
    assert len(fn.sent) == 1
    assert len(of(events.RecoveryExhausted, told)) == 1


@pytest.mark.parametrize("twin", [False, True])
def test_a_history_that_is_refused_as_malformed_passes_through_with_advice(runtime, twin) -> None:
    told: list[Event] = []
    error = RuntimeError(
        "Error code: 400 - messages.2: `tool_use` ids were found without `tool_result` blocks "
        "immediately after: toolu_1."
    )
    fn = Fickle(error)
    guard = ullage.Guard(MODEL, runtime=runtime, on_event=told.append)
    with pytest.raises(RuntimeError, match="tool_use"):
        ask(guard, fn, log_of(3), twin=twin)
    assert len(fn.sent) == 1
    assert "ullage validate" in of(events.Notice, told)[0].text


WORDING = "input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length"


class Adding:
    """A framework that asks for output without a word of it, of 3,000 tokens in all."""

    def __init__(self, output: int = 700) -> None:
        self.output = output
        self.sizes: list[int] = []
        self.refused = 0

    def __call__(self, *, messages: Any) -> Any:
        size = int(ullage.count(messages, model=MODEL))
        if size + self.output > 3_000:
            self.refused += 1
            raise RuntimeError(WORDING.format(size, self.output, 3_000))
        self.sizes.append(size)
        usage = {"prompt_tokens": size, "completion_tokens": 2, "total_tokens": size + 2}
        return {"choices": [{"message": {"role": "assistant", "content": "ok"}}], "usage": usage}

    async def awaited(self, *, messages: Any) -> Any:
        return self(messages=messages)


@pytest.mark.parametrize("twin", [False, True])
def test_output_that_a_framework_adds_is_learned_by_its_first_refusal(runtime, twin) -> None:
    told: list[Event] = []
    server = Adding()
    guard = ullage.Guard(MODEL, window=3_000, runtime=runtime, on_event=told.append)
    history: list[Any] = log_of(1)
    for turn in range(40):
        history += [{"role": "user", "content": f"turn {turn}: " + "and so on it goes. " * 12}]
        ask(guard, server, history, twin=twin)
        history += [{"role": "assistant", "content": f"done with {turn}"}]
    assert len(server.sizes) == 40
    assert server.refused == 1
    assert len(of(events.Compacted, told)) < 12
    runtime.forget()
    assert not runtime.outputs


def test_output_that_was_added_once_is_kept_free_for_an_hour() -> None:
    now = [1_000_000.0]
    guard = ullage.Guard(MODEL, window=3_000, runtime=Runtime(now=lambda: now[0]))
    history: list[Any] = []
    for turn in range(14):
        history += [{"role": "user", "content": f"turn {turn}: " + "and so on it goes. " * 19}]
        history += [{"role": "assistant", "content": f"done with {turn}"}]
    ask(guard, Adding(1_500), history[:-1], twin=False)
    assert guard.prepare(log_of(1)).request.reserve == 1_500
    assert guard.prepare(log_of(1), max_tokens=50).request.reserve == 0
    now[0] += 3_601
    assert guard.prepare(log_of(1)).request.reserve == 0


def test_output_that_a_program_told_is_kept_free_for_nobody_else(runtime) -> None:
    guard = ullage.Guard(MODEL, window=3_000, runtime=runtime)
    history = [*log_of(1), {"role": "user", "content": "and so on it goes. " * 200}]
    for reserve, kept in ((900, 0), (400, 900)):
        view = guard.prepare(history, reserve=reserve)
        size = view.prepared.count.tokens
        error = RuntimeError(WORDING.format(size, 900, size + 800))
        guard.port.retry(view, read_trouble(error))
        assert guard.prepare(history).request.reserve == kept


def test_a_server_of_ones_own_is_taken_to_insist_on_the_output_once_it_has_refused(runtime) -> None:
    guard = ullage.Guard("m", window=8_000, base_url="http://127.0.0.1:1/v1", runtime=runtime)
    history = [*log_of(1), {"role": "user", "content": "and so on it goes. " * 700}]
    view = guard.prepare(history, reserve=6_000)
    assert not view.request.reserves_all
    assert view.prepared.checkpoint is None
    error = RuntimeError(WORDING.format(view.prepared.count.tokens, 6_000, 8_000))
    guard.port.retry(view, read_trouble(error))
    assert guard.prepare(log_of(1), reserve=6_000).request.reserves_all
    runtime.hear_forgotten("", guard.port.driver.question.own_key, 0.0)
    assert not guard.prepare(log_of(1), reserve=6_000).request.reserves_all
    hosted = ullage.Guard("gpt-4o", runtime=runtime).prepare(log_of(1), reserve=6_000)
    assert hosted.request.reserves_all


@pytest.mark.parametrize("quote", ["{} + 2500 > 3000", "{} + 2,500 > 3,000"])
def test_a_quoted_refusal_teaches_no_output(runtime, quote: str) -> None:
    guard = ullage.Guard(MODEL, window=3_000, runtime=runtime)
    said = "input length and max_tokens exceed context limit: " + quote.format("1,200")
    history = [*log_of(9), {"role": "user", "content": f"What does this mean: {said}?"}]
    view = guard.prepare(history)
    guard.port.retry(view, read_trouble(RuntimeError(f"blocked because of '{said}'")))
    assert not runtime.outputs


VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: {}. This model's maximum context length "
    "is {} tokens and your request has {} input tokens ({} > {} - {})."
)


@pytest.mark.parametrize("wording", [VLLM, VLLM.replace(": {}.", " here ({}).")])
def test_a_refusal_that_names_no_output_is_read_by_what_the_program_told(runtime, wording) -> None:
    guard = ullage.Guard("m", window=8_000, base_url="http://127.0.0.1:1/v1", runtime=runtime)
    history = [*log_of(1), {"role": "user", "content": "and so on it goes. " * 500}]
    history += [{"role": "assistant", "content": "so it does"}, {"role": "user", "content": "on"}]
    view = guard.prepare(history, reserve=6_000)
    size = view.prepared.count.tokens
    assert view.prepared.checkpoint is None
    error = RuntimeError(wording.format(6_000, 8_000, size, 6_000, 8_000, size))
    again = guard.port.retry(view, read_trouble(error))
    assert again is not None
    assert again.prepared.count.high + 6_000 <= 8_000


@pytest.mark.parametrize("given", [-1, 2.5, "many", True])
def test_a_reserve_that_is_no_number_of_tokens_is_refused(runtime, given) -> None:
    guard = ullage.Guard(MODEL, runtime=runtime)
    with pytest.raises(ullage.ConfigurationError, match="reserve is a number of tokens from 0 on"):
        guard.prepare(log_of(1), reserve=given)


def test_a_listeners_fault_is_logged_and_costs_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("listener")

    guard = ullage.Guard("gpt-4o", window=10_000, on_event=broken, runtime=ullage.Runtime())
    answer = guard.call(
        lambda **_: {"usage": {"prompt_tokens": 9}}, [{"role": "user", "content": "x"}]
    )
    assert answer["usage"]["prompt_tokens"] == 9
    assert "on_event failed on ContextPressure" in caplog.text


def test_an_observed_refusal_teaches_its_limit() -> None:
    class Refusal(Exception):  # noqa: N818 - shaped like an SDK's
        status_code = 400
        body = '{"error": {"type": "exceed_context_size_error", "n_ctx": 4096}}'

    guard = ullage.Guard("gpt-4o", runtime=ullage.Runtime())
    view = guard.prepare([{"role": "user", "content": "w " * 5000}])
    assert view.observe(Refusal("too large")) == view.assessment
    assert guard.window().input_tokens == 4096
    view.observe(ValueError("something else"))
    assert guard.window().input_tokens == 4096


def test_an_observed_refusal_teaches_how_a_silent_server_counts() -> None:
    class Refusal(Exception):  # noqa: N818 - shaped like an SDK's
        status_code = 400
        body = (
            '{"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 5300, "n_ctx": 4096'
            "}}"
        )

    guard = ullage.Guard("strange", runtime=ullage.Runtime())
    view = guard.prepare([{"role": "user", "content": "word " * 5000}])
    assert view.prepared.count.basis == "estimate"
    view.observe(Refusal("too large"))
    next_count = guard.prepare([{"role": "user", "content": "word " * 3000}]).prepared.count
    assert next_count.basis == "calibrated"
    assert next_count.low <= 3180 <= next_count.high < 3180 * 1.2


def test_an_absurd_report_calibrates_nothing() -> None:
    runtime = ullage.Runtime()
    guard = ullage.Guard("strange", runtime=runtime)
    view = guard.prepare([{"role": "user", "content": "w " * 50}])
    view.observe({"usage": {"prompt_tokens": 90_000}})
    assert guard.prepare([{"role": "user", "content": "x"}]).prepared.count.basis == "estimate"


class Refusal(Exception):  # noqa: N818 - shaped like an SDK's
    """A refusal that says nothing, as Cerebras's: it may be about the size."""

    status_code = 400
    response = type("Response", (), {"status_code": 400, "text": "", "headers": {}})()


def send_by(face: str, guard: ullage.Guard, fn: Fickle, messages: Any) -> Any:
    """Send by one of the four ways; streams are read to their end."""

    async def stream_async() -> Any:
        async def events(**kwargs: Any) -> Any:
            fn(**kwargs)

            async def read() -> Any:
                yield {"choices": [{"delta": {"content": "ok"}}]}

            return read()

        return [event async for event in await guard.astream(events, messages)]

    def events(**kwargs: Any) -> Any:
        fn(**kwargs)
        return iter([{"choices": [{"delta": {"content": "ok"}}]}])

    match face:
        case "stream":
            return list(guard.stream(events, messages))
        case "astream":
            return asyncio.run(stream_async())
        case "acall":
            return asyncio.run(guard.acall(fn.awaited, messages))
        case _:
            return guard.call(fn, messages)


def half_full(messages: Any) -> int:
    """Return a window in tokens in which messages are under every threshold."""
    return int(ullage.count(messages, model=MODEL).high / 0.6)


FACES = ("call", "acall", "stream", "astream")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "second", [Refusal("no"), ValueError("the disk is full"), RuntimeError("prompt is too long")]
)
def test_a_recovery_that_did_not_help_is_taken_back(runtime, face, second) -> None:
    told: list[Event] = []
    history = log_of(15)
    guard = ullage.Guard(MODEL, window=half_full(history), runtime=runtime, on_event=told.append)
    fn = Fickle(Refusal("no"), second)
    with pytest.raises(type(second)):
        send_by(face, guard, fn, history)
    assert len(fn.sent[1]["messages"]) < len(history)
    assert "is taken back" in of(events.Notice, told)[-1].text
    send_by(face, guard, fn, history)
    assert same_objects(fn.sent[2]["messages"], history)


@pytest.mark.parametrize("face", FACES)
def test_a_recovery_that_helped_stays(runtime, face) -> None:
    history = log_of(15)
    guard = ullage.Guard(MODEL, window=half_full(history), runtime=runtime)
    fn = Fickle(Refusal("no"))
    send_by(face, guard, fn, history)
    send_by(face, guard, fn, history)
    assert fn.sent[2]["messages"] == fn.sent[1]["messages"]
    assert len(fn.sent[2]["messages"]) < len(history)


def test_what_pressure_asked_for_stays_where_its_request_fails(runtime) -> None:
    history = log_of(55)
    guard = ullage.Guard(MODEL, window=7_000, runtime=runtime)
    fn = Fickle(ConnectionResetError("one"), ConnectionResetError("two"))
    with pytest.raises(ConnectionResetError):
        guard.call(fn, history)
    guard.call(fn, history)
    assert fn.sent[2]["messages"] == fn.sent[0]["messages"]
    assert len(fn.sent[0]["messages"]) < len(history)

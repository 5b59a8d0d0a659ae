"""Models that are objects of the caller's: their pieces, their failures, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import openai
import pytest

import ullage
from tests.agent.acting import QUICK, agent, chunk, data, scripted, types, usage
from tests.agent.acting import said as answered
from ullage.agent import Agent, Call, Live, Reply, Session
from ullage.agent.calling import StreamCaller
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.embedded import Server
from ullage.providers import CallFailed, Limits, Provider, read_provider


class Scripted:
    """Play answers, one after the other; what is left over shows in `left`."""

    model = "scripted"
    window = 8_000

    def __init__(self, *answers: Sequence[object]) -> None:
        self.left = list(answers)
        self.asked: list[Mapping[str, Any]] = []

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        self.asked.append(request)
        for piece in self.left.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Silent:
    """Begin an answer and say no more; `closed` tells that the stream was."""

    model = "silent"
    window = 8_000

    def __init__(self) -> None:
        self.closed = False
        self.began = asyncio.Event()

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        del request
        try:
            yield "Seven"
            self.began.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True


def test_texts_are_shown_as_they_come_and_are_the_answer(session: Session):
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    model = Scripted(["Seven ", "casks."])
    done = Agent(model).run(session, "What is in the cellar?")
    assert (done.ok, done.text) == (True, "Seven casks.")
    assert [e.data["text"] for e in live if e.type == "text_delta"] == ["Seven ", "casks."]
    assert types(session)[-1] == "turn_completed"
    assert model.asked[0]["model"] == "scripted"
    assert model.asked[0]["messages"][-1]["content"] == "What is in the cellar?"
    assert model.left == []


def test_a_reply_carries_calls_and_usage(session: Session):
    plan = Call("", "plan", '{"steps": [{"text": "look"}]}')
    model = Scripted(
        [Reply("I plan.", calls=(plan, plan), stop="calls", usage=Usage(900, output=7))],
        ["Done ", Reply("Done it.")],
    )
    live: list[Live] = []
    session.hear(lambda event: live.append(event) if isinstance(event, Live) else None)
    done = Agent(model).run(session, "Plan.")
    assert (done.text, done.usage) == ("Done it.", Usage(900, output=7))
    assert len({call["call_id"] for call in data(session, "tool_call")}) == 2
    assert [e.data["text"] for e in live if e.type == "text_delta"] == ["I plan.", "Done "]
    assert data(session, "provider_usage")[0]["input"] == 900


def test_events_of_the_dialect_are_read_as_a_server_s_are(session: Session):
    model = Scripted([chunk({"content": "Sev"}), chunk({"content": "en."}, "stop"), usage(50)])
    done = Agent(model).run(session, "How many?")
    assert (done.text, done.usage) == ("Seven.", Usage(50, output=5))


def test_the_same_answers_leave_the_same_log_as_over_http(session: Session):
    with scripted(answered("Seven casks.")) as server:
        agent(server).run(session, "How many?")
    other = Session.create(ullage.open_log("memory:"), "s")
    pieces = [chunk({"content": "Seven "}), chunk({"content": "casks."}, "stop"), usage(50)]
    Agent(Scripted(pieces), window=8_000).run(other, "How many?")
    assert types(other) == types(session)
    assert data(other, "assistant_message")[0]["text"] == "Seven casks."


def test_an_sdk_is_a_model_and_its_server_is_asked_for_the_window(
    session: Session, tiny_server: Server
):
    class Sdk:
        model = "tiny"
        base_url = tiny_server.base_url

        async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
            async with openai.AsyncOpenAI(base_url=self.base_url, api_key="none") as client:
                async for event in await client.chat.completions.create(**request):
                    yield event

    agent = Agent(Sdk(), executor=None)
    done = agent.run(session, "hello")
    assert done.ok
    assert done.usage.prompt_tokens > 100
    assert asyncio.run(agent.awindow()).input_tokens == 2_048


def test_a_turn_and_a_switch_take_such_a_model(session: Session):
    first, second = Scripted(["one"]), Scripted(["two"], ["three"])
    agent = Agent(first)
    assert agent.run(session, "1").text == "one"
    assert agent.run(session, "2", provider=second).text == "two"
    asyncio.run(agent.aswitch(session, second))
    assert agent.run(session, "3").text == "three"
    assert repr(agent.provider) == "Provider('scripted', Scripted, 'openai_chat')"
    assert session.fold.served["needs"] == ["program"]


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([3], "yielded 3: a piece is a text"),
        ([Reply("a"), "b"], "yielded 'b' after a Reply"),
        (["a", {"choices": []}], "yielded texts and events"),
        ([{"error": {"message": "no memory"}}], "no memory"),
        ([ValueError("what")], "failed: ValueError: what"),
    ],
)
def test_what_cannot_be_an_answer_fails_the_turn(
    session: Session, pieces: list[object], reason: str
):
    done = Agent(Scripted(pieces)).run(session, "hello")
    assert done.reason == "provider_error"
    assert reason in done.error
    assert "scripted (Scripted)" in done.error
    assert types(session)[-1] == "turn_failed"


def test_a_stream_that_breaks_is_asked_again(session: Session):
    broken = [chunk({"content": "Sev"})]
    model = Scripted(broken, [ConnectionResetError("gone")], ["Seven."])
    done = Agent(model).run(session, "How many?")
    assert done.text == "Seven."
    assert model.left == []
    assert data(session, "assistant_message")[0] == {
        "text": "Sev",
        "model": "scripted",
        "round": 1,
        "partial": True,
    }


def test_a_refusal_in_words_is_recovered_from(session: Session):
    words = "This model's maximum context length is 2000 tokens, you requested 2500 tokens"
    model = Scripted([ValueError(words)], ["Seven."])
    done = Agent(model, window=None).run(session, "How many? " + "casks " * 1_500)
    assert (done.ok, done.reason) == (False, "context_overflow")
    assert "maximum context length" in done.error


def test_nothing_at_all_is_no_answer(session: Session):
    assert Agent(Scripted([])).run(session, "hello").reason == "no_answer"


class Endless:
    """Say one word after the other and never come to an end."""

    model = "endless"
    window = 8_000

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        del request
        while True:
            yield "word "
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("limits", "said", "stalled"),
    [
        (Limits(answer_s=0.1), "took more than 0.1 s for one answer", True),
        (Limits(answer_bytes=100), "answered with more than 100 characters", False),
    ],
)
def test_an_answer_without_an_end_is_broken_off(limits: Limits, said: str, *, stalled: bool):
    provider = Provider("m", "", source=Endless(), limits=limits)
    with pytest.raises(CallFailed, match=said) as failed:
        asyncio.run(StreamCaller(provider).send({"messages": []}, lambda _: None))
    assert failed.value.partial.startswith("word word")
    assert failed.value.stalled is stalled


def test_an_answer_that_asks_for_too_many_tools_runs_none():
    reply = Reply("", calls=tuple(Call(f"c{n}", "read", "{}") for n in range(4)))
    provider = Provider("m", "", source=Scripted([reply]), limits=Limits(most_calls=3))
    with pytest.raises(CallFailed, match="4 calls of tools at once, and 3 are the most"):
        asyncio.run(StreamCaller(provider).send({"messages": []}, lambda _: None))


def test_silence_is_a_stall_and_a_timeout_of_its_own_is_none():
    async def run() -> None:
        silent = Silent()
        record = read_provider(silent)
        provider = Provider(record.model, "", source=silent, limits=QUICK)
        fast = Provider(record.model, "", source=silent, limits=type(QUICK)(stall_s=0.01))
        with pytest.raises(CallFailed, match=r"silent for 0\.01 s") as stalled:
            await StreamCaller(fast).send({"messages": []}, lambda _: None)
        assert (stalled.value.stalled, stalled.value.partial) == (True, "Seven")
        assert silent.closed
        provider = Provider("m", "", source=Scripted([TimeoutError("mine")]), limits=QUICK)
        with pytest.raises(CallFailed, match="TimeoutError: mine") as failed:
            await StreamCaller(provider).send({"messages": []}, lambda _: None)
        assert not failed.value.stalled

    asyncio.run(run())


def test_an_interrupt_closes_the_stream_and_keeps_what_had_come(session: Session):
    async def run() -> None:
        silent = Silent()
        task = Agent(silent).start(session, "How many?")
        await silent.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert silent.closed
        assert types(session)[-2:] == ["assistant_message", "turn_interrupted"]

    asyncio.run(run())


def test_an_iterator_without_a_close_is_taken():
    async def run() -> None:
        class Pieces:
            def __init__(self) -> None:
                self.left = ["a", "b"]

            def __aiter__(self) -> Pieces:
                return self

            async def __anext__(self) -> object:
                if not self.left:
                    raise StopAsyncIteration
                return self.left.pop(0)

        class Plain:
            model = "plain"
            stream = staticmethod(lambda _: Pieces())

        caller = StreamCaller(read_provider(Plain()))
        assert (await caller.send({"messages": []}, lambda _: None)).text == "ab"

    asyncio.run(run())


# ── what is refused when an agent is made ───────────────────────────────────────────────────────


class Lacking:
    model: object = "m"

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[object]:
        yield request


def lacking(**fields: object) -> object:
    made = Lacking()
    vars(made).update(fields)
    return made


async def coroutine(request: object) -> object:
    return request


def blocking(request: object) -> Any:
    yield request


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda: 3, "expected an ullage.Provider, or an object with a model"),
        (lambda: Lacking, "the class Lacking: give an object of it"),
        (lambda: lacking(stream=None), "and async def stream"),
        (lambda: lacking(stream=coroutine), "Lacking.stream returns a coroutine"),
        (lambda: lacking(stream=blocking), "Lacking.stream returns a blocking iterator"),
        (lambda: lacking(stream=lambda: None), "takes no single request"),
        (lambda: lacking(model=""), "Lacking.model is ''"),
        (lambda: lacking(model=3), "Lacking.model is 3"),
        (lambda: lacking(dialect=3), "Lacking.dialect is 3, not str"),
        (lambda: lacking(dialect="morse"), "morse"),
        (lambda: lacking(base_url="ftp://x"), "base_url that begins with http"),
        (lambda: lacking(options=[1]), "Lacking.options is"),
        (lambda: lacking(window=True), "Lacking.window is True, not int"),
        (lambda: lacking(window=-5), "the window of m is -5: give a number of tokens"),
    ],
)
def test_what_is_no_provider_is_refused_when_the_agent_is_made(
    given: Callable[[], Any], reason: str
):
    with pytest.raises(ConfigurationError, match=reason.replace("(", r"\(")):
        Agent(given())


def test_a_turn_refuses_what_is_no_provider(session: Session):
    options: Any = {"provider": "gpt"}
    with pytest.raises(ConfigurationError, match=r"expected an ullage\.Provider"):
        Agent(Scripted([])).run(session, "hello", **options)


def test_a_method_written_in_c_is_taken():
    assert read_provider(lacking(stream=dict)).model == "m"  # type: ignore[arg-type]  # by shape

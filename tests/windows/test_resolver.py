"""Resolution over time: whom to believe, how long, and never to ask twice at once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    drip,
    dropped,
    hanging,
    loading,
    of_json,
)
from tests.support.waiting import eventually
from tests.windows.events import refuse
from ullage.core.errors import ConfigurationError, ContextWindowUnknown
from ullage.core.tokens.window import Window
from ullage.transport import HttpRequest, Timeouts, Transport
from ullage.transport import HttpResponse as Got
from ullage.windows import Question, Resolver, ResolverOptions
from ullage.windows import resolver as room
from ullage.windows.flights import MOST
from ullage.windows.ledger import HOSTED_S, LOCAL_S
from ullage.windows.resolver import AWAY_S, LOCAL, NEGATIVE_S, POSITIVE_S, _note_said

SHORT = Timeouts(connect_s=5.0, read_s=1.0)
HOUR = 3600.0


def props(n_ctx: int) -> Answer:
    return of_json({"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": 1})


def slow(n_ctx: int) -> Answer:
    """Answer in pieces, so that those who come meanwhile find the probe under way."""
    body = props(n_ctx).blocks[0]
    return drip(body, block=len(body) // 4, pause_s=0.03)


def probes(server: FaultServer) -> int:
    return sum(request.path == "/props" for request in server.requests)


class Nobody(Transport):
    """A transport that must not be used."""

    def ask(self, what: HttpRequest) -> Got:
        raise AssertionError(f"asked {what.url}")

    async def aask(self, what: HttpRequest) -> Got:
        raise AssertionError(f"asked {what.url}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000.0)


@pytest.fixture
def resolver(clock: FakeClock) -> Resolver:
    return Resolver(Transport(SHORT), clock)


# --- the question ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [0, -1, True, 2048.0, "2048"])
def test_a_senseless_override_is_refused(tokens: Any) -> None:
    with pytest.raises(ConfigurationError, match="positive number of tokens"):
        Question("m", override=tokens)


@pytest.mark.parametrize(
    "url",
    ["", "h:1/v1", "/v1", "ftp://h/v1", "http://", "http:///v1", "http://[::1", "http://h:99999",
     "http://h:port/v1", 7],
)  # fmt: skip
def test_a_base_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="no http or https URL"):
        Question("m", url)


def test_a_key_is_in_no_representation_and_no_scope() -> None:
    question = Question("m", "http://h:1/v1", "sk-secret")
    assert "sk-secret" not in repr(question)
    assert "sk-secret" not in question.scope
    assert question.scope != Question("m", "http://h:1/v1").scope
    assert question.scope == Question("n", "http://h:1/", "sk-secret").scope


@pytest.mark.parametrize("host", ["api.openai.com", "API.OPENAI.COM", "api.deepseek.com"])
def test_a_host_that_publishes_nothing_is_not_asked(clock, host) -> None:
    resolver = Resolver(Nobody(), clock)
    question = Question("gpt-4", f"https://{host}/v1")
    bound = 8192 if "openai" in host.lower() else None
    assert resolver.window(question).input_tokens == bound
    assert asyncio.run(resolver.awindow(question)).input_tokens == bound
    assert not resolver.window(Question("unheard-of", f"https://{host}/v1")).known


def test_without_a_base_url_nobody_is_asked(clock) -> None:
    assert not Resolver(Nobody(), clock).window(Question("unheard-of")).known


# --- override, table, unknown ---------------------------------------------------------------------


def test_unknown_is_a_value_and_only_a_demand_for_tokens_raises(resolver) -> None:
    found = resolver.window(Question("unheard-of"))
    assert (found.known, found.input_tokens, found.source) == (False, None, None)
    assert "context_window_unknown" in found.explain()
    with pytest.raises(ContextWindowUnknown, match="unheard-of") as caught:
        found.tokens()
    assert caught.value.code == "context_window_unknown"


def test_an_override_beats_the_table_and_stays_visible_beside_it(resolver) -> None:
    for tokens in (500, 6_000, 1_000_000):
        found = resolver.window(Question("gpt-4", override=tokens))
        assert (found.input_tokens, found.total_tokens) == (tokens, tokens)
        assert found.source == "override"
        assert "8,192 tokens, total, from the bundled table" in found.explain()
    assert resolver.window(Question("unheard-of", override=500)).input_tokens == 500


def test_an_override_starts_no_probe(resolver) -> None:
    with FaultServer({"/props": props(2048)}) as server:
        question = Question("m", server.base_url, override=9000)
        assert resolver.window(question).input_tokens == 9000
        assert asyncio.run(resolver.awindow(question)).input_tokens == 9000
        assert server.requests == ()


def test_a_known_smaller_allocation_caps_an_override_with_one_warning(resolver, caplog) -> None:
    with FaultServer({"/props": props(2048)}) as server:
        resolver.window(Question("m", server.base_url))
        for _ in range(3):
            found = resolver.window(Question("m", server.base_url, override=9000))
            assert (found.input_tokens, found.kind) == (2048, "allocated")
        assert resolver.window(Question("m", server.base_url, override=1000)).input_tokens == 1000
    (line,) = caplog.messages
    assert "9,000" in line
    assert "2,048" in line


def test_the_probe_beats_the_table_in_both_directions(clock) -> None:
    # At a server of one's own the table holds for a model whose provider the operator names.
    resolver = Resolver(
        Transport(SHORT), clock, ResolverOptions(base_models={"gpt-4": "openai/gpt-4"})
    )
    for n_ctx in (2_048, 65_536):
        with FaultServer({"/props": props(n_ctx)}) as server:
            found = resolver.window(Question("gpt-4", server.base_url))
            assert (found.input_tokens, found.source) == (n_ctx, "probe")
            assert "8,192 tokens, total, from the bundled table" in found.explain()


# --- how long an answer holds ---------------------------------------------------------------------


def test_a_positive_answer_holds_an_hour(resolver, clock) -> None:
    with FaultServer({"/props": (props(2048), props(4096))}) as server:
        question = Question("m", server.base_url)
        assert resolver.window(question).input_tokens == 2048
        clock.advance(POSITIVE_S - 1)
        assert resolver.window(question).input_tokens == 2048
        assert probes(server) == 1
        clock.advance(1)
        assert resolver.window(question).input_tokens == 4096
        assert probes(server) == 2
    assert POSITIVE_S == HOUR


def test_a_server_in_doubt_is_asked_again_and_others_are_not(resolver) -> None:
    with (
        FaultServer({"/props": (props(2048), props(4096), props(8192))}) as server,
        FaultServer({"/props": props(1024)}) as other,
    ):
        questions = [Question("m", server.base_url, key) for key in ("a", "b")]
        beside = Question("m", other.base_url)
        before = [resolver.window(each).input_tokens for each in (*questions, beside)]
        assert before == [2048, 4096, 1024]
        assert resolver.server(questions[0]) == "llama.cpp"
        resolver.doubt(f"{server.root_url}/v1")
        assert resolver.server(questions[0]) == "llama.cpp"
        after = [resolver.window(each).input_tokens for each in (*questions, beside)]
        assert after == [8192, 8192, 1024]
        assert (probes(server), probes(other)) == (4, 1)
        resolver.doubt()
        assert [resolver.window(each).input_tokens for each in (questions[0], beside)] == [
            8192,
            1024,
        ]
        assert (probes(server), probes(other)) == (5, 2)


def test_what_a_server_told_holds_while_it_gives_no_answer(resolver, clock) -> None:
    with FaultServer({"/props": (props(2048), dropped(), props(4096))}) as server:
        question = Question("m", server.base_url)
        assert resolver.window(question).input_tokens == 2048
        resolver.doubt(server.base_url)
        assert resolver.window(question).input_tokens == 2048
        resolver.doubt(server.base_url)  # it was asked just now
        asked = probes(server)
        assert resolver.window(question).input_tokens == 2048
        assert probes(server) == asked
        resolver.doubt()  # somebody wants all to be asked
        assert resolver.window(question).input_tokens == 4096
        assert probes(server) > asked


def test_a_server_that_gave_no_answer_is_asked_again_soon(resolver, clock) -> None:
    with FaultServer({"/props": (props(2048), dropped(), props(4096))}) as server:
        question = Question("m", server.base_url)
        assert resolver.window(question).input_tokens == 2048
        resolver.doubt(server.base_url)
        assert resolver.window(question).input_tokens == 2048
        clock.advance(AWAY_S)
        assert resolver.window(question).input_tokens == 4096


def test_a_failure_holds_five_minutes_and_warns_once_each_time(resolver, clock, caplog) -> None:
    with FaultServer({"/props": (Answer(404), props(2048))}) as server:
        question = Question("m", server.base_url)
        for _ in range(3):
            assert not resolver.window(question).known
        assert resolver.window(question).warnings == (caplog.messages[0],)
        clock.advance(NEGATIVE_S - 1)
        assert not resolver.window(question).known
        assert probes(server) == 1
        clock.advance(1)
        assert resolver.window(question).input_tokens == 2048
    assert NEGATIVE_S == 300
    assert len(caplog.messages) == 1


def test_a_server_that_loads_is_asked_again_at_once(resolver, caplog) -> None:
    with FaultServer({"/props": (loading(), loading(), props(2048))}) as server:
        question = Question("m", server.base_url)
        for _ in range(2):
            waiting = resolver.window(question)
            assert not waiting.known
            assert "still loading" in waiting.warnings[0]
        assert asyncio.run(resolver.awindow(question)).input_tokens == 2048
        assert resolver.window(question).warnings == ()
    assert len(caplog.messages) == 1


def test_forgetting_asks_again_and_drops_ceilings(resolver) -> None:
    with FaultServer({"/props": props(2048)}) as server:
        question = Question("m", server.base_url)
        resolver.window(question)
        refuse(resolver, question, 1000)
        resolver.forget()
        assert resolver.window(question).input_tokens == 2048
        assert probes(server) == 2


# --- repeated refusals ----------------------------------------------------------------------------


def test_a_repeated_refusal_only_lowers(resolver) -> None:
    with FaultServer({"/props": props(2048)}) as server:
        question = Question("m", server.base_url)
        refuse(resolver, question, 3000)
        assert resolver.window(question).source == "probe"
        refuse(resolver, question, 1500)
        refuse(resolver, question, 1800)
        found = resolver.window(question)
        assert (found.input_tokens, found.source) == (1500, "refusal")
        assert found.proven
        assert "2,048 tokens, allocated" in found.explain()


def test_a_repeated_refusal_caps_an_override_and_the_table(resolver) -> None:
    refuse(resolver, Question("gpt-4"), 6000)
    assert resolver.window(Question("gpt-4")).input_tokens == 6000
    assert resolver.window(Question("gpt-4", override=7000)).input_tokens == 6000
    assert resolver.window(Question("gpt-4", override=5000)).input_tokens == 5000


def test_where_nothing_is_known_a_named_limit_becomes_the_window(resolver) -> None:
    question = Question("unheard-of")
    refuse(resolver, question, 32_768)
    assert (resolver.window(question).input_tokens, resolver.window(question).source) == (
        32_768,
        "refusal",
    )


def test_a_repeated_refusal_holds_for_its_endpoint_model_and_key_only(resolver) -> None:
    here = Question("m", "https://api.openai.com/v1", "sk-1")
    refuse(resolver, here, 5000)
    assert resolver.window(here).input_tokens == 5000
    for other in (
        Question("n", here.base_url, here.api_key),
        Question("m", "https://api.groq.com/v1", here.api_key),
        Question("m", here.base_url, "sk-2"),
        Question("m", here.base_url),
        Question("m"),
    ):
        assert not resolver.window(other).known, other


@pytest.mark.parametrize(
    ("base_url", "seconds", "then"),
    [
        ("https://api.openai.com/v1", HOSTED_S, 8192),
        (None, HOSTED_S, 8192),
        ("http://127.0.0.1:{port}/v1", LOCAL_S, None),
    ],
)
def test_a_repeated_refusal_expires(resolver, clock, base_url, seconds, then) -> None:
    with closed_port() as port:
        question = Question("gpt-4", base_url and base_url.format(port=port))
        refuse(resolver, question, 5000)
        clock.advance(seconds - 1)
        assert resolver.window(question).input_tokens == 5000
        clock.advance(1)
        assert resolver.window(question).input_tokens == then
        refuse(resolver, question, 6000)
        assert resolver.window(question).input_tokens == 6000
    assert (LOCAL_S, HOSTED_S) == (24 * HOUR, 30 * 24 * HOUR)


def test_an_overflow_makes_the_server_be_asked_again(resolver) -> None:
    with FaultServer({"/props": (props(4096), props(1024))}) as server:
        question = Question("m", server.base_url)
        assert resolver.window(question).input_tokens == 4096
        refuse(resolver, question, 2048)
        assert resolver.window(question).input_tokens == 1024


def test_what_learned_names_the_endpoint_without_its_password(resolver) -> None:
    question = Question("m", "http://me:geheim@127.0.0.1:1/v1", override=9000)
    refuse(resolver, question, 2048)
    explained = resolver.window(question).explain()
    assert "127.0.0.1:1" in explained
    assert "geheim" not in explained


def test_what_was_said_of_many_models_is_forgotten_before_it_grows_without_bound() -> None:
    told: dict[str, str] = {}
    for n in range(MOST + 1):
        _note_said(told, f"k{n}", "said")
    assert told == {f"k{MOST}": "said"}


# --- many at once ---------------------------------------------------------------------------------


def test_threads_that_ask_at_once_share_one_probe(resolver) -> None:
    barrier = threading.Barrier(8)
    with FaultServer({"/props": slow(2048)}) as server:

        def look(_: int) -> int | None:
            barrier.wait()
            found: int | None = resolver.window(Question("m", server.base_url)).input_tokens
            return found

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(look, range(8))) == [2048] * 8
        assert probes(server) == 1


def test_coroutines_that_ask_at_once_share_one_probe(resolver) -> None:
    with FaultServer({"/props": slow(2048)}) as server:
        question = Question("m", server.base_url)

        async def all_at_once() -> list[int | None]:
            found = await asyncio.gather(*(resolver.awindow(question) for _ in range(8)))
            return [window.input_tokens for window in found]

        assert asyncio.run(all_at_once()) == [2048] * 8
        assert probes(server) == 1


def test_loops_in_several_threads_share_one_probe(resolver) -> None:
    barrier = threading.Barrier(4)
    with FaultServer({"/props": slow(2048)}) as server:

        def look(_: int) -> int | None:
            barrier.wait()
            question = Question("m", server.base_url)
            found: int | None = asyncio.run(resolver.awindow(question)).input_tokens
            return found

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(look, range(4))) == [2048] * 4
        assert probes(server) == 1


@pytest.mark.parametrize("awaited", [True, False])
def test_a_server_that_swallows_questions_is_remembered_as_one_that_says_nothing(
    clock, monkeypatch, awaited: bool
) -> None:
    monkeypatch.setattr(room, "ASKING_S", 0.4)
    resolver = Resolver(Transport(Timeouts(1, 60 if awaited else 0.3)), clock)
    paths = (
        "/props",
        "/api/version",
        "/api/show",
        "/v1/models",
        "/health",
        "/version",
        "/get_server_info",
    )
    with FaultServer({path: hanging() for path in paths}) as server:
        question = Question("m", server.base_url)

        def look() -> Window:
            return asyncio.run(resolver.awindow(question)) if awaited else resolver.window(question)

        assert look().input_tokens is None
        asked = len(server.requests)
        assert look().input_tokens is None
        assert len(server.requests) == asked


def test_one_who_stops_waiting_does_not_stop_the_others(clock) -> None:
    resolver = Resolver(Transport(), clock)
    with FaultServer({"/props": (hanging(), props(2048))}) as server:
        question = Question("m", server.base_url)

        async def first_leaves() -> int | None:
            leader = asyncio.create_task(resolver.awindow(question))
            await asyncio.to_thread(eventually, lambda: probes(server) == 1)
            followers = [asyncio.create_task(resolver.awindow(question)) for _ in range(3)]
            await asyncio.wait(followers, timeout=0)
            followers[0].cancel()
            leader.cancel()
            await asyncio.gather(leader, followers[0], return_exceptions=True)
            assert leader.cancelled()
            assert followers[0].cancelled()
            found = await asyncio.gather(*followers[1:])
            return found[0].input_tokens

        assert asyncio.run(first_leaves()) == 2048
        assert probes(server) == 2


def test_different_models_of_one_server_do_not_share_an_answer(resolver) -> None:
    with FaultServer({"/props": (props(2048), props(4096))}) as server:
        assert resolver.window(Question("a", server.base_url)).input_tokens == 2048
        assert resolver.window(Question("b", server.base_url)).input_tokens == 4096


# --- what else it tells ---------------------------------------------------------------------------


def test_where_a_server_counts_is_known_once_it_was_recognised(resolver) -> None:
    with FaultServer({"/props": props(2048)}) as server:
        question = Question("m", server.base_url)
        assert resolver.counts_at(question) is None
        resolver.window(question)
        assert resolver.counts_at(question) == ("llama.cpp", server.root_url)
    assert resolver.counts_at(Question("m")) is None


@pytest.mark.parametrize("kind", sorted(LOCAL))
def test_a_kind_of_local_server_is_a_hint_and_no_error(resolver, kind) -> None:
    assert not resolver.window(Question("qwen3:8b", provider=kind)).known
    assert resolver.models(Question(None, provider=kind)) == resolver.models(Question())


def test_a_provider_that_counts_is_known_by_its_host_and_not_asked_offline(resolver) -> None:
    claude = Question("claude-sonnet-4", "https://api.anthropic.com/v1")
    assert resolver.counts_at(claude) == ("anthropic", "https://api.anthropic.com")
    offline = Resolver(Transport(), lambda: 0.0, ResolverOptions(offline=True))
    assert offline.counts_at(claude) is None


def test_a_server_that_counts_nothing_is_no_place_to_ask(resolver) -> None:
    card = {"id": "m", "object": "model", "max_model_len": 4096}
    with FaultServer({"/v1/models": of_json({"object": "list", "data": [card]})}) as server:
        question = Question("m", server.base_url)
        resolver.window(question)
        assert resolver.counts_at(question) is None


def test_vllm_counts_at_its_root(resolver) -> None:
    card = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}
    with FaultServer({"/v1/models": of_json({"object": "list", "data": [card]})}) as server:
        question = Question("m", server.base_url)
        resolver.window(question)
        assert resolver.counts_at(question) == ("vllm", server.root_url)


def test_the_table_is_listed_with_a_window_each(resolver) -> None:
    listed = dict(resolver.models(Question()))
    assert listed["gpt-4"].input_tokens == 8192
    assert all(window.known and window.model == model for model, window in listed.items())

"""The llama.cpp probe: against the real server, recorded routers, and every broken answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.faults import (
    Answer,
    FaultServer,
    closed_port,
    hanging,
    html,
    loading,
    of_json,
)
from tests.support.fixtures import StartServer
from tests.support.recording import Recording
from tests.windows.probes.asking import NO_NUMBERS, SHORT, asked
from ullage.core.tokens.window import Window
from ullage.embedded import Launch, Server
from ullage.transport import Transport
from ullage.windows import Question, Resolver
from ullage.windows.probes import root

RECORDINGS = Path(__file__).parents[2] / "recordings"
TRAINED = 131_072


def fresh() -> Resolver:
    return Resolver(Transport(SHORT), FakeClock(1.0))


def sync(question: Question) -> Window:
    return fresh().window(question)


def awaited(question: Question) -> Window:
    return asyncio.run(fresh().awindow(question))


@pytest.fixture(params=[sync, awaited])
def window(request: pytest.FixtureRequest) -> Callable[[Question], Window]:
    """Resolve with a resolver that has asked nobody yet, in both ways."""
    resolve: Callable[[Question], Window] = request.param
    return resolve


def recorded(name: str) -> FaultServer:
    """Play a recording; a router gives one list at both paths, though not all recorded both."""
    routes = Recording.load(RECORDINGS / f"{name}.json").routes()
    return FaultServer({"GET /v1/models": routes["GET /models"], **routes})


# --- the real server ------------------------------------------------------------------------------


def test_the_launched_window_is_read_and_not_the_trained_one(window, tiny_server: Server) -> None:
    found = window(Question("tiny", tiny_server.base_url))
    assert (found.input_tokens, found.total_tokens) == (2048, 2048)
    assert (found.kind, found.source, found.confidence) == ("allocated", "probe", 1.0)
    assert [(c.kind, c.tokens) for c in found.claims] == [("allocated", 2048), ("trained", TRAINED)]
    assert found.proven
    assert "131,072 tokens, trained" in found.explain()


@pytest.mark.parametrize("unified", [False, True])
def test_with_four_slots_one_slots_window_is_read_and_trusted_less(
    window, llama_server: StartServer, unified
) -> None:
    server = llama_server(Launch(window=4096, slots=4, unified_pool=unified))
    found = window(Question("tiny", server.base_url))
    assert found.input_tokens == (4096 if unified else 1024)
    assert found.kind == "allocated"
    assert 0 < found.confidence < 1.0
    assert "4 slots" in found.explain()


def test_the_model_name_does_not_matter_to_a_plain_server(window, tiny_server: Server) -> None:
    for model in (None, "gpt-4", "no such model"):
        assert window(Question(model, tiny_server.base_url)).input_tokens == 2048


def test_a_key_is_used_and_a_wrong_one_is_an_honest_unknown(
    window, llama_server: StartServer
) -> None:
    server = llama_server(Launch(window=512, api_key="sk-tiny"))
    assert window(Question("tiny", server.base_url, "sk-tiny")).input_tokens == 512
    refused = window(Question("tiny", server.base_url, "sk-wrong"))
    assert not refused.known
    assert "401" in refused.warnings[0]
    assert "sk-wrong" not in str(refused)


# --- recorded answers -----------------------------------------------------------------------------


def test_a_recorded_plain_server_tells_its_launched_window(window) -> None:
    with recorded("plain") as server:
        found = window(Question("smollm2", server.base_url))
        assert asked(server) == ["/v1/models", "/props"]
    assert [(c.kind, c.tokens) for c in found.claims] == [("allocated", 2048), ("trained", 8192)]
    assert found.input_tokens == 2048


def test_a_router_is_asked_again_with_the_model_and_without_loading_it(window) -> None:
    with recorded("router-loaded") as server:
        found = window(Question("qwen0.5b", server.base_url))
        assert asked(server) == ["/v1/models", "/props", "/props?model=qwen0.5b&autoload=false"]
    assert (found.input_tokens, found.kind) == (2048, "allocated")


def test_a_cold_child_is_read_from_its_preset_without_loading_it(window) -> None:
    with recorded("router-cold") as server:
        found = window(Question("smollm2", server.base_url))
        assert asked(server) == ["/v1/models", "/props", "/props?model=smollm2&autoload=false"]
    assert (found.input_tokens, found.kind) == (2048, "allocated")
    assert found.confidence < 1.0
    assert "preset" in found.explain()


def test_a_child_that_loads_is_read_from_its_preset(window) -> None:
    with recorded("router-loading") as server:
        found = window(Question("qwen0.5b", server.base_url))
    assert found.input_tokens == 2048
    assert found.warnings == ()


def cards(*args: Any, **more: Any) -> Answer:
    status = {"value": "unloaded", "args": list(args)}
    return of_json({"data": [{"id": "other"}, {"id": "m", "status": status, **more}]})


def router(models: Answer, *cold: Answer) -> FaultServer:
    placeholder = {"role": "router", "default_generation_settings": {"params": None, "n_ctx": 0}}
    error = {"error": {"code": 400, "message": "model is not loaded"}}
    return FaultServer(
        {
            "/props": of_json(placeholder),
            "/props?model=m&autoload=false": of_json(error, 400),
            "/models": models,
            "/props?model=m": cold or of_json(error, 400),
        }
    )


LISTED = of_json({"data": [{"id": "m", "owned_by": "llamacpp"}]})
PROPS = {"default_generation_settings": {"n_ctx": 3072}, "total_slots": 1}


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        (["llama-server", "--ctx-size", "4096", "--parallel", "4"], 1024),
        (["-c", "4096", "-np", "3"], 1536),
        (["--ctx-size", "2000"], 2048),
        (["--ctx-size", "4096", "--parallel", "-1"], 4096),
    ],
)
def test_a_preset_is_shared_between_slots_and_rounded_as_the_server_does(
    window, args, tokens
) -> None:
    with router(cards(*args)) as server:
        assert window(Question("m", server.base_url)).input_tokens == tokens


@pytest.mark.parametrize(
    "models",
    [
        cards("--port", "0"),
        cards("--ctx-size", "0"),
        cards("--ctx-size", "²"),
        cards("--ctx-size", "9" * 5000),
        cards("--ctx-size"),
        cards("--ctx-size", None),
        of_json({"data": [{"id": "m"}, "no card", {"id": "m", "status": {"args": "-c 512"}}]}),
        of_json({"data": {"m": 1}}),
        of_json([]),
        html(),
    ],
)
def test_a_cold_child_whose_preset_is_silent_is_loaded_by_the_second_ask(window, models) -> None:
    with router(models, of_json(PROPS)) as server:
        found = window(Question("m", server.base_url))
        assert asked(server)[-1] == "/props?model=m"
    assert found.input_tokens == 3072


def test_a_cold_child_that_cannot_be_loaded_is_an_honest_unknown(window) -> None:
    with router(html(404)) as server:
        found = window(Question("m", server.base_url))
    assert not found.known
    assert len(found.warnings) == 1


def test_a_cold_child_that_loads_meanwhile_is_asked_again_soon(window) -> None:
    with router(cards(), loading()) as server:
        found = window(Question("m", server.base_url))
    assert "still loading" in found.warnings[0]


def test_a_cold_childs_alias_is_its_name(window) -> None:
    status = {"value": "unloaded", "args": ["-c", "1024"]}
    models = of_json({"data": [{"id": "long-name", "aliases": ["m"], "status": status}]})
    with router(models) as server:
        assert window(Question("m", server.base_url)).input_tokens == 1024


def test_a_childs_name_is_quoted_in_the_query(window) -> None:
    with recorded("router-loaded") as server:
        assert not window(Question("a/b c&d", server.base_url)).known
        assert asked(server)[2] == "/props?model=a%2Fb%20c%26d&autoload=false"


def test_a_router_without_a_model_says_what_is_missing(window) -> None:
    with recorded("router-loaded") as server:
        found = window(Question(None, server.base_url))
        assert asked(server) == ["/v1/models", "/props"]
    assert not found.known
    assert "name the model" in found.warnings[0]


# --- the address ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/models/small/v1", "http://h:1/models/small"),
        ("http://h:1/models/small/v1/", "http://h:1/models/small"),
        ("http://h:1/models/small", "http://h:1/models/small"),
        ("http://h:1/v1/v1", "http://h:1/v1"),
        ("http://h:1/dev1", "http://h:1/dev1"),
        ("https://h/v1?api-version=2#top", "https://h"),
    ],
)
def test_every_form_of_a_base_url_leads_to_the_servers_root(base_url, address) -> None:
    assert root(base_url) == address


@pytest.mark.parametrize("form", ["/v1", "/v1/", "", "/", "/sub/path/v1", "/sub/path"])
def test_the_probe_goes_to_the_server_of_the_chat(window, form) -> None:
    sub = "/sub/path" if form.startswith("/sub") else ""
    with FaultServer({f"{sub}/props": of_json(PROPS), f"{sub}/v1/models": LISTED}) as server:
        assert window(Question("m", server.root_url + form)).input_tokens == 3072
        assert asked(server) == [f"{sub}/v1/models", f"{sub}/props"]


# --- answers that are none ------------------------------------------------------------------------


def claims_nothing(found: Window, caplog: pytest.LogCaptureFixture) -> None:
    """Expect no claim, and one warning in the log and in the window."""
    assert not found.known
    assert found.claims == ()
    assert len(found.warnings) == 1
    lines = [(r.name, r.levelno, r.getMessage()) for r in caplog.records]
    assert lines == [("ullage.windows", logging.WARNING, found.warnings[0])]


def props(**settings: Any) -> dict[str, Answer]:
    trained = {"data": [{"id": "m", "meta": {"n_ctx_train": TRAINED}}]}
    return {
        "/props": of_json({"default_generation_settings": settings}),
        "/v1/models": of_json(trained),
    }


@pytest.mark.parametrize(
    "routes",
    [
        props(),
        *[props(n_ctx=value) for value in NO_NUMBERS],
        {"/props": of_json({"default_generation_settings": None})},
        {"/props": of_json({"default_generation_settings": [1]})},
        {"/props": of_json({"n_ctx": 2048})},
        {"/props": of_json([2048])},
        {"/props": of_json(None)},
        {"/props": html()},
        {"/props": html(404)},
        {"/props": Answer(200, (b"",))},
        {"/props": Answer(200, (b"{not json",))},
        {"/props": Answer(200, (b"[" * 100_000,))},
        {"/props": of_json({"error": {"code": 401, "message": "Invalid API Key"}}, 401)},
        {"/props": of_json({"error": {"code": 500}}, 500)},
        {"/props": loading()},
        {"/props": hanging()},
        {},
    ],
)
def test_a_broken_answer_is_no_claim_and_one_warning(window, caplog, routes) -> None:
    with FaultServer(routes) as server:
        claims_nothing(window(Question("m", server.base_url)), caplog)


def test_a_dead_port_is_no_claim_and_one_warning(window, caplog) -> None:
    with closed_port() as port:
        claims_nothing(window(Question("m", f"http://127.0.0.1:{port}/v1")), caplog)


def test_a_host_that_cannot_be_a_host_is_no_claim_and_one_warning(window, caplog) -> None:
    claims_nothing(window(Question("m", "http://a..b/v1")), caplog)


@pytest.mark.parametrize(
    "listing", [html(), of_json({"data": [{"meta": None}, 7]}), of_json({}, 500)]
)
def test_a_broken_listing_takes_nothing_from_the_properties(window, caplog, listing) -> None:
    with FaultServer({"/props": of_json(PROPS), "/v1/models": listing}) as server:
        found = window(Question("m", server.base_url))
    assert found.input_tokens == 3072
    assert caplog.records == []


def test_a_window_that_only_the_listing_tells_is_taken_from_there(window, caplog) -> None:
    meta = {"n_ctx": 1536, "n_ctx_train": TRAINED}
    routes = props() | {"/v1/models": of_json({"data": [{"id": "m", "meta": meta}]})}
    with FaultServer(routes) as server:
        found = window(Question("m", server.base_url))
    assert (found.input_tokens, found.kind) == (1536, "allocated")
    assert caplog.records == []


def test_a_local_window_below_the_smallest_published_one_is_believed(window) -> None:
    with FaultServer(props(n_ctx=256)) as server:
        assert window(Question("m", server.base_url)).input_tokens == 256


def test_a_password_in_the_base_url_is_shown_nowhere(window, caplog) -> None:
    with FaultServer({"/props": of_json(PROPS)}) as server:
        base_url = server.base_url.replace("http://", "http://me:geheim@")
        assert "geheim" not in window(Question("m", base_url)).explain()
    dead = window(Question("m", base_url))
    assert "geheim" not in dead.explain()
    assert "geheim" not in caplog.text

"""llama-swap: a running model is asked, one that does not run is never started."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import Answer, Script, loading, of_json
from tests.windows.probes.asking import broken, find, first, listing, nothing, told

PROPS = of_json({"default_generation_settings": {"n_ctx": 16_384}, "total_slots": 1})


def running(*models: str, state: str = "ready") -> Answer:
    rows = [
        {"model": m, "state": state, "cmd": f"llama-server -c 16384 -m {m}.gguf",
         "proxy": "http://127.0.0.1:5800", "ttl": 0, "name": "", "description": ""}
        for m in models
    ]  # fmt: skip
    return of_json({"running": rows})


def swap(now: Answer, meta: Any = None, **more: Script) -> dict[str, Script]:
    fields = {"owned_by": "llama-swap"} | ({"meta": meta} if meta else {})
    return {
        "GET /v1/models": listing("org/m", "n", **fields),
        "GET /running": now,
        # Whoever asks these swaps a model in: the tests see that nobody does.
        "/props*": PROPS,
        "/upstream/org/m/props": PROPS,
        **more,
    }


@pytest.mark.parametrize("model", ["org/m", None])
def test_a_running_model_is_asked_behind_the_proxy(model) -> None:
    found, paths = find(swap(running("org/m")), model)
    assert told(found) == [("allocated", 16_384)]
    assert paths == ["/v1/models", "/running", "/upstream/org/m/props"]
    assert found.server == "llama-swap"
    assert first(found).where.endswith("/upstream/org/m")
    assert found.counts == first(found).where


@pytest.mark.parametrize(
    "now",
    [running(), running("n"), running("org/m", state="starting"), of_json({"running": [7, None]})],
)
def test_a_model_that_does_not_run_is_not_started(now) -> None:
    found, paths = find(swap(now), "org/m")
    assert "does not run 'org/m'" in nothing(found)
    assert paths == ["/v1/models", "/running"]
    assert found.passing
    assert found.recognised


@pytest.mark.parametrize(
    ("meta", "claim"),
    [
        ({"llamaswap": {"context_length": 32_768}}, ("total", 32_768)),
        ({"n_ctx": 32_768, "llamaswap": {}}, ("allocated", 32_768)),
        ({"n_ctx": 32_768}, ("allocated", 32_768)),
    ],
)
def test_what_the_operator_wrote_holds_for_one_that_does_not_run(meta, claim) -> None:
    found, paths = find(swap(running(), meta), "org/m")
    assert told(found) == [claim]
    assert "configuration" in first(found).note
    assert paths == ["/v1/models", "/running"]


def test_what_the_operator_wrote_stands_beside_what_the_running_one_says() -> None:
    found, _ = find(swap(running("org/m"), {"llamaswap": {"context_length": 32_768}}), "org/m")
    assert told(found) == [("allocated", 16_384), ("total", 32_768)]


def test_a_running_server_of_another_kind_is_read_from_its_list() -> None:
    upstream: dict[str, Script] = {
        "/upstream/org/m/props": of_json({}, 404),
        "/upstream/org/m/v1/models": listing("served-name", owned_by="vllm", max_model_len=8192),
    }
    found, _ = find(swap(running("org/m"), **upstream), "org/m")
    assert told(found) == [("total", 8192)]
    assert found.server == "llama-swap"


def test_a_running_server_that_loads_is_asked_again_soon() -> None:
    found, _ = find(swap(running("org/m"), **{"/upstream/org/m/props": loading()}), "org/m")
    nothing(found)
    assert found.passing


def test_without_a_model_nobody_is_guessed() -> None:
    for now in (running(), running("org/m", "n"), of_json({"running": [{"state": "ready"}]})):
        found, paths = find(swap(now), None)
        assert "name one" in nothing(found)
        assert paths == ["/v1/models", "/running"]


def test_it_is_recognised_by_what_runs_when_its_list_is_empty() -> None:
    routes = swap(running("org/m")) | {"GET /v1/models": of_json({"object": "list", "data": []})}
    found, paths = find(routes, "org/m")
    assert told(found) == [("allocated", 16_384)]
    assert paths == ["/v1/models", "/running", "/upstream/org/m/props"]


@pytest.mark.parametrize("routes", broken(swap(running("org/m")), "GET /running"))
def test_a_broken_list_of_what_runs_starts_nobody(routes) -> None:
    found, paths = find(routes, "org/m")
    nothing(found)
    assert all("props" not in path for path in paths)


@pytest.mark.parametrize("routes", broken(swap(running("org/m")), "/upstream/org/m/props"))
def test_a_broken_upstream_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes, "org/m")[0])

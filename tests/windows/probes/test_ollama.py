"""Ollama: what is allocated counts, what was trained does not; recorded and broken shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.faults import Answer, FaultServer, Script, of_json
from tests.windows.probes.asking import (
    NO_NUMBERS,
    asked,
    broken,
    find,
    first,
    hear,
    listing,
    look,
    nothing,
    told,
)

MODEL = "qwen3:14b"


def ps(*models: Any) -> Answer:
    return of_json({"models": list(models)})


def running(window: Any = 4096, name: str = MODEL) -> dict[str, Any]:
    """Return a loaded model, in the shape of Ollama 0.34."""
    return {
        "name": name,
        "model": name,
        "size": 11_000_000_000,
        "digest": "bdbd181c33f2",
        "details": {"format": "gguf", "family": "qwen3", "parameter_size": "14.8B"},
        "expires_at": "2026-11-21T14:38:31Z",
        "size_vram": 11_000_000_000,
        "context_length": window,
    }


def show(parameters: Any = "", **more: Any) -> Answer:
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40_960, **more}
    return of_json({"parameters": parameters, "template": "{{ .Prompt }}", "model_info": info})


def routes(loaded: Answer, shown: Answer, names: tuple[str, ...] = (MODEL,)) -> dict[str, Script]:
    return {
        "GET /v1/models": listing(*names, owned_by="library"),
        "GET /api/ps": loaded,
        "POST /api/show": shown,
    }


def test_the_loaded_models_window_is_what_it_was_given_not_what_it_was_trained_for() -> None:
    with FaultServer(routes(ps(running(8192, "other:1b"), running()), show())) as server:
        found = look(server, MODEL)
        assert asked(server) == ["/v1/models", "/api/ps", "/api/show"]
        assert json.loads(server.requests[-1].body) == {"model": MODEL}
    assert told(found) == [("allocated", 4096), ("trained", 40_960)]
    assert found.server == "ollama"
    assert found.counts == ""
    assert first(found).confidence == 1.0
    assert "silently" in first(found).note


@pytest.mark.parametrize(
    ("meant", "name"),
    [("gemma", "gemma:latest"), ("gemma:latest", "gemma:latest"), ("gemma:latest", "gemma")],
)
def test_the_tag_latest_may_be_left_out(meant, name) -> None:
    found, _ = find(routes(ps(running(2048, name)), show()), meant)
    assert first(found).tokens == 2048


def test_a_tag_is_never_split() -> None:
    found, _ = find(routes(ps(running(2048, "qwen3:8b")), show()), "qwen3:14b")
    assert "has not loaded" in nothing(found)


def test_without_a_model_the_only_loaded_one_is_meant() -> None:
    found, _ = find(routes(ps(running()), show()), None)
    assert told(found)[0] == ("allocated", 4096)
    for loaded in (ps(), ps(running(), running(2048, "other"))):
        found, paths = find(routes(loaded, show()), None)
        assert "name one" in nothing(found)
        assert "/api/show" not in paths


def test_a_model_that_is_not_loaded_is_read_from_its_parameters_and_trusted_less() -> None:
    parameters = 'stop                           "<|im_end|>"\nnum_ctx                        16384'
    found, _ = find(routes(ps(), show(parameters)), MODEL)
    assert told(found) == [("allocated", 16_384), ("trained", 40_960)]
    assert first(found).confidence < 1.0
    assert "num_ctx of the model's parameters (not loaded)" in first(found).note


def test_a_num_ctx_above_the_trained_length_is_capped_as_the_server_does() -> None:
    found, _ = find(routes(ps(), show("num_ctx 131072")), MODEL)
    assert first(found).tokens == 40_960


def test_an_older_server_that_tells_no_loaded_window_is_read_from_the_parameters() -> None:
    loaded = {k: v for k, v in running().items() if k != "context_length"}
    found, _ = find(routes(ps(loaded), show("num_ctx 16384")), MODEL)
    assert first(found).tokens == 16_384
    assert "window not told" in first(found).note


def test_a_cold_model_without_num_ctx_is_an_honest_unknown_that_passes() -> None:
    found, _ = find(routes(ps(), show("temperature 0.6")), MODEL)
    assert "40,960, which is not what it gets" in nothing(found)
    assert found.passing


def test_a_model_that_is_not_there_is_said_so() -> None:
    missing = of_json({"error": f"model '{MODEL}' not found"}, 404)
    found, _ = find(routes(ps(), missing), MODEL)
    assert f"does not know the model '{MODEL}'" in nothing(found)
    assert not found.passing


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_number_that_is_none_is_no_claim(value) -> None:
    found = hear(routes(ps(running(value)), show()), MODEL)
    nothing(found)
    found = hear(routes(ps(running()), show(**{"qwen3.context_length": value})), MODEL)
    assert told(found) == [("allocated", 4096)]
    found = hear(routes(ps(), show(f"num_ctx {value}", **{"qwen3.context_length": 0})), MODEL)
    if value == "2048":  # as text it is a number: the parameters are text
        assert told(found) == [("allocated", 2048)]
    else:
        nothing(found)


@pytest.mark.parametrize("parameters", [None, 4096, [], {"num_ctx": 4096}, "xnum_ctx 4096"])
def test_parameters_of_another_shape_are_no_claim(parameters) -> None:
    found, _ = find(routes(ps(), show(parameters)), MODEL)
    nothing(found)


@pytest.mark.parametrize("case", broken(routes(ps(running()), show()), "GET /api/ps"))
def test_a_broken_list_of_loaded_models_is_no_claim_and_one_complaint(case) -> None:
    found, _ = find(case, MODEL)
    nothing(found)


@pytest.mark.parametrize("case", broken(routes(ps(running()), show()), "POST /api/show"))
def test_a_broken_description_takes_nothing_from_the_loaded_window(case) -> None:
    found, _ = find(case, MODEL)
    assert told(found) == [("allocated", 4096)]


@pytest.mark.parametrize("case", broken(routes(ps("no model", 7), show()), "POST /api/show"))
def test_a_broken_description_of_a_cold_model_is_one_complaint(case) -> None:
    found, _ = find(case, MODEL)
    nothing(found)


def test_models_of_a_namespace_are_recognised_by_what_is_loaded() -> None:
    case = routes(ps(running(4096, "me/mine:latest")), show(), ()) | {
        "GET /v1/models": listing("me/mine:latest", owned_by="me")
    }
    found, paths = find(case, "me/mine")
    assert told(found)[0] == ("allocated", 4096)
    assert paths == ["/v1/models", "/props", "/api/ps", "/api/show"]

"""LM Studio: both forms of its list, what is loaded and what is not, and its 200 to all paths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import Answer, Script, of_json
from tests.windows.probes.asking import (
    NO_NUMBERS,
    broken,
    find,
    first,
    hear,
    listing,
    nothing,
    told,
)

MODEL = "qwen/qwen3-9b"


def unexpected(path: str) -> Answer:
    return of_json({"error": f"Unexpected endpoint or method. (GET {path})"})


def instance(window: Any = 4096, name: str = MODEL, parallel: int = 1) -> dict[str, Any]:
    config = {"context_length": window, "parallel": parallel, "flash_attention": True}
    return {"id": name, "config": config}


def model(*loaded: Any, key: str = MODEL, trained: Any = 262_144) -> dict[str, Any]:
    """Return a model in the shape of `/api/v1/models`."""
    return {
        "type": "llm",
        "publisher": "qwen",
        "key": key,
        "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
        "loaded_instances": list(loaded),
        "max_context_length": trained,
    }


def card(state: str = "loaded", name: str = MODEL, **more: Any) -> dict[str, Any]:
    """Return a model in the shape of `/api/v0/models`."""
    window = {"loaded_context_length": 4096} if state == "loaded" else {}
    return {
        "id": name,
        "type": "llm",
        "state": state,
        "max_context_length": 32_768,
        **window,
        **more,
    }


def newer(*models: Any) -> dict[str, Script]:
    return {
        "GET /v1/models": listing(MODEL, owned_by="organization_owner"),
        "GET /api/v1/models": of_json({"models": list(models)}),
        "*": unexpected("/whatever"),
    }


def older(*cards: Any) -> dict[str, Script]:
    return {
        "GET /v1/models": listing(MODEL, owned_by="organization_owner"),
        "GET /api/v0/models": of_json({"object": "list", "data": list(cards)}),
        "*": unexpected("/api/v1/models"),
    }


def test_the_loaded_instance_tells_its_window_and_the_maximum_is_what_was_trained() -> None:
    found, paths = find(newer(model(key="other"), model(instance())), MODEL)
    assert told(found) == [("allocated", 4096), ("trained", 262_144)]
    assert paths == ["/v1/models", "/api/v1/models"]
    assert (found.server, first(found).confidence) == ("lmstudio", 1.0)


def test_the_older_list_tells_the_loaded_window() -> None:
    found, paths = find(older(card("not-loaded", "other"), card()), MODEL)
    assert told(found) == [("allocated", 4096), ("trained", 32_768)]
    assert paths == ["/v1/models", "/api/v1/models", "/api/v0/models"]


def test_requests_in_parallel_lower_the_confidence() -> None:
    found, _ = find(newer(model(instance(parallel=4))), MODEL)
    assert first(found).confidence < 1.0
    assert "4 requests" in first(found).note


def test_of_several_copies_the_one_that_is_named_counts_else_the_smallest() -> None:
    both = newer(model(instance(8192, "a"), instance(2048, "b"), instance(None, "c")))
    assert first(find(both, "a")[0]).tokens == 8192
    assert first(find(both, MODEL)[0]).tokens == 2048
    assert "name one" in nothing(find(both, None)[0])


def test_without_a_model_the_only_loaded_one_is_meant() -> None:
    found, _ = find(newer(model(key="other"), model(instance())), None)
    assert first(found).tokens == 4096


@pytest.mark.parametrize("routes", [newer(model()), older(card("not-loaded"))])
def test_a_model_that_is_not_loaded_is_an_honest_unknown_that_passes(routes) -> None:
    found, _ = find(routes, MODEL)
    assert "has not loaded" in nothing(found)
    assert found.passing
    assert found.recognised


@pytest.mark.parametrize("routes", [newer(model(instance())), older(card())])
def test_a_model_that_is_not_listed_is_said_so(routes) -> None:
    found, _ = find(routes, "nobody/nothing")
    assert "lists no model 'nobody/nothing'" in nothing(found)
    assert not found.passing


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_number_that_is_none_is_no_claim(value) -> None:
    found = hear(newer(model(instance(value))), MODEL)
    assert "no context_length" in nothing(found)
    found = hear(older(card(loaded_context_length=value)), MODEL)
    nothing(found)
    found = hear(newer(model(instance(), trained=value)), MODEL)
    assert told(found) == [("allocated", 4096)]


@pytest.mark.parametrize("config", [None, [], "4096", 4096])
def test_an_instance_of_another_shape_is_no_claim(config) -> None:
    nothing(find(newer(model({"id": MODEL, "config": config})), MODEL)[0])
    nothing(find(newer(model(config)), MODEL)[0])


@pytest.mark.parametrize("routes", broken(newer(model(instance())), "GET /api/v1/models"))
def test_a_broken_list_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes, MODEL)[0])


@pytest.mark.parametrize("routes", broken(older(card()), "GET /api/v0/models"))
def test_a_broken_older_list_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes, MODEL)[0])


def test_it_is_recognised_by_its_refusal_when_its_list_names_nobody() -> None:
    routes = newer(model(instance())) | {"GET /v1/models": of_json({"data": []})}
    found, paths = find(routes, MODEL)
    assert told(found)[0] == ("allocated", 4096)
    assert found.server == "lmstudio"
    assert paths[-2:] == ["/props", "/api/v1/models"]

"""TabbyAPI: the sequence length of the loaded model, in the recorded shape and in broken ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import FaultServer, Script, of_json
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
from ullage.transport import Transport
from ullage.windows.probes import probe


def tabby(window: Any = 32_768) -> dict[str, Script]:
    parameters = {
        "max_seq_len": window,
        "cache_size": 65_536,
        "cache_mode": "FP16",
        "rope_scale": 1.0,
        "chunk_size": 2048,
    }
    card = {"id": "mistral", "object": "model", "owned_by": "tabbyAPI", "parameters": parameters}
    return {
        "GET /v1/models": listing("mistral", "other", owned_by="tabbyAPI"),
        "GET /v1/model": of_json(card),
    }


@pytest.mark.parametrize("model", ["mistral", None])
def test_the_loaded_model_tells_its_length(model) -> None:
    found, paths = find(tabby(), model)
    assert told(found) == [("allocated", 32_768)]
    assert paths == ["/v1/models", "/v1/model"]
    assert (found.server, first(found).confidence) == ("tabbyapi", 1.0)


def test_a_model_of_another_name_is_trusted_less() -> None:
    found, _ = find(tabby(), "other")
    assert first(found).confidence < 1.0
    assert "called 'mistral'" in first(found).note


def test_it_is_recognised_without_a_list() -> None:
    routes = {k: v for k, v in tabby().items() if k != "GET /v1/models"}
    assert told(find(routes, "mistral")[0]) == [("allocated", 32_768)]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_number_that_is_none_is_no_claim(value) -> None:
    assert "names no window" in nothing(hear(tabby(value), "mistral"))


@pytest.mark.parametrize("routes", broken(tabby(), "GET /v1/model"))
def test_a_broken_answer_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes, "mistral")[0])


@pytest.mark.parametrize("parameters", [None, [], 32_768, {}, {"cache_size": 32_768}])
def test_parameters_of_another_shape_are_no_claim(parameters) -> None:
    routes = tabby() | {"GET /v1/model": of_json({"id": "mistral", "parameters": parameters})}
    nothing(find(routes, "mistral")[0])


def test_the_key_goes_with_every_ask() -> None:
    with FaultServer(tabby()) as server:
        asking = probe(server.base_url, "mistral", "sk-tabby", 0.0)
        answer = Transport().ask(next(asking))
        Transport().ask(asking.send(answer))
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer sk-tabby"] * 2

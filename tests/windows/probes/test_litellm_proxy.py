"""A LiteLLM proxy: the limits of every deployment of a name; bare max_tokens is none of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import Script, of_json
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


def deployment(name: str = "m", **info: Any) -> dict[str, Any]:
    return {
        "model_name": name,
        "litellm_params": {"model": "openai/gpt-5"},
        "model_info": {"id": "c0ffee", "db_model": False, "max_tokens": 128_000, **info},
    }


def proxy(*deployments: Any) -> dict[str, Script]:
    return {
        "GET /v1/models": listing("m", owned_by="openai", created=1677610602),
        "GET /model/info": of_json({"data": list(deployments)}),
    }


LIMITS: dict[str, Any] = {"max_input_tokens": 272_000, "max_output_tokens": 128_000}


@pytest.mark.parametrize("model", ["m", None])
def test_the_models_limits_are_read_and_trusted_less_than_an_allocation(model) -> None:
    found, paths = find(proxy(deployment(**LIMITS)), model)
    assert told(found) == [("input", 272_000), ("output", 128_000)]
    assert paths == ["/v1/models", "/model/info"]
    assert found.server == "litellm"
    assert first(found).confidence < 1.0


def test_every_deployment_of_a_name_is_heard_and_no_other() -> None:
    several = proxy(
        deployment(max_input_tokens=128_000),
        deployment(max_input_tokens=32_000, max_output_tokens=None),
        deployment("n", max_input_tokens=8_000),
    )
    assert told(find(several)[0]) == [("input", 128_000), ("input", 32_000)]
    assert "name one" in nothing(find(several, None)[0])
    assert "lists no model 'o'" in nothing(find(several, "o")[0])


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1023])
def test_a_number_that_is_none_is_no_claim(value) -> None:
    found = hear(proxy(deployment(max_input_tokens=value, max_output_tokens=4096)))
    assert "no max_input_tokens" in nothing(found)


def test_an_output_limit_that_is_none_takes_nothing_from_the_input() -> None:
    found, _ = find(proxy(deployment(max_input_tokens=8192, max_output_tokens="4096")))
    assert told(found) == [("input", 8192)]


@pytest.mark.parametrize("info", [None, [], "x", 5])
def test_information_of_another_shape_is_no_claim(info) -> None:
    nothing(find(proxy({"model_name": "m", "model_info": info}, "no deployment", None))[0])


@pytest.mark.parametrize("routes", broken(proxy(deployment(**LIMITS)), "GET /model/info"))
def test_a_broken_answer_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes)[0])


def test_it_is_recognised_without_the_time_that_it_gives_its_models() -> None:
    routes = proxy(deployment(**LIMITS)) | {"GET /v1/models": listing("m", owned_by="openai")}
    found, _ = find(routes)
    assert found.server == "litellm"

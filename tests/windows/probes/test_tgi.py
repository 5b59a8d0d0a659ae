"""Text Generation Inference: the recorded shape of `/info`, and broken ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import Script, of_json
from tests.windows.probes.asking import NO_NUMBERS, broken, find, hear, listing, nothing, told

SHAPE = {
    "model_id": "HuggingFaceH4/zephyr-7b-beta",
    "model_pipeline_tag": "text-generation",
    "max_concurrent_requests": 128,
    "max_stop_sequences": 4,
    "router": "text-generation-router",
    "version": "3.3.4",
    "docker_label": None,
}


def tgi(**limits: Any) -> dict[str, Script]:
    return {"GET /v1/models": listing("zephyr", owned_by="zephyr"),
            "GET /info": of_json({**SHAPE, **limits})}  # fmt: skip


@pytest.mark.parametrize("model", ["zephyr", "tgi", None])
def test_both_limits_are_told_whatever_the_model_is_called(model) -> None:
    found, paths = find(tgi(max_input_tokens=3072, max_total_tokens=4096), model)
    assert told(found) == [("input", 3072), ("allocated", 4096)]
    assert found.server == "tgi"
    assert paths == ["/v1/models", "/props", "/api/ps", "/info"]


def test_the_name_of_before_version_2_is_read() -> None:
    found, _ = find(tgi(max_input_length=1024, max_total_tokens=2048))
    assert told(found) == [("input", 1024), ("allocated", 2048)]


def test_a_server_without_a_list_of_models_is_recognised_too() -> None:
    found, _ = find({"/info": of_json({**SHAPE, "max_total_tokens": 2048})})
    assert told(found) == [("allocated", 2048)]


def test_a_small_limit_is_enforced_and_believed() -> None:
    found, _ = find(tgi(max_input_tokens=500, max_total_tokens=1000))
    assert told(found) == [("allocated", 500), ("allocated", 1000)]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_number_that_is_none_is_no_claim(value) -> None:
    found = hear(tgi(max_input_tokens=value, max_total_tokens=value))
    assert "names no window" in nothing(found)
    found = hear(tgi(max_input_tokens=value, max_total_tokens=2048))
    assert told(found) == [("allocated", 2048)]


@pytest.mark.parametrize("routes", broken(tgi(max_total_tokens=4096), "GET /info"))
def test_a_broken_answer_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes)[0])


def test_a_description_without_limits_is_not_taken_for_one() -> None:
    found, _ = find(tgi())
    nothing(found)
    assert not found.recognised

"""KoboldCpp: its true context size, though it emulates llama.cpp and Ollama."""

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

PROPS = of_json({
    "n_ctx": 4096,
    "default_generation_settings": {"n_ctx": 4096},
    "total_slots": 1,
    "chat_template": "",
})  # fmt: skip
"""Its emulation of llama.cpp, with another number so that a test sees who was asked."""


def kobold(value: Any = 8192) -> dict[str, Script]:
    return {
        "GET /v1/models": listing("koboldcpp/mini", owned_by="koboldcpp"),
        "GET /api/extra/true_max_context_length": of_json({"value": value}),
        "GET /props": PROPS,
        "GET /api/tags": of_json({"models": [{"name": "koboldcpp"}]}),
        "GET /api/ps": of_json({"models": []}),
    }


@pytest.mark.parametrize("model", ["koboldcpp/mini", "anything", None])
def test_the_true_context_size_is_read(model) -> None:
    found, paths = find(kobold(), model)
    assert told(found) == [("allocated", 8192)]
    assert paths == ["/v1/models", "/api/extra/true_max_context_length"]
    assert (found.server, found.counts) == ("koboldcpp", "")
    assert "silently" in first(found).note


@pytest.mark.parametrize("listed", [listing(), listing("renamed", owned_by="me"), of_json({}, 404)])
def test_it_is_recognised_by_its_emulation_of_another(listed) -> None:
    found, _ = find(kobold() | {"GET /v1/models": listed}, "renamed")
    assert told(found) == [("allocated", 8192)]
    assert found.server == "koboldcpp"


def test_it_is_recognised_without_list_and_emulation() -> None:
    path = "/api/extra/true_max_context_length"
    found, _ = find({path: of_json({"value": 2048})})
    assert (told(found), found.server) == ([("allocated", 2048)], "koboldcpp")


def test_who_has_its_mark_and_not_its_answer_is_read_as_llama_cpp() -> None:
    found, _ = find({"/props": PROPS})
    assert (told(found), found.server) == ([("allocated", 4096)], "llama.cpp")


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_number_that_is_none_is_no_claim(value) -> None:
    found = hear(kobold(value))
    assert "names no window" in nothing(found)


@pytest.mark.parametrize(
    "routes",
    broken(
        {k: v for k, v in kobold().items() if k != "GET /props"},
        "GET /api/extra/true_max_context_length",
    ),
)
def test_a_broken_answer_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes)[0])

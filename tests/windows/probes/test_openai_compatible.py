"""Lists of models: vLLM and SGLang, and every key of the white list at a server nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.faults import Answer, Script, html, of_json
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
from ullage.windows.probes.openai_compatible import KEYS

# --- vLLM -----------------------------------------------------------------------------------------


def vllm(window: Any = 32_768, **adapter: Any) -> Answer:
    """Return vLLM's list: the base model, and an adapter if fields of one are given."""
    base = {
        "id": "qwen",
        "object": "model",
        "owned_by": "vllm",
        "root": "Qwen/Qwen3-8B",
        "parent": None,
        "max_model_len": window,
        "permission": [],
    }
    lora = {**base, "id": "lora", "parent": "qwen", "max_model_len": None, **adapter}
    return of_json({"object": "list", "data": [base, lora] if adapter else [base]})


@pytest.mark.parametrize("model", ["qwen", None])
def test_vllm_tells_all_in_one_answer(model) -> None:
    found, paths = find({"GET /v1/models": vllm()}, model)
    assert told(found) == [("allocated", 32_768)]
    assert paths == ["/v1/models"]
    assert found.server == "vllm"
    assert "max_model_len" in first(found).note


def test_an_adapter_has_the_window_of_its_parent() -> None:
    for model in ("lora", "qwen", None):
        found, _ = find({"/v1/models": vllm(root="/adapters/x")}, model)
        assert told(found) == [("allocated", 32_768)]
    orphan = vllm(parent="gone")
    assert "no max_model_len" in nothing(find({"/v1/models": orphan}, "lora")[0])


def test_a_vllm_that_does_not_serve_the_model_says_so() -> None:
    found, paths = find({"/v1/models": vllm()}, "llama")
    assert "lists no model 'llama'" in nothing(found)
    assert paths == ["/v1/models"]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_max_model_len_that_is_none_is_no_claim(value) -> None:
    nothing(hear({"/v1/models": vllm(value)}, "qwen"))


def test_a_small_window_of_a_recognised_server_is_believed() -> None:
    assert told(find({"/v1/models": vllm(512)}, "qwen")[0]) == [("allocated", 512)]


# --- SGLang ---------------------------------------------------------------------------------------


def sglang(info: Answer, path: str = "/server_info", window: Any = 40_960) -> dict[str, Script]:
    cards = listing("qwen", owned_by="sglang", root="qwen", max_model_len=window)
    # It emulates Ollama as well, which must not be asked.
    emulated: dict[str, Script] = {"/api/ps": of_json({"models": []}), "/api/tags": of_json({})}
    return {"GET /v1/models": cards, f"GET {path}": info, **emulated}


INFO = {"model_path": "Qwen/Qwen3-8B", "context_length": None, "max_total_num_tokens": 51_892}


@pytest.mark.parametrize(
    ("path", "info"),
    [
        ("/server_info", {**INFO, "max_req_input_len": 40_954}),
        ("/get_server_info", {**INFO, "max_req_input_len": 40_954}),
        ("/server_info", {**INFO, "scheduler_info": {"max_req_input_len": 40_954}}),
        ("/server_info", {**INFO, "internal_states": [{"max_req_input_len": 40_954}]}),
    ],
)
def test_sglang_tells_its_window_and_its_limit_of_a_prompt(path, info) -> None:
    found, paths = find(sglang(of_json(info), path), "qwen")
    assert told(found) == [("allocated", 40_960), ("input", 40_954)]
    assert paths[0] == "/v1/models"
    assert paths[-1] == path
    assert len(paths) <= 3
    assert found.server == "sglang"


def test_sglang_serves_its_one_model_under_any_name() -> None:
    found, _ = find(sglang(of_json(INFO)), "anything")
    assert told(found) == [("allocated", 40_960)]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_sglang_numbers_that_are_none_are_no_claim(value) -> None:
    found = hear(sglang(of_json({"max_req_input_len": value})), "qwen")
    assert told(found) == [("allocated", 40_960)]
    found = hear(sglang(of_json({"max_req_input_len": 4096}), window=value), "qwen")
    assert told(found) == [("input", 4096)]
    found = hear(sglang(of_json({"max_req_input_len": value}), window=value), "qwen")
    nothing(found)


def test_a_small_limit_that_sglang_enforces_is_believed() -> None:
    found, _ = find(sglang(of_json({"max_req_input_len": 506}), window=512), "qwen")
    assert told(found) == [("allocated", 512), ("allocated", 506)]


@pytest.mark.parametrize("routes", broken(sglang(of_json(INFO)), "GET /server_info"))
def test_broken_server_info_takes_nothing_from_the_list(routes) -> None:
    found, _ = find(routes, "qwen")
    assert told(found) == [("allocated", 40_960)]


# --- any other ------------------------------------------------------------------------------------


def card(path: str, value: Any) -> dict[str, Any]:
    """Return a model's card with a value at a path of the white list."""
    name, _, rest = path.partition(".")
    inner = card(rest, value) if rest else value
    return {name.removesuffix("[]"): [inner] if name.endswith("[]") else inner}


def stranger(fields: dict[str, Any], **more: Script) -> dict[str, Script]:
    cards = [{"id": "other"}, {"id": "m", "object": "model", **fields}]
    return {"GET /v1/models": of_json({"object": "list", "data": cards}), **more}


BOUNDS = [(kind, key) for kind, keys in KEYS.items() for key in keys if kind != "output"]


@pytest.mark.parametrize(("kind", "key"), BOUNDS)
def test_every_key_of_the_white_list_is_read_and_named(kind, key) -> None:
    found, paths = find(stranger(card(key, 65_536)))
    assert told(found) == [(kind, 65_536)]
    assert first(found).note == f"{key} of /v1/models"
    assert 0 < first(found).confidence < 1
    assert found.server == "openai-compatible"
    assert len(paths) <= 2


@pytest.mark.parametrize(("kind", "key"), BOUNDS)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_value_that_is_no_number_of_tokens_is_no_claim(kind, key, value) -> None:
    nothing(hear(stranger(card(key, value))))


@pytest.mark.parametrize(("kind", "key"), BOUNDS)
def test_below_1024_only_an_allocation_is_believed(kind, key) -> None:
    found = hear(stranger(card(key, 1023)))
    if kind == "allocated":
        assert told(found) == [("allocated", 1023)]
    else:
        nothing(found)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 32_768},
        {"meta": {"n_ctx_train": 32_768}},
        {"n_ctx_train": 32_768},
        {"default_max_tokens": 32_768},
        {"max_output_tokens": 32_768},
        {"limits": 32_768},
        {"metadata": ["context_length", 32_768]},
        {"loaded_instances": {"config": {"context_length": 32_768}}},
        {"loaded_instances": [32_768, None, {"config": 32_768}]},
    ],
)
def test_what_is_no_window_is_not_taken_for_one(fields) -> None:
    assert "names no limit" in nothing(find(stranger(fields))[0])


def test_output_limits_stand_beside_a_bound() -> None:
    found, _ = find(stranger({"max_input_tokens": 8000, "max_output_tokens": 512}))
    assert told(found) == [("input", 8000), ("output", 512)]


def test_all_that_a_card_says_is_heard() -> None:
    found, paths = find(stranger({"context_length": 131_072, "meta": {"n_ctx": 4096}}))
    assert told(found) == [("allocated", 4096), ("total", 131_072)]
    assert paths == ["/v1/models"]


@pytest.mark.parametrize("key", ["max_model_len", "max_input_tokens", "meta.n_ctx"])
def test_a_key_that_cannot_be_the_trained_length_settles_it(key) -> None:
    assert find(stranger(card(key, 65_536)))[1] == ["/v1/models"]


def test_a_length_that_may_be_trained_gets_a_second_opinion() -> None:
    props = of_json({"default_generation_settings": {"n_ctx": 4096}, "total_slots": 1})
    found, paths = find(stranger({"context_length": 131_072}, **{"/props": props}))
    assert told(found) == [("allocated", 4096)]
    assert paths == ["/v1/models", "/props"]
    # Unsloth Studio: a web page at every other path, and its list is right.
    found, _ = find(stranger({"context_length": 8192}, **{"*": html()}))
    assert told(found) == [("total", 8192)]


def test_an_alias_of_a_card_is_its_name_and_a_neighbour_is_not() -> None:
    fields = {"aliases": ["small", 7], "context_length": 8192}
    assert first(find(stranger(fields), "small")[0]).tokens == 8192
    for model in ("m2", "M", "", "smal"):
        assert "lists no model" in nothing(find(stranger(fields), model)[0])


def test_a_stranger_is_asked_few_things_and_complained_of_once() -> None:
    found, paths = find({"/v1/models": listing("smollm2", owned_by="me")}, "smollm2")
    assert "no server known here" in nothing(found)
    assert paths == ["/v1/models", "/props", "/api/ps", "/info", "/model/info"]
    assert not found.recognised

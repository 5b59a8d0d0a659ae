"""Recognition: by body and not by path, in few asks, and never a second time-out."""

from __future__ import annotations

import pytest

from tests.support.faults import FaultServer, Script, closed_port, hanging, html, of_json
from tests.windows.probes.asking import (
    BROKEN,
    asked,
    broken,
    drive,
    find,
    first,
    hear,
    listing,
    look,
    nothing,
    told,
)
from ullage.transport import HttpRequest, HttpResponse
from ullage.windows.probes import probe
from ullage.windows.probes.recognise import OTHER, PROBES

PROPS = of_json({"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1})
LLAMA: dict[str, Script] = {
    "GET /v1/models": listing("m", owned_by="llamacpp", meta={"n_ctx": 2048, "n_ctx_train": 8192}),
    "GET /props": PROPS,
}

# --- silence --------------------------------------------------------------------------------------


def test_a_host_that_is_not_there_is_asked_once() -> None:
    with closed_port() as port:
        asking = probe(f"http://127.0.0.1:{port}/v1", "m", None, 0.0)
        assert isinstance(next(asking), HttpRequest)
        with pytest.raises(StopIteration) as done:
            asking.send(HttpResponse(0, fault="ConnectError"))
        assert nothing(done.value.value).endswith("gave no answer (ConnectError)")
        assert "gave no answer" in nothing(drive(probe(f"http://127.0.0.1:{port}", "m", None, 0.0)))


def test_a_host_that_hangs_is_asked_once() -> None:
    found, paths = find({"*": hanging()})
    assert "gave no answer" in nothing(found)
    assert paths == ["/v1/models"]


def test_a_host_that_falls_silent_half_way_is_asked_no_more() -> None:
    found, paths = find({"/v1/models": listing("m"), "*": hanging()})
    assert "gave no answer" in nothing(found)
    assert paths == ["/v1/models", "/props"]


def test_what_was_told_before_the_silence_holds() -> None:
    found, _ = find({"/v1/models": listing("m", context_length=8192), "*": hanging()})
    assert told(found) == [("total", 8192)]


# --- the list of models ---------------------------------------------------------------------------


@pytest.mark.parametrize("routes", broken({"GET /v1/models": listing("m")}, "GET /v1/models"))
def test_a_broken_list_is_no_claim_and_one_complaint(routes) -> None:
    nothing(find(routes)[0])


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_asking(status) -> None:
    found, paths = find({"*": of_json({"error": "no"}, status)})
    assert f"HTTP {status}" in nothing(found)
    assert paths == ["/v1/models"]


def test_a_key_that_is_refused_later_is_said_so() -> None:
    found, _ = find({"/v1/models": listing("m"), "/model/info": of_json({}, 403)})
    assert "wants a key" in nothing(found)


def test_a_loading_server_is_asked_no_further_and_again_soon() -> None:
    found, paths = find({"*": BROKEN["loading"]})
    assert "still loading" in nothing(found)
    assert found.passing
    assert paths == ["/v1/models"]


def test_one_that_loads_at_its_properties_is_asked_no_further() -> None:
    found, paths = find({"/v1/models": listing("m"), "/props": BROKEN["loading"]})
    assert "still loading" in nothing(found)
    assert found.passing
    assert paths == ["/v1/models", "/props"]


@pytest.mark.parametrize("path", ["/api/v4", "/openai/v1beta", "/api/v4/"])
def test_a_list_beside_a_base_url_of_another_form_is_found(path) -> None:
    listed = f"{path.rstrip('/')}/models"
    with FaultServer({listed: listing("m", max_model_len=8192)}) as server:
        found = drive(probe(server.root_url + path + "?v=1", "m", None, 5.0))
        assert told(found) == [("total", 8192)]
        assert asked(server)[-1] == listed


# --- who is who -----------------------------------------------------------------------------------


def test_llama_cpp_takes_two_asks_and_counts() -> None:
    found, paths = find(LLAMA)
    assert told(found) == [("allocated", 2048), ("trained", 8192)]
    assert paths == ["/v1/models", "/props"]
    assert found.server == "llama.cpp"
    assert found.counts == first(found).where


def test_a_llama_cpp_that_hides_its_properties_is_read_from_its_list() -> None:
    found, _ = find({**LLAMA, "GET /props": of_json({"error": "no"}, 401)})
    assert told(found) == [("allocated", 2048)]


def test_the_trained_length_in_a_llama_cpp_list_is_never_the_window() -> None:
    card = {"owned_by": "llamacpp", "context_length": 131_072}
    for props in BROKEN.values():
        nothing(hear({"/v1/models": listing("m", **card), "*": props}))
        found = hear({"/v1/models": listing("m", **card, meta={"n_ctx": 1024}), "*": props})
        if found.complaint:
            assert "still loading" in nothing(found)
        else:
            assert told(found) == [("allocated", 1024)]


def test_a_path_that_answers_does_not_make_a_server() -> None:
    everywhere = {"object": "error", "message": "no such thing", "error": "Not found", "value_": 1}
    for answer in (of_json(everywhere), of_json({}), of_json([]), html()):
        found, paths = find({"*": answer})
        nothing(found)
        assert not found.recognised
        assert len(paths) <= 8


def test_an_emulated_path_does_not_beat_what_the_list_says() -> None:
    ollama: dict[str, Script] = {
        "/api/ps": of_json({"models": [{"name": "m", "context_length": 4096}]}),
        "/api/show": of_json({"model_info": {}}),
    }
    found, _ = find({**LLAMA, **ollama})
    assert first(found).tokens == 2048
    listed = listing("m", owned_by="sglang", max_model_len=8192)
    found, paths = find({**ollama, "/v1/models": listed})
    assert (first(found).tokens, found.server) == (8192, "sglang")
    assert "/api/ps" not in paths


def test_a_wrong_pointer_is_corrected_by_the_body() -> None:
    routes = {**LLAMA, "GET /v1/models": listing("m", owned_by="organization_owner")}
    found, _ = find(routes)
    assert (told(found), found.server) == ([("allocated", 2048)], "llama.cpp")


@pytest.mark.parametrize("owner", [None, 7, ["vllm"], {"vllm": 1}, ""])
def test_an_owner_of_another_shape_points_to_nobody(owner) -> None:
    found, _ = find({"/v1/models": listing("m", owned_by=owner, created="now"), "/props": PROPS})
    assert found.server == "llama.cpp"


# --- one verdict a host ---------------------------------------------------------------------------


def test_a_verdict_that_is_known_spares_the_search() -> None:
    info = of_json({"max_total_tokens": 4096})
    with FaultServer({"/v1/models": listing("m"), "/info": info}) as server:
        assert look(server).server == "tgi"
        asks = len(asked(server))
        assert told(look(server, known="tgi")) == [("allocated", 4096)]
        assert asked(server)[asks:] == ["/v1/models", "/info"]


@pytest.mark.parametrize("known", ["ollama", OTHER, "no such server", "vllm"])
def test_a_verdict_that_no_longer_holds_is_corrected(known) -> None:
    info = of_json({"max_total_tokens": 4096})
    with FaultServer({"/info": info}) as server:
        found = look(server, known=known)
    if known == "vllm":  # its list is all it has, and it is empty
        nothing(found)
    else:
        assert told(found) == [("allocated", 4096)]


@pytest.mark.parametrize("known", sorted(PROBES))
@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_no_server_breaks_on_any_answer(known, answer) -> None:
    nothing(hear({"*": answer}, known=known))
    nothing(hear({"/v1/models": listing("m"), "*": answer}, known=known))

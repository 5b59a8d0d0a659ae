"""Requests that carry no conversation: whom they go to, and what a list of models says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.serving import CHAT, Proxy, asked, proxied, sent, talk
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import Upstream
from ullage.proxy import listing

LISTED = {"object": "list", "data": [{"id": "large-1", "object": "model"}, {"id": "both"}]}
FIRST = ("large-*", "both")
SECOND = ("small-1", "both", "tiny-?", "large-2")


def pair(one: FaultServer, other: FaultServer, **more: Any) -> tuple[Upstream, ...]:
    """Return two upstreams that each serve named models only."""
    return (
        Upstream("one", one.root_url, models=FIRST),
        Upstream("other", other.root_url, models=SECOND, **more),
    )


def get(proxy: Proxy, path: str) -> Any:
    return proxy.client.get(proxy.url + path)


def test_a_list_has_the_models_that_other_upstreams_serve_by_their_names() -> None:
    with (
        FaultServer({"/v1/models": of_json(LISTED)}) as one,
        FaultServer({}) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
    ):
        got = get(proxy, "/v1/models")
    assert got.status_code == 200
    assert [entry["id"] for entry in got.json()["data"]] == ["large-1", "both", "small-1"]
    assert got.json()["data"][-1]["owned_by"] == "other"
    assert not other.requests


@pytest.mark.parametrize("answer", [{"data": [1]}, {"object": "list", "data": 1}, [1], "text"])
def test_a_list_of_another_form_is_relayed_as_it_came(answer: Any) -> None:
    with (
        FaultServer({"/v1/models": of_json(answer)}) as one,
        FaultServer({}) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
    ):
        got = get(proxy, "/v1/models")
    assert got.json() == answer


def test_a_list_too_long_to_keep_is_relayed_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WHOLE", 10)
    with (
        FaultServer({"/v1/models": of_json(LISTED)}) as one,
        FaultServer({}) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
    ):
        assert get(proxy, "/v1/models").json() == LISTED


def test_what_names_a_model_goes_to_the_upstream_that_serves_it() -> None:
    here = {"/v1/models/small-1": of_json({"id": "small-1"}), "/api/show": of_json({"a": 1})}
    with (
        FaultServer({}) as one,
        FaultServer(here) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
    ):
        assert get(proxy, "/v1/models/small-1").json() == {"id": "small-1"}
        for field in ("model", "name"):
            assert proxy.post("/api/show", {field: "small-1"}).json() == {"a": 1}
        lost = get(proxy, "/v1/models/huge")
    assert lost.status_code == 404
    assert "no upstream serves the model 'huge'" in lost.text
    assert not asked(one)


def test_what_names_no_model_goes_to_an_upstream_all_the_same() -> None:
    here = {"/v1/responses/r1": of_json({"id": "r1"}), "/api/show": of_json({"lost": True}, 404)}
    tags = {"models": [{"name": "small-1"}]}
    with (
        FaultServer(here) as one,
        FaultServer({"/api/tags": of_json(tags)}) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
        proxied("", upstreams=pair(one, other, server="ollama")) as declared,
    ):
        assert get(proxy, "/v1/responses/r1").json() == {"id": "r1"}
        assert get(declared, "/api/tags").json() == tags
        for odd in (b"no JSON", b"[]", b"{}"):
            assert proxy.post("/api/show", odd).json() == {"lost": True}


def test_a_list_comes_from_the_upstream_of_all_models_where_there_is_one() -> None:
    with (
        FaultServer({}) as one,
        FaultServer({"/v1/models": of_json({"object": "list", "data": []})}) as other,
    ):
        upstreams = (
            Upstream("one", one.root_url, models=("small-1",)),
            Upstream("other", other.root_url),
        )
        with proxied("", upstreams=upstreams) as proxy:
            got = get(proxy, "/v1/models")
    assert [entry["id"] for entry in got.json()["data"]] == ["small-1"]


def test_a_single_upstreams_list_is_relayed_as_it_came() -> None:
    answer = of_json(LISTED)
    with FaultServer({"/v1/models": answer}) as one:
        upstreams = (Upstream("one", one.root_url, models=FIRST),)
        with proxied("", upstreams=upstreams) as proxy:
            assert get(proxy, "/v1/models").content == sent(answer)


def test_a_conversation_without_a_model_is_told_what_it_lacks() -> None:
    body = talk("openai_chat", stream=False)
    del body["model"]
    with (
        FaultServer({}) as one,
        FaultServer({}) as other,
        proxied("", upstreams=pair(one, other)) as proxy,
    ):
        got = proxy.post(CHAT, body)
    assert got.status_code == 404
    assert "names no model, and no upstream serves all models: send 'model'" in got.text
    assert "None" not in got.text

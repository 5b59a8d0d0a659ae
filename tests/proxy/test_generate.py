"""Ollama's single prompts: measured, given the operator's window, refused rather than cut."""

from __future__ import annotations

import json

import pytest

from tests.proxy.serving import asked, proxied
from tests.support.faults import Answer, FaultServer, of_json
from ullage.config.serving import ModelRule, Upstream

PATH = "/api/generate"
PS = of_json({"models": [{"name": "m", "model": "m", "context_length": 512}]})
OLLAMA = {
    "GET /": Answer(200, (b"Ollama is running",), "text/plain"),
    "GET /api/version": of_json({"version": "0.12.0"}),
    "GET /api/ps": PS,
    "POST /api/show": of_json({"model_info": {"llama.context_length": 131_072}}),
    f"POST {PATH}": of_json({"response": "hi", "done": True, "prompt_eval_count": 9}),
}


def body(prompt: str, **more: object) -> bytes:
    return json.dumps({"model": "m", "prompt": prompt, "stream": False, **more}).encode()


def sent(upstream: FaultServer) -> list[dict[str, object]]:
    return [json.loads(request.body) for request in asked(upstream) if request.path == PATH]


def test_a_prompt_that_fits_goes_out_to_the_byte_and_is_measured():
    with FaultServer(OLLAMA) as upstream, proxied(upstream.root_url) as proxy:
        got = proxy.post(PATH, body("hello"))
        assert [r.body for r in asked(upstream) if r.path == PATH] == [body("hello")]
    assert got.json()["response"] == "hi"
    assert "used=" in got.headers["x-ullage-context"]


def test_the_operators_window_is_given_to_the_server():
    with FaultServer(OLLAMA) as upstream, proxied(upstream.root_url, num_ctx=4_096) as proxy:
        proxy.post(PATH, body("hello", options={"seed": 1, "num_ctx": 2_048}))
        assert sent(upstream)[0]["options"] == {"seed": 1, "num_ctx": 4_096}


@pytest.mark.parametrize("more", [{}, {"context": list(range(600))}])
def test_what_the_server_would_cut_in_silence_is_refused_in_its_words(more: dict[str, object]):
    prompt = "hello" if more else "word " * 900
    with (
        FaultServer(OLLAMA) as upstream,
        proxied(
            "",
            rules=(ModelRule(window=512),),
            upstreams=(Upstream("o", upstream.root_url, server="ollama"),),
        ) as proxy,
    ):
        got = proxy.post(PATH, body(prompt, **more))
        assert sent(upstream) == []
    assert got.status_code == 400
    assert "context length" in got.json()["error"]
    assert got.headers["x-ullage-error"] == "context_too_large"


def test_loading_a_model_is_no_prompt():
    with FaultServer(OLLAMA) as upstream, proxied(upstream.root_url) as proxy:
        proxy.post(PATH, body(""))
        assert [r.body for r in asked(upstream) if r.path == PATH] == [body("")]

"""Google's own client through the proxy, to a server that refuses what the service refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.proxy.serving import Proxy, proxied
from tests.support import clouds
from tests.support.faults import Answer, FaultServer
from ullage.config.serving import ModelRule, Upstream
from ullage.core.dialects.lines import Members
from ullage.core.dialects.registry import find
from ullage.core.dialects.sse import Garbled

MODEL = "gemini-x"
PATH = f"/v1beta/models/{MODEL}"
RULES = (ModelRule(window=clouds.WINDOW),)


@pytest.fixture
def server() -> Iterator[clouds.Cloud]:
    with clouds.running() as running:
        yield running


@pytest.fixture
def proxy(server: clouds.Cloud) -> Iterator[Proxy]:
    with proxied(server.url, rules=RULES) as made:
        yield made


@contextmanager
def client_of(proxy: Proxy) -> Iterator[genai.Client]:
    """Yield a client that lives as long as the block."""
    with genai.Client(api_key="k", http_options=types.HttpOptions(base_url=proxy.url)) as client:
        yield client


def talk(turns: int) -> list[Any]:
    """Return a history with a call of a tool in every turn."""
    contents: list[Any] = []
    for n in range(turns):
        call = {"functionCall": {"name": "find", "args": {"n": n}}, "thoughtSignature": "c2lnbg=="}
        result = {"name": "find", "response": {"output": f"found {n} " * 12}}
        contents += [
            {"role": "user", "parts": [{"text": f"question {n}? " * 4}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [{"functionResponse": result}]},
            {"role": "model", "parts": [{"text": f"answer {n}. " * 6}]},
        ]
    return [*contents, {"role": "user", "parts": [{"text": "and now?"}]}]


def test_a_history_beyond_the_window_is_answered(server: clouds.Cloud, proxy: Proxy) -> None:
    config = types.GenerateContentConfig(system_instruction="Be brief.", max_output_tokens=20)
    with client_of(proxy) as client:
        made = client.models.generate_content(model=MODEL, contents=talk(12), config=config)
    assert made.text == clouds.LONG
    sent = server.answered[-1]
    assert sent["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert sent["generationConfig"] == {"maxOutputTokens": 20}
    calls = [p for c in sent["contents"] for p in c["parts"] if "functionCall" in p]
    assert all("thoughtSignature" in part for part in calls)
    assert server.refused == []


def test_what_fits_goes_out_byte_for_byte(server: clouds.Cloud, proxy: Proxy) -> None:
    body = {"contents": talk(0), "generation_config": {"max_output_tokens": 7}, "x": [1.0]}
    answer = proxy.post(f"{PATH}:generateContent", body, x_goog_api_key="k")
    assert answer.status_code == 200
    assert server.answered == [body]
    assert "used=" in answer.headers["x-ullage-context"]


def test_a_stream_of_events_goes_through_and_is_learned_from(
    server: clouds.Cloud, proxy: Proxy
) -> None:
    with client_of(proxy) as client:
        stream = client.models.generate_content_stream(model=MODEL, contents=talk(12))
        assert "".join(chunk.text or "" for chunk in stream) == clouds.LONG
    assert server.refused == []
    assert proxy.shown("ullage_requests_total", model=MODEL, outcome="trimmed") == 1


def test_a_stream_that_is_an_array_goes_through(server: clouds.Cloud, proxy: Proxy) -> None:
    answer = proxy.post(f"{PATH}:streamGenerateContent", {"contents": talk(12)}, x_goog_api_key="k")
    members = answer.json()
    assert members[0]["candidates"][0]["content"]["parts"] == [{"text": clouds.LONG}]
    assert members[-1]["candidates"][0]["finishReason"] == "STOP"
    assert server.refused == []


def test_an_array_that_breaks_off_ends_with_an_error() -> None:
    begun = b"[" + json.dumps(clouds.chunk("a", 9)).encode() + b"\n"
    broken = Answer(blocks=(begun,), cut=True)
    with (
        FaultServer({f"POST {PATH}:streamGenerateContent": broken}) as upstream,
        proxied(upstream.base_url, rules=RULES) as proxy,
    ):
        answer = proxy.post(f"{PATH}:streamGenerateContent", {"contents": talk(0)})
    assert answer.json()[-1]["error"]["status"] == "INTERNAL"


def test_tokens_are_counted_by_the_server(server: clouds.Cloud, proxy: Proxy) -> None:
    with client_of(proxy) as client:
        counted = client.models.count_tokens(model=MODEL, contents=talk(2))
    assert counted.total_tokens
    assert counted.total_tokens > 100
    assert server.answered == []


def test_a_model_of_the_path_finds_its_upstream_and_its_rule(server: clouds.Cloud) -> None:
    upstreams = (Upstream("cloud", server.url, models=("gemini-*",)),)
    with proxied(server.url, rules=RULES, upstreams=upstreams) as proxy:
        for action in ("generateContent", "countTokens"):
            missing = proxy.post(f"/v1beta/models/other:{action}", {"contents": talk(0)})
            assert missing.status_code == 404
            assert missing.json()["error"]["status"] == "NOT_FOUND"
        with client_of(proxy) as client:
            with pytest.raises(errors.ClientError):
                client.models.generate_content(model="other", contents="hi")
            assert client.models.generate_content(model=MODEL, contents="hi").text


def test_a_key_in_the_query_is_a_credential_like_any_other(
    server: clouds.Cloud, proxy: Proxy
) -> None:
    path = f"{PATH}:generateContent?alt=json&key=sk%2Dmine"
    assert proxy.post(path, {"contents": talk(0)}).status_code == 200
    assert server.keys == ["sk-mine"]
    twice = proxy.post(path, {"contents": talk(0)}, x_goog_api_key="k")
    assert twice.status_code == 400


def test_the_operators_key_takes_the_place_of_a_token(server: clouds.Cloud) -> None:
    upstreams = (Upstream("cloud", server.url, api_key="operators"),)
    with proxied(server.url, rules=RULES, upstreams=upstreams, tokens={"me": "t" * 20}) as proxy:
        path = f"{PATH}:generateContent"
        assert proxy.post(path, {"contents": talk(0)}).status_code == 401
        assert proxy.post(path, {"contents": talk(0)}, x_goog_api_key="t" * 20).status_code == 200
        assert proxy.post(f"{path}?key={'t' * 20}", {"contents": talk(0)}).status_code == 200
    assert server.keys == ["operators"] * 2


def test_the_limit_of_an_answer_is_lowered_where_it_stands(server: clouds.Cloud) -> None:
    with proxied(server.url, rules=(ModelRule(window=400),)) as proxy:
        body = {
            "contents": talk(1),
            "generation_config": {"max_output_tokens": 390, "temperature": 0.5},
        }
        assert proxy.post(f"{PATH}:generateContent", body).status_code == 200
    config = server.answered[-1]["generation_config"]
    assert config["temperature"] == 0.5
    assert config["max_output_tokens"] < 390


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_members_are_cut_the_same_however_they_arrive(size: int) -> None:
    members = [{"a": 'x}"{\\'}, {"b": {"c": [1, {"d": "]"}]}}, {}]
    data = json.dumps(members, indent=1).encode()
    cutter = Members()
    found = [m for at in range(0, len(data), size) for m in cutter.feed(data[at : at + size])]
    assert [json.loads(member) for member in found] == members
    assert cutter.end() == b""


def test_a_member_beyond_the_bound_and_a_brace_too_many_are_told_apart() -> None:
    assert Members().feed(b"]}") == []
    with pytest.raises(Garbled, match="longer than 8 bytes"):
        Members(8).feed(b'[{"text": "too long"')


@pytest.mark.parametrize(
    ("left", "end"),
    [(b"", b"data: {"), (b"[", b"{"), (b'{"a": 1},\r\n', b"{"), (b'{"a": 1}\n', b",{")],
)
def test_a_stream_is_broken_off_in_its_own_form(left: bytes, end: bytes) -> None:
    assert find("gemini").errors.break_off("over", left).startswith(end)


def test_fields_are_found_by_either_spelling() -> None:
    place = find("gemini").fields
    assert place.spell({"contents": []}) is place
    snake = place.spell({"generation_config": {"max_output_tokens": 3}})
    assert (snake.system, snake.inside, snake.output) == (
        *("systemInstruction", "generation_config"),
        ("max_output_tokens",),
    )
    assert place.spell({"system_instruction": {}}).system == "system_instruction"


def test_a_list_of_models_is_the_servers() -> None:
    rows = Answer(blocks=(b'{"models": []}',))
    with (
        FaultServer({"GET /v1beta/models*": rows}) as upstream,
        proxied(upstream.base_url) as proxy,
    ):
        found: httpx2.Response = proxy.client.get(f"{proxy.url}/v1beta/models?pageSize=3")
        assert found.json() == {"models": []}
        assert upstream.requests[-1].path == "/v1beta/models?pageSize=3"

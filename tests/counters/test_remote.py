"""Counting by the server: what each kind is asked, how its answer reads, and the real llama.cpp."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.support.faults import FaultServer, of_json
from ullage.core.dialects import registry
from ullage.core.dialects.registry import find
from ullage.counters import remote
from ullage.counters.remote import CountingServer, Counts, Prompt, asking, read_count
from ullage.embedded import Server
from ullage.runtime import Runtime
from ullage.transport import HttpRequest, HttpResponse, Timeouts, Transport

BASE = "http://127.0.0.1:1"
HELLO = [{"role": "user", "content": "hello"}]
CHAT_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a thing up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
RESPONSES_TOOL = {"type": "function", **CHAT_TOOL["function"]}  # type: ignore[dict-item]  # JSON
CLAUDE_TOOL = {
    "name": "look_up",
    "description": "Look a thing up.",
    "input_schema": CHAT_TOOL["function"]["parameters"],  # type: ignore[index]  # JSON
}
DIALECTS = ["openai_chat", "openai_responses", "anthropic"]


def asked(server: str, dialect: str, key: str | None = "sk-1", **more: Any) -> HttpRequest:
    found = asking(CountingServer(server, BASE, key), Prompt(find(dialect), "m", HELLO, **more))
    assert found is not None
    return found


# ── what is asked ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("server", ["llama.cpp", "llama-swap"])
@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        (
            "openai_chat",
            "/v1/chat/completions/input_tokens",
            {"messages": [{"role": "system", "content": "s"}, *HELLO]},
        ),
        ("openai_responses", "/v1/responses/input_tokens", {"input": HELLO, "instructions": "s"}),
        ("anthropic", "/v1/messages/count_tokens", {"messages": HELLO, "system": "s"}),
    ],
)
def test_llama_cpp_is_asked_in_the_dialect_of_the_request(
    server: str, dialect: str, path: str, body: dict
):
    found = asked(server, dialect, system="s", tools=[{"a": 1}])
    assert found.url == BASE + path
    assert found.body == {"model": "m", "tools": [{"a": 1}], **body}
    assert found.headers() == {"authorization": "Bearer sk-1"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_request_lacks_is_not_sent(dialect: str):
    field = "input" if dialect == "openai_responses" else "messages"
    found = asked("llama.cpp", dialect, None, tools=[], system="")
    assert found.body == {"model": "m", field: HELLO}
    assert found.headers() == {}


def test_llama_cpp_counts_nothing_in_a_dialect_that_it_does_not_speak():
    assert (
        remote.asking(CountingServer("llama.cpp", BASE), Prompt(find("ollama_chat"), "m", HELLO))
        is None
    )


def test_vllm_tokenizes_a_chat_with_its_template():
    found = asked("vllm", "openai_chat", tools=[CHAT_TOOL])
    assert found.url == f"{BASE}/tokenize"
    assert found.body == {
        "model": "m",
        "messages": HELLO,
        "tools": [CHAT_TOOL],
        "add_generation_prompt": True,
    }


def test_anthropic_is_asked_with_its_own_headers():
    found = asked("anthropic", "anthropic", system=[{"type": "text", "text": "s"}])
    assert found.url == f"{BASE}/v1/messages/count_tokens"
    assert found.headers() == {"x-api-key": "sk-1", "anthropic-version": "2023-06-01"}
    assert found.body == {
        "model": "m",
        "messages": HELLO,
        "system": [{"type": "text", "text": "s"}],
    }


def test_gemini_is_asked_in_its_own_words_whatever_the_path_of_its_openai_dialect():
    place = CountingServer("gemini", "https://g.example/v1beta/openai", "sk-1")
    said = [*HELLO, {"role": "assistant", "content": "hi"}]
    found = asking(place, Prompt(find("openai_chat"), "models/gemini-2.5-pro", said, system="s"))
    assert found is not None
    assert found.url == "https://g.example/v1beta/models/gemini-2.5-pro:countTokens"
    assert found.headers() == {"x-goog-api-key": "sk-1"}
    assert found.body == {
        "generateContentRequest": {
            "model": "models/gemini-2.5-pro",
            "contents": [
                {"role": "user", "parts": [{"text": "hello"}]},
                {"role": "model", "parts": [{"text": "hi"}]},
            ],
            "systemInstruction": {"parts": [{"text": "s"}]},
        }
    }


def test_a_model_id_cannot_lead_to_another_path_of_gemini():
    place = CountingServer("gemini", "https://g.example", "sk-1")
    found = asking(place, Prompt(find("openai_chat"), "../../v1/files?x=", HELLO))
    assert found is not None
    assert found.url == "https://g.example/v1beta/models/..%2F..%2Fv1%2Ffiles%3Fx%3D:countTokens"


@pytest.mark.parametrize(
    ("server", "prompt", "key"),
    [
        ("ollama", Prompt(find("openai_chat"), "m", HELLO), "sk-1"),
        ("", Prompt(find("openai_chat"), "m", HELLO), "sk-1"),
        ("vllm", Prompt(find("anthropic"), "m", HELLO), "sk-1"),
        ("vllm", Prompt(find("openai_responses"), "m", HELLO), "sk-1"),
        ("anthropic", Prompt(find("anthropic"), "m", HELLO), None),
        ("anthropic", Prompt(find("openai_chat"), "m", HELLO), "sk-1"),
        ("gemini", Prompt(find("openai_chat"), "m", HELLO), None),
        ("gemini", Prompt(find("openai_chat"), "m", HELLO, tools=[CHAT_TOOL]), "sk-1"),
        ("gemini", Prompt(find("openai_responses"), "m", HELLO), "sk-1"),
        ("gemini", Prompt(find("openai_chat"), "m", [{"role": "tool", "content": "x"}]), "sk-1"),
        ("gemini", Prompt(find("openai_chat"), "m", [{"role": "user", "content": []}]), "sk-1"),
        ("gemini", Prompt(find("openai_chat"), "m", [{**HELLO[0], "name": "ada"}]), "sk-1"),
    ],
)
def test_what_a_server_does_not_count_is_not_asked(server: str, prompt: Prompt, key: str | None):
    assert asking(CountingServer(server, BASE, key), prompt) is None


def test_a_key_does_not_show_where_a_place_is_printed():
    assert "sk-1" not in repr(CountingServer("anthropic", BASE, "sk-1"))


# ── how an answer reads ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    [
        {"input_tokens": 7, "object": "response.input_tokens"},  # llama.cpp, Anthropic
        {"count": 7, "max_model_len": 4096, "tokens": [1, 2]},  # vLLM
        {"totalTokens": 7, "promptTokensDetails": []},  # Gemini
    ],
)
def test_each_servers_answer_is_read(body: dict):
    assert read_count(HttpResponse(200, json.dumps(body).encode())) == 7


@pytest.mark.parametrize(
    "answer",
    [
        *[
            HttpResponse(200, json.dumps({"input_tokens": n}).encode())
            for n in (0, -7, True, "7", 7.0)
        ],
        HttpResponse(200, b'{"input_tokens": null}'),
        HttpResponse(200, b"{}"),
        HttpResponse(200, b"[7]"),
        HttpResponse(200, b"7"),
        HttpResponse(200, b"<html>"),
        HttpResponse(200, b""),
        HttpResponse(404, b'{"input_tokens": 7}'),
        HttpResponse(500, b'{"count": 7}'),
        HttpResponse(0, fault="gone"),
    ],
    ids=repr,
)
def test_a_broken_answer_is_no_count(answer: HttpResponse):
    assert read_count(answer) is None
    counts, ask = Counts(), HttpRequest(BASE, {})
    assert counts.keep_count(ask, answer) is None
    assert counts.find_count(ask) is None


@given(st.binary(max_size=40), st.sampled_from([0, 200, 201, 400, 503]))
def test_any_answer_is_a_positive_number_or_none(body: bytes, status: int):
    found = read_count(HttpResponse(status, body))
    assert found is None or (found > 0 and status == 200)


# ── counts that were heard ──────────────────────────────────────────────────────────────────────

SEVEN = HttpResponse(200, b'{"input_tokens": 7}')
JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)
ASKS = st.builds(
    HttpRequest,
    st.sampled_from([BASE, "http://127.0.0.1:2"]),
    st.dictionaries(st.sampled_from(["model", "messages"]), JSON),
    st.sampled_from([None, "sk-1"]),
)


@given(ASKS, ASKS)
def test_a_count_is_known_for_the_same_request_and_no_other(one: HttpRequest, other: HttpRequest):
    counts = Counts()
    assert counts.keep_count(one, SEVEN) == 7
    assert counts.find_count(one) == 7
    texts = [json.dumps([ask.url, ask.body, ask.api_key]) for ask in (one, other)]
    same = texts[0] == texts[1]
    assert counts.find_count(other) == (7 if same else None)


@pytest.mark.parametrize("body", [{("a", "b"): 1}, {"n": {("a",): 1, "b": 2}}])
def test_what_json_cannot_carry_is_not_known(body: dict):
    counts = Counts()
    counts.keep_count(HttpRequest(BASE, {"n": 1}), SEVEN)
    assert counts.find_count(HttpRequest(BASE, body)) is None


def test_a_count_is_kept_for_text_that_is_no_unicode():
    counts, ask = Counts(), HttpRequest(BASE, {"messages": "\ud800"})
    counts.keep_count(ask, SEVEN)
    assert counts.find_count(ask) == 7


def test_the_count_used_longest_ago_is_forgotten_first():
    counts = Counts(most=2)
    asks = [HttpRequest(BASE, {"n": n}) for n in range(3)]
    counts.keep_count(asks[0], SEVEN)
    counts.keep_count(asks[1], SEVEN)
    assert counts.find_count(asks[0]) == 7
    counts.keep_count(asks[2], SEVEN)
    assert [counts.find_count(ask) for ask in asks] == [7, None, 7]


def test_no_key_and_no_text_is_kept():
    counts = Counts()
    counts.keep_count(HttpRequest(BASE, {"messages": "a secret"}, "sk-1"), SEVEN)
    ((identity, _),) = counts._kept.items()
    assert len(identity) == 16


# ── servers that play their part ────────────────────────────────────────────────────────────────


def test_vllm_counts_a_request_and_is_asked_once():
    card = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 4096}
    routes = {
        "/v1/models": of_json({"object": "list", "data": [card]}),
        "POST /tokenize": of_json({"count": 41, "max_model_len": 4096, "tokens": []}),
    }
    with FaultServer(routes) as server:
        options: Any = {"model": "m", "base_url": server.base_url, "runtime": Runtime()}
        for _ in range(2):
            found = ullage.count(HELLO, tools=[CHAT_TOOL], **options)
            assert (found.tokens, found.basis) == (41, "server")
        body = [json.loads(r.body) for r in server.requests if r.path == "/tokenize"]
    assert [b["add_generation_prompt"] for b in body] == [True]


# ── the real llama.cpp ──────────────────────────────────────────────────────────────────────────

TURNS = "The codeword is marlin.", "Noted: marlin.", "Look item 7 up, please."
SYSTEM = "You keep a ship's log."
CHAT = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": TURNS[0]},
    {"role": "assistant", "content": TURNS[1]},
    {"role": "user", "content": TURNS[2]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"what": "item 7"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Item 7: fair wind."},
]
CLAUDE = [
    *CHAT[1:4],
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"what": "item 7"}}
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Item 7: fair wind."}],
    },
]
RESPONSES = [
    *CHAT[1:2],
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": TURNS[1]}],
    },
    CHAT[3],
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "look_up",
        "arguments": '{"what": "item 7"}',
    },
    {"type": "function_call_output", "call_id": "c1", "output": "Item 7: fair wind."},
]


def sent(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the usage that a real server reports for a request."""
    body = {"model": "tiny", **body}
    answer = Transport(Timeouts(read_s=60.0)).ask(HttpRequest(server.root_url + path, body))
    assert answer.status == 200, answer.body
    usage: dict[str, Any] = answer.json()["usage"]
    return usage


def by_server(server: Server, messages: Any, **more: Any) -> int:
    found = ullage.count(
        messages, model="tiny", base_url=server.base_url, runtime=Runtime(), **more
    )
    assert found.basis == "server"
    assert found.low == found.tokens == found.high
    return found.tokens


@pytest.mark.parametrize("upto", [2, 4, 6])
@pytest.mark.parametrize("tools", [None, [CHAT_TOOL]])
def test_a_count_of_a_chat_is_what_llama_cpp_then_reports(tiny_server: Server, tools, upto: int):
    body = {"messages": CHAT[:upto], "max_tokens": 1, **({"tools": tools} if tools else {})}
    usage = sent(tiny_server, "/v1/chat/completions", body)
    assert by_server(tiny_server, CHAT[:upto], tools=tools) == usage["prompt_tokens"]


@pytest.mark.parametrize("upto", [1, 3, 5])
@pytest.mark.parametrize("tools", [None, [CLAUDE_TOOL]])
def test_a_count_of_claudes_messages_is_what_llama_cpp_then_reports(
    tiny_server: Server, tools, upto: int
):
    body = {"messages": CLAUDE[:upto], "system": SYSTEM, "max_tokens": 1}
    usage = sent(tiny_server, "/v1/messages", {**body, **({"tools": tools} if tools else {})})
    reported = usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    found = by_server(tiny_server, CLAUDE[:upto], system=SYSTEM, tools=tools, dialect="anthropic")
    assert found == reported == ullage.Usage.from_report(usage).prompt_tokens  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize("upto", [1, 3, 5])
@pytest.mark.parametrize("tools", [None, [RESPONSES_TOOL]])
def test_a_count_of_a_responses_input_is_what_llama_cpp_then_reports(
    tiny_server: Server, tools, upto: int
):
    body = {"input": RESPONSES[:upto], "instructions": SYSTEM, "max_output_tokens": 1}
    usage = sent(tiny_server, "/v1/responses", {**body, **({"tools": tools} if tools else {})})
    found = by_server(
        tiny_server, RESPONSES[:upto], system=SYSTEM, tools=tools, dialect="openai_responses"
    )
    assert found == usage["input_tokens"]


def test_a_dialect_that_llama_cpp_does_not_speak_has_no_path():
    paths = {name: find(name).endpoint.counts for name in registry.DIALECTS}
    assert [name for name, path in paths.items() if path is None] == [
        "ollama_chat",
        "gemini",
        "bedrock_converse",
    ]

"""A row of the table belongs to who serves the model: a matrix of hosts and names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.support.faults import FaultServer, closed_port, of_json
from ullage.config.settings import Settings
from ullage.runtime import Runtime
from ullage.windows.table import WindowTable

OFFLINE = Runtime(settings=Settings(offline=True))
TABLE = WindowTable()

STRANGE = (
    "http://127.0.0.1:8080/v1",
    "http://localhost:11434",
    "http://[::1]:1234/v1",
    "http://192.168.1.20:8000/v1",
    "https://llm.corp.example/v1",
    "https://api.openai.com.example.org/v1",
    "https://dashscope.aliyuncs.com@gpu.example/v1",
    "https://gpu.example/api.openai.com/v1",
    "https://gpu.example/v1?host=api.anthropic.com",
    "https://notapi.openai.com/v1",
)
"""Hosts of nobody known, some of which carry a provider's name in another place."""

HOSTS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "alibaba": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "groq": "https://api.groq.com/openai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "bedrock": "https://bedrock-runtime.eu-west-1.amazonaws.com",
    "vertex": "https://europe-west1-aiplatform.googleapis.com/v1",
}
"""One base URL of each of these providers, by the table's name."""

NAMES = (
    "qwen3-8b", "gpt-4", "gpt-4o-2024-08-06", "claude-sonnet-4-5", "gemini-2.5-pro",
    "openai/gpt-4o", "google/gemini-2.5-pro", "openrouter/openai/gpt-4o", "groq/openai/gpt-oss-20b",
    "publishers/anthropic/models/claude-sonnet-4-5", "ft:gpt-4o-mini:acme::x",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
)  # fmt: skip
"""Names that lead to a row, or name a provider by their form."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("url", STRANGE)
def test_at_a_strange_host_no_name_has_a_hosted_window_or_price(url: str, name: str) -> None:
    found = ullage.window(name, base_url=url, runtime=OFFLINE)
    assert (found.known, found.claims) == (False, ())
    assert ullage.Guard(name, base_url=url, runtime=OFFLINE).window() == found
    assert ullage.cost(1_000, name, base_url=url, runtime=OFFLINE).total is None


@given(model=st.sampled_from(TABLE.ids()), url=st.sampled_from(STRANGE))
def test_no_row_of_the_table_reaches_a_strange_host(model: str, url: str) -> None:
    assert not ullage.window(model, base_url=url, runtime=OFFLINE).known
    assert ullage.window(model, runtime=OFFLINE).known


@pytest.mark.parametrize("url", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_providers_host_has_that_providers_rows_and_no_others(url: str, name: str) -> None:
    host = next(provider for provider, its in HOSTS.items() if its == url)
    row = TABLE.row(name, host)
    found = ullage.window(name, base_url=url, runtime=OFFLINE)
    assert found.input_tokens == (row.bound if row is not None else None)


@pytest.mark.parametrize("url", STRANGE)
def test_a_provider_that_the_operator_names_wins_over_the_host(url: str) -> None:
    found = ullage.window("qwen3-8b", base_url=url, provider="alibaba", runtime=OFFLINE)
    assert found == ullage.window("qwen3-8b", runtime=OFFLINE)
    paid = ullage.cost(1_000, "qwen3-8b", base_url=url, provider="alibaba", runtime=OFFLINE)
    assert paid == ullage.cost(1_000, "qwen3-8b", runtime=OFFLINE)


def test_an_unknown_window_names_the_row_that_was_left_out_and_how_to_use_it() -> None:
    found = ullage.window("qwen3-8b", base_url=STRANGE[0], runtime=OFFLINE)
    said = (
        "the table's 131,072 tokens for 'qwen3-8b' are alibaba's, whose host this is not; "
        "provider='alibaba' uses them anyway"
    )
    assert found.warnings == (said,)
    assert not ullage.window("nobodys-model", base_url=STRANGE[0], runtime=OFFLINE).warnings


def test_a_base_model_leads_to_a_row_at_a_strange_host_only_with_its_provider() -> None:
    models = {"ours": "openai/gpt-4", "bare": "gpt-4", "typo": "opnai/gpt-4"}
    gateway = Runtime(settings=Settings(offline=True, base_models=models))
    asked = {
        name: ullage.window(name, base_url="https://llm.corp.example/v1", runtime=gateway)
        for name in models
    }
    assert {name: found.input_tokens for name, found in asked.items()} == {
        "ours": 8192, "bare": None, "typo": None,
    }  # fmt: skip


def test_a_dead_server_leaves_the_window_unknown_whatever_the_name() -> None:
    with closed_port() as port:
        found = ullage.window("gpt-4", base_url=f"http://127.0.0.1:{port}/v1", runtime=Runtime())
    assert not found.known
    assert "gave no answer" in found.explain()
    assert "openai's" in found.explain()


@pytest.mark.parametrize("name", ["qwen3-8b", "gpt-4o", "claude-sonnet-4-5"])
def test_what_the_server_itself_says_holds_under_a_hosted_name(name: str) -> None:
    answer = of_json({"object": "list", "data": [{"id": name, "max_model_len": 16_384}]})
    with FaultServer({"/v1/models": answer}) as server:
        found = ullage.window(name, base_url=server.base_url, runtime=Runtime())
    assert (found.input_tokens, found.source) == (16_384, "probe")
    assert {claim.source for claim in found.claims} == {"probe"}


@pytest.mark.parametrize("name", ["gpt-4", "anthropic/claude-sonnet-4-5"])
def test_a_wrapped_client_sends_a_local_server_all_of_a_history_under_a_hosted_name(
    name: str,
) -> None:
    messages = _history()
    answer = of_json(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": name,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "yes"},
                }
            ],
        }
    )
    with (
        FaultServer({"/v1/chat/completions": answer}) as server,
        openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client,
    ):
        guarded = ullage.wrap(client, runtime=Runtime())
        guarded.chat.completions.create(model=name, messages=messages)
        sent = [r for r in server.requests if r.path == "/v1/chat/completions"]
    assert [json.loads(request.body)["messages"] for request in sent] == [messages]


def test_the_models_of_a_server_are_its_own_and_never_the_tables() -> None:
    cards = [{"id": "qwen3-8b"}, {"id": "mine", "max_model_len": 8_192}, {"no": "id"}]
    with FaultServer({"/v1/models": of_json({"object": "list", "data": cards})}) as server:
        runtime = Runtime()
        found = ullage.models(base_url=server.base_url, runtime=runtime)
        assert [(name, window.input_tokens) for name, window in found] == [
            ("mine", 8_192), ("qwen3-8b", None),
        ]  # fmt: skip
        # What was listed says nothing to a question about one model, which probes by itself.
        assert not ullage.window("absent", base_url=server.base_url, runtime=runtime).known
    with FaultServer({}) as silent:
        assert ullage.models(base_url=silent.base_url, runtime=Runtime()) == []
    assert ullage.models(base_url=STRANGE[0], runtime=OFFLINE) == []


def test_of_llama_cpps_list_only_what_is_allocated_is_a_window() -> None:
    card = {"id": "m", "owned_by": "llamacpp", "context_length": 40_960, "meta": {"n_ctx": 4_096}}
    bare = {"id": "b", "owned_by": "llamacpp", "context_length": 40_960}
    with FaultServer({"/v1/models": of_json({"data": [card, bare]})}) as server:
        found = ullage.models(base_url=server.base_url, runtime=Runtime())
    assert [window.input_tokens for _, window in found] == [None, 4_096]


def test_the_command_says_unknown_for_a_hosted_name_at_a_local_port(tmp_path: Path) -> None:
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        asked = ("window", "qwen3-8b", "--base-url", url, "--json")
        done = subprocess.run(
            [sys.executable, "-m", "ullage", *asked],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        )
    told = json.loads(done.stdout)
    assert (told["known"], told["input_tokens"]) == (False, None)


def _history() -> Any:
    """Return a conversation that is far larger than gpt-4's window of 8,192 tokens."""
    said = "The cellar holds forty casks, and each has its own list of what was drawn from it. "
    turns = [
        {"role": role, "content": f"{number}: {said * 12}"}
        for number in range(120)
        for role in ("user", "assistant")
    ]
    return [*turns, {"role": "user", "content": "Which one is empty?"}]

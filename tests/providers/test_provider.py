"""Whom to call, checked once, and the requests that come of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ullage.core.dialects.openai import is_openai
from ullage.core.dialects.registry import find
from ullage.core.errors import ConfigurationError
from ullage.providers import Client, Limits, Provider, bodies

BASE = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": ""}, "needs a model"),
        ({"base_url": ""}, "needs a base_url"),
        ({"base_url": "localhost:8080"}, "http://"),
        ({"base_url": "ftp://h/v1"}, "http://"),
        ({"base_url": "http://[::1"}, "http://"),
        ({"base_url": "http:///v1"}, "http://"),
        ({"dialect": "cohere"}, "'cohere' is unknown"),
    ],
)
def test_a_provider_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Provider(**{"model": "m", "base_url": BASE, **fields})


@pytest.mark.parametrize("name", ["stall_s", "connect_s", "attempts", "longest_wait_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_positive(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is {value}"):
        Limits(**{name: value})  # type: ignore[arg-type]  # one field, by name


def test_dialects_have_short_names() -> None:
    assert Provider("m", BASE, "claude").dialect == "anthropic"
    assert dataclasses.replace(Provider("m", BASE), model="n").model == "n"


def test_what_is_shown_of_a_provider_holds_no_secret() -> None:
    secret = {"x": "sentinel"}
    made = Provider("m", "http://me:sentinel@h/v1", "anthropic", "sentinel", secret, secret)
    for shown in (repr(made), repr(Client(made)), str(made)):
        assert "sentinel" not in shown
    assert repr(made) == "Provider('m', 'http://h/v1', 'anthropic')"


@pytest.mark.parametrize(
    ("base", "dialect", "url"),
    [
        ("http://h/v1", "openai_chat", "http://h/v1/chat/completions"),
        ("http://h/v1/", "openai_responses", "http://h/v1/responses"),
        ("http://h/v1", "anthropic", "http://h/v1/messages"),
        ("http://h", "anthropic", "http://h/v1/messages"),
    ],
)
def test_each_dialect_has_its_address(base: str, dialect: Any, url: str) -> None:
    assert find(dialect).endpoint.address(base, "m") == url


@pytest.mark.parametrize(
    ("base", "own"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.OpenAI.com/v1", True),
        ("https://mine.openai.azure.com/openai/v1", True),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://notapi.openai.com/v1", False),
        (BASE, False),
    ],
)
def test_openais_own_host_is_told(base: str, own: bool) -> None:
    assert is_openai(base) is own


def test_chat_asks_for_usage() -> None:
    made = bodies.body(Provider("m", BASE), {"messages": [1]})
    assert made == {
        "messages": [1], "model": "m", "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_responses_are_not_kept_and_their_reasoning_comes_encrypted_where_openai_answers() -> None:
    made = bodies.body(Provider("m", BASE, "openai_responses"), {"input": "hi"})
    assert made == {"input": "hi", "model": "m", "stream": True, "store": False}
    own = Provider("m", "https://api.openai.com/v1", "openai_responses")
    assert bodies.body(own, {})["include"] == ["reasoning.encrypted_content"]


def test_anthropic_is_told_a_limit_where_the_caller_sets_none() -> None:
    provider = Provider("m", BASE, "anthropic")
    assert bodies.body(provider, {})["max_tokens"] == 4096
    assert bodies.body(provider, {"max_tokens": 7})["max_tokens"] == 7
    assert bodies.body(dataclasses.replace(provider, options={"max_tokens": 9}), {})[
        "max_tokens"
    ] == 9  # fmt: skip


def test_options_win_over_defaults_and_never_over_what_is_asked() -> None:
    options = {
        "temperature": 0.5, "stream_options": {}, "messages": [], "stream": False, "model": "x",
        "nested": {"a": [None]},
    }  # fmt: skip
    made = bodies.body(Provider("m", BASE, options=options), {"messages": [1]})
    assert made == {
        "temperature": 0.5, "stream_options": {}, "messages": [1], "stream": True, "model": "m",
        "nested": {"a": [None]},
    }  # fmt: skip


def test_encrypted_reasoning_is_left_out_where_a_model_has_none() -> None:
    own = Provider("m", "https://api.openai.com/v1", "openai_responses")
    words = "Encrypted content is not supported with this model."
    quirk = bodies.find_quirk(bodies.body(own, {}), own, words)
    assert quirk is not None
    assert "include" not in bodies.body(own, {}, [quirk])


def test_a_refusal_of_something_else_changes_nothing() -> None:
    provider = Provider("m", BASE)
    assert bodies.find_quirk(bodies.body(provider, {}), provider, "tools are unknown") is None


def test_headers_carry_key_and_version_by_dialect() -> None:
    chat = bodies.ask(Provider("m", BASE, api_key="sk-1"), {}).headers()
    assert chat["authorization"] == "Bearer sk-1"
    assert "anthropic-version" not in chat
    claude = bodies.ask(Provider("m", BASE, "anthropic", "sk-1"), {}).headers()
    assert (claude["x-api-key"], claude["anthropic-version"]) == ("sk-1", "2023-06-01")
    assert "authorization" not in claude


def test_headers_of_the_operator_win_whatever_their_case() -> None:
    own = {"Authorization": "Api-Key z", "Anthropic-Version": "2030-01-01"}
    made = bodies.ask(Provider("m", BASE, "anthropic", "k", headers=own), {}).headers()
    assert made["authorization"] == "Api-Key z"
    assert made["anthropic-version"] == "2030-01-01"

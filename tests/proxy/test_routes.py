"""The routes as data: what is guarded, what is forwarded, and that nothing else is there."""

from __future__ import annotations

import pytest

from ullage.proxy import routes


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/gpt-4o"),
        ("GET", "/v1/models/org/name:tag@1"),
        ("GET", "/v1/responses/resp_1-a"),
        ("DELETE", "/v1/responses/resp_1-a"),
        ("GET", "/api/tags"),
        ("GET", "/api/ps"),
        ("GET", "/api/version"),
        ("POST", "/api/show"),
        ("HEAD", "/"),
    ],
)
def test_these_are_forwarded_as_they_are(method: str, path: str) -> None:
    assert routes.plain(method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/"),
        ("POST", "/v1/models"),
        ("GET", "/v1/models/"),
        ("GET", "/v1/models/../admin"),
        ("GET", "/v1/models/a//b"),
        ("GET", "/v1/models/.."),
        ("GET", "/v1/models/a?b"),
        ("GET", "/v1/models\n"),
        ("GET", "/v1/responses/a/input_items"),
        ("POST", "/v1/responses/a"),
        ("GET", "/api/show"),
        ("POST", "/api/pull"),
        ("DELETE", "/api/delete"),
        ("GET", "http://evil.example/v1/models"),
    ],
)
def test_nothing_else_is(method: str, path: str) -> None:
    assert not routes.plain(method, path)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "openai_chat"),
        ("/v1/responses", "openai_responses"),
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/api/chat", "ollama_chat"),
        ("/api/generate", "ollama_chat"),
        ("/v1/embeddings", "openai_chat"),
        ("/nowhere", "openai_chat"),
    ],
)
def test_errors_are_told_in_the_dialect_of_the_path(path: str, dialect: str) -> None:
    assert routes.dialect(path) == dialect


def test_no_path_is_both_guarded_and_forwarded() -> None:
    both = routes.GUARDED.keys() & routes.CHECKED
    assert not both
    assert not any(routes.plain("POST", path) for path in [*routes.GUARDED, *routes.CHECKED])

"""A model's vocabulary is what is published for its id, and unknown for every other id."""

from __future__ import annotations

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from ullage.counters import Vocabulary, vocabulary
from ullage.counters.models import _FAMILIES, _FAMILY_OF, _NAMES, STAND_IN, _expand_ids

KNOWN = [
    ("gpt-4o", "o200k_base"),
    ("gpt-4o-2024-08-06", "o200k_base"),
    ("gpt-4o-mini-2024-07-18", "o200k_base"),
    ("chatgpt-4o-latest", "o200k_base"),
    ("openai/gpt-4.1-nano", "o200k_base"),
    ("gpt-5-2025-08-07", "o200k_base"),
    ("o3-mini-2025-01-31", "o200k_base"),
    ("ft:gpt-4o-mini-2024-07-18:acme::7p4lURel", "o200k_base"),
    ("ft:gpt-3.5-turbo-0125:acme:x:1", "cl100k_base"),
    ("gpt-4-turbo-2024-04-09", "cl100k_base"),
    ("gpt-4-0613", "cl100k_base"),
    ("gpt-3.5-turbo", "cl100k_base"),
    ("gpt-oss-20b", "o200k_harmony"),
    ("openai/gpt-oss-120b", "o200k_harmony"),
]
UNKNOWN = [
    None, "", "gpt-4o-super", "gpt-4oh", "my-gpt-4o", "gpt", "o", "o2", "llama-3.1", "openai/",
    "ft:", "ft:llama:x", "mistral/gpt-4o", "gpt-4o-2024-99-99", "gpt-4o-2024-08-06-2024-08-06",
    "gpt-5.99", "claude-sonnet", "gpt-4o\n",
    "deepseek-v2.5", "deepseek-coder", "deepseek-r1-distill-qwen-7b", "Qwen/Qwen2-7B-Instruct",
    "qwen-max", "qwen3", "acme/Qwen3-8B", "Qwen3-8B-acme", "qwen3-8b-2025-01-01", "glm-4.6",
    "glm-4-plus", "mistral-small-latest", "llama-2-7b", "claude-2", "claude-sonnet-latest",
    "claude-haiku-5-5", "claude-3-5-sonnet-20241399", "qwen3-8b-20250101", "google/gemma-2-9b-it",
]  # fmt: skip


FAMILIES = [
    ("deepseek-chat", "deepseek-v3"),
    ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ("deepseek/deepseek-chat-v3-0324", "deepseek-v3"),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen3"),
    ("Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "qwen3"),
    ("qwen/qwen3-235b-a22b-thinking-2507", "qwen3"),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3"),
    ("Qwen/Qwen3.5-9B", "qwen3.5"),
    ("zai-org/GLM-4.5-Air", "glm-4"),
    ("z-ai/glm-5.2", "glm-4.7"),
    ("MiniMaxAI/MiniMax-M2.5", "minimax"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
    ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3"),
    ("mistralai/Mistral-Nemo-Instruct-2407", "tekken"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-v3"),
    ("google/gemma-3-27b-it", "gemma3"),
    ("claude-3-5-sonnet-20241022", "claude-3"),
    ("claude-3-opus@20240229", "claude-3"),
    ("anthropic/claude-sonnet-4.5", "claude-3"),
    ("claude-opus-4-6", "claude-3"),
    ("claude-opus-4-7-20260416", "claude-4.7"),
]


@pytest.mark.parametrize(("model", "name"), KNOWN)
def test_a_published_id_has_its_vocabulary(model: str, name: str) -> None:
    assert vocabulary(model) == Vocabulary(name, exact=True)


@pytest.mark.parametrize("model", UNKNOWN)
def test_an_unknown_id_borrows_nothing(model: str | None) -> None:
    assert vocabulary(model) == STAND_IN
    assert not STAND_IN.exact


@pytest.mark.parametrize(("model", "family"), FAMILIES)
def test_a_listed_id_has_its_family_and_a_stand_in(model: str, family: str) -> None:
    assert vocabulary(model) == Vocabulary("o200k_base", exact=False, family=family)


def test_an_id_is_of_one_family_and_written_in_lower_case() -> None:
    ids = [model for family in _FAMILIES.values() for model in _expand_ids(family.ids)]
    assert len(ids) == len(set(ids))
    assert all(model == model.lower() and "{" not in model for model in _FAMILY_OF)


@pytest.mark.parametrize("model", [m for m in _NAMES if ":" not in m])
def test_the_table_agrees_with_tiktoken(model: str) -> None:
    assert tiktoken.encoding_name_for_model(model) == _NAMES[model]


@given(st.text(max_size=30))
def test_any_string_has_an_answer(model: str) -> None:
    assert vocabulary(model).name

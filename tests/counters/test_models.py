"""A model's vocabulary is what is published for its id, and unknown for every other id."""

from __future__ import annotations

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from ullage.counters import Vocabulary, vocabulary
from ullage.counters.models import _NAMES, STAND_IN

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
    None, "", "gpt-4o-super", "gpt-4oh", "my-gpt-4o", "gpt", "o", "o2", "llama-3.1-8b", "openai/",
    "ft:", "ft:llama:x", "mistral/gpt-4o", "gpt-4o-2024-99-99", "gpt-4o-2024-08-06-2024-08-06",
    "gpt-5.99", "claude-sonnet-4-5", "gpt-4o\n",
]  # fmt: skip


@pytest.mark.parametrize(("model", "name"), KNOWN)
def test_a_published_id_has_its_vocabulary(model: str, name: str) -> None:
    assert vocabulary(model) == Vocabulary(name, exact=True)


@pytest.mark.parametrize("model", UNKNOWN)
def test_an_unknown_id_borrows_nothing(model: str | None) -> None:
    assert vocabulary(model) == STAND_IN
    assert not STAND_IN.exact


@pytest.mark.parametrize("model", [m for m in _NAMES if ":" not in m])
def test_the_table_agrees_with_tiktoken(model: str) -> None:
    assert tiktoken.encoding_name_for_model(model) == _NAMES[model]


@given(st.text(max_size=30))
def test_any_string_has_an_answer(model: str) -> None:
    assert vocabulary(model).name

"""The table of families: names as providers, gateways and clouds spell them."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.dialects.families import ROWS, find_family


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-fable-5-1", "bound"),
        ("claude-fable-5-2", "bound"),
        ("claude-mythos-5-2", "bound"),
        ("claude-opus-5-5", "bound"),
        ("claude-opus-5-5-20260901", "bound"),
        ("anthropic/claude-sonnet-5.5", "bound"),
        ("us.anthropic.claude-haiku-5-5-v1:0", "bound"),
        ("claude-fable-5", "demanded"),
        ("claude-opus-5", "demanded"),
        ("claude-sonnet-5-20260401", "demanded"),
        ("claude-sonnet-4-5-20250929", "demanded"),
        ("claude-3-7-sonnet-20250219", "demanded"),
        ("claude-opus-5-55", "unknown"),
        ("claude-opus-6", "unknown"),
        ("gpt-4o", "paired"),
        ("openai/o3-mini", "paired"),
        ("gpt-oss-20b", "unknown"),
        ("gemini-3-pro", "unknown"),
        ("qwen3-8b", "dropped"),
        ("unsloth/GLM-4.7-Flash", "dropped"),
        ("llama-3.3-70b", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_model_is_of_the_family_that_its_name_says(model: Any, thinking: str) -> None:
    family = find_family(model)
    assert family.thinking == thinking
    assert ("bound_thinking" in family.laws) == (thinking == "bound")


def test_every_row_says_who_states_it_and_when_that_was_read() -> None:
    for _, family in ROWS:
        assert family.sources
        assert all(source.startswith("https://") for source in family.sources.values())
        assert len(family.date) == len("2026-11-23")


@pytest.mark.parametrize(
    ("model", "window", "most"),
    [
        ("claude-opus-6", 1_000_000, 600),
        ("claude-haiku-4-5", 200_000, 100),
        ("claude-haiku-4-5", None, 600),
        ("gpt-5.4", 272_000, 1_500),
        ("tern-9", 8_000, None),
    ],
)
def test_images_are_limited_by_family_and_window(
    model: str, window: int | None, most: int | None
) -> None:
    assert find_family(model).limits.find_most_images(window) == most

"""A budget of thinking beside an answer that was lowered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.thinking import LEAST_ANSWER, LEAST_THINKING, lower_thinking


def enabled(budget: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget}


@pytest.mark.parametrize(
    ("budget", "asked", "left", "found"),
    [
        (31_999, 32_000, 17_848, 15_999),
        (31_999, 32_000, 16_000, 7_999),
        (8_000, 32_000, 17_848, 8_000),
        (31_999, 32_000, 32_000, 31_999),
        (31_999, 32_000, 2_700, 1_999),
        (4_000, 32_000, 800, None),
    ],
)
def test_a_budget_is_halved_until_an_answer_has_room(
    budget: int, asked: int, left: int, found: int | None
) -> None:
    made = lower_thinking({"thinking": enabled(budget)}, asked, left)
    if found == budget:
        assert made == {}
    else:
        assert made["thinking"] == ({"type": "disabled"} if found is None else enabled(found))


@given(st.integers(LEAST_THINKING, 200_000), st.integers(1, 200_000), st.integers(1, 200_000))
def test_what_is_sent_is_what_anthropic_takes(budget: int, asked: int, left: int) -> None:
    fields = {"thinking": enabled(budget), "max_tokens": asked}
    made = {**fields, **lower_thinking(fields, asked, left)}["thinking"]
    if budget < asked and left < asked:
        assert made == {"type": "disabled"} or LEAST_THINKING <= made["budget_tokens"] < left
    else:
        assert made == enabled(budget)


def test_one_room_or_a_little_less_makes_the_same_bytes() -> None:
    """A budget that changed with each token of room would cost the cache of each request."""
    fields = {"thinking": enabled(31_999)}
    assert len({str(lower_thinking(fields, 32_000, n)) for n in range(17_100, 31_000)}) == 1


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (
            {"additionalModelRequestFields": {"thinking": enabled(8_000), "top_k": 1}},
            {"additionalModelRequestFields": {"thinking": enabled(4_000), "top_k": 1}},
        ),
        (
            {"extra_body": {"reasoning": {"max_tokens": 8_000}}},
            {"extra_body": {"reasoning": {"max_tokens": 4_000}}},
        ),
        (
            {"generationConfig": {"seed": 1, "thinkingConfig": {"thinkingBudget": 8_000}}},
            {"generationConfig": {"seed": 1, "thinkingConfig": {"thinkingBudget": 4_000}}},
        ),
        (
            {"generation_config": {"thinking_config": {"thinkingBudget": 8_000}}},
            {"generation_config": {"thinking_config": {"thinkingBudget": 4_000}}},
        ),
        ({"reasoning": {"effort": "high"}}, {}),
        ({"thinking": SimpleNamespace(budget_tokens=8_000)}, {}),
        ({"config": SimpleNamespace(thinking={"budget_tokens": 8_000})}, {}),
        ({"thinking": {"type": "adaptive"}, "config": "plain", "extra_body": None}, {}),
    ],
)
def test_each_api_has_its_own_place(fields: Any, found: Any) -> None:
    before = str(fields)
    assert lower_thinking(fields, 9_000, 6_000) == found
    assert str(fields) == before


def test_gemini_is_never_given_less_than_all_its_models_take() -> None:
    held = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 8_000}}}
    made = lower_thinking(held, 9_000, LEAST_ANSWER // 2)["generationConfig"]
    assert made["thinkingConfig"] == {"thinkingBudget": 512}
    held = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 200}}}
    assert lower_thinking(held, 9_000, 201)["generationConfig"] == held["generationConfig"]


def test_an_object_of_an_sdk_is_copied() -> None:
    class Config(SimpleNamespace):
        def model_copy(self, *, update: dict[str, Any]) -> Config:
            return Config(**{**vars(self), **update})

    config = Config(seed=1, thinking_config=Config(thinking_budget=8_000))
    made = lower_thinking({"config": config}, 9_000, 6_000)["config"]
    assert (made.seed, made.thinking_config.thinking_budget) == (1, 4_000)
    assert config.thinking_config.thinking_budget == 8_000


def test_edits_of_thinking_go_with_thinking() -> None:
    edits = [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]
    fields = {"thinking": enabled(8_000), "context_management": {"edits": edits}}
    made = lower_thinking(fields, 9_000, 1_200)
    assert made["thinking"] == {"type": "disabled"}
    assert made["context_management"] == {"edits": edits[1:]}
    assert "context_management" not in lower_thinking(fields, 9_000, 6_000)
    for other in ({"edits": edits[1:]}, {"edits": None}, None):
        held = {**fields, "context_management": other}
        assert lower_thinking(held, 9_000, 1_200) == {"thinking": {"type": "disabled"}}


def test_an_object_that_has_any_field_is_left_alone() -> None:
    """Tests of programs hand over such objects."""

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return Anything()

    assert lower_thinking({"config": Anything(), "thinking": Anything()}, 9_000, 6_000) == {}

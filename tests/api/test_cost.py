"""What calls cost at the bundled table's prices: by model, provider and length of the prompt."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from ullage.config.settings import Settings
from ullage.core.dialects.usage import Usage
from ullage.core.tokens.cost import MILLION, Price
from ullage.core.tokens.cost import cost as priced
from ullage.runtime import Runtime
from ullage.windows import Question

RUNTIME = Runtime()
KNOWN = ["gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro"]


def prices(model: str | None, **where: Any) -> tuple[Price, ...]:
    return RUNTIME.windows.prices(Question(model, **where))


@pytest.mark.parametrize("model", KNOWN)
def test_a_known_model_costs_what_the_table_says(model: str) -> None:
    found = prices(model)
    usage = Usage(1_000, 2_000, 0, 300, 20)
    made = ullage.cost(usage, model, runtime=RUNTIME)
    assert found[0].above == 0
    assert found[0].input is not None
    assert made == priced(usage, found)
    assert made.input == pytest.approx(1_000 * found[0].input / MILLION)
    assert made.total is not None
    assert made.estimated is False


def test_published_prices_are_met() -> None:
    # Anthropic's and OpenAI's price pages, 2026: dollars per million tokens.
    assert ullage.cost(MILLION // 10, "claude-sonnet-4-5").total == pytest.approx(0.30)
    usage = Usage(0, 0, 0, MILLION // 10, 0)
    assert ullage.cost(usage, "claude-sonnet-4-5").total == pytest.approx(1.50)
    assert ullage.cost(MILLION // 10, "gpt-5").total == pytest.approx(0.125)


def test_a_long_prompt_is_dearer_where_the_table_says_so() -> None:
    tiers = prices("gemini-2.5-pro")
    assert len(tiers) == 2
    border = tiers[1].above
    for tokens, tier in ((border, tiers[0]), (border + 1, tiers[1])):
        made = ullage.cost(tokens, "gemini-2.5-pro", runtime=RUNTIME)
        assert tier.input is not None
        assert made.input == pytest.approx(tokens * tier.input / MILLION)


def test_a_count_is_an_estimate_of_its_best_value() -> None:
    counted = ullage.count([{"role": "user", "content": "hello " * 50}], model="gpt-4o")
    made = ullage.cost(counted, "gpt-4o", runtime=RUNTIME)
    assert made.estimated is True
    assert made == ullage.cost(counted.tokens, "gpt-4o", runtime=RUNTIME)


def test_an_unknown_price_is_no_zero() -> None:
    made = ullage.cost(Usage(10, 0, 0, 5, 0), "nobodys-model", runtime=RUNTIME)
    assert (made.total, made.input, made.unpriced_tokens) == (None, None, 15)
    assert made.to_dict()["total"] is None


def test_nobodys_server_has_no_price_under_a_known_name() -> None:
    where = "http://127.0.0.1:8080/v1"
    assert ullage.cost(10, "gpt-4o", base_url=where, runtime=RUNTIME).total is None
    hosted = ullage.cost(10, "gpt-4o", base_url="https://api.openai.com/v1", runtime=RUNTIME)
    assert hosted == ullage.cost(10, "gpt-4o", runtime=RUNTIME)


def test_a_provider_that_has_no_row_has_no_price() -> None:
    assert prices("gpt-4o", provider="openai") == prices("gpt-4o")
    assert prices("gpt-4o", provider="anthropic") == ()
    assert prices("claude-sonnet-4-5", provider="anthropic") == prices("claude-sonnet-4-5")
    assert prices(None) == ()
    with pytest.raises(ullage.ConfigurationError, match="did you mean 'openai'"):
        ullage.cost(10, "gpt-4o", provider="opnai", runtime=RUNTIME)


def test_a_deployment_costs_what_the_model_behind_it_costs() -> None:
    ours = Runtime(settings=Settings(base_models={"our-deployment": "gpt-4o"}))
    assert ours.windows.prices(Question("our-deployment")) == prices("gpt-4o")
    assert ullage.cost(10, "our-deployment", runtime=RUNTIME).total is None


@pytest.mark.parametrize("tokens", [-1, True, 1.5])
def test_a_number_that_is_none_is_refused(tokens: Any) -> None:
    with pytest.raises(ullage.ConfigurationError, match="give a whole number"):
        ullage.cost(tokens, "gpt-4o", runtime=RUNTIME)

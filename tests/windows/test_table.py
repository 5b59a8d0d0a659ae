"""The bundled table: exact ids, dates and fine-tunes taken off, and nothing ever borrowed."""

from __future__ import annotations

import pytest

from ullage.testing.clock import FakeClock
from ullage.transport import Transport
from ullage.windows import Question, Resolver
from ullage.windows.table import Table, names


def bound(model: str) -> int | None:
    return Resolver(Transport(), FakeClock()).window(Question(model)).input_tokens


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        # Decisions of the window page (15), and the facts that it holds.
        ("gpt-3.5-turbo", 4_096),
        ("gpt-4", 8_192),
        ("gpt-4-32k", 32_768),
        ("gpt-4-turbo", 128_000),
        ("claude-2", 100_000),
        ("claude-3-sonnet", 200_000),
        ("moonshot-v1-8k", 8_192),
        ("moonshot-v1-32k", 32_768),
        ("gpt-5", 272_000),
        ("gpt-5-codex", 272_000),
        ("gpt-5.3-codex-spark", 128_000),
    ],
)
def test_a_listed_id_has_its_own_bound(model, tokens) -> None:
    assert bound(model) == tokens


def test_the_400k_family_has_272k_of_input_in_400k_of_total() -> None:
    found = Resolver(Transport(), FakeClock()).window(Question("gpt-5"))
    assert (found.input_tokens, found.total_tokens) == (272_000, 400_000)
    assert found.output_tokens == 128_000
    assert (found.kind, found.source) == ("input", "table")
    assert "bundled table of" in found.explain()
    assert not found.proven


@pytest.mark.parametrize(
    ("model", "same_as"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet"),
        ("claude-3-5-sonnet@20241022", "claude-3-5-sonnet"),
        ("ft:gpt-4o-mini:acme::abc123", "gpt-4o-mini"),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc123", "gpt-4o-mini"),
    ],
)
def test_a_date_and_a_fine_tune_lead_to_the_base_model(model, same_as) -> None:
    assert bound(model) == bound(same_as) is not None


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4-0613",
        "gpt-4-0613x",
        "gpt-4-preview",
        "gpt-4-latest",
        "gpt-4-0314-vision",
        "gpt-4o-2024-08",
        "gpt-4:free",
        "my-gpt-4",
        "GPT-4",
        "gpt",
        "gpt-5.3-codex",
        "gpt-5.3-codex-spark-preview",
        "claude-2.1-instant",
        "openai/gpt-4",
        "ft:",
        "ft:nothing:acme::1",
        "",
    ],
)
def test_a_neighbours_number_is_never_borrowed(model) -> None:
    assert bound(model) is None


def test_every_row_is_a_lawful_claim() -> None:
    table = Table()
    ids = table.ids()
    assert ids == sorted(ids)
    for model in ids:
        claims = table.claims(model)
        assert {c.kind for c in claims} <= {"total", "input", "output"}, model
        assert all(type(c.tokens) is int and c.tokens >= 1024 for c in claims), model
        assert bound(model) == min(c.tokens for c in claims if c.kind != "output"), model


def test_the_exact_id_is_looked_up_first() -> None:
    assert names("gpt-4o-2024-08-06") == ["gpt-4o-2024-08-06", "gpt-4o"]
    assert names("gpt-4o") == ["gpt-4o"]

"""Names of models: each leads to its own row or to none, and never to a neighbour's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ullage.windows.aliases import PROVIDERS, VENDORS, Name, canonical, readings
from ullage.windows.table import WindowTable

TABLE = WindowTable(Path("no-such-folder"))


def found(model: str, provider: str | None = None) -> str | None:
    row = TABLE.row(model, provider)
    return None if row is None else f"{row.provider}/{row.model}"


CASES: Sequence[tuple[str, str | None, str | None]] = (
    # exact ids, each with its own row
    ("gpt-4", None, "openai/gpt-4"),
    ("gpt-4-32k", None, "openai/gpt-4-32k"),
    ("gpt-5.1-chat-latest", None, "openai/gpt-5.1-chat-latest"),
    ("gpt-5.3-codex-spark", None, "openai/gpt-5.3-codex-spark"),
    ("gpt-5.3-codex", None, "openai/gpt-5.3-codex"),
    ("gpt-5-pro-2025-10-06", None, "openai/gpt-5-pro-2025-10-06"),
    # dates
    ("gpt-5.2-2026-01-31", None, "openai/gpt-5.2"),
    ("claude-3-5-sonnet-20241022", None, "anthropic/claude-3-5-sonnet"),
    ("claude-3-5-sonnet@20241022", None, "anthropic/claude-3-5-sonnet"),
    ("gpt-4o-2024-13-06", None, None),
    ("gpt-4o-20249999", None, None),
    ("gpt-4o-2024-08", None, None),
    ("gpt-4o-1224", None, None),
    ("gpt-4-0314", None, None),
    # fine-tunes
    ("ft:gpt-4o-mini-2024-07-18:acme::x", None, "openai/gpt-4o-mini-2024-07-18"),
    ("ft:gpt-4o-mini-2025-12-31:acme::x", None, "openai/gpt-4o-mini"),
    ("ft:gpt-4o-mini", "openai", "openai/gpt-4o-mini"),
    ("openai/ft:gpt-4o-mini:acme::x", None, "openai/gpt-4o-mini"),
    ("ft:my-own:acme::x", None, None),
    ("ft:", None, None),
    ("ftx:gpt-4o-mini:acme", None, None),
    # suffixes that name another model, a route or a moving target
    ("gpt-4o-preview", None, None),
    ("gpt-4o-latest", None, None),
    ("gpt-4o:free", None, None),
    ("gpt-5.3-codex-spark-preview", None, None),
    ("qwen/qwen3-coder:free", "openrouter", None),
    ("qwen/qwen3-coder:free", None, None),
    ("qwen/qwen3-coder", "openrouter", "openrouter/qwen/qwen3-coder"),
    ("openrouter/qwen/qwen3-coder", None, "openrouter/qwen/qwen3-coder"),
    ("claude-opus-4-6[1m]", None, None),
    # Ollama's tags
    ("qwen3:14b", None, None),
    ("gpt-oss:20b", None, None),
    ("ollama/llama3.1:8b", None, None),
    ("gpt-4:latest", "ollama", None),
    # Bedrock
    (
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        None,
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    (
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "aws",
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    (
        "bedrock/us-east-1/anthropic.claude-sonnet-4-5-20250929-v1:0",
        None,
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    (
        "arn:aws:bedrock:eu-west-1:1234:inference-profile/"  # noqa: ISC004 - one id
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        None,
        "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    (
        "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3",
        None,
        None,
    ),
    ("anthropic.claude-v2:1", None, "bedrock/anthropic.claude-v2:1"),
    ("anthropic.claude-v2:7", None, None),
    ("mars.anthropic.claude-sonnet-4-5-20250929-v1:0", None, None),
    ("anthropic.claude-sonnet-4-5-20250929-v1:0:200k", None, None),
    ("us.gpt-4o", None, None),
    # Vertex
    ("vertex_ai/claude-sonnet-4-5@20250929", None, "vertex/claude-sonnet-4-5@20250929"),
    ("vertex_ai/claude-sonnet-4-5@20260101", None, "vertex/claude-sonnet-4-5"),
    (
        "publishers/anthropic/models/claude-sonnet-4-5@20250929",
        None,
        "vertex/claude-sonnet-4-5@20250929",
    ),
    (
        "projects/p/locations/us/publishers/google/models/gemini-2.5-pro",
        None,
        "vertex/gemini-2.5-pro",
    ),
    (
        "publishers/meta/models/llama-3.3-70b-instruct-maas",
        "vertex",
        "vertex/meta/llama-3.3-70b-instruct-maas",
    ),
    ("publishers/anthropic/models/claude-sonnet-99", None, None),
    # providers' prefixes
    ("openai/gpt-4o", None, "openai/gpt-4o"),
    ("openai/gpt-4o", "openrouter", "openrouter/openai/gpt-4o"),
    ("openai/gpt-4o", "openai", "openai/gpt-4o"),
    ("openai/gpt-4o", "anthropic", None),
    ("gemini/gemini-2.5-pro", None, "google/gemini-2.5-pro"),
    ("models/gemini-2.5-pro", "gemini", "google/gemini-2.5-pro"),
    ("models/gemini-2.5-pro", None, None),
    ("groq/openai/gpt-oss-20b", None, "groq/openai/gpt-oss-20b"),
    ("openrouter/openai/gpt-4o", "openrouter", "openrouter/openai/gpt-4o"),
    ("fireworks_ai/glm-5p1", None, "fireworks/accounts/fireworks/models/glm-5p1"),
    ("my-org/gpt-4o", None, None),
    ("gpt-4o/", None, None),
    ("/gpt-4o", None, None),
    ("openai/", None, None),
    # deployments, and whoever is not in the table
    ("prod-chat-eu", "azure", None),
    ("gpt-4o", "azure", None),
    ("azure/gpt-4o", None, None),
    ("azure/my-gpt-4o", None, None),
    ("gpt-4o", "my-gateway", None),
    ("GPT-4o", None, None),
    (" gpt-4o", None, None),
    ("gpt-4o\n", None, None),
    ("gpt-4o\t", None, None),
    ("", None, None),
    ("", "openai", None),
    ("[openai]", None, None),
)


@pytest.mark.parametrize(("model", "provider", "row"), CASES)
def test_an_awkward_id_leads_to_its_own_row_or_to_none(model, provider, row) -> None:
    assert found(model, provider) == row


def test_the_exact_id_is_looked_up_first() -> None:
    assert readings("gpt-4o-2024-08-06") == (Name(None, "gpt-4o-2024-08-06"), Name(None, "gpt-4o"))
    assert readings("gpt-4o") == (Name(None, "gpt-4o"),)
    assert readings("gpt-4o", "OpenAI") == (Name("openai", "gpt-4o"),)
    tuned = [name.model for name in readings("ft:gpt-4o-2024-08-06:acme::x", "openai")]
    assert tuned == ["ft:gpt-4o-2024-08-06:acme::x", "gpt-4o-2024-08-06", "gpt-4o"]


def test_a_provider_has_one_name_here_and_many_elsewhere() -> None:
    assert all(canonical(name) == name for name in PROVIDERS)
    for theirs in ("together_ai", "togetherai", "together-ai"):
        assert canonical(theirs) == "together"
    assert canonical("dashscope") == "alibaba"
    assert canonical("nobody") is None


IDS = st.sampled_from(TABLE.ids())
JUNK = st.one_of(
    st.text(st.sampled_from("abcxyz0123456789-_.:/@ "), min_size=1, max_size=12),
    st.sampled_from(
        [
            "-preview",
            "-latest",
            ":free",
            "-0613",
            ":14b",
            "-mini",
            "-32k",
            "-2024",
            "[1m]",
            "-v2:0x",
        ]
    ),
)
DATE = re.compile(r"(-\d{4}-\d{2}-\d{2}|[-@]\d{8})$")
VERSION = re.compile(r"-v\d+:\d+$")
REGION = re.compile(r"^bedrock/(?:us-gov|us|eu|apac|au|ca|jp|global)\.")


def spellings(model: str) -> set[str]:
    """Return the only ids that a name may lead to by what stands at its end.

    A Bedrock id without its version may have its row without its region, too.
    """
    whole = {model}
    if model.startswith("bedrock/"):
        whole |= {VERSION.sub("", model), REGION.sub("bedrock/", VERSION.sub("", model))}
    return whole | {DATE.sub("", name) for name in whole}


def spelled(model: str) -> str | None:
    row = TABLE.row(model)
    if row is None:
        return None
    return row.model if row.provider in VENDORS else f"{row.provider}/{row.model}"


@given(IDS, JUNK)
@example("bedrock/global.anthropic.claude-fable-5-1-v1:0", "0")
def test_a_suffix_that_no_rule_covers_leads_nowhere(model: str, suffix: str) -> None:
    assert spelled(model + suffix) in {None, *spellings(model + suffix)}


@given(IDS, JUNK)
def test_a_prefix_that_no_rule_covers_leads_nowhere(model: str, prefix: str) -> None:
    longer = prefix + model
    assume(canonical(longer.partition("/")[0]) is None)
    assert spelled(longer) in {None, longer}


@given(IDS, JUNK, JUNK, st.sampled_from(PROVIDERS))
def test_no_provider_lends_its_rows_to_another(model, prefix, suffix, provider) -> None:
    row = TABLE.row(prefix + model + suffix, provider)
    assert row is None or row.provider == provider

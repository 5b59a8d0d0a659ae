"""Bounds of the bundled table that are set by hand, each with its reason.

The list is short on purpose: models that the sources no longer list, or for which all sources are
known to be too large. It knows numbers and reasons, not how the table is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

Limits = tuple[int | None, int | None, int | None]
"""Total, input and output, in tokens."""

GATE: Final = 200_000
CLAUDE: Final = re.compile(r"claude", re.IGNORECASE)
LONG: Final = 272_000
CODEX: Final = re.compile(r"(?:^|[/.-])(?:gpt-5|codex)", re.IGNORECASE)


class Pin(NamedTuple):
    """Limits that override the sources, and the rule with the reason."""

    limits: Limits
    rule: str


RULES: Final[Mapping[str, str]] = {
    "claude": "above 200,000 depends on the key's entitlement; its own listing may raise it",
    "400k": "the 400,000 family takes 272,000 of input (OpenAI's own error says so)",
    "long": "above 272,000 the price doubles, and OpenAI's own catalogue for Codex stops there",
    "first": "the id has named snapshots of 4,096, so that is what is safe",
    "retired": "retired, no longer listed by every source; its last published limits",
    "round": "32,768 as published; a source rounds it",
    "claude-2": "the id covers 2.0, which has 100,000; a source lists 2.1's 200,000",
    "routes": "the smallest of the routes behind it; the sources list the largest",
    "spark": "128,000 as published; models.dev's input of 100,000 is that less the output",
    "github": "GitHub's catalogue; for Copilot's own limits see the provider copilot",
}

PINS: Final[Mapping[tuple[str, str], Pin]] = {
    ("openai", "gpt-3.5-turbo"): Pin((4_096, None, None), "first"),
    ("openai", "gpt-4-32k"): Pin((32_768, None, None), "round"),
    ("openai", "gpt-5.3-codex-spark"): Pin((128_000, None, 32_000), "spark"),
    ("anthropic", "claude-2"): Pin((100_000, None, 4_096), "claude-2"),
    ("anthropic", "claude-3-sonnet"): Pin((200_000, None, 4_096), "retired"),
    ("anthropic", "claude-3-5-sonnet"): Pin((200_000, None, 8_192), "retired"),
    ("anthropic", "claude-3-7-sonnet"): Pin((200_000, None, None), "retired"),
    ("anthropic", "claude-sonnet-4"): Pin((200_000, None, None), "retired"),
    ("anthropic", "claude-opus-4-1"): Pin((200_000, None, 32_000), "retired"),
    ("openrouter", "anthropic/claude-sonnet-4"): Pin((200_000, None, 16_000), "routes"),
    ("openrouter", "openai/gpt-4o"): Pin((128_000, None, 16_384), "routes"),
    ("openrouter", "openai/gpt-4.1"): Pin((128_000, None, 32_768), "routes"),
    ("github", "gpt-4.1"): Pin((128_000, None, 16_384), "github"),
    ("github", "claude-sonnet-4"): Pin((200_000, None, 16_000), "github"),
}

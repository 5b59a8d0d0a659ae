"""Usage reports of the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.core.dialects.usage import MALFORMED, Usage, spellings, tokens_in


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read Gemini usage: the prompt includes cached tokens, but not tokens added by tools.

    Thoughts are not included in the candidates' tokens. The live API uses "response" for the
    candidates (Gemini API reference, UsageMetadata).
    """
    prompt = tokens_in(fields, *spellings("promptTokenCount"), absent=MALFORMED)
    cached = tokens_in(fields, *spellings("cachedContentTokenCount"))
    tools = tokens_in(fields, *spellings("toolUsePromptTokenCount"))
    names = spellings("candidatesTokenCount") + spellings("responseTokenCount")
    output = tokens_in(fields, *names)
    thoughts = tokens_in(fields, *spellings("thoughtsTokenCount"))
    if min(cached, tools, output, thoughts) < 0 or cached > prompt:
        return None
    return Usage(prompt - cached + tools, cached, 0, output, thoughts)

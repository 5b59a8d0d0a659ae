"""Usage reports of Ollama's own API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.core.dialects.usage import MALFORMED, Usage, tokens_in


def read_usage(fields: Mapping[str, Any]) -> Usage | None:
    """Read the counts of Ollama's own API: the prompt includes cached tokens.

    Releases before 0.2 omitted the count, or reported 0, if the prompt came from the cache (its
    issues 2068 and 5370): then it is unknown.
    """
    prompt = tokens_in(fields, "prompt_eval_count", absent=MALFORMED)
    cached = tokens_in(fields, "prompt_eval_cached_count")
    output = tokens_in(fields, "eval_count")
    if prompt == 0 or min(cached, output) < 0 or cached > prompt:
        return None
    return Usage(prompt - cached, cached, 0, output)

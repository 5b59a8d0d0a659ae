"""Values that frameworks report: usage in the form of a dialect, and the limit of an answer.

It knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


def report_chat(prompt: int, answer: int, cached: int = 0) -> dict[str, Any]:
    """Return tokens as Chat Completions reports them: `cached` are a part of `prompt`."""
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    }


def report_converse(usage: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return tokens as Converse reports them, or None if nothing was reported.

    Frameworks put the usage of other providers into the same fields, and some of those include the
    tokens read from a cache in `inputTokens`. If `totalTokens` shows that, the cached tokens are
    subtracted.
    """
    prompt, answer = usage.get("inputTokens"), usage.get("outputTokens", 0)
    if not prompt:
        return None
    apart = {key: usage.get(key) or 0 for key in ("cacheReadInputTokens", "cacheWriteInputTokens")}
    if usage.get("totalTokens") == prompt + answer:
        prompt -= sum(apart.values())
    return {"usage": {"inputTokens": prompt, "outputTokens": answer, **apart}}


def report_responses(prompt: int, answer: int, cached: int = 0) -> dict[str, Any]:
    """Return tokens as the Responses API reports them: `cached` are a part of `prompt`."""
    return {
        "usage": {
            "input_tokens": prompt,
            "output_tokens": answer,
            "input_tokens_details": {"cached_tokens": cached},
        }
    }


def report_gemini(prompt: int, answer: int, cached: int = 0) -> dict[str, Any]:
    """Return tokens as the Gemini API reports them: `cached` are a part of `prompt`."""
    return {
        "usageMetadata": {
            "promptTokenCount": prompt,
            "candidatesTokenCount": answer,
            "cachedContentTokenCount": cached,
        }
    }


OUTPUTS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens", "maxTokens")
"""Names that frameworks use for the most tokens of an answer. Ollama's `num_predict` and the
`max_new_tokens` of local models are left out: no server is known to refuse a prompt because of
them, and space reserved for them would be lost to the conversation."""

MOST: Final = 1e9
"""A limit at or above this many tokens counts as no limit: no answer is that long."""


def find_output(*places: Any) -> int | None:
    """Return the answer limit in tokens that the first of `places` names, or None.

    A place is a mapping, or an object with attributes. A value below 1 is not a limit.
    """
    for place in places:
        for name in OUTPUTS:
            found = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
            if isinstance(found, bool) or not isinstance(found, int | float):
                continue
            if 1 <= found < MOST:
                return int(found)
    return None

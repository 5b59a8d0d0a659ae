"""What a framework tells: usage, as a response of a dialect has it, and the bound of an answer.

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
    """Return tokens as Converse reports them; None where nothing was reported.

    Frameworks write the usage of other providers in the same fields, and there what was read from a
    cache may be a part of `inputTokens`: so a total that says so decides.
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
"""What frameworks call the most tokens of an answer. Ollama's `num_predict` and `max_new_tokens` of
models in the process are left out: no refusal of a prompt for them is known, and what stays free
for them is lost to the conversation."""

MOST: Final = 1e9
"""Tokens that no answer has: what is above is no bound."""


def find_output(*places: Any) -> int | None:
    """Return the most tokens of an answer that the first of several places names, None without one.

    A place is a mapping, or an object with attributes. Below 1 it is no bound.
    """
    for place in places:
        for name in OUTPUTS:
            found = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
            if isinstance(found, bool) or not isinstance(found, int | float):
                continue
            if 1 <= found < MOST:
                return int(found)
    return None

"""What a model reported of its usage, as a response of a dialect has it, for a guard to learn from.

It knows no framework.
"""

from __future__ import annotations

from typing import Any


def report_chat(prompt: int, answer: int, cached: int = 0) -> dict[str, Any]:
    """Return tokens as Chat Completions reports them: `cached` are a part of `prompt`."""
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    }

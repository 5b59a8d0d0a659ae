"""Cache marks: the points up to which a caller asks a provider to cache the prompt.

Anthropic has `cache_control` on content blocks, and gateways accept it on the content parts of Chat
too; OpenAI's Responses has `prompt_cache_breakpoint`. A mark on a dropped message moves to the
message that replaces it, so that there are never more marks than before. Source: Anthropic's
documentation, "Prompt caching"; OpenAI's, "Prompt caching". This module knows nothing else of a
dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ullage.core.messages.fields import mapping

MARKS: Final = ("cache_control", "prompt_cache_breakpoint")


def find_last(raw: Any) -> Mapping[str, Any] | None:
    """Return the marks of the last marked block of a message, or None."""
    fields = mapping(raw)
    content = fields.get("content") if fields is not None else None
    if type(content) not in (list, tuple):
        return None
    for block in reversed(content or ()):
        known = mapping(block) or {}
        marks = {name: known[name] for name in MARKS if known.get(name)}
        if marks:
            return marks
    return None


def put(raw: Any, marks: Mapping[str, Any], kind: str = "text") -> Any:
    """Return a message of plain text with marks on its text, as a block of this type."""
    return {**raw, "content": [{"type": kind, "text": raw["content"], **marks}]}

"""The known facts about a window, for people: claims, the winning one, lessons from events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ullage.runtime import Runtime
    from ullage.windows import Question

LEARNED: Final = frozenset({"refusal", "truncation", "answer", "contention"})
"""Sources of claims that come from events of requests."""


def describe_window(runtime: Runtime, question: Question) -> dict[str, Any] | None:
    """Return the claims on a window, the winner, and the lessons; no server is asked again."""
    if question.model is None and question.base_url is None:
        return None
    found = runtime.windows.recall(question)
    return {
        "model": found.model,
        "place": question.base_url or "",
        "known": found.known,
        "tokens": found.input_tokens,
        "total": found.total_tokens,
        "said_by": found.name_source() if found.known else "nobody",
        "is_learned": found.is_learned,
        "working": None if found.working is None else found.working.describe(),
        "answered": found.answered,
        "claims": [
            {
                "tokens": claim.tokens,
                "kind": claim.kind,
                "source": claim.source,
                "sentence": claim.describe_with_date(),
                "wins": claim.tokens == found.input_tokens and claim.source == found.source,
                "learned": claim.source in LEARNED,
            }
            for claim in found.claims
        ],
        "warnings": list(found.warnings),
    }

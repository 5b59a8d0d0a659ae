"""A provider's usage report, as disjoint buckets.

Providers mean different things by the same word (the table of the measuring page): OpenAI's
`prompt_tokens` includes cached tokens, Anthropic's `input_tokens` leaves them out. It knows
nothing of counting and nothing of windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call used, in tokens, in buckets that do not overlap.

    `input` is uncached input; `reasoning` is the part of the answer that was thinking and is not
    in `output`.
    """

    input: int
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt_tokens(self) -> int:
        """The size of the prompt: uncached input, cache reads and cache writes."""
        return self.input + self.cache_read + self.cache_write

    @classmethod
    def from_report(cls, report: Any, *, dialect: str | None = None) -> Usage | None:
        """Read a usage report (mapping or SDK object, or a whole response that holds one).

        Returns None when the report is missing or malformed: unknown is not zero. `dialect` is
        found out from the keys; give `"anthropic"` or `"openai_chat"` to decide it.
        """
        fields = _usage_fields(report)
        if fields is None:
            return None
        if dialect is None:
            anthropic = "prompt_tokens" not in fields and (
                "cache_read_input_tokens" in fields or "cache_creation_input_tokens" in fields
            )
            dialect = "anthropic" if anthropic else "openai_chat"
        return _anthropic(fields) if dialect == "anthropic" else _openai(fields)


def _openai(fields: Mapping[str, Any]) -> Usage | None:
    """Read OpenAI Chat or Responses usage: the prompt includes what was cached."""
    prompt = _tokens(fields, "prompt_tokens", "input_tokens", absent=_MALFORMED)
    details = _details(fields, "prompt_tokens_details", "input_tokens_details")
    cached = _tokens(details, "cached_tokens")
    output = _tokens(fields, "completion_tokens", "output_tokens")
    spent = _details(fields, "completion_tokens_details", "output_tokens_details")
    reasoning = _tokens(spent, "reasoning_tokens")
    if min(output, cached, reasoning) < 0 or cached > prompt:
        return None
    spoken = output - reasoning if reasoning <= output else output  # some report it beside, not in
    return Usage(prompt - cached, cached, 0, spoken, reasoning)


def _anthropic(fields: Mapping[str, Any]) -> Usage | None:
    """Read Anthropic usage: `input_tokens` leaves out cache reads and writes."""
    prompt = _tokens(fields, "input_tokens", absent=_MALFORMED)
    read = _tokens(fields, "cache_read_input_tokens")
    written = _tokens(fields, "cache_creation_input_tokens")
    output = _tokens(fields, "output_tokens")
    return None if min(prompt, read, written, output) < 0 else Usage(prompt, read, written, output)


def _usage_fields(report: Any) -> Mapping[str, Any] | None:
    fields = as_mapping(report)
    if fields is None:
        return None
    return as_mapping(fields.get("usage")) if "usage" in fields else fields


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping as it is, an SDK object as a mapping, anything else as None."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        fields = dump()
        return fields if isinstance(fields, Mapping) else None
    return None


def _details(fields: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = as_mapping(fields.get(name))
        if inner is not None:
            return inner
    return {}


def _tokens(fields: Mapping[str, Any], *names: str, absent: int = 0) -> int:
    """Return the first of these fields that is there, `_MALFORMED` if it is no number of tokens."""
    value = next((fields[name] for name in names if fields.get(name) is not None), absent)
    plain = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if plain else _MALFORMED


_MALFORMED: Final = -1
"""Below every number of tokens, so that one comparison finds it."""

"""A provider's usage report, as disjoint buckets.

Providers use the same word for different things (the table of the measuring page): OpenAI's
`prompt_tokens` includes cached tokens, Anthropic's `input_tokens` does not. This module knows
nothing of counting and of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError
from ullage.core.messages.fields import as_mapping

if TYPE_CHECKING:
    from ullage.core.dialects.dialect import Dialect

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, in buckets that do not overlap.

    `input` is uncached input; `reasoning` is the thinking part of the answer and is not in
    `output`. Two usages add up bucket by bucket.
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

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )

    @classmethod
    def from_report(cls, report: Any, *, dialect: str | None = None) -> Usage | None:
        """Read a usage report (mapping or SDK object, or a whole response that has one).

        Returns None if the report is missing, partial or malformed: unknown is not zero. `dialect`
        is detected from the keys, or given by name. Raises ConfigurationError for an unknown name.
        """
        read = _reader(dialect)
        fields = _usage_fields(report)
        return None if fields is None else (read or _find_reader(fields))(fields)

    @classmethod
    def merge(cls, earlier: Any, later: Any, *, dialect: str | None = None) -> Usage | None:
        """Read two reports of one stream as one; fields of the later one win.

        Anthropic's `message_start` has the prompt and its `message_delta` the output, or both
        again, cumulative (Messages API, streaming). Returns None as `from_report` does.
        """
        reports = [_usage_fields(report) or {} for report in (earlier, later)]
        fields = {k: v for report in reports for k, v in report.items() if v is not None}
        return cls.from_report(fields, dialect=dialect) if fields else None


def read_openai(fields: Fields) -> Usage | None:
    """Read OpenAI Chat or Responses usage: the prompt includes the cached tokens.

    `prompt_cache_hit_tokens` is DeepSeek's name for them (API reference, `usage`). OpenAI's count
    of written tokens is unadjusted, so it never makes the prompt larger than reported.
    """
    prompt = tokens_in(fields, "prompt_tokens", "input_tokens", absent=MALFORMED)
    details = details_in(fields, "prompt_tokens_details", "input_tokens_details")
    spent = details_in(fields, "completion_tokens_details", "output_tokens_details")
    if details is None or spent is None:
        return None
    hit = {"cached_tokens": fields.get("prompt_cache_hit_tokens")}
    cached = tokens_in(
        details if details.get("cached_tokens") is not None else hit, "cached_tokens"
    )
    written = tokens_in(details, "cache_write_tokens")
    output = tokens_in(fields, "completion_tokens", "output_tokens")
    reasoning = tokens_in(spent, "reasoning_tokens")
    if min(output, cached, written, reasoning) < 0 or cached > prompt:
        return None
    written = min(written, prompt - cached)
    return Usage(prompt - cached - written, cached, written, *split_answer(output, reasoning))


def _llamacpp(fields: Fields) -> Usage | None:
    """Read llama.cpp's report: its usage if present, otherwise its timings.

    `cache_n` tokens of the prompt came from the cache and `prompt_n` were processed. At the end
    this is never 0: 0 means a report from before the end.
    """
    if any(fields.get(name) is not None for name in ("prompt_tokens", "input_tokens")):
        return _find_reader({k: v for k, v in fields.items() if k != "timings"})(fields)
    timings = details_in(fields, "timings")
    if timings is None:
        return None
    timings = timings or fields
    cached = tokens_in(timings, "cache_n", absent=MALFORMED)
    fresh = tokens_in(timings, "prompt_n", absent=MALFORMED)
    output = tokens_in(timings, "predicted_n")
    return Usage(fresh, cached, 0, output) if min(fresh - 1, cached, output) >= 0 else None


_OTHERS: Final[Mapping[str, Callable[[Fields], Usage | None]]] = {
    "llamacpp": _llamacpp,
}
"""Reports that are in no dialect's own form."""

_MARKS: Final[Mapping[str, frozenset[str]]] = {
    "llamacpp": frozenset({"timings", "prompt_n"}),
}
"""Keys that identify them."""


def _reader(dialect: str | None) -> Callable[[Fields], Usage | None] | None:
    if dialect is None:
        return None
    if dialect in _OTHERS:
        return _OTHERS[dialect]
    if dialect not in registry.DIALECTS and dialect not in registry.aliases():
        raise ConfigurationError(
            f"usage reports of dialect {dialect!r} are unknown: expected one of "
            f"{', '.join((*registry.DIALECTS, *_OTHERS))}, or None to go by the keys of the report"
        )
    return registry.find(registry.parse_name(dialect)).read_usage


def _find_reader(fields: Fields) -> Callable[[Fields], Usage | None]:
    """Return the reader of a report by its keys; the first match in this order.

    A gateway may add another dialect's keys to its own.
    """
    for dialect in _by_rank():
        if not dialect.reports.isdisjoint(fields):
            return dialect.read_usage
    found = (name for name, marks in _MARKS.items() if not marks.isdisjoint(fields))
    return _OTHERS.get(next(found, ""), read_openai)


@cache
def _by_rank() -> Sequence[Dialect]:
    return sorted(registry.dialects(), key=lambda dialect: dialect.report_rank)


_HOLDERS: Final = ("message", "response")
"""Fields of stream events that hold the response: Anthropic's message_start, OpenAI's
response.completed.
"""

_USAGES: Final = ("usage", "usageMetadata", "usage_metadata")


def _usage_fields(report: Any) -> Fields | None:
    """Return the fields of a report, which may be inside a response or a stream event."""
    fields = as_mapping(report)
    if fields is None:
        return None
    for holder in (None, *_HOLDERS):
        around = fields if holder is None else as_mapping(fields.get(holder)) or {}
        for name in _USAGES:
            if name in around:
                return as_mapping(around[name])
    return fields


def details_in(fields: Fields, *names: str) -> Fields | None:
    """Return the first of these inner mappings that exists, {} without one, None if malformed."""
    for name in names:
        inner = fields.get(name)
        if inner is not None:
            return as_mapping(inner)
    return {}


def spellings(name: str) -> tuple[str, str]:
    """Return a name in camelCase, as in JSON, and in snake_case, as in Google's SDK."""
    return name, "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def split_answer(output: int, reasoning: int) -> tuple[int, int]:
    """Return output and reasoning tokens; some providers report reasoning apart from the output."""
    return (output - reasoning if reasoning <= output else output), reasoning


def tokens_in(fields: Fields, *names: str, absent: int = 0) -> int:
    """Return the first of these fields that exists, or `MALFORMED` if it is no count."""
    value: Any = None
    for name in names:
        value = fields.get(name)
        if value is not None:
            break
    value = absent if value is None else value
    plain = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if plain else MALFORMED


MALFORMED: Final = -1
"""Below every number of tokens, so that one comparison finds it."""

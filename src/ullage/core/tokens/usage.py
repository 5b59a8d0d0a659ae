"""A provider's usage report, as disjoint buckets.

Providers mean different things by the same word (the table of the measuring page): OpenAI's
`prompt_tokens` includes cached tokens, Anthropic's `input_tokens` leaves them out. It knows
nothing of counting and nothing of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ullage.core.errors import ConfigurationError

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call used, in tokens, in buckets that do not overlap.

    `input` is uncached input; `reasoning` is the part of the answer that was thinking and is not
    in `output`. Two of them add up bucket by bucket.
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
        """Read a usage report (mapping or SDK object, or a whole response that holds one).

        Returns None when the report is missing, partial or malformed: unknown is not zero.
        `dialect` is found out from the keys; give one of `DIALECTS` to decide it. Raises
        ConfigurationError for another name.
        """
        read = _reader(dialect)
        fields = _usage_fields(report)
        return None if fields is None else (read or _recognised(fields))(fields)

    @classmethod
    def merged(cls, earlier: Any, later: Any, *, dialect: str | None = None) -> Usage | None:
        """Read two reports of one stream as one: what the later one has, wins.

        Anthropic's `message_start` has the prompt and its `message_delta` the output, or both
        again, cumulative (Messages API, streaming). Returns None as `from_report` does.
        """
        reports = [_usage_fields(report) or {} for report in (earlier, later)]
        fields = {k: v for report in reports for k, v in report.items() if v is not None}
        return cls.from_report(fields, dialect=dialect) if fields else None


def _openai(fields: Fields) -> Usage | None:
    """Read OpenAI Chat or Responses usage: the prompt includes what was cached.

    `prompt_cache_hit_tokens` is DeepSeek's word for it (API reference, `usage`). OpenAI calls its
    count of written tokens unadjusted: it never makes the prompt larger than reported.
    """
    prompt = _tokens(fields, "prompt_tokens", "input_tokens", absent=_MALFORMED)
    details = _details(fields, "prompt_tokens_details", "input_tokens_details")
    spent = _details(fields, "completion_tokens_details", "output_tokens_details")
    if details is None or spent is None:
        return None
    hit = {"cached_tokens": fields.get("prompt_cache_hit_tokens")}
    cached = _tokens(details if details.get("cached_tokens") is not None else hit, "cached_tokens")
    written = _tokens(details, "cache_write_tokens")
    output = _tokens(fields, "completion_tokens", "output_tokens")
    reasoning = _tokens(spent, "reasoning_tokens")
    if min(output, cached, written, reasoning) < 0 or cached > prompt:
        return None
    written = min(written, prompt - cached)
    return Usage(prompt - cached - written, cached, written, *_answer(output, reasoning))


def _anthropic(fields: Fields) -> Usage | None:
    """Read Anthropic usage: `input_tokens` leaves out cache reads and writes."""
    prompt = _tokens(fields, "input_tokens", absent=_MALFORMED)
    read = _tokens(fields, "cache_read_input_tokens")
    output = _tokens(fields, "output_tokens")
    by_age = _details(fields, "cache_creation")
    spent = _details(fields, "output_tokens_details")
    if by_age is None or spent is None:
        return None
    ages = [_tokens(by_age, f"ephemeral_{age}_input_tokens") for age in ("5m", "1h")]
    absent = sum(ages) if min(ages) >= 0 else _MALFORMED
    written = _tokens(fields, "cache_creation_input_tokens", absent=absent)
    thought = _tokens(spent, "thinking_tokens")
    if min(prompt, read, written, output, thought) < 0:
        return None
    return Usage(prompt, read, written, *_answer(output, thought))


def _gemini(fields: Fields) -> Usage | None:
    """Read Gemini usage: the prompt includes what was cached, but not what tools added to it.

    Thoughts are counted beside the candidates; the live API calls these the response (Gemini API
    reference, UsageMetadata).
    """
    prompt = _tokens(fields, *_spellings("promptTokenCount"), absent=_MALFORMED)
    cached = _tokens(fields, *_spellings("cachedContentTokenCount"))
    tools = _tokens(fields, *_spellings("toolUsePromptTokenCount"))
    names = _spellings("candidatesTokenCount") + _spellings("responseTokenCount")
    output = _tokens(fields, *names)
    thoughts = _tokens(fields, *_spellings("thoughtsTokenCount"))
    if min(cached, tools, output, thoughts) < 0 or cached > prompt:
        return None
    return Usage(prompt - cached + tools, cached, 0, output, thoughts)


def _ollama(fields: Fields) -> Usage | None:
    """Read the counts of Ollama's own API: the prompt includes what was cached.

    Releases before 0.2 left the count out, or said 0, where the prompt came from the cache (its
    issues 2068 and 5370): unknown.
    """
    prompt = _tokens(fields, "prompt_eval_count", absent=_MALFORMED)
    cached = _tokens(fields, "prompt_eval_cached_count")
    output = _tokens(fields, "eval_count")
    if prompt == 0 or min(cached, output) < 0 or cached > prompt:
        return None
    return Usage(prompt - cached, cached, 0, output)


def _llamacpp(fields: Fields) -> Usage | None:
    """Read llama.cpp: its usage where there is one, else its timings.

    `cache_n` tokens of the prompt came from the cache and `prompt_n` were worked through, never
    none once it is done: 0 is a report from before the end.
    """
    if any(fields.get(name) is not None for name in ("prompt_tokens", "input_tokens")):
        return _recognised({k: v for k, v in fields.items() if k != "timings"})(fields)
    timings = _details(fields, "timings")
    if timings is None:
        return None
    timings = timings or fields
    cached = _tokens(timings, "cache_n", absent=_MALFORMED)
    fresh = _tokens(timings, "prompt_n", absent=_MALFORMED)
    output = _tokens(timings, "predicted_n")
    return Usage(fresh, cached, 0, output) if min(fresh - 1, cached, output) >= 0 else None


_READERS: Final[Mapping[str, Callable[[Fields], Usage | None]]] = {
    "openai_chat": _openai,
    "openai_responses": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "llamacpp": _llamacpp,
}
DIALECTS: Final = tuple(_READERS)
"""The dialects of reports, by the names that `from_report` takes."""


def _reader(dialect: str | None) -> Callable[[Fields], Usage | None] | None:
    if dialect is None:
        return None
    if dialect not in _READERS:
        raise ConfigurationError(
            f"usage reports of dialect {dialect!r} are unknown: expected one of "
            f"{', '.join(DIALECTS)}, or None to go by the keys of the report"
        )
    return _READERS[dialect]


_MARKS: Final[Mapping[str, frozenset[str]]] = {
    "openai_chat": frozenset({"prompt_tokens"}),
    "anthropic": frozenset(
        {"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}
    ),
    "openai_responses": frozenset({"input_tokens"}),
    "gemini": frozenset(
        {"promptTokenCount", "prompt_token_count", "totalTokenCount", "total_token_count"}
    ),
    "ollama": frozenset({"prompt_eval_count", "eval_count"}),
    "llamacpp": frozenset({"timings", "prompt_n"}),
}
"""Keys that tell a dialect, the first that is met: a gateway may add another's keys to its own."""


def _recognised(fields: Fields) -> Callable[[Fields], Usage | None]:
    found = (name for name, marks in _MARKS.items() if not marks.isdisjoint(fields))
    return _READERS[next(found, "openai_chat")]


_HOLDERS: Final = ("message", "response")
"""Where stream events keep the response: Anthropic's message_start, OpenAI's response.completed."""

_USAGES: Final = ("usage", "usageMetadata", "usage_metadata")


def _usage_fields(report: Any) -> Fields | None:
    """Return the fields of a report, looked up in a response or stream event around it."""
    fields = as_mapping(report)
    if fields is None:
        return None
    for around in (fields, *(as_mapping(fields.get(name)) or {} for name in _HOLDERS)):
        for name in _USAGES:
            if name in around:
                return as_mapping(around[name])
    return fields


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping as it is, an SDK object as a mapping, anything else as None."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        fields = dump()
        return fields if isinstance(fields, Mapping) else None
    return None


def _details(fields: Fields, *names: str) -> Fields | None:
    """Return the first of these inner mappings that is there, {} without one, None if malformed."""
    inner: Any = next((fields[name] for name in names if fields.get(name) is not None), {})
    return as_mapping(inner)


def _spellings(name: str) -> tuple[str, str]:
    """Return a name in camelCase, as on the wire, and in snake_case, as Google's SDK has it."""
    return name, "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _answer(output: int, reasoning: int) -> tuple[int, int]:
    """Return what was said and what was thought; some report thoughts beside the output."""
    return (output - reasoning if reasoning <= output else output), reasoning


def _tokens(fields: Fields, *names: str, absent: int = 0) -> int:
    """Return the first of these fields that is there, `_MALFORMED` if it is no number of tokens."""
    value = next((fields[name] for name in names if fields.get(name) is not None), absent)
    plain = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if plain else _MALFORMED


_MALFORMED: Final = -1
"""Below every number of tokens, so that one comparison finds it."""

"""Read a provider's error: what is too big, by how much, and how sure that is.

One table, each row with a sample of the sentence it was made for. Order: status codes that never
mean overflow, structured codes, vetoes, totals before inputs, anchored sentences, then a generic
tier marked `likely`. This first table holds the shapes of OpenAI, of servers that speak like it,
and of llama.cpp. It knows no HTTP client and decides no recovery.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ullage.core.errors import ErrorKind, Kind
from ullage.core.usage import as_mapping


@dataclass(frozen=True, slots=True)
class Row:
    """One wording; groups named `limit`, `input` and `output` are numbers of tokens."""

    kind: Kind
    pattern: re.Pattern[str]
    sample: str
    certainty: Literal["certain", "likely"] = "certain"


def _row(kind: Kind, pattern: str, sample: str, *, likely: bool = False) -> Row:
    return Row(kind, re.compile(pattern, re.IGNORECASE), sample, "likely" if likely else "certain")


STATUSES: Final[Mapping[int, Kind]] = {402: "quota", 429: "rate_limit"}

CODES: Final[Mapping[str, Kind]] = {
    "exceed_context_size_error": "input",  # llama.cpp
    "context_length_exceeded": "input",  # OpenAI and many that follow it
    "insufficient_quota": "quota",
    "rate_limit_exceeded": "rate_limit",
}

ROWS: Final[tuple[Row, ...]] = (
    _row(
        "rate_limit",
        r"tokens per (?:min|day)|rate.?limit|too many requests",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389.",
    ),
    _row(
        "output_cap",
        r"max(?:_completion)?_tokens.{0,40}too large.{0,80}at most (?P<limit>\d+)",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    ),
    _row(
        "other",
        r"physical batch size",
        "input (3000 tokens) is too large to process. increase the physical batch size",
    ),
    _row(
        "other",
        r"^invalid (?:value|schema|'tools)|limit of 0\b",
        "Invalid value: 'prompt is too long' is not a valid tool name",
    ),
    _row(
        "malformed_history",
        r"tool_calls?.{0,40}must be followed by tool messages"
        r"|role 'tool' must be a response to a prece?eding message",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'.",
    ),
    _row(
        "total",
        r"context length is (?P<limit>\d+) tokens\W+however, you requested \d+ tokens "
        r"\((?P<input>\d+) in the messages, (?P<output>\d+) in the completion\)",
        "This model's maximum context length is 2048 tokens. However, you requested 2635 tokens "
        "(2619 in the messages, 16 in the completion). Please reduce the length",
    ),
    _row(
        "total",
        r"context length is (?P<limit>\d+) tokens\W+however, you requested \d+ tokens "
        r"\(.{0,80}\D(?P<output>\d+) in the completion\)",
        "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens "
        "(6683 in the messages, 730 in the functions, and 800 in the completion).",
    ),
    _row(
        "input",
        r"context length is (?P<limit>\d+) tokens\W+however, "
        r"your messages resulted in (?P<input>\d+)",
        "This model's maximum context length is 128000 tokens. However, your messages resulted "
        "in 173172 tokens.",
    ),
    _row(
        "input",
        r"configured limit of (?P<limit>\d+) tokens\W+your messages resulted in (?P<input>\d+)",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "342811 tokens.",
    ),
    _row(
        "input",
        r"(?:request|input|prompt) \((?P<input>\d+) tokens\) (?:exceeds|is larger than) the "
        r"(?:available|max(?:imum)?) context size \((?P<limit>\d+) tokens\)",
        "request (18500 tokens) exceeds the available context size (8192 tokens), try increasing",
    ),
    _row(
        "input",
        r"^context size has been exceeded",
        "Context size has been exceeded.",
    ),
    _row(
        "input",
        r"(?:input|prompt|request) exceeds the (?:context window|context length|context size)",
        "Your input exceeds the context window of this model.",
    ),
    _row(
        "input",
        r"(?:context (?:length|window|size)|prompt).{0,60}(?:exceed|too long|too large|longer than)"
        r"|(?:exceed|too long|too large|longer than).{0,60}context (?:length|window|size)",
        "the prompt is longer than the context length currently available to the model",
        likely=True,
    ),
)


def classify(
    status: int | None, body: Any, *, headers: Mapping[str, str] | None = None
) -> ErrorKind:
    """Classify an error response. `body` is text, bytes, or the parsed body; never raises.

    `status` may be 200: some servers report an overflow inside a stream.
    """
    del headers  # read by later rows (Retry-After); part of the public signature
    fields, texts = _open(body)
    reading = _by_code(fields, texts)
    kind = STATUSES.get(status or 0)
    if kind is not None:
        return ErrorKind("quota" if reading is not None and reading.kind == "quota" else kind)
    if reading is not None:
        return reading
    return _by_wording(texts) or ErrorKind("other")


def _by_code(fields: list[Mapping[str, Any]], texts: list[str]) -> ErrorKind | None:
    for inner in fields:
        for name in ("type", "code"):
            code = inner.get(name)
            kind = CODES.get(code) if isinstance(code, str) else None
            if kind is None:
                continue
            if kind != "input":
                return ErrorKind(kind)
            named = ErrorKind("input", _int(inner, "n_ctx"), _int(inner, "n_prompt_tokens"))
            worded = _by_wording(texts)
            if named.limit is None and worded is not None and worded.kind in ("input", "total"):
                return replace(worded, certainty="certain")
            return named
    return None


def _by_wording(texts: list[str]) -> ErrorKind | None:
    for row in ROWS:
        for text in texts:
            found = row.pattern.search(text)
            if found is not None:
                return _read(row, found.groupdict())
    return None


def _read(row: Row, named: Mapping[str, str | None]) -> ErrorKind:
    limit, size = (_number(named.get(name)) for name in ("limit", "input"))
    kind = row.kind
    if kind == "total" and named.get("output") == "0":
        kind = "input"
    return ErrorKind(kind, limit or None, size, row.certainty)


def _number(digits: str | None) -> int | None:
    """Return a number of tokens; a number of more than twelve digits is none."""
    return int(digits) if digits and len(digits) <= 12 else None


_Opened = tuple[list[Mapping[str, Any]], list[str]]


def _open(body: Any, depth: int = 0) -> _Opened:
    """Return the objects that may carry codes, outermost first, and the texts to search."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        inner = _parsed(body) if depth < _DEEPEST else []
        return _all([_open(fields, depth + 1) for fields in inner]) if inner else ([], [body])
    fields = as_mapping(body)
    if fields is None or depth > _DEEPEST:
        return [], []
    names = ("error", "response", "message", "detail", "metadata", "raw")
    return _all([([fields], []), *(_open(fields.get(name), depth + 1) for name in names)])


def _all(opened: list[_Opened]) -> _Opened:
    return [o for objects, _ in opened for o in objects], [t for _, texts in opened for t in texts]


_DEEPEST: Final = 6
"""Levels of nesting that are opened; the deepest body seen has four (JSON inside a string)."""


def _parsed(text: str) -> list[Mapping[str, Any]]:
    """Return the JSON object that a text is, or those of the frames of a stream (`data: {...}`)."""
    frames = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
    found: list[Mapping[str, Any]] = []
    for frame in frames:
        try:
            fields = json.loads(frame) if frame.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            found.append(fields)
    return found


def _int(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

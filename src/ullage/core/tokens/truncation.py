"""Whether a server cut a prompt without a word: what it reported against what was sent.

Some servers drop the start of a prompt that is too long and answer 200. This reads the signs. It
learns nothing and persists nothing; `ullage.core.guard.machine` decides what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.messages.fields import as_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.core.dialects.usage import Usage
    from ullage.core.tokens.counting import Count

Sign = Literal["short", "at_window", "at_half", "length_without_output", "above_window", "fell"]

SHORT_RATIO, SHORT_TOKENS = 0.5, 1_000
"""A report is short when under this share of the count's lower edge and this much below it."""

FULL: Final = 0.99
"""The share of the window from which an answer that ended for length with no output is a sign."""

KEPT_HALF: Final = (2, 3)
"""Tokens beside half of num_ctx that Ollama keeps when it cuts the middle out: 4,096 became 2,050
(ollama pull request 18399); the measuring of others found num_ctx / 2 + 3."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """The signs that a prompt was cut. `certain` with two of them: only then a limit is learned.

    `reported` and `counted` are in tokens. `limit` is the most that the window can be, in tokens:
    a prompt of one more was cut.
    """

    signs: tuple[Sign, ...]
    reported: int
    counted: int
    limit: int

    @property
    def certain(self) -> bool:
        """Whether two independent signs agree."""
        return len(self.signs) > 1


def detect(
    usage: Usage,
    counted: Count,
    window: int | None,
    *,
    before: int | None = None,
    finish: str | None = None,
) -> Truncation | None:
    """Return the truncation that a report shows, or None.

    `window` is the bound in tokens as far as it is known, `before` the prompt tokens reported for
    a request that this one extends, `finish` the reason given for the end of the answer. A count
    that is only estimated never makes a report short by itself.
    """
    reported = usage.prompt_tokens
    missing = counted.low - reported
    short = reported < SHORT_RATIO * counted.low and missing >= SHORT_TOKENS
    signs: list[Sign] = []
    if short and _sure(counted):
        signs.append("short")
    if before is not None and reported < before:
        signs.append("fell")
    if window is not None:
        signs += _at_window(usage, counted, window, finish)
    if not signs:
        return None
    below = max(counted.low - 1, reported)
    limit = below if window is None else min(window, below)
    return Truncation(tuple(signs), reported, counted.tokens, limit)


def _sure(counted: Count) -> bool:
    """Tell whether the lower edge rests on the model's own vocabulary or on a server's word."""
    measured = counted.measured
    if measured is not None and (measured.basis == "exact" or measured.anchor is not None):
        return True
    return counted.basis in ("exact", "server")


def _at_window(usage: Usage, counted: Count, window: int, finish: str | None) -> list[Sign]:
    reported = usage.prompt_tokens
    over = counted.low > window
    signs: list[Sign] = []
    if over and reported in (window, window - 1):
        signs.append("at_window")
    if over and reported - window // 2 in KEPT_HALF:
        signs.append("at_half")
    if reported > window:
        signs.append("above_window")
    spoken = usage.output + usage.reasoning
    if finish in ("length", "max_tokens") and spoken == 0 and reported >= FULL * window:
        signs.append("length_without_output")
    return signs


def is_edited_by_server(report: Any) -> bool:
    """Tell whether a response says that the server itself left parts of the prompt out.

    OpenAI Responses echo `truncation: "auto"`, Anthropic reports `context_management`.
    """
    fields = _response(report)
    if fields.get("truncation") == "auto":
        return True
    managed = as_mapping(fields.get("context_management")) or {}
    return bool(managed.get("applied_edits"))


def finish_reason(report: Any) -> str | None:
    """Return why an answer ended, as OpenAI, Anthropic or Ollama (`done_reason`) say, or None."""
    fields = _response(report)
    choices = fields.get("choices")
    first = as_mapping(choices[0]) if isinstance(choices, list | tuple) and choices else None
    incomplete = as_mapping(fields.get("incomplete_details")) or {}
    if incomplete.get("reason") == "max_output_tokens":
        return "length"
    ended = fields.get("stop_reason") or fields.get("done_reason")
    found = first.get("finish_reason") if first else ended
    return found if isinstance(found, str) else None


def _response(report: Any) -> Mapping[str, Any]:
    """Return the fields of a response, also of one in the event that ends a stream."""
    fields = as_mapping(report) or {}
    return as_mapping(fields.get("response")) or fields

"""Truncation: tell from a usage report whether it is plausible and whether the prompt was cut.

A server may report less than the count for good reasons: templates leave out old reasoning and
tools. Some servers report something else: only uncached tokens, or the sum over inner calls. Some
drop a part of a prompt that is too long and answer 200. This module tells them apart by the range
of a true report. It learns nothing and keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.messages.fields import as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.core.dialects.usage import Usage

Sign = Literal["short", "crossed", "at_window", "at_half", "length_without_output"]

SLACK_EXACT, SLACK_ESTIMATED = 0.10, 0.25
"""How far outside the counted band a report may be, as a share of the edge."""

SLACK_BELOW, SLACK_ABOVE, SLACK_GROWN = 256, 4_096, 64
"""The same in tokens: what a template leaves out of a short prompt, what a host puts before it, and
how much either may change between requests. Hosts were seen to add up to 3,000 tokens of their own
instructions."""

NEAR: Final = 0.9
"""The share of a bound from which a short report may mean that the prompt was cut. Below it no
server has a reason to cut."""

LEFT: Final = 0.4
"""The smallest share of a bound that a cut leaves; Ollama leaves a half. A smaller number reports
something else, such as only the uncached tokens. If the bound is unknown, it is the share of the
prompt: a history grows, so its first cut comes when it is slightly too long."""

FULL: Final = 0.99
"""The share of the window from which an answer that ended for length without output is a sign."""

KEPT_HALF: Final = (2, 3)
"""Tokens in addition to half of num_ctx that Ollama keeps when it cuts the middle out: 4,096 became
2,050 (ollama pull request 18399); others measured num_ctx / 2 + 3."""

JITTER: Final = 16
"""The difference in tokens of reports of the same messages, such as from a date in the template."""

COMMON: Final = tuple(2**power for power in range(11, 21))
"""Default windows of servers, in tokens: 2,048 to 1,048,576."""


@dataclass(frozen=True, slots=True)
class ReportRange:
    """The range of prompt tokens, `least` to `most`, for a true report of a request.

    `low` and `high` are the edges of the count; `low` excludes parts that a server may leave out.
    `is_counted` means that the server itself counted this very request.
    """

    low: int
    high: int
    least: int
    most: int
    is_counted: bool = False
    before: int = 0
    reach: int = 0

    @classmethod
    def around(
        cls, low: int, high: int, *, exact: bool, lawful: int = 0, counted: bool = False
    ) -> ReportRange:
        """Return the range for a count from `low` to `high`, `lawful` tokens of it dispensable."""
        slack, low = SLACK_EXACT if exact else SLACK_ESTIMATED, max(low - lawful, 0)
        least = int(low * (1 - slack)) - SLACK_BELOW
        return cls(low, high, least, int(high * (1 + slack)) + SLACK_ABOVE, counted)

    def has(self, reported: int) -> bool:
        """Tell whether a report of so many prompt tokens can be true."""
        return self.least <= reported <= self.most


@dataclass(frozen=True, slots=True)
class Truncation:
    """The signs that a prompt was cut, or left no room for an answer.

    `reported` and `counted` are in tokens. `limit` is the largest possible window, in tokens.
    `certain` means that only a cut leaves this number of tokens, or that the server itself had
    counted more; otherwise a second cut prompt is needed.
    """

    signs: tuple[Sign, ...]
    reported: int
    counted: int
    limit: int
    certain: bool = False


def detect(
    usage: Usage, expected: ReportRange, window: int | None, *, finish: str | None = None
) -> Truncation | None:
    """Return the truncation that a report shows, or None.

    `window` is the bound in tokens if known, `finish` the reason for the end of the answer. A
    report is short only if the count is near the bound, or if the bound is unknown.
    """
    reported = usage.prompt_tokens
    found = next(_find_cuts(reported, expected.low, window), None)
    short = reported < expected.least and _can_be_cut(reported, expected, window)
    signs: list[Sign] = ["short"] if short else []
    if found is None and not short:
        found = next(_find_crossed(reported, expected, window), None)
    if found is not None:
        signs.append(found[0])
    spoken = usage.output + usage.reasoning
    full = window is not None and reported >= FULL * window
    if full and spoken == 0 and finish in ("length", "max_tokens"):
        signs.append("length_without_output")
    if not signs:
        return None
    limit = max(expected.low - 1, reported) if short else reported
    if found is not None:
        limit = found[1]
    if window is not None:
        limit = min(window, limit)
    exact = found is not None and found[0] != "crossed"
    certain = exact or (short and expected.is_counted)
    return Truncation(tuple(signs), reported, expected.high, limit, certain)


def _find_cuts(reported: int, low: int, window: int | None) -> Iterator[tuple[Sign, int]]:
    """Yield the sign and the bound of cuts that leave exactly this many tokens."""
    for bound in (window, *COMMON):
        if bound is None or low <= bound:
            continue
        if reported in (bound, bound - 1):
            yield "at_window", bound
        if reported - bound // 2 in KEPT_HALF:
            yield "at_half", bound


def _find_crossed(
    reported: int, expected: ReportRange, window: int | None
) -> Iterator[tuple[Sign, int]]:
    """Yield the bounds that a growing prompt crossed while its report stayed below them.

    A server that drops the oldest messages reads about as much as fits. If little was added since
    the last report, the added size is well known: the report must miss it by more than its band.
    """
    missed = expected.low - reported
    if not expected.before or missed <= JITTER + expected.reach - expected.low:
        return
    for bound in (window, *COMMON):
        if bound is None or reported < LEFT * bound:
            continue
        if max(reported, expected.before) <= bound <= expected.reach:
            yield "crossed", bound


def _can_be_cut(reported: int, expected: ReportRange, window: int | None) -> bool:
    if window is None:
        return reported >= LEFT * expected.low
    return expected.high >= NEAR * window and reported >= LEFT * window


def is_edited_by_server(report: Any) -> bool:
    """Tell whether a response says that the server itself left parts of the prompt out.

    OpenAI Responses echo `truncation: "auto"`, Anthropic reports `context_management`. Both put
    their own compaction into the answer, and Anthropic's usage lists its cost.
    """
    fields = _response(report)
    if fields.get("truncation") == "auto":
        return True
    told_of = fields.get("context_management")
    managed = {} if told_of is None else as_mapping(told_of) or {}
    usage = as_mapping(fields.get("usage")) or fields
    if managed.get("applied_edits") or any(_list_dropped(fields)):
        return True
    for told in (fields.get("output"), fields.get("content"), usage.get("iterations")):
        if told and any(piece.get("type") == "compaction" for piece in _list_objects(told)):
            return True
    return False


def is_unbound(report: Any) -> bool:
    """Tell whether a response says that reasoning after edited messages was dropped.

    Anthropic reports it under `input_transformations` (types of the Python SDK 2.12).
    """
    return "prefix_binding_mismatch" in _list_dropped(_response(report))


def _list_dropped(fields: Mapping[str, Any]) -> list[Any]:
    """Return the reason for each dropped block of reasoning."""
    listed = fields.get("input_transformations")
    if not listed:
        return []
    told = _list_objects(listed)
    return [entry.get("reason", "") for entry in told if entry.get("type") == "thinking_dropped"]


def _list_objects(value: object) -> Iterator[Mapping[str, Any]]:
    listed = value if isinstance(value, list | tuple) else ()
    return (entry for item in listed if (entry := as_mapping(item)) is not None)


def finish_reason(report: Any) -> str | None:
    """Return why an answer ended, as OpenAI, Anthropic or Ollama (`done_reason`) say, or None."""
    fields = _response(report)
    choices = fields.get("choices")
    first = as_mapping(choices[0]) if isinstance(choices, list | tuple) and choices else None
    details = fields.get("incomplete_details")
    if details is not None and (as_mapping(details) or {}).get("reason") == "max_output_tokens":
        return "length"
    ended = fields.get("stop_reason") or fields.get("done_reason")
    found = first.get("finish_reason") if first else ended
    return found if isinstance(found, str) else None


def _response(report: Any) -> Mapping[str, Any]:
    """Return the fields of a response, also if an event at the end of a stream wraps it."""
    fields = as_mapping(report) or {}
    inner = fields.get("response")
    return fields if inner is None else as_mapping(inner) or fields

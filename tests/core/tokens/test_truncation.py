"""Silent truncation: each sign by itself, none by an estimate, and certain only with two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai.types import responses
from openai.types.chat import ChatCompletion

from ullage.core.dialects.usage import Usage
from ullage.core.tokens.truncation import (
    COMMON,
    KEPT_HALF,
    SLACK_ABOVE,
    SLACK_BELOW,
    ReportRange,
    Sign,
    Truncation,
    detect,
    finish_reason,
    is_edited_by_server,
)

TOKENS = st.integers(0, 300_000)


def exact(tokens: int, **more: Any) -> ReportRange:
    return ReportRange.around(tokens, tokens, exact=True, **more)


def signs(
    reported: int, expected: ReportRange | int, window: int | None = None, **more: Any
) -> set[Sign]:
    usage = Usage(reported, output=more.pop("output", 1))
    range_ = exact(expected) if isinstance(expected, int) else expected
    found = detect(usage, range_, window, **more)
    return set() if found is None else set(found.signs)


# ── the range of a true report ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expected", "least", "most"),
    [
        (exact(10_000), 9_000 - SLACK_BELOW, 11_000 + SLACK_ABOVE),
        (exact(10_000, lawful=4_000), 5_400 - SLACK_BELOW, 11_000 + SLACK_ABOVE),
        (exact(100, lawful=4_000), -SLACK_BELOW, 110 + SLACK_ABOVE),
        (
            ReportRange.around(8_000, 12_000, exact=False),
            6_000 - SLACK_BELOW,
            15_000 + SLACK_ABOVE,
        ),
    ],
)
def test_a_report_is_believed_a_little_beyond_the_counted_band(
    expected: ReportRange, least: int, most: int
):
    assert (expected.least, expected.most) == (least, most)
    assert expected.has(least)
    assert expected.has(most)
    assert not expected.has(least - 1)
    assert not expected.has(most + 1)


# ── each sign alone ─────────────────────────────────────────────────────────────────────────────


def test_a_report_of_what_was_counted_shows_nothing():
    assert detect(Usage(5000, output=20), exact(5000), 8192, finish="stop") is None


@pytest.mark.parametrize(
    ("reported", "counted", "window", "short"),
    [
        (5_000, 8_000, None, True),
        (3_000, 8_000, None, False),
        (6_944, 8_000, None, False),  # inside the range
        (5_000, 8_000, 8_192, True),
        (5_000, 8_000, 20_000, False),  # at 40 % of the window no server has a reason to cut
        (3_000, 8_000, 8_192, False),  # a cut leaves more: these are the uncached tokens, or so
    ],
)
def test_short_is_below_the_range_and_near_the_bound(
    reported: int, counted: int, window: int | None, short: bool
):
    assert signs(reported, counted, window) == ({"short"} if short else set())


def test_reasoning_that_a_template_drops_is_not_missing():
    assert signs(3_011, 3_400, 8_192) == set()
    assert signs(5_000, exact(8_000, lawful=3_000), 8_192) == set()


@pytest.mark.parametrize("reported", [4095, 4096])
@pytest.mark.parametrize("window", [None, 4096, 128_000])
def test_a_prompt_of_which_a_whole_window_was_read_was_cut(reported: int, window: int | None):
    found = detect(Usage(reported, output=1), exact(9000), window)
    assert found is not None
    assert "at_window" in found.signs
    assert (found.limit, found.certain) == (4096, True)


@pytest.mark.parametrize("kept", KEPT_HALF)
def test_half_of_the_window_and_a_few_tokens_is_how_ollama_cuts(kept: int):
    # 4,096 became 2,050 (ollama pull request 18399)
    assert signs(2048 + kept, 4100, 4096) == {"short", "at_half"}


@pytest.mark.parametrize("finish", ["length", "max_tokens"])
def test_an_answer_that_ends_for_length_before_its_first_token_had_no_room(finish: str):
    assert signs(4056, 4056, 4096, finish=finish, output=0) == {"length_without_output"}
    assert signs(4055, 4055, 4096, finish=finish, output=0) == set()
    assert signs(4056, 4056, 4096, finish=finish, output=1) == set()
    assert signs(4056, 4056, 4096, finish="stop", output=0) == set()


def test_thinking_is_output_too():
    usage = Usage(4090, output=0, reasoning=6)
    assert detect(usage, exact(4090), 4096, finish="length") is None


# ── how sure, and what follows ──────────────────────────────────────────────────────────────────


def test_a_short_report_is_certain_only_where_the_server_counted_more_itself():
    one = detect(Usage(5_000, output=1), exact(8_000), 8_192)
    assert one == Truncation(("short",), 5_000, 8_000, 7_999)
    two = detect(Usage(5_000, output=1), exact(8_000, counted=True), 8_192)
    assert two == Truncation(("short",), 5_000, 8_000, 7_999, certain=True)


@pytest.mark.parametrize(
    ("reported", "counted", "window", "limit"),
    [
        (2001, 5000, None, 4999),  # what was cut cannot have fitted
        (4000, 9000, 8192, 8192),
        (4096, 9000, 4096, 4096),
        (4096, 9000, None, 4096),
    ],
)
def test_the_limit_is_the_most_that_the_window_can_be(
    reported: int, counted: int, window: int | None, limit: int
):
    found = detect(Usage(reported, output=1), exact(counted), window)
    assert found is not None
    assert found.limit == limit


# ── what never happens ──────────────────────────────────────────────────────────────────────────


@given(TOKENS, TOKENS, TOKENS, st.integers(1, 300_000), st.booleans())
def test_far_from_the_bound_a_report_shows_a_cut_only_by_its_very_number(
    reported: int, low: int, more: int, window: int, counted: bool
):
    expected = ReportRange.around(low, low + more, exact=False, counted=counted)
    if expected.high >= 0.9 * window:
        return
    number = any(reported in (b, b - 1) or reported - b // 2 in KEPT_HALF for b in COMMON)
    assert number or signs(reported, expected, window, output=1) == set()


@given(TOKENS, TOKENS, st.one_of(st.none(), st.integers(1, 300_000)))
@example(2047, 2049, 1)  # a common window, and a smaller one that is known
def test_a_truncation_has_a_sign_and_a_limit_that_holds(
    reported: int, counted: int, window: int | None
):
    found = detect(Usage(reported), exact(counted), window, finish="length")
    if found is None:
        return
    assert found.signs
    assert (found.reported, found.counted) == (reported, counted)
    assert window is None or found.limit <= window
    assert found.limit >= (reported if window is None else min(reported, window))


# ── how the dialects say it ─────────────────────────────────────────────────────────────────────


def chat(finish: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": ""}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9},
    }


def response(**more: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


CUT_OUTPUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("report", "finish"),
    [
        (chat("length"), "length"),
        (chat("stop"), "stop"),
        (ChatCompletion.model_validate(chat("length")), "length"),
        ({"choices": ({"finish_reason": "length"},)}, "length"),
        ({"done": True, "done_reason": "length", "prompt_eval_count": 9}, "length"),
        ({"type": "message", "stop_reason": "max_tokens"}, "max_tokens"),
        (response(**CUT_OUTPUT), "length"),
        (responses.Response.model_validate(response(**CUT_OUTPUT)), "length"),
        ({"type": "response.incomplete", "response": response(**CUT_OUTPUT)}, "length"),
        (response(status="completed"), None),
        (response(incomplete_details={"reason": "content_filter"}), None),
        ({"choices": []}, None),
        ({"choices": [7]}, None),
        ({"choices": "length"}, None),
        ({"stop_reason": 7}, None),
        ({"incomplete_details": "max_output_tokens"}, None),
        ({}, None),
        (None, None),
        ("length", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_why_an_answer_ended_is_read_in_every_dialect(report: Any, finish: str | None):
    assert finish_reason(report) == finish


@pytest.mark.parametrize(
    ("report", "edited"),
    [
        (response(truncation="auto"), True),
        (response(truncation="disabled"), False),
        (responses.Response.model_validate(response(truncation="auto")), True),
        (responses.Response.model_validate(response(truncation="disabled")), False),
        ({"type": "response.completed", "response": response(truncation="auto")}, True),
        ({"context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}}, True),
        ({"context_management": {"applied_edits": []}}, False),
        ({"context_management": None}, False),
        ({"context_management": "yes"}, False),
        (chat("stop"), False),
        (ChatCompletion.model_validate(chat("stop")), False),
        (None, False),
        (7, False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_the_server_left_out_itself_is_read_in_every_dialect(report: Any, edited: bool):
    assert is_edited_by_server(report) is edited


# --- a prompt that grew over a bound while its report did not -----------------------------------


def grown(before: int, low: int, reach: int) -> ReportRange:
    found = ReportRange.around(low, 2 * reach, exact=False)
    return replace(found, before=before, reach=reach)


@pytest.mark.parametrize(
    ("reported", "expected", "crossed"),
    [
        (4_044, grown(4_022, 4_142, 4_160), True),  # as Ollama reads it: what fits of the newest
        (4_044, grown(0, 4_142, 4_160), False),  # it goes on from no report
        (4_120, grown(4_022, 4_142, 4_160), False),  # it misses by less than the band
        (4_044, grown(4_022, 4_090, 4_094), False),  # no bound was reached
        (5_000, grown(4_990, 5_142, 5_160), False),  # no bound that servers have lies there
        (1_000, grown(4_022, 4_142, 4_160), False),  # what was not cached, more likely
        (4_097, grown(4_022, 4_242, 4_260), False),  # more than the bound was read
    ],
)
def test_a_report_that_stays_under_a_bound_which_the_prompt_went_over(
    reported: int, expected: ReportRange, crossed: bool
) -> None:
    found = detect(Usage(reported, output=1), expected, 131_072)
    assert (found is not None and found.signs == ("crossed",)) == crossed
    if found is not None and crossed:
        assert (found.limit, found.certain) == (4_096, False)


def test_the_window_itself_is_such_a_bound() -> None:
    expected = grown(5_022, 5_142, 5_160)
    found = detect(Usage(5_044, output=1), expected, 5_100)
    assert found is not None
    assert (found.signs, found.limit) == (("crossed",), 5_100)

"""Silent truncation: each sign by itself, none by an estimate, and certain only with two."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import responses
from openai.types.chat import ChatCompletion

from ullage.core.dialects.usage import Usage
from ullage.core.messages.size import Size
from ullage.core.tokens.counting import Basis, Count, Measure, Scale
from ullage.core.tokens.truncation import (
    KEPT_HALF,
    SHORT_TOKENS,
    Sign,
    Truncation,
    detect,
    finish_reason,
    is_edited_by_server,
)

NOTHING = Size(0, 0, 0)
BASES: list[Basis] = ["exact", "server", "calibrated", "estimate"]
TOKENS = st.integers(0, 300_000)


def exact(tokens: int) -> Count:
    return Count(tokens, tokens, tokens, "exact")


def measured(basis: Basis, *, anchored: bool = False) -> Measure:
    made = Measure(NOTHING, NOTHING, (), "words", Scale(), basis)
    return made.with_server_count(5) if anchored else made


def signs(reported: int, counted: Count | int, window: int | None = None, **more: Any) -> set[Sign]:
    usage = Usage(reported, output=more.pop("output", 1))
    count = exact(counted) if isinstance(counted, int) else counted
    found = detect(usage, count, window, **more)
    return set() if found is None else set(found.signs)


# ── each sign alone ─────────────────────────────────────────────────────────────────────────────


def test_a_report_of_what_was_counted_shows_nothing():
    assert detect(Usage(5000, output=20), exact(5000), 8192, before=4000, finish="stop") is None


@pytest.mark.parametrize(
    ("reported", "counted", "short"),
    [
        (2499, 5000, True),
        (2500, 5000, False),  # not under half
        (999, 1999, True),
        (1000, 1999, False),  # 999 missing
        (400, 1400, True),
        (401, 1400, False),
    ],
)
def test_short_is_under_half_and_a_thousand_tokens(reported: int, counted: int, short: bool):
    assert signs(reported, counted) == ({"short"} if short else set())


@pytest.mark.parametrize("reported", [4095, 4096])
def test_a_prompt_over_the_window_that_is_reported_at_it_was_cut(reported: int):
    assert signs(reported, 5000, 4096) == {"at_window"}


@pytest.mark.parametrize("kept", KEPT_HALF)
def test_half_of_the_window_and_a_few_tokens_is_how_ollama_cuts(kept: int):
    # 4,096 became 2,050 (ollama pull request 18399)
    assert signs(2048 + kept, 4100, 4096) == {"at_half"}


@pytest.mark.parametrize("finish", ["length", "max_tokens"])
def test_an_answer_that_ends_for_length_before_its_first_token_had_no_room(finish: str):
    assert signs(4056, 4056, 4096, finish=finish, output=0) == {"length_without_output"}
    assert signs(4055, 4055, 4096, finish=finish, output=0) == set()
    assert signs(4056, 4056, 4096, finish=finish, output=1) == set()
    assert signs(4056, 4056, 4096, finish="stop", output=0) == set()


def test_thinking_is_output_too():
    usage = Usage(4090, output=0, reasoning=6)
    assert detect(usage, exact(4090), 4096, finish="length") is None


def test_more_than_the_window_holds_is_a_sign():
    assert signs(4097, 4097, 4096) == {"above_window"}


def test_a_report_that_falls_where_the_history_grew_is_a_sign():
    assert signs(3999, 4500, before=4000) == {"fell"}
    assert signs(4000, 4500, before=4000) == set()


# ── together ────────────────────────────────────────────────────────────────────────────────────


def test_two_signs_make_it_certain_and_one_does_not():
    one = detect(Usage(4096, output=1), exact(5000), 4096)
    assert one == Truncation(("at_window",), 4096, 5000, 4096)
    assert not one.certain
    two = detect(Usage(4096, output=1), exact(5000), 4096, before=4500)
    assert two == Truncation(("fell", "at_window"), 4096, 5000, 4096)
    assert two.certain


def test_all_that_can_agree_are_told():
    found = signs(2050, 9000, 4096, before=5000)
    assert found == {"short", "fell", "at_half"}


@pytest.mark.parametrize(
    ("reported", "counted", "window", "limit"),
    [
        (1000, 5000, None, 4999),  # what was cut cannot have fitted
        (1000, 5000, 8192, 4999),
        (4096, 9000, 4096, 4096),
        (1000, 9000, 4096, 4096),
        (4000, 4000, None, 4000),  # never under what went in
    ],
)
def test_the_limit_is_the_most_that_the_window_can_be(
    reported: int, counted: int, window: int | None, limit: int
):
    found = detect(Usage(reported, output=1), exact(counted), window, before=10**6)
    assert found is not None
    assert found.limit == limit


# ── what never happens ──────────────────────────────────────────────────────────────────────────


@given(TOKENS, TOKENS, st.sampled_from(BASES), st.booleans())
def test_an_estimate_alone_never_makes_a_report_short(
    reported: int, counted: int, basis: Basis, anchored: bool
):
    made = measured(basis, anchored=anchored)
    count = Count(counted, counted, counted, made.count().basis, made)
    found = signs(reported, count)
    sure = basis in ("exact", "server") or anchored
    assert "short" not in found or sure
    assert ("short" in found) == (
        sure and reported * 2 < counted and counted - reported >= SHORT_TOKENS
    )


@pytest.mark.parametrize("basis", ["exact", "estimate"])
def test_a_band_around_the_models_own_vocabulary_is_sure_at_its_lower_edge(basis: Basis):
    count = Count(4000, 3500, 4500, "estimate", measured(basis))  # a band for tools
    assert signs(1000, count) == ({"short"} if basis == "exact" else set())
    assert signs(1800, count) == set()


@given(TOKENS, TOKENS, st.integers(1, 300_000))
def test_a_prompt_that_may_have_fitted_is_never_cut_at_the_window(
    reported: int, counted: int, window: int
):
    low = min(counted, window)
    count = Count(max(counted, low), low, counted + 9, "estimate")
    assert signs(reported, count, window) <= {"above_window"}


@given(TOKENS, TOKENS, st.one_of(st.none(), st.integers(1, 300_000)), st.one_of(st.none(), TOKENS))
def test_a_truncation_has_a_sign_and_a_limit_that_holds(
    reported: int, counted: int, window: int | None, before: int | None
):
    found = detect(Usage(reported), exact(counted), window, before=before, finish="length")
    if found is None:
        return
    assert found.signs
    assert found.certain == (len(set(found.signs)) > 1)
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

"""What people are told of summaries that no model wrote."""

from __future__ import annotations

import pytest

from ullage.core.summary.flaws import WORDS, explain_flaw, explain_written, name_strategies
from ullage.core.summary.request import Written, make_unasked


def written(prose: str | None, flaw: str | None, *by_rule: str) -> Written:
    return Written(prose, flaw, (3, 1), 1.0, (), None, 4, by_rule)


@pytest.mark.parametrize(
    ("strategy", "reason", "told"),
    [
        ("summarise_middle+clear", None, "summarise_middle+clear"),
        ("summarise_middle+clear", "no_summariser", "kept by rule+clear"),
        ("summarise_middle", "summary_empty", "kept by rule"),
        ("", None, ""),
    ],
)
def test_no_name_promises_more_than_was_done(strategy: str, reason: str | None, told: str) -> None:
    assert name_strategies(strategy, reason) == told


def test_a_summarizer_that_gave_nothing_or_less_is_told() -> None:
    assert explain_written(None) == explain_written(make_unasked("no_room")) == ()
    assert explain_written(written("Goal:\n- x", None)) == ()
    (told,) = explain_written(written(None, "summary_empty"))
    assert (
        told == "the summarizer gave no summary (its answer was empty): the facts are kept by rule"
    )
    (told,) = explain_written(written(None, "summary_worse"))
    assert told.startswith("the summary was left out (its answer would take the room of")
    (told,) = explain_written(written("Goal:\n- x", None, "level 0, piece 2 of 3: summary_cut"))
    assert told == "the summarizer gave no summary of 1 of 4 pieces: they are kept by rule"


def test_flaws_have_words() -> None:
    assert all(explain_flaw(flaw) == text for flaw, text in WORDS.items())
    assert explain_flaw("a new one") == "a new one"

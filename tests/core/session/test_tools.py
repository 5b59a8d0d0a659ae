"""Values that a turn has of tools: what is assumed where nothing is said."""

from __future__ import annotations

from ullage.core.session.tools import Intent, Spec, ToolOutcome


def test_nothing_good_is_assumed_of_a_tool() -> None:
    spec = Spec("x", "does x", {"type": "object"})
    assert not spec.reads_only
    assert not spec.idempotent
    assert Intent() == (False, False)


def test_an_outcome_is_no_error_and_has_no_marks_of_its_own() -> None:
    outcome = ToolOutcome("done")
    assert not outcome.is_error
    assert outcome.exit_code is None
    assert outcome.marks == {}
    assert outcome.plan is None

"""A recorded session as one history that only grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ullage import importers
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.importers.session import ImportedSession, ModelTurn
from ullage.replay.history import read_history

RECORDINGS = Path("tests/recordings/sessions")


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


A, B, C, D = said("one"), said("two", "assistant"), said("three"), said("four", "assistant")
E, F = said("five"), said("six", "assistant")


def test_a_list_of_messages_has_a_call_before_each_answer() -> None:
    session = ImportedSession("chat", "openai_chat", (said("rules", "system"), A, B, C, D))
    history = read_history(session)
    assert [turn.stop for turn in history.turns] == [2, 4]
    assert history.messages == session.messages


def test_several_messages_of_one_answer_are_one_call() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "done"}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    session = ImportedSession(
        "responses", "openai_responses", (A, thought, call, result, thought, B)
    )
    assert [turn.stop for turn in read_history(session).turns] == [1, 4]


def test_a_summary_and_what_it_kept_stand_in_the_history_once() -> None:
    summary = said("what was done so far")
    messages = (A, B, C, D, summary, C, D, E, F)
    turns = (
        ModelTurn(1, 0, 1, 100, Usage(100), "m", "2026-01-01T00:00:00Z"),
        ModelTurn(2, 0, 3, 150, Usage(150), "m", "2026-01-01T00:01:00Z"),
        ModelTurn(3, 4, 8, 120, Usage(120), "m", "2026-01-01T00:02:00Z", compacted=True),
    )
    session = ImportedSession("claude", "anthropic", messages, turns, 4, summaries=(4,))
    history = read_history(session)
    assert history.messages == (A, B, C, D, E, F)
    assert [turn.stop for turn in history.turns] == [1, 3, 5]
    assert [turn.grown for turn in history.turns] == [True, True, False]
    assert history.turns[1].at == history.turns[0].at + 60  # type: ignore[operator]


def test_the_request_of_a_summary_is_no_turn() -> None:
    turns = (ModelTurn(1, 0, 1), ModelTurn(2, 0, 1), ModelTurn(3, 0, 3, at="no time"))
    history = read_history(ImportedSession("claude", "anthropic", (A, B, C, D), turns))
    assert [turn.stop for turn in history.turns] == [1, 3]
    assert history.turns[1].at is None


def test_a_session_without_an_answer_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"cellar\.jsonl holds no answer"):
        read_history(ImportedSession("chat", "openai_chat", (A,), path="cellar.jsonl"))


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_sessions_only_grow(path: Path) -> None:
    session = importers.load(path)
    try:
        history = read_history(session)
    except ConfigurationError as error:
        assert "holds no answer" in str(error)  # noqa: PT017 - one of the recordings is such
        return
    stops = [turn.stop for turn in history.turns]
    assert stops == sorted(set(stops))
    assert 0 < stops[0] <= stops[-1] <= len(history.messages) <= len(session.messages)
    texts = [str(session.messages[place]) for place in session.summaries]
    assert not set(texts) & {str(message) for message in history.messages}

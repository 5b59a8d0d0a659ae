"""A history that grew is surveyed from where it grew, and its units are those of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.test_laws import CLAUDE, calls, read, result, user
from tests.support import transcripts
from ullage.core.compaction import laws
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.openai_responses.codec import OpenAIResponses

READERS: list[Any] = [
    (OpenAIChat, transcripts.histories),
    (OpenAIChat, transcripts.broken_histories),
    (OpenAIResponses, transcripts.responses_histories),
    (OpenAIResponses, transcripts.broken_responses),
    (Anthropic, transcripts.anthropic_histories),
    (Anthropic, transcripts.broken_anthropic),
]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(("codec", "strategy"), READERS)
@given(data=st.data())
def test_what_is_found_in_a_history_that_grew_is_found_in_it_whole(
    codec: Any, strategy: Any, loops: bool, data: st.DataObject
) -> None:
    history = data.draw(strategy(max_turns=4))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(history)), max_size=4)) | {len(history)})
    memo: dict[str, Any] = {}
    for cut in cuts:
        fresh = codec().read(history[:cut])
        rules = replace(fresh.rules, loops=loops)
        known = laws.survey(replace(fresh, rules=rules, memo=memo))
        whole = laws.survey(replace(fresh, rules=rules, memo={}))
        assert known.units == whole.units
        assert list(known.violations) == list(whole.violations)
        assert [i for u in whole.units for i in range(u.start, u.stop)] == list(range(cut))


def test_a_loop_is_a_unit_where_the_provider_wants_it_whole() -> None:
    history = [
        user(),
        calls("a"),
        result("a"),
        calls("b"),
        result("b"),
        user(),
        calls("c"),
        result("c"),
    ]
    read_so = read(*history)
    rules = replace(read_so.rules, loops=True)
    whole = laws.units(replace(read_so, rules=rules, memo={}))
    assert [(u.start, u.stop) for u in whole] == [(0, 1), (1, 5), (5, 6), (6, 8)]


def test_words_beside_results_do_not_part_a_loops_calls_from_them() -> None:
    def block(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, **fields}

    def called(*ids: str) -> dict[str, Any]:
        used = [block("tool_use", id=i, name="f", input={}) for i in ids]
        return {"role": "assistant", "content": used}

    def answered(*ids: str, words: str = "") -> dict[str, Any]:
        results = [block("tool_result", tool_use_id=i, content="ok") for i in ids]
        return {
            "role": "user",
            "content": [*results, *([block("text", text=words)] if words else [])],
        }

    history = [
        user(),
        called("a"),
        answered("a"),
        called("b", "c"),
        answered("b", "c", words="and?"),
        user(),
        called("d"),
        answered("d"),
    ]
    memo: dict[str, Any] = {}

    def find(cut: int) -> laws.Survey:
        transcript = CLAUDE.read(history[:cut])
        rules = replace(transcript.rules, loops=True)
        return laws.survey(replace(transcript, rules=rules, memo=memo))

    assert find(6).violations == ()
    found = find(8)
    assert found.violations == ()
    assert [(u.start, u.stop) for u in found.units] == [(0, 1), (1, 5), (5, 6), (6, 8)]

"""Why a compaction came to nothing, in words for people."""

from __future__ import annotations

import pytest

from ullage.core.compaction.reasons import explain_unchanged
from ullage.core.tokens.counting import Count

MET = "the conversation is already"


@pytest.mark.parametrize(
    ("reason", "target", "words"),
    [
        ("nothing_to_compact", 4_096, f"{MET} below the target of 4,096 tokens: "),
        ("nothing_to_compact", 2_410, f"{MET} at the target of 2,410 tokens: "),
        ("nothing_to_compact", 2_409, "nothing can be left out; "),
        ("cannot_compact: x", 4_096, "the messages that must stay are larger than the window: x; "),
    ],
)
def test_a_target_that_is_met_is_told_apart_from_one_that_cannot_be(
    reason: str, target: int, words: str
) -> None:
    count = Count(2_000, 1_900, 2_410, "estimate")
    assert explain_unchanged(reason, target, count) == words + "at most 2,410 tokens"

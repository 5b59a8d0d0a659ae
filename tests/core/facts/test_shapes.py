"""What is copied from tools, sites and letters becomes no rule, compaction after compaction."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from tests.core.facts.rounds import compact_three_times
from tests.support.shapes import Shape, list_theirs, read_shapes

PASTED = read_shapes("pasted.txt")
TYPED = read_shapes("typed.txt")


def converse(shape: Shape, **options: Any) -> str:
    """Return the block of a conversation with a message, compacted three times."""
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "Help me mend the pump of the brewery."},
        {"role": "assistant", "content": "Gladly."},
        {"role": "user", "content": shape.text},
        {"role": "assistant", "content": "Seen."},
    ]
    return compact_three_times(said, 1_200, **options)


@pytest.mark.parametrize("shape", PASTED, ids=lambda shape: shape.name)
def test_what_is_copied_is_nobodys_rule_and_what_is_typed_beside_it_stays(shape: Shape) -> None:
    theirs = list_theirs(converse(shape))
    assert not [canary for canary in shape.canaries if canary in theirs]
    assert not [rule for rule in shape.rules if rule not in theirs]


@pytest.mark.parametrize("shape", TYPED, ids=lambda shape: shape.name)
def test_what_is_typed_in_paragraphs_and_lists_stays(shape: Shape) -> None:
    theirs = list_theirs(converse(shape))
    assert not [rule for rule in shape.rules if rule not in theirs]


@pytest.mark.parametrize("shape", PASTED[::4], ids=lambda shape: shape.name)
def test_a_summary_that_calls_it_a_rule_makes_none_of_it(shape: Shape) -> None:
    lines = "\n".join(f"- {canary}." for canary in shape.canaries)

    def parrot(request: ullage.SummaryRequest) -> str:
        return f"Rules and decisions, in the user's words:\n{lines}\nSaid by the user:\n{lines}"

    theirs = list_theirs(converse(shape, summarizer=parrot))
    assert not [canary for canary in shape.canaries if canary in theirs]
    assert not [rule for rule in shape.rules if rule not in theirs]

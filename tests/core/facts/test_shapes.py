"""What is copied from tools, sites and letters becomes no rule, compaction after compaction."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from tests.core.facts.rounds import compact_three_times
from tests.support.shapes import Shape, list_theirs, read_shapes
from ullage.core.facts.shapes import find_hours

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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("09:00 doors\n10:15 talk\n12:30 soup", [0, 1, 2]),
        ("- 9.00 Uhr Türen\n- 10.15 Uhr Vortrag", [0, 1]),
        ("Monday 19:00-21:00\nFriday 19:00 - 21:00", [0, 1]),
        ("09:00 doors", []),
        ("10:15 talk\n09:00 doors", []),  # a timetable goes on
        ("09:00:01 doors\n10:15:02 talk", []),  # a log
        ("09:00 ann: hello\n10:15 bob: hello", []),  # a chat
        ("09:00 doors\n\n10:15 talk", []),
        ("ann 09:00\nbob 10:15", []),
    ],
)
def test_lines_of_a_timetable_are_told_from_logs_and_chats(text: str, found: list[int]) -> None:
    assert sorted(find_hours(text.split("\n"))) == found

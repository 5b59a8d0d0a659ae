"""What later turns take up of what was said before."""

from __future__ import annotations

import pytest

from tests.core.compaction.situations import CODEC, said, tool_step
from ullage.replay.uses import find_kind, find_uses


def taken(messages, stops):
    read = CODEC.read(messages).messages
    uses = find_uses(read, stops)
    return uses, [{(used.term, used.kind) for used in turn.terms} for turn in uses.turns]


def test_names_numbers_and_rare_words_that_come_again_are_taken_up() -> None:
    messages = [
        said("user", "The pump in src/cellar/pump.py takes 4711 litres of the Veltliner."),
        said("assistant", "I see."),
        said("user", "What did it take?"),
        said("assistant", "src/cellar/pump.py takes 4711 of the Veltliner"),
    ]
    _, (first, second) = taken(messages, [1, 3])
    assert first == set()
    assert {("src/cellar/pump.py", "files"), ("4711", "values"), ("veltliner", "words")} <= second
    assert not any(term == "the" for term, _ in second)  # too short to be rare


def test_what_a_tool_returned_is_no_taking_up_but_can_be_taken_up() -> None:
    messages = [
        said("user", "Look."),
        *tool_step("c1", "gauge reads 8812"),
        said("assistant", "8812"),
    ]
    uses, turns = taken(messages, [1, 3])
    assert ("8812", "values") in turns[1]
    (used,) = [used for used in uses.turns[1].terms if used.term == "8812"]
    assert uses.find_source(used, lambda place: False) == 2
    assert uses.find_source(used, lambda place: place == 2) is None


def test_of_several_that_said_it_one_is_enough() -> None:
    messages = [
        said("user", "It is 8812."), said("assistant", "8812 it is"),
        said("user", "Sure?"), said("assistant", "8812"),
    ]  # fmt: skip
    uses, _ = taken(messages, [1, 3])
    (used,) = [used for used in uses.turns[1].terms if used.term == "8812"]
    assert uses.find_source(used, lambda place: place == 0) is None
    assert uses.find_source(used, lambda place: place > 1) == 1


def test_a_word_that_stands_in_many_messages_is_not_rare() -> None:
    talk = [said("user" if n % 2 == 0 else "assistant", f"barrel number {n}") for n in range(12)]
    _, turns = taken(talk, [1, 3, 5, 7, 9, 11])
    assert ("barrel", "words") in turns[1]
    assert ("barrel", "words") not in turns[5]


def test_a_call_made_again_knows_where_its_last_result_stands() -> None:
    messages = [
        said("user", "Look."),
        *tool_step("c1", "one"),
        *tool_step("c2", "two"),
        said("user", "x"),
    ]
    uses, _ = taken(messages, [1, 3])
    assert uses.turns[0].calls == ()
    assert [again.places for again in uses.turns[1].calls] == [(1, 2)]


@pytest.mark.parametrize(
    ("term", "kind"),
    [("a/b", "files"), ("x.py", "files"), ("3.5", "values"), ("v2", "values"), ("pump", "words"),
     ("is", None), ("max_retries", "words"), ("葡萄", "words"), ("end.", "words")],
)  # fmt: skip
def test_the_kind_goes_by_the_form(term: str, kind: str | None) -> None:
    assert find_kind(term) == kind

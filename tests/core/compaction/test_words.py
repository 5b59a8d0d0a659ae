"""What was worked out of a history is gone on with, and says what work from the start says."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, said, tool_step
from tests.support.transcripts import History, histories
from ullage.core.compaction.words import WordStore
from ullage.core.facts.sheet import UNKNOWN
from ullage.core.messages.transcript import Message

TALK = [
    message
    for n in range(8)
    for message in (
        said("user", f"Mirela tuned the accordion of shelf {n + 400}. Never open port {n + 20}."),
        said("assistant", f"Shelf {n + 400} is {n + 3} m wide, and port {n + 20} stays closed."),
        *tool_step(f"c{n}", f"port {n + 20} is open\nMirela has shelf {n + 400}"),
    )
]


def tell(messages: tuple[Message, ...]) -> list[Any]:
    """Return all that a store tells of messages."""
    store, places = WordStore(messages), range(len(messages))
    parts = [(n, p) for n in places for p in range(len(messages[n].parts))]
    return [
        list(store.find_said(places)),
        list(store.find_others(places)),
        list(store.list_typed(places)),
        list(store.list_data(places)),
        [store.read_result(*part) for part in parts],
        store.collect(places, UNKNOWN),
        store.blocks,
        store.authors,
    ]


def tell_anew(messages: tuple[Message, ...]) -> list[Any]:
    """Return the same where nothing was worked out before."""
    return tell(tuple([Message(m.role, m.parts, m.calls, m.name) for m in messages]))


@given(history=histories(), ends=st.lists(st.integers(0, 30), max_size=4))
def test_a_history_that_goes_on_is_told_of_as_from_the_start(
    history: History, ends: list[int]
) -> None:
    messages = CODEC.read(history).messages
    for end in ends:
        assert tell(messages[:end]) == tell_anew(messages[:end])
        assert tell(messages) == tell_anew(messages)


def test_words_of_a_history_that_goes_on_are_counted_as_from_the_start() -> None:
    messages = CODEC.read(TALK).messages
    for end in (5, 9, len(messages)):
        assert tell(messages[:end]) == tell_anew(messages[:end])
    assert tell(messages[:7]) == tell_anew(messages[:7])


def test_the_same_history_is_worked_out_once() -> None:
    messages = CODEC.read(TALK).messages
    first, again = WordStore(messages), WordStore(messages)
    assert again.vocabulary is first.vocabulary
    assert WordStore(messages[:4]).vocabulary is not first.vocabulary


def test_two_histories_with_one_beginning_are_told_apart() -> None:
    messages = CODEC.read(TALK).messages
    one, other = messages[:6], (*messages[:4], *messages[8:12])
    for told in (one, other, one):
        assert tell(told) == tell_anew(told)


def test_what_was_worked_out_stays_in_its_process() -> None:
    messages = CODEC.read(TALK).messages
    told = tell(messages)
    copies = pickle.loads(pickle.dumps(messages))
    assert copies == messages
    assert tell(copies) == told


def test_what_was_worked_out_goes_with_the_first_message() -> None:
    messages = CODEC.read(TALK).messages
    first = WordStore(messages).vocabulary
    messages[0].forget_findings()
    assert WordStore(messages).vocabulary is not first

"""What is read again of a history that was read before, and what never is."""

from __future__ import annotations

import copy
from enum import StrEnum
from typing import Any

import pytest
from anthropic.types import Message as ClaudeMessage
from anthropic.types import TextBlock
from anthropic.types import Usage as ClaudeUsage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from ullage.core.messages.readings import (
    BESIDE,
    MOST_READINGS,
    MOST_STEPS,
    OVERTAKEN,
    Readings,
)
from ullage.core.messages.transcript import FINDING, Message, Part, Rules

RULES = Rules("openai_chat")


class Spoken(str):
    """A framework's own kind of text."""

    __slots__ = ()


class Folded(str):
    """A text that is equal to others than itself."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.casefold() == other.casefold()


class Reader:
    """Reads messages as they come and writes down which."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.readings = Readings(most)
        self.seen: list[int] = []

    def __call__(self, history: list[Any]) -> list[int]:
        """Return the positions that were read, of which nothing was known."""
        self.seen = []
        made = self.readings.read(tuple(history), RULES, self._read)
        assert [m.text for m in made.messages] == [_text(raw) for raw in history]
        assert all(a is b for a, b in zip(made.raws, history, strict=True))
        return self.seen

    def _read(self, raw: Any, index: int) -> Message:
        self.seen.append(index)
        return Message("user", (Part("text", _text(raw)),))


def _text(raw: Any) -> str:
    return repr(raw.model_dump() if hasattr(raw, "model_dump") else raw)


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def chat(length: int, name: str = "q") -> list[dict[str, Any]]:
    return [said("Be brief.", "system"), *(said(f"{name}{n}") for n in range(length - 1))]


class StandardRole(StrEnum):
    """Roles as frameworks have them."""

    SYSTEM = "system"


ASKED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OPENINGS: list[Any] = [
    [said("Be brief.", "system")],
    [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}],
    [said("go"), {"role": "assistant", "content": None, "tool_calls": [ASKED]}],
    [said("go"), {"role": "assistant", "content": [{"type": "tool_use", "input": {"n": 1.5}}]}],
    [{"role": "user", "content": ({"type": "image_url", "image_url": {"url": "data:,"}},)}],
    [said("go"), ChatCompletionMessage(role="assistant", content="I look.")],
    [{"role": StandardRole.SYSTEM, "content": Spoken("Be brief.")}, said("go")],
]


@pytest.mark.parametrize("opening", OPENINGS, ids=range(len(OPENINGS)))
def test_whatever_a_history_opens_with_only_what_is_new_is_read(opening: list[Any]):
    read, history = Reader(), list(opening)
    assert read(history) == list(range(len(history)))
    for _ in range(5):
        before = len(history)
        history = [*copy.deepcopy(history), said("more"), said("yes", "assistant")]
        assert read(history) == [before, before + 1]


def test_a_long_history_is_still_known_after_short_ones():
    read, long = Reader(100_000_000), chat(2_000)
    read(long)
    for number in range(MOST_READINGS - 1):
        assert read(chat(2, f"title {number}")) == [0, 1]
        long = [*long, said(f"turn {number}")]
        assert read(long) == [len(long) - 1]


def test_two_histories_with_one_beginning_grow_side_by_side():
    read = Reader()
    one, two = [*chat(50), said("left")], [*chat(50), said("right")]
    assert read(one) == list(range(51))
    assert read(two) == [50]
    for number in range(5):
        one, two = [*one, said(f"l{number}")], [*two, said(f"r{number}")]
        assert read(one) == read(two) == [51 + number]


def test_a_history_that_went_back_is_read_from_there():
    read, history = Reader(), chat(100)
    read(history)
    assert read([*history[:60], said("again")]) == [60]
    assert read([*history, said("on")]) == [100]


class Deriving:
    """Reads, and writes down of how many messages something was derived before."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.readings = Readings(most)

    def __call__(self, history: list[Any]) -> int:
        made = self.readings.read(tuple(history), RULES, _read_text)
        known, _ = made.memo.get("words", (0, 0))
        made.memo["words"] = (len(made), 0)
        return int(known)


def test_what_was_derived_a_few_steps_back_still_holds():
    read, history = Deriving(), chat(10)
    assert read(history) == 0
    for _ in range(MOST_STEPS):
        history = [*history, said("more")]
        assert read(history) == len(history) - 1
    for back in range(1, MOST_STEPS):
        assert read([*history[:-back], said(f"instead {back}")]) == len(history) - back
    assert read([*history[:5], said("far back")]) == 0
    assert read(history) == len(history)


def test_what_moves_at_the_end_costs_the_end_alone():
    read = Deriving()
    for length in range(10, 30):  # clients mark the last message for the provider's cache
        marked = {**said(f"q{length - 1}"), "cache_control": {"type": "ephemeral"}}
        assert read([*chat(length), marked]) == (length if length > 10 else 0)


def test_a_conversation_that_goes_again_through_another_derives_its_own_once():
    read, whole = Deriving(), chat(40)
    for length in range(10, 41):
        read(whole[:length])
    assert read(whole[:20]) == 0
    for length in range(21, 35):
        assert read(whole[:length]) == length - 1
    assert len(read.readings) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=12))
def test_the_weight_of_a_reading_is_that_of_its_messages(steps: list[tuple[int, int]]):
    readings = Readings(10_000_000)
    for name, length in steps:
        made = readings.read(tuple(chat(length, "q" * (name + 1))), RULES, _read_text)
        newest = readings._held[0][-1]
        assert newest.weight == sum(BESIDE + m.characters for m in made.messages)
        assert [step.size for step in newest.steps] == sorted(
            {step.size for step in newest.steps}, reverse=True
        )
        assert newest.steps[0].size == len(newest.copies) == length


def _read_text(raw: Any, index: int) -> Message:
    return Message("user", (Part("text", raw["content"]),))


@given(st.data())
def test_what_was_changed_in_place_is_read_again(data: st.DataObject):
    values = st.sampled_from([1, 1.0, True, "1", None, [1], {"a": 1}, {"a": True}])
    history = [{"role": "user", "content": data.draw(values)} for _ in range(4)]
    read = Reader()
    read(history)
    for raw in data.draw(st.lists(st.sampled_from(history), max_size=3)):
        raw["content"] = data.draw(values)
    read(history)  # the reader compares the texts


def test_an_object_of_an_sdk_that_was_changed_in_place_is_read_again():
    answer = ClaudeMessage(
        id="m",
        content=[TextBlock(type="text", text="a")],
        model="claude",
        role="assistant",
        type="message",
        usage=ClaudeUsage(input_tokens=1, output_tokens=1),
    )
    read, history = Reader(), [said("go"), said("on"), answer, said("and?")]
    assert read(history) == [0, 1, 2, 3]
    assert read(history) == []
    answer.content = [TextBlock(type="text", text="b")]
    assert read(history) == [2, 3]


@pytest.mark.parametrize(
    "odd", [object(), b"x", {1: "x"}, Folded("x"), "nested"], ids=lambda odd: type(odd).__name__
)
def test_what_cannot_be_compared_is_read_each_time_and_all_behind_it(odd: Any):
    if odd == "nested":
        for _ in range(2_000):
            odd = [odd]
    history = [said("a"), {"role": "user", "content": odd}, said("b")]
    seen: list[int] = []

    def read_message(raw: Any, index: int) -> Message:
        del raw
        seen.append(index)
        return Message("user")

    readings = Readings()
    for _ in range(2):
        readings.read(tuple(history), RULES, read_message)
    assert seen == [0, 1, 2, 1, 2]


def test_no_more_than_some_histories_are_kept():
    read = Reader()
    for number in range(3 * MOST_READINGS):
        read(chat(2, f"{number}"))
    assert len(read.readings) == MOST_READINGS
    assert read(chat(2, f"{3 * MOST_READINGS - 1}")) == []
    assert read([]) == []


def test_the_oldest_go_where_there_are_too_many_bytes_and_the_newest_stays():
    read = Reader(20 * BESIDE)
    read(chat(8, "a"))
    read(chat(8, "b"))
    assert len(read.readings) == 2
    assert read(chat(9, "b")) == [8]
    assert read(chat(40, "c")) == list(range(40))
    assert len(read.readings) == 1
    assert read(chat(41, "c")) == [40]


def work_out(readings: Readings, history: list[Any]) -> list[Message]:
    """Read a history and note something of each message, as a compaction does."""
    read = readings.read(tuple(history), RULES, lambda raw, _: Message("user", (_part(raw),)))
    for message in read.messages:
        message.memo[FINDING + "words"] = len(message.text)
    return list(read.messages)


def _part(raw: Any) -> Part:
    return Part("text", _text(raw))


def has_findings(message: Message) -> bool:
    return FINDING + "words" in message.memo


def test_what_was_worked_out_lasts_for_the_newest_histories_alone():
    readings = Readings()
    first = work_out(readings, chat(4, "first"))
    for number in range(OVERTAKEN[0] - 1):
        work_out(readings, chat(3, f"{number} "))
    assert all(map(has_findings, first))
    grown = work_out(readings, chat(6, "first"))  # it is the newest again, with all of its messages
    assert all(a is b for a, b in zip(first, grown, strict=False))
    for number in range(OVERTAKEN[0] - 1):
        work_out(readings, chat(3, f"{number} "))
    assert all(map(has_findings, grown))
    work_out(readings, chat(3, "one more "))
    assert not any(map(has_findings, grown))
    assert len(readings) == OVERTAKEN[0] + 1


def test_what_is_worked_out_of_a_history_that_was_overtaken_goes_too():
    """A large request may be compacted in a thread while many small ones are read."""
    readings = Readings()
    slow = readings.read(
        tuple(chat(6, "slow")), RULES, lambda raw, _: Message("user", (_part(raw),))
    )
    for number in range(OVERTAKEN[0]):
        work_out(readings, chat(3, f"{number} "))
    for message in slow.messages:
        message.memo[FINDING + "words"] = 1
    for number in range(MOST_READINGS - OVERTAKEN[0] - 1):
        work_out(readings, chat(3, f"later {number} "))
    assert len(readings) == MOST_READINGS
    assert not any(map(has_findings, slow.messages))


def test_what_was_worked_out_goes_with_a_history_that_is_too_many():
    readings = Readings(20 * BESIDE)
    first = work_out(readings, chat(8, "a"))
    work_out(readings, chat(30, "b"))
    assert len(readings) == 1
    assert not any(map(has_findings, first))

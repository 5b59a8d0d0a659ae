"""The bench's texts are what the page says, and its ways of counting them agree."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bench import content, textworker
from bench.peers.texts import Counting, Toktok, Ullage, UllageCounter
from bench.textworker import Loaded, append, letter, short_texts, texts
from bench.transcript import Shape, write
from tests.counters.oracle import reference

OURS = (UllageCounter, Ullage)


def test_short_texts_are_short_and_all_different() -> None:
    found = short_texts(textworker.SHORT)
    assert len(set(found)) == textworker.SHORT
    assert {len(text) for text in found} == {20}
    assert found == short_texts(textworker.SHORT)


def test_every_text_of_a_message_is_found() -> None:
    call = {"id": "c", "function": {"name": "read", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    assert list(texts(messages)) == ["go", "read", "{}"]


@pytest.mark.parametrize("make", [*OURS, Toktok])
def test_counters_agree_with_another_library(make: type[Counting]) -> None:
    counter, truth = make(), reference("o200k_base")
    for text in texts(write(Shape(60))):
        assert counter.count(text) == truth(text)


@pytest.mark.parametrize("make", OURS)
def test_appending_finds_what_a_recount_finds(make: type[Counting]) -> None:
    answer = append(Loaded(make(), 0, 0), {"grown": 2_000})
    assert answer["tokens"] == answer["truth"]
    assert answer["appends"] == textworker.APPENDS


def test_an_append_is_counted_at_once() -> None:
    start = content.prose(random.Random(1), 500)
    counter = UllageCounter()
    whole = counter.grown(start)
    assert whole(" and more") == counter.count(f"{start} and more")


def test_a_letter_is_as_long_as_asked_for() -> None:
    answer = letter(Loaded(UllageCounter(), 0, 0), {"letters": 800})
    assert answer["tokens"] == reference("o200k_base")("a" * 800)

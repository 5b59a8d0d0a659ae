"""Remembered counts are the counter's own, within the memory that was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from ullage.counters.recall import _OVERHEAD, SHORT, Deferred, Recall

WORDS = ("a", "bb", "ccc", "dddd", "eeeee", "ffffff")


class Letters:
    """A counter whose tokens are letters, and which tells what it was asked."""

    key = "letters"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


@given(calls=st.lists(st.sampled_from(WORDS), max_size=40), limit=st.integers(1, 1_500))
def test_remembering_changes_no_count(calls: list[str], limit: int) -> None:
    recall = Recall(Letters(), limit)
    for text in calls:
        assert recall.count(text) == len(text)
        held = [*recall._young, *recall._old]
        assert sum(len(text) + _OVERHEAD for text in held) <= limit


def test_a_text_is_counted_once() -> None:
    counter = Letters()
    recall = Recall(counter, 10_000)
    one, two = "one" * SHORT, "two" * SHORT
    for text in (one, two, one, two):
        recall.count(text)
    assert counter.asked == [one, two]


def test_a_short_text_is_sooner_counted_than_looked_up() -> None:
    counter = Letters()
    recall = Recall(counter, 10_000)
    assert [recall.count("one"), recall.count("one")] == [3, 3]
    assert counter.asked == ["one", "one"]
    assert not recall._young


def test_many_texts_pass_straight_through() -> None:
    counter = Letters()
    recall = Recall(counter, 10_000)
    assert recall.count_many(["a", "bb"]) == recall.count_many(["a", "bb"]) == [1, 2]
    assert counter.asked == ["a", "bb", "a", "bb"]
    assert not recall._young


def test_what_is_used_again_outlives_what_is_not() -> None:
    counter = Letters()
    recall = Recall(counter, 10 * (_OVERHEAD + 4 * SHORT))
    for number in range(100):
        recall.count("kept" * SHORT)
        recall.count(f"{number:04}" * SHORT)
    assert counter.asked.count("kept" * SHORT) == 1


def test_a_text_over_the_limit_is_counted_and_not_kept() -> None:
    recall = Recall(Letters(), 1_000)
    assert recall.count("x" * 600) == 600
    assert not recall._young


def test_threads_share_one_memory() -> None:
    recall = Recall(Letters(), 5_000)
    texts = [str(number) * (number % 7 + SHORT) for number in range(200)]
    expected = [len(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(recall.count, texts * 50)) == expected * 50
    assert sum(len(text) + _OVERHEAD for text in recall._young) == recall._held <= 2_500


def test_a_deferred_counter_is_built_once_when_it_first_counts() -> None:
    built: list[Letters] = []

    def build() -> Letters:
        built.append(Letters())
        return built[-1]

    late = Deferred("letters", build)
    assert late.key == "letters"
    assert not built
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(late.count, ["ab"] * 50)) == [2] * 50
    assert late.count_many(["a", "bb"]) == [1, 2]
    assert len(built) == 1

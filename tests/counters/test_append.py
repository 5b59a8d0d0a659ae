"""Appending piece by piece, and stopping at a limit, give what counting the whole gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counters import corpora
from tests.counters.oracle import BACK_ENDS, NAMES, native, reference
from ullage.counters import Vocabularies
from ullage.counters.append import AppendCounter, fits, until
from ullage.counters.unicode import last_cut, segments, upper_bound

FRAGMENTS = [
    *" \n\t.,;:!?'()\"aZ7é中かカ가\u3001\uff0c\u0301\u017f\u00a0-_/",
    "\r\n", "  ", "'s", "'LL", "don't",
    "HTTPServer", "123456", " the", "\ud83d", "\ude80", "\U000323b0", "\U00031350", "<|im_end|>",
]  # fmt: skip
pieces = st.lists(
    st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join) | st.text(max_size=12),
    max_size=12,
)


class Watched:
    """A counter that adds up how many characters it was given."""

    def __init__(self, name: str) -> None:
        self.key = name
        self.counted = 0
        self._counter = native(name)

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        self.counted += sum(map(len, texts))
        return self._counter.count_many(texts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back_end", BACK_ENDS)
@given(texts=pieces, asked=st.lists(st.booleans(), min_size=12, max_size=12))
def test_any_split_of_any_text_counts_as_the_whole(
    back_end: str, name: str, texts: list[str], asked: list[bool]
) -> None:
    growing = AppendCounter(BACK_ENDS[back_end](name))
    for number, (text, ask) in enumerate(zip(texts, asked, strict=False), start=1):
        growing.append(text)
        if ask:
            assert growing.tokens == reference(name)("".join(texts[:number]))
    assert growing.tokens == reference(name)("".join(texts))


@pytest.mark.parametrize("kind", corpora.KINDS)
def test_a_stream_of_every_kind_counts_as_the_whole(kind: str) -> None:
    text = next(corpora.texts(kind, count=1, longest=3_000))
    growing = AppendCounter(native("o200k_base"))
    for start in range(0, len(text), 7):
        growing.append(text[start : start + 7])
        assert growing.tokens == reference("o200k_base")(text[: start + 7])


def test_an_append_costs_the_same_however_long_the_history_is() -> None:
    counter = Watched("o200k_base")
    growing = AppendCounter(counter)
    sentence = "The window is full, so 3 older turns go (中文). "
    for _ in range(2_000):
        growing.append(sentence)
        assert growing.tokens
    assert counter.counted < 2 * 2_000 * len(sentence)
    counter.counted = 0
    assert growing.tokens == growing.tokens
    assert counter.counted == 0


def test_a_run_without_a_sure_end_is_kept_whole() -> None:
    growing = AppendCounter(native("o200k_base"))
    for _ in range(50):
        growing.append("a" * 40)
        assert growing.tokens == reference("o200k_base")(growing._tail)
    assert growing._tail == "a" * 2_000
    growing.append(" end")
    assert growing.tokens == reference("o200k_base")("a" * 2_000 + " end")
    assert growing._tail == " end"


def test_what_is_appended_is_not_remembered() -> None:
    counter = Vocabularies().counter("o200k_base")
    growing = AppendCounter(counter)
    growing.append("one two")
    assert growing.tokens == 2
    assert growing.key == "o200k_base"
    assert not counter._young  # type: ignore[attr-defined]  # the memory of `Recall`


@given(text=st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join), start=st.integers(0, 9))
def test_the_last_cut_is_the_last_of_all_cuts(text: str, start: int) -> None:
    start = min(start, len(text))
    ends = [len(text) - len(rest) for rest in _rests(text)]
    assert last_cut(text, start) == max((end for end in ends if end > start), default=start)


@pytest.mark.parametrize("length", [255, 256, 257, 511, 512, 767, 768, 769, 3_000])
def test_the_last_cut_is_found_however_far_back_it_is(length: int) -> None:
    text = "first, cut" + "x" * length
    assert last_cut(text) == 5
    assert last_cut(text, 4) == 5
    assert last_cut(text, 5) == 5
    assert last_cut(" " + text[6:]) == 0


def _rests(text: str) -> list[str]:
    found = segments(text)
    return ["".join(found[number:]) for number in range(1, len(found))]


@pytest.mark.parametrize("name", NAMES)
@given(texts=pieces, times=st.integers(1, 60), limit=st.integers(-3, 9_000))
def test_until_says_what_the_count_says(
    name: str, texts: list[str], times: int, limit: int
) -> None:
    text = "".join(texts) * times
    exact = native(name).count(text)
    tokens, within = until(text, limit, native(name))
    assert within == (exact <= limit) == fits(text, limit, native(name))
    assert tokens == exact if within else limit < tokens <= exact


@pytest.mark.parametrize("limit", [0, 10, 1_000, 20_000])
def test_a_text_far_over_the_limit_is_not_counted_to_its_end(limit: int) -> None:
    text = "An ordinary sentence (with 3 stops), and a line.\n" * 20_000
    counter = Watched("o200k_base")
    tokens, within = until(text, limit, counter)
    assert not within
    assert limit < tokens
    assert counter.counted < 5 * limit + 5_000 < len(text)


def test_text_of_few_tokens_is_counted_block_by_block() -> None:
    text = ("a" + " " * 79) * 5_000
    exact = reference("o200k_base")(text)
    counter = Watched("o200k_base")
    tokens, within = until(text, exact // 4, counter)
    assert exact // 4 < tokens < exact
    assert not within
    assert counter.counted < len(text) // 2
    assert until(text, exact, counter) == (exact, True)


def test_text_without_a_place_to_stop_is_counted_whole() -> None:
    text = "ab" * 50_000
    assert until(text, 3, native("o200k_base")) == (reference("o200k_base")(text), False)


def test_text_whose_bytes_fit_is_not_counted() -> None:
    counter = Watched("o200k_base")
    assert fits("a" * 1_000, 1_000, counter)
    assert fits("中" * 100, 9 * 100, counter)
    assert counter.counted == 0
    assert not fits("中文 " * 100, 3, counter)
    assert counter.counted


def test_normalising_triples_bytes_at_most() -> None:
    import unicodedata

    most = max(
        upper_bound(unicodedata.normalize("NFC", chr(point))) / upper_bound(chr(point))
        for point in range(0x110000)
        if not 0xD800 <= point < 0xE000
    )
    assert most == 3

"""Huge and hostile texts finish soon, right where a count is exact and never below it elsewhere."""

from __future__ import annotations

import base64
import random
import time

import pytest
import tiktoken

from tests.counters.oracle import NAMES, native, pure, reference
from ullage.counters.pure import LONGEST_PIECE
from ullage.counters.toktok import MOST_RECOUNTED, Toktok
from ullage.counters.unicode import upper_bound

MILLION = 1_000_000
BOMBS = {
    "one letter": "a" * MILLION,
    "spaces, then a letter": " " * MILLION + "x",
    "newlines": "\n" * MILLION,
    "dashes": "-" * 300_000,
    "ideographs": "中" * MILLION,
    "marks": "a" + "\u0301" * MILLION,
    "emoji": "👩‍💻" * 200_000,
    "nul": "\0" * MILLION,
    "surrogates": "\ud800" * 200_000,
    "random letters": "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=MILLION)),
    "base64": base64.b64encode(random.Random(2).randbytes(750_000)).decode(),
    "long s": "it'\u017f " * 200_000,
}
SECONDS = 10


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_counted_exactly_and_soon(name: str, bomb: str) -> None:
    text = BOMBS[bomb]
    started = time.process_time()
    tokens = native(name).count(text)
    spent = time.process_time() - started
    assert spent < SECONDS
    if bomb == "long s":
        assert reference(name)(text) <= tokens <= upper_bound(text)
    else:
        assert tokens == reference(name)(text)


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_does_not_stop_the_pure_counter(bomb: str) -> None:
    text = BOMBS[bomb]
    started = time.process_time()
    tokens = pure("o200k_base").count(text)
    assert time.process_time() - started < SECONDS
    assert reference("o200k_base")(text) <= tokens <= upper_bound(text)


def test_the_pure_counter_is_exact_up_to_its_longest_piece() -> None:
    for text in ("a" * LONGEST_PIECE, BOMBS["random letters"][:LONGEST_PIECE]):
        assert pure("o200k_base").count(text) == reference("o200k_base")(text)
    assert pure("o200k_base").count("a" * (LONGEST_PIECE + 1)) == LONGEST_PIECE + 1


def test_doubtful_text_is_exact_up_to_what_is_recounted() -> None:
    clean = "an ordinary sentence, 中文。 " * 20_000
    doubtful = "\U000323b0\U000323b1 " * (MOST_RECOUNTED // 6)
    for text in (doubtful, clean + "\U000323b0" + clean):
        assert native("o200k_base").count(text) == reference("o200k_base")(text)


class Panicking:
    """Stands for the library, and really panics.

    tiktoken 0.14 overflows its stack on a run of a million spaces.
    """

    def __init__(self) -> None:
        self._tiktoken = tiktoken.Encoding(
            "bytes",
            pat_str=r"\s+(?!\S)|\s+|\S+",
            mergeable_ranks={bytes([byte]): byte for byte in range(256)},
            special_tokens={},
        )

    def _encoding(self, _: str) -> Panicking:
        return self

    def count(self, text: str) -> int:
        if text == "interrupted":
            raise KeyboardInterrupt
        return len(self._tiktoken.encode_ordinary(text))


def test_a_native_panic_counts_as_bytes() -> None:
    library = Panicking()
    counter = Toktok("o200k_base", pure("o200k_base"), library)
    text = " " * MILLION + "x"
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - its type cannot be imported
        library.count(text)
    assert not isinstance(caught.value, Exception)
    assert counter.count(text) == MILLION + 1
    assert counter.count_many(["ab", text]) == [2, MILLION + 1]


def test_what_is_no_panic_passes_through() -> None:
    counter = Toktok("o200k_base", pure("o200k_base"), Panicking())
    with pytest.raises(KeyboardInterrupt):
        counter.count("interrupted")
    with pytest.raises(KeyboardInterrupt):
        counter.count_many(["ab", "interrupted"])

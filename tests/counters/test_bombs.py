"""Huge and hostile texts finish soon, right where a count is exact and never below it elsewhere."""

from __future__ import annotations

import base64
import random
import time

import pytest
import tiktoken

from tests.counters.oracle import NAMES, native, pure, reference
from ullage.counters.pure import LONGEST_PIECE
from ullage.counters.toktok import MOST_RECOUNTED, panicked
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


def test_a_native_panic_is_told_from_everything_else() -> None:
    """tiktoken 0.14 overflows its stack on a million spaces, as a real panic does."""
    encoding = tiktoken.Encoding(
        "bytes", pat_str=r"\s+(?!\S)|\s+|\S+",
        mergeable_ranks={bytes([b]): b for b in range(256)}, special_tokens={},
    )  # fmt: skip
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the type has no name to import
        encoding.encode_ordinary(" " * MILLION + "x")
    assert panicked(caught.value)
    assert not isinstance(caught.value, Exception)
    assert not any(map(panicked, (KeyboardInterrupt(), SystemExit(), MemoryError(), ValueError())))

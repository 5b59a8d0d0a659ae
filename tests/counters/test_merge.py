"""Merging by heap gives what the definition of byte-pair encoding gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.counters import merge

LETTERS = b"abc"
pieces = st.binary(max_size=24).map(lambda raw: bytes(LETTERS[byte % 3] for byte in raw))


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[bytes, int]:
    """Draw ranks in which every longer token joins two that come before it, as training gives."""
    tokens = [bytes([letter]) for letter in LETTERS]
    for _ in range(draw(st.integers(0, 14))):
        joined = draw(st.sampled_from(tokens)) + draw(st.sampled_from(tokens))
        if joined not in tokens:
            tokens.append(joined)
    return {token: rank for rank, token in enumerate(tokens)}


def by_definition(piece: bytes, ranks: dict[bytes, int]) -> int:
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        pairs = [
            (ranks[joined], i)
            for i in range(len(parts) - 1)
            if (joined := parts[i] + parts[i + 1]) in ranks
        ]
        if not pairs:
            return len(parts)
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@given(piece=pieces, ranks=vocabularies())
def test_merging_follows_the_definition(piece: bytes, ranks: dict[bytes, int]) -> None:
    expected = 1 if piece in ranks else by_definition(piece, ranks)
    assert merge.tokens(piece, ranks) == expected


def test_the_leftmost_of_equal_pairs_merges_first() -> None:
    ranks = {b"a": 0, b"b": 1, b"aa": 2, b"aab": 3}
    assert merge.tokens(b"aaab", ranks) == 3
    assert merge.tokens(b"aab", ranks) == 1


def test_nothing_is_no_token() -> None:
    assert merge.tokens(b"", {}) == 0

"""Byte-pair merging of one pre-token, for counters without native code.

It knows ranks (token bytes to priority), but not how text is split into pre-tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


def tokens(piece: bytes, ranks: Mapping[bytes, int]) -> int:
    """Return the number of tokens of `piece`, in O(n log n) of its bytes.

    The pair with the lowest rank merges first, the leftmost of equals, until no pair has a rank.
    """
    if len(piece) < 2 or piece in ranks:
        return len(piece) and 1
    size = len(piece)
    after = list(range(1, size + 2))  # by a token's first byte: the start of the next token
    before = list(range(-1, size))
    alive = bytearray(b"\1") * size
    pairs = [
        (rank, start, start + 2)
        for start in range(size - 1)
        if (rank := ranks.get(piece[start : start + 2])) is not None
    ]
    heapify(pairs)
    left = size
    while pairs:
        _, start, end = heappop(pairs)
        middle = after[start]
        if not alive[start] or middle >= size or after[middle] != end:
            continue  # one of the two has merged with another since
        alive[middle] = 0
        after[start] = end
        before[end] = start
        left -= 1
        if end < size:
            _offer(pairs, piece, ranks, (start, after[end]))
        if start:
            _offer(pairs, piece, ranks, (before[start], end))
    return left


def _offer(
    pairs: list[tuple[int, int, int]],
    piece: bytes,
    ranks: Mapping[bytes, int],
    span: tuple[int, int],
) -> None:
    """Queue the two tokens in `span` if their union is a token."""
    start, end = span
    rank = ranks.get(piece[start:end])
    if rank is not None:
        heappush(pairs, (rank, start, end))

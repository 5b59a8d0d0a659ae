"""Bounded results: a head, a tail, and an honest word on what is between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.tools.bounds import Kept, limit_text


@given(st.text(max_size=300), st.integers(10, 100))
def test_a_cut_keeps_head_and_tail_and_counts_the_rest(text, limit) -> None:
    shown, marks = limit_text(text, limit)
    if len(text) <= limit:
        assert (shown, marks) == (text, {})
        return
    left = marks["truncated"]
    head, _, rest = shown.partition(f"\n[{left:,} of {len(text):,} characters are left out here")
    tail = rest.partition("]\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == limit == len(text) - left


def test_the_cut_says_how_to_get_the_rest() -> None:
    assert "left out here: read the file]" in limit_text("x" * 99, 10, "read the file")[0]


def test_half_a_surrogate_pair_becomes_a_replacement() -> None:
    assert limit_text("a\ud800b") == ("a\ufffdb", {})


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(10, 200))
def test_what_is_kept_while_it_comes_is_head_and_tail_of_the_whole(pieces, limit) -> None:
    kept, whole = Kept(limit), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    if len(whole) <= limit:
        assert kept.text == whole.decode(errors="replace")
        assert kept.marks == {}
    else:
        assert kept.marks == {"truncated": len(whole) - limit}
        assert f"of {len(whole):,} bytes are left out here" in kept.text

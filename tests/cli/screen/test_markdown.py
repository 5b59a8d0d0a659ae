"""Blocks of Markdown: what comes in pieces is cut where it is whole, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.cli.screen.markdown import LARGEST_BLOCK, Blocks, SafeMarkdown, make_markdown

TEXT = """# Title

One paragraph
of two lines.

- a

  more of a
- b

```python
def f():

    return 1
```

~~~
```

~~~
last"""
LINES = st.lists(
    st.sampled_from(["a", "", "```", "~~~", "  in", "- x", "> q", "```py", "| a |"]), max_size=30
)


def cut(text: str, size: int) -> list[str]:
    """Return the blocks of a text that comes in pieces."""
    blocks = Blocks()
    found = [b for i in range(0, len(text), size) for b in blocks.add(text[i : i + size])]
    rest = blocks.end()
    return [*found, rest] if rest else found


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_text_is_cut_at_its_empty_lines_and_nowhere_in_code(size: int) -> None:
    assert cut(TEXT, size) == [
        "# Title",
        "One paragraph\nof two lines.",
        "- a\n\n  more of a\n- b",
        "```python\ndef f():\n\n    return 1\n```",
        "~~~\n```\n\n~~~\nlast",
    ]


@given(LINES, st.integers(1, 9))
def test_every_line_is_in_one_block_whatever_the_pieces(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    blocks = cut(text, size)
    assert blocks == cut(text, 10_000)
    written = [line for block in blocks for line in block.split("\n") if line.strip()]
    assert written == [line for line in lines if line.strip()]


def test_it_begins_anew_behind_its_end() -> None:
    blocks = Blocks()
    list(blocks.add("```\nopen"))
    assert blocks.end() == "```\nopen"
    assert list(blocks.add("a\n\nb\n\n")) == ["a"]
    assert blocks.end() == "b"
    assert blocks.end() == ""


def test_what_is_too_large_is_text() -> None:
    assert isinstance(make_markdown("*a*"), SafeMarkdown)
    assert not isinstance(make_markdown("*a* \n" * LARGEST_BLOCK), SafeMarkdown)
    assert not isinstance(make_markdown("x" * 20_000), SafeMarkdown)

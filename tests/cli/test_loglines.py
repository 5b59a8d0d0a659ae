"""Lines of servers' logs: each row reads its own sample, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ullage.cli import loglines
from ullage.cli.loglines import ROWS, LogLine, read_line


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.server} {row.means}")
def test_each_row_reads_its_sample_and_is_the_only_one(row: LogLine) -> None:
    assert [other for other in ROWS if other.pattern.search(row.sample)] == [row]
    assert (read_line(row.sample) or "").startswith(f"{row.server} {row.means}")
    assert row.source


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'level=WARN msg="truncating input prompt" limit=8192 prompt=10552 keep=4 new=8192',
            "Ollama cut a prompt: 10,552 tokens, of which 8,192 fit",
        ),
        (
            "WARN: truncating input prompt limit=4096 prompt=13789",
            "Ollama cut a prompt: 13,789 tokens, of which 4,096 fit",
        ),
        (
            'level=WARN msg="truncating native chat messages which exceed context length"',
            "Ollama left whole messages out",
        ),
        (
            "slot update_slots: slot context shift, n_keep = 0, n_left = 511, n_discard = 255",
            "llama.cpp dropped older tokens while it answered: 255 tokens",
        ),
    ],
)
def test_what_a_line_says_is_told_with_its_numbers(line: str, said: str) -> None:
    assert read_line(line) == said


@pytest.mark.parametrize(
    "line",
    [
        "",
        "truncating input prompt",
        "slot release: id 0 | task 0 | stop processing: n_tokens = 65, truncated = 0",
        "I asked why Ollama is truncating my prompt",
        "x" * loglines.LONGEST + ROWS[0].sample,
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert read_line(line) is None


@given(some.text(max_size=300))
def test_any_line_can_be_read(line: str) -> None:
    read_line(line)

"""Sentences that make a riddle of their subject are counted, and the count may only fall."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tools import words

SOURCE = '''
"""What a module is."""

LIMIT = 3
"""Of two values the larger one."""


class Reader:
    """Reads a file."""

    size: int
    """None where nothing was read."""

    def read(self):
        """Return the text. Whoever calls it, closes it."""
        return "What a value says is no docstring."
'''


@pytest.mark.parametrize(
    "sentence",
    [
        *("What is left goes.", "Whatever is left goes.", "Who asks gets an answer."),
        *("None where it runs none.", "Of two the newer counts.", "Nobody reads it."),
        *("In doubt a command is none.", "Of a table, all rows are none."),
    ],
)
def test_a_sentence_without_a_plain_subject_counts(sentence):
    assert words.is_riddle(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        *("What does it cost?", "Who is asked?", "The rest is dropped.", "None if it is unknown."),
        *("None means that no limit is set.", "Official figures.", "Whole messages come first."),
        *("Return what is left.", "Nonetheless it is read."),
    ],
)
def test_a_question_and_a_plain_sentence_do_not_count(sentence):
    assert not words.is_riddle(sentence)


def test_sentences_are_split_over_lines_lists_and_quotations():
    text = """One sentence
    over two lines. Another one.

* An item. `code` begins a third.
> Quoted words.

# What a heading says

| What a table says |

```sh
What is code.
```
"""
    assert list(words.split_sentences(text)) == [
        "One sentence over two lines.",
        "Another one.",
        "An item.",
        "`code` begins a third.",
        "Quoted words.",
    ]


def test_docstrings_of_all_kinds_are_read_and_values_are_not():
    texts = [text for _, text in words.list_docstrings(ast.parse(SOURCE))]
    assert sorted(texts) == [
        "None where nothing was read.",
        "Of two values the larger one.",
        "Reads a file.",
        "Return the text. Whoever calls it, closes it.",
        "What a module is.",
    ]


@pytest.fixture
def repository(needs_git: None, tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(SOURCE)
    (tmp_path / "elsewhere.py").write_text('"""What is not read."""\n')
    return tmp_path


def limit(root: Path, count: int) -> list[str]:
    (root / "pyproject.toml").write_text(f"[tool.ullage.words]\nriddles = {count}\n")
    return [finding.text for finding in words.check(root)]


def test_a_count_at_its_limit_passes(repository):
    assert limit(repository, 4) == []


def test_one_sentence_more_than_the_limit_fails(repository):
    (text,) = limit(repository, 3)
    assert text.startswith("4 sentences need a second reading; the limit is 3.")


def test_a_limit_above_the_count_fails_so_that_it_is_lowered(repository):
    (text,) = limit(repository, 5)
    assert "lower the limit riddles = 5 to 4" in text


def test_without_a_table_there_may_be_no_such_sentence(repository):
    assert [finding.name for finding in words.check(repository)] == ["riddles"]


def test_the_command_lists_what_counts(repository, capsys):
    assert words.main(repository) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "src/a.py:2: What a module is."
    assert len(shown) == 4

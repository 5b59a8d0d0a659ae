"""Commands known to read only: a list without anything that a shell would act on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.tools import commands


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la src",
        "cat a.py b.py",
        "grep -n word src/main.py",
        "git status --short",
        "git log --oneline -5",
        "git diff --stat HEAD",
        "git ls-files src",
        "wc -l a",
    ],
)
def test_known_commands_are_safe(command) -> None:
    assert commands.reads_only(command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        " ",
        "rm a",
        "python a.py",
        "find . -delete",
        "git",
        "git push",
        "git branch new",
        "git diff --output=x",
        "git diff --output x",
        "git diff --ext-diff",
        "git log -Sx --outp x",
        "git -c core.pager=x log",
        "sort -o a b",
        "/tmp/ls",
        "LS",
        "ls\nrm a",
        "A=1 ls",
    ],
)
def test_others_are_not(command) -> None:
    assert not commands.reads_only(command)


@given(st.sampled_from(list(";&|<>$`(){}[]*?~!#\\\"'\n\r\t=%^\0")), st.integers(0, 6))
def test_nothing_that_a_shell_acts_on_is_safe(letter, place) -> None:
    command = "ls src"
    assert not commands.reads_only(command[:place] + letter + command[place:])


def test_the_words_of_a_command_are_what_is_between() -> None:
    assert commands.words("cat <a>b;rm 'c d' $(x) --to=e") == (
        "cat", "a", "b", "rm", "c", "d", "x", "--to", "e",
    )  # fmt: skip

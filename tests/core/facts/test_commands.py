"""Commands that only look are told from those that may do something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.facts.commands import LONGEST, only_looks


@pytest.mark.parametrize(
    "command",
    [
        *("ls -la", "cd src && ls", "cat a.py | head -20", "grep -rn 'a|b > c' src", "/bin/ls x"),
        *("git status", "git --no-pager log --oneline -5", "sed -n 1,80p x.py", "ls 2>/dev/null"),
        *("rg foo 2>&1 | head", "FOO=1 ls", "wc -l a b; pwd", "ls\ncat b", "find . -name '*.py'"),
    ],
)
def test_a_look(command: str) -> None:
    assert only_looks(command)


@pytest.mark.parametrize(
    "command",
    [
        *(
            "",
            " ",
            "cd x",
            "pytest -q",
            "make test",
            "git diff",
            "git commit -m x",
            "git",
            "git -p",
        ),
        *(
            "ls > out.txt",
            "ls >> a",
            "ls > 3",
            "cat <<EOF > x",
            "tee x",
            "ls &",
            "(ls)",
            "ls | xargs rm",
        ),
        *("find . -delete", "find . -exec rm {} +", "sort -o a b", "sed s/a/b/ x", "sed -n -i p x"),
        *(
            "cat $(rm x)",
            "echo `rm x`",
            "cat 'unclosed",
            "python -c 'print(1)'",
            "ls\nrm x",
            "FOO=1",
        ),
        f"ls {'a' * LONGEST}",
    ],
)
def test_more_than_a_look(command: str) -> None:
    assert not only_looks(command)


@given(st.text(max_size=60), st.sampled_from(["rm", "make", "tee", "python"]))
def test_nothing_that_may_do_something_is_a_look_beside_one(said: str, program: str) -> None:
    assert not only_looks(f"{program} a && ls {said}")

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
        *("git status", "git --no-pager log --oneline -5", "git -C repo status", "git branch"),
        *("sed -n 1,80p x.py", "sed -n '5p;9p' x", "ls 2>/dev/null", "ls > /dev/null 2>&1"),
        *(
            "rg foo 2>&1 | head",
            "wc -l a b; pwd",
            "ls;\ncat b",
            "find . -name '*.py'",
            "grep -o a b",
        ),
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
        *("git branch -D x", "git -C status commit -m x", "git log --output=f", "git log -p"),
        *("git --git-dir log push", "git config a b", "git show", "git grep -Ovi a"),
        *("ls > out.txt", "ls >> a", "echo hi > 1", "cat <<EOF > x", "tee x", "ls &", "(ls)"),
        *("find . -delete", "find . -exec rm {} +", "find . -fprint0 x", "sort -ox a", "tree -ox"),
        *("sed s/a/b/ x", "sed -n -i p x", "sed -n 'w out' x", "sed -n '1e rm x' y", "sed -n"),
        *("fd -xrm", "fd --exec=rm", "rg --pre rm a", "ls | xargs rm", "date -s x"),
        *('echo "$(pytest -q)"', "cat $(rm x)", "echo `rm x`", "cat <(make)", "cat 'unclosed"),
        *("python -c 'print(1)'", "ls\nrm x", "FOO=1 ls", "FOO=1", "PATH=. ls", "/tmp/evil/cat a"),
        *("ls # no\nrm x", "cat 2>/dev/nullx"),
        f"ls {'a' * LONGEST}",
    ],
)
def test_more_than_a_look(command: str) -> None:
    assert not only_looks(command)


@given(st.text(max_size=60), st.sampled_from(["rm", "make", "tee", "python"]))
def test_nothing_that_may_do_something_is_a_look_beside_one(said: str, program: str) -> None:
    assert not only_looks(f"{program} a && ls {said}")

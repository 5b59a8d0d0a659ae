"""The page of requirements, numbered without a gap, and SECURITY.md: every test named is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text("utf-8"))
SECURITY = (TESTS.parent / "SECURITY.md").read_text("utf-8")
PROMISES = [("SECURITY.md", *row) for row in re.findall(r"(?m)^\| (.+?) \| (`.+) \|$", SECURITY)]


def test_there_are_43_without_a_gap() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 44))


def test_every_promise_of_the_security_page_is_read() -> None:
    promised = SECURITY.split("## What is promised")[1].split("## What is not promised")[0]
    assert len(PROMISES) == promised.count("\n| ") - 1 > 10


@pytest.mark.parametrize(("number", "said", "held"), [*ROWS, *PROMISES])
def test_a_requirement_names_tests_that_are_there(number: str, said: str, held: str) -> None:
    named = re.findall(r"`([^`]+)`", held)
    assert named, f"requirement {number} ({said}) names no test"
    for path, name in (one.split("::") for one in named):
        tree = ast.parse((TESTS / path).read_text("utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in defined, f"{path} has no {name}"

"""Each rule over the AST bites on the breach it is for, and leaves the lawful neighbour alone."""

from __future__ import annotations

import pytest

from tools import code

HEAD = '"""A module."""\n'


def rules(source: str, path: str = "src/ullage/core/thing.py") -> list[str]:
    return [f.rule for f in code.check(code.Module.parse(path, source))]


BREACHES = [
    ("file-lines", HEAD + "x = 1\n" * code.FILE_LINES),
    ("function-lines", HEAD + "def f():\n" + "    x = 1\n" * code.FUNCTION_LINES),
    ("module-docstring", "x = 1\n"),
    ("broad-except", HEAD + "try:\n    x = 1\nexcept Exception:\n    x = 2\n"),
    ("broad-except", HEAD + "try:\n    x = 1\nexcept:\n    x = 2\n"),
    ("broad-except", HEAD + "try:\n    x = 1\nexcept (ValueError, BaseException):\n    x = 2\n"),
    ("broad-except", HEAD + "try:\n    x = 1\nexcept* builtins.Exception:\n    x = 2\n"),
    (
        "broad-except",
        HEAD + "try:\n    x = 1\nexcept Exception:\n    def f():\n        raise ValueError\n",
    ),
    ("broad-except", HEAD + "with suppress(ValueError, Exception):\n    x = 1\n"),
    ("global-statement", HEAD + "def f():\n    global x\n    x = 1\n"),
    ("module-state", HEAD + "TABLE = {}\n"),
    ("module-state", HEAD + "TABLE: dict[str, int] = {'a': 1}\n"),
    ("module-state", HEAD + "SEEN: Final = set()\n"),
    ("module-state", HEAD + "BY_NAME = collections.defaultdict(list)\n"),
    ("module-state", HEAD + "ROWS = [x for x in range(3)]\n"),
    ("core-builtins", HEAD + "def f():\n    return open('x')\n"),
    ("core-builtins", HEAD + "say = print\n"),
    ("mock", HEAD + "import unittest.mock\n"),
    ("mock", HEAD + "from unittest import mock\n"),
    ("mock", HEAD + "from unittest.mock import Mock\n"),
    ("mock", HEAD + "def test_it(mocker):\n    assert mocker\n"),
    ("budget-noqa", HEAD + "def f():  # " + "noqa: C901 - long\n    return 1\n"),
    ("budget-noqa", HEAD + "def f():  # " + "noqa: FBT001, PLR0913\n    return 1\n"),
    ("file-noqa", HEAD + "# ruff: " + "noqa: E501\n"),
]


@pytest.mark.parametrize(("rule", "source"), BREACHES)
def test_a_breach_is_found(rule, source):
    assert rules(source) == [rule]


LAWFUL = [
    HEAD + "x = 1\n" * (code.FILE_LINES - 1),
    HEAD + "def f():\n" + "    x = 1\n" * (code.FUNCTION_LINES - 1),
    "",
    HEAD + "try:\n    x = 1\nexcept ValueError:\n    x = 2\n",
    HEAD + "try:\n    x = 1\nexcept Exception:\n    x = 2\n    raise\n",
    HEAD + "try:\n    x = 1\nexcept Exception as e:\n    if x:\n        raise Other from e\n",
    HEAD + "TABLE: Final[Mapping[str, int]] = {'a': 1}\n",
    HEAD + "ROWS = (1, 2)\nKNOWN = frozenset({1})\n__all__ = ['x']\n",
    HEAD + "def f():\n    seen = {}\n    return seen\n",
    HEAD + "def f(self):\n    return self.open()\n",
    HEAD + "def f():  # " + "noqa: FBT001 - a flag\n    return 1\n",
]


@pytest.mark.parametrize("source", LAWFUL)
def test_the_lawful_neighbour_passes(source):
    assert rules(source) == []


@pytest.mark.parametrize(
    "path", ["src/ullage/utils.py", "src/ullage/helpers/x.py", "tools/task_manager.py"]
)
def test_a_vague_name_is_found(path):
    assert rules(HEAD, path) == ["file-name"]


@pytest.mark.parametrize("path", ["src/ullage/core/commonplace.py", "docs/manage.py"])
def test_a_name_that_only_looks_vague_passes(path):
    assert rules(HEAD, path) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src/ullage/guard/guard.py", ["dialect-literal", "dialect-literal"]),
        ("src/ullage/windows/table.py", ["dialect-literal"]),
        ("src/ullage/core/dialects/registry.py", []),
        ("tests/guard/test_guard.py", []),
    ],
)
def test_a_dialects_name_stands_in_its_folder_alone(path, found):
    source = HEAD + "def f(x):\n    return x in ('openai_chat', 'anthropic')\n"
    assert rules(source, path) == found


def test_tests_may_catch_everything_and_hold_tables():
    source = HEAD + "ROWS = [1]\ntry:\n    print(1)\nexcept Exception:\n    pass\n"
    assert rules(source, "tests/core/test_thing.py") == []


def test_decorators_count_towards_a_function():
    body = "    x = 1\n" * (code.FUNCTION_LINES - 2)
    assert rules(HEAD + "@one\n@two\ndef f():\n" + body) == ["function-lines"]


def test_a_finding_names_the_innermost_scope():
    source = HEAD + "class A:\n    def f(self):\n        global x\n        x = 1\n"
    (found,) = code.check(code.Module.parse("src/a.py", source))
    assert (found.name, found.line) == ("A.f", 4)
    assert str(found).startswith("src/a.py:4: global-statement: ")

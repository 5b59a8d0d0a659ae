"""What a call was about: a path, a command, a pattern; nothing where that does not show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.messages.labels import LONGEST, READ, fold_names, label_call, shorten


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({"file_path": "/srv/app/src/ledger.py", "limit": 5}, "src/ledger.py"),
        ({"file_path": "/srv/application.py"}, "/srv/application.py"),
        ({"command": "pytest -q", "description": "Run the tests"}, "pytest -q"),
        ({"command": ["bash", "-lc", "ls -l | wc"]}, "ls -l | wc"),
        ({"command": ["rg", "total", "src"]}, "rg total src"),
        ({"cmd": "a\n  b"}, "a b"),
        ({"pattern": "def .*total", "path": "/srv/app"}, "def .*total"),
        ({"command": "view", "path": "/srv/app/a.py"}, "a.py"),
        ({"command": "str_replace", "path": "a.py", "old_str": "1"}, "a.py"),
        ({"filePath": "/srv/app/a.py", "description": "x"}, "a.py"),
        ({"commands": ["cat a.py"], "timeout_ms": 1}, "cat a.py"),
        ({"command": "view", "text": "a.py"}, "view"),
        ({"command": "make", "path": "/srv/app"}, "make"),
        ({"action": "open", "command": "npm test", "path": "/srv/app"}, "npm test"),
        ({"operation": "read", "file": "app.db", "query": "select 1"}, "select 1"),
        ({"action": "view", "file": "app.db"}, "app.db"),
        ({"Cwd": "/srv/app", "CommandLine": "npm test"}, "npm test"),
        ({"explanation": "see", "target_file": "a.py"}, "a.py"),
        ({"unheard": 3, "of": "this"}, "this"),
        ({"todos": [1, 2]}, ""),
        ({}, ""),
        ("a string", "a string"),
        (7, ""),
    ],
)
def test_a_label_is_what_the_arguments_tell(arguments: Any, label: str) -> None:
    assert label_call(json.dumps(arguments), "/srv/app") == label


@pytest.mark.parametrize("head", ["{1, 2, 3};", "{null: 1,", '{"a": 1, true: 2,', "{NaN, 1,"])
def test_long_text_with_braces_has_a_label_or_none(head: str) -> None:
    label_call(f"echo {head} {'x' * READ}")


def test_names_are_read_as_python_writes_them_but_for_long_ones() -> None:
    long = "filePath" * 9
    found = fold_names({"filePath": 1, "AbsolutePath": 2, "url": 3, long: 4})
    assert found == {"file_path": 1, "absolute_path": 2, "url": 3, long: 4}


def test_what_is_no_json_is_its_own_text_and_a_patch_names_its_file() -> None:
    patch = "*** Begin Patch\n*** Update File: src/ledger.py\n@@\n-a\n+b\n*** End Patch"
    assert label_call(patch) == "src/ledger.py"
    assert label_call(json.dumps({"input": patch})) == "src/ledger.py"
    assert label_call(json.dumps({"command": ["apply_patch", patch]})) == "src/ledger.py"
    assert label_call(json.dumps({"prompt": patch})).startswith("*** Begin Patch")
    assert label_call("*** Update File: src/ledger.py") == "*** Update File: src/ledger.py"
    assert label_call(patch + "\n+" + "x" * READ) == "src/ledger.py"
    assert label_call("print(1)") == "print(1)"
    assert label_call("") == ""


def test_of_arguments_too_long_to_read_the_first_fields_tell() -> None:
    long = json.dumps({"file_path": "src/big.py", "content": "x" * READ})
    assert label_call(long) == "src/big.py"
    assert label_call(long.replace("{", "{ ", 1)[: READ + 5]) == "src/big.py"
    assert label_call("x" * (READ + 1)) == ""
    assert label_call("{" + ", ".join(f'"k{n}": {n}' for n in range(READ // 4)) + "}") == ""
    assert label_call("{[], 1" + " " * READ) == ""


def test_a_path_is_said_from_the_folder_with_or_without_its_last_slash() -> None:
    assert label_call('{"path": "/a/b.py"}', "/a/") == "b.py"
    assert label_call('{"path": "/a/b.py"}', None) == "/a/b.py"


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert len(shorten("word " * 50)) <= LONGEST
    assert shorten("word " * 50).endswith("…")
    assert shorten(" a\tb ") == "a b"


@given(st.text(), st.none() | st.text(max_size=5))
def test_any_arguments_have_a_label_of_one_bounded_line(arguments: str, root: str | None) -> None:
    label = label_call(arguments, root)
    assert len(label) <= LONGEST
    assert len(label.splitlines()) <= 1

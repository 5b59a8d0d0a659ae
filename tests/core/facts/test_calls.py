"""What calls of tools tell: files with their lines, commands, skills, to-do lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.facts.calls import COMMAND_MOST, Told, drop_span, read_calls
from ullage.core.facts.extract import Facts, collect
from ullage.core.messages.transcript import Call, Message


def tell(*calls: tuple[str, Any]) -> Told:
    """Return what calls tell; arguments that are no text are written as JSON."""
    texts = [(name, a if isinstance(a, str) else json.dumps(a)) for name, a in calls]
    return read_calls([Call(f"c{n}", name, text) for n, (name, text) in enumerate(texts)])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "a.py"}, "a.py"),
        ({"path": "a.py", "offset": 10}, "a.py (lines 10-)"),
        ({"path": "a.py", "offset": 10, "limit": 20}, "a.py (lines 10-29)"),
        ({"path": "a.py", "offset": 10, "limit": 0}, "a.py (lines 10-)"),
        ({"path": "a.py", "limit": 20}, "a.py"),
        ({"filePath": "a.py", "startLine": 1, "endLine": 5}, "a.py (lines 1-5)"),
        ({"AbsolutePath": "a.py"}, "a.py"),
        ({"file_path": "a.py", "start_line": 3, "end_line": 9}, "a.py (lines 3-9)"),
        ({"path": "a.py", "view_range": [3, -1]}, "a.py (lines 3-)"),
        ({"path": "a.py", "view_range": [3]}, "a.py"),
        ({"path": "a.py", "view_range": ["3", "9"]}, "a.py"),
        ({"path": "a.py", "start": True, "end": 4}, "a.py"),
    ],
)
def test_a_file_that_is_read_in_part_is_told_with_its_lines(arguments: Any, told: str):
    assert tell(("read", arguments)).files == (told,)
    assert drop_span(told) == "a.py"


def test_a_file_that_is_written_is_told_without_lines():
    assert tell(("edit", {"path": "a.py", "start_line": 3, "end_line": 9})).changed == ("a.py",)


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("str_replace_editor", {"command": "view", "path": "a.py"}, Told(files=("a.py",))),
        (
            "str_replace_based_edit_tool",
            {"command": "view", "path": "a.py", "view_range": [1, 9]},
            Told(files=("a.py (lines 1-9)",)),
        ),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}, Told(changed=("a.py",))),
        ("memory", {"command": "delete", "path": "m/a.md"}, Told(changed=("m/a.md",))),
        ("change", {"filePath": "a.py", "newString": ""}, Told(changed=("a.py",))),
        ("file", {"action": "read", "path": "a.py"}, Told(files=("a.py",))),
        (
            "memory",
            {"command": "rename", "old_path": "a", "new_path": "b"},
            Told(changed=("a", "b")),
        ),
        (
            "write_file",
            {"path": "a", "content": "x", "operation": "open"},
            Told(changed=("a",)),
        ),
        ("shell", {"command": "make", "path": "a"}, Told(files=("a",), commands=("make",))),
        (
            "docker",
            {"action": "create", "command": "make", "file": "a"},
            Told(files=("a",), commands=("make",)),
        ),
    ],
)
def test_what_an_editor_is_told_to_do_says_whether_a_file_is_changed(
    tool: str, arguments: dict[str, Any], told: Told
):
    assert tell((tool, arguments)) == told


PATCH = """*** Begin Patch
*** Update File: a.py
*** Move to: b.py
@@
-1
+2
*** Add File: c d.py
+*** Update File: e.py
*** End Patch"""


@pytest.mark.parametrize(
    "arguments",
    [
        PATCH,
        {"input": PATCH},
        {"command": ["apply_patch", PATCH]},
        {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"], "workdir": "/src"},
    ],
)
def test_the_files_of_a_patch_are_changed_wherever_it_stands(arguments: Any):
    assert tell(("shell", arguments)) == Told(changed=("a.py", "b.py", "c d.py"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "p.md", "content": PATCH},
        {"prompt": PATCH},
        {"command": "ls", "description": PATCH},
        {"n": {"of": PATCH}},
    ],
)
def test_a_patch_that_is_only_told_of_changes_no_file(arguments: dict[str, Any]):
    assert not {"a.py", "b.py"}.intersection(tell(("tool", arguments)).changed)


def test_blanks_behind_a_name_in_a_patch_are_none_of_it():
    text = "*** Begin Patch\n*** Add File: a b  \r\n*** Update File: c\t\n"
    assert tell(("apply_patch", {"input": text})).changed == ("a b",)


def test_patches_of_several_arguments_are_told_in_their_order():
    patches = {name: f"{PATCH[:15]}\n*** Add File: {name}" for name in ("patch", "input", "cmd")}
    assert tell(("apply_patch", patches)).changed == ("patch", "input", "cmd")


def test_the_words_of_a_patch_alone_change_no_file():
    search = "grep '*** Begin Patch' log"
    assert tell(("sh", {"cmd": search})) == Told(commands=(search,))
    assert tell(("sh", {"n": {"of": PATCH}})) == Told()


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        ({"command": "make test"}, ("make test",)),
        ({"cmd": ["bash", "-lc", "make  test"]}, ("make test",)),
        ({"command": ["ls", "-l"]}, ("ls -l",)),
        ({"command": 7}, ()),
        ({"command": ""}, ()),
        ({"command": "bell \x07"}, ()),
        ({"query": "make"}, ()),
    ],
)
def test_a_command_is_told_in_one_line(arguments: Any, commands: tuple[str, ...]):
    assert tell(("shell", arguments)).commands == commands


def test_the_command_of_a_skill_tool_is_a_skill():
    assert tell(("skill", {"command": "pdf"})) == Told(skills=("pdf",))


@given(st.text(max_size=60), st.text(max_size=80))
def test_arguments_in_any_form_are_read_or_passed_over(name: str, arguments: str):
    told = tell((name, arguments), (name, {"command": arguments, "path": arguments}))
    assert all(len(command) <= COMMAND_MOST for command in told.commands)


def fold(*calls: tuple[str, Any]) -> Facts:
    told = [Call(f"c{n}", name, json.dumps(a)) for n, (name, a) in enumerate(calls)]
    return collect([Message("assistant", calls=(call,)) for call in told])


def test_a_file_stands_once_with_the_lines_that_were_read_last():
    read = ("read", {"path": "a.py", "offset": 1, "limit": 9})
    again = ("read", {"path": "a.py", "offset": 50, "limit": 9})
    assert fold(read, ("read", {"path": "b.py"}), again).files == ("b.py", "a.py (lines 50-58)")


def test_a_file_that_is_changed_after_it_was_read_in_part_is_a_changed_one():
    read = ("read", {"path": "a.py", "offset": 1, "limit": 9})
    found = fold(read, ("edit", {"path": "a.py"}), read)
    assert (found.changed, found.files) == (("a.py",), ())


def test_commands_stand_in_the_order_of_their_last_run_and_outlive_their_block():
    found = fold(("sh", {"cmd": "make"}), ("sh", {"cmd": "ls"}), ("sh", {"cmd": "make"}))
    assert found.commands == ("ls", "make")
    more = Message("assistant", calls=(Call("c", "sh", '{"cmd": "ls"}'),))
    assert collect([more], found).commands == ("make", "ls")


def test_lines_of_a_block_are_known_for_their_file_when_it_is_read_again():
    known = Facts(files=("a.py (lines 1-9)",))
    more = Message("assistant", calls=(Call("c", "read", '{"path": "a.py"}'),))
    assert collect([more], known).files == ("a.py",)

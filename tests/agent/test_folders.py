"""Folders of skills: read in a fixed order, within limits, and one bad skill harms no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ullage.agent.folders import MOST_BYTES, MOST_ENTRIES, load
from ullage.core.session.skills import hash_text

TEXT = "Look first.\n"


def write(folder: Path, name: str, head: str | None = None, text: str = TEXT) -> Path:
    """Write a skill, by default a good one."""
    place = folder / name
    place.mkdir(parents=True)
    head = f"name: {name}\ndescription: about {name}\n" if head is None else head
    (place / "SKILL.md").write_bytes(f"---\n{head}---\n\n{text}".encode())
    return place


def told(*folders: Path) -> tuple[list[str], list[str]]:
    """Return the names of the skills that were read, and the notices."""
    notices: list[str] = []
    return [skill.name for skill in load(folders, notices.append)], notices


def test_skills_are_read_by_name_whatever_the_order_of_the_folder(tmp_path: Path) -> None:
    for name in ("b", "c2", "a-1"):
        write(tmp_path, name)
    (tmp_path / "readme.txt").write_text("no skill")
    (tmp_path / ".git").mkdir()
    skills = load([tmp_path])
    assert [skill.name for skill in skills] == ["a-1", "b", "c2"]
    assert skills[0].description == "about a-1"
    assert (skills[0].text, skills[0].hash) == (TEXT, hash_text(TEXT))
    assert told(tmp_path)[1] == []


def test_of_two_skills_of_one_name_the_first_folders_counts(tmp_path: Path) -> None:
    first, second = (write(tmp_path / part, "a", text=part) for part in ("one", "two"))
    notices: list[str] = []
    (skill,) = load([first.parent, second.parent], notices.append)
    assert skill.text == "one"
    assert notices == [f"the skill {second} is left out: {first} has its name"]


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert told(tmp_path / "none") == ([], [])


def test_a_folder_that_is_none_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    names, (notice,) = told(tmp_path / "file")
    assert names == []
    assert "file cannot be read: Not a directory" in notice


GOOD = "description: x\n"


@pytest.mark.parametrize(
    ("head", "text", "expected"),
    [
        ("description: x\n", TEXT, "its name is ''; write `name:`"),
        ("name: Bad Name\ndescription: x\n", TEXT, "its name is 'Bad Name'"),
        ("name: other\ndescription: x\n", TEXT, "but its folder 'bad': rename one"),
        ("name: bad\n", TEXT, "its description has 0 characters"),
        (f"name: bad\ndescription: {'x' * 1_025}\n", TEXT, "description has 1,025 characters"),
        (
            "name: bad\ndescription: >\n  long\n",
            TEXT,
            "line 3 of its SKILL.md: write description on",
        ),
        ('name: bad\ndescription: "x\n', TEXT, "line 3 of its SKILL.md: description has no closed"),
        ("name: bad\nname: bad\n", TEXT, "line 3 of its SKILL.md gives 'name' a second time"),
        ("name: bad\nwhat is this\n", TEXT, "line 3 of its SKILL.md is 'what is this'"),
        ("name: bad\ndescription: x\n", " \n", "nothing after its head"),
        ("name: bad\ndescription: x\n", "x" * MOST_BYTES, "larger than 65,536 bytes"),
    ],
)
def test_a_bad_skill_is_left_out_by_name_and_the_others_hold(
    tmp_path: Path, head: str, text: str, expected: str
) -> None:
    bad = write(tmp_path, "bad", head, text)
    write(tmp_path, "good")
    names, (notice,) = told(tmp_path)
    assert names == ["good"]
    assert notice.startswith(f"the skill {bad} is left out: ")
    assert expected in notice
    assert [skill.name for skill in load([tmp_path])] == ["good"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"no head\n", "does not begin with a line '---'"),
        (b"---\nname: bad\n", "has no end: put a line '---' after it"),
        (b"---\nname: \xff\n", "is not UTF-8: invalid start byte at byte 10"),
    ],
)
def test_a_file_that_is_no_skill_is_told_of(tmp_path: Path, content: bytes, expected: str) -> None:
    (write(tmp_path, "bad") / "SKILL.md").write_bytes(content)
    names, (notice,) = told(tmp_path)
    assert names == []
    assert expected in notice


def test_a_folder_without_the_file_or_with_something_else_in_its_place_is_told_of(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "SKILL.md").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "SKILL.md")
    names, notices = told(tmp_path)
    assert names == []
    assert [notice.partition("left out: ")[2] for notice in notices] == [
        "it has no SKILL.md",
        "its SKILL.md is no file",
        "its SKILL.md is no file",
    ]


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", "a")
    inside = tmp_path / "inside"
    (inside / "b").mkdir(parents=True)
    (inside / "a").symlink_to(outside)
    (inside / "b" / "SKILL.md").symlink_to(outside / "SKILL.md")
    names, notices = told(inside)
    assert names == []
    assert "it is a link, copy the folder" in notices[0]
    assert "cannot be read, or is a link" in notices[1]


def test_quotes_other_fields_and_line_ends_of_windows_are_understood(tmp_path: Path) -> None:
    head = (
        'name: \'a\'\r\ndescription: "says \\"x\\": #1"\r\nlicense: MIT\r\n# note\r\n'
        "metadata:\r\n  name: b\r\ntools:\r\n- read\r\nnotes: |\r\n  long\r\n\r\n"
    )
    write(tmp_path, "a", head, "one\r\ntwo\r\n")
    write(tmp_path, "b", "name: b\ndescription: 'it''s'\n")
    first, second = load([tmp_path])
    assert (first.description, first.text) == ('says "x": #1', "one\ntwo\n")
    assert second.description == "it's"


def test_a_folder_with_too_many_entries_is_read_as_far_as_the_limit(tmp_path: Path) -> None:
    for number in range(MOST_ENTRIES):
        (tmp_path / f"{number:04}").touch()
    write(tmp_path, "a")
    names, (notice,) = told(tmp_path)
    assert names == []
    assert f"holds {MOST_ENTRIES + 1:,} entries, and only the first 1,000 are read" in notice

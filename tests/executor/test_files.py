"""Reading, listing, writing and editing, as a model does it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executor.calls import dry, ran
from ullage.tools import Executor, ToolLimits, reading
from ullage.tools.work import beside


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    return Executor(tmp_path, limits=ToolLimits(characters=1_000))


def test_a_short_file_is_read_as_it_is(executor, tmp_path) -> None:
    (tmp_path / "a").write_bytes("eins\r\nzwei ü".encode())
    outcome = ran(executor, "read", path="a")
    assert (outcome.text, outcome.is_error) == ("eins\r\nzwei ü", False)
    (tmp_path / "empty").write_bytes(b"")
    assert ran(executor, "read", path="empty").text == "[the file is empty]"


@given(st.lists(st.text("ab", max_size=40), min_size=1, max_size=60), st.integers(1, 20))
def test_pages_of_a_file_add_up_to_it(tmp_path_factory, lines, limit) -> None:
    folder = tmp_path_factory.mktemp("pages")
    whole = "\n".join(lines) + "\n"
    (folder / "a").write_text(whole)
    executor = Executor(folder, limits=ToolLimits(characters=1_000))
    found, offset = "", 1
    while True:
        text = ran(executor, "read", path="a", offset=offset, limit=limit).text
        page, mark, end = text.rpartition("[lines ")
        found += page if mark else text
        if not mark:
            break
        offset = int(end.partition("offset=")[2].rstrip("]"))
    assert found == whole


def test_a_line_that_is_too_long_is_cut_and_said_so(executor, tmp_path) -> None:
    (tmp_path / "a").write_text("x" * 5_000 + "\nshort\n")
    text = ran(executor, "read", path="a").text
    assert "[lines 1 to 1 of 2; line 1 is cut: 4,101 of its bytes are left out]" in text
    assert ran(executor, "read", path="a", offset=2).text == "short\n"


def test_a_file_without_an_end_in_sight_is_not_counted_to_it(executor, tmp_path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"text\n" * 3_000)
        file.truncate(reading.MOST_BYTES + 10)
    text = ran(executor, "read", path="a", limit=1).text
    assert text == "text\n[lines 1 to 1; go on with offset=2]"


def test_what_cannot_be_read_is_an_error_that_says_why(executor, tmp_path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "short").write_text("one\n")
    cases = {
        "picture": "is binary (6 bytes)",
        "nowhere": "No such file or directory: nowhere",
        ".": "'.' is a folder; list it",
        "short/er": "Not a directory",
    }
    for path, said in cases.items():
        outcome = ran(executor, "read", path=path)
        assert outcome.is_error
        assert said in outcome.text
    assert "has 1 lines; there is no line 9" in ran(executor, "read", path="short", offset=9).text


def test_bytes_that_are_no_utf8_are_shown_as_such(executor, tmp_path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert ran(executor, "read", path="latin").text == "caf\ufffd"


def test_a_listing_tells_folders_files_links_and_the_rest(executor, tmp_path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/deep/a.py").write_text("12345")
    (tmp_path / "src/deep/a.txt").write_text("")
    (tmp_path / "link").symlink_to("src")
    os.mkfifo(tmp_path / "pipe")
    (Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))).write_text("")
    listing = ran(executor, "list").text
    assert listing == "link (link)\npipe (no file)\nsrc/\n\ufffd 0"
    assert ran(executor, "list", path="src", depth=2).text == (
        "src/deep/\nsrc/deep/a.py 5\nsrc/deep/a.txt 0"
    )
    assert ran(executor, "list", path="src", glob="*.py").text == "src/deep/a.py 5"
    assert ran(executor, "list", glob="*.rs").text == "[nothing matches]"
    (tmp_path / "void").mkdir()
    assert ran(executor, "list", path="void").text == "[the folder is empty]"


def test_a_listing_has_an_end(executor, tmp_path) -> None:
    for index in range(reading.ENTRIES + 5):
        (tmp_path / f"{index:04}").touch()
    wide = Executor(tmp_path)
    assert ran(wide, "list").text.endswith(
        "[more than 1,000 entries: name a folder or a narrower glob]"
    )


def test_a_file_is_written_and_written_again(executor, tmp_path) -> None:
    outcome = ran(executor, "write", path="a/b.txt", content="grün")
    assert outcome.text == "wrote 5 bytes to the new file a/b.txt"
    assert ran(executor, "write", path="a/b.txt", content="").text.endswith("existing file a/b.txt")
    assert (tmp_path / "a/b.txt").read_text() == ""
    assert "names a folder; name a file" in ran(executor, "write", path="a/", content="").text


def test_half_a_surrogate_pair_is_written_nowhere(executor, tmp_path) -> None:
    outcome = ran(executor, "write", path="a", content="\ud800")
    assert "content holds half a surrogate pair" in outcome.text
    assert list(tmp_path.iterdir()) == []


def test_an_edit_replaces_what_is_there_once(executor, tmp_path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    assert ran(executor, "edit", path="a", old="two", new="2").text == (
        "replaced the piece in a, line 2"
    )
    assert (tmp_path / "a").read_text() == "one\n2\nthree\n"


def test_an_edit_that_is_not_unique_changes_nothing(executor, tmp_path) -> None:
    (tmp_path / "a").write_text("x y x")
    (tmp_path / "b").write_bytes(b"x\0")
    cases = {
        "is 2 times in 'a'": {"path": "a", "old": "x", "new": "z"},
        "is not in 'a'; read the file": {"path": "a", "old": "q", "new": "z"},
        "are the same": {"path": "a", "old": "x", "new": "x"},
        "is binary": {"path": "b", "old": "x", "new": "y"},
        "old is empty": {"path": "a", "old": "", "new": "y"},
    }
    for said, arguments in cases.items():
        outcome = ran(executor, "edit", **arguments)
        assert outcome.is_error
        assert said in outcome.text
    assert (tmp_path / "a").read_text() == "x y x"
    assert "2 times from line 1" in ran(executor, "edit", path="a", old="x", new="z", all=True).text
    assert (tmp_path / "a").read_text() == "z y z"


def test_line_ends_of_windows_stay(executor, tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    ran(executor, "edit", path="a", old="one\ntwo", new="1\n2")
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_a_file_beyond_measure_is_not_edited(executor, tmp_path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(16_000_001)
    assert "the most is 16,000,000" in ran(executor, "edit", path="a", old="x", new="y").text


def test_dry_nothing_is_written_and_what_would_be_is_said(executor, tmp_path) -> None:
    (tmp_path / "a").write_text("old")
    before = (tmp_path / "a").stat()  # compared without the time of access: a read moves it
    for name, arguments, said in (
        ("write", {"path": "a", "content": "new"}, "3 bytes would be the existing file a"),
        ("write", {"path": "b/c", "content": "new"}, "3 bytes would be the new file b/c"),
        ("edit", {"path": "a", "old": "old", "new": "n"}, "would be replaced in a, line 1"),
    ):
        outcome = dry(executor, name, **arguments)
        assert outcome.text.startswith("[dry run] nothing was written: ")
        assert outcome.text.endswith(said)
        assert outcome.marks == {"dry_run": True}
    after = (tmp_path / "a").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (tmp_path / "a").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_who_cancels_waits_until_the_work_is_over() -> None:
    begun, go = threading.Event(), threading.Event()
    done = []

    def work() -> None:
        begun.set()
        go.wait(10)
        done.append(True)
        raise ValueError("said to nobody")

    async def cancelled() -> None:
        task = asyncio.ensure_future(beside(work))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert done == [True]

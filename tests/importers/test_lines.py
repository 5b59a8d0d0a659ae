"""Bytes to lines: what crashes and editors leave behind is tolerated, and counted."""

from __future__ import annotations

import pytest

from tests.importers.writing import assistant, lines, user
from ullage.importers import parse
from ullage.importers.lines import ObjectLines, note, value

GOOD = lines(user("u1", None, "grüß"), assistant("a1", "u1"))


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        b"\n\n" + GOOD.replace(b"\n", b"\n\n"),
        b"\0" * 4096 + GOOD + b"\0" * 4096,
        GOOD[:-1],
        b"\xff\xfe" + GOOD.decode().encode("utf-16-le"),
        b"\xfe\xff" + GOOD.decode().encode("utf-16-be"),
    ],
)
def test_marks_line_ends_and_runs_of_nul_change_nothing(data):
    session = parse(data)
    assert [m["role"] for m in session.messages] == ["user", "assistant"]
    assert session.messages[0]["content"] == "grüß"
    assert session.unread == {}


def test_a_half_written_last_line_is_told_apart_from_a_broken_one():
    read = ObjectLines(b'{"a":1}\n{"b":\n[1]\n{"c":2}\n{"d"')
    assert [(dict(fields), torn) for fields, torn in read] == [({"a": 1}, False), ({"c": 2}, True)]
    assert read.unread == {"line that is no JSON object": 2, "half-written last line": 1}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b"1" * 10_000, b"null", b"{]"]
)
def test_what_is_no_json_is_none(text):
    assert value(text) is None


def test_a_hostile_file_names_no_more_than_fifty_kinds():
    unread: dict[str, int] = {}
    for number in range(1000):
        note(unread, f"kind {number} " + "x" * 500)
    assert len(unread) == 51
    assert max(map(len, unread)) <= 60
    assert sum(unread.values()) == 1000


def test_bytes_that_are_no_utf_8_are_told_with_their_place() -> None:
    whole = '[{"role": "user", "content": "für \ufffd"}]'
    assert parse(whole.encode()).warnings == ()
    (told,) = parse(whole.replace("\ufffd", "ß").encode("latin-1"), path="a.json").warnings
    assert told.startswith("a.json is not UTF-8 at byte 31: 2 such places are read as")

"""Searching: what is found, what is left out, and that no pattern can hold up the program."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import sys
from pathlib import Path

import pytest

from tests.executor.calls import call, ran
from tests.support.waiting import eventually
from ullage.core.session.permissions import Posture
from ullage.tools import Executor, ToolLimits, search
from ullage.tools.matcher import matching


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("import os\nprint('Hallo')\r\n")
    (tmp_path / "src/b.txt").write_text("hallo welt\n")
    (tmp_path / "binary").write_bytes(b"hallo\0")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("hallo")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/log").write_text("hallo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    return Executor(tmp_path, state=tmp_path / "state", limits=ToolLimits(search_s=2))


def test_lines_are_found_with_file_and_number(executor) -> None:
    assert ran(executor, "search", pattern="[Hh]allo").text == (
        "src/a.py:2: print('Hallo')\nsrc/b.txt:1: hallo welt"
    )
    assert ran(executor, "search", pattern="HALLO", ignore_case=True, glob="*.txt").text == (
        "src/b.txt:1: hallo welt"
    )
    assert ran(executor, "search", pattern="^import", path="src").text == "src/a.py:1: import os"
    assert ran(executor, "search", pattern="welt", path="src/b.txt").text == (
        "src/b.txt:1: hallo welt"
    )
    assert ran(executor, "search", pattern="nirgends").text == "[no line matches]"
    assert ran(executor, "search", pattern="hallo", path=".git").text == ".git/config:1: hallo"


def test_links_and_the_state_directory_are_not_searched(executor) -> None:
    assert "root" not in ran(executor, "search", pattern="root").text
    assert "state" not in ran(executor, "search", pattern="hallo").text
    assert ran(executor, "search", pattern="hallo", path="state").is_error


def test_what_is_too_much_is_said(executor, tmp_path) -> None:
    (tmp_path / "many").write_text("treffer\n" * 300)
    (tmp_path / "large").write_text("x" * (search.LARGEST_FILE + 1))
    text = ran(executor, "search", pattern="treffer").text
    assert text.endswith(
        "[more than 200 lines match: narrow it]\n[not searched, too large or too many: 1 files]"
    )
    (tmp_path / "long").write_text("a" * 5_000 + "ziel" + "b" * 5_000)
    assert len(ran(executor, "search", pattern="ziel", path="long").text) < 400


def test_a_pattern_that_takes_for_ever_is_ended(executor, tmp_path) -> None:
    (tmp_path / "bomb").write_text("a" * 60 + "!")
    outcome = ran(executor, "search", pattern="(a+)+$", path="bomb")
    assert outcome.is_error
    assert "the pattern took more than 2 s on 1 files: simplify it" in outcome.text


def test_searching_the_state_directory_is_denied(executor) -> None:
    assert executor.decide(call("search", pattern="x", path="state"), Posture()).by == "state"
    assert executor.decide(call("search", pattern="x"), Posture()).verdict == "allow"


def test_a_matcher_that_dies_is_an_error(executor, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = ran(executor, "search", pattern="hallo")
    assert "could not be matched to an end" in outcome.text


def test_a_file_that_cannot_be_opened_is_left_out(executor, tmp_path) -> None:
    (tmp_path / "src/a.py").unlink()
    os.link(tmp_path / "state/log", tmp_path / "src/hard")
    assert ran(executor, "search", pattern="hallo").text == "src/b.txt:1: hallo welt"


def test_a_pattern_that_is_none_is_refused(executor) -> None:
    outcome = ran(executor, "search", pattern="x" * 1_001)
    assert "the pattern has 1,001 characters" in outcome.text
    assert "no regular expression" in ran(executor, "search", pattern="(").text
    assert "no regular expression" in ran(executor, "search", pattern="a{99999999999}").text


def test_a_cancelled_search_leaves_no_process(executor, tmp_path) -> None:
    (tmp_path / "bomb").write_text("a" * 60 + "!")

    async def cancelled() -> None:
        wanted = call("search", pattern="(a+)+$", path="bomb")
        task = asyncio.ensure_future(executor.run(wanted, key="k"))
        await asyncio.to_thread(eventually, _children)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not _children()


def _children() -> bool:
    found = Path("/proc/self/task").glob("*/children")
    pids = [pid for each in found for pid in each.read_text().split()]
    return any(b"matcher" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)


def test_the_matcher_reads_files_by_their_sizes(monkeypatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *args: None)
    files = [b"one\ntwo\n", b"", b"two"]
    request = {
        "pattern": "t(w)o",
        "ignore_case": False,
        "seconds": 1,
        "most": 10,
        "longest": 10,
        "sizes": [len(file) for file in files],
    }
    source = io.BytesIO(json.dumps(request).encode() + b"\n" + b"".join(files))
    assert matching(source) == [(0, 2, "two"), (2, 1, "two")]
    source.seek(0)
    stopped = source.getvalue().replace(b'"most": 10', b'"most": 0')
    assert matching(io.BytesIO(stopped)) == [(0, 2, "two")]

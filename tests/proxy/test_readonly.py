"""A file system that is read-only, or full: a real one, where root may mount."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.pages.watching import answer, grow, say, until
from tests.proxy.sockets import Behind, ask, request, serving
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage import open_log


def mount(*words: str) -> bool:
    """Call mount; tell whether it could."""
    done = subprocess.run(["mount", *words], capture_output=True, check=False)
    return done.returncode == 0


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    with path.open("wb", 0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 65_536)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 24 MB of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)):
        pytest.skip("no file system may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def is_away(port: int) -> bool:
    reply = ask(port, request("GET", "/readyz"))
    return reply.json()["store"] is False


@pytest.mark.slow
def test_a_disk_that_is_full_costs_no_request_and_no_compaction(disk: Path, tmp_path: Path):
    rules: Any = {"rules": [{"window": 8_000}], "store": f"sqlite:{disk / 'proxy.db'}"}
    with Behind(answer) as behind:
        with serving(tmp_path, [behind.url], **rules) as served:
            said = grow(served.port, 8, "Before the disk was full.")
            fill(disk / "full")
            more = grow(served.port, 14, "After the disk was full.")
            sent = json.loads(behind.bodies[-1])["messages"]
            assert len(str(sent)) < 40_000 < len(str(more)), "it stays compacted"
            assert until(lambda: is_away(served.port))
            (disk / "full").unlink()
            assert until(lambda: say(served.port, said).status == 200 and not is_away(served.port))
            before = json.loads(behind.bodies[-1])["messages"]
            assert "Traceback" not in served.log
        with serving(tmp_path, [behind.url], **rules) as served:
            assert say(served.port, said).status == 200
            assert json.loads(behind.bodies[-1])["messages"] == before


def test_a_proxy_does_not_begin_over_a_store_that_can_never_be_written(disk: Path, tmp_path: Path):
    rules: Any = {"rules": [{"window": 8_000}], "store": f"sqlite:{disk / 'proxy.db'}"}
    with Behind(answer) as behind:
        with serving(tmp_path, [behind.url], **rules) as served:
            grow(served.port, 8, "Before it was read-only.")
        assert mount("-o", "remount,ro", str(disk))
        with (
            pytest.raises(AssertionError, match=r"proxy\.db cannot be opened: check the path"),
            serving(tmp_path, [behind.url], **rules),
        ):
            raise RuntimeError("it began")


def test_a_log_on_a_read_only_file_system_is_shown_and_exported(
    disk: Path, capsys: pytest.CaptureFixture[str]
):
    store = f"sqlite:{disk / 'log.db'}"
    log = open_log(store, create=True)
    with Session.create(log, "kept") as session:
        session.record([Draft("user_message", {"text": "what was said"})])
    log.close()
    assert mount("-o", "remount,ro", str(disk))
    for words in (["sessions"], ["show", "kept"], ["verify", "kept"], ["export", "kept"]):
        assert main([*words, "--store", store]) == 0, words
        told = capsys.readouterr()
        assert "what was said" in told.out or words[0] == "verify", told
    assert main(["purge", "kept", "--store", store, "--yes"]) == 1
    assert "may not be written" in capsys.readouterr().err


@pytest.mark.parametrize("beside", [("-wal", "-shm"), ("-wal",)])
def test_what_a_killed_writer_left_is_read_or_refused_never_read_in_part(
    disk: Path, tmp_path: Path, beside: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    log = open_log(f"sqlite:{tmp_path / 'log.db'}", create=True)
    with Session.create(log, "kept") as session:
        session.record([Draft("user_message", {"text": "what was said last"})])
        for suffix in ("", *beside):
            shutil.copy(tmp_path / f"log.db{suffix}", disk / f"log.db{suffix}")
    log.close()
    assert mount("-o", "remount,ro", str(disk))
    code = main(["show", "kept", "--store", f"sqlite:{disk / 'log.db'}"])
    told = capsys.readouterr()
    assert ("what was said last" in told.out) == (code == 0)
    assert code == 0 or "cannot be opened" in told.err


def test_a_file_of_an_older_version_is_not_changed_where_nothing_can_be_written(disk: Path):
    open_log(f"sqlite:{disk / 'log.db'}", create=True).close()
    held = apsw.Connection(str(disk / "log.db"))
    held.pragma("user_version", 1)
    held.close()
    assert mount("-o", "remount,ro", str(disk))
    with pytest.raises(StoreError, match=r"is of an older version .* copy it to one that can"):
        open_log(f"sqlite:{disk / 'log.db'}", create=False)

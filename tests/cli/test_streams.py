"""Commands whose streams are closed, full, or read by somebody who has enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ullage.cli.main import TALKING


def test_a_reader_who_has_enough_ends_it_quietly():
    command = f"{sys.executable} -m ullage.cli.main models list | head -1"
    pipe = ["sh", "-c", command]
    done = subprocess.run(pipe, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "closed", "code", "said"),
    [
        ("context --demo", ">&-", 0, ""),
        ("context --demo", "<&-", 0, ""),
        *((w, ">&-", 1, f"standard output is closed, and `ullage {w}`") for w in TALKING),
        *((w, "<&-", 1, f"standard input is closed, and `ullage {w}`") for w in TALKING),
    ],
)
def test_a_closed_stream_is_told_in_one_line_or_does_no_harm(
    words: str, closed: str, code: int, said: str
) -> None:
    command = ["sh", "-c", f"{sys.executable} -m ullage {words} {closed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", ["context --demo", "statusline", "window gpt-5 --json"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a file that is always full")
def test_a_full_disk_behind_stdout_is_an_error_in_one_line(words: str, *, buffered: bool) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ullage", *words.split()],
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    said = "ullage: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)

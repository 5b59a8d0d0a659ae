"""The tutorial, step by step, as a reader goes through it: in one folder, in real processes.

The tests' tiny model behind `ullage serve` stands in for the one of `--demo`, on a free port; what
installs packages is left out. Nothing else is changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tests.test_docs import ADDRESSES, ROOT, blocks
from ullage.embedded import Server

PAGE = ROOT / "docs" / "tutorial.md"
SECOND = "# in a second terminal\n"
PORT = "127.0.0.1:8790"


@pytest.fixture
def settings(tmp_path: Path) -> Mapping[str, str]:
    """Return the environment of a reader with nothing set, and `ullage` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ullage").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ullage "$@"\n')
    (programs / "python").symlink_to(sys.executable)
    (programs / "ullage").chmod(0o755)
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE")}
    known = {**os.environ, **homes, "HOME": str(tmp_path)}
    known["PYTHONPATH"] = str(ROOT / "src")
    known["PATH"] = f"{programs}{os.pathsep}{known['PATH']}"
    return known


@pytest.fixture
def address(settings: Mapping[str, str], tmp_path: Path, tiny_server: Server) -> Iterator[str]:
    """Start what the tutorial starts in the second terminal; yield where it listens."""
    (begun,) = [text for text in blocks(PAGE, "sh") if text.startswith(SECOND)]
    words = begun.removeprefix(SECOND).split()
    assert words == ["ullage", "serve", "--demo"]
    upstream = tiny_server.base_url.removesuffix("/v1")
    command = [sys.executable, "-m", "ullage", "serve", "--upstream", upstream, "--port", "0"]
    with (tmp_path / "serve.log").open("w+") as log:
        child = subprocess.Popen(command, stderr=log, env=settings, cwd=tmp_path)
        try:
            yield wait_for_address(child, tmp_path / "serve.log")
        finally:
            child.terminate()
            child.wait(timeout=40)


def wait_for_address(child: subprocess.Popen[bytes], log: Path) -> str:
    """Return HOST:PORT once the proxy says where it listens."""

    def find() -> re.Match[str] | None:
        assert child.poll() is None, log.read_text("utf-8")
        return re.search(r"listening on http://(\S+)", log.read_text("utf-8"))

    eventually(lambda: find() is not None)
    found = find()
    assert found is not None
    return found[1]


def steps() -> list[tuple[str, str]]:
    """Return kind and text of each block that a reader runs, in order."""
    found = re.findall(
        r"^```(sh|python)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [
        (kind, text) for kind, text in found if not text.startswith((SECOND, "python3 -m venv"))
    ]


@pytest.mark.slow
def test_each_step_of_the_tutorial_does_what_it_says(
    settings: Mapping[str, str], address: str, tmp_path: Path
) -> None:
    said = []
    for kind, text in steps():
        code = text.replace(PORT, address)
        command = [sys.executable, "-c", code] if kind == "python" else ["/bin/sh", "-ec", code]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=settings,
            cwd=tmp_path,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
        said.append(done.stdout + done.stderr)
    demo, window, history, counts, voyage, found, headers, session = said
    assert "system prompt and tools" in demo
    assert "allocated" in window
    assert history == ""
    assert "(exact)" in counts
    assert "trim_oldest" in counts
    assert "compacted" in voyage
    assert re.search(r"u:[0-9a-f]{16}", found)
    assert "x-ullage-context: used=" in headers.lower()
    assert "Name a harbour in Scotland." in session
    assert ADDRESSES.search(PAGE.read_text("utf-8"))

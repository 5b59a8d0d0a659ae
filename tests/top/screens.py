"""Make the captures of the htop of context in docs/screens: `python -m tests.top.screens`.

Each is the real command in a real tmux, over a session of Claude Code's and one of ullage's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.agent.acting import agent, said, scripted
from tests.cli.screens import SCREENS, Pane
from ullage.agent import Session
from ullage.importers import SAMPLE
from ullage.storage.log_sqlite import SqliteLog

WIDTHS: Final = (40, 80, 200)
PATIENCE_S: Final = 60.0


def make_home(folder: Path) -> Path:
    """Fill a folder of a user with two sessions; return it."""
    project = folder / ".claude" / "projects" / "shop"
    project.mkdir(parents=True)
    copied = project / "0b1e7a52-0000-4000-8000-000000000000.jsonl"
    shutil.copy(SAMPLE, copied)
    log = SqliteLog(folder / "log.db")
    with scripted(said("Wine.", 2_100), said("Nine casks.", 2_160)) as server:
        runner = agent(server)
        with Session.create(log, "cellar") as session:
            runner.run(session, "What is in the cellar?")
            runner.run(session, "How many casks are there?")
    log.close()
    old = time.time() - 3_600
    os.utime(copied, (old, old))
    return folder


@contextmanager
def showing(home: Path, width: int, *words: str) -> Iterator[Pane]:
    """Run `ullage` in a tmux of a width; yield its pane."""
    names = ("PATH", "LANG", "LC_ALL")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    env = {**kept, "HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    env |= {"ULLAGE_STORE": f"sqlite:{home / 'log.db'}", "ULLAGE_CACHE_DIR": str(home)}
    pane = Pane(home / f"tmux-{width}", env)
    command = " ".join([sys.executable, "-m", "ullage", *words])
    pane.tmux("new-session", "-d", "-x", str(width), "-y", "16", command)
    try:
        yield pane
    finally:
        with suppress(subprocess.CalledProcessError):  # it ended with its command
            pane.tmux("kill-server")


def main() -> None:
    """Write the captures."""
    with tempfile.TemporaryDirectory() as name:
        home = make_home(Path(name))
        for width in WIDTHS:
            with showing(home, width) as pane:
                pane.until("12%")
                pane.until("27%")
                screen = pane.until("2 of 2 conv")
                text = "\n".join(line.rstrip() for line in screen.splitlines())
                (SCREENS / f"top-{width}.txt").write_text(f"{text.rstrip()}\n", "utf-8")


if __name__ == "__main__":
    main()

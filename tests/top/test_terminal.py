"""The htop of context in a real terminal, by its keys."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.screens import SCREENS, Pane
from tests.top.screens import WIDTHS, make_home, showing


def has_session(pane: Pane) -> bool:
    """Tell whether the command still runs."""
    command = ["tmux", "-S", str(pane.socket), "has-session"]
    return (
        subprocess.run(command, env=pane.environment, capture_output=True, check=False).returncode
        == 0
    )


pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")


def test_ullage_alone_shows_the_conversations_and_ends_by_a_key(tmp_path: Path):
    home = make_home(tmp_path)
    with showing(home, 100) as pane:
        pane.until("2 of 2 conversations")
        pane.until("27%")
        pane.tmux("send-keys", "Enter")
        screen = pane.until("2,160 of 8,000 tokens")
        assert "What is in the cellar?" in screen
        pane.tmux("send-keys", "q")
        pane.until("2 of 2 conversations")
        pane.tmux("send-keys", "/")
        pane.until("words that a row must hold")
        pane.tmux("send-keys", "-l", "cent")
        pane.until("1 of 2 conversations")
        pane.tmux("send-keys", "Enter")
        pane.until("q Quit")  # the rows have the keys again
        pane.tmux("resize-window", "-x", "60")
        pane.until("12%")
        pane.tmux("send-keys", "q")
        end = time.monotonic() + 20
        while has_session(pane):
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_captures_are_of_this_screen(width: int):
    text = (SCREENS / f"top-{width}.txt").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= width
    for words in ("2 of 2 conversations", "27%", "12%"):
        assert words in text

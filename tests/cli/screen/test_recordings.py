"""The screens in docs/screens are what is drawn and printed today; without its packages it goes on.

"It" is the chat. What the README quotes of a screen is compared with the command, too.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.cli.screens import CHATS, MAKE, PRINTED, ROOT, SCREENS, capture_output
from ullage.cli import chat

TELLS = re.compile(
    r"session \w{12}|\| \w{12}$|thought for [\d.]+ s|[\d.]+ s ok|ctx=[\d.k]+", re.MULTILINE
)


def normalize(screen: str) -> list[str]:
    """Return the rows without names of sessions, times and counts of tokens."""
    return [row.rstrip() for row in TELLS.sub("...", screen).rstrip().split("\n")]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("name", CHATS)
def test_a_screen_is_as_it_was_recorded(name: str) -> None:
    make, command = CHATS[name]
    head, _, recorded = (SCREENS / f"{name}.txt").read_text().partition("\n\n")
    assert head == f"$ {command}\n# a scripted model; made by: {MAKE}"
    with tempfile.TemporaryDirectory() as folder:  # its path is short enough for a row
        drawn = normalize(make(Path(folder)).replace(f"{folder}/", ""))
    wanted = normalize(recorded)
    under_way = "(esc interrupts)" in recorded  # whose last rows depend on when it was looked at
    rows = 11 if under_way else len(wanted)
    assert drawn[:rows] == wanted[:rows], f"{MAKE} {name}"


@pytest.mark.parametrize("name", PRINTED)
def test_what_a_screen_shows_is_what_the_command_prints(name: str, tmp_path: Path) -> None:
    recorded = (SCREENS / f"{name}.txt").read_text()
    assert capture_output(PRINTED[name], tmp_path) == recorded, f"{MAKE} {name}"


def test_each_line_that_the_readme_quotes_of_a_context_is_one_that_is_printed() -> None:
    readme = (ROOT / "README.md").read_text()
    _, _, section = readme.partition("### What fills your window")
    quoted = section.partition("```text\n")[2].partition("```")[0].splitlines()
    printed = (SCREENS / "context-demo.txt").read_text().splitlines()
    assert quoted
    assert [line for line in quoted if line not in printed] == []


def test_every_screen_of_the_chat_is_shown_in_its_page() -> None:
    page = (SCREENS.parent / "chat.md").read_text()
    assert {f"screens/{name}.txt" for name in CHATS} == set(
        re.findall(r"screens/[\w-]+\.txt", page)
    )


class Terminal:
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("missing", chat.SCREEN)
def test_without_a_package_there_is_no_screen(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert chat.has_screen()
    monkeypatch.setattr(chat, "find_spec", lambda name: None if name == missing else object())
    assert not chat.has_screen()


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_screen_needs_a_terminal_on_every_side(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for each in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{each}", Terminal())
    monkeypatch.setattr(f"sys.{name}", None)
    assert not chat.has_screen()
    monkeypatch.setattr(f"sys.{name}", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not chat.has_screen()

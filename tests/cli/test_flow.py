"""An answer on a terminal: whole at any width, however it was cut on its way."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agent.acting import chunk, scripted
from tests.cli.room import Room, running
from tests.support.faults import Answer, sse
from ullage.cli import flow, lines

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 PDF\u200c\u0647\u0627"
# of the family three are here: a cell of tmux 3.3 holds 21 bytes, and drops a fourth
ANSWER = (
    "She was thinking about the dragon that lived beneath the old cellar, and about the family "
    f"{FAMILY[:5]} above it. {PERSIAN} is Persian. " * 3 + "\n\n"
    "```sh\n"
    "tar --create --file /tmp/archive.tar --exclude '*.pyc'  --verbose  src tests docs bench\n"
    "```\n"
    "| a table | has rows that are longer than a narrow terminal, and they stay as they are |\n"
    "    an indented line of code that is longer than forty cells stays in one piece, too\n"
    f"A long word: https://example.org/{'x' * 120}?q=1 and what follows it.\n"
    "日本語の文章は空白なしで続きますので、どの文字の後でも改行できます。日本語の文章は空白なし。\n"
    "e\u0301a\u0308 combine; a \u202etrick\x1b[2J is shown."
)
SHOWN = ANSWER.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")

pieces = st.sampled_from(
    [
        *"ab \n\t`|~-.,日",
        *("word", " ", "\U0001f469", "\u200d", "\u200c", "\u0645", "\u06cc", "\u0301", "\r\n"),
        *("\U0001f3f3\ufe0f", "\u202e", "\x1b[2J", "\r", "\x9b", "\U0001f1e9\U0001f1ea"),
        *("```", "    "),
    ]
)
texts = st.lists(pieces, max_size=80).map("".join)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(text: str, cuts: Sequence[int], widths: Sequence[int]) -> str:
    """Return what is written on a terminal of a text that comes in pieces; its width may change."""
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    screen = Screen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        way = flow.Flow()
        for n, (start, end) in enumerate(pairwise(places)):
            patch.setenv("COLUMNS", str(widths[n % len(widths)]))
            way.write(text[start:end])
        way.end()
    return screen.getvalue()


def packed(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(
    texts,
    st.lists(st.integers(0, 200), max_size=12),
    st.lists(st.sampled_from([10, 40, 80, 200]), min_size=1, max_size=3),
)
@example(ANSWER, [3, 90, 91, 95, 100], [40])
@example("x" * 9 + " y", [], [10])
def test_a_terminal_gets_every_character_and_nothing_that_moves_the_cursor(
    text: str, cuts: list[int], widths: list[int]
):
    written = shown(text, cuts, widths)
    assert packed(written) == packed(lines.visible(text.replace("\r\n", "\n")))
    assert not set(written) & set("\x1b\r\x08\x9b\x07")
    assert written == "" or written.endswith("\n")


@given(texts, st.lists(st.integers(0, 200), max_size=12), st.sampled_from([20, 40, 80]))
def test_where_a_text_is_cut_on_its_way_does_not_show(text: str, cuts: list[int], width: int):
    assert shown(text, cuts, [width]) == shown(text, [], [width])


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=60))
def test_a_line_ends_between_words_and_as_late_as_it_can(words: list[str]):
    rows = shown(" ".join(words), [], [20]).splitlines()
    assert [word for row in rows for word in row.split()] == words
    assert all(len(row) <= 20 for row in rows)
    for row, after in pairwise(rows):
        assert len(row) + 1 + len(after.split()[0]) > 20


@pytest.mark.parametrize(
    "text", [FAMILY, PERSIAN, "\U0001f3f4\U000e0067\U000e0062\U000e007f", "क्\u200dष"]
)
def test_joiners_of_what_is_seen_are_written_as_they_are(text: str):
    assert lines.visible(text) == text


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("a\u200db", "a\\u200db"),
        (" \u200c", " \\u200c"),
        ("م\u200d\u200d", "م\u200d\\u200d"),
        ("a\U000e0067\U000e007f", "a\\U000e0067\\U000e007f"),
        ("\U0001f3f4\u0301\U000e007f", "\U0001f3f4\u0301\\U000e007f"),
        ("\u202ea\u2066\x1b[0m\r", "\\u202ea\\u2066\\x1b[0m\\r"),
    ],
)
def test_joiners_and_tags_that_only_hide_are_shown_as_escapes(text: str, visible: str):
    assert lines.visible(text) == visible


def test_copied_code_and_tables_are_as_they_were_written():
    code = [line for line in ANSWER.split("\n") if line.startswith(("tar ", "| ", "    an"))]
    written = shown(ANSWER, [7, 400, 700], [40])
    assert len(code) == 3
    assert all(line in written.split("\n") for line in code)


# ── real terminals ──────────────────────────────────────────────────────────────────────────────


def streaming(text: str, step: int, pause_s: float = 0.0) -> Answer:
    """Answer with a text in pieces of so many characters."""
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    return sse(*(chunk({"content": part}) for part in parts), "[DONE]", pause_s=pause_s)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_that_is_resized_while_an_answer_streams_still_gets_all_of_it(room: Room):
    text = "the quick brown fox jumps over the lazy dog and goes on. " * 12
    with running(room, (streaming(text, 20, 0.03),), "run", "go", columns=80) as (terminal, _):
        terminal.until("fox")
        terminal.resize(24, 40)
        terminal.until("lazy dog and")
        terminal.until("goes on")
        written = terminal.shown + terminal.rest()
        whole = terminal.shown
    assert "fox" in written
    answer = whole[whole.index("the quick") : whole.rindex("goes on.") + 8]
    assert answer.split() == text.split()
    assert max(map(len, answer.splitlines()[-3:])) <= 40


def in_tmux(room: Room, command: Sequence[str], columns: int) -> str:
    """Return the whole screen of a command in tmux, its wrapped rows joined."""
    tmux = ["tmux", "-S", str(room.folder / "tmux"), "-f", os.devnull, "-u"]
    over = shlex.join([*tmux, "wait-for", "-S", "over"])
    line = f"{shlex.join(command)}; {over}; exec sleep 100"
    size = ["-x", str(columns), "-y", "24"]
    utf8 = {**room.environment, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [*tmux, *words], env=utf8, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    try:
        run("new-session", "-d", *size, "sh", "-c", line)
        run("wait-for", "over")
        return run("capture-pane", "-p", "-J", "-S", "-")
    finally:
        run("kill-server")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("step", [1, 7])
def test_the_screen_of_tmux_joined_is_the_answer(room: Room, columns: int, step: int):
    with scripted(streaming(ANSWER, step)) as server:
        command = room.command(server, "run", "go")
        screen = in_tmux(room, command, columns)
    assert packed(SHOWN) in packed(screen), screen
    for line in SHOWN.split("\n"):
        if line.startswith(("tar ", "| ", "    an")):
            assert line in screen.split("\n")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_talk_in_tmux_eats_no_character_at_the_end_of_a_line(room: Room):
    with scripted(streaming(ANSWER, 3)) as server:
        command = room.command(server, "chat", "go")
        screen = in_tmux(room, ["sh", "-c", f"{shlex.join(command)} </dev/null"], 40)
    assert packed(SHOWN) in packed(screen), screen

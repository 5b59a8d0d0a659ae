"""`ullage chat` in a real terminal, on a real llama.cpp server: long, broken off, resumed."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.terminal import ESCAPES, Terminal
from ullage.agent import Session
from ullage.core.session.log.fold import User
from ullage.embedded import Server
from ullage.storage import open_log
from ullage.storage.log import verify

PROMPT = r"(build|plan)> $"
ULLAGE = str(Path(sys.executable).with_name("ullage"))
WORDS = "Please remember that cask number {n} in the long corridor holds red wine of the year {n}."


def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ULLAGE")}
    settings = tmp_path / "config.toml"
    settings.write_text("")
    return {
        **kept,
        "ULLAGE_CONFIG": str(settings),
        "ULLAGE_CACHE_DIR": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }


def chat(tmp_path: Path, *more: str) -> Terminal:
    command = [ULLAGE, "chat", "--plain", "--store", f"sqlite:{tmp_path}/state/s.db", "--no-tools"]
    return Terminal([*command, "--max-tokens", "24", *more], environment(tmp_path))


def interrupt(terminal: Terminal) -> None:
    """Press Ctrl-C; one that falls between two reads of the line editor shows with the next key."""
    terminal.press(b"\x03")
    try:
        terminal.until(PROMPT, 5.0)
    except AssertionError:
        terminal.type("")
        terminal.until(PROMPT)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the server is Linux only")
def test_forty_turns_over_several_windows_interrupted_killed_and_resumed(
    tmp_path: Path, tiny_model: Path
):
    embedded = ("--embedded", str(tiny_model), "--window", "2048")
    with chat(tmp_path, *embedded) as terminal:
        terminal.until(PROMPT, 120)
        for n in range(20):
            terminal.type(WORDS.format(n=n))
            assert "hello" in terminal.until(PROMPT)
        assert re.search(r"ctx=[\d.k]+/2\.0k", terminal.shown)
        terminal.type("/context")
        assert "system prompt" in terminal.until(PROMPT)
        terminal.type("A last word before the lights go out.")
        terminal.until("hello")
        interrupt(terminal)
        terminal.type("still there?")
        terminal.until(PROMPT)
        terminal.type("One more, and then it is dark.")
        terminal.kill()
    with chat(tmp_path, *embedded, "--session", "-") as terminal:
        terminal.until(PROMPT, 120)
        for n in range(20, 40):
            terminal.type(WORDS.format(n=n))
            assert "hello" in terminal.until(PROMPT)
        terminal.type("/window")
        assert "2,048 tokens" in terminal.until(PROMPT)
        terminal.press(b"\x04")
        assert terminal.process.wait(20) == 0
    log = open_log(f"sqlite:{tmp_path}/state/s.db")
    (head,) = log.sessions()
    session = Session(log, head.session)
    fold = session.fold
    said = [item.text for item in fold.items if isinstance(item, User)]
    assert [text for text in said if text.startswith("Please")] == [
        WORDS.format(n=n) for n in range(40)
    ]
    assert len(fold.checkpoints) >= 2
    assert fold.turn is None
    assert verify(log, head.session) == []
    log.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the server is Linux only")
def test_what_is_typed_after_a_slash_is_done_and_not_sent(tmp_path: Path, tiny_server: Server):
    server = ("--base-url", tiny_server.base_url)
    with chat(tmp_path, *server) as terminal:
        terminal.until(PROMPT)
        for typed, shown in (
            ("/help", "/summary"),
            ("/nonsense", "there is no /nonsense"),
            ("/plan", "plan> "),
            ("/build", "build> "),
            ("/uncompact", "no compaction"),
            ("/compact lots", "share of the window"),
            ("/summary", "nothing to summarise yet"),
            ("hello \\", "... "),
        ):
            terminal.type(typed)
            terminal.until(re.escape(shown))
        terminal.type("and more")
        terminal.until(r"ctx=.*build> $")
        terminal.type("/summary")
        assert "goes on from" in terminal.until(PROMPT)
        terminal.type("/model other")
        assert "other: 2,048" in terminal.until(PROMPT)
        interrupt(terminal)
        assert "Ctrl-D" in ESCAPES.sub("", terminal.shown)
        terminal.press(b"\x03")
        with suppress(AssertionError, OSError):
            terminal.until("nothing more", 3.0)  # reads on, so that the program can end
            terminal.type("")
        if terminal.process.poll() is None:
            terminal.press(b"\n")
        assert terminal.process.wait(20) == 130

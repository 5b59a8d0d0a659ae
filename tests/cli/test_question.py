"""The question, the sign of life and what is piped in, in this process: every answer."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ullage.agent import Consent, Pending, Preview
from ullage.cli import activity, asking, sign, stdin
from ullage.core.messages.transcript import Call
from ullage.core.session.permissions import CallSubject, Grant

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

COMMAND = CallSubject("shell", "command", "git status")
FILE = CallSubject("edit", "path", "src/a.py")
OTHER = CallSubject("deploy", "arguments", '{"to": "here"}')


def pending(subject: CallSubject, text: str = "git status", kind: Any = "command") -> Pending:
    return Pending.over(Call("a", subject.tool, "{}"), Preview(kind, text), subject)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def answered(
    call: Pending, answers: Sequence[str | None], monkeypatch: pytest.MonkeyPatch, rows: int = 24
) -> tuple[Consent, str]:
    """Return the answer to a question, and what was shown; every typed line must be read."""
    left = list(answers)

    async def read(question: str) -> str | None:
        screen.write(question)
        return left.pop(0)

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("COLUMNS", "40")
    found = asyncio.run(asking.ConsentQuestion(call, "it is asked for", read).put())
    assert left == []
    return found, screen.getvalue()


@pytest.mark.parametrize(
    ("subject", "answers", "consent"),
    [
        (COMMAND, ["y"], Consent(True)),
        (COMMAND, ["YES\n"], Consent(True)),
        (COMMAND, ["perhaps", "yes please", "y"], Consent(True)),
        (COMMAND, [""], Consent(False)),
        (COMMAND, [None], Consent(False)),
        (COMMAND, ["n not now"], Consent(False, "not now")),
        (COMMAND, ["n", "not now\n"], Consent(False, "not now")),
        (COMMAND, ["n", None], Consent(False)),
        (COMMAND, ["a"], Consent(True, scope="same")),
        (COMMAND, ["a git log"], Consent(True, scope="pattern", pattern="git log")),
        (COMMAND, ["a git log:*"], Consent(True, scope="pattern", pattern="git log")),
        (COMMAND, ["a git log *"], Consent(True, scope="pattern", pattern="git log")),
        (COMMAND, ["a git; rm", "a"], Consent(True, scope="same")),
        (COMMAND, ["always *"], Consent(True, scope="tool")),
        (FILE, ["a"], Consent(True, scope="same")),
        (FILE, ["a src/**"], Consent(True, scope="pattern", pattern="src/**")),
        (FILE, ["a /etc/x", "n", None], Consent(False)),
        (OTHER, ["a"], Consent(True, scope="same")),
        (OTHER, ["a here", "a *"], Consent(True, scope="tool")),
    ],
)
def test_an_answer_means_what_the_question_says(
    subject: CallSubject,
    answers: list[str | None],
    consent: Consent,
    monkeypatch: pytest.MonkeyPatch,
):
    found, shown = answered(pending(subject), answers, monkeypatch)
    assert found == consent
    if consent.scope != "once":
        named = str(Grant(subject, consent.scope, consent.pattern))
        assert named in " ".join(shown.split())  # whatever rows it stands in


@pytest.mark.parametrize("end", ["n", None])
def test_a_text_that_was_not_seen_to_its_end_can_only_be_refused(
    end: str | None, monkeypatch: pytest.MonkeyPatch
):
    text = "\n".join(f"line {n}" for n in range(50))
    found, shown = answered(pending(COMMAND, text), ["", "y", end, "why"], monkeypatch, rows=10)
    assert found == Consent(False, "why")
    assert "line 20" in shown
    assert "line 22" not in shown
    assert "Allow?" not in shown


def test_every_row_of_a_long_line_fits_and_together_they_are_the_line(
    monkeypatch: pytest.MonkeyPatch,
):
    line = "echo " + "日本 \x1b[31m" * 40
    _, shown = answered(pending(COMMAND, line), ["g", "y"], monkeypatch, rows=5)
    rows = [row for row in shown.replace("-- ", "\n").split("\n") if row[:2] in ("| ", ": ")]
    assert "".join(row[2:] for row in rows) == line.replace("\x1b", "\\x1b")
    assert all(len(row) + row.count("日") + row.count("本") <= 40 for row in rows)


# ── a terminal ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, typed: bytes) -> Iterator[None]:
    """Have a terminal where the keys are pressed as soon as a question shows."""
    master, slave = pty.openpty()
    seen = bytearray()

    def person() -> None:
        while b"Allow?" not in seen and (came := os.read(master, 4_096)):
            seen.extend(came)
        os.write(master, typed)

    thread = threading.Thread(target=person, daemon=True)
    with (
        os.fdopen(os.dup(slave), "r") as reading,
        os.fdopen(os.dup(slave), "w") as writing,
    ):
        monkeypatch.setattr(sys, "stdin", reading)
        monkeypatch.setattr(sys, "stderr", writing)
        thread.start()
        try:
            yield
        finally:
            thread.join(10)
            os.close(master)
            os.close(slave)


def test_a_line_typed_at_the_question_is_the_answer(monkeypatch: pytest.MonkeyPatch):
    with terminal(monkeypatch, b"n because\n"):
        found = asyncio.run(activity.Activity().ask(pending(COMMAND), "why"))
    assert found == Consent(False, "because")


def test_a_question_that_is_cancelled_reads_nothing_more(monkeypatch: pytest.MonkeyPatch):
    async def ask() -> None:
        asking_it = asyncio.ensure_future(asking.ask(pending(COMMAND), "why"))
        await asyncio.sleep(0)
        asking_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking_it

    with terminal(monkeypatch, b"the next line\n"):
        asyncio.run(ask())
        assert sys.stdin.readline() == "the next line\n"


def test_nobody_is_asked_where_the_question_cannot_be_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert asyncio.run(asking.ask(pending(COMMAND), "why")) is None
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    monkeypatch.setattr(asking, "TERMINAL", "/nowhere/tty")
    assert asyncio.run(asking.ask(pending(COMMAND), "why")) is None


def test_colours_are_for_diffs_on_terminals_of_people_who_want_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    diff = pending(FILE, "-old\n+new\n same", "diff")
    assert "\x1b[31m| -old\x1b[0m\n" in answered(diff, ["y"], monkeypatch)[1]
    assert "\x1b" not in answered(pending(COMMAND, "-old"), ["y"], monkeypatch)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in answered(diff, ["y"], monkeypatch)[1]


# ── a sign of life ──────────────────────────────────────────────────────────────────────────────


def test_a_sign_is_taken_away_whole_and_changes_on_its_own_line(monkeypatch: pytest.MonkeyPatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    shown = sign.Sign("waiting")
    shown.tick()
    shown.begin("waiting")
    shown.begin("running a tool with a very long name indeed")
    shown.tick()
    shown.clear()
    shown.clear()
    rows = screen.getvalue().split("\r")
    assert rows[1] == "  waiting 0 s"
    assert rows[2] == " " * len(rows[1])
    assert len(rows[4]) <= 29
    assert rows[5] == " " * len(rows[4])
    assert rows[6] == ""
    monkeypatch.setenv("TERM", "dumb")
    shown.tick()
    assert len(screen.getvalue().split("\r")) == len(rows)


# ── what is piped in ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "piped", "prompt"),
    [
        ("why?", "log", "why?\n\nlog"),
        ("why?", " \n", "why?"),
        (None, "log", "log"),
        (None, "", None),
        ("-", "log", "log"),
        ("-", "", ""),
        ("", "", ""),
    ],
)
@pytest.mark.parametrize("real", [True, False])
def test_what_is_said_is_the_text_and_what_is_piped_in(
    text: str | None,
    piped: str,
    prompt: str | None,
    real: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "in").write_text(piped)
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(sys, "stdin", file if real else io.StringIO(piped))
        assert stdin.read_prompt(text) == prompt


def test_a_terminal_is_read_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch):
    screen = Screen("typed")
    monkeypatch.setattr(sys, "stdin", screen)
    assert stdin.read_prompt("why?") == "why?"
    assert stdin.read_prompt("-") == "typed"
    monkeypatch.setattr(sys, "stdin", None)
    assert stdin.read_prompt("why?") == "why?"
    assert stdin.read_prompt("-") == ""
    assert stdin.read_prompt("caf\udce9 \u00e9") == "caf\\udce9 \u00e9"  # a byte that is no text


@pytest.mark.parametrize("watched", [True, False])
def test_a_silent_pipe_is_waited_for_where_a_person_can_end_it(
    watched: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setattr(stdin, "TOLD_AFTER_S", 0.01)
    monkeypatch.setattr(stdin, "PATIENCE_S", 0.01)
    monkeypatch.setattr(asking, "TERMINAL", os.devnull if watched else "/nowhere/tty")
    reading, writing = os.pipe()
    late = threading.Timer(0.2, os.close, [writing])
    late.start()
    with os.fdopen(reading) as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert stdin.read_prompt("why?") == "why?"
        late.join()
    assert ("going on without it" in capsys.readouterr().err) is not watched

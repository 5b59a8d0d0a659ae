"""`ullage run` and `chat` while they work: what a person sees, presses, pipes in and spells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import bodies, called, chunk, said, scripted
from tests.cli.room import ULLAGE, Room, running
from tests.cli.terminal import Terminal
from tests.support.faults import FaultServer, hanging, sse
from tests.support.waiting import eventually
from ullage.agent import Session
from ullage.cli import endpoint
from ullage.cli.main import main, parser
from ullage.core.session.log.event import Draft
from ullage.storage import open_log

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

PROMPT = r"(build|plan)> $"
ALLOW = r"Allow\? \[y/a/N\] $"
WRITE = called(("write", {"path": "a", "content": "x"}))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def piped(
    room: Room, server: FaultServer, words: Sequence[str], data: bytes | None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard streams are pipes; without data stdin is empty."""
    return subprocess.run(
        room.command(server, *words),
        env=room.environment,
        input=data or b"",
        capture_output=True,
        check=False,
        timeout=60,
    )


# ── what is seen ────────────────────────────────────────────────────────────────────────────────


def test_an_answer_streams_on_a_terminal_and_is_there_once(room: Room):
    answer = sse(*(chunk({"content": f"word{n} "}) for n in range(6)), "[DONE]", pause_s=0.3)
    with running(room, (answer,), "run", "go") as (terminal, _):
        assert "word5" not in terminal.until("word1")
        whole = terminal.shown + terminal.rest()
    assert whole.count("word0 word1 word2 word3 word4 word5") == 1


@pytest.mark.slow
def test_until_the_first_token_there_is_a_sign_of_life_that_leaves_nothing_behind(room: Room):
    slow = sse(chunk({"content": "Here."}), "[DONE]", pause_s=2.5)
    with running(room, (called(("list", {})), slow), "run", "go") as (terminal, _):
        terminal.until(r"\r  waiting [12] s")
        terminal.rest()
        raw = terminal.shown
    shown = raw.split("\r  waiting ")[-1]
    sign = "  waiting " + shown[: shown.index("\r")].rstrip()
    erased = "\r" + " " * len(sign) + "\r"
    assert erased in raw
    last = raw.rindex(erased)
    assert "\r  waiting" in raw[raw.rfind("\n", 0, last) : last]  # all on one line


@pytest.mark.slow
def test_thinking_is_told_from_waiting(room: Room):
    thinking = sse(
        chunk({"reasoning_content": "Hm."}), chunk({"content": "Yes."}), "[DONE]", pause_s=1.6
    )
    with running(room, (thinking,), "run", "go") as (terminal, _):
        terminal.until(r"thinking \d s")
        assert "Yes." in terminal.rest()


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--json",), ("--quiet",)])
def test_a_pipe_gets_the_answer_alone_and_whole(room: Room, words: tuple[str, ...]):
    answer = sse(chunk({"content": "a\x1b[2J "}), chunk({"content": "b" * 200}), "[DONE]")
    with scripted(answer) as server:
        done = piped(room, server, ("run", "go", *words), None)
    assert done.returncode == 0
    if "--json" in words:
        assert done.stdout.startswith(b"{")
    else:
        assert done.stdout == b"a\x1b[2J " + b"b" * 200 + b"\n"
    assert b"\r" not in done.stderr
    assert b" s\n" not in done.stderr


@pytest.mark.slow
def test_with_the_answer_in_a_pipe_the_terminal_shows_that_it_comes(room: Room, tmp_path: Path):
    answer = sse(chunk({"content": "one "}), chunk({"content": "two"}), "[DONE]", pause_s=1.5)
    with (tmp_path / "out").open("wb") as out:
        streams = {"stdout": out.fileno()}
        with running(room, (answer,), "run", "go", **streams) as (terminal, _):
            terminal.until(r"answering \d s")
            terminal.rest()
    assert (tmp_path / "out").read_bytes() == b"one two\n"


# ── Ctrl-C ──────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_at_the_question_ends_the_turn_at_once_and_takes_no_line(room: Room):
    with running(room, (WRITE, said("Hello again.")), "chat", "--plain") as (terminal, server):
        terminal.until(PROMPT)
        terminal.type("go")
        terminal.until(ALLOW)
        terminal.press(b"\x03")
        terminal.until(rf"interrupted(?s:.*){PROMPT}")
        terminal.type("this is the next line")
        assert "Hello again." in terminal.until(PROMPT)
        assert bodies(server)[1]["messages"][-1]["content"] == "this is the next line"
        terminal.press(b"\x04")
        assert terminal.process.wait(20) == 0
    assert not (room.work / "a").exists()
    assert len(room.events("turn_interrupted")) == 1


def test_ctrl_c_at_the_question_of_a_run_is_an_interrupt(room: Room):
    with running(room, (WRITE,), "run", "go") as (terminal, _):
        terminal.until(ALLOW)
        terminal.press(b"\x03")
        terminal.rest()
        assert terminal.process.wait(20) == 130
    assert room.events("tool_result")[0]["is_error"]


def test_what_was_typed_before_the_question_is_no_answer_to_it(room: Room):
    slow = sse(chunk({"content": "I write."}), *_calls(WRITE), pause_s=0.4)
    with running(room, (slow, said("done")), "run", "go") as (terminal, _):
        terminal.until("write")
        terminal.type("y")
        terminal.until(ALLOW)
        assert not (room.work / "a").exists()
        terminal.type("n why not")
        terminal.rest()
    assert not (room.work / "a").exists()


def _calls(answer: Any) -> list[Any]:
    lines = b"".join(answer.blocks).decode().split("\n\n")
    found = [line.removeprefix("data: ") for line in lines if line]
    return [line if line == "[DONE]" else json.loads(line) for line in found]


def test_ctrl_c_while_a_cut_off_turn_is_finished_keeps_the_chat(room: Room):
    log = open_log(room.store, create=True)
    with Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": "look"})])
        session.record([Draft("turn_started", {"turn": "t"})])
    log.close()
    words = ("chat", "--plain", "--session", "s")
    with running(room, (hanging(), said("Still here.")), *words) as (terminal, server):
        terminal.until(r"going on with it(?s:.*)waiting \d s")
        eventually(lambda: bool(bodies(server)))  # it hangs, and is not merely slow to ask
        terminal.press(b"\x03")
        terminal.until(rf"interrupted(?s:.*){PROMPT}")
        terminal.type("hello?")
        assert "Still here." in terminal.until(PROMPT)
        terminal.press(b"\x04")
        assert terminal.process.wait(20) == 0


# ── standard input ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "data", "prompt"),
    [
        (("run", "why?"), b"line 1\nline 2\n", "why?\n\nline 1\nline 2\n"),
        (("run",), b"line 1\n", "line 1\n"),
        (("run", "-"), b"line 1", "line 1"),
        (("run", "why?"), b"", "why?"),
        (("run", "why?"), b"caf\xc3\xa9 \xff", "why?\n\ncafé \\xff"),
    ],
)
def test_what_is_piped_in_is_part_of_what_is_said(
    room: Room, words: tuple[str, ...], data: bytes, prompt: str
):
    room.environment["PYTHONUTF8"] = "1"
    with scripted(said("Because.")) as server:
        assert piped(room, server, words, data).stdout == b"Because.\n"
        assert bodies(server)[0]["messages"][-1]["content"] == prompt


def test_a_file_as_standard_input_is_read_and_resume_takes_it_too(room: Room, tmp_path: Path):
    (tmp_path / "question").write_text("from a file")
    with scripted(said("one"), said("two")) as server:
        for words in (("run",), ("resume", "{}", "and?")):
            name = _last(room) if words[0] == "resume" else ""
            with (tmp_path / "question").open() as file:
                subprocess.run(
                    room.command(server, *(word.format(name) for word in words)),
                    env=room.environment,
                    stdin=file,
                    check=True,
                    timeout=60,
                    capture_output=True,
                )
        sent = [body["messages"][-1]["content"] for body in bodies(server)]
    assert sent == ["from a file", "and?\n\nfrom a file"]


def _last(room: Room) -> str:
    log = open_log(room.store)
    try:
        return log.sessions()[-1].session
    finally:
        log.close()


def test_nothing_said_and_nothing_piped_in_is_an_error(room: Room):
    with scripted(said("never")) as server:
        done = piped(room, server, ("run",), None)
        assert (done.returncode, bodies(server)) == (1, [])
    assert b"nothing to say" in done.stderr


def test_a_pipe_that_stays_silent_is_told_of_and_can_be_left(room: Room):
    reading, writing = os.pipe()
    try:
        with running(room, (said("never"),), "run", "go", stdin=reading) as (terminal, _):
            terminal.until("reading standard input")
            terminal.process.send_signal(signal.SIGINT)
            terminal.rest()
            assert terminal.process.wait(20) == 130
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.slow
def test_a_program_without_a_person_goes_on_without_a_silent_pipe(room: Room):
    with scripted(said("Yes.")) as server:
        process = subprocess.Popen(
            room.command(server, "run", "go"),
            env=room.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == b"Yes.\n"
            assert b"going on without it" in process.stderr.read()
            process.kill()


def test_a_person_is_asked_on_the_terminal_while_stdin_is_a_pipe(room: Room, tmp_path: Path):
    (tmp_path / "log").write_text("a line of a log")
    with (tmp_path / "log").open() as file:
        streams = {"stdin": file.fileno()}
        with running(room, (WRITE, said("done")), "run", "go", **streams) as (terminal, server):
            terminal.until(ALLOW)
            terminal.type("y")
            terminal.rest()
            assert "a line of a log" in bodies(server)[0]["messages"][-1]["content"]
    assert (room.work / "a").read_text() == "x"


# ── --embedded ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "text", "model"),
    [
        (("run", "--embedded", "what is this?"), "what is this?", None),
        (("run", "--embedded", "hello"), "hello", None),
        (("run", "what?", "--embedded"), "what?", None),
        (("run", "--embedded", "--quiet", "what?"), "what?", None),
        (("run", "--embedded", "qwen2.5-coder-0.5b", "what?"), "what?", "qwen2.5-coder-0.5b"),
        (("run", "--embedded=qwen2.5-coder-0.5b", "what?"), "what?", "qwen2.5-coder-0.5b"),
        (("run", "--embedded", "my/own.gguf", "what?"), "what?", "my/own.gguf"),
        (("run", "--embed", "what is this?"), "what is this?", None),
        (("run", "--embedded", "--", "--what"), "--what", None),
        (("run", "--", "--embedded"), "--embedded", ""),
        (("resume", "--embedded", "abc", "go on"), "go on", None),
        (("chat", "--embedded", "say hello"), "say hello", None),
        (("chat", "--embedded"), None, None),
        (("chat", "--embedded", "smollm2-135m"), None, "smollm2-135m"),
    ],
)
def test_embedded_never_takes_what_is_said_for_a_model(
    words: tuple[str, ...], text: str | None, model: str | None, capsys: Any
):
    given = parser(words[0]).parse_args(endpoint.settle_embedded(words))
    capsys.readouterr()
    assert given.text == text
    assert given.embedded == (endpoint.EMBEDDED if model is None else model or None)


def test_a_word_that_could_be_meant_as_a_model_is_told(room: Room, capsys: Any):
    words = ["run", "--embedded", "smolm2-135m", "hi", "--store", room.store]
    with pytest.raises(SystemExit):
        main(words)
    told = capsys.readouterr().err
    assert "'smolm2-135m'" in told
    assert "smollm2-135m" in told
    assert main(["run", "hi", "--embedded=smolm2-135m", "--store", room.store]) == 1
    assert "smolm2-135m" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the server is Linux only")
def test_a_text_behind_embedded_reaches_the_model_on_its_own_server(room: Room, tiny_model: Path):
    where = ["--store", room.store, "--workspace", str(room.work), "--no-tools"]
    words = ["run", "--embedded", str(tiny_model), "hello", "--max-tokens", "8", "--window", "2048"]
    with Terminal([ULLAGE, *words, *where], room.environment) as terminal:
        assert "hello" in terminal.rest(120).partition("llama.cpp")[2]
        assert terminal.process.wait(20) == 0
    assert room.events("user_message")[0]["text"] == "hello"

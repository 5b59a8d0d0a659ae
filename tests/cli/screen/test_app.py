"""The screen in one process: keys from a pipe, rows into a text, over scripted models."""

from __future__ import annotations

import argparse
import asyncio
import io
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from tests.agent.acting import agent, bodies, called, chunk, said, scripted, usage
from tests.support.faults import Answer, FaultServer, sse
from ullage.agent import Session
from ullage.cli.screen import app
from ullage.cli.screen.app import Screen
from ullage.storage import open_log
from ullage.storage.log import EventLog

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EDIT = {"path": "ledger.py", "old": "sum", "new": "len"}
Steps = Callable[["Played"], Awaitable[None]]


class Played:
    """A screen that is played on: keys go in, what it writes is kept."""

    def __init__(self, screen: Screen, keys: PipeInput, paper: io.StringIO) -> None:
        self.screen, self._keys, self._paper = screen, keys, paper
        self.rows, self.columns = 24, 80

    @property
    def shown(self) -> str:
        return ESCAPES.sub("", self._paper.getvalue())

    def press(self, text: str) -> None:
        self._keys.send_text(text)

    async def until(self, text: str) -> None:
        await self.wait(lambda: text in self.shown)

    async def wait(self, check: Callable[[], object]) -> None:
        for _ in range(400):
            if check():
                return
            await asyncio.sleep(0.025)
        raise AssertionError(f"it never came to that:\n{self.shown[-3000:]}")

    async def idle(self) -> None:
        await self.wait(lambda: not self.screen.is_working and not self.screen.queued)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    made = open_log(f"sqlite:{tmp_path}/state/s.db")
    yield made
    made.close()


@pytest.fixture
def play(
    tmp_path: Path, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Played]]:
    """Return what plays steps on a screen and gives its exit code."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "ledger.py").write_text("def count(casks):\n    return sum(casks)\n")
    monkeypatch.setattr(app, "find_history", lambda: tmp_path / "history")

    def run(server: FaultServer, steps: Steps, **more: Any) -> tuple[int, Played]:
        given = argparse.Namespace(
            plan=False, permission="auto", dry_run=False, shell=False, max_iterations=None
        )
        vars(given).update(context=None, tools=None, text=None, workspace=str(work))
        vars(given).update(more)
        held: list[Played] = []

        async def act() -> int:
            with lend_terminal(monkeypatch, held) as (keys, paper):
                session = Session.create(log, "first")
                screen = Screen(agent(server, work), session, given)
                played = Played(screen, keys, paper)
                held.append(played)
                running = asyncio.ensure_future(screen.run())
                try:
                    await played.wait(lambda: screen.app.is_running)
                    await steps(played)
                    return await asyncio.wait_for(running, 20)
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    screen.talk.session.close()

        return asyncio.run(act()), held[0]

    return run


@contextmanager
def lend_terminal(
    monkeypatch: pytest.MonkeyPatch, held: list[Played]
) -> Iterator[tuple[PipeInput, io.StringIO]]:
    paper = io.StringIO()

    def measure() -> Size:
        return Size(held[0].rows, held[0].columns) if held else Size(24, 80)

    output = Vt100_Output(paper, measure, term="xterm")
    output.enable_cpr = False
    with create_pipe_input() as keys:
        monkeypatch.setattr(app, "make_output", lambda: output)
        monkeypatch.setattr(app, "create_input", lambda _: keys)
        yield keys, paper


def slow() -> Answer:
    words = [chunk({"content": f"word{n} "}) for n in range(60)]
    return sse(*words, usage(400), "[DONE]", pause_s=0.1)


def test_a_talk_with_keys(play: Any):
    async def steps(it: Played) -> None:
        it.press("mend it\r")
        await it.until("Done.")
        await it.idle()
        it.press("/diff\r")
        await it.wait(lambda: it.shown.count("+    return len(casks)") >= 2)
        it.press("/context\r")
        await it.until("largest messages")
        it.press("\x0f\x0f\x0f/unfold #1\r/unfold 9\r/unfold x\r")
        await it.until("takes the number of a line such as #3, not 'x'")
        it.press("/help\r")
        await it.until("@FILE")
        it.press("one \\\rtwo\x1b\rthree\r")
        await it.until("Second.")
        await it.idle()
        it.press("\x04")

    with scripted(called(("edit", EDIT)), said("Done."), said("Second.")) as server:
        code, it = play(server, steps)
        assert bodies(server)[-1]["messages"][-1]["content"] == "one \ntwo\nthree"
    assert code == 0
    assert "● #1 edit ledger.py" in it.shown
    assert it.shown.count("path: ledger.py") >= 2
    assert "there are 1 to 1 to unfold, no 9" in it.shown


@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_an_interrupt_brings_back_what_was_queued(play: Any, log: EventLog, key: str):
    async def steps(it: Played) -> None:
        it.press("go\r")
        await it.until("word3")
        it.press("a\rb\rc\rd\r")
        await it.until("and 1 more")
        it.press(key)
        await it.until("interrupted; the part that had come is kept")
        await it.wait(lambda: it.screen.buffer.text == "a\nb\nc\nd")
        await it.idle()
        it.press("\x03")
        await it.wait(lambda: it.screen.buffer.text == "")
        it.press("\x03")
        await it.until("another Ctrl-C as well")
        it.press("\x03")

    with scripted(slow()) as server:
        code, _ = play(server, steps)
    assert code == 130
    assert [e.type for e in log.read("first")].count("turn_interrupted") == 1


def test_leaving_amid_an_answer_interrupts_it_with_a_record(play: Any, log: EventLog):
    async def steps(it: Played) -> None:
        await it.until("word3")
        it.press("/quit\r")

    with scripted(slow()) as server:
        code, it = play(server, steps, text="go")
    assert code == 0
    assert "interrupted; the part that had come is kept" in it.shown
    assert [e.type for e in log.read("first")].count("turn_interrupted") == 1


def test_a_question_is_answered_in_the_line(play: Any, log: EventLog, tmp_path: Path):
    async def steps(it: Played) -> None:
        it.press("mend it\r")
        it.press("half a mess")
        await it.until("Allow? [y/a/N]")
        it.press("\x1b[200~y\nsecond line\x1b[201~\r")
        await it.until("Done.")
        await it.wait(lambda: it.screen.buffer.text == "half a mess")
        await it.idle()
        it.press("\x03\x04")

    with scripted(called(("edit", EDIT)), said("Done.")) as server:
        assert play(server, steps, permission="ask")[0] == 0
    (decision,) = [e.data for e in log.read("first") if e.type == "permission_decision"]
    assert decision["decision"] == "allow"


def test_a_paste_is_a_label_that_goes_whole(play: Any):
    async def steps(it: Played) -> None:
        it.press("see \x1b[200~a\nb\nc\x1b[201~")
        await it.wait(lambda: it.screen.buffer.text == "see [pasted 3 lines]")
        it.press("\x7f")
        await it.wait(lambda: it.screen.buffer.text == "see ")
        it.press("\x1b[200~a\nb\x1b[201~\r")
        await it.until("I see.")
        await it.idle()
        it.press("\x04")

    with scripted(said("I see.")) as server:
        assert play(server, steps)[0] == 0
        sent = bodies(server)[0]["messages"][-1]["content"]
    assert sent == 'see [pasted 2 lines]\n\n<pasted name="[pasted 2 lines]">\na\nb\n</pasted>'


def test_another_width_draws_it_anew(play: Any):
    async def steps(it: Played) -> None:
        it.press("go\r")
        await it.until("word9")
        it.columns = 30
        it.screen.resize()
        it.screen.resize()
        await it.until("\r\nword30")
        it.press("\x0c\x03")
        await it.until("interrupted")
        await it.idle()
        it.press("\x04")

    with scripted(slow()) as server:
        assert play(server, steps)[0] == 0


def test_completions_are_taken_by_enter(play: Any):
    async def steps(it: Played) -> None:
        it.press("/sess")
        await it.until("List the last sessions")
        it.press("\t\r")
        await it.wait(lambda: it.screen.buffer.text.startswith("/sessions"))
        it.press(" ")
        await it.until("begun 20")
        it.press("\x03\x04")

    with scripted(said("unused")) as server:
        assert play(server, steps)[0] == 0
        assert bodies(server) == []


def test_an_editor_writes_the_line_and_what_comes_meanwhile_waits(
    play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsleep 0.3; printf 'written' > \"$1\"\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))

    async def steps(it: Played) -> None:
        it.press("/edit\r")
        await it.wait(lambda: it.screen.away)
        it.screen.edit()
        it.screen.draw_anew()
        await it.wait(lambda: it.screen.buffer.text == "written")
        it.press("\x18\x05")
        await it.wait(lambda: it.screen.away)
        await it.wait(lambda: not it.screen.away)
        it.press("\x03\x04")

    with scripted(said("unused")) as server:
        assert play(server, steps)[0] == 0


def test_a_fault_of_ours_ends_the_screen_and_is_raised(play: Any, monkeypatch: pytest.MonkeyPatch):
    async def fail(self: Any, line: str) -> None:
        raise ZeroDivisionError(line)

    monkeypatch.setattr("ullage.cli.talk.Talk.take", fail)

    async def steps(it: Played) -> None:
        it.press("go\r")

    with scripted(said("unused")) as server, pytest.raises(ZeroDivisionError, match="go"):
        play(server, steps)


def test_a_history_that_cannot_be_kept_is_told_once(play: Any, tmp_path: Path):
    (tmp_path / "history").mkdir()

    async def steps(it: Played) -> None:
        it.press("/cost\r/cost\r")
        await it.until("no history is kept")
        await it.idle()
        it.press("\x04")

    with scripted(said("unused")) as server:
        _, it = play(server, steps)
    assert it.shown.count("no history is kept") == 1


def test_a_session_that_goes_on_shows_what_was_said_last(play: Any, log: EventLog):
    async def steps(it: Played) -> None:
        it.press("hello\r")
        await it.until("The casks are red.")
        await it.idle()
        it.press("/clear\r/sessions first\r")
        past = re.compile(r"first goes on.*build> hello\s+The casks are red\.", re.DOTALL)
        await it.wait(lambda: past.search(it.shown))
        await it.idle()
        it.press("x\x04\x03\x04")

    with scripted(said("The casks are red.")) as server:
        assert play(server, steps)[0] == 0

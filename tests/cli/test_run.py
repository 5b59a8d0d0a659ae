"""`ullage run`, `resume` and `chat` over scripted models: output, exit codes, what is recorded."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import bodies, called, chunk, said, scripted
from tests.support.faults import FaultServer, closed_port, hanging, of_json, sse
from ullage.agent import Agent, Session
from ullage.cli import activity, asking, run
from ullage.cli.main import main, parser
from ullage.cli.talk import COMMANDS
from ullage.core.errors import Fenced
from ullage.core.messages.transcript import Call
from ullage.core.session.log.event import Draft
from ullage.core.session.permissions import CallSubject
from ullage.core.session.tools import Pending, Preview
from ullage.providers import Provider
from ullage.storage import open_log
from ullage.storage.log import Owner


class Desk:
    """Runs commands against one log, one workspace and one scripted model."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.store = f"sqlite:{folder}/state/s.db"

    def __call__(self, server: FaultServer, *words: str) -> int:
        where = ["--store", self.store, "--workspace", str(self.workspace), "--window", "8000"]
        return main([*words, *where, "--model", "model", "--base-url", server.base_url])

    def session(self) -> Session:
        log = open_log(self.store)
        return Session(log, log.sessions()[-1].session)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_answer_alone_is_on_stdout(desk: Desk, capsys: Any):
    script = (called(("list", {}), text="I look."), said("Seven casks."))
    with scripted(*script) as server:
        assert desk(server, "run", "What is in the cellar?") == 0
    shown = capsys.readouterr()
    assert shown.out == "Seven casks.\n"
    assert "> list" in shown.err
    assert "ctx=" in shown.err
    assert desk.session().name in shown.err


def test_quiet_says_nothing_but_the_answer(desk: Desk, capsys: Any):
    with scripted(said("Seven.")) as server:
        assert desk(server, "run", "count", "--quiet") == 0
    assert capsys.readouterr() == ("Seven.\n", "")


def test_json_is_one_document(desk: Desk, capsys: Any):
    with scripted(said("Seven.", 70)) as server:
        assert desk(server, "run", "count", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["text"], told["outcome"], told["usage"]["input"]) == ("Seven.", "completed", 70)


def test_what_to_say_comes_from_stdin(desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    with scripted(said("Yes.")) as server:
        assert desk(server, "run", "-") == 0
        assert bodies(server)[0]["messages"][-1]["content"] == "from a pipe"
    capsys.readouterr()


def test_nothing_to_say_is_an_error(desk: Desk, capsys: Any):
    with scripted(said("never")) as server:
        assert desk(server, "run", "  ") == 1
    assert "nothing to say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "words", "code"),
    [
        ((called(("write", {"path": "a", "content": "x"})),), ("--plan",), 3),
        ((called(("write", {"path": "a", "content": "x"})),), ("--permission", "ask"), 3),
        ((called(("write", {"path": "a", "content": "x"})),), ("--deny-writes", "**"), 3),
        ((called(("list", {})),), ("--max-iterations", "1"), 6),
        ((said(""),), (), 6),
        ((of_json({"error": {"message": "no such model"}}, 404),), (), 1),
        ((hanging(),), ("--timeout", "0.5"), 124),
    ],
)
def test_the_exit_code_says_how_the_turn_ended(
    desk: Desk, capsys: Any, script: Any, words: tuple[str, ...], code: int
):
    with scripted(*script) as server:
        assert desk(server, "run", "go", *words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "ullage resume" in shown.err
    assert not (desk.workspace / "a").exists()


def test_a_session_that_another_writes_is_busy(desk: Desk, capsys: Any):
    with scripted(said("a"), said("b")) as server:
        desk(server, "run", "one")
        session = desk.session()
        other = Owner("elsewhere", 1, "", "")
        held = session.log.acquire(session.name, other, time.time())
        assert desk(server, "run", "two", "--session", session.name) == 5
        session.log.release(session.name, held.epoch, 4e9)
        assert desk(server, "run", "two", "--session", session.name[:6]) == 0
    assert "being written" in capsys.readouterr().err


def test_resume_goes_on_with_what_was_cut_off_and_else_says_so(desk: Desk, capsys: Any):
    with scripted(said("a"), said("b"), said("c")) as server:
        desk(server, "run", "one")
        session = desk.session()
        assert desk(server, "resume", session.name) == 1
        assert "no turn that was cut off" in capsys.readouterr().err
        with session:
            session.record([Draft("user_message", {"text": "two"})])
            session.record([Draft("turn_started", {"turn": "t"})])
        assert desk(server, "resume", session.name) == 0
        assert capsys.readouterr().out == "b\n"
        assert desk(server, "resume", session.name, "three") == 0
        assert desk(server, "resume", "nobody") == 2
    capsys.readouterr()


def test_skills_of_a_folder_are_read_and_faults_told(desk: Desk, tmp_path: Path, capsys: Any):
    skill = tmp_path / "skills" / "cellar"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: cellar\ndescription: counting\n---\nCount twice.\n")
    (tmp_path / "skills" / "bad").mkdir()
    (tmp_path / "skills" / "bad" / "SKILL.md").write_text("nothing")
    with scripted(said("a")) as server:
        assert desk(server, "run", "use $cellar", "--skills", str(tmp_path / "skills")) == 0
        assert "Count twice." in json.dumps(bodies(server)[0])
    shown = capsys.readouterr()
    assert "skill cellar" in shown.err
    assert "left out" in shown.err


def test_what_is_said_to_a_server_that_is_away_is_recorded_and_can_be_resumed(
    desk: Desk, capsys: Any
) -> None:
    with scripted(said("a")) as server:
        assert desk(server, "run", "one") == 0
    name = desk.session().name
    with closed_port() as port:
        where = ("--session", name, "--base-url", f"http://127.0.0.1:{port}/v1")
        words = ("--store", desk.store, "--workspace", str(desk.workspace), *where)
        assert main(["run", "two", *words]) == 1
    shown = capsys.readouterr().err
    assert "cannot be reached" in shown
    assert f"ullage resume {name}" in shown
    told = [e.data["text"] for e in desk.session().events() if e.type == "user_message"]
    assert told == ["one", "two"]


# ── which model ─────────────────────────────────────────────────────────────────────────────────


def bare(desk: Desk, *words: str) -> int:
    return main(["run", "hi", "--store", desk.store, "--workspace", str(desk.workspace), *words])


def test_without_a_model_the_ways_are_named(desk: Desk, capsys: Any):
    assert bare(desk) == 1
    assert "--embedded" in capsys.readouterr().err
    assert bare(desk, "--base-url", "http://127.0.0.1:1/v1", "--embedded") == 1
    assert bare(desk, "--base-url", "http://127.0.0.1:1/v1") == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert bare(desk, "--embedded", "none.gguf") == 1
    assert bare(desk, "--workspace", "/nowhere/at/all", "--base-url", "x", "--model", "m") == 1


@pytest.mark.parametrize(("listed", "code"), [(["one"], 0), (["one", "two"], 1), ([], 1)])
def test_the_only_model_that_is_served_is_taken(
    desk: Desk, capsys: Any, listed: list[str], code: int
):
    rows = of_json({"data": [{"id": name} for name in listed]})
    with FaultServer({"GET /v1/models": rows, "POST /v1/chat/completions": said("a")}) as server:
        assert bare(desk, "--base-url", server.base_url, "--window", "8000") == code
        if code == 0:
            assert bodies(server)[0]["model"] == "one"
    capsys.readouterr()


def test_a_key_goes_only_to_the_server_it_is_for(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sentinel-one")
    monkeypatch.setenv("MINE", "sk-sentinel-two")
    with scripted(said("a"), said("b")) as server:
        assert desk(server, "run", "hi", "--temperature", "0.5", "--max-tokens", "9") == 0
        assert desk(server, "run", "hi", "--api-key-env", "MINE", "--policy", "off") == 0
        assert desk(server, "run", "hi", "--api-key-env", "NOT_SET") == 1
        sent = [r.headers.get("authorization") for r in server.requests if "chat" in r.path]
        assert sent == [None, "Bearer sk-sentinel-two"]
        assert (bodies(server)[0]["temperature"], bodies(server)[0]["max_tokens"]) == (0.5, 9)
    assert "NOT_SET" in capsys.readouterr().err


# ── chat ────────────────────────────────────────────────────────────────────────────────────────


def talk(
    desk: Desk, server: FaultServer, lines: str, monkeypatch: pytest.MonkeyPatch, *words: str
) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return desk(server, "chat", *words)


def test_instructions_of_the_project_are_named_and_can_be_left_out(desk: Desk, capsys: Any):
    (desk.workspace / "AGENTS.md").write_text("Use tabs.")
    with scripted(said("one"), said("two"), said("three")) as server:
        assert desk(server, "run", "hi") == 0
        assert desk(server, "run", "hi", "--no-instructions") == 0
        err = capsys.readouterr().err
        assert desk(server, "run", "hi", "--quiet") == 0
        prompts = [json.dumps(body["messages"][0]) for body in bodies(server)]
    assert err.count(f"instructions: {desk.workspace}/AGENTS.md (9 characters)") == 1
    assert ["Use tabs." in prompt for prompt in prompts] == [True, False, True]
    assert "instructions" not in capsys.readouterr().err


def test_a_talk_streams_answers_and_takes_commands(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    long = "Hello\x1b[2J." + " Go on." * 200  # so much that a compaction is worth it
    script = (called(("plan", {"steps": [{"text": "look"}]})), said(long), said("Again."))
    lines = (
        "hi\n/help\n/context\n/window\n/compact x\n/nonsense\n\n/plan\nagain\\\nand again\n/build\n"
        "/compact 0.5\n/uncompact\n/model\n/model other\n/model third http://127.0.0.1:1/v1\n"
        "/summary\n/quit\n"
    )
    with scripted(*script) as server:
        assert talk(desk, server, lines, monkeypatch) == 0
        assert bodies(server)[-1]["messages"][-1]["content"] == "again\nand again"
        assert "write" not in json.dumps(bodies(server)[-1]["tools"])
    shown = capsys.readouterr()
    assert shown.out == f"{long}\nAgain.\n"
    for text in ("/summary", "system prompt", "8,000 tokens", "taken back", "there is no /nons"):
        assert text in shown.err
    assert "[to do] look" in shown.err
    assert "the model is model" in shown.err
    assert "goes on from" in shown.err


def test_a_talk_ends_with_its_input_and_goes_on_in_the_last_session(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    with scripted(said("one"), said("two"), said("three")) as server:
        assert talk(desk, server, "hi\n", monkeypatch) == 0
        with desk.session() as session:
            session.record([Draft("user_message", {"text": "cut"})])
            session.record([Draft("turn_started", {"turn": "t"})])
        assert talk(desk, server, "more\n", monkeypatch, "--session", "-", "--plan") == 0
        assert len(desk.session().log.sessions()) == 1
    shown = capsys.readouterr()
    assert shown.out == "one\ntwo\nthree\n"
    assert "cut off: going on" in shown.err


def test_a_turn_that_fails_is_told_and_the_talk_goes_on(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    error = of_json({"error": {"message": "no such model"}}, 404)
    with scripted(error, said("Here.")) as server:
        assert talk(desk, server, "hi\nhi\n", monkeypatch) == 0
    shown = capsys.readouterr()
    assert "no such model" in shown.err
    assert shown.out == "Here.\n"


def test_an_answer_that_met_its_limit_and_a_new_session_are_told(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    cut = FaultServer(
        {
            "POST /v1/chat/completions": of_json(
                {
                    "object": "chat.completion",
                    "choices": [
                        {"message": {"content": "Long"}, "finish_reason": "length", "index": 0}
                    ],
                    "usage": {"prompt_tokens": 40, "completion_tokens": 5},
                }
            )
        }
    )
    with cut as server:
        assert talk(desk, server, "hi\n", monkeypatch) == 0
    assert "--max-tokens" in capsys.readouterr().err


# ── parts ───────────────────────────────────────────────────────────────────────────────────────


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    call = Pending.over(
        Call("a", "write", "{}"),
        Preview("arguments", "{}"),
        CallSubject("write", "arguments", "{}"),
    )
    assert asyncio.run(asking.ask(call, "a change is made")) is None


@pytest.mark.skipif(not hasattr(os, "forkpty"), reason="a terminal of POSIX")
def test_a_terminal_that_goes_away_interrupts_a_turn_with_a_record(desk: Desk):
    slow = sse(*(chunk({"content": f"{n} "}) for n in range(200)), "[DONE]", pause_s=0.05)
    with scripted(slow) as server:
        words = ["run", "count", "--store", desk.store, "--window", "8000", "--model", "model"]
        command = [sys.executable, "-m", "ullage", *words, "--base-url", server.base_url]
        pid, terminal = os.forkpty()
        if not pid:  # pragma: no cover - another process
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs the suite may have ignored it
            os.chdir(desk.workspace)
            os.execv(command[0], command)
        shown = b""
        while b"3 4 5" not in shown:
            shown += os.read(terminal, 4096)
        os.close(terminal)
        os.waitpid(pid, 0)
    session = desk.session()
    kinds = [event.type for event in session.events()]
    assert kinds[-2:] == ["assistant_message", "turn_interrupted"]
    assert "3 4 5" in session.events()[-2].data["text"]
    session.log.close()


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        async def work() -> str:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
            return "whole"

        assert activity.run_work(work()) == "whole"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_who_takes_over_writes_and_the_other_is_told(desk: Desk, capsys: Any):
    with scripted(said("a"), said("b")) as server:
        desk(server, "run", "one")
        session = desk.session()
        other = Owner("elsewhere", 1, "", "")
        held = session.log.acquire(session.name, other, time.time())
        assert desk(server, "run", "two", "--session", session.name, "--take-over") == 0
        assert "taken over: the writer before, elsewhere (pid 1)" in capsys.readouterr().err
        with pytest.raises(Fenced):
            session.log.heartbeat(session.name, held.epoch, time.time())
        session.log.close()


def test_sigterm_interrupts_a_turn_with_a_record(desk: Desk, capsys: Any):
    def end(event: Any) -> None:
        if event.type == "text_delta":
            os.kill(os.getpid(), signal.SIGTERM)

    slow = sse(chunk({"content": "Sev"}), chunk({"content": "en"}), "[DONE]", pause_s=0.3)
    with scripted(slow) as server, Session.create(open_log(desk.store), "s") as session:
        session.hear(end)
        agent = Agent(Provider("model", server.base_url), window=8_000)
        with pytest.raises(KeyboardInterrupt):
            activity.run_work(agent.arun(session, "hi"))
        assert session.events()[-1].type == "turn_interrupted"
    session.log.close()
    capsys.readouterr()


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_was_closed_is_done_without(
    desk: Desk, capsys: Any, closed: str, monkeypatch: pytest.MonkeyPatch
):
    write = called(("write", {"path": "a", "content": "x"}))
    monkeypatch.setattr(sys, closed, None)
    with scripted(said("Seven."), write) as server:
        assert desk(server, "run", "count") == 0
        assert desk(server, "run", "write", "--permission", "ask") == 3
        assert desk(server, "run", "-" if closed == "stdin" else "") == 1
    shown = capsys.readouterr()
    assert shown.out == ("" if closed == "stdout" else "Seven.\n")
    assert bool(shown.err) is (closed != "stderr")


def test_a_second_interrupt_shows_no_traceback(capsys: Any, caplog: Any):
    ended: list[str] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        except asyncio.CancelledError:
            loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 30)
            except asyncio.CancelledError:
                ended.append("with a record")
                raise

    with pytest.raises(KeyboardInterrupt):
        activity.run_work(work())
    assert ended == ["with a record"]
    assert (capsys.readouterr(), caplog.text) == (("", ""), "")


@pytest.mark.parametrize("text", ["hi", None])
def test_an_interrupted_turn_says_where_to_go_on_and_what_had_come(
    desk: Desk, capsys: Any, text: str | None
):
    def end(event: Any) -> None:
        if event.type == "text_delta":
            os.kill(os.getpid(), signal.SIGTERM)

    slow = sse(chunk({"content": "Sev"}), chunk({"content": "en"}), "[DONE]", pause_s=0.3)
    look = called(("plan", {"steps": []}), prompt=70)
    given = parser("run").parse_args(["run", "hi", "--json"])
    with scripted(look, slow) as server, Session.create(open_log(desk.store), "s") as session:
        session.record([Draft("user_message", {"text": "look"})])
        session.record([Draft("turn_started", {"turn": "t"})])
        session.hear(end)
        agent = Agent(Provider("model", server.base_url), window=8_000)
        assert run.one(agent, session, text, given) == 130
        last = session.events()[-1]
    session.log.close()
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["outcome"], told["text"], told["rounds"]) == ("interrupted", "Sev", 1)
    assert told["usage"]["input"] == 70
    assert (last.type, last.data["turn"]) == ("turn_interrupted", told["turn"])
    assert "go on with: ullage resume s TEXT" in shown.err


def test_an_answer_that_met_its_limit_is_told_apart_from_a_whole_one(desk: Desk, capsys: Any):
    with scripted(sse(chunk({"content": "Sev"}, finish="length"), "[DONE]")) as server:
        assert desk(server, "run", "count", "--quiet") == 0
    shown = capsys.readouterr()
    assert shown.out == "Sev\n"
    assert "cut off at its limit" in shown.err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_an_answer_that_stdout_cannot_carry_is_written_as_escapes(
    desk: Desk, encoding: str, monkeypatch: pytest.MonkeyPatch
):
    answer = sse(chunk({"content": "half \ud83d, caf\u00e9"}, finish="stop"), "[DONE]")
    with scripted(answer, answer, answer) as server:
        for words in (("run", "x"), ("run", "x", "--json"), ("chat",)):
            held = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
            monkeypatch.setattr(sys, "stdout", held)
            monkeypatch.setattr(sys, "stdin", io.StringIO("x\n"))
            assert desk(server, *words) == 0
            held.seek(0)
            text = held.read()
            assert "half \\ud83d, caf" in text
            if "--json" in words:
                assert json.loads(text)["text"] == "half \ud83d, caf\u00e9"


def test_an_answer_cannot_steer_the_terminal_and_a_pipe_has_it_as_it_came(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    with scripted(said("a\x1b[2J\tb\n"), said("a\x1b[2J\tb\n")) as server:
        assert desk(server, "run", "x") == 0
        assert capsys.readouterr().out == "a\x1b[2J\tb\n\n"
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert desk(server, "run", "x") == 0
        assert capsys.readouterr().out == "a\\x1b[2J\tb\n"


@pytest.mark.parametrize(
    ("words", "said_of_it"),
    [
        (("--base-url", "http://[::1/v1"), "http://[::1/v1"),
        (("--max-tokens", "0"), "--max-tokens is 1 or more, not 0"),
        (("--temperature", "nan"), "--temperature is a number such as 0.7, not nan"),
        (("--skills", "nowhere"), "--skills nowhere is no folder"),
    ],
)
def test_what_cannot_be_is_refused_before_a_session_begins(
    desk: Desk, capsys: Any, words: tuple[str, ...], said_of_it: str
):
    where = ("--store", desk.store, "--model", "m", "--base-url", "http://127.0.0.1:1/v1")
    assert main(["run", "x", *where, *words]) == 1
    assert said_of_it in capsys.readouterr().err
    assert open_log(desk.store).sessions() == []


def test_commands_of_the_chat_say_what_they_do():
    assert all(said.endswith((".", "].")) for _, said in COMMANDS.values())

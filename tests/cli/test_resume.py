"""`ullage resume` as it is printed: with the server, dialect and folder that the session had."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.agent.acting import CHAT, bodies, said
from tests.support.faults import Answer, FaultServer, of_json
from ullage.cli.main import main
from ullage.storage import open_log

Capture = pytest.CaptureFixture[str]

BROKEN: Final = of_json({"error": {"message": "the disk of the server is full"}}, 400)
KEY: Final = "sk-sentinel-of-resume"
CLAUDE: Final = of_json(
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [{"type": "text", "text": "Seven."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 50, "output_tokens": 5},
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder of its own, where nothing is configured."""
    monkeypatch.chdir(tmp_path)
    for name in ("ULLAGE_BASE_URL", "ULLAGE_STORE", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    return tmp_path


def begin(server: FaultServer, *words: str, text: str = "Count the casks.") -> int:
    """Run a first turn in `work`, with all that it needs said."""
    where = ["--store", "sqlite:state/s.db", "--workspace", "work", "--base-url", server.base_url]
    return main(["run", text, *where, "--model", "model", "--window", "8000", *words])


def hints(shown: str) -> list[list[str]]:
    """Return the commands that a failed turn names, as words behind `ullage`."""
    return [found.split() for found in re.findall(r"(?:again|with): ullage (.*)", shown)]


def again(words: list[str], *more: str) -> int:
    """Run a command that was printed, in the same log."""
    said_instead = ["Something else." if word == "TEXT" else word for word in words]
    log = [] if "--store" in words else ["--store", "sqlite:state/s.db"]
    return main([*said_instead, *log, *more])


def last_said(server: FaultServer) -> list[str]:
    """Return what a person said in the last request, in order."""
    sent = bodies(server)[-1]["messages"]
    return [message["content"] for message in sent if message["role"] == "user"]


def test_both_hints_of_a_failed_turn_work_as_they_are_printed(folder: Path, capsys: Capture):
    answers = (BROKEN, said("Seven."), BROKEN, said("Else."))
    with FaultServer({CHAT: answers}) as server:
        assert begin(server) == 1
        retry, other = hints(capsys.readouterr().err)
        assert again(retry) == 0
        assert capsys.readouterr().out == "Seven.\n"
        assert last_said(server) == ["Count the casks."]
        assert again([*retry[:2], "And the barrels?"]) == 1
        assert again(other) == 0
        assert last_said(server) == ["Count the casks.", "Something else."]
        assert {body["model"] for body in bodies(server)} == {"model"}
    assert capsys.readouterr().out == "Else.\n"


def test_a_session_goes_on_in_its_dialect_and_folder_without_a_word_about_either(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    with FaultServer({"POST /v1/messages": CLAUDE}) as server:
        assert begin(server, "--dialect", "anthropic") == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        assert main(["resume", name, "More.", "--store", f"sqlite:{folder}/state/s.db"]) == 0
        sent = json.loads(server.requests[-1].body)
        assert server.requests[-1].path.endswith("/v1/messages")
    assert str(folder / "work") in json.dumps(sent["system"])
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]
    capsys.readouterr()


def test_what_is_said_on_the_command_line_wins(folder: Path, capsys: Capture):
    listed = of_json({"data": [{"id": "other"}, {"id": "model"}]})
    replies: dict[str, Answer] = {CHAT: said("Seven."), "GET /v1/models": listed}
    with FaultServer(replies) as first, FaultServer(replies) as second:
        assert begin(first) == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        assert again(["resume", name, "more"], "--model", "other") == 0
        assert bodies(first)[-1]["model"] == "other"
        (folder / "work2").mkdir()
        moved = ["--base-url", second.base_url, "--workspace", "work2", "--no-tools"]
        assert again(["resume", name, "more"], *moved) == 0
        assert bodies(second)[-1]["model"] == "other"  # it was the last one, and is served there
        assert "tools" not in bodies(second)[-1]
        assert str(folder / "work2") in bodies(second)[-1]["messages"][0]["content"]
        assert again(["resume", name, "more"]) == 0  # and is the session's from then on
        assert len(bodies(second)) == 2
        assert "tools" not in bodies(second)[-1]
        assert again(["resume", name, "more"], "--tools") == 0
        assert "tools" in bodies(second)[-1]
    capsys.readouterr()


def test_a_session_is_talked_replayed_and_compacted_with_its_own_server(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    with FaultServer({CHAT: (said("Seven."), said("Again."))}) as server:
        assert begin(server) == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        assert main(["chat", "--session", "-", "--store", "sqlite:state/s.db"]) == 0
        assert main(["run", "more", "--session", name, "--store", "sqlite:state/s.db"]) == 0
        capsys.readouterr()
        assert main(["replay", name, "--store", "sqlite:state/s.db"]) == 0
        replayed = json.loads(capsys.readouterr().out)
        sent = bodies(server)[-1]
        assert replayed["model"] == sent["model"]
        assert replayed["messages"][:-1] == sent["messages"]
        assert replayed["tools"] == sent["tools"]
        compact = ["compact", name, "--dry-run", "--store", "sqlite:state/s.db", "--target", "90"]
        assert main(compact) in (0, 1)
    assert "tokens" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["resume", "NAME", "more"], ["run", "more", "--session", "-"]])
def test_a_key_that_is_not_there_is_asked_for_by_its_name(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: list[str]
):
    monkeypatch.setenv("CELLAR_KEY", KEY)
    with FaultServer({CHAT: (said("Seven."), said("Six."))}) as server:
        assert begin(server, "--api-key-env", "CELLAR_KEY") == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        words = [name if word in ("NAME", "-") else word for word in command]
        monkeypatch.delenv("CELLAR_KEY")
        capsys.readouterr()
        assert again(words) == 1
        error = capsys.readouterr().err
        assert "CELLAR_KEY" in error
        assert "not set" in error
        assert again(["replay", name]) == 0  # nobody is asked
        monkeypatch.setenv("CELLAR_KEY", KEY)
        assert again(words) == 0
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    files = (folder / "state").rglob("*")
    assert not any(KEY.encode() in path.read_bytes() for path in files if path.is_file())
    capsys.readouterr()


def test_credentials_of_a_url_are_not_recorded_and_are_asked_for(folder: Path, capsys: Capture):
    with FaultServer({CHAT: said("Seven.")}) as server:
        secret = server.base_url.replace("http://", "http://anna:barrel-of-wine@")
        where = ["--store", "sqlite:state/s.db", "--model", "model", "--window", "8000"]
        assert main(["run", "hi", *where, "--base-url", secret]) == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        capsys.readouterr()
        assert again(["resume", name, "more"]) == 1
        assert "--base-url" in capsys.readouterr().err
    files = (folder / "state").rglob("*")
    assert not any(b"barrel-of-wine" in path.read_bytes() for path in files if path.is_file())
    assert not any(b"anna" in path.read_bytes() for path in files if path.is_file())


def test_a_folder_that_is_gone_is_told(folder: Path, capsys: Capture):
    with FaultServer({CHAT: said("Seven.")}) as server:
        assert begin(server) == 0
        name = open_log("sqlite:state/s.db").sessions()[-1].session
        (folder / "work").rmdir()
        assert again(["resume", name, "more"]) == 1
    assert "give --workspace DIR" in capsys.readouterr().err


def test_an_embedded_model_is_started_again_by_the_hint(
    folder: Path, tiny_model: Path, capsys: Capture
):
    pytest.importorskip("xllamacpp")
    embedded = ["--embedded", str(tiny_model), "--window", "1024", "--max-tokens", "4"]
    where = ["--store", "sqlite:state/s.db", "--no-tools"]
    assert main(["run", "word " * 1500, *embedded, *where, "--policy", "off"]) == 1
    retry, other = hints(capsys.readouterr().err)
    assert again(other, "--max-tokens", "4") in (0, 6)
    shown = capsys.readouterr().err
    assert "on llama.cpp, a window of 1,024 tokens" in shown
    assert "word word" not in shown
    assert again(retry, "--max-tokens", "4") == 1  # nothing is left that failed
    assert "no turn that was cut off or failed" in capsys.readouterr().err


def test_the_hint_works_in_a_process_of_its_own(folder: Path, capsys: Capture):
    with FaultServer({CHAT: (BROKEN, said("Seven."))}) as server:
        assert begin(server) == 1
        retry, _ = hints(capsys.readouterr().err)
        command = [sys.executable, "-m", "ullage", *retry]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "Seven.\n")

"""`ullage replay` and `compact` of a session: what would be sent, what is recorded, bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent import acting
from tests.cli import recorded as made
from tests.support.faults import FaultServer, of_json
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.compaction import laws
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.embedded import Server
from ullage.storage import open_log

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]

HEAD = 125
"""The last event of the session `casks`."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a log with one session, `casks`, of 40 calls with long results."""
    return made.recorded(tmp_path, "casks", made.long(40))


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    """Return what runs a command on that log, in a workspace of its own."""
    (tmp_path / "work").mkdir()
    where = ("--store", url, "--workspace", str(tmp_path / "work"))
    return lambda *arguments: main([*arguments, *where])


# ── replay ──────────────────────────────────────────────────────────────────────────────────────


def test_the_request_of_every_moment_is_what_was_sent_then(tmp_path: Path, capsys: Capture):
    (tmp_path / "log").mkdir()
    (tmp_path / "cellar.txt").write_text("seven casks\n")
    script = (acting.called(("read", {"path": "cellar.txt"}), text="I look."), acting.said("7."))
    with acting.scripted(*script) as server:
        where = ["--store", made.url(tmp_path), "--base-url", server.base_url, "--model", "m"]
        options = [*where, "--workspace", str(tmp_path), "--window", "30000", "--max-tokens", "50"]
        assert main(["run", "What is there?", *options]) == 0
        sent = acting.bodies(server)
        capsys.readouterr()
        for at, body in (("3", sent[0]), ("7", sent[1])):
            assert main(["replay", "--at", at, *options]) == 0
            assert json.loads(capsys.readouterr().out) == body
        assert acting.bodies(server) == sent


def test_without_a_server_nobody_is_asked_and_nothing_recorded(run: Run, url, capsys: Capture):
    assert run("replay", "casks") == 0
    out, err = capsys.readouterr()
    sent = json.loads(out)
    assert sent["model"] == made.MODEL
    assert not laws.protocol(OpenAIChat().read(sent["messages"]))
    assert err.endswith("tokens at most)\n")
    assert "/272,000 tokens" in err
    assert _head(url) == HEAD


def test_a_document_has_the_gauge_beside_the_request(run: Run, capsys: Capture):
    assert run("replay", "casks", "--at", "6", "--json", "--window", "9000") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["session"], found["at"]) == ("casks", 6)
    assert found["gauge"]["window_tokens"] == 9000
    assert "9,000 tokens" in found["window"]
    assert found["request"]["messages"][-1]["role"] == "tool"
    assert _is_small(found["request"])


def test_other_dialects_have_other_requests(run: Run, capsys: Capture):
    options = ("--model", "claude-sonnet-4-5", "--dialect", "anthropic", "--plan")
    assert run("replay", "casks", *options) == 0
    sent = json.loads(capsys.readouterr().out)
    assert sent["max_tokens"] == 4096
    assert "Mode: plan" in sent["system"][0]["text"]
    assert run("replay", "casks", "--dialect", "openai_responses", "--no-tools") == 0
    sent = json.loads(capsys.readouterr().out)
    assert sent["input"][0]["role"] == "user"
    assert "tools" not in sent


def test_what_the_guard_would_do_is_told(run: Run, url: str, capsys: Capture):
    assert run("replay", "casks", "--window", "16000") == 0
    out, err = capsys.readouterr()
    assert "compacted" in err
    assert len(out) < 70_000
    assert _head(url) == HEAD


def test_a_session_of_a_real_server_is_replayed_and_compacted_against_its_window(
    run: Run, url: str, tiny_server: Server, capsys: Capture
):
    model = ("--base-url", tiny_server.base_url)
    assert run("run", "Hello.", "--no-tools", "--max-tokens", "8", *model) == 0
    answer = capsys.readouterr().out
    assert main(["show", "--store", url]) == 0
    assert " ".join(answer.split()) in " ".join(capsys.readouterr().out.split())
    assert run("replay", "--no-tools", "--json", *model) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gauge"]["window_tokens"] == 2048
    assert [m["role"] for m in found["request"]["messages"]] == ["system", "user", "assistant"]
    options = ("--ratio", "0.9", "--dry-run", "--no-tools")
    assert run("compact", found["session"], *options, *model) == 0
    shown = capsys.readouterr().out
    # counted by the server: no "at most"
    said = r"nothing changed: the conversation is already below the target of 1,843 tokens: "
    assert re.search(said + r"[\d,]+ tokens$", shown.strip())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["replay", "nobody"], 2, "there is no session 'nobody'"),
        (["replay", "casks", "--at", "900"], 1, "--at 900: session casks has events 1 to 125"),
        (["replay", "new"], 1, "no model has answered in session new yet: name one by --model"),
        (["compact", "nobody"], 2, "there is no file nobody, and there is no session 'nobody'"),
        (["compact", "new"], 1, "no model has answered"),
        (["compact", "casks", "--model", "x"], 1, "context window"),
        (["compact", "casks", "--target", "0"], 1, "a compaction goes to 1 token or more, not 0"),
        (["compact", "casks", "--from", "chat"], 1, "--from is for files, and casks is no file"),
        (["compact", "casks", "--out", "x"], 1, "--out is for files"),
    ],
)
def test_bad_input_is_said_in_one_sentence(
    run: Run, tmp_path: Path, capsys: Capture, arguments: list[str], code: int, words: str
):
    made.recorded(tmp_path, "new", [made.said("Hello.")])
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.startswith("ullage: ")


# ── compact ─────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_says_what_would_be_done_and_records_nothing(run: Run, url, capsys: Capture):
    assert run("compact", "casks", "--target", "9000", "--dry-run") == 0
    out, err = capsys.readouterr()
    assert "tokens would go to" in out
    assert "saves" in out
    assert err == ""
    assert _head(url) == HEAD


def test_a_session_is_compacted_and_its_next_request_is_small(run: Run, url, capsys: Capture):
    assert run("replay", "casks") == 0
    before = len(capsys.readouterr().out)
    assert run("compact", "casks", "--target", "9000") == 0
    assert "tokens went to" in capsys.readouterr().out
    assert _head(url) == HEAD + 2  # the checkpoint, and what is remembered of it
    assert run("replay", "casks") == 0
    sent = json.loads(after := capsys.readouterr().out)
    assert len(after) < before / 3
    assert not laws.protocol(OpenAIChat().read(sent["messages"]))
    assert run("compact", "casks", "--target", "90000") == 0
    assert "is already below the target of 90,000 tokens: " in capsys.readouterr().out


def test_a_session_goes_to_a_share_of_its_window(run: Run, capsys: Capture):
    options = ("--window", "30000", "--policy", "ladder", "--dry-run")
    assert run("compact", "casks", "--ratio", "0.5", *options) == 0
    assert "and is kept by rule" in capsys.readouterr().out
    assert run("compact", "casks", *options) == 0


def test_a_compaction_that_is_not_used_is_told(run: Run, monkeypatch, capsys: Capture):
    monkeypatch.setenv("ULLAGE_OFFLINE", "true")
    assert run("compact", "casks", "--target", "9000") == 0
    assert run("replay", "casks") == 0
    assert "not used here" not in capsys.readouterr().err
    assert run("replay", "casks", "--dialect", "openai_responses") == 0
    assert "give the --base-url and --dialect it was run with" in capsys.readouterr().err


def test_a_model_summarises_where_one_is_named(run: Run, url: str, capsys: Capture):
    message = {"role": "assistant", "content": "Casks 1 to 30 were counted, all of them full."}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    with FaultServer({acting.CHAT: of_json(answer)}) as server:
        options = ("--summarizer", server.base_url, "--policy", "auto_summary", "--target", "9000")
        assert run("compact", "casks", *options) == 0
    assert "the summarizer saw" in capsys.readouterr().out
    assert main(["show", "casks", "--store", url]) == 0
    assert f"#{HEAD + 1}  compacted: " in capsys.readouterr().out


def test_a_session_that_is_small_already_is_left_as_it_is(run: Run, capsys: Capture):
    assert run("compact", "casks", "--window", "272000") == 0
    assert "is already below the target of 163,200 tokens: " in capsys.readouterr().out


def test_a_missed_target_is_told(run: Run, capsys: Capture):
    assert run("compact", "casks", "--target", "20", "--dry-run") == 1
    assert "cannot_compact" in capsys.readouterr().out


def test_another_writer_is_left_alone(run: Run, url: str, capsys: Capture):
    log = open_log(url)
    with Session(log, "casks") as session:
        session.acquire()
        assert run("compact", "casks", "--target", "9000") == 5
        assert "session casks is being written by process" in capsys.readouterr().err
    log.close()
    assert _head(url) == HEAD


def test_what_is_for_sessions_is_refused_for_files(tmp_path: Path, capsys: Capture):
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    assert main(["compact", str(path), "--base-url", "http://127.0.0.1:1/v1"]) == 1
    assert "--base-url is for sessions, and" in capsys.readouterr().err
    summarised = ["--window", "900", "--summarizer", "http://127.0.0.1:1/v1"]
    assert main(["compact", str(path), *summarised]) == 1
    assert "name it by --summarizer-model" in capsys.readouterr().err


def _head(url: str) -> int:
    log = open_log(url)
    head = log.head("casks").seq
    log.close()
    return head


def _is_small(request: dict[str, object]) -> bool:
    return len(json.dumps(request)) < 30_000

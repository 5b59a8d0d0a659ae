"""The pages without a proxy: who may ask, and what a real session of a log looks like."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.agent.acting import agent, said, scripted
from tests.pages.watching import JSON, act, of, read, wait
from tests.proxy.sockets import ask, request
from tests.support.browser import Browser, obtain
from ullage.agent import Session
from ullage.cli.main import main
from ullage.storage.log_sqlite import SqliteLog

TOKEN: Final = "a-token-of-the-operator-0123"


@contextmanager
def watching(folder: Path, *words: str, **environ: str) -> Iterator[int]:
    """Run `ullage ui` over the log in a folder; yield its port."""
    command = [sys.executable, "-m", "ullage", "ui", "--port", "0"]
    command += ["--store", f"sqlite:{folder / 'log.db'}", *words]
    env = {**os.environ, "HOME": str(folder), "ULLAGE_CACHE_DIR": str(folder), **environ}
    with (folder / "said").open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=out, env=env)
    try:
        until = time.monotonic() + 30
        while not (found := re.search(r":(\d+)/\n", (folder / "said").read_text())):
            assert process.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield int(found[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (folder / "said").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the log of one session."""
    log = SqliteLog(tmp_path / "log.db")
    with scripted(said("one", 100), said("two", 300)) as server:
        runner = agent(server)
        with Session.create(log, "cellar") as session:
            assert runner.run(session, "What is in the cellar?").ok
            assert runner.run(session, "And now?").ok
    log.close()
    return tmp_path


def test_a_session_is_shown_as_the_commands_show_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    with watching(folder) as port:
        (row,) = read(port, "/ullage/conversations")["conversations"]
        assert (row["id"], row["title"]) == ("cellar", "What is in the cellar?")
        told = read(port, of("conversation", "ullage/cellar"))
        undo = act(port, "ullage/cellar", action="undo")
        assert (undo.status, "no compaction" in undo.json()["error"]) == (409, True)
        again = act(port, "ullage/cellar", action="again", policy="ladder").json()
        assert "done" in again, again
        again = again["done"]
        assert again["policy"] == "ladder"
        assert act(port, "ullage/cellar", action="forget").json()["done"]["forgotten"] == "model"
        with Browser(obtain(fetch=False)) as browser:
            visit = browser.open(f"http://127.0.0.1:{port}{of('conversation', 'ullage/cellar')}")
            wait(visit, "document.getElementById('state').textContent === 'live'")
            assert f"{told['session']['used']:,}" in visit.text
            assert visit.console == ()
    store = ["--store", f"sqlite:{folder / 'log.db'}", "--json"]
    assert main(["context", "--from", "ullage", "--session", "cellar", *store]) == 0
    report = json.loads(capsys.readouterr().out)
    assert told["report"]["used"] == report["used"]
    assert told["report"]["rows"] == report["rows"]
    assert main(["sessions", *store]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["sessions"]
    assert listed["totals"]["requests"] == told["session"]["requests"]
    assert listed["totals"]["prompt_tokens"] == sum(
        one["usage"]["input"] + one["usage"]["cache_read"] for one in told["requests"]
    )


def test_only_its_own_address_and_its_own_pages_may_ask(folder: Path):
    with watching(folder) as port:
        assert ask(port, request("GET", "/", b"", JSON)).status == 200
        for host in ("evil.test", f"evil.test:{port}", "", "127.0.0.1.evil.test"):
            reply = ask(port, request("GET", "/", b"", JSON, host=host))
            assert reply.status in (400, 403), host
        as_json = "content-type: application/json"
        other = act(port, "ullage/cellar", as_json, "origin: http://evil.test", action="forget")
        assert other.status == 403
        own = act(port, "ullage/cellar", as_json, "origin: http://localhost", action="forget")
        assert own.status == 200
        plain = "content-type: text/plain"
        simple = ask(port, request("POST", of("act", "ullage/cellar"), b"action=forget", plain))
        assert simple.status == 403
        assert ask(port, request("GET", "/nothing", b"", JSON)).status == 404


def test_a_token_is_wanted_where_one_is_set(folder: Path):
    with watching(folder, "--token-env", "MINE", MINE=TOKEN) as port:
        assert ask(port, request("GET", "/", b"", JSON)).status == 401
        wrong = request("GET", "/", b"", JSON, f"x-ullage-token: {TOKEN}x")
        assert ask(port, wrong).status == 401
        for header in (f"x-ullage-token: {TOKEN}", f"authorization: Bearer {TOKEN}"):
            assert ask(port, request("GET", "/", b"", JSON, header)).status == 200
        page = ask(port, request("GET", "/", b"", "accept: text/html"))
        assert (page.status, b"cellar" in page.body) == (401, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--host", "0.0.0.0"], "no token is set"),
        (["--from", "nobody"], "sessions of ullage, claude, codex"),
        (["--token-env", "NOT_SET_ANYWHERE"], "holds no secret"),
        (["--port", "1"], "cannot listen"),
        (["--port", "99999"], "choose another by --port"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
):
    if os.geteuid() == 0 and "1" in words:
        pytest.skip("root may listen on any port")
    assert main(["ui", "--store", f"sqlite:{folder / 'log.db'}", *words]) == 1
    assert why in capsys.readouterr().err

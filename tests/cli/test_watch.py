"""`ullage doctor --watch`: logs that grow, sessions, a proxy's pages, a real server's window."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import recorded as made
from tests.importers.opencode_kept import PROJECT, TAILED, open_writer, restore
from tests.importers.writing import assistant, boundary, lines
from tests.storage.test_tail import reported
from tests.support.faults import Answer, FaultServer, closed_port, of_json
from tests.support.waiting import eventually
from ullage.cli import watch
from ullage.cli.loglines import ROWS
from ullage.cli.main import main
from ullage.cli.stations import Asked
from ullage.cli.watch import Finding, WatchOptions
from ullage.core.errors import ConfigurationError
from ullage.core.values.fullness import CallLine, Fullness
from ullage.embedded import Launch, Server
from ullage.transport import HttpRequest, Transport

CUT = ROWS[0].sample
SAID = "Ollama cut a prompt: 13,789 tokens, of which 4,096 fit"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of a user; nothing of who runs the tests is watched."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "ULLAGE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path / "app")
    return tmp_path


NOWHERE = "http://127.0.0.1:1"
"""A port of the system's own, where no proxy runs."""


@pytest.fixture(autouse=True)
def no_proxy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the proxy of who runs the tests for one that is not there."""
    monkeypatch.setattr(watch, "PROXY", NOWHERE)


def once(*words: str) -> int:
    return main(["doctor", "--watch", "--once", *words])


def test_what_could_not_be_looked_at_is_told(home: Path, capsys: Capture) -> None:
    missing = str(home / "server.log")
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        assert main(["doctor", "--once"]) == 0
        assert main(["doctor", "--once", "--proxy", url]) == 1
        assert capsys.readouterr().err == f"not looked at: the proxy {url} does not answer\n"
        assert once("--base-url", f"{url}/v1") == 1
        assert f"not looked at: the server {url}/v1 does not answer" in capsys.readouterr().err
    assert once("--log", missing) == 1
    assert capsys.readouterr().err == f"not looked at: the log {missing} is not there\n"
    assert main(["doctor", "--watch", "--for", "0.05", "--proxy", NOWHERE, "--log", missing]) == 0
    assert capsys.readouterr() == ("", "")


def session(home: Path, *values: Any) -> Path:
    """Write the session of Claude Code of the folder."""
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(home / "app"))
    path = home / ".claude" / "projects" / slug / "s1.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(*values))
    return path


# ── logs ────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_is_read_from_its_end_on_and_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"{CUT}\n")
    log = watch.LogFile(str(path), whole=False)
    assert list(log.look()) == []
    with path.open("a") as file:
        file.write(f"started\n{CUT[:40]}")
        file.flush()
        assert list(log.look()) == []
        file.write(f"{CUT[40:]}\nmore\n")
    assert list(log.look()) == [Finding(str(path), SAID)]
    assert list(log.look()) == []


def test_a_log_that_was_rotated_or_cut_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("a long first file\n" * 50)
    log = watch.LogFile(str(path), whole=False)
    path.rename(tmp_path / "server.log.1")
    assert list(log.look()) == []
    path.write_text(f"{CUT}\n")
    assert [one.what for one in log.look()] == [SAID]
    path.write_text("")
    assert list(log.look()) == []
    path.write_text(f"{ROWS[1].sample}\n")
    assert [one.what for one in log.look()] == ["Ollama left whole messages out"]


def test_of_what_came_at_once_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("")
    log = watch.LogFile(str(path), whole=False)
    path.write_text(f"{CUT}\n" + "x" * 99 + "\n" + "y" * (watch.PIECE + 9) + f"\n{CUT}\n")
    assert [one.what for one in log.look()] == [SAID]


def test_an_unchanged_log_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"{CUT}\n")
    log = watch.LogFile(str(path), whole=False)
    path.chmod(0)
    monkeypatch.setattr("builtins.open", lambda *given, **more: pytest.fail("it was opened"))
    assert list(log.look()) == []


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no plain file"):
        watch.LogFile(str(tmp_path), whole=False)
    assert list(watch.LogFile(str(tmp_path / "later.log"), whole=False).look()) == []


def test_a_log_on_stdin_is_read_as_it_comes_to_its_end() -> None:
    read, write = os.pipe()
    log = watch.LogStream(read)
    assert list(log.look()) == []
    os.write(write, f"{CUT}\n{CUT[:9]}".encode())
    assert [one.what for one in log.look()] == [SAID]
    os.write(write, CUT[9:].encode())
    os.close(write)
    assert [one.what for one in log.look()] == [SAID]
    assert log.ended
    os.close(read)


def test_the_log_of_a_real_server_tells_of_a_prompt_that_it_refused(
    tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    log = watch.LogFile(str(path), whole=False)
    messages = [{"role": "user", "content": "word " * 2000}]
    with Server(tiny_model, Launch(window=512, threads=1, log=path)) as server:
        url = f"{server.base_url}/chat/completions"
        answer = Transport().ask(HttpRequest(url, body={"messages": messages}))
        found: list[Finding] = []

        def is_told() -> bool:
            found.extend(log.look())
            return bool(found)

        eventually(is_told)  # the server's log is written behind its answer
    assert answer.status == 400
    (finding,) = found
    assert re.fullmatch(
        r"llama\.cpp refused a prompt: [\d,]+ tokens, of which 512 fit", finding.what
    )


# ── the command ─────────────────────────────────────────────────────────────────────────────────


def test_once_tells_what_a_log_had_and_the_exit_code_says_so(home: Path, capsys: Capture) -> None:
    log = home / "server.log"
    log.write_text("all is well\n")
    assert once("--log", str(log)) == 0
    assert capsys.readouterr().out == ""
    log.write_text(f"{CUT}\n\x1b]0;owned\x07 {CUT}\n")
    assert once("--log", str(log)) == watch.FOUND == 3
    assert capsys.readouterr().out == f"{log}: {SAID}\n" * 2


def test_a_real_process_watches_a_growing_log_and_ctrl_c_ends_it_quietly(home: Path) -> None:
    log = home / "server.log"
    log.write_text("")
    words = ["doctor", "--watch", "--log", str(log), "--interval", "0.1", "--proxy", NOWHERE]
    process = subprocess.Popen(
        [sys.executable, "-m", "ullage", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home / "app",
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    end = time.monotonic() + 60
    told = b""
    while not told and time.monotonic() < end:
        with log.open("a") as file:
            file.write(f"{CUT}\n")
        time.sleep(0.2)
        told = process.stdout.read() or b""
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 3
    assert told.startswith(f"{log}: {SAID}\n".encode())
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()


def test_it_ends_when_the_time_is_over_or_the_stream_is(home: Path) -> None:
    slept: list[float] = []
    options = WatchOptions(for_s=5.0, interval_s=2.0)
    assert watch.watch([], options, now=lambda: sum(slept), sleep=slept.append) == 0
    assert slept == [2.0, 2.0, 2.0]
    read, write = os.pipe()
    os.close(write)
    assert watch.watch([watch.LogStream(read)], WatchOptions(), sleep=slept.append) == 0
    os.close(read)


def test_a_finding_is_shown_on_the_desktop_too(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, shown = home / "bin" / "notify-send", home / "shown"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf %s "$5" > {shown}\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    log = home / "server.log"
    log.write_text(f"{CUT}\n")
    assert once("--log", str(log), "--notify") == 3
    assert shown.read_text() == f"{log}: {SAID}"
    assert capsys.readouterr().err == f"no notification: {program} exited with 3\n"


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan"])
def test_seconds_that_are_none_are_refused(seconds: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--watch", f"--for={seconds}"])
    assert "no number of seconds" in capsys.readouterr().err


# ── sessions ────────────────────────────────────────────────────────────────────────────────────


def test_a_session_whose_prompt_was_cut_to_half_a_window_is_told_once(
    home: Path, capsys: Capture
) -> None:
    path = session(home, assistant("a1", None, tokens=5000), assistant("a2", "a1", tokens=2050))
    seen = watch.SessionFile(Asked(None, None, str(home / "app")))
    (finding,) = seen.look()
    assert finding.where == "claude session s1"
    assert "at least 5,000 tokens was read as 2,050" in finding.what
    assert list(seen.look()) == []
    os.utime(path, (1, 1))
    assert list(seen.look()) == []
    assert once() == 3
    assert "cut it in silence" in capsys.readouterr().out


@pytest.mark.parametrize(
    "values",
    [
        [],
        [assistant("a1", None, tokens=9000)],
        [assistant("a1", None, tokens=4000), assistant("a2", "a1", tokens=4100)],
        [assistant("a1", None, tokens=150_000), assistant("a2", "a1", tokens=90_000)],
        [
            assistant("a1", None, tokens=9000),
            boundary("b2", "a1"),
            assistant("a3", "b2", tokens=2050),
        ],
    ],
    ids=["empty", "first", "grown", "cleared", "compacted"],
)
def test_sessions_that_only_grow_are_cleared_or_compacted_say_nothing(
    home: Path, values: list[Any]
) -> None:
    session(home, *values)
    assert list(watch.SessionFile(Asked(None, None, str(home / "app"))).look()) == []


def test_a_report_at_a_known_window_is_a_cut_and_one_of_a_growing_session_is_none() -> None:
    grown = [CallLine(8100, window=8192), CallLine(8000, window=8192)]
    assert watch.judge_reports(grown) is None
    cut = [CallLine(8191, window=8192), CallLine(9000, window=8192)]
    assert "a window of 8,192 tokens cut it" in (watch.judge_reports(cut) or "")


def test_a_session_of_opencode_is_watched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = restore(home)
    monkeypatch.delenv("XDG_DATA_HOME")
    seen = watch.SessionFile(Asked("opencode", None, PROJECT))
    assert list(seen.look()) == []
    with open_writer(base) as connection:
        connection.execute("UPDATE session SET revert = NULL")
        for later, tokens in ((9 * 10**14, 5000), (10**15, 2050)):
            told = {"role": "assistant", "tokens": {"input": tokens, "output": 1}}
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                (f"msg_{tokens}", TAILED, later, later, json.dumps(told)),
            )
    connection.close()
    (finding,) = seen.look()
    assert finding.where == f"opencode session {TAILED}"
    assert "5,000 tokens was read as 2,050" in finding.what
    assert list(seen.look()) == []


def test_a_session_of_ones_own_is_watched(home: Path) -> None:
    began = made.began("t1", served={"workspace": str(home / "app")})
    url = made.recorded(home, "cellar", [began, reported(9000), reported(8151)])
    seen = watch.OwnSession(Asked("ullage", None, str(home / "app"), url))
    (finding,) = seen.look()
    assert finding.where == "ullage session cellar"
    assert list(seen.look()) == []
    none = watch.OwnSession(Asked("ullage", None, "/x", f"sqlite:{home}/none.db"))
    assert list(none.look()) == []
    (home / "bad.db").write_text("no database")
    bad = watch.OwnSession(Asked("ullage", None, "/x", f"sqlite:{home}/bad.db"))
    assert list(bad.look()) == []


# ── the proxy ───────────────────────────────────────────────────────────────────────────────────


def metrics(cuts: int) -> Answer:
    text = (
        "# TYPE ullage_silent_truncations_total counter\n"
        f'ullage_silent_truncations_total{{model="a"}} {cuts}\n'
        'ullage_silent_truncations_total{model="b"} 1\n'
        "ullage_silent_truncations_totals 99\n"
    )
    return Answer(blocks=(text.encode(),))


def test_the_proxys_counter_is_told_as_it_grows() -> None:
    pages: Iterator[str | None] = iter(["", None, "", None, "", None])
    texts = [b"".join(metrics(n).blocks).decode() for n in (2, 2, 5)]
    answers = iter([each for text in texts for each in (text, next(pages) and None)])
    proxy = watch.ProxyPages("http://p", lambda url: next(answers), whole=False)
    assert [list(proxy.look()) for _ in range(3)] == [
        [],
        [],
        [Finding("proxy http://p", "3 prompts were cut by a server in silence")],
    ]


def test_a_running_proxys_pages_are_read(home: Path, capsys: Capture) -> None:
    entries = [
        {"id": "abc", "used": 9000, "window": 8192},
        {"id": "fits", "used": 900, "window": 8192},
        {"id": "unknown", "used": None, "window": None},
        7,
    ]
    routes = {"GET /metrics": metrics(1), "GET /ullage/sessions": of_json({"sessions": entries})}
    with FaultServer(routes) as server:
        url = server.base_url.removesuffix("/v1")
        assert main(["doctor", "--watch", "--once", "--proxy", url]) == 3
    out = capsys.readouterr().out
    assert out == (
        f"proxy {url}: 2 prompts were cut by a server in silence\n"
        f"proxy {url}: conversation abc has 9,000 tokens, and its window 8,192\n"
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"sessions": 3}', '{"sessions": [{"used": -1}]}'])
def test_pages_that_are_none_say_nothing(text: str) -> None:
    assert list(watch.read_entries(text)) == []
    assert watch.sum_counter(f"{watch.CUTS} x\n{watch.CUTS} 2", watch.CUTS) == 2


# ── servers ─────────────────────────────────────────────────────────────────────────────────────


def test_a_real_server_that_is_too_small_for_the_session_is_told(
    home: Path, capsys: Capture, tiny_server: Server
) -> None:
    session(home, assistant("a1", None, tokens=1000))
    assert once("--base-url", tiny_server.base_url) == 0
    session(home, assistant("a1", None, tokens=50_000))
    assert once("--base-url", tiny_server.base_url) == 3
    out = capsys.readouterr().out
    assert "has a window of 2,048 tokens, and the session of claude has 50,000" in out


def test_a_server_is_asked_twice_a_minute_and_told_once() -> None:
    asked: list[float] = []
    time_s = [0.0]

    def examine(urls: Any) -> list[Any]:
        asked.append(time_s[0])
        return []

    seen = watch.ServedWindow("http://u:p@h/v1", Fullness, lambda: time_s[0], examine)
    for at in (0.0, 2.0, 29.0, 31.0):
        time_s[0] = at
        assert list(seen.look()) == []
    assert asked == [0.0, 31.0]


def test_ollama_with_less_than_it_could_have_is_told_to_cut(home: Path, capsys: Capture) -> None:
    from tests.cli.test_doctor import ollama

    with FaultServer(ollama(4096, "qwen3:14b")) as server:
        assert once("--base-url", server.base_url) == 3
    assert "cuts longer prompts silently" in capsys.readouterr().out


def test_json_of_the_report_stays_as_it_was(capsys: Capture) -> None:
    with closed_port() as port:
        assert main(["doctor", "--json", "--ports", str(port)]) == 0
    assert json.loads(capsys.readouterr().out)["servers"] == []

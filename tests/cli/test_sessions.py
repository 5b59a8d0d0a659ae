"""`ullage sessions`, `show`, `fork`: what is listed and drawn, exit codes, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli import recorded as made
from ullage.agent import Session
from ullage.cli import events, lines
from ullage.cli.main import main
from ullage.core.session.log.event import Draft
from ullage.storage import open_log, pieces
from ullage.storage.log import Owner

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a log with one session, `cellar`."""
    return made.recorded(tmp_path, "cellar", made.cellar())


@pytest.fixture
def run(url: str) -> Run:
    """Return what runs a command on that log."""
    return lambda *arguments: main([*arguments, "--store", url])


# ── sessions ────────────────────────────────────────────────────────────────────────────────────


def test_sessions_are_listed_newest_first_with_their_state(run: Run, tmp_path, capsys: Capture):
    made.recorded(tmp_path, "attic", [made.said("Look\n up"), made.began("t1")])
    assert run("fork", "cellar", "--at", "2", "--name", "branch") == 0
    capsys.readouterr()
    assert run("sessions") == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == [
        "SESSION",
        "BEGUN",
        "LAST",
        "EVENT",
        "EVENTS",
        "TURNS",
        "WINDOW",
        "COST",
        "STATE",
        "ABOUT",
    ]
    assert [row.split()[0] for row in rows] == ["branch", "attic", "cellar"]
    assert rows[1].split()[-5:] == ["1", "cut", "off", "Look", "up"]
    assert "idle     What is in the cellar? (fork of cellar at 2)" in rows[0]
    assert err == ""


def test_sessions_as_one_document(run: Run, url: str, capsys: Capture):
    assert run("fork", "cellar", "--at", "5", "--name", "branch") == 0
    capsys.readouterr()
    assert run("sessions", "--json", "--limit", "1") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"] == 2
    (row,) = found["sessions"]
    assert (row["name"], row["events"], row["turns"], row["turn"]) == ("branch", 6, 1, "t1")
    assert row["forked_from"] == {"session": "cellar", "seq": 5}
    assert row["begun"] <= row["last"]


def test_who_writes_is_told(run: Run, url: str, capsys: Capture):
    log = open_log(url)
    session = Session(log, "cellar")
    session.acquire()
    assert run("sessions") == 0
    assert "held" in (out := capsys.readouterr().out)
    assert "written by process" in out
    session.record([made.said("On."), made.began("t2")])
    assert run("show") == 0
    assert "a turn is under way, by process" in capsys.readouterr().err
    assert run("sessions", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sessions"][0]["state"] == "running"
    session.close()
    log.close()


def test_a_writer_who_gave_no_sign_does_not_write(run: Run, url: str, capsys: Capture):
    log = open_log(url)
    log.acquire("cellar", replace(Owner.here("gone"), place=""), 1000.0)
    log.close()
    assert run("sessions", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sessions"][0]["state"] == "idle"


def test_older_sessions_are_counted_and_a_log_may_be_empty(run: Run, tmp_path, capsys: Capture):
    made.recorded(tmp_path, "attic", [])
    assert run("sessions", "--limit", "1") == 0
    assert "1 older ones: --limit 2 lists them" in capsys.readouterr().err
    empty = f"sqlite:{tmp_path / 'empty.db'}"
    open_log(empty).close()
    assert main(["sessions", "--store", empty]) == 0
    out, err = capsys.readouterr()
    assert (out, "no sessions yet" in err) == ("", True)


def test_a_session_that_cannot_be_read_is_listed_with_the_reason(run: Run, url, capsys: Capture):
    _sql(url, "DELETE FROM events WHERE seq = 3")
    assert run("sessions") == 0
    assert "corrupt" in (out := capsys.readouterr().out)
    assert "lacks event 3" in out


def test_a_second_list_is_as_the_first_and_as_one_without_a_cache(
    run: Run, url: str, tmp_path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    made.recorded(tmp_path, "attic", [made.said("Look\n up"), made.began("t1")])
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(tmp_path / "cache"))

    def listed() -> str:
        assert run("sessions", "--json") == 0
        return capsys.readouterr().out

    first = listed()
    (file,) = (tmp_path / "cache" / "sessions").iterdir()
    assert "Look" not in file.read_text()
    assert listed() == first
    log = open_log(url)
    with Session(log, "attic") as session:
        session.record([made.reported(1), made.said("Again")])
    log.close()
    grown = listed()
    row = json.loads(grown)["sessions"][0]
    assert (row["name"], row["events"], row["about"]) == ("attic", 5, "Look up")
    assert row["totals"]["requests"] == 1
    file.write_text("{")
    assert listed() == grown
    file.unlink()
    assert listed() == grown


@pytest.mark.parametrize(
    "words",
    [
        ["show", "cellar"],
        ["show", "cellar", "--at", "7"],
        ["show", "cellar", "--json"],
        ["show", "cellar", "--events"],
        ["show", "cellar", "--at", "11"],
        ["export", "cellar"],
        ["export", "cellar", "--at", "4"],
        ["sessions", "--json"],
    ],
)
def test_what_is_shown_does_not_depend_on_the_pieces_that_are_read(
    run: Run, capsys: Capture, words: list[str]
):
    code, whole = run(*words), capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "FIRST", 2)
        patch.setattr(pieces, "BYTES", 100)
        patch.setattr(events, "BYTES", 100)
        assert (run(*words), capsys.readouterr()) == (code, whole)


def test_of_a_damaged_session_nothing_is_shown_or_written(run, url, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pieces, "FIRST", 2)
    _sql(url, "DELETE FROM events WHERE seq = 7")
    for words in (["show", "cellar"], ["export", "cellar"], ["export", "cellar", "--out", "x"]):
        monkeypatch.chdir(tmp_path)
        assert run(*words) != 0
        out, err = capsys.readouterr()
        assert out == ""
        assert "lacks event 7" in err
    assert not (tmp_path / "x").exists()


# ── show ────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_shown_as_people_read_it(run: Run, capsys: Capture):
    assert run("show", "cel") == 0
    out, err = capsys.readouterr()
    shown = out.splitlines()
    assert shown[0].startswith("session cellar, begun ")
    assert shown[1:8] == [
        "#2    you",
        "      What is in the cellar?",
        "#4    100 tokens sent, 5 answered",
        "#5    gpt-5",
        "      Let me look.",
        '#6    call read {"path": "cellar.txt"}',
        "#7    result read",
    ]
    assert shown[-4:] == [
        "      ... 18 more lines: --full shows them",
        "#8    200 tokens sent, 5 answered",
        "#9    gpt-5",
        "      Thirty casks.",
    ]
    assert err == "2 requests, 300 tokens sent, 10 answered\n"


def test_full_shows_results_whole(run: Run, capsys: Capture):
    assert run("show", "cellar", "--full") == 0
    assert "      cask 29\n" in capsys.readouterr().out


def test_at_an_event_nothing_later_is_shown(run: Run, capsys: Capture):
    assert run("show", "cellar", "--at", "5") == 0
    out, err = capsys.readouterr()
    assert "Let me look." in out
    assert "cask" not in out
    assert "the turn has no end: ullage resume cellar goes on with it" in err


HOSTILE = "\x1b]0;owned\x07\rforged\n#9 you"


def story() -> list[Draft]:
    """Return one event of each kind that is not in `cellar`."""
    thought = {"model": made.MODEL, "block": {"thinking": "Downstairs, then.", "signature": "x"}}
    checkpoint = {"tokens_before": 9000, "tokens_after": 400, "strategy": "trim", "trigger": "p"}
    compaction = {"checkpoint": checkpoint, "dialect": "openai_chat", "events": [2, 6]}
    return [
        made.said(HOSTILE, parts=[{"type": "image_url"}]),
        made.began("t1", mode="plan", permission="ask", dry_run=True),
        Draft("skill_activation", {"name": "mending", "hash": "abc"}),
        Draft("reasoning", thought),
        Draft("reasoning", {"model": made.MODEL, "block": {"encrypted_content": "x"}}),
        made.called(1, "c1", "write"),
        Draft(
            "permission_decision",
            {"call_id": "c1", "decision": "deny", "reason": "no writes", "by": "mode"},
        ),
        made.resulted("c1", "not run", is_error=True, exit_code=3, marks={"not_run": "denied"}),
        Draft("history_compaction", compaction),
        Draft("history_compaction", {"checkpoint": {}, "undone": True}),
        made.answered(2, "So f", partial=True),
        made.ended("t1", "turn_failed", reason="stalled", error="silent", commands=["ullage x"]),
        made.ended("t1", "turn_failed", reason="iteration_cap"),
        made.ended("t2", "turn_interrupted"),
        made.ended("t3", stop="length"),
        Draft("branch_summary", {"text": "Casks were counted.", "parent": "attic"}),
        Draft("branch_summary", {"text": "More."}),
        Draft("subagent_event", {"type": "began"}),
        Draft("cellar_flooded", {"depth": 1}, 7),
    ]


def test_every_kind_of_event_is_shown_and_none_steers_the_terminal(tmp_path, capsys: Capture):
    store = made.recorded(tmp_path, "story", story())
    assert main(["show", "story", "--store", store]) == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert "\r" not in out
    for line in (
        "      \\x1b]0;owned\\x07\\x0dforged",
        "      #9 you",
        "      + image_url",
        "#3    turn: plan, ask, dry run",
        "#4    skill mending (abc)",
        "#5    thought: Downstairs, then.",
        "#6    thought, not readable",
        "#8    deny write (by mode): no writes",
        "#9    result write (error, exit code 3, not_run)",
        "#10   compacted: 9,000 -> 400 tokens (trim, p), events 2 to 6",
        "#11   a compaction was undone: ? -> ? tokens (None, None)",
        "#12   gpt-5, as far as it came (never sent again)",
        "#13   the turn failed: stalled",
        "      silent",
        "      ullage x",
        "#14   the turn failed: iteration_cap",
        "#15   the turn was interrupted",
        "#16   the answer ends at its limit of tokens",
        "#17   summary of session attic",
        "#18   summary",
        '#19   subagent: {"type": "began"}',
        "#20   cellar_flooded of version 7: not known to this ullage",
    ):
        assert line in out.splitlines()


def test_what_the_terminal_lacks_is_written_as_an_escape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = made.recorded(tmp_path, "s", [made.said("Fässer \U0001f511")])
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    shown = subprocess.run(  # the encoding is set when Python starts
        [sys.executable, "-m", "ullage.cli.main", "show", "s", "--store", store],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b"F\\xe4sser \\U0001f511" in shown.stdout


def test_a_time_that_no_calendar_has_is_a_number():
    assert lines.when(2.0**52) == "4.5036e+15 s"


def test_events_are_printed_as_they_are(run: Run, url: str, capfdbinary: Any):
    assert run("show", "cellar", "--events", "--at", "3") == 0
    out, err = capfdbinary.readouterr()
    log = open_log(url)
    events = log.read("cellar", upto=3)
    log.close()
    assert out.decode().splitlines() == [event.line() for event in events]
    assert err == b""


def test_a_session_as_one_document(run: Run, capsys: Capture):
    assert run("show", "cellar", "--json", "--at", "5") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["session"], found["at"], found["turn"]) == ("cellar", 5, "t1")
    assert found["forked_from"] is None
    assert found["events"][1]["data"] == {"text": "What is in the cellar?"}
    assert [event["seq"] for event in found["events"]] == [1, 2, 3, 4, 5]
    assert run("fork", "cellar", "--name", "b") == 0
    capsys.readouterr()
    assert run("show", "b", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["forked_from"] == {"parent": "cellar", "seq": 10, "root": "cellar"}
    assert found["turn"] is None


# ── fork ────────────────────────────────────────────────────────────────────────────────────────


def test_a_fork_prints_its_name_and_shares_the_beginning(run: Run, capsys: Capture):
    assert run("fork", "cellar", "--at", "5") == 0
    out, err = capsys.readouterr()
    assert err == "forked from cellar at event 5\n"
    assert run("show", out.strip()) == 0
    shown = capsys.readouterr().out
    assert "Let me look." in shown
    assert "Thirty casks." not in shown
    assert "#6    forked here from session cellar, at its event 5" in shown


# ── bad input ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "nobody"], 2, "there is no session 'nobody' in sqlite:///"),
        (["resume", "nobody"], 2, "`ullage sessions` lists what there is"),
        (["fork", "nobody"], 2, "there is no session 'nobody'"),
        (["show", "a"], 1, "2 sessions begin with 'a': a1, a2: give more of the name"),
        (["show", "cellar", "--at", "11"], 1, "--at 11: session cellar has events 1 to 10"),
        (["show", "cellar", "--at", "0"], 1, "--at 0: session cellar has events 1 to 10"),
        (["fork", "cellar", "--at", "11"], 1, "has events 1 to 10, so it cannot be forked at 11"),
        (["fork", "cellar", "--name", "a1"], 1, "there is a session 'a1' in this log"),
        (["fork", "cellar", "--name", "a\nb"], 1, "cannot name a session"),
        (["sessions", "--limit", "0"], 1, "--limit is how many sessions to list"),
    ],
)
def test_bad_input_is_said_in_one_sentence(
    run: Run, tmp_path: Path, capsys: Capture, arguments: list[str], code: int, words: str
):
    made.recorded(tmp_path, "a1", [])
    made.recorded(tmp_path, "a2", [])
    assert run(*arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ullage: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_log_that_is_not_there_is_named(tmp_path: Path, capsys: Capture):
    assert main(["sessions", "--store", f"sqlite:{tmp_path / 'no.db'}"]) == 1
    assert "there is no store at" in capsys.readouterr().err
    assert not (tmp_path / "no.db").exists()


def test_a_newer_file_is_refused(run: Run, url: str, capsys: Capture):
    _sql(url, "PRAGMA user_version = 99")
    assert run("show") == 1
    assert "99" in capsys.readouterr().err


def _sql(url: str, statement: str) -> None:
    import apsw

    connection = apsw.Connection(url.removeprefix("sqlite:"))
    connection.execute(statement)
    connection.close()


# ── what a session came to ──────────────────────────────────────────────────────────────────────

GAUGED = {
    "model": "m",
    "input": 900,
    "cache_read": 100,
    "output": 20,
    "reasoning": 5,
    "dollars": 0.01,
    "context": {"window": 2_000, "source": "probe", "tier": "advisory", "ratio": 0.5},
}
BARE = {"model": "m", "input": 700, "context": {"reason": "context_window_unknown"}}


def test_sums_and_pressure_over_time_are_shown_and_listed(tmp_path: Path, capsys: Capture):
    drafts = [Draft("provider_usage", data) for data in (BARE, GAUGED, {"model": "m"})]
    url = made.recorded(tmp_path, "voyage", [made.said("Go"), *drafts])
    assert main(["show", "voyage", "--store", url]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-3:] == [
        "#3    700 tokens sent, 0 answered, window unavailable (context_window_unknown)",
        "#4    1,000 tokens sent, 25 answered, window at 50% (advisory), $0.0100",
        "#5    0 tokens sent, 0 answered",
    ]
    sums = "3 requests, 1,700 tokens sent, 25 answered, $0.0100, window at 50%, at most 50%"
    assert err.splitlines()[0] == sums
    assert main(["sessions", "--store", url]) == 0
    assert "50%     $0.0100" in capsys.readouterr().out
    for command in (["show", "voyage"], ["sessions"]):
        assert main([*command, "--json", "--store", url]) == 0
        document = json.loads(capsys.readouterr().out)
        found = document if "totals" in document else document["sessions"][0]
        assert found["totals"] == {
            "requests": 3,
            "prompt_tokens": 1_700,
            "output_tokens": 25,
            "dollars": 0.01,
            "pressures": [0.5],
            "faults": 0,
            "calls": 0,
            "repeated": 0,
        }

"""`ullage context` as a user calls it: what is named, against what, and how it is shown."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.importers.writing import assistant, lines, user
from ullage.cli.context import is_coloured, what_if
from ullage.cli.lines import is_encodable
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError

SESSIONS = Path(__file__).parents[1] / "recordings" / "sessions"
HISTORY = [{"role": "user", "content": "How much is left in the cask?"}]
WIDE_WINDOW = ["--window", "200000"]

Said = Callable[..., str]
Told = Callable[..., dict[str, Any]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run `ullage context` and return what it printed."""

    def run(*argv: str) -> str:
        assert main(["context", *argv]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def told(said: Said) -> Told:
    """Run `ullage context --json` and return its one document."""

    def run(*argv: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(said(*argv, "--json"))
        return report

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run `ullage context`, which fails, and return why."""

    def run(*argv: str) -> str:
        assert main(["context", *argv]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("ullage: ")
        return err

    return run


# --- what is looked at ----------------------------------------------------------------------------


def test_the_sample_is_shown_in_the_window_that_is_assumed_for_its_model(said: Said) -> None:
    out = said("--demo")
    assert re.search(r"= window +200,000 +table, assumed", out)
    assert "assumed: total window from the bundled table" in out
    assert "claude-sonnet-4-5[1m]" in out
    assert "--window N" in out
    assert re.search(r"R tool results +8,\d\d\d +\d %  est", out)
    assert re.search(r"Read 6\S+ +\d,\d\d\d\s+2 duplicates, \d,\d\d\d reclaimable", out)
    assert re.search(r"P system prompt and tools +1\d,\d\d\d +\d %  inferred", out)
    assert re.search(r"2,\d\d\d  Read shop/catalog.py, turn 25", out)


def test_a_window_that_is_named_closes_the_sum(told: Told) -> None:
    report = told("--demo", *WIDE_WINDOW)
    assert report["window"]["tokens"] == 200_000
    parts = (report["used"]["tokens"], report["free"], report["margin"], report["reserved_output"])
    assert sum(parts) == 200_000
    assert sum(row["tokens"] for row in report["rows"]) == report["used"]["tokens"]


def test_a_model_that_is_named_brings_its_window(told: Told) -> None:
    assert told("--demo", "--model", "claude-sonnet-4-5")["window"]["tokens"] == 200_000
    assert told("--demo", "--model", "claude-sonnet-4-5[1m]")["window"]["tokens"] == 1_000_000


def test_lines_that_are_not_understood_are_named_beside_the_rows(
    tmp_path: Path, told: Told, said: Said
) -> None:
    sample = files("ullage.importers").joinpath("sample.jsonl").read_bytes().splitlines()
    torn = [*sample[:3], b'{"type": "user", "bro', b"\xff{}", *sample[3:], b'{"type": "dream"}']
    path = tmp_path / "torn.jsonl"
    path.write_bytes(b"\n".join(torn) + b"\n")
    warning = "not understood, and so not counted: line that is no JSON object (2), dream (1)"
    assert warning in told(str(path))["warnings"]
    assert warning in said(str(path))
    assert not [w for w in told("--demo")["warnings"] if "not understood" in w]


@pytest.mark.parametrize(
    "argv", [[], ["--demo", "f.json"], ["--last", "--demo"], ["--from", "codex"]]
)
def test_two_sources_or_none_is_an_error(argv: list[str], refused: Said) -> None:
    assert "name one thing to look at: a FILE (or -)" in refused(*argv)


@pytest.mark.parametrize(
    "argv", [["--last"], ["--session", "ab"], ["--last", "--from", "chat"]], ids=str
)
def test_the_last_session_of_nobody_is_an_error(argv: list[str], refused: Said) -> None:
    assert "--last, --session and --list need --from claude, --from codex" in refused(*argv)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\0\1\2\xff\xfe" * 300, "no messages"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "no messages"),
        (b"12", "no messages"),
        (b'{"a": 1}', "without messages"),
        (b"[]", "no messages"),
    ],
)
def test_a_file_that_holds_no_session_is_an_error(
    data: bytes, why: str, tmp_path: Path, refused: Said
) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(data)
    err = refused(str(path))
    assert why in err
    assert "it.json" in err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, refused: Said) -> None:
    assert "nothing.json cannot be read" in refused(str(tmp_path / "nothing.json"))
    assert "cannot be read" in refused(str(tmp_path))


def test_standard_input_is_read(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps({"model": "gpt-5", "messages": HISTORY}).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    report = told("-")
    assert (report["source"]["kind"], report["source"]["path"]) == ("chat", "-")
    assert (report["model"], report["window"]["tokens"]) == ("gpt-5", 272_000)


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of Claude Code's sessions, with an older and a newer one."""
    folder = tmp_path / "claude" / "projects" / "-srv-app"
    folder.mkdir(parents=True)
    for at, name, tokens in ((1_000, "aaa-old", 111), (2_000, "abb-new", 222)):
        path = folder / f"{name}.jsonl"
        path.write_bytes(lines(user("u1", None, "go"), assistant("a1", "u1", tokens=tokens)))
        os.utime(path, (at, at))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return folder


def test_the_last_session_is_the_newest(claude: Path, told: Told) -> None:
    report = told("--from", "claude", "--last")
    assert Path(report["source"]["path"]) == claude / "abb-new.jsonl"
    assert report["used"]["tokens"] >= 222


def test_a_session_is_found_by_the_beginning_of_its_id(
    claude: Path, told: Told, refused: Said
) -> None:
    report = told("--from", "claude", "--session", "aa")
    assert Path(report["source"]["path"]) == claude / "aaa-old.jsonl"
    assert "2 sessions of claude" in refused("--from", "claude", "--session", "a")
    assert "no session of claude" in refused("--from", "claude", "--session", "zz")


def test_no_session_is_an_error_that_names_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Said
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "none"))
    err = refused("--from", "claude", "--last")
    assert "no session of claude was found" in err
    assert str(tmp_path / "none") in err


# --- against what ---------------------------------------------------------------------------------


def test_what_if_looks_at_another_window_and_another_reserve(told: Told, said: Said) -> None:
    report = told("--demo", "--what-if", "window=32768", "--what-if", "reserve=4096")
    assert (report["window"]["tokens"], report["reserved_output"]) == (32_768, 4_096)
    assert report["warnings"][0] == "what if: window of 32,768 tokens, reserve of 4,096 tokens"
    assert "! what if: window of 20,000 tokens" in said("--demo", "--what-if", "window=20,000")


def test_what_if_beats_the_file_and_the_other_options(told: Told) -> None:
    plain = str(SESSIONS / "codex-plain.jsonl")
    assert told(plain)["window"]["tokens"] == 272_000
    assert told(plain, "--what-if", "window=9_000")["window"]["tokens"] == 9_000
    both = told(plain, "--window", "7000", "--what-if", "window=9000")
    assert both["window"]["tokens"] == 9_000
    assert told(plain, "--what-if", "reserve=0")["reserved_output"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "window",
        "window=",
        "window=0",
        "window=-1",
        "window=1.5",
        "window=many",
        "window=" + "9" * 5_000,
        "reserve=-1",
        "output=5",
        "",
        "=5",
    ],
)
def test_what_if_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--what-if '.*': expected window=TOKENS"):
        what_if([text])


def test_what_if_takes_the_last_of_two() -> None:
    assert what_if(["window=5", "window=6", "reserve=0"]) == {"window": 6, "reserve": 0}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--window", "0"], "a window must be a positive number of tokens"),
        (["--top", "-1"], "--top is how many items to list, not -1"),
        (["--what-if", "window=x"], "expected window=TOKENS or reserve=TOKENS"),
    ],
)
def test_a_number_that_is_none_is_an_error(argv: list[str], why: str, refused: Said) -> None:
    assert why in refused("--demo", *argv)


# --- how it is shown ------------------------------------------------------------------------------


ASSUMED = "135.8k left · 24.2k/200.0k 12 % · none · provider · window assumed\n"


def test_brief_is_one_line(said: Said) -> None:
    assert said("--demo", "--brief") == ASSUMED
    line = said("--demo", "--brief", *WIDE_WINDOW)
    assert re.fullmatch(r"\d+\.\dk left · 24\.2k/200\.0k 12 % · none · provider\n", line)
    assert said("--demo", "--brief", "--ascii").isascii()


def test_json_is_one_document_and_ascii_whatever_the_names(said: Said, tmp_path: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "\ud800 büro", "arguments": ""}}
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([*HISTORY, {"role": "assistant", "tool_calls": [call]}]))
    out = said(str(path), "--json")
    assert out.isascii()
    assert out.count("\n") == 1
    items = [row["items"] for row in json.loads(out)["rows"] if row["id"] == "tool_calls"]
    assert items[0][0]["name"] == "\ud800 büro"


def test_turns_and_largest_are_shown_when_asked_for(said: Said) -> None:
    assert "tokens per turn" not in said("--demo")
    assert "tokens per turn" in said("--demo", "--turns")
    assert "largest messages" not in said("--demo", "--top", "0")
    assert len(re.findall(r"(?m)^  \d+  tool results: Read", said("--demo", "--top", "3"))) == 3


def test_the_page_is_written_and_said_on_the_other_channel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.html"
    assert main(["context", "--demo", "--html", str(path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"wrote {path}\n")
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert path.stat().st_mode & 0o777 == 0o600  # it quotes the session
    path.chmod(0o644)
    assert main(["context", "--demo", "--json", "--html", str(path)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "ullage.context/1"
    assert err == f"wrote {path}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert main(["context", "--demo", "--brief", "--html", str(path)]) == 0
    assert capsys.readouterr().out == ASSUMED


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, refused: Said) -> None:
    name = tmp_path / "no" / "report.html"
    assert f"{name} cannot be written" in refused("--demo", "--html", str(name))


@pytest.mark.parametrize(
    ("wish", "environ", "terminal", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"TERM": "xterm"}, True, True),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {}, True, False),
    ],
)
def test_colour_is_as_asked_else_as_the_terminal_wants_it(
    wish: str, environ: dict[str, str], terminal: bool, wanted: bool
) -> None:
    assert is_coloured(wish, environ, terminal=terminal) is wanted


def test_what_is_no_terminal_gets_colour_only_when_asked(said: Said) -> None:
    assert "\x1b" not in said("--demo")
    assert "\x1b[" in said("--demo", "--color", "always")
    assert "\x1b" not in said("--demo", "--color", "never")


def test_ascii_is_ascii(said: Said) -> None:
    assert said("--demo", "--ascii", "--turns", *WIDE_WINDOW).isascii()


@pytest.mark.parametrize("argv", [["--turns"], ["--brief"]])
def test_an_output_that_cannot_take_a_sign_gets_ascii(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    assert main(["context", "--demo", *argv]) == 0
    assert b"24" in out.getvalue()


def test_what_an_output_can_take_is_told_by_its_encoding() -> None:
    assert is_encodable("ctx · ±", "utf-8")
    assert is_encodable("ctx · ±", None)
    assert is_encodable("ctx · ±", "cp1252")
    assert not is_encodable("█", "cp1252")


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["context", "--help"])
    assert stopped.value.code == 0
    assert "ullage context --from claude --last" in capsys.readouterr().out

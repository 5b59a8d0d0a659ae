"""`ullage statusline` as Claude Code, tmux and prompts call it: processes, stdin, session files."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ullage
from tests.cli import recorded as made
from tests.cli.terminal import Terminal
from tests.importers.opencode_kept import PROJECT, TAILED, open_writer, restore
from tests.importers.writing import assistant, boundary, lines
from tests.storage.test_tail import reported
from ullage import __main__
from ullage.cli import dotfiles, stations, statusline
from ullage.cli.main import main

SRC = Path(ullage.__file__).parent.parent
STATUS: dict[str, Any] = {
    # The form of Claude Code 2.1.263, its page on status lines and a recorded one in agreement.
    "session_id": "0b5e8f3c",
    "transcript_path": "/no/such/transcript.jsonl",
    "cwd": "/srv/app",
    "model": {"id": "claude-opus-5", "display_name": "Opus 5"},
    "workspace": {"current_dir": "/srv/app", "project_dir": "/srv/app", "added_dirs": []},
    "version": "2.1.263",
    "output_style": {"name": "default"},
    "cost": {"total_cost_usd": 0.42, "total_duration_ms": 120000, "total_lines_added": 31},
    "context_window": {
        "total_input_tokens": 124000,
        "total_output_tokens": 1200,
        "context_window_size": 200000,
        "current_usage": {
            "input_tokens": 1000,
            "cache_creation_input_tokens": 10000,
            "cache_read_input_tokens": 113000,
            "output_tokens": 1200,
        },
        "used_percentage": 62,
        "remaining_percentage": 38,
    },
    "exceeds_200k_tokens": False,
    "rate_limits": {"five_hour": {"used_percentage": 21.4, "resets_at": 1757300000}},
}
WHOLE = "ctx ▕█████   ▏ 62% 124k/200k (reported) · $0.42 · cache 91%"
LEAN = {
    "ullage",
    "ullage.__main__",
    "ullage.cli",
    "ullage.cli.glyphs",
    "ullage.cli.meter",
    "ullage.cli.stations",
    "ullage.cli.statusline",
    "ullage.core",
    "ullage.core.values",
    "ullage.core.values.fullness",
    "ullage.core.values.visible",
}
TAILS = {"ullage.importers", "ullage.importers.tail", "ullage.windows", "ullage.windows.glance"}
HEAVY = (
    "asyncio", "concurrent.futures", "dataclasses", "httpx2", "logging", "msgspec", "pathlib",
    "platformdirs", "socket", "ssl", "subprocess", "tempfile", "urllib.request",
)  # fmt: skip


def changed(**fields: Any) -> bytes:
    """Return a status with other fields; a None leaves the field out."""
    whole = {**STATUS, **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()


def called(
    *words: str, stdin: bytes = b"", cwd: Path | None = None, **environ: str
) -> SimpleNamespace:
    """Run the command as its script does; its folder of the user is empty unless named."""
    out, err = io.BytesIO(), io.BytesIO()
    encoding = environ.pop("PYTHONIOENCODING", "utf-8")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        for name in set(os.environ) - {"PATH"}:
            patch.delenv(name)
        for name, value in {"HOME": "/no/such/home", **environ}.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", ["ullage", "statusline", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(file))
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding, write_through=True))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
        try:
            code: Any = __main__.main()
        except SystemExit as ended:
            code = ended.code
        # Read before what stands around them is gone, and closes them.
        return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def told(*words: str, stdin: bytes = b"", **more: Any) -> str:
    done = called(*words, stdin=stdin, **more)
    assert (done.returncode, done.stderr) == (0, b"")
    return str(done.stdout.decode())


def loaded(stdin: bytes, cwd: Path, home: Path) -> set[str]:
    """Return the modules that one line loads, in a fresh interpreter."""
    code = (
        "import sys; sys.argv = ['ullage', 'statusline']\n"
        "from ullage.__main__ import main\n"
        "assert main() == 0\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={"PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)},
        timeout=60,
        check=True,
    )
    return set(done.stderr.decode().split())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder of a user with a session of Claude Code that works in its `app`."""
    app = tmp_path / "app"
    app.mkdir()
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(app))
    folder = tmp_path / ".claude" / "projects" / slug
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_bytes(lines(assistant("a1", None, tokens=50_000)))
    return tmp_path


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


def test_a_line_of_stdin_loads_these_modules_and_no_others(tmp_path: Path) -> None:
    modules = loaded(changed(transcript_path=None), tmp_path, tmp_path)
    assert {name for name in modules if name.startswith("ullage")} == LEAN
    assert [name for name in HEAVY if name in modules] == []


def test_a_line_of_a_session_file_loads_the_tail_and_the_glance_beside_them(home: Path) -> None:
    modules = loaded(b"", home / "app", home)
    assert {name for name in modules if name.startswith("ullage")} == LEAN | TAILS
    assert [name for name in HEAVY if name in modules] == []


# ── Claude Code's word ──────────────────────────────────────────────────────────────────────────


def test_what_claude_code_reports_is_drawn() -> None:
    assert told(stdin=changed(), NO_COLOR="1") == f"{WHOLE}\n"
    assert told(stdin=changed()).startswith("\x1b[32mctx")
    assert told("--color", "never", stdin=changed()) == f"{WHOLE}\n"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"cost": None}, "ctx ▕█████   ▏ 62% 124k/200k (reported) · cache 91%"),
        (
            {"context_window": {"context_window_size": 200000, "used_percentage": 62}},
            "62% (reported)",
        ),
        ({"context_window": None}, "ctx ?/200k (table)"),
        ({"context_window": {"context_window_size": 200000}}, "ctx ?/200k (reported)"),
        ({"context_window": None, "model": {"id": "claude-opus-5[1m]"}}, "ctx ?/1M (assumed)"),
        ({"context_window": None, "model": {"id": "my-own-model"}}, "ctx unknown (no report yet)"),
        ({"context_window": 7, "model": [], "cost": "x"}, "ctx unknown (no report yet)"),
    ],
)
def test_what_lacks_is_not_made_up(fields: Mapping[str, Any], line: str) -> None:
    assert line in told(stdin=changed(**fields), NO_COLOR="1")


def test_usage_without_a_window_is_held_against_the_table() -> None:
    usage = {"current_usage": {"input_tokens": 50_000}}
    assert "25% 50k/200k (table)" in told(stdin=changed(context_window=usage))
    wide = {"current_usage": {"input_tokens": 250_000}}
    assert "25% 250k/1M (assumed)" in told(stdin=changed(context_window=wide))


def test_the_transcript_tells_what_the_status_does_not(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        lines(boundary("b1", None, preTokens=155_000), assistant("a1", None, tokens=50_000))
    )
    fields = {"transcript_path": str(path), "cost": None}
    none = {"context_window_size": 200_000, "current_usage": None, "used_percentage": 0}
    line = told(stdin=changed(context_window=none, **fields), NO_COLOR="1")
    assert line.strip().endswith("25% 50k/200k (reported) · 105k to compaction · cache 100%")
    assert "31k to compaction" in told(stdin=changed(**fields), NO_COLOR="1")


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        changed()[:-40],
        b"[1, 2]",
        b"\x00\xff" * 300,
        b"[" * 200_000,
        b'{"a": "' + b"x" * (stations.MOST + 9) + b'"}',
    ],
    ids=["text", "cut", "list", "binary", "deep", "huge"],
)
def test_stdin_that_is_no_status_gives_one_short_line_and_no_error(data: bytes) -> None:
    line = told(stdin=data)
    assert line == "ctx unknown (stdin holds no status of Claude Code)\n"
    done = called("--strict", stdin=data)
    assert (done.returncode, done.stderr) == (1, f"ullage: {statusline.UNREAD}\n".encode())
    assert told("--quiet", stdin=data) == ""


def test_a_session_file_steers_no_terminal() -> None:
    evil = "a\x1b]0;owned\x07\u202e\x9b31m\r\nb"
    fields = changed(model={"id": evil}, session_id=evil, context_window=None)
    line = told("--format", "{model} {session}", "--color", "never", stdin=fields)
    assert "\x1b" not in line
    assert all(c.isprintable() for c in line.rstrip("\n"))
    assert "\\x1b]0;owned\\x07\\u202e" in line


# ── the newest session ──────────────────────────────────────────────────────────────────────────


def test_the_newest_session_of_the_folder_is_drawn(home: Path) -> None:
    line = "ctx ▕██      ▏ 25% 50k/200k (table) · cache 100%\n"
    for words in ((), ("--from", "claude"), ("--session", "s1")):
        assert told(*words, cwd=home / "app", HOME=str(home)) == line
    assert told("--cwd", str(home / "app"), HOME=str(home)) == line
    (home / "app" / "deep").mkdir()
    assert told(cwd=home / "app" / "deep", HOME=str(home)) == line


def test_without_a_session_that_is_said_and_prompts_are_left_alone(home: Path) -> None:
    assert told(cwd=home, HOME=str(home)) == "ctx unknown (no session here)\n"
    assert told("--from", "codex", HOME=str(home)) == "ctx unknown (no session of codex here)\n"
    assert told("--quiet", "--in", "bash", cwd=home, HOME=str(home)) == ""
    assert called("--strict", cwd=home, HOME=str(home)).returncode == 1


def test_a_session_of_opencode_is_drawn(tmp_path: Path) -> None:
    base = restore(tmp_path)
    line = "ctx 1.4k (window unknown) · $0.03 · cache 86%\n"
    for words in ((), ("--from", "opencode"), ("--session", TAILED[:12])):
        assert told(*words, "--cwd", PROJECT, HOME=str(tmp_path)) == line
    with open_writer(base) as connection:
        connection.execute(
            "UPDATE message SET data = replace(replace(data, 'tiny-coder', 'claude-opus-4-5'), "
            "'\"local\"', '\"anthropic\"')"
        )
    connection.close()
    assert "/200k (table)" in told("--from", "opencode", "--cwd", PROJECT, HOME=str(tmp_path))
    base.write_bytes(b"no database")
    nothing = told("--from", "opencode", "--cwd", PROJECT, HOME=str(tmp_path))
    assert nothing == "ctx unknown (no session of opencode here)\n"


def test_a_session_of_ones_own_is_drawn(tmp_path: Path) -> None:
    began = made.began("t1", served={"workspace": str(tmp_path)})
    url = made.recorded(tmp_path, "cellar", [began, reported(4000)])
    for words in (("--from", "ullage", "--store", url), ("--store", url)):
        assert "49% 4k/8.2k (reported)" in told(*words, cwd=tmp_path, HOME=str(tmp_path))
    assert "no log of sessions" in told("--from", "ullage", HOME=str(tmp_path))
    assert "no session" in told("--from", "ullage", "--store", url, "--session", "attic")


def test_a_folder_that_is_gone_and_broken_settings_give_a_line(home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    script = f"rmdir ../gone; exec {sys.executable} -m ullage statusline </dev/null"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"HOME": str(home), "PYTHONPATH": str(SRC)},
        cwd=gone,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"ctx unknown (no session here)\n", b"")
    (home / "bad.toml").write_text("stroe = 3\n")
    bad = str(home / "bad.toml")
    line = told("--from", "ullage", "--width", "120", HOME=str(home), ULLAGE_CONFIG=bad)
    assert line.startswith("ctx unknown (")


def test_a_pipe_that_nobody_writes_to_holds_no_prompt_up(home: Path) -> None:
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ullage", "statusline"],
            stdin=read,
            capture_output=True,
            cwd=home / "app",
            env={"HOME": str(home), "PYTHONPATH": str(SRC), "PYTHONIOENCODING": "utf-8"},
            timeout=30,
            check=True,
        )
    finally:
        os.close(read)
        os.close(write)
    assert b"25%" in done.stdout


# ── forms ───────────────────────────────────────────────────────────────────────────────────────


def test_as_json_every_value_is_there_and_unknown_ones_are_null() -> None:
    shown = json.loads(told("--json", stdin=changed(cost=None)))
    assert (shown["tokens"], shown["window"], shown["origin"]) == (124_000, 200_000, "reported")
    assert (shown["ratio"], shown["tier"], shown["dollars"]) == (0.62, "none", None)
    assert json.loads(told("--json", stdin=b"x"))["tokens"] is None


def test_a_template_and_an_encoding_without_blocks() -> None:
    form = "{percent}|{used}|{window}|{origin}|{cost}|{cache}|{model}|{left}"
    line = told("--format", form, stdin=changed(), NO_COLOR="1")
    assert line == "62%|124k|200k|reported|$0.42|91%|claude-opus-5|\n"
    line = told(stdin=changed(), PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert line == "ctx [#####---] 62% 124k/200k (reported) - $0.42 - cache 91%\n"


@pytest.mark.parametrize("width", [1, 5, 20, 34, 45, 200])
def test_the_line_keeps_to_the_width(width: int) -> None:
    line = told("--width", str(width), stdin=changed(), NO_COLOR="1").rstrip("\n")
    assert len(line) <= width
    assert WHOLE.startswith(line) or "62%" in line or line.endswith("…")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "{nope}"], "no field 'nope'"),
        (["--width", "0"], "--width is the most cells"),
        (["--from", "cluade"], "invalid choice"),
        (["--widht", "9"], "did you mean '--width'"),
    ],
)
def test_wrong_options_are_named_by_the_whole_command_line(words: list[str], said: str) -> None:
    done = called(*words, stdin=changed())
    assert done.returncode in (1, 2)
    assert said in done.stderr.decode()


def test_the_command_is_one_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["statusline", "--help"])
    assert "fields of --format" in capsys.readouterr().out


def test_a_terminal_and_a_closed_stdin_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert stations.read_stdin() is None
    monkeypatch.setattr(sys, "stdin", io.StringIO("x"))
    assert stations.read_stdin() is None
    monkeypatch.setattr("select.select", lambda *given: (_ for _ in ()).throw(OSError))
    assert stations.is_ready(0, 0.0) == (os.name == "nt")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 0)])
def test_an_interrupt_and_a_reader_that_left_end_it_quietly(
    error: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def leave(given: Any) -> int:
        raise error

    monkeypatch.setattr(statusline, "show", leave)
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert statusline.begin([]) == code


def test_a_reader_that_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m ullage statusline --json --from codex | true"],
        env={"PYTHONPATH": str(SRC), "HOME": "/none", "PATH": os.environ["PATH"]},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == b""


# ── tmux, and shells ────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
def test_tmux_shows_what_is_installed_and_no_file_steers_it(home: Path) -> None:
    slug = next((home / ".claude" / "projects").iterdir())
    evil = "#[fg=red]x#(touch pwned)"
    (slug / "s1.jsonl").write_bytes(lines(assistant("a1", None, tokens=50_000, model=evil)))
    program = f"env PYTHONPATH={SRC} PYTHONIOENCODING=utf-8 {sys.executable} -m ullage statusline"
    conf = home / ".tmux.conf"
    left = f"{program} --in tmux --format '{{model}}' --cwd #{{q:pane_current_path}}"
    before = f"""
set -g status-interval 1
set -g status-left-length 60
set -g status-left "#({left})"
"""
    conf.write_bytes(dotfiles.install("tmux", before.encode(), program))
    tmux = [str(shutil.which("tmux")), "-L", f"ullage-{os.getpid()}"]
    environ = {**os.environ, "HOME": str(home), "TMUX_TMPDIR": str(home), "SHELL": "/bin/sh"}
    run: Any = {"env": environ, "capture_output": True, "timeout": 30}
    start = [*tmux, "-u", "-f", str(conf), "new-session", "-c", str(home / "app")]
    with Terminal(start, environ, columns=200) as screen:
        try:
            screen.until(r"#\[fg=red\]x#\(touch pwned\)")
            screen.until(r"ctx 50k \(window unknown\)")
            subprocess.run([*tmux, "source-file", str(conf)], check=True, **run)
            held = subprocess.run([*tmux, "show", "-gv", "status-right"], check=True, **run)
        finally:
            subprocess.run([*tmux, "kill-server"], check=False, **run)
    assert held.stdout.count(b"statusline") == 1
    assert not (home / "app" / "pwned").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_what_a_file_says_is_no_command_of_a_prompt(home: Path) -> None:
    slug = next((home / ".claude" / "projects").iterdir())
    evil = "$(touch pwned)`touch pwned`\\$"
    (slug / "s1.jsonl").write_bytes(lines(assistant("a1", None, tokens=50_000, model=evil)))
    program = f"{sys.executable} -m ullage statusline --in bash --format '{{used}} {{model}}'"
    script = f"f() {{ {program}; }}; PS1='$(f)'; echo \"${{PS1@P}}\""
    done = subprocess.run(
        ["bash", "-c", script],
        env={"HOME": str(home), "PYTHONPATH": str(SRC), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        cwd=home / "app",
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"50k $(touch pwned)" in done.stdout
    assert not (home / "app" / "pwned").exists()

"""`ullage statusline --install`: what is written into settings files, and how it is taken back."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ullage.cli import dotfiles, marks
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError

CALLED = "/opt/bin/ullage statusline"
VALUE = {"type": "command", "command": f"{CALLED} --in claude"}
OTHER = {"type": "command", "command": "~/.claude/mine.sh"}
TEXTS = ("tmux", "bash", "zsh", "fish")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(dotfiles, "command", lambda: CALLED)
    return tmp_path


def settings(home: Path, text: str | None = None) -> Path:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text, "utf-8")
    return path


# ── Claude Code ─────────────────────────────────────────────────────────────────────────────────

FORMS = (
    "{}",
    "{}\n",
    '{\n  "model": "opus"\n}\n',
    '{\n\t"model": "opus",\n\t"env": {"A": "}"}\n}',
    '{"model":"opus"}',
    '  {"a": [1, 2, {"statusLine": 3}]}  \n\n',
    '{\r\n    "model": "ö\\u00e9"\r\n}\r\n',
)


@pytest.mark.parametrize("before", FORMS)
def test_the_member_is_added_and_taken_back_byte_for_byte(before: str) -> None:
    made = dotfiles.install("claude", before.encode(), CALLED)
    assert json.loads(made) == {**json.loads(before), "statusLine": VALUE}
    assert dotfiles.install("claude", made, CALLED) == made
    assert dotfiles.uninstall("claude", made, before.encode(), CALLED) == before.encode()


@pytest.mark.parametrize("before", FORMS[2:])
def test_what_was_changed_since_stays_when_it_is_taken_back(before: str) -> None:
    made = dotfiles.install("claude", before.encode(), CALLED)
    text = made.decode()
    since = text.replace("{", '{"theme": "dark", ', 1).encode()
    left = dotfiles.uninstall("claude", since, before.encode(), CALLED)
    assert left is not None
    assert json.loads(left) == {"theme": "dark", **json.loads(before)}


def test_a_member_in_front_is_taken_out_too() -> None:
    text = json.dumps({"statusLine": VALUE, "model": "opus"}).encode()
    left = dotfiles.uninstall("claude", text, None, CALLED)
    assert json.loads(left or b"") == {"model": "opus"}


@given(
    some.dictionaries(
        some.text(max_size=8).filter(lambda name: name != "statusLine"),
        some.recursive(
            some.none() | some.booleans() | some.integers() | some.text(max_size=8),
            lambda inner: (
                some.lists(inner, max_size=3)
                | some.dictionaries(some.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        max_size=4,
    ),
    some.sampled_from([None, 0, 2, "\t"]),
    some.booleans(),
)
def test_any_object_is_added_to_and_restored(fields: Any, indent: Any, plain: bool) -> None:
    before = json.dumps(fields, indent=indent, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    try:
        before.decode()
    except UnicodeDecodeError:
        return
    made = dotfiles.install("claude", before, CALLED)
    assert json.loads(made) == {**fields, "statusLine": VALUE}
    assert dotfiles.uninstall("claude", made, before, CALLED) == before


@pytest.mark.parametrize(
    "text",
    ['{"a": 1} // mine', '{"a": 1,}', "[]", "7", '{"a": ', "/* c */ {}", "\ufeff{}", '{"a": [[[['],
)
def test_what_is_no_plain_json_is_refused_and_stays(home: Path, text: str) -> None:
    path = settings(home, text)
    with pytest.raises(ConfigurationError, match="is left as it is"):
        main_or_raise("--install", "claude", "--yes")
    assert path.read_text("utf-8") == text
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def main_or_raise(*words: str) -> int:
    """Run the command as `main` does, with errors as they are."""
    from ullage.cli.main import parser

    given = parser("statusline").parse_args(["statusline", *words])
    return dotfiles.run(given)


def test_the_status_line_of_somebody_else_is_shown_and_needs_force(
    home: Path, capsys: Capture
) -> None:
    text = json.dumps({"statusLine": OTHER, "model": "opus"}, indent=1)
    path = settings(home, text)
    assert main(["statusline", "--install", "claude", "--yes"]) == 1
    assert "mine.sh" in capsys.readouterr().err
    assert path.read_text() == text
    assert main(["statusline", "--install", "claude", "--yes", "--force"]) == 0
    assert json.loads(path.read_text()) == {"statusLine": VALUE, "model": "opus"}
    path.write_text(path.read_text().replace("opus", "sonnet"))
    assert main(["statusline", "--uninstall", "claude", "--yes"]) == 0
    assert path.read_text() == text.replace("opus", "sonnet")


def test_taking_back_leaves_the_status_line_of_somebody_else(home: Path, capsys: Capture) -> None:
    path = settings(home, json.dumps({"statusLine": OTHER}))
    assert main(["statusline", "--uninstall", "claude", "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert json.loads(path.read_text()) == {"statusLine": OTHER}


# ── the command ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["claude", *TEXTS])
def test_without_a_file_one_is_made_and_removed_again(
    home: Path, capsys: Capture, where: str
) -> None:
    path = dotfiles.find_path(where, os.environ)
    assert main(["statusline", "--install", where, "--yes"]) == 0
    out, err = capsys.readouterr()
    assert (out.startswith(f"--- {os.devnull}\n+++ {path}"), "wrote" in err) == (True, True)
    assert CALLED in path.read_text()
    assert main(["statusline", "--install", where, "--yes"]) == 0
    assert "is installed" in capsys.readouterr().err
    assert main(["statusline", "--uninstall", where, "--yes"]) == 0
    assert not path.exists()
    assert list(path.parent.iterdir()) == []
    assert main(["statusline", "--uninstall", where]) == 0
    assert "is not installed" in capsys.readouterr().err


def test_a_backup_is_kept_the_mode_stays_and_a_link_leads_on(home: Path) -> None:
    real = home / "dotfiles" / "bashrc"
    real.parent.mkdir()
    real.write_bytes(b"export A=1")
    real.chmod(0o600)
    (home / ".bashrc").symlink_to(real)
    assert main(["statusline", "--install", "bash", "--yes"]) == 0
    backup = home / f".bashrc{dotfiles.BACKUP}"
    assert backup.read_bytes() == b"export A=1"
    assert (home / ".bashrc").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert main(["statusline", "--uninstall", "bash", "--yes"]) == 0
    assert real.read_bytes() == b"export A=1"
    assert not backup.exists()


def test_without_an_answer_nothing_is_changed(home: Path, capsys: Capture, monkeypatch) -> None:
    path = settings(home, "{}")
    assert main(["statusline", "--install", "claude"]) == 1
    assert "--yes changes it" in capsys.readouterr().err
    monkeypatch.setattr(dotfiles, "is_terminal", lambda stream: True)
    for answer, code in (("", 1), ("n", 1), ("yes", 0)):
        monkeypatch.setattr("builtins.input", lambda prompt, answer=answer: answer)
        assert main(["statusline", "--install", "claude"]) == code
    assert "statusLine" in path.read_text()


def test_only_one_of_both_is_taken(home: Path, capsys: Capture) -> None:
    assert main(["statusline", "--install", "bash", "--uninstall", "bash"]) == 1
    assert "not both" in capsys.readouterr().err


def test_the_diff_steers_no_terminal(home: Path, capsys: Capture) -> None:
    (home / ".bashrc").write_bytes(b"PS1='\x1b]0;owned\x07'\n\xff\n")
    assert main(["statusline", "--install", "bash", "--yes"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert (home / ".bashrc").read_bytes().startswith(b"PS1='\x1b]0;owned\x07'\n\xff\n")


def test_paths_follow_the_variables_of_the_programs(tmp_path: Path) -> None:
    home = str(tmp_path)
    named = {"HOME": home, "CLAUDE_CONFIG_DIR": "/c,/d", "ZDOTDIR": "/z", "XDG_CONFIG_HOME": home}
    assert dotfiles.find_path("claude", named) == Path("/c/settings.json")
    assert dotfiles.find_path("zsh", named) == Path("/z/.zshrc")
    assert dotfiles.find_path("fish", named) == tmp_path / "fish" / "config.fish"
    (tmp_path / "tmux").mkdir()
    (tmp_path / "tmux" / "tmux.conf").touch()
    assert dotfiles.find_path("tmux", named) == tmp_path / "tmux" / "tmux.conf"
    (tmp_path / ".tmux.conf").touch()
    assert dotfiles.find_path("tmux", named) == tmp_path / ".tmux.conf"


def test_the_command_is_called_by_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: "/my tools/ullage")
    assert dotfiles.command() == "'/my tools/ullage' statusline"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert dotfiles.command() == f"{tmp_path}/python -P -m ullage statusline"
    (tmp_path / "ullage").touch()
    assert dotfiles.command() == f"{tmp_path}/ullage statusline"


# ── blocks in text files ────────────────────────────────────────────────────────────────────────


@given(some.binary(max_size=60), some.binary(max_size=20))
def test_a_block_is_added_once_and_taken_back(before: bytes, behind: bytes) -> None:
    made = marks.add_block(before, "x\n")
    assert made.startswith(before)
    assert marks.add_block(made, "x\n") == made
    assert marks.add_block(made, "y\n") == made.replace(b"\nx\n", b"\ny\n")
    assert marks.remove_block(made) == before
    kept = before if before.endswith(b"\n") or not before else before + b"\n"
    assert marks.remove_block(made + behind) == (kept + behind if behind else before)


@pytest.mark.parametrize(
    "text",
    [f"{marks.BEGIN}\n", f"{marks.END}\n", f"{marks.END}\n{marks.BEGIN}\n", f"{marks.BEGIN}\n" * 2],
)
def test_marks_without_their_pair_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="do not match"):
        marks.add_block(text.encode(), "x\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_put_into_a_shells_file_is_taken_by_the_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    path = tmp_path / "rc"
    path.write_bytes(dotfiles.install(shell, b"", "true statusline"))
    subprocess.run([shell, "-n", str(path)], check=True, timeout=20)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_has_the_line_once_in_its_prompt_however_often_the_file_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rc"
    path.write_bytes(dotfiles.install("bash", b"PS1='$ '\n", "echo"))
    script = f'source {path}; . <(tail -n +2 {path}); echo "$PS1|${{PS1@P}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=20)
    assert done.stdout == b"$(__ullage_line)$ |--in bash --quiet --width 60$ \n"


# ── what cannot be read or written ──────────────────────────────────────────────────────────────


def test_a_file_that_cannot_be_read_or_written_is_named(home: Path, capsys: Capture) -> None:
    (home / ".bashrc").mkdir()
    assert main(["statusline", "--install", "bash", "--yes"]) == 1
    assert ".bashrc cannot be read" in capsys.readouterr().err
    (home / ".config").write_text("a file, no folder")
    assert main(["statusline", "--install", "fish", "--yes"]) == 1
    assert "cannot be" in capsys.readouterr().err


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(home, "{}")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    assert main(["statusline", "--install", "claude", "--yes"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("settings.json", "{}")]


@pytest.mark.parametrize("data", [b"\xff{}", b"", b"{}", b"  \n"])
def test_what_holds_no_status_line_is_taken_back_to_itself(data: bytes) -> None:
    if data.startswith(b"\xff"):
        with pytest.raises(ValueError, match="no UTF-8"):
            dotfiles.uninstall("claude", data, None, CALLED)
    else:
        assert dotfiles.uninstall("claude", data, None, CALLED) == data
    assert dotfiles.uninstall("bash", data, None, CALLED) == data
    assert dotfiles.uninstall("bash", None, None, CALLED) is None


def test_of_a_name_that_stands_there_twice_the_last_one_counts() -> None:
    text = b'{"a": 1, "statusLine": {"command": "x"}, "statusLine": {"command": "y"}}'
    made = json.loads(dotfiles.install("claude", text, CALLED, force=True))
    assert made == {"a": 1, "statusLine": VALUE}


def test_another_path_of_this_program_is_replaced_without_force() -> None:
    made = dotfiles.install("claude", b'{"a": 1}', "/old/ullage statusline")
    again = dotfiles.install("claude", made, CALLED)
    assert json.loads(again)["statusLine"] == VALUE
    assert dotfiles.uninstall("claude", again, b'{"a": 1}', CALLED) == b'{"a": 1}'
    assert dotfiles.uninstall("claude", made, b'{"a": 1}', CALLED) == b'{"a": 1}'


@pytest.mark.parametrize("ending", [EOFError, KeyboardInterrupt])
def test_an_answer_that_never_comes_is_a_no(
    home: Path, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]
) -> None:
    def leave(prompt: str) -> str:
        raise ending

    monkeypatch.setattr(dotfiles, "is_terminal", lambda stream: True)
    monkeypatch.setattr("builtins.input", leave)
    assert main(["statusline", "--install", "bash"]) == 1
    assert not (home / ".bashrc").exists()

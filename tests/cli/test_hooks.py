"""`ullage hooks`: what is written into settings of clients, and what the hooks say to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ullage.cli import dotfiles, hooks, reminder
from ullage.cli.main import main

CALLED = "/opt/bin/ullage"
MINE = {"hooks": [{"type": "command", "command": "mine.sh"}]}
Capture = pytest.CaptureFixture[str]
Write = Callable[..., Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(dotfiles, "command", lambda name="statusline": f"{CALLED} {name}")
    return tmp_path


def write(where: str, text: str) -> Path:
    path = hooks.find_path(where, os.environ)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


# ── settings ────────────────────────────────────────────────────────────────────────────────────

FORMS = (
    "{}",
    '{\n  "model": "opus"\n}\n',
    json.dumps({"hooks": {"PreCompact": [MINE], "Stop": [MINE]}, "model": "opus"}, indent=2),
    json.dumps({"hooks": {"PreCompact": [MINE]}, "statusLine": {"command": "mine"}}),
)


@pytest.mark.parametrize("where", ["claude", "codex"])
@pytest.mark.parametrize("text", FORMS)
def test_hooks_stand_beside_those_of_others_and_are_taken_back_byte_for_byte(
    home: Path, capsys: Capture, where: str, text: str
) -> None:
    path = write(where, text)
    assert main(["hooks", "--install", where, "--yes"]) == 0
    assert capsys.readouterr().out.startswith(f"--- {path}\n+++ {path}")
    made, before = json.loads(path.read_text()), json.loads(text)
    for event, matcher in hooks.EVENTS[where].items():
        *others, ours = made["hooks"][event]
        assert others == before.get("hooks", {}).get(event, [])
        assert ours.get("matcher", "") == matcher
        assert ours["hooks"][0]["command"] == f"{CALLED} hooks --run {where}"
    if where == "claude":
        default = {"type": "command", "command": f"{CALLED} statusline --in claude"}
        assert made["statusLine"] == before.get("statusLine", default)
    assert main(["hooks", "--install", where, "--yes"]) == 0
    assert "nothing to do: hooks installed" in capsys.readouterr().err
    assert main(["hooks", "--uninstall", where, "--yes"]) == 0
    assert path.read_bytes() == text.encode()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("text", FORMS)
def test_what_was_changed_since_stays(home: Path, text: str) -> None:
    path = write("claude", text)
    assert main(["hooks", "--install", "claude", "--yes"]) == 0
    made: dict[str, Any] = json.loads(path.read_text())
    made["theme"] = "dark"
    made["hooks"]["Stop"] = [MINE, MINE]
    path.write_text(json.dumps(made, indent=2))
    assert main(["hooks", "--uninstall", "claude", "--yes"]) == 0
    before = json.loads(text)
    kept = {**before.get("hooks", {}), "Stop": [MINE, MINE]}
    assert json.loads(path.read_text()) == {**before, "theme": "dark", "hooks": kept}


def test_without_a_file_one_is_made_and_removed_and_nothing_happens_unasked(
    home: Path, capsys: Capture
) -> None:
    path = hooks.find_path("codex", os.environ)
    assert main(["hooks", "--install", "codex"]) == 1
    assert not path.exists()
    assert main(["hooks", "--install", "codex", "--yes"]) == 0
    assert "trust it: say /hooks" in capsys.readouterr().err
    assert main(["hooks", "--uninstall", "codex", "--yes"]) == 0
    assert not path.exists()
    assert main(["hooks", "--uninstall", "codex"]) == 0
    assert "nothing to do: hooks not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["// comment\n{}", '{"hooks": 3}', '{"hooks": {"PreCompact": {}}}']
)
def test_a_file_of_another_form_is_left(home: Path, capsys: Capture, text: str) -> None:
    path = write("claude", text)
    assert main(["hooks", "--install", "claude", "--yes"]) == 1
    assert "is left as it is" in capsys.readouterr().err
    assert path.read_text() == text


def test_the_status_line_and_the_hooks_come_and_go_by_themselves(home: Path) -> None:
    path = write("claude", '{\n  "model": "opus"\n}\n')
    assert main(["statusline", "--install", "claude", "--yes"]) == 0
    lined = path.read_bytes()
    assert main(["hooks", "--install", "claude", "--yes"]) == 0
    assert main(["hooks", "--uninstall", "claude", "--yes"]) == 0
    assert path.read_bytes() == lined
    assert main(["statusline", "--uninstall", "claude", "--yes"]) == 0
    assert path.read_text() == '{\n  "model": "opus"\n}\n'


# ── what they say ───────────────────────────────────────────────────────────────────────────────

RULE = "Never touch the file cellar.py."
OTHER = "Always answer in French."


def claude_file(tmp_path: Path, summary: str | None = None) -> Path:
    """Write a session of Claude Code, compacted where there is a summary."""
    said = [("user", f"{RULE} {OTHER} What is in this folder?"), ("assistant", "Casks.")]
    lines: list[dict[str, Any]] = []
    for number, (role, text) in enumerate(said):
        content = text if role == "user" else [{"type": "text", "text": text}]
        lines.append(
            {"type": role, "uuid": f"u{number}", "message": {"role": role, "content": content}}
        )
        lines[-1]["parentUuid"] = f"u{number - 1}" if number else None
    if summary is not None:
        bound = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
        message = {"role": "user", "content": summary}
        told = {"type": "user", "uuid": "s", "parentUuid": "b", "isCompactSummary": True}
        lines += [{**bound, "logicalParentUuid": "u1"}, {**told, "message": message}]
    path = tmp_path / "session.jsonl"
    rows = [{"sessionId": "s", "version": "2.1.330", **line} for line in lines]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_before_a_compaction_the_rules_are_told_word_for_word(tmp_path: Path) -> None:
    text = reminder.remind("PreCompact", str(claude_file(tmp_path)), "claude")
    assert text.startswith("Keep these in the summary word for word.")
    assert RULE in text
    assert OTHER in text
    assert len(text) < 10_000


def test_after_a_compaction_only_what_the_summary_lost_is_told(tmp_path: Path) -> None:
    path = claude_file(tmp_path, f"The user wants: {OTHER}")
    told = json.loads(reminder.remind("SessionStart", str(path), "claude"))["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    assert RULE in told["additionalContext"]
    assert OTHER not in told["additionalContext"]
    path = claude_file(tmp_path, f"The user wants: {OTHER} {RULE}")
    assert reminder.remind("SessionStart", str(path), "claude") == ""
    assert reminder.remind("Stop", str(path), "claude") == ""


def test_rules_are_told_again_where_the_summary_is_not_in_the_file_yet(tmp_path: Path) -> None:
    told = json.loads(reminder.remind("SessionStart", str(claude_file(tmp_path)), "claude"))
    assert RULE in told["hookSpecificOutput"]["additionalContext"]


def call_hook(stdin: bytes, where: str = "claude") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ullage", "hooks", "--run", where]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def test_the_hook_answers_its_event_on_stdout(tmp_path: Path) -> None:
    event = {"hook_event_name": "PreCompact", "transcript_path": str(claude_file(tmp_path))}
    done = call_hook(json.dumps({**event, "trigger": "auto", "custom_instructions": None}).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert RULE.encode() in done.stdout


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (b"", "holds no event"),
        (b"[1]", "holds no event"),
        (b'{"hook_event_name": "PreCompact", "transcript_path": "/nowhere"}', "/nowhere"),
        (b'{"hook_event_name": "PreCompact", "transcript_path": "/dev/null"}', "no session"),
    ],
)
def test_a_hook_never_fails_and_says_on_stderr_what_went_wrong(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, stdin: bytes, told: str
) -> None:
    monkeypatch.setattr("ullage.cli.stations.read_stdin", lambda: stdin)
    assert main(["hooks", "--run", "claude"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err

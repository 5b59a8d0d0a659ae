"""Where sessions lie: the newest, one by its id, and what is told where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError
from ullage.importers import find, latest
from ullage.importers.places import by_subagent, folders, stat_file

ONE = "11111111-aaaa-4000-8000-000000000001"
TWO = "11111111-bbbb-4000-8000-000000000002"


def put(path: Path, age: int, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (2_000_000_000 - age, 2_000_000_000 - age))
    return path


def rollout(
    home: Path, name: str, age: int, header: object = None, place: str = "sessions"
) -> Path:
    path = home / ".codex" / place / "2026" / "03" / "12" / f"rollout-2026-03-12T10-00-00-{name}"
    return put(path, age, json.dumps(header).encode() + b"\n")


def test_the_newest_transcript_is_found_in_either_folder(tmp_path):
    environ = {"HOME": str(tmp_path)}
    put(tmp_path / ".claude/projects/-home-dev-shop/a.jsonl", 50)
    newest = put(tmp_path / ".config/claude/projects/-home-dev-shop/b.jsonl", 10)
    assert latest("claude", environ) == newest
    newer = put(tmp_path / ".claude/projects/-home-dev-shop/c.jsonl", 5)
    assert latest("claude", environ) == newer


def test_subagents_and_empty_files_are_no_newest_session(tmp_path):
    project = tmp_path / ".claude/projects/-home-dev-shop"
    session = put(project / "a.jsonl", 50)
    put(project / "agent-7.jsonl", 4)
    put(project / "a/subagents/agent-8.jsonl", 3)
    put(project / "b.jsonl", 2, b"")
    assert latest("claude", {"HOME": str(tmp_path)}) == session


def test_the_variable_names_the_only_folders(tmp_path):
    put(tmp_path / ".claude/projects/p/a.jsonl", 1)
    there = put(tmp_path / "two/projects/p/b.jsonl", 9)
    named = f"{tmp_path / 'one'}, {tmp_path / 'two'}/projects ,"
    environ = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": named}
    assert folders("claude", environ) == [
        tmp_path / "one" / "projects",
        tmp_path / "two" / "projects",
    ]
    assert latest("claude", environ) == there


def test_homes_of_other_platforms_and_settings_are_honoured(tmp_path):
    home = str(tmp_path)
    assert folders("claude", {"USERPROFILE": home})[0] == tmp_path / ".claude" / "projects"
    moved = folders("claude", {"HOME": home, "XDG_CONFIG_HOME": "/etc/xdg"})
    assert moved[1] == Path("/etc/xdg/claude/projects")
    assert folders("codex", {"CODEX_HOME": "/srv/codex"})[0] == Path("/srv/codex/sessions")
    assert folders("codex", {})[0] == Path.home() / ".codex" / "sessions"


def test_the_newest_rollout_is_found_and_subagents_are_passed_over(tmp_path):
    environ = {"HOME": str(tmp_path)}
    child = {"payload": {"source": {"subagent": "review"}}}
    rollout(tmp_path, f"{ONE}.jsonl", 1, child)
    packed = rollout(tmp_path, f"{TWO}.jsonl.zst", 5)
    rollout(tmp_path, f"{TWO[:-1]}9.jsonl", 9, [3], "archived_sessions")
    assert latest("codex", environ) == packed
    plain = rollout(tmp_path, f"{TWO}.jsonl", 7, {"payload": {"source": "cli"}})
    assert latest("codex", environ) == plain


def test_a_session_is_found_by_the_beginning_of_its_id(tmp_path):
    environ = {"HOME": str(tmp_path)}
    path = rollout(tmp_path, f"{ONE}.jsonl", 1)
    rollout(tmp_path, f"{TWO}.jsonl", 1)
    assert find("codex", "11111111-aaaa", environ) == path
    transcript = put(tmp_path / f".claude/projects/p/{ONE}.jsonl", 1)
    put(tmp_path / f".claude/projects/p/{ONE}-2.jsonl", 1)
    assert find("claude", ONE, environ) == transcript


def test_an_id_of_several_sessions_or_of_none_is_refused(tmp_path):
    environ = {"HOME": str(tmp_path)}
    rollout(tmp_path, f"{ONE}.jsonl", 1)
    rollout(tmp_path, f"{TWO}.jsonl", 1)
    with pytest.raises(ConfigurationError, match="2 sessions of codex have an id that begins"):
        find("codex", "1111", environ)
    for absent in ("9", ""):
        with pytest.raises(ConfigurationError, match=r"no session of codex .*archived_sessions"):
            find("codex", absent, environ)


def test_where_nothing_is_found_the_places_are_named(tmp_path):
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(
        ConfigurationError, match=r"\.claude/projects or .*\.config/claude/projects"
    ):
        latest("claude", environ)
    with pytest.raises(ConfigurationError, match=r"\.codex/sessions or .*archived_sessions"):
        latest("codex", environ)


def test_a_program_without_known_folders_is_refused():
    with pytest.raises(ConfigurationError, match="expected one of claude, codex"):
        latest("vim", {"HOME": "/nowhere"})


def test_folders_and_broken_links_are_no_sessions(tmp_path):
    project = tmp_path / ".claude/projects/p"
    session = put(project / "a.jsonl", 9)
    (project / "b.jsonl").symlink_to(tmp_path / "gone")
    (project / "c.jsonl").mkdir()
    assert latest("claude", {"HOME": str(tmp_path)}) == session


def test_a_file_that_goes_away_while_it_is_looked_at_is_passed_over(tmp_path):
    assert stat_file(tmp_path / "gone")[1] == 0
    assert not by_subagent(tmp_path / "gone")


def test_the_environment_of_the_process_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = put(tmp_path / "projects/p/abc.jsonl", 9)
    assert latest("claude") == find("claude", "ab") == session

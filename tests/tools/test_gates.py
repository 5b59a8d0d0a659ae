"""The gates read the files that git sees, and the list of waivers may only shrink."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import gates
from tools.files import Finding, tracked

LONG = Finding("function-lines", "src/a.py", 3, "f", "f has 80 lines")
COVER = gates.Waiver("function-lines", "src/a.py", "f", "one table")


def texts(found, count, waivers) -> list[str]:
    return [f.text for f in gates.judge(found, count, waivers)]


def test_a_waiver_covers_its_breach():
    assert texts([LONG], 1, [COVER]) == []


def test_a_breach_without_a_waiver_stands():
    assert texts([LONG], 0, []) == [LONG.text]


@pytest.mark.parametrize(
    "other",
    [
        gates.Waiver("file-lines", "src/a.py", "f", "why"),
        gates.Waiver("function-lines", "src/b.py", "f", "why"),
        gates.Waiver("function-lines", "src/a.py", "g", "why"),
    ],
)
def test_a_waiver_covers_nothing_else(other):
    assert LONG.text in texts([LONG], 1, [other])


def test_a_waiver_that_is_no_longer_needed_fails():
    (text,) = texts([], 1, [COVER])
    assert "no longer needed" in text


def test_a_waiver_gives_a_reason():
    (text,) = texts([LONG], 1, [gates.Waiver(COVER.rule, COVER.path, COVER.name, "")])
    assert "gives no reason" in text


@pytest.mark.parametrize("count", [0, 2])
def test_the_list_is_as_long_as_it_says(count):
    (text,) = texts([LONG], count, [COVER])
    assert f"count = {count}" in text


@pytest.fixture
def repository(needs_git: None, tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored/\n")
    (tmp_path / "ignored").mkdir()
    (tmp_path / "ignored" / "utils.py").write_text("x = 1\n")
    (tmp_path / "fine.py").write_text('"""Fine."""\n')
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe\x00")
    return tmp_path


def test_what_git_ignores_is_not_looked_at(repository):
    assert tracked(repository) == [".gitignore", "fine.py", "picture.bin"]


def test_without_git_hidden_folders_are_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.py").touch()
    (tmp_path / "seen.py").touch()
    assert tracked(tmp_path) == ["seen.py"]
    monkeypatch.setenv("PATH", "")  # a machine with Python and make, and no git at all
    assert tracked(tmp_path) == ["seen.py"]
    assert gates.main([str(tmp_path)]) == 0


def test_a_sound_repository_opens_the_gates(repository, capsys):
    assert gates.main([str(repository)]) == 0
    assert capsys.readouterr().out == "0 findings, 0 waivers\n"


def test_a_breach_shuts_the_gates(repository, capsys):
    (repository / "loose.py").write_text("x = 1\n")
    assert gates.main([str(repository)]) == 1
    assert "loose.py:1: module-docstring" in capsys.readouterr().out


def test_the_list_of_waivers_is_read(repository, capsys):
    (repository / "loose.py").write_text("x = 1\n")
    (repository / "tools").mkdir()
    (repository / "tools" / "waivers.toml").write_text(
        'count = 1\n[[waiver]]\nrule = "module-docstring"\npath = "loose.py"\nreason = "made"\n'
    )
    assert gates.main([str(repository)]) == 0
    assert capsys.readouterr().out == "0 findings, 1 waivers\n"

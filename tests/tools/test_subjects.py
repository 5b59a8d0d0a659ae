"""A commit's subject says what changed; one that does not shuts the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import subjects


@pytest.mark.parametrize(
    "subject",
    [
        "Add Gemini as a dialect",
        "Feed the stream in pieces, so that a large answer is read as it comes",
        "Read tiktoken when it is first needed",
    ],
)
def test_a_verb_and_what_it_did_pass(subject):
    assert subjects.explain(subject) is None


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Format code", "2 words"),
        ("wip on the parser", "does not say what changed"),
        ("fix several more things", "does not say what changed"),
        ("xxx yyy zzz", "does not say what changed"),
        ("Serve: lock what it needs", "begins with 'Serve:'"),
        ("feat(guard)!: a port for programs", "begins with 'feat(guard)!:'"),
        ("The guard has a port", "begin with a verb"),
        ("2 tests more for usage", "begin with a verb"),
        ("Added a port to the guard", "imperative"),
        ("Adding a port to the guard", "imperative"),
        (f"Add {'many ' * 30}words", "the most is 120"),
    ],
)
def test_a_subject_that_does_not_say_what_changed_is_explained(subject, fault):
    assert fault in (subjects.explain(subject) or "")


def git(root: Path, *words: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", "-C", str(root), *person, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(needs_git: None, tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for subject in ("wip", "Add the parser here", "wip again", "Begin with the parser"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    return tmp_path


def start(root: Path, commit: str) -> None:
    (root / "pyproject.toml").write_text(f'[tool.ullage.subjects]\nafter = "{commit}"\n')


def test_only_commits_behind_the_start_are_read(repository, capsys):
    start(repository, git(repository, "rev-parse", "HEAD~3"))
    assert subjects.main(repository) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "'wip again' has 2 words" in line


def test_sound_subjects_pass(repository):
    start(repository, git(repository, "rev-parse", "HEAD~1"))
    assert subjects.main(repository) == 0


def test_without_a_start_nothing_is_read(repository):
    assert list(subjects.check(repository)) == []


def test_a_start_that_git_does_not_know_reads_nothing(repository):
    start(repository, "0" * 40)
    assert list(subjects.check(repository)) == []

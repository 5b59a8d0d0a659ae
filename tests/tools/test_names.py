"""Bare participles and names that mean two things are counted, and the counts may only fall."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tools import names

SOURCE = """
class Reader:
    def told(self): ...
    async def _opened(self): ...
    @property
    def closed(self): ...
    @functools.cached_property
    def seen(self): ...
    @typing.override
    def kept(self):
        def found(): ...
    def read(self): ...
    def find_kept(self): ...
"""


@pytest.mark.parametrize(
    "name",
    [
        *("told", "_told", "opened", "__held", "rewritten", "unseen", "withheld", "understood"),
        *("used", "said_by", "_broken_off", "tried_again", "strung"),
    ],
)
def test_a_bare_participle_counts(name):
    assert names.is_participle(name)


@pytest.mark.parametrize(
    "name",
    [
        *("read", "cut", "put", "set", "let", "split", "hit", "run", "rung"),
        *("need", "feed", "embed", "seed", "succeed", "red", "_"),
        *("is_closed", "find_kept", "record_event", "told_twice", "error", "__init__", "overheads"),
        *("known_policies", "check_in", "said_what", "read_by"),
    ],
)
def test_a_verb_and_a_name_of_two_words_do_not_count(name):
    assert not names.is_participle(name)


def test_properties_are_counted_apart():
    found = [(n.kind, n.name) for n in names.find_participles("src/a.py", ast.parse(SOURCE))]
    assert sorted(found) == [
        ("functions", "_opened"),
        ("functions", "found"),
        ("functions", "kept"),
        ("functions", "told"),
        ("properties", "closed"),
        ("properties", "seen"),
    ]


def test_a_public_class_name_means_one_thing():
    modules = {
        "src/a.py": ast.parse("class Reader: ...\nclass _Part: ..."),
        "src/b.py": ast.parse("class _Part: ...\nclass Reader: ...\nclass Writer: ..."),
    }
    assert [str(n) for n in names.find_twice(modules)] == ["src/b.py:2: twice: Reader"]


@pytest.fixture
def repository(needs_git: None, tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def told(): ...\n")
    (tmp_path / "elsewhere.py").write_text("def told(): ...\n")
    return tmp_path


def limit(root: Path, count: int) -> list[str]:
    (root / "pyproject.toml").write_text(f"[tool.ullage.names]\nfunctions = {count}\n")
    return [finding.text for finding in names.check(root)]


def test_a_count_at_its_limit_passes(repository):
    assert limit(repository, 1) == []


def test_one_name_more_than_the_limit_fails(repository):
    (text,) = limit(repository, 0)
    assert text.startswith("1 functions are named by a bare participle")


def test_a_limit_above_the_count_fails_so_that_it_is_lowered(repository):
    (text,) = limit(repository, 2)
    assert "lower the limit functions = 2 to 1" in text


def test_without_a_table_there_may_be_none(repository):
    assert [finding.name for finding in names.check(repository)] == ["functions"]


def test_the_command_lists_what_counts(repository, capsys):
    assert names.main(repository) == 0
    assert capsys.readouterr().out == "src/a.py:1: functions: told\n"

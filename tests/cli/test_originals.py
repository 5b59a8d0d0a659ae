"""`ullage originals`: move, read as before, fetch, sweep."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ullage.agent import Draft, Session
from ullage.cli.main import main
from ullage.core.compaction.edits import reference
from ullage.storage import open_log, open_store

Run = Callable[..., int]
Capture = pytest.CaptureFixture[str]
LONG = "The gauge of cask 4711 reads seven at line 88. " * 1_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:{tmp_path / 's.db'}"
    log = open_log(made)
    with Session.create(log, "s", now=lambda: 1.0) as session:
        session.record([Draft("user_message", {"text": LONG})])
    log.close()
    store = open_store(made, now=lambda: time.time() - 8 * 24 * 3600.0)
    store.originals.keep({"u:1": f"kept {LONG}"})
    store.close()
    return made


@pytest.fixture
def run(url: str) -> Run:
    return lambda *words: main(["originals", *words, "--store", url])


def test_texts_move_and_come_back(run: Run, url: str, tmp_path: Path, capsys: Capture):
    place = f"file://{tmp_path}/texts"
    assert run("move", "--place", place, "--dry-run") == 0
    assert "2 texts of 94,0" in capsys.readouterr().out
    assert not (tmp_path / "texts").exists()
    assert run("move", "--place", place) == 0
    assert f"from 1 sessions, moved to {place}" in capsys.readouterr().out
    assert len(list((tmp_path / "texts").glob("*/*"))) == 2
    for name, text in ((reference(LONG), LONG), ("u:1", f"kept {LONG}")):
        assert main(["recall", name, "--store", url]) == 0
        assert text in capsys.readouterr().out
    assert main(["verify", "s", "--store", url]) == 0
    assert run("fetch") == 0
    assert "2 texts of 94,0" in capsys.readouterr().out
    assert list((tmp_path / "texts").glob("*/*")) == []


def test_a_lost_text_is_told_by_recall_and_fetch(
    run: Run, url: str, tmp_path: Path, capsys: Capture
):
    run("move", "--place", f"file://{tmp_path}/texts")
    for path in (tmp_path / "texts").glob("*/*"):
        path.unlink()
    capsys.readouterr()
    assert main(["recall", reference(LONG), "--store", url]) == 1
    assert "no such object: restore it from a backup" in capsys.readouterr().err
    assert run("fetch") == 1
    assert capsys.readouterr().out.count("lost  file://") == 2


def test_a_sweep_names_what_nothing_names(run: Run, tmp_path: Path, capsys: Capture):
    place = f"file://{tmp_path}/texts"
    run("move", "--place", place)
    left = tmp_path / "texts" / "ab" / "left"
    left.parent.mkdir(exist_ok=True)
    left.write_text("x")
    capsys.readouterr()
    assert run("sweep", "--place", place) == 0
    assert "0 objects" in capsys.readouterr().err, "it may be about to be named"
    old = time.time() - 2 * 24 * 3600
    for path in (tmp_path / "texts").glob("*/*"):
        os.utime(path, (old, old))
    assert run("sweep", "--place", place) == 0
    assert capsys.readouterr().out == f"{place}/ab/left\n"
    assert left.exists()
    assert run("sweep", "--place", place, "--delete") == 1
    assert "--yes" in capsys.readouterr().err
    assert run("sweep", "--place", place, "--delete", "--yes") == 0
    assert not left.exists()
    assert len([path for path in (tmp_path / "texts").glob("*/*") if path.is_file()]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("move",), "say where"),
        (("sweep",), "say where"),
        (("move", "--place", "ftp://x"), "names no place"),
        (("move", "--place", "file:///x", "--older-than", "-1"), "0 days or more"),
        (("move", "--place", "file:///x", "--least", "0"), "1 byte or more"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, capsys: Capture, words: tuple[str, ...], told: str):
    assert run(*words) in {1, 2}
    assert told in capsys.readouterr().err

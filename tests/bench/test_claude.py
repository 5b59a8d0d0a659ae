"""The made-up session of the bench is one that the importer reads, and as large as asked for."""

from __future__ import annotations

from pathlib import Path

from bench import claude
from ullage import importers

MEGABYTES = 1.2


def test_the_session_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    claude.write(file, MEGABYTES)
    assert MEGABYTES <= file.stat().st_size / 1e6 < MEGABYTES + 0.2
    session = importers.load(file)
    assert session.source == "claude"
    assert not session.unread
    assert not session.warnings
    lines = file.read_text(encoding="utf-8").splitlines()
    boundaries = sum("compact_boundary" in line for line in lines)
    assert boundaries > 0
    assert sum(turn.compacted for turn in session.turns) == boundaries
    assert all(turn.tokens for turn in session.turns)


def test_the_same_size_is_the_same_session(tmp_path: Path) -> None:
    for name in ("one", "other"):
        claude.write(tmp_path / name, 0.1)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()

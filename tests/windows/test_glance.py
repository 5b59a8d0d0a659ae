"""The short way to a bound tells what the table does, for every row."""

from __future__ import annotations

import pytest

from ullage.windows import glance
from ullage.windows.table import WindowTable


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_every_bound_is_that_of_the_table(provider: str) -> None:
    book = WindowTable().book
    rows = [row for row in book.rows() if row.provider == provider]
    assert len(rows) > 20
    assert [glance.find_bound(row.model, provider) for row in rows] == [row.bound for row in rows]


@pytest.mark.parametrize("model", ["", "no-such-model", "claude-opus-5\t2", "a\nb", "[openai]"])
def test_what_is_no_id_has_no_bound(model: str) -> None:
    assert glance.find_bound(model) is None


def test_without_a_table_nothing_is_known(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(glance, "FILE", str(tmp_path / "none.gz"))
    assert glance.find_bound("claude-opus-5") is None
    (tmp_path / "none.gz").write_bytes(b"no gzip")
    assert glance.find_bound("claude-opus-5") is None

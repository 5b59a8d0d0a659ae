"""How SQLite finds what the statements of a store ask for."""

from __future__ import annotations

from pathlib import Path

from ullage.storage.sqlite import SqliteStore


def test_what_is_out_of_time_is_found_by_its_time_of_use(tmp_path: Path) -> None:
    # by its kind every row of one would be read: of 8,000 conversations in 6 ms
    store = SqliteStore(tmp_path / "store.db")
    records = store.conversations._records
    sql = f"EXPLAIN QUERY PLAN {records.engine.statements.expire}"
    with records.database.writing() as writer:
        steps = writer.execute(sql, {"kind": "conversation", "before": 1.0}).fetchall()
    said = [step[3] for step in steps]
    assert "SEARCH records USING INDEX records_used (used<?)" in said
    assert "SEARCH records USING INDEX records_turn (kind=?)" not in said
    store.close()

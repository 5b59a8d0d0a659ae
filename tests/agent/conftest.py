"""A session of a log in a file, as most of these tests have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage.agent import Session
from ullage.storage.log_sqlite import SqliteLog


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    log = SqliteLog(tmp_path / "state" / "log.db")
    with Session.create(log, "s") as made:
        yield made
    log.close()

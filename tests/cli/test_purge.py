"""`ullage sessions purge`: what is out of time goes, what is not stays, and it is said how much."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.storage.records import checkpoint, talk
from ullage.cli.main import main
from ullage.storage import open_store
from ullage.storage.protocol import WEEK_S


def test_what_nobody_used_for_a_week_is_forgotten(tmp_path: Path, capsys: Any):
    url = f"sqlite:{tmp_path}/proxy.db"
    old = open_store(url, now=lambda: time.time() - WEEK_S - 60)
    old.conversations.save(talk("old"))
    old.close()
    new = open_store(url, create=False)  # making one would purge it
    new.checkpoints.save(checkpoint("new", 1))
    new.close()
    assert main(["sessions", "purge", "--store", url]) == 0
    assert "1 record forgotten in sqlite:" in capsys.readouterr().out
    left = open_store(url)
    assert [found.prefix for found in left.checkpoints.all()] == ["new"]
    assert left.conversations.load("s", ["old"]) is None
    left.close()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: Any):
    assert main(["sessions", "purge", "--store", f"sqlite:{tmp_path}/none.db"]) == 1
    assert "none.db" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()

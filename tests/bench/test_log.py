"""The bench of the log measures what it says, and its part of the page is made of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import log
from ullage.core.session.log.event import Draft
from ullage.core.session.log.fold import Round, fold
from ullage.storage.log import Owner
from ullage.storage.log_memory import MemoryLog


def test_a_small_run_gives_all_that_the_page_shows(tmp_path: Path) -> None:
    found: dict[str, Any] = {
        "append": log.appends(tmp_path / "append", 20),
        "threads": {"4": log.crowd(tmp_path / "threads", 4, 5)},
        "fold": log.folds(tmp_path / "fold.db", 240, 1),
    }
    assert {len(times) for times in found["append"].values()} == {20}
    assert len(found["threads"]["4"]["append"]) == 20
    page = log.shown({"log": found})
    assert "| an append |" in page
    assert "A session of 240 events" in page


def test_the_session_is_a_lawful_one() -> None:
    drafts = list(log.session(120))
    assert all(isinstance(draft, Draft) for draft in drafts)
    store = MemoryLog()
    store.create("s", 1.0)
    state = fold(store.append("s", store.acquire("s", Owner.here(), 1.0).epoch, 0, drafts, 1.0))
    rounds = [item for item in state.items if isinstance(item, Round)]
    assert state.head == 120
    assert (state.open_calls, state.strays, state.turn) == ([], [], None)
    assert sum(len(held.calls) for held in rounds) == 20

"""Logs that version 1 wrote are read for ever: line by line as they are, and into the same fold.

The files in `v1` are never written again. A change that makes one of these tests fail is a change
of the format: it needs a new version and an upcast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.logs.folded import folded
from ullage.core.session.log.event import DURABLE, Event
from ullage.core.session.log.fold import Branch, Fold, User, fold
from ullage.storage.log import Owner
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog
from ullage.storage.ndjson import bring_in, export, lines, parse, verify

V1: Final = Path(__file__).parent / "v1"
NAMES: Final = (
    *("plain", "tools", "compacted", "crashed", "fork", "strange", "files", "remembered"),
    *("erased", "pinned"),
)


def logged(name: str) -> tuple[Event, ...]:
    """Return the events of a file."""
    return parse((V1 / f"{name}.ndjson").read_bytes(), name).events


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_version_1_is_read_and_passed_on_byte_for_byte(name: str, tmp_path: Path):
    whole = (V1 / f"{name}.ndjson").read_bytes()
    assert b"".join(lines(logged(name))) == whole
    assert verify(logged(name)) == []
    log = SqliteLog(tmp_path / "log.db")
    bring_in(log, V1 / f"{name}.ndjson", 1.0)
    export(log.read(name), name, tmp_path / "out")
    log.close()
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_version_1_folds_as_it_did(name: str):
    expected = json.loads((V1 / f"{name}.json").read_text())
    assert folded(fold(logged(name))) == expected


def test_the_logs_hold_every_type_and_one_that_is_not_known():
    held = {event.type for name in NAMES for event in logged(name)}
    assert held > DURABLE
    assert {event.v for event in logged("strange")} > {1}


def test_what_was_pinned_is_pinned():
    assert fold(logged("pinned")).pins == {2}
    assert fold(logged("pinned"), 6).pins == {2, 4}


def test_a_stored_checkpoint_of_version_1_is_read():
    made = fold(logged("compacted")).checkpoint()
    assert made is not None
    assert (made.scope, made.generation, made.tokens_before) == ("guard", 1, 100)


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_version_1_goes_on(name: str):
    log = MemoryLog()
    head = log.restore(logged(name), 1.0)
    state = fold(log.read(name))
    epoch = log.acquire(name, Owner("o", 1, "", ""), 2.0).epoch
    state.extend(log.append(name, epoch, head.seq, state.repairs("resumed"), 3.0))
    assert state.open_calls == []


def test_a_later_version_of_a_type_is_met_by_an_upcast():
    """What a version 2 would do that has summaries begin with whose they are."""

    def owned(data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**data, "text": f"of a branch: {data['text']}"}

    steps = {("branch_summary", 1): owned}
    old = logged("fork")
    newer = replace(old[-1], v=2)
    state = Fold(steps, current=2).extend([*old[:-1], newer])
    assert Branch(3, "of a branch: tried \u2028 and left") in state.items
    assert state.items[-1] == User(7, "and now?")
    assert state.unknown == []
    assert fold([*old[:-1], newer]).unknown == [7]  # by a program that knows version 1 only
    others = Fold(steps, current=2).extend(logged("tools"))
    assert others.items == fold(logged("tools")).items
    assert b"".join(lines(old)) == (V1 / "fork.ndjson").read_bytes()

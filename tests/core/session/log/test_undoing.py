"""Which turn is undone next, and what of it: by the log alone."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import Draft, Event, make_event
from ullage.core.session.log.fold import Fold, fold
from ullage.core.session.log.undoing import NAMED, PathChange, choose, notice

ONE = {"kind": "file", "mode": 0o644, "hash": "one"}
TWO = {"kind": "file", "mode": 0o644, "hash": "two"}


def folded(*drafts: Draft) -> Fold:
    """Return the state after these events."""
    events: list[Event] = []
    for seq, draft in enumerate(drafts, 1):
        events.append(make_event("s", seq, 1.0, draft, events[-1].id if events else ""))
    return fold(events)


def began(turn: str) -> Draft:
    return Draft("turn_started", {"turn": turn})


def changed(turn: str, *files: tuple[str, Any, Any], **more: Any) -> Draft:
    made = [{"path": path, "before": before, "after": after} for path, before, after in files]
    return Draft("file_changes", {"turn": turn, "workspace": "/w", "files": made, **more})


def snapshot(turn: str) -> Draft:
    return Draft("snapshot_taken", {"turn": turn, "workspace": "/w", "manifest": "m"})


def restored(turn: str, *left: str) -> Draft:
    data = {"turn": turn, "files": [], "left": [{"path": path, "why": "w"} for path in left]}
    return Draft("files_restored", data)


def test_changes_of_one_path_in_a_turn_are_one():
    state = folded(began("a"), changed("a", ("f", None, ONE)), changed("a", ("f", ONE, TWO)))
    found = choose(state)
    assert found is not None
    assert (found.number, found.workspace) == (1, "/w")
    assert found.changes == (PathChange("f", None, TWO),)


def test_what_a_turn_made_and_took_away_again_is_no_change():
    assert choose(folded(began("a"), changed("a", ("f", None, ONE), ("f", ONE, None)))) is None


def test_turns_are_undone_from_the_last_one_back():
    parts = [began("a"), changed("a", ("f", None, ONE)), began("b"), began("c")]
    parts.append(changed("c", ("f", ONE, TWO)))
    seen = []
    while (found := choose(folded(*parts))) is not None:
        seen.append(found.number)
        parts.append(restored(found.turn))
    assert seen == [3, 1]


def test_with_again_it_is_the_turn_of_which_something_was_left():
    parts = (began("a"), changed("a", ("f", None, ONE)), began("b"), changed("b", ("f", ONE, TWO)))
    left = folded(*parts, restored("b", "f"))
    assert [choose(left).number, choose(left, again=True).number] == [1, 2]  # type: ignore[union-attr]
    whole = folded(*parts, restored("b"))
    assert choose(whole, again=True).number == 1  # type: ignore[union-attr]
    assert choose(left, 2).number == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [0, 2])
def test_a_number_that_no_turn_has_is_refused(number: int):
    with pytest.raises(ConfigurationError, match="turns 1 to 1"):
        choose(folded(began("a")), number)


def test_a_command_without_an_end_leaves_its_manifest():
    opened = (began("a"), snapshot("a"), changed("a", ("f", None, ONE)))
    assert choose(folded(*opened)).manifest == "m"  # type: ignore[union-attr]
    assert choose(folded(*opened, changed("a", command=True))).manifest == ""  # type: ignore[union-attr]
    assert choose(folded(began("a"), snapshot("a"))) is not None
    assert choose(folded(began("a"), snapshot("a"), changed("a", command=True))) is None


def test_a_turn_that_no_start_tells_of_is_no_turn():
    assert choose(folded(changed("a", ("f", None, ONE)))) is None


def test_a_model_is_told_of_so_many_paths():
    files = [{"path": f"f{n}", "did": "removed"} for n in range(NAMED + 2)]
    told = notice({"files": files, "left": [{"path": "x", "why": "w"}]})
    assert f"f{NAMED - 1} and 2 more; left as they are: x." in told
    assert "nothing was left to take back" in notice({"files": []})

"""Plain rules and open tasks that a block had no room for are kept beside it, and read back."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.core.compaction.aside import MOST, find_aside, read_aside
from ullage.core.facts.sheet import UNKNOWN, Facts

RULE = "Never deploy on a Friday."


def test_what_a_block_lacks_of_rules_and_tasks_is_set_aside() -> None:
    held = Facts(
        constraints=(RULE, "It lies at 53 fathoms.", "Always ask Mirela."), tasks=("Sew.",)
    )
    found = find_aside(held, f"Rules:\n- {RULE}\n")
    assert found == {"constraints": ["Always ask Mirela."], "tasks": ["Sew."]}
    assert read_aside(found) == Facts(constraints=("Always ask Mirela.",), tasks=("Sew.",))
    assert find_aside(Facts(constraints=(RULE,)), RULE) == {}


def test_what_a_model_said_is_set_aside_by_no_cue() -> None:
    held = Facts(constraints=(f"(assistant) {RULE}",))
    assert find_aside(held, "") == {}


def test_the_newest_are_kept() -> None:
    rules = tuple(f"Never open the gate number {n}." for n in range(3 * MOST))
    found = find_aside(Facts(constraints=rules), "")
    assert found == {"constraints": list(rules[-MOST:])}


@pytest.mark.parametrize("odd", [None, [], "x", 5])
def test_an_edited_store_sets_nothing_aside(odd: Any) -> None:
    assert read_aside(odd) == UNKNOWN
    assert read_aside({"constraints": odd, "tasks": 7}) == UNKNOWN
    assert read_aside({"constraints": [RULE, odd if odd != "x" else None]}).constraints == (RULE,)

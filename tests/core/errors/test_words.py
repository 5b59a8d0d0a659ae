"""What is said of mistyped names and missing packages, and how far work is."""

from __future__ import annotations

import pytest

from ullage.core.errors import extras, nearest
from ullage.core.values import progress

NAMES = ["gpt-4o", "gpt-5", "Claude-Sonnet"]


@pytest.mark.parametrize(
    ("word", "found"),
    [("gpt-4oo", "gpt-4o"), ("CLAUDE-SONET", "Claude-Sonnet"), ("cellar", None), ("", None)],
)
def test_the_nearest_name_is_found_whatever_its_case(word: str, found: str | None) -> None:
    assert nearest.find(word, NAMES) == found


def test_a_name_that_is_like_none_gets_the_other_sentence() -> None:
    assert nearest.suggest("gpt-55", NAMES, "there are three") == "did you mean 'gpt-5'?"
    assert nearest.suggest("cellar", NAMES, "there are three") == "there are three"
    assert nearest.find("gpt-4x", NAMES, cutoff=0.99) is None


def test_a_missing_package_is_told_with_the_one_extra() -> None:
    told = str(extras.explain_missing("a store", "apsw"))
    assert told.startswith("a store needs apsw, which is not installed: pip install 'ullage[all]'")
    assert extras.command("families") == "pip install 'ullage[families]'"


def test_items_are_reported_as_they_are_taken() -> None:
    reports: list[tuple[int, int | None]] = []
    items = progress.count("abc", 3, lambda *told: reports.append(told))
    assert next(items) == "a"
    assert list(items) == ["b", "c"]
    assert reports == [(1, 3), (2, 3), (3, 3)]
    progress.ignore(1, None)

"""docs/dependencies.md has a row for each package that ullage requires, as the locks have it."""

from __future__ import annotations

from tools import dependencies

PAGE = dependencies.PAGE.read_text("utf-8")


def test_the_page_has_a_row_for_each_requirement_with_its_version_and_licence() -> None:
    assert list(dependencies.list_faults(PAGE)) == []
    assert len(dependencies.list_packages(PAGE)) > 40


def test_a_row_that_lacks_is_too_many_twice_or_out_of_date_is_told() -> None:
    lines = PAGE.splitlines(keepends=True)
    (own,) = [line for line in lines if line.startswith("| `msgspec`")]
    (next_,) = [line for line in lines if line.startswith("| `httpx2`")]
    changed = PAGE.replace(own, next_).replace("| `rich` |", "| `poor` |")
    assert list(dependencies.list_faults(changed)) == [
        "msgspec has no row: write one",
        "rich has no row: write one",
        "poor is required by nothing: drop its row",
        "httpx2 has two rows",
        "extras, versions or licences changed: run `make dependencies`",
    ]


def test_a_version_that_changed_is_written_and_loses_its_date() -> None:
    (own,) = [line for line in PAGE.splitlines() if line.startswith("| `msgspec`")]
    cells = own.split(" | ")
    older = " | ".join([*cells[:2], "0.1.0", "2019-01", "a licence", *cells[5:]])
    fresh = " | ".join([*cells[:3], dependencies.UNKNOWN, *cells[4:]])
    assert dependencies.refresh(PAGE.replace(own, older)) == PAGE.replace(own, fresh)


def test_a_package_that_is_not_installed_keeps_the_licence_that_was_written() -> None:
    assert dependencies.read_licence("no-such-package") == ""
    row = "| `crewai` | crewai | in no lock | 2026-10 | one | by | rank 1 |"
    assert " | one | by | rank 1 |" in dependencies.refresh(row)

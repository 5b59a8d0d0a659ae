"""Pages that promise something of the program or of other pages: it is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ullage.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
ROWS = re.findall(
    r"^```text\n(.+?)\n```\n\n\*\*(\w+)\*\*: \S", (DOCS / "faq.md").read_text("utf-8"), re.MULTILINE
)
FIGURE = re.compile(r"\d[\d,]*\.?\d*")


def test_the_faq_has_messages_of_servers_and_of_providers() -> None:
    assert len(ROWS) >= 40
    assert {kind for _, kind in ROWS} == {
        "input", "total", "output_cap", "bytes", "media", "malformed_history", "rate_limit",
        "quota", "server_state", "other",
    }  # fmt: skip


@pytest.mark.parametrize(("message", "kind"), ROWS)
def test_a_message_means_what_the_faq_says(
    message: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain-error", message]) == (1 if kind == "other" else 0)
    said = capsys.readouterr().out
    assert said.startswith("unknown error" if kind == "other" else f"{kind} (")


def test_every_figure_of_the_comparison_is_one_of_the_benchmarks() -> None:
    measured = set(FIGURE.findall((DOCS / "benchmarks.md").read_text("utf-8")))
    rows = re.findall(r"^\|.*\d.*\|$", (DOCS / "comparison.md").read_text("utf-8"), re.MULTILINE)
    cells = {
        figure for row in rows for cell in row.split("|")[2:] for figure in FIGURE.findall(cell)
    }
    assert len(cells) > 40
    assert sorted(cells - measured) == []


def test_the_security_page_names_requirements_that_there_are() -> None:
    rows = re.findall(
        r"\| ([\d, to]+) \|$", (DOCS / "security.md").read_text("utf-8"), re.MULTILINE
    )
    named = {int(number) for row in rows for number in re.findall(r"\d+", row)}
    there = re.findall(r"^\| (\d+) \|", (DOCS / "requirements.md").read_text("utf-8"), re.MULTILINE)
    assert named
    assert named <= set(map(int, there))

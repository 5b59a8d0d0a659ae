"""The glossary: each word names a page and a room of the code that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "glossary.md"


def rows() -> list[list[str]]:
    """Return word, sentence, code and page of each line."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "word"]


def test_each_word_stands_there_once() -> None:
    words = [row[0] for row in rows()]
    assert len(words) > 50
    assert sorted(set(words)) == sorted(words)


def test_each_room_and_page_of_a_word_exists() -> None:
    for _, _, code, pages in rows():
        rooms = re.findall(r"`([^`]+)`", code)
        links = re.findall(r"\]\(([^)]+)\)", pages)
        assert rooms, code
        assert links, pages
        assert all((ROOT / "src" / "ullage" / room).exists() for room in rooms), rooms
        assert all((PAGE.parent / link).is_file() for link in links), links

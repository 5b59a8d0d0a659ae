"""The site's sources: each page in the navigation once, links and anchors that lead somewhere."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import site

CONFIG = tomllib.loads((site.DOCS / "site.toml").read_text("utf-8"))["project"]
PAGES = {name: path for path, name in site.pages() if path.suffix == ".md"}
CODE = re.compile(r"^((?: {4})*)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def listed(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    for each in nav if isinstance(nav, list) else nav.values():
        yield from [each] if isinstance(each, str) else listed(each)


def anchors(name: str) -> set[str]:
    """Return the anchors of a page, as GitHub and the site both make them."""
    found: Counter[str] = Counter()
    marks = set()
    for title in re.findall(
        r"^#+ (.+)$", CODE.sub("", PAGES[name].read_text("utf-8")), re.MULTILINE
    ):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip())
        marks.add(f"{slug}_{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return marks


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(listed(CONFIG["nav"])) == sorted(PAGES)


def test_the_site_takes_nothing_from_another_host() -> None:
    assert CONFIG["theme"]["font"] is False
    assert not {"analytics", "social"} & set(CONFIG)
    own = [*CONFIG["extra_css"], *CONFIG["extra_javascript"]]
    text = "".join((site.DOCS / name).read_text("utf-8") for name in own)
    assert not re.search(r"@import|url\(|//\w+\.|fetch", text)


@pytest.mark.parametrize("name", PAGES)
def test_every_anchor_that_a_page_links_to_is_there(name: str) -> None:
    page = PAGES[name]
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        target, _, mark = link.partition("#")
        if mark and "://" not in link:
            other = (page.parent / target).resolve() if target else page
            names = {path.resolve(): each for each, path in PAGES.items()}
            assert mark in anchors(names[other.resolve()]), link


def test_pages_of_the_root_are_laid_with_links_into_the_site(tmp_path: Path) -> None:
    site.lay(tmp_path / "source")
    laid = tmp_path / "source" / "docs"
    assert "](glossary.md)" in (laid / "contributing.md").read_text("utf-8")
    assert "](../src" not in (laid / "context.md").read_text("utf-8")
    assert (laid / "files" / "context.schema.json").is_file()
    for page in laid.rglob("*.md"):
        for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
            target = link.partition("#")[0]
            if target and "://" not in target:
                assert (page.parent / target).is_file(), f"{page.name}: {link}"


def test_the_zip_has_the_same_bytes_from_the_same_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "a").mkdir(parents=True)
        (tmp_path / folder / "a" / "b.html").write_text("<p>b</p>")
        (tmp_path / folder / "index.html").write_text("<p>first</p>")
        site.pack(tmp_path / folder, tmp_path / f"{folder}.zip")
    packed = tmp_path / "one.zip"
    assert packed.read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert zipfile.ZipFile(packed).namelist() == ["a/b.html", "index.html"]

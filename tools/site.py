"""Prepares the pages of the site for Zensical, and packs its output.

`python -m tools.site lay` copies docs/ and the pages at the root (`ROOT_PAGES`) to build/site-src.
It changes links that lead outside docs/ to the places on the site. `python -m tools.site pack`
writes build/site as one zip, with the same bytes for the same files. `make site` calls both.
"""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
SOURCE: Final = ROOT / "build" / "site-src"
BUILT: Final = ROOT / "build" / "site"
PACKED: Final = ROOT / "build" / "docs.zip"

ROOT_PAGES: Final[Mapping[str, str]] = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "reporting.md",
    "README.md": "index.md",
}
"""Pages outside docs/, and their places on the site. The site has its own first page."""

SHOWN: Final = (".md", ".svg", ".png", ".txt", ".css", ".js")
LINK: Final = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
UNUSED: Final = ("sitemap.xml", "objects.inv")


def lay(source: Path = SOURCE) -> None:
    """Write the folder that Zensical reads."""
    shutil.rmtree(source, ignore_errors=True)
    for page, name in pages():
        target = source / "docs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(settle_links(page, page.read_text("utf-8"), source / "docs"), "utf-8")
        else:
            shutil.copyfile(page, target)
    shutil.copyfile(DOCS / "site.toml", source / "zensical.toml")


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each file of the site with its name on the site."""
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in SHOWN:
            yield path, path.relative_to(DOCS).as_posix()
    for root, name in ROOT_PAGES.items():
        if name != "index.md":
            yield ROOT / root, name


def settle_links(page: Path, text: str, site: Path) -> str:
    """Return a page's text with links to files outside docs/ changed to the site's own copies."""
    depth = len(page.relative_to(DOCS).parts) - 1 if page.is_relative_to(DOCS) else 0

    def settle(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if not target.is_file() or (page.is_relative_to(DOCS) and target.is_relative_to(DOCS)):
            return found[0]
        if target.is_relative_to(DOCS):
            name = target.relative_to(DOCS).as_posix()
        else:
            name = ROOT_PAGES.get(target.relative_to(ROOT).as_posix(), f"files/{target.name}")
            if name.startswith("files/"):
                (site / "files").mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, site / name)
        return f"{found[1]}{'../' * depth}{name}{found[3]}"

    return LINK.sub(settle, text)


def pack(built: Path = BUILT, packed: Path = PACKED) -> None:
    """Write the built site as one zip whose bytes depend only on its files."""
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(built.rglob("*")):
            name = path.relative_to(built).as_posix()
            if path.is_file() and name not in UNUSED:
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    lay() if sys.argv[1:] == ["lay"] else pack()

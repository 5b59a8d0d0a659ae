"""Update docs/dependencies.md from pyproject.toml, the locks and the packages' metadata.

`python -m tools.dependencies` writes the cells that it can compute: extras, version, licence. If a
version changes, its release date is reset; people write dates and all other cells by hand. It asks
no registry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "dependencies.md"
ROW: Final = re.compile(r"(?m)^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|(.*)$")
"""Package, extras, version, release, licence; the rest is written by hand."""

ASIDE: Final = frozenset({"all", "dev"})
UNKNOWN: Final = "not known here"
LONGEST: Final = 40
"""Longest `License` field that counts as a name; a longer one is a text with the name in line 1."""


def read_requirements() -> dict[str, list[str]]:
    """Return the product's requirements, by name, with the extras that need them."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    told = project["project"]
    found: dict[str, list[str]] = {}
    for extra, lines in {"core": told["dependencies"], **told["optional-dependencies"]}.items():
        for line in lines if extra not in ASIDE else ():
            found.setdefault(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0], []).append(extra)
    return found


def find_version(name: str, extras: list[str]) -> str:
    """Return the version of a package in the lock with which it is tested."""
    adapter = f"bench-adapter-{extras[0].replace('-', '_')}"
    for lock in ("run", "dev", adapter, "replay-ray", "product"):
        path = ROOT / "requirements" / f"{lock}.txt"
        text = path.read_text("utf-8") if path.exists() else ""
        if pinned := re.search(rf"(?m)^{re.escape(name.replace('.', '-'))}==(\S+)", text):
            return pinned[1]
    return "in no lock"


def read_licence(name: str) -> str:
    """Return the licence of an installed package, or "" if unknown."""
    try:
        told: Mapping[str, Any] = metadata(name).json
    except PackageNotFoundError:
        return ""
    field = str(told.get("license", ""))
    kinds = [c for c in told.get("classifier", ()) if c.startswith("License ::")]
    named = " and ".join(kind.rpartition(" :: ")[2] for kind in kinds)
    first = field.partition("\n")[0]
    short = field if 0 < len(field) <= LONGEST else named or first
    return str(told.get("license_expression") or short)


def list_packages(page: str) -> list[str]:
    """Return the packages in the page's rows."""
    return [row[1] for row in ROW.finditer(page)]


def refresh(page: str) -> str:
    """Return the page with its computed cells updated."""
    required = read_requirements()

    def write(row: re.Match[str]) -> str:
        name, _, version, released, licence, rest = (cell.strip() for cell in row.groups())
        extras = required.get(name, [])
        found = find_version(name, extras) if extras else version
        when = released if found == version else UNKNOWN
        cells = (f"`{name}`", ", ".join(extras), found, when, read_licence(name) or licence, rest)
        return f"| {' | '.join(cells)}"

    return ROW.sub(write, page)


def list_faults(page: str) -> Iterator[str]:
    """Yield the faults of the page, each with its remedy."""
    required, listed = read_requirements(), list_packages(page)
    yield from (f"{name} has no row: write one" for name in sorted({*required} - {*listed}))
    extra = sorted({*listed} - {*required})
    yield from (f"{name} is required by nothing: drop its row" for name in extra)
    yield from (f"{name} has two rows" for name in {*listed} if listed.count(name) > 1)
    if refresh(page) != page:
        yield "extras, versions or licences changed: run `make dependencies`"


def main() -> int:
    """Write the updated page, and print the faults to mend by hand."""
    page = refresh(PAGE.read_text("utf-8"))
    PAGE.write_text(page, "utf-8")
    faults = [*list_faults(page)]
    print(
        "\n".join(faults)
        or f"{len(list_packages(page))} packages; {page.count(UNKNOWN)} cells that say {UNKNOWN!r}"
    )
    return len(faults) > 0


if __name__ == "__main__":
    raise SystemExit(main())

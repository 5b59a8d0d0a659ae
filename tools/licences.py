"""Writes requirements/licences.toml: the licence that each package of the product states.

`make licences` runs it where requirements/product.txt is installed. A package that is not installed
(a framework, one only for Windows) keeps its row, which people write by hand. It asks no registry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from tools.dependencies import read_licence, read_requirements
from tools.locks import FOLDER, Locked, normalize, read_lock, read_product

TABLE: Final = FOLDER / "licences.toml"
HEAD: Final = """\
# The licence that each package of the bill of materials states of itself, by `make licences`.
# Rows of packages that it does not install (frameworks, others' platforms) are kept by hand.
"""
MISSING: Final = "?"
"""The value of a row that must be written by hand."""


def list_packages() -> dict[str, Locked]:
    """Return all packages that need a row: those of the product, and the builder of its pages."""
    site = read_lock(FOLDER / "site.txt")
    return {**read_product(read_requirements()), "zensical": site["zensical"]}


def read_table() -> dict[str, str]:
    """Return the recorded licences, by pin."""
    if not TABLE.exists():
        return {}
    told: dict[str, str] = tomllib.loads(TABLE.read_text("utf-8"))
    return told


def find_installed(each: Locked) -> str:
    """Return the licence that the installed package of exactly this version states, or ""."""
    try:
        same = version(each.name) == each.version
    except PackageNotFoundError:
        return ""
    return read_licence(each.name) if same else ""


def write_table() -> str:
    """Return the new table: a row for each package, and no others."""
    written = read_table()
    rows = []
    for _, each in sorted(list_packages().items()):
        told = find_installed(each) or written.get(each.pin) or MISSING
        rows.append(f'"{each.pin}" = "{told}"\n')
    return HEAD + "".join(rows)


def list_faults() -> list[str]:
    """Return the faults of the table, each with its remedy."""
    written, pins = read_table(), {each.pin for each in list_packages().values()}
    told = [f"{pin}: write its licence" for pin in sorted(pins) if not has_row(written, pin)]
    told += [f"{pin}: in no lock any more; run `make licences`" for pin in {*written} - pins]
    return sorted(told)


def has_row(written: Mapping[str, str], pin: str) -> bool:
    """Return whether a pin has a licence."""
    return written.get(pin, MISSING) != MISSING


def find_licence(written: Mapping[str, str], name: str, number: str) -> str:
    """Return the licence of a package. Raises LookupError if none is recorded."""
    pin = f"{normalize(name)}=={number}"
    if not has_row(written, pin):
        raise LookupError(f"{pin} has no licence in {TABLE.name}: run `make licences`")
    return written[pin]


if __name__ == "__main__":
    TABLE.write_text(write_table(), "utf-8")
    print("\n".join(list_faults()) or f"{len(read_table())} packages")

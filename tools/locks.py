"""Reads a lock in requirements/: packages with versions, hashes, and the packages that need them.

It reads the output of `uv pip compile`, and knows nothing of installed packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "requirements"
ENTRY: Final = re.compile(r"(?m)^(?=[A-Za-z0-9])")
HEAD: Final = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; ([^\\\n]+?))? \\")
HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
PARENT: Final = re.compile(r"(?m)^    #(?: via|  ) +([A-Za-z0-9._-]+)(?:\[[^\]]*\])?$")
"""A line below `# via` that names a package; other lines name files and the project."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One package of a lock."""

    name: str
    version: str
    marker: str
    """The condition for its installation (PEP 508); empty for everywhere."""
    hashes: tuple[str, ...]
    """SHA-256 of each file of the release, sorted."""
    parents: frozenset[str]
    """The packages that require it, without the project and files."""

    @property
    def pin(self) -> str:
        """Return name and version as the lock writes them."""
        return f"{self.name}=={self.version}"


def normalize(name: str) -> str:
    """Return a name in the form that indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> dict[str, Locked]:
    """Return the packages of a lock by their normalized names."""
    found = {}
    for entry in ENTRY.split(path.read_text("utf-8")):
        if head := HEAD.match(entry):
            name = normalize(head[1])
            parents = frozenset(map(normalize, PARENT.findall(entry)))
            hashes = tuple(sorted(HASH.findall(entry)))
            found[name] = Locked(name, head[2], head[3] or "", hashes, parents)
    return found


def read_product(named: Iterable[str]) -> dict[str, Locked]:
    """Return the packages of the wheel and its extras, by name; `named` are the direct ones.

    Each framework has its own environment, because some refuse a version that another requires.
    Only the packages that an extra names are taken from their locks. Raises LookupError for one in
    no lock.
    """
    found = read_lock(FOLDER / "product.txt")
    frameworks = [read_lock(path) for path in sorted(FOLDER.glob("bench-adapter-*.txt"))]
    for name in sorted({*map(normalize, named)} - {*found}):
        each = next((lock[name] for lock in frameworks if name in lock), None)
        if each is None:
            raise LookupError(f"{name} is in no lock: run `make lock`")
        found[name] = each
    return found

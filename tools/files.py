"""The files that a gate checks: all that git tracks or would track.

It knows nothing of the rules of the gates.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule, with a place that a person can open."""

    rule: str
    path: str
    line: int
    name: str
    """The function, class or variable with the breach; empty for a whole file."""
    text: str

    def __str__(self) -> str:
        """Return the line that editors turn into a link."""
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def ask_git(root: Path, *words: str) -> str | None:
    """Return git's output, or None if there is no git or it fails."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(
        [git, "-C", str(root), *words], capture_output=True, text=True, check=False
    )
    return None if done.returncode else done.stdout


def tracked(root: Path) -> list[str]:
    """Return the paths under `root`, relative and sorted, that git tracks or does not ignore.

    Without git (an unpacked sdist), it returns every file outside hidden folders.
    """
    listing = ask_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing is not None:
        return sorted({p for p in listing.split("\0") if p and (root / p).is_file()})
    paths = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    return sorted(p.as_posix() for p in paths if not any(s.startswith(".") for s in p.parts))

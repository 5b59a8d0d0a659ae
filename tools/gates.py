"""Run the checks on the repository: `python -m tools.gates`. Exits 1 if one fails.

It combines the rules of `tools.code` and `tools.leaks` with the waivers of `tools/waivers.toml`.
That list may only shrink: a waiver that is no longer needed is a fault, and so is a wrong count in
the list. `tools.names`, `tools.subjects` and `tools.words` check the repository as a
whole.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools import code, leaks, names, subjects, words
from tools.files import Finding, tracked

WAIVERS: Final = "tools/waivers.toml"


@dataclass(frozen=True, slots=True)
class Waiver:
    """One accepted breach, and the reason."""

    rule: str
    path: str
    name: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Tell whether it was written for this breach."""
        return (self.rule, self.path, self.name) == (finding.rule, finding.path, finding.name)


def findings(root: Path) -> Iterator[Finding]:
    """Yield every breach in the files under `root`, waived or not."""
    for path in tracked(root):
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield from leaks.check(path, text)
        if path.endswith(".py"):
            yield from code.check(code.Module.parse(path, text))
    yield from names.check(root)
    yield from subjects.check(root)
    yield from words.check(root)


def read_waivers(root: Path) -> tuple[int, tuple[Waiver, ...]]:
    """Return the number of waivers that the list states, and its waivers."""
    file = root / WAIVERS
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    rows = table.get("waiver", [])
    return table.get("count", 0), tuple(
        Waiver(row["rule"], row["path"], row.get("name", ""), row["reason"].strip()) for row in rows
    )


def judge(found: Iterable[Finding], count: int, waivers: Sequence[Waiver]) -> Iterator[Finding]:
    """Yield the breaches without a waiver, and the faults of the waivers."""
    needed: set[Waiver] = set()
    for finding in found:
        covering = [w for w in waivers if w.covers(finding)]
        needed.update(covering)
        if not covering:
            yield finding
    for waiver in waivers:
        where = f"{waiver.rule} {waiver.path} {waiver.name}".strip()
        if waiver not in needed:
            yield _about_waivers(f"no longer needed, take it out: {where}")
        if not waiver.reason:
            yield _about_waivers(f"gives no reason: {where}")
    if len(waivers) != count:
        yield _about_waivers(f"holds {len(waivers)} waivers and says count = {count}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a repository and print the findings; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.gates", description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    root: Path = parser.parse_args(arguments).root
    count, waivers = read_waivers(root)
    shut = sorted(judge(findings(root), count, waivers), key=str)
    for finding in shut:
        print(finding)
    print(f"{len(shut)} findings, {len(waivers)} waivers")
    return 1 if shut else 0


def _about_waivers(text: str) -> Finding:
    return Finding("waivers", WAIVERS, 1, "", text)


if __name__ == "__main__":
    sys.exit(main())

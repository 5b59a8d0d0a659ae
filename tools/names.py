"""Count the names that say too little: `python -m tools.names` lists them.

The name of a function that acts needs a verb. So these names count: one bare participle (`told`,
`_opened`), a participle with only particles after it (`said_by`, `_broken_off`), and a public class
name that two modules define. Properties name values; their participles are counted separately. The
limits are in `pyproject.toml`, in the table `tool.ullage.names`. They may only fall: a limit above
the count fails as well.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.files import Finding, tracked

LIMITS: Final = "pyproject.toml"
ENDS_ALIKE: Final = """
    bed bleed breed embed exceed feed heed indeed need proceed red seed shed speed succeed weed
"""
"""Words that end in -ed but are not participles."""
# Verbs whose participle equals their imperative (cut, hit, let, put, read, run, set, split) name
# acts and are allowed. So is `rung`: the policy's ladder has rungs.
IRREGULAR: Final = """
    arisen awoken beaten been begotten begun bent bidden bitten blown borne bought bound
    broken brought built burnt caught chosen clung crept dealt done drawn driven drunk dug
    eaten fallen felt fled flown forbidden forgiven forgotten fought found frozen given gone got
    gotten ground grown had heard held hidden hung kept knelt known laid lain learnt led left lent
    lit lost made meant met mistaken mown paid proven ridden risen said sat seen sent sewn shaken
    shone shorn shot shown shrunk slept slid sold sought spent spoken sprung spun stolen stood
    strewn struck strung stuck stung sung sunk swept sworn swollen swum swung taken taught thought
    thrown told torn trodden understood undone upheld wept woken won worn wound woven written wrung
"""
ADVERBS: Final = """
    again apart at away back by down in off on open out over to up
"""
"""Words after a participle that name nothing, as in `said_by`."""
PARTICLES: Final = frozenset(ADVERBS.split())
NO_PARTICIPLES: Final = frozenset(ENDS_ALIKE.split())
PARTICIPLES: Final = frozenset(IRREGULAR.split())
PREFIXES: Final = ("fore", "mis", "out", "over", "re", "un", "under", "with")
VALUES: Final = frozenset({"property", "cached_property", "setter", "getter", "deleter"})

Kind = Literal["functions", "properties", "twice"]
WHY: Final[Mapping[Kind, str]] = {
    "functions": "functions are named by a bare participle: give them a verb (record_event)",
    "properties": "properties are named by a bare participle: prefer is_, has_ or a noun",
    "twice": "public class names stand in two modules: let one name mean one thing",
}


@dataclass(frozen=True, slots=True)
class Name:
    """One name that counts, and its place."""

    kind: Kind
    path: str
    line: int
    name: str

    def __str__(self) -> str:
        """Return the line that editors turn into a link."""
        return f"{self.path}:{self.line}: {self.kind}: {self.name}"


def is_participle(name: str) -> bool:
    """Tell whether a name is a past participle without a noun; ignores outer underscores."""
    word, *rest = name.strip("_").lower().split("_")
    if not PARTICLES.issuperset(rest):
        return False
    if not word.isalpha() or word in NO_PARTICIPLES:
        return False
    if len(word) > 3 and word.endswith("ed"):
        return True
    stems = (word, *(word.removeprefix(p) for p in PREFIXES if word.startswith(p)))
    return not PARTICIPLES.isdisjoint(stems)


def find_participles(path: str, tree: ast.Module) -> Iterator[Name]:
    """Yield the functions, methods and properties of a module with such names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            kind: Kind = "properties" if _is_value(node) else "functions"
            yield Name(kind, path, node.lineno, node.name)


def find_twice(modules: Mapping[str, ast.Module]) -> Iterator[Name]:
    """Yield each public class name that several modules define, at the second place."""
    homes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append((path, node.lineno))
    for name, places in homes.items():
        if len(places) > 1:
            yield Name("twice", *places[1], name)


def find_names(root: Path) -> list[Name]:
    """Return every name under `src/` that counts, sorted by kind and place."""
    modules = {
        path: ast.parse((root / path).read_text(encoding="utf-8"))
        for path in tracked(root)
        if path.startswith("src/") and path.endswith(".py")
    }
    found = [name for path, tree in modules.items() for name in find_participles(path, tree)]
    return sorted([*found, *find_twice(modules)], key=lambda n: (n.kind, n.path, n.line))


def read_limits(root: Path) -> Mapping[Kind, int]:
    """Return the limit of each kind; a kind without a number has the limit 0."""
    file = root / LIMITS
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    given = table.get("tool", {}).get("ullage", {}).get("names", {})
    return {kind: given.get(kind, 0) for kind in WHY}


def judge(names: Iterable[Name], limits: Mapping[Kind, int]) -> Iterator[Finding]:
    """Yield the faults of the counts: over the limit, or under a limit that can be lowered."""
    counts = dict.fromkeys(WHY, 0)
    for name in names:
        counts[name.kind] += 1
    for kind, count in counts.items():
        most = limits[kind]
        if count > most:
            text = f"{count} {WHY[kind]}; the limit is {most}. `python -m tools.names` lists them"
            yield Finding("names", LIMITS, 1, kind, text)
        elif count < most:
            text = f"only {count} {kind} are left: lower the limit {kind} = {most} to {count}"
            yield Finding("names", LIMITS, 1, kind, text)


def check(root: Path) -> Iterator[Finding]:
    """Yield the breaches of the limits in the files under `root`."""
    return judge(find_names(root), read_limits(root))


def main(root: Path = Path()) -> int:
    """Print every name that counts, and return 0, because `tools.gates` judges."""
    for name in find_names(root):
        print(name)
    return 0


def _is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for decorator in node.decorator_list:
        name = decorator.attr if isinstance(decorator, ast.Attribute) else ast.unparse(decorator)
        if name in VALUES:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())

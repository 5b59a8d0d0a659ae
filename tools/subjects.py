"""Check the subjects of commits: a subject must say what changed, so that one can bisect by it.

`python -m tools.subjects` prints the bad ones. It checks the commits after the one that
`pyproject.toml` names in `tool.ullage.subjects`. Without git, or if that commit is unknown (an
unpacked sdist, a shallow clone), there is nothing to check.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.files import Finding, ask_git

LIMITS: Final = "pyproject.toml"
LONGEST: Final = 120
FEWEST_WORDS: Final = 3
VAGUE: Final = re.compile(
    r"(wip|fix(es|ed|up)?|misc|stuff|tmp|temp|x+|minor|cleanup|oops)\b", re.IGNORECASE
)
"""First words that say that something changed, but not what."""
SAYS_ITS_KIND: Final = re.compile(r"[a-z]+(\([^)]*\))?!?:", re.IGNORECASE)
SMALL_WORDS: Final = """
    a all also an and another as at both but by each every for from in into it its later less more
    most new no not now of old on one other our over some that the their then there these they
    this those to two under we when where which while with without
"""
NO_VERBS: Final = frozenset(SMALL_WORDS.split())
ENDS_OF_OTHER_FORMS: Final = re.compile(r"\w{2,}(ed|ing)")
ENDS_ALIKE: Final = """
    bring embed exceed feed heed need proceed seed shed speed spring string succeed swing
"""
"""Verbs whose base form ends like another form."""
BASE_FORMS: Final = frozenset(ENDS_ALIKE.split())


def explain(subject: str) -> str | None:
    """Return the fault of a subject, or None."""
    words = subject.split()
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters; the most is {LONGEST}"
    if len(words) < FEWEST_WORDS:
        return f"has {len(words)} words: say what changed, and why where it fits"
    return _explain_opening(words[0])


def read_start(root: Path) -> str:
    """Return the commit after which subjects are checked, or "" if none is named."""
    file = root / LIMITS
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    start: str = table.get("tool", {}).get("ullage", {}).get("subjects", {}).get("after", "")
    return start


def list_subjects(root: Path, start: str) -> list[tuple[str, str]]:
    """Return short hash and subject of each commit after `start`, without merges."""
    log = ask_git(root, "log", "--no-merges", "--format=%h%x09%s", f"{start}..HEAD")
    lines = (line.partition("\t") for line in (log or "").splitlines())
    return [(short, subject) for short, _, subject in lines]


def check(root: Path) -> Iterator[Finding]:
    """Yield the subjects that do not say what changed."""
    start = read_start(root)
    for short, subject in list_subjects(root, start) if start else ():
        fault = explain(subject)
        if fault is not None:
            text = f"commit {short} {subject!r} {fault}; reword it with `git rebase -i`"
            yield Finding("commit-subject", LIMITS, 1, short, text)


def _explain_opening(word: str) -> str | None:
    first = word.lower()
    if SAYS_ITS_KIND.match(word):
        return f"begins with {word!r}: begin with the verb that says what changed"
    if VAGUE.fullmatch(first.strip(".,:;")):
        return f"begins with {word!r}, which does not say what changed"
    if first in NO_VERBS or not first[0].isalpha():
        return f"begins with {word!r}: begin with a verb (Add, Read, Keep)"
    if ENDS_OF_OTHER_FORMS.fullmatch(first) and first not in BASE_FORMS:
        return f"begins with {word!r}: use the imperative (Add, not Added or Adding)"
    return None


def main(root: Path = Path()) -> int:
    """Print the subjects that do not say what changed; return the exit code."""
    found = list(check(root))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Forbids text in files of this repository: local paths, and hosts of package registries.

Other people's machines have neither those folders nor those hosts. It knows nothing of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tools.files import Finding

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "local-path": re.compile(
        r"(?<![\w.:/-])/(?:work|root|tmp/(?:lab|bash_jobs))(?:/|\b(?=[\s\"'`]))"
    ),
    "registry-host": re.compile(
        r"\b(?:pypi\.(?:org|io)|pypi\.python\.org|(?:files\.)?pythonhosted\.org|test\.pypi\.org"
        r"|registry\.(?:npmjs\.org|yarnpkg\.com)|deb\.debian\.org|(?:static\.)?crates\.io"
        r"|proxy\.golang\.org)\b",
        re.IGNORECASE,
    ),
}
ADDRESS: Final = re.compile(
    r"^\s*(?:-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)\b|://|\s@\s"
)
PIN: Final = re.compile(r"^[A-Za-z0-9._\[\],-]+==\S+")


def check(path: str, text: str) -> Iterator[Finding]:
    """Yield the leaks of one file, and the unpinned entries of a lock file."""
    for number, line in enumerate(text.splitlines(), start=1):
        for rule, pattern in PATTERNS.items():
            if found := pattern.search(line):
                yield Finding(rule, path, number, "", f"says {found[0]!r}")
    if path.startswith("requirements/") and path.endswith(".txt"):
        yield from _lock(path, text)


def _lock(path: str, text: str) -> Iterator[Finding]:
    """Require every entry of a lock to be pinned with its hashes, without an address."""
    for number, entry in _entries(text):
        if ADDRESS.search(entry):
            yield Finding("lock-address", path, number, "", f"names an address: {entry[:60]}")
        elif not PIN.match(entry) or "--hash=sha256:" not in entry:
            yield Finding("lock-hash", path, number, "", f"not pinned by hash: {entry[:60]}")


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield the entries of a requirements file with the line on which each starts."""
    entry, start = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        start = start if entry else number
        entry += line.removesuffix("\\").strip() + " "
        if not line.endswith("\\"):
            if entry.strip():
                yield start, entry.strip()
            entry = ""

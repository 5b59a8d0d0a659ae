"""Twenty megabytes of what conversations carry, class by class, the same on every run.

Prose, code and JSON are real: files of the running Python and of the packages beside it, in the
order of their paths; so another Python gives other text. Where a class runs out of files, and for
all other classes, text is generated from a seed.
"""

from __future__ import annotations

import json
import os
import random
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.counters import corpora

LONGEST = 20_000
"""Characters of a document."""

PASSAGES: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name("passages.json").read_text(encoding="utf-8")
)
"""Sentences of the scripts that no file beside Python is written in."""

SHARES: Mapping[str, int] = {
    "prose": 24, "python": 30, "other code": 26, "json": 20, "logs": 12, "chinese": 8,
    "japanese": 7, "korean": 7, "arabic": 7, "hindi": 8, "thai": 4, "russian": 7, "emoji": 6,
    "mixed": 8, "base64": 8, "bytes": 5, "any code point": 3, "runs": 4, "special tokens": 2,
    "contractions": 1, "white space": 1, "new in Unicode 17": 1, "new in Unicode 15 and 16": 1,
}  # fmt: skip
"""Parts in 200 of the whole."""

_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "python": (".py", ".pyi"),
    "other code": (".c", ".h", ".js", ".html", ".css", ".xml", ".toml", ".sh", ".cpp", ".ps1"),
    "prose": (".rst", ".md", ".txt", "METADATA", "LICENSE"),
    "json": (".json",),
}


def documents(kind: str, *, total: int = 20_000_000) -> Iterator[str]:
    """Yield documents of a class until it has its share of `total` UTF-8 bytes."""
    left = total * SHARES[kind] // 200
    for text in _endless(kind):
        yield text
        left -= len(text.encode("utf-8", "surrogatepass"))
        if left <= 0:
            return


def _endless(kind: str) -> Iterator[str]:
    rng = random.Random(kind)
    if kind in _SUFFIXES:
        yield from _files(kind, rng)
        kind = {"python": "code", "other code": "code"}.get(kind, kind)
    while True:
        size = round(2 + LONGEST ** rng.random())
        if kind == "logs":
            yield _log(rng, size)
        elif kind in PASSAGES:
            yield _passages(kind, rng, size)
        else:
            yield corpora.KINDS[kind](rng, size)


def _files(kind: str, rng: random.Random) -> Iterator[str]:
    paths = [path for path in _library() if path.name.endswith(_SUFFIXES[kind])]
    rng.shuffle(paths)
    for path in paths:
        text = path.read_bytes()[: 8 * LONGEST].decode("utf-8", "replace")
        start = 0
        while start < len(text):
            size = round(2 + LONGEST ** rng.uniform(0.5, 1))
            yield text[start : start + size]
            start += size


@cache
def _library() -> list[Path]:
    """Return the files of the standard library and of the packages, in the order of their names."""
    endings = tuple(ending for some in _SUFFIXES.values() for ending in some)
    found = set()
    for root in {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name != "site-packages"]
            found |= {(folder, name, root) for name in names if name.endswith(endings)}
    paths = [(Path(folder, name), root) for folder, name, root in found]
    named = sorted((str(path.relative_to(root)), path) for path, root in paths if path.is_file())
    return [path for _, path in named]


def _passages(kind: str, rng: random.Random, size: int) -> str:
    drawn: list[str] = []
    length = 0
    while length < size:
        sentence = rng.choice(PASSAGES[kind])
        if rng.random() < 0.2:  # as text is: with numbers and names between
            sentence = f"{rng.randrange(10_000)} {rng.choice(corpora.WORDS)} {sentence}"
        drawn.append(sentence)
        length += len(sentence)
    return "".join(drawn)[:size]


def _log(rng: random.Random, size: int) -> str:
    def line() -> str:
        at = f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:"
        at += f"{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(1000):03}Z"
        words = " ".join(rng.choices(corpora.WORDS, k=rng.randrange(2, 9)))
        path = (
            f"/srv/{rng.choice(corpora.WORDS)}/{rng.getrandbits(32):08x}.log:{rng.randrange(900)}"
        )
        level = rng.choice(("INFO", "WARN", "ERROR", "DEBUG"))
        return f"{at} {level} [{rng.getrandbits(64):016x}] {path} {words} took={rng.random():.3f}s"

    return "\n".join(line() for _ in range(1 + size // 130))

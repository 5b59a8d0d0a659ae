"""What a second process does to a store: `python other.py FILE WORD...`, a program of its own.

It says `ready` and waits for a line before it acts, so that two of them can start together.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.storage.records import checkpoint
from ullage.storage.sqlite import SqliteStore


def say(*words: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def save(path: Path, name: str, count: str) -> None:
    """Open the store, save checkpoints that others want to save too, and print what holds."""
    store = SqliteStore(path)
    drop = int(name)
    for n in range(int(count)):
        kept = store.checkpoints.save(checkpoint(f"p{n}", drop))
        store.originals.keep({f"u:{name}-{n}": name * 10})
        say(*kept.script.drops)


def lock(path: Path) -> None:
    """Hold the writer's place until another line comes."""
    store = SqliteStore(path)
    with store._database.writing():
        say("locked")
        sys.stdin.readline()


if __name__ == "__main__":
    file, word, *more = sys.argv[1:]
    say("ready")
    sys.stdin.readline()
    if word == "save":
        save(Path(file), *more)
    else:
        lock(Path(file))

"""A program that appends until it kills itself at a named point. It stays, and forks one a seed.

`python killed.py FILE` reads lines `SEED POINT` and answers each with what its child was told, as
JSON: `tried` is the highest seq that was tried, `told` the id of each seq that was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import apsw

from tests.crash.disk import mounted
from ullage.core.session.log.event import Draft
from ullage.storage.log import Owner
from ullage.storage.log_sqlite import SqliteLog

POINTS: Final = (
    "BEGIN",
    "SELECT",
    "INSERT",
    "UPDATE",
    "COMMIT",
    "write main-wal",
    "sync main-wal",
    "write main",
    "sync main",
    "returned",
)
"""Before each statement of an append, in the midst of each kind of write, and once it returned."""


class Death:
    """Comes when a point is reached for the `count`th time."""

    def __init__(self, point: str, count: int) -> None:
        self.point = point
        self.left = count

    def at(self, point: str) -> None:
        """Die here, if it is here."""
        if point == self.point:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def disk(self, name: str, file: str) -> None:
        """Stand before an operation of the disk."""
        self.at(f"{name} {file}")

    def statement(self, _cursor: apsw.Cursor, sql: str, _bindings: Any) -> bool:
        """Stand before a statement."""
        self.at(sql.split(maxsplit=1)[0])
        return True


def die(path: Path, seed: int, point: str, say: int) -> None:
    """Append until death comes, saying what is tried and what is acknowledged."""
    chance = random.Random(seed)
    death = Death(point, chance.randrange(1, 12))
    with ExitStack() as stack:
        stack.enter_context(mounted(path, death.disk))
        log = SqliteLog(path)
        epoch = log.acquire("s", Owner.here(f"seed {seed}"), time.time()).epoch
        log._database.rows("PRAGMA wal_autocheckpoint = 6")
        with log._database.writing() as connection:
            connection.exec_trace = death.statement
        while True:
            head = log.head("s").seq
            text = "x" * chance.randrange(1, 6_000)
            drafts = [Draft("user_message", {"text": text})] * chance.choice((1, 1, 3))
            os.write(say, b"%d\n" % (head + len(drafts)))
            events = log.append("s", epoch, head, drafts, time.time())
            death.at("returned")
            os.write(say, b"".join(b"%d %s\n" % (e.seq, e.id.encode()) for e in events))


def answer(path: Path, seed: int, point: str) -> dict[str, Any]:
    """Fork one that dies; return what it said, and that it was killed."""
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            die(path, seed, point, say)
        finally:
            os._exit(1)  # whatever happened: this is no second parent
    os.close(say)
    with os.fdopen(hear) as pipe:
        lines = [line.split() for line in pipe]
    _, status = os.waitpid(child, 0)
    return {
        "tried": max((int(words[0]) for words in lines), default=0),
        "told": {words[0]: words[1] for words in lines if len(words) == 2},
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        number, _, named = line.strip().partition(" ")
        sys.stdout.write(json.dumps(answer(Path(sys.argv[1]), int(number), named)) + "\n")
        sys.stdout.flush()

"""The matrix of faces, kinds of servers and windows; `make matrix` writes it as a table.

A cell is 60 turns of text that other people wrote, as much as half as large again as the window,
with three restarts that leave only what is on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.casks import KINDS, Cask, Kind
from tests.support.faces import FACES, opened
from tests.support.loopback import serve
from tests.support.prose import pieces

TURNS: Final = 60
RESTARTS: Final = (15, 30, 45)

WINDOWS: Final = {"4,096": (4_096, 4_096), "16,384": (16_384, 16_384), "claimed": (4_096, 131_072)}
"""The true window and the one that the server claims, in tokens, by the name of the column."""

GROWTH: Final = 6
"""Characters of text a turn for each token of the window and turn: half as much again in all."""

TASK: Final = "The task: keep the log of the voyage. The codeword is marlin."
RULE: Final = "From now on always write depths in fathoms, never in metres."
MARKS: Final = ("codeword is marlin", "depths in fathoms")


@dataclass
class Came:
    """What came of a cell: `over` are requests that were cut or refused, `missing` answered ones
    without the task or the rule that were not cut, `wrong` sizes outside of our band, `twice` tiers
    that were told again.
    """

    failed: list[str] = field(default_factory=list)
    over: int = 0
    missing: int = 0
    wrong: int = 0
    twice: int = 0
    largest: float = 0.0


def play(
    face: str, kind: Kind, window: str, folder: Path, turns: int = TURNS, place: int = 0
) -> Came:
    """Play a cell, with text from a place on."""
    true, claimed = WINDOWS[window]
    came, text = Came(), pieces(true * GROWTH // turns, place)
    with serve(Cask(kind, true, claimed)) as server:
        for person in opened(face, server, folder):
            for turn in range(turns):
                if turn * TURNS // turns in RESTARTS:
                    person.restart()
                said = f"Please note what this says:\n```\n{next(text)}\n```"
                said = {0: f"{TASK} {said}", 5: RULE}.get(turn, said)
                server.marks = MARKS[: 1 + (turn >= 5)]
                try:
                    person.say(said)
                except Exception as error:  # noqa: BLE001 - whatever it is, a person got no answer
                    came.failed.append(f"turn {turn}: {error}")
            came.twice = person.count_repeated()
            came.wrong = sum(not low <= size <= high for size, (low, high) in person.sizes)
        cut = set(server.cut)
        came.over = len(server.cut) + len(server.refused)
        lost = zip(server.sent, server.lost, strict=True)
        came.missing = sum(bool(marks) for size, marks in lost if size not in cut)
        came.largest = max(server.sent) / true
    return came


HEAD: Final = """# One conversation, one memory: the matrix

Each cell is a conversation of 60 turns with three restarts (a new process for each turn of
`cli`), by one face on one kind of server. The text is what other people wrote, half as much again
as the window holds. The agent and `cli` have their standard tools, the others send the
definitions of the same ones.

A cell says how many turns failed, how many requests were cut or refused, how often an answered
request lacked the task or the rule that the user gave, how many sizes lay outside of our band,
and how often a tier was told again. `ok` stands for nothing of all this; `1 over` for one request
that was cut or refused, by which the true window was learned. The column *claimed* is a server
with 4,096 tokens that says it has 131,072.

Written by `make matrix` on real HTTP with the real OpenAI SDK; the server is an emulator that
counts with Llama 3's vocabulary (tests/support/casks.py). `counts` counts requests when asked,
`silent` reports no usage, `cuts` cuts without a word, `numbers` refuses with numbers, `words`
with words only.
"""


def describe(came: Came) -> str:
    """Return a cell in words."""
    named = {
        "failed": len(came.failed),
        "over": came.over,
        "missing": came.missing,
        "wrong sizes": came.wrong,
        "told twice": came.twice,
    }
    return ", ".join(f"{count} {name}" for name, count in named.items() if count) or "ok"


def draw_rows() -> Iterator[str]:
    """Play all cells; yield the lines of the table."""
    yield f"| face | server | {' | '.join(WINDOWS)} |"
    yield f"| --- | --- | {' | '.join('---' for _ in WINDOWS)} |"
    for face in FACES:
        for kind in KINDS:
            cells = []
            for window in WINDOWS:
                with TemporaryDirectory() as folder:
                    cells.append(describe(play(face, kind, window, Path(folder))))
            sys.stderr.write(f"{face} {kind}: {'; '.join(cells)}\n")
            yield f"| {face} | {kind} | {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join([HEAD.rstrip(), "", *draw_rows(), ""]), "utf-8")

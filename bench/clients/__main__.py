"""`python -m bench.clients`: drive real clients through the proxy, and write what happened.

`make bench-clients` installs them, pinned, into a folder of their own. A run is bounded: each turn
by `--turn`, each conversation by `--cell`. What did not come to its end is shown as such.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.clients.driving import Turn, serving, talk
from bench.clients.talkers import TALKERS, Talker, version

WINDOWS: Final = (4_096, 8_192, 32_768)
GIVE_UP: Final = 3
"""Turns in a row without an answer after which a conversation is given up."""

HEAD: Final = """# Clients, turn by turn

Written by `make bench-clients`. Each client is as npm or PyPI has it, told nothing but the
address of `ullage serve --demo` and, where it can be told, to answer in at most 48 tokens; behind
the proxy is SmolLM2 (135 million parameters) on a real llama.cpp server. A model that small uses
no tools and says little of sense: what is shown is whether every turn is answered, and what the
proxy did for it. Seconds are those of the machine that wrote the page, two shared cores, and
bound nothing.

`status` are those of the client's requests in that turn, 499 one that the client gave up;
`tokens` the largest request, of the window. A conversation is given up after three turns in a row
without an answer.
"""


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--client", action="append", default=[], help="by name (all)")
    parser.add_argument("--window", action="append", type=int, default=[], help="tokens (three)")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--turn", type=float, default=120.0, help="seconds for a turn")
    parser.add_argument("--cell", type=float, default=900.0, help="seconds for a conversation")
    parser.add_argument("--notes", type=int, default=12, help="of 18 words, behind each question")
    parser.add_argument("--write", type=Path, help="the page to write, after every conversation")
    given = parser.parse_args()
    chosen = [one for one in TALKERS if not given.client or one.name in given.client]
    found: dict[tuple[str, int], list[Turn]] = {}
    for window in given.window or WINDOWS:
        for talker in chosen:
            with serving(window) as proxy:
                until, missed = time.monotonic() + given.cell, 0
                turns = found[talker.name, window] = []
                for turn in talk(talker, proxy, given.turns, given.turn, given.notes):
                    turns.append(turn)
                    print(f"{talker.name} {window:,} {row(turn)}", flush=True)
                    missed = 0 if turn.answered else missed + 1
                    if missed == GIVE_UP or time.monotonic() > until:
                        break
            if given.write:
                given.write.write_text(page(found, chosen), "utf-8")


def page(found: Mapping[tuple[str, int], Sequence[Turn]], chosen: Sequence[Talker]) -> str:
    """Return the page of what was found."""
    parts = [HEAD]
    for talker in chosen:
        windows = [window for name, window in found if name == talker.name]
        if not windows:
            continue
        parts.append(f"\n## {talker.name} {version(talker)}\n")
        for window in windows:
            turns = found[talker.name, window]
            answered = sum(turn.answered for turn in turns)
            parts.append(f"\n### A window of {window:,}: {answered} of {len(turns)} answered\n")
            parts.append("\n| turn | status | tokens | compacted | seconds | what happened |\n")
            parts.append("|---|---|---|---|---|---|\n")
            parts += [f"{row(turn)}\n" for turn in turns]
    return "".join(parts)


def row(turn: Turn) -> str:
    """Return the row of a turn."""
    told = [line for line in turn.lines if line.get("used") is not None]
    largest = max(told, key=lambda line: int(line["used"]), default=None)
    status = " ".join(str(line["status"]) for line in turn.lines) or "-"
    tokens = "-"
    if largest is not None and largest.get("window"):
        tokens = f"{largest['used']:,} of {largest['window']:,}"
    cells = [str(turn.number), status, tokens, compactions(turn), f"{turn.seconds:.0f}"]
    return f"| {' | '.join([*cells, outcome(turn)])} |"


def compactions(turn: Turn) -> str:
    """Return what was compacted in a turn."""
    made = [line for line in turn.lines if "before" in line]
    return ", ".join(f"{line['before']:,} to {line['after']:,}" for line in made) or "-"


def outcome(turn: Turn) -> str:
    """Return in words what a turn came to."""
    said = [_noted(line) for line in turn.lines]
    notes = list(dict.fromkeys(note for note in said if note))
    if turn.answered:
        return "; ".join(["answered", *notes])
    if turn.ended.startswith("after"):
        return "; ".join([f"given up {turn.ended}", *notes])
    text = turn.text.replace("|", "/")[:100]
    return "; ".join([f"exit code {turn.ended}: {text}" if text else f"exit {turn.ended}", *notes])


def _noted(line: Mapping[str, Any]) -> str:
    tight = line.get("cramped")
    if tight:
        fixed, needed = tight["fixed"], tight["needed"]
        return f"the proxy says: {fixed:,} must stay, a window of {needed:,} would do"
    if "given" in line and line["given"] < line["asked"]:
        return ""
    return str(line.get("code", ""))


if __name__ == "__main__":
    main()

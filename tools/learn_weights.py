"""Learns the weights of `ullage.core.facts.weights`, and writes the table and its report.

`make weights`. The label is evidence planted in sessions of the `tuned` authors (`bench/corpora`):
a user's segment is worth keeping if it holds text that will be asked for. A later answer takes up
half of the evidence. Other sentences have numbers that nobody asks for, and logs are pasted. The
weight of answers and results compared with users' words is not learned: users' words come first.
The weight of documents is not learned either, as no session has any, nor that of denials: in
generated sessions people deny mechanically, and in written ones they use denials for their limits.

A table is judged by how much of the evidence its best segments hold, at several shares of a
session's tokens. One weight after another moves along a ladder while that helps. A weight leaves
its default only for a gain, and then goes half of the way, because the sessions are generated: what
they lack may count elsewhere. Each author is left out once, and judged by the table of the others.
`held` authors are not read.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.corpus import Evidence, Style, load_styles, write_session
from ullage.core.compaction.words import estimate, is_said, rank
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.facts.salience import WordSpread, weigh
from ullage.core.facts.weights import LEARNED, Weights

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "src/ullage/core/facts/weights.py"
REPORT: Final = ROOT / "docs/weights.md"
SHARES: Final = (0.01, 0.02, 0.03, 0.05)
"""Shares of a session's tokens at which a table is judged: too small for everything."""

FIXED: Final = ("denial", "document", "assistant", "report", "tool")
LEARNABLE: Final = tuple(name for name in Weights._fields if name not in FIXED)
STEPS: Final = (0.5, 0.75, 0.9, 1.1, 1.33, 2.0)
ROUNDS: Final = 3
GAIN: Final = 0.002
"""The least gain for which a weight is moved."""

BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "rarity": (1.0, 4.0),
    "plain": (4.0, 64.0),
    "number": (4.0, 6.0),
    **dict.fromkeys(("signed", "name"), (1.0, 6.0)),
    "taken_up": (1.4, 4.0),
    "question": (0.05, 1.0),
    "worn": (0.0, 1.0),
    "cue": (1.0, 4.0),
    "pasted": (0.05, 1.0),
    "bulk": (10.0, 400.0),
    "length": (0.5, 1.0),
}
"""Limits from the meaning of a weight. Text that later turns use was worth keeping, and a number
says as much as a name: generated sessions reuse and count mechanically, and must not lower that. A
message of few segments is not bulky."""


class Session(NamedTuple):
    """A session as messages, the evidence to find in it, and its approximate tokens."""

    messages: Sequence[Message]
    wanted: tuple[Evidence, ...]
    tokens: float


def read_sessions(style: Style, seeds: int) -> list[Session]:
    """Return sessions of an author; every second one makes the choice harder."""
    found = []
    for seed in range(seeds):
        made = write_session(style, 1_000 + seed)
        raws = list(made.messages)
        wanted = tuple(each for each in made.evidence if each.stays)
        if seed % 2:
            texts = [each.text for each in wanted]
            raws = list(_disturb(raws, texts, random.Random(seed)))  # noqa: S311
        messages = OpenAIChat().read(raws).messages
        found.append(Session(messages, wanted, sum(estimate(m.text) for m in messages)))
    return found


def _disturb(
    raws: Sequence[dict[str, Any]], wanted: Sequence[str], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield messages with pasted logs, numbers that nobody asks for, and answers with evidence."""
    later = rng.sample(wanted, len(wanted) // 2)
    before = ""
    for raw in raws:
        before += f"{raw['content']}\n"
        used = next((text for text in later if text in before and rng.random() < 0.1), None)
        if raw["role"] == "assistant" and raw["content"] and used is not None:
            later.remove(used)
            yield {**raw, "content": f"{raw['content']} ({used})"}
        elif raw["role"] == "user" and rng.random() < 0.2:
            yield {**raw, "content": f"{raw['content']} ({rng.randrange(10_000)})"}
        elif raw["role"] == "user" and rng.random() < 0.2:
            lines = (
                f"{rng.randrange(24):02}:{rng.randrange(60):02}:00 Node-{rng.randrange(999)} at "
                f"{rng.randrange(10_000)} ms"
                for _ in range(rng.randint(3, 20))
            )
            yield {**raw, "content": f"{raw['content']}\n\n" + "\n".join(lines)}
        else:
            yield raw


def judge(sessions: Sequence[Session], learned: Weights) -> float:
    """Return the share of the evidence in the best segments, over all `SHARES`."""
    found = total = 0
    for session in sessions:
        spread = WordSpread(session.messages, learned)
        places = range(len(session.messages))
        weighed = (weigh(session.messages, place, spread) for place in places)
        told = list(filter(is_said, chain.from_iterable(weighed)))
        told.sort(key=lambda valued: -rank(valued.worth, valued.segment.text, learned))
        for share in SHARES:
            left, kept = session.tokens * share, []
            for valued in told:
                cost = estimate(valued.segment.text)
                if cost <= left:
                    left -= cost
                    kept.append(valued.segment.text)
            text = "\n".join(kept)
            found += sum(wanted.is_in(text) for wanted in session.wanted)
            total += len(session.wanted)
    return found / total


Known = dict[tuple[str, Weights], float]


class Learner:
    """Judges tables by author; judges each table once."""

    def __init__(self, sessions: Mapping[str, Sequence[Session]]) -> None:
        self.sessions = sessions
        self.known: Known = {}

    def judge(self, authors: Sequence[str], learned: Weights) -> float:
        """Return the mean score of these authors."""
        for author in authors:
            if (author, learned) not in self.known:
                self.known[author, learned] = judge(self.sessions[author], learned)
        return sum(self.known[author, learned] for author in authors) / len(authors)

    def learn(self, authors: Sequence[str], start: Weights) -> Weights:
        """Return the best table for these authors that steps from `start` reach."""
        best, reached = start, self.judge(authors, start)
        for _ in range(ROUNDS):
            before = reached
            for name in LEARNABLE:
                for step in STEPS:
                    value = round(getattr(best, name) * step, 3)
                    least, most = BOUNDS[name]
                    moved = best._replace(**{name: min(max(value, least), most)})
                    score = self.judge(authors, moved)
                    if score > reached + GAIN:
                        best, reached = moved, score
            if reached <= before + GAIN:
                break
        halves = {n: _halve(getattr(start, n), getattr(best, n)) for n in LEARNABLE}
        return start._replace(**halves)


def _halve(start: float, end: float) -> float:
    """Return the geometric mean; weights are factors."""
    return start if start == end else round((start * end) ** 0.5, 2)


def main() -> None:
    """Learn, and write the table and the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=4, help="sessions of each author")
    parser.add_argument("--check", action="store_true", help="judge the table; write nothing")
    given = parser.parse_args()
    tuned = [style for style in load_styles() if style.split == "tuned"]
    learner = Learner({style.key: read_sessions(style, given.sessions) for style in tuned})
    authors = list(learner.sessions)
    if given.check:
        print(f"tuned authors, the table as it is: {learner.judge(authors, LEARNED):.3f}")
        return
    table = learner.learn(authors, LEARNED)
    print(f"{learner.judge(authors, LEARNED):.3f} became {learner.judge(authors, table):.3f}")
    left_out = {}
    for author in authors:
        others = [other for other in authors if other != author]
        left_out[author] = learner.learn(others, LEARNED)
        print(f"without {author}: {learner.judge([author], left_out[author]):.3f}", flush=True)
    write_table(table)
    REPORT.write_text("\n".join(_report(learner, table, left_out)) + "\n", encoding="utf-8")


def write_table(table: Weights) -> None:
    """Write the values into the table; the rest of the file stays."""
    text = TABLE.read_text("utf-8")
    for name, value in table._asdict().items():
        text = re.sub(rf"(?m)^(    {name}=)[^,]+,$", rf"\g<1>{value},", text)
    TABLE.write_text(text, encoding="utf-8")


def _report(learner: Learner, table: Weights, left_out: Mapping[str, Weights]) -> Iterator[str]:
    authors = list(left_out)
    yield "# How sentences are weighed"
    yield ""
    yield "Written by `make weights` (`tools/learn_weights.py`). The weights of"
    yield "`ullage.core.facts.weights` are learned from sessions of the authors of `bench/corpora`"
    yield "that are *tuned*; those that are *held* are not read. What is judged is the share of the"
    yield "planted evidence that people's best sentences hold, the mean over"
    yield f"{', '.join(f'{share:.0%}' for share in SHARES)} of a session's tokens. In every second"
    yield "session logs are pasted, other sentences have numbers, and half of the evidence is taken"
    yield "up by an answer. No word of a session is in the table. How much denials, documents,"
    yield "answers, reports and results count beside people's words is not learned."
    yield ""
    yield "| author | before | learned from all | learned from the others |"
    yield "|---|---|---|---|"
    for author in authors:
        row = (LEARNED, table, left_out[author])
        yield f"| {author} | " + " | ".join(f"{learner.judge([author], w):.3f}" for w in row) + " |"
    crossed = sum(learner.judge([a], left_out[a]) for a in authors) / len(authors)
    whole = f"{learner.judge(authors, LEARNED):.3f} | {learner.judge(authors, table):.3f}"
    yield f"| **all** | {whole} | {crossed:.3f} |"
    yield ""
    yield "*Before* is the table that was there when the script ran. The last column is the honest"
    yield "one: each author is judged by weights that were learned without it. A weight goes half"
    yield "of the way to where it is best: the sessions are made, and what they lack may count"
    yield "elsewhere."
    yield ""
    yield "| weight | before | learned | range of the left-out tables | what is lost without it |"
    yield "|---|---|---|---|---|"
    reached = learner.judge(authors, table)
    for name in LEARNABLE:
        values = [getattr(each, name) for each in left_out.values()]
        lost = reached - learner.judge(authors, table._replace(**{name: NEUTRAL[name]}))
        spread = f"{min(values):g} to {max(values):g}"
        was, now = getattr(LEARNED, name), getattr(table, name)
        yield f"| {name} | {was:g} | {now:g} | {spread} | {lost:+.3f} |"
    yield ""
    yield "*What is lost without it* is the change when the weight is neutral: one that counts"
    yield "nothing, with the others as they are. A weight without a loss stands for what these"
    yield "sessions do not have; it never moves without a gain."


NEUTRAL: Final[Mapping[str, float]] = {
    "rarity": 1.0,
    **dict.fromkeys(("number", "signed", "name", "taken_up", "question", "cue", "pasted"), 1.0),
    "worn": 0.0,
    "plain": 1e9,
    "bulk": 1e9,
    "length": 1.0,
}

if __name__ == "__main__":
    main()

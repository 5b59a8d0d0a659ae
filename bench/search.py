"""Measures what a search finds in generated sessions, and its time over many messages.

`bench/questions.json` asks for sentences of the authors of `bench/corpora`, twice each: with the
words of the sentence, and with other words. The questions were written before any measurement.
"""

from __future__ import annotations

import json
import math
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench import content
from bench.cells import Row, table
from bench.corpus import FOLDER, Evidence, Style, load_styles, write_session
from bench.measure import Bench
from tests.support import postgres
from ullage.core.errors import ConfigurationError
from ullage.core.search.index import MemoryIndex, SearchSource
from ullage.core.search.ranking import HITS, Similar, find_hits
from ullage.core.session.log.event import Draft
from ullage.embeddings import prepare_similar
from ullage.storage import open_log
from ullage.storage.log import EventLog, Owner
from ullage.storage.searching import search_log

QUESTIONS: Final = Path(__file__).parent / "questions.json"
KINDS: Final = ("same words", "other words")
PLAIN: Final = "plain BM25"
OURS: Final = "ullage"
FUSED: Final = "ullage, `embeddings`"

AT_ONCE: Final = 500
"""Events per session of the log that is timed."""

OWNER: Final = Owner("bench", 1, "host", "thread")
WORD: Final = re.compile(r"\w+")

Search = Callable[[str], Sequence[str]]


class Question(NamedTuple):
    """A question in both wordings, the author that it is about, and the evidence to find."""

    style: Style
    wordings: Sequence[str]
    evidence: Evidence


class Plain:
    """Textbook BM25: whole words of whole messages."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(dict.fromkeys(texts))
        self._counts = [Counter(WORD.findall(text.lower())) for text in self._texts]
        self._mean = sum(map(Counter.total, self._counts)) / len(self._texts)
        self._postings: dict[str, list[int]] = defaultdict(list)
        for number, counts in enumerate(self._counts):
            for word in counts:
                self._postings[word].append(number)

    def search(self, query: str) -> list[str]:
        """Return the messages that fit best."""
        scores: dict[int, float] = defaultdict(float)
        for word in set(WORD.findall(query.lower())):
            held = self._postings.get(word, ())
            weight = math.log(1 + (len(self._texts) - len(held) + 0.5) / (len(held) + 0.5))
            for number in held:
                counts = self._counts[number]
                norm = 1.2 * (0.25 + 0.75 * counts.total() / self._mean)
                scores[number] += weight * counts[word] * 2.2 / (counts[word] + norm)
        best = sorted(scores, key=lambda number: -scores[number])
        return [self._texts[number] for number in best[:HITS]]


def search(bench: Bench) -> None:
    """Search sessions of all authors, then time searches over many messages."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    messages = 0
    for seed in range(bench.plan.asked):
        texts, questions = write_log(seed)
        messages += len(texts)
        for name, found in _make_searches(texts).items():
            for question in questions:
                _count(rows[name], question, found)
    bench.results["search"] = {
        "rows": {name: dict(row) for name, row in rows.items()},
        "messages": messages // bench.plan.asked,
        "logs": bench.plan.asked,
        "times": dict(_time_stores(bench)),
        "over": bench.plan.searched,
    }


def load_questions() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return both wordings of each question, by author and sentence of the author's file.

    The questions follow the order of the file: first its facts, then the rules of all scenes.
    """
    asked = json.loads(QUESTIONS.read_text("utf-8"))
    found = {}
    for author, wordings in asked.items():
        data = json.loads((FOLDER / f"{author}.json").read_text("utf-8"))
        rules = [rule for scene in data.get("scenes", [data]) for rule in scene.get("rules", ())]
        said = [sentence for sentence, *_ in (*data.get("facts", ()), *rules)]
        found[author] = dict(zip(said, wordings, strict=False))
    return found


def write_log(seed: int) -> tuple[list[str], list[Question]]:
    """Return the texts of a session of every author, and the questions about them."""
    asked = load_questions()
    texts: list[str] = []
    questions: list[Question] = []
    for file, style in zip(sorted(FOLDER.glob("*.json")), load_styles(), strict=True):
        made = write_session(style, seed)
        said = (message["content"] for message in made.messages)
        texts += (text for text in said if isinstance(text, str))
        wordings = asked.get(file.stem, {})
        questions += (
            Question(style, wordings[one.sentence], one)
            for one in made.evidence
            if one.sentence in wordings
        )
    return texts, questions


def _make_searches(texts: Sequence[str]) -> Mapping[str, Search]:
    found: dict[str, Search] = {PLAIN: Plain(texts).search, OURS: _index(texts, None)}
    with suppress(ConfigurationError):  # the extra may not be installed
        found[FUSED] = _index(texts, prepare_similar())
    return found


def _index(texts: Sequence[str], similar: Similar | None) -> Search:
    index = MemoryIndex()
    index.similar = similar
    named = (SearchSource(f"u:{n}", text, n) for n, text in enumerate(texts))
    index.take("", named, len(texts))
    return lambda query: [hit.text for hit in find_hits(index, query)]


def _count(row: Counter[str], question: Question, found: Search) -> None:
    for kind, wording in zip(KINDS, question.wordings, strict=True):
        hit = any(question.evidence.is_in(" ".join(text.split())) for text in found(wording))
        for part in (question.style.split, question.style.language, question.style.kind):
            row[f"{kind}/{part}/found"] += hit
            row[f"{kind}/{part}/of"] += 1


# --- time -----------------------------------------------------------------------------------------


def _time_stores(bench: Bench) -> Iterator[tuple[str, Row]]:
    """Yield the seconds of searches over many messages in each kind of log."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"sqlite:{folder}/log.db"
        for name, opens in {
            "in memory": lambda: open_log("memory:"),
            "SQLite": lambda: open_log(file),
        }.items():
            yield name, _time(bench, name, opens)
        with suppress(ConfigurationError), closing(open_log(file, embeddings=True)) as log:
            yield "SQLite, `embeddings`", _time_log(bench, log)
    try:
        installation = postgres.obtain()
    except ConfigurationError:
        return
    with postgres.Server(installation) as server:
        url = server.created()
        yield "PostgreSQL", _time(bench, "PostgreSQL", lambda: open_log(url))


def _time(bench: Bench, name: str, opens: Callable[[], EventLog]) -> Row:
    with closing(opens()) as log:
        _fill(log, bench.plan.searched)
        row = _time_log(bench, log)
    bench.say(f"search {name}: {median(row['new']) * 1000:.1f} ms")
    return row


def _time_log(bench: Bench, log: EventLog) -> Row:
    with _stopped() as took:
        search_log(log, "nothing of the kind")
    queries = list(_draw_queries(60))
    new, again = (
        [_time_query(log, query) for _ in range(rounds) for query in queries]
        for rounds in (1, bench.plan.rounds)
    )
    return {"first": took, "new": new, "again": again}


def _time_query(log: EventLog, query: str) -> float:
    with _stopped() as took:
        search_log(log, query)
    return took[0]


@contextmanager
def _stopped() -> Iterator[list[float]]:
    took: list[float] = []
    began = time.perf_counter()
    yield took
    took.append(time.perf_counter() - began)


def _draw_queries(most: int) -> Iterator[str]:
    """Yield questions of both wordings, and beginnings of messages, which are common words."""
    rng = random.Random(3)
    asked = [w for one in load_questions().values() for both in one.values() for w in both]
    yield from rng.sample(asked, most * 2 // 3)
    texts = _draw_texts()
    yield from (next(texts)[:80] for _ in range(most - most * 2 // 3))


def _fill(log: EventLog, most: int) -> None:
    """Write at least this many messages into sessions of a log."""
    texts = _draw_texts()
    for number in range(math.ceil(most / AT_ONCE)):
        name = f"session-{number}"
        log.create(name, 1.0)
        lease = log.acquire(name, OWNER, 1.0)
        said = [Draft("user_message", {"text": next(texts)}) for _ in range(AT_ONCE)]
        log.append(name, lease.epoch, 0, said, 1.0)
        log.release(name, lease.epoch, 1.0)


def _draw_texts() -> Iterator[str]:
    """Yield the authors' texts and, between them, remarks of agents at work."""
    rng = random.Random(5)
    seed = 0
    while True:
        for style in load_styles():
            for message in write_session(style, seed).messages:
                yield _remark(rng)
                if isinstance(message["content"], str):
                    yield message["content"]
        seed += 1


def _remark(rng: random.Random) -> str:
    said = rng.choices(content.REMARKS, k=rng.randint(1, 4))
    return " ".join(
        sentence.format(
            thing=content.word(rng),
            trait=rng.choice(content.TRAITS),
            place=rng.choice(content.PLACES),
            deed=rng.choice(content.DEEDS),
            path=f"{rng.choice(content.PLACES)}/{content.word(rng)}.py",
            n=rng.randint(2, 99),
            m=rng.randint(100, 999),
        )
        for sentence in said
    )


# --- the page -------------------------------------------------------------------------------------


def shown(results: Mapping[str, Any]) -> str:
    """Return the section on what a search finds, and how long it takes."""
    found: Row = results["search"]
    rows: Mapping[str, Mapping[str, int]] = found["rows"]
    styles = load_styles()
    languages = sorted({s.language for s in styles if _rate(rows[PLAIN], KINDS[0], s.language)})
    kinds = sorted({s.kind for s in styles if _rate(rows[PLAIN], KINDS[0], s.kind)})
    asked = sum(rows[PLAIN][f"{KINDS[0]}/{split}/of"] for split in ("tuned", "held"))
    return (
        f"## What a search finds\n\n{found['logs']} logs with a session of every author "
        f"(`bench/corpora`), {found['messages']:,} messages each, and {asked} questions for what "
        "was said in them (`bench/questions.json`), each in words that stand there and in other "
        "words. Per cent whose evidence stands in the first ten hits. *Plain BM25* takes whole "
        "words of whole messages. The questions were written first; how the two rankings are fused "
        "was chosen with the answers of both *tuned* and *held* authors in view:\n\n"
        + _share(rows, ("tuned", "held"))
        + "\nBy language:\n\n"
        + _share(rows, languages)
        + "\nBy kind of session:\n\n"
        + _share(rows, kinds)
        + f"\nTime of a search over {found['over']:,} messages, in ms: of 60 queries that were not "
        "asked before, and asked again; *first* takes all of them in, in seconds (for "
        "`embeddings`, it makes the vectors of the newest 10,000 passages):\n\n"
        + table(
            ["", "first, s", "new, median", "95 of 100", "again, median", "95 of 100"],
            ([name, *_times(row)] for name, row in found["times"].items()),
        )
    )


def _share(rows: Mapping[str, Mapping[str, int]], parts: Sequence[str]) -> str:
    lines = (
        [name, kind, *(_rate(row, kind, part) or "-" for part in parts)]
        for kind in KINDS
        for name, row in rows.items()
    )
    return table(["", "asked in", *parts], lines)


def _rate(row: Mapping[str, int], kind: str, part: str) -> str:
    """Return the percentage of questions that were answered; empty if there were none."""
    of = row.get(f"{kind}/{part}/of", 0)
    return f"{100 * row[f'{kind}/{part}/found'] / of:.0f}" if of else ""


def _times(row: Row) -> Iterator[str]:
    yield f"{median(row['first']):.1f}"
    for key in ("new", "again"):
        ordered = sorted(row[key])
        yield f"{median(ordered) * 1000:.1f}"
        yield f"{ordered[int(len(ordered) * 0.95)] * 1000:.1f}"

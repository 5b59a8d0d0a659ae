"""A text counter in its own process: `python -m bench.textworker NAME`, jobs as for `bench.worker`.

Of messages it only knows where their texts are.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import content, peers
from bench.memory import held_mb
from bench.peers.texts import Counting
from bench.worker import Answer, Job, answer_all, timed, versions

SHORT = 10_000
"""Texts of 20 characters; all are different."""

APPENDED = 20
"""Characters per append, as in a model's stream."""

APPENDS = 500
APPENDS_S = 3


@dataclass(frozen=True, slots=True)
class Loaded:
    """A counter, and the cost of loading it: CPU seconds and megabytes."""

    counter: Counting
    load_s: float
    load_mb: float


def load(name: str) -> Loaded:
    """Import a counter and let it count a little."""
    module, cls = peers.TEXTS[name][1].split(":")
    make: Callable[[], Counting] = getattr(import_module(module), cls)
    before, start = held_mb(), time.process_time()
    counter = make()
    counter.count("Warm up, größe 中文.")
    spent = time.process_time() - start
    return Loaded(counter, spent, held_mb() - before)


def loaded(peer: Loaded, job: Job) -> Answer:
    """Report the cost of loading."""
    return {"load_s": peer.load_s, "load_mb": peer.load_mb}


def history(peer: Loaded, job: Job) -> Answer:
    """Count every text of a transcript, one call each; all texts are new."""
    read = list(texts(json.loads(Path(job["transcript"]).read_text(encoding="utf-8"))))
    size = sum(len(text.encode()) for text in read)
    before = held_mb()
    seconds, tokens = timed(lambda: sum(map(peer.counter.count, read)))
    return {
        "history_s": seconds, "history_mb": held_mb() - before, "bytes": size, "tokens": tokens,
        "texts": len(read),
    }  # fmt: skip


def short(peer: Loaded, job: Job) -> Answer:
    """Count many short texts; seconds per call."""
    read = short_texts(SHORT)
    seconds, tokens = timed(lambda: sum(map(peer.counter.count, read)))
    return {"short_s": seconds / len(read), "tokens": tokens}


def letter(peer: Loaded, job: Job) -> Answer:
    """Count a letter many times over."""
    text = "a" * job["letters"]
    seconds, tokens = timed(lambda: peer.counter.count(text))
    return {"letter_s": seconds, "tokens": tokens}


def append(peer: Loaded, job: Job) -> Answer:
    """Append to a long text and get the tokens of the whole each time; seconds per append."""
    rng = random.Random("appended")
    start = content.prose(rng, job["grown"])
    stream = content.prose(rng, APPENDED * APPENDS)
    more = [stream[at : at + APPENDED] for at in range(0, APPENDED * APPENDS, APPENDED)]
    whole = peer.counter.grown(start)
    gc.collect()
    spent, steps, tokens = 0.0, 0, 0
    for text in more:
        began = time.process_time()
        tokens = whole(text)
        spent += time.process_time() - began
        steps += 1
        if spent > APPENDS_S:
            break
    truth = peer.counter.count(start + "".join(more[:steps]))
    return {"append_s": spent / steps, "appends": steps, "tokens": tokens, "truth": truth}


def texts(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Yield every text of messages: contents, and names and arguments of calls."""
    for message in messages:
        if message.get("content"):
            yield message["content"]
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]
            yield call["function"]["arguments"]


def short_texts(number: int) -> list[str]:
    """Return texts of 20 characters of prose, all different."""
    prose = content.prose(random.Random("short"), 60 * number)
    found = dict.fromkeys(prose[at : at + 20] for at in range(0, len(prose) - 20, 21))
    return list(found)[:number]


JOBS: Mapping[str, Callable[[Any, Job], Answer]] = {
    job.__name__: job for job in (versions, loaded, history, short, letter, append)
}

if __name__ == "__main__":
    answer_all(JOBS, lambda: load(sys.argv[1]))

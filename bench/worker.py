"""A peer in its own process: `python -m bench.worker NAME`, jobs as JSON lines in, answers out.

Times are CPU seconds of the whole process (`time.process_time`), so waiting and other jobs on the
machine do not count. It does not know other peers or rounds.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import content, peers, transcript
from bench.memory import held_mb
from bench.peers import History, Message, Peer

Job = dict[str, Any]
Answer = dict[str, Any]

MORE = 20
"""Messages that are added one by one after the first count."""

MORE_S = 1
"""CPU seconds after which no more of them are timed."""

AGAIN_S = 5
"""CPU seconds of a trim above which it is not repeated."""

RAISED = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that a peer may raise as the result of one trim; any other ends the worker."""


def count(peer: Peer, job: Job) -> Answer:
    """Count all but the last messages; then add them one by one and count again each time."""
    history = peer.read(load_messages(job["transcript"]))
    more = history[-MORE:]
    del history[-MORE:]
    first_s, _ = timed(lambda: peer.count(history))
    spent, steps, tokens = 0.0, 0, 0
    gc.collect()
    for message in more:
        history.append(message)
        if spent < MORE_S:
            start = time.process_time()
            tokens = peer.count(history)
            spent += time.process_time() - start
            steps += 1
    if steps < len(more):
        tokens = peer.count(history)
    return {"first_s": first_s, "more_s": spent / steps, "tokens": tokens}


def tokens(peer: Peer, job: Job) -> Answer:
    """Count a transcript once."""
    return {"tokens": peer.count(peer.read(load_messages(job["transcript"])))}


def held(peer: Peer, job: Job) -> Answer:
    """Hold a history in the library's own types, then count it: megabytes for each."""
    before = held_mb()
    history = peer.read(load_messages(job["transcript"]))
    read = held_mb()
    peer.count(history)
    return {"messages_mb": read - before, "counted_mb": held_mb() - read}


def context(peer: Any, job: Job) -> Answer:
    """Return what fills the window; only ullage's peer can do this."""
    messages = load_messages(job["transcript"])
    context_s, _ = timed(lambda: peer.context(messages, job["window"]))
    again_s, _ = timed(lambda: peer.context(messages, job["window"]))
    return {"context_s": context_s, "again_s": again_s}


def session(peer: Any, job: Job) -> Answer:
    """Load a session from its file and view its window; only ullage's peer can do this."""
    load_s, loaded = timed(lambda: peer.session(job["session"]))
    contents_s, _ = timed(lambda: peer.contents(loaded, job["window"]))
    return {"load_s": load_s, "contents_s": contents_s, "messages": len(loaded.messages)}


def trim(peer: Peer, job: Job) -> Answer:
    """Trim once, in a process that has not seen the history before."""
    history = peer.read(load_messages(job["transcript"]))
    seconds, kept = timed(lambda: peer.trim(history, job["budget"]))
    _save(job["out"], peer.plain(kept))
    return {"trim_s": seconds}


def after(peer: Peer, job: Job) -> Answer:
    """Count once, then trim twice: the second time a library may know more."""
    history = peer.read(load_messages(job["transcript"]))
    peer.count(history)
    trim_s, kept = timed(lambda: peer.trim(history, job["budget"]))
    _save(job["out"], peer.plain(kept))
    del kept
    if trim_s > AGAIN_S:
        return {"trim_s": trim_s}
    again_s, _ = timed(lambda: peer.trim(history, job["budget"]))
    return {"trim_s": trim_s, "again_s": again_s}


def chain(peer: Any, job: Job) -> Answer:
    """Compact a growing session part by part and save what is left."""
    history = peer.read(load_messages(job["transcript"]))
    chained = getattr(peer, "chained", None) or partial(_chained, peer)
    chain_s, left = timed(lambda: chained(history, job))
    _save(job["out"], peer.plain(left))
    return {"chain_s": chain_s, "told": getattr(peer, "told", [])[-len(job["parts"]) :]}


def _chained(peer: Peer, history: History, job: Job) -> History:
    left: History = []
    start = 0
    for stop in job["parts"]:
        left = peer.trim([*left, *history[start:stop]], job["budget"])
        start = stop
    return left


def cover(peer: Any, job: Job) -> Answer:
    """Compact with a summarizer that records its requests; only ullage's peer can do this."""
    history = load_messages(job["transcript"])
    kept, asked = peer.covered(history, job["budget"], job["window"])
    _save(job["out"], {"kept": kept, "asked": asked})
    return {"requests": len(asked)}


def covered(peer: Any, job: Job) -> Answer:
    """Judge the requests to a summarizer."""
    found = json.loads(Path(job["out"]).read_text(encoding="utf-8"))
    before = load_messages(job["transcript"])
    answer: Answer = peer.judge.covered(before, found["kept"], found["asked"], job["window"])
    return answer


def loop(peer: Peer, job: Job) -> Answer:
    """Add turn after turn and count the history; stop when `limit_s` of CPU time is spent."""
    history: History = []

    def step(turn: list[Message]) -> None:
        history.extend(peer.read(turn))
        peer.count(history)

    total, done = _turns(job, step)
    return {"loop_s": total, "turns": done}


def manage(peer: Peer, job: Job) -> Answer:
    """Add turn after turn and make a request that fits; count requests that extend the last one."""
    history: History = []
    sent: list[History] = [[]]
    kept = 0
    make = peer.manager(job["window"], job["output"])

    def step(turn: list[Message]) -> None:
        history.extend(peer.read(turn))
        sent.append(make(history))

    def extends() -> None:
        nonlocal kept
        before, now = sent[-2:]
        kept += len(now) >= len(before) and all(map(_same, before, now))
        del sent[0]

    total, done = _turns(job, step, between=extends)
    _save(job["out"], peer.plain(sent[-1]))
    return {"loop_s": total, "turns": done, "extending": kept}


def sweep(peer: Peer, job: Job) -> Answer:
    """Trim to every budget; the result of a failed trim is the name of its error."""
    results: dict[str, Any] = {}
    for budget in job["budgets"]:
        history = peer.read(load_messages(job["transcript"]))
        try:
            results[budget] = peer.plain(peer.trim(history, budget))
        except RAISED as error:
            results[budget] = type(error).__name__
    _save(job["out"], results)
    return {}


def kinds(peer: Peer, job: Job) -> Answer:
    """Count one user message of each kind of text."""
    return {kind: peer.count(peer.read(messages)) for kind, messages in samples().items()}


def versions(peer: Peer, job: Job) -> Answer:
    """Return the versions of the libraries."""
    return {name: version(name) for name in job["libraries"]}


def verdict(peer: Any, job: Job) -> Answer:
    """Judge one result; only the plain tiktoken peer has a judge."""
    before, after = load_messages(job["transcript"]), load_messages(job["out"])
    answer: Answer = peer.judge.verdict(before, after, job["budget"])
    return answer


def verdicts(peer: Any, job: Job) -> Answer:
    """Judge the results of a sweep."""
    before = load_messages(job["transcript"])
    results = json.loads(Path(job["out"]).read_text(encoding="utf-8"))
    return {
        budget: {"raised": after}
        if isinstance(after, str)
        else peer.judge.verdict(before, after, int(budget))
        for budget, after in results.items()
    }


JOBS: Mapping[str, Callable[[Any, Job], Answer]] = {
    job.__name__: job
    for job in (
        count, tokens, trim, loop, manage, sweep, kinds, held, context, session, versions,
        verdict, verdicts, after, chain, cover, covered,
    )
}  # fmt: skip


def samples() -> dict[str, list[Message]]:
    """Return a history of one user message for each kind of text."""
    rng = random.Random("kinds")
    return {
        kind: [{"role": "user", "content": make(rng, 20_000)}]
        for kind, make in content.KINDS.items()
    }


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call and its result; collects garbage first."""
    gc.collect()
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def _turns(
    job: Job, step: Callable[[list[Message]], None], between: Callable[[], None] | None = None
) -> tuple[float, int]:
    total, done = 0.0, 0
    gc.collect()
    for turn in list(transcript.turns(load_messages(job["transcript"])))[: job["turns"]]:
        start = time.process_time()
        step(turn)
        total += time.process_time() - start
        done += 1
        if between:
            between()
        if total > job["limit_s"]:
            break
    return total, done


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def load_messages(path: str) -> list[Message]:
    """Return a transcript from its file."""
    messages: list[Message] = json.loads(Path(path).read_text(encoding="utf-8"))
    return messages


def _save(path: str, value: Any) -> None:
    Path(path).write_text(json.dumps(value), encoding="utf-8")


def main(name: str) -> None:
    """Answer jobs until the input ends; an error in a job ends the process."""
    answer_all(JOBS, lambda: peers.load(name))


def answer_all(jobs: Mapping[str, Callable[[Any, Job], Answer]], load: Callable[[], Any]) -> None:
    """Answer the jobs on standard input, one JSON object per line."""
    out = sys.stdout
    sys.stdout = sys.stderr  # the prints of libraries must not break the protocol
    peer = load()
    for line in sys.stdin:
        job = json.loads(line)
        out.write(json.dumps(jobs[job["op"]](peer, job)) + "\n")
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])

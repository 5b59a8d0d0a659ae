"""Measures which planted facts are still there after three compactions of a growing session.

A session is cut into three parts. Each part is added to the result of the last compaction, and the
whole is compacted again. A fact counts if the messages that would be sent contain its text; no
model is asked. Sessions come from `tests/fidelity.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import peers, venvs
from bench.measure import Bench
from bench.workers import START_S, Answer, Worker
from tests.fidelity import SETS, Corpus, Planted, Set, corpus

PARTS: Final = 3
BY_RULE: Final = "ullage, summary by rule"
BY_MODEL: Final = "ullage, summary by a model"
MODEL_S: Final = 1_800
"""CPU seconds of a chain whose summaries a model writes; they also bound the waiting time."""

RECORDED: Final = venvs.ROOT / "bench" / "recorded" / "survival.json"
"""File with the results of a real model (`--summarizer`), which is too slow for every run."""


def survival(bench: Bench) -> None:
    """Chain compactions by every strategy and budget, and count the facts that are left."""
    plan = bench.plan
    names = [*peers.CHAINED, *(n for n in bench.trimmers() if n != venvs.OURS)]
    names = [name for name in names if peers.home(name) in bench.homes()]
    with bench.referee() as referee:
        seeds = [(of, seed) for of in SETS for seed in range(plan.sessions)]
        sessions = _sessions(bench, referee, seeds, plan.session_turns)
        limit_s = plan.chain_limit_s
        table = {name: _chained(bench, referee, name, sessions, limit_s) for name in names}
        if plan.summarizer:
            _recorded(bench, referee)
    bench.results["survival"] = {
        "rows": table,
        "sessions": len(sessions),
        "tokens": [session.tokens for session in sessions],
        "recorded": json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else None,
    }


def _recorded(bench: Bench, referee: Worker) -> None:
    """Ask a real model about small sessions, held-back wordings first; record the results."""
    plan = bench.plan
    turned: list[Set] = ["held", "wild", "seen"]
    seeds = [(turned[n % len(turned)], n) for n in range(plan.model_sessions)]
    sessions = _sessions(bench, referee, seeds, plan.model_turns)
    rows = {name: _chained(bench, referee, name, sessions, MODEL_S) for name in (BY_RULE, BY_MODEL)}
    tokens = [session.tokens for session in sessions]
    told = {"model": plan.summarizer_model, "tokens": tokens, "rows": rows}
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


class Session(NamedTuple):
    """A session: the set of its wordings, its file, and its tokens by the judge."""

    of: Set
    made: Corpus
    file: str
    tokens: int


def _sessions(
    bench: Bench, referee: Worker, seeds: Sequence[tuple[Set, int]], turns: int
) -> list[Session]:
    """Return sessions with this many turns, written to files."""
    found: list[Session] = []
    for of, seed in seeds:
        made = corpus(seed, templates=of, turns=turns, each=6)
        file = bench.folder / f"session-{of}-{seed}-{turns}.json"
        file.write_text(json.dumps(made.messages), encoding="utf-8")
        tokens = referee.ask({"op": "tokens", "transcript": str(file)}, START_S)["tokens"]
        found.append(Session(of, made, str(file), tokens))
    return found


def _chained(
    bench: Bench, referee: Worker, name: str, sessions: Sequence[Session], limit_s: float
) -> dict[str, Any]:
    """Return, by share of the whole, the facts kept by set and kind, and the judge's checks."""
    table: dict[str, Any] = {}
    for share in bench.plan.shares:
        kept: Counter[str] = Counter()
        checks: Counter[str] = Counter()
        told: list[Any] = []
        jobs = [_job(bench, name, session, share) for session in sessions]
        for job, session, answer in zip(
            jobs, sessions, answer_jobs(bench, name, jobs, limit_s), strict=True
        ):
            checks["sessions"] += 1
            if "chain_s" not in answer:
                checks["failed"] += 1
                continue
            told += answer["told"]
            sent = Path(job["out"]).read_text("utf-8")
            kept += holding(session.of, session.made.planted, sent)
            verdict = referee.ask(job | {"op": "verdict"}, START_S)
            holds = {check: verdict[check] for check in ("pairs", "budget", "task")}
            checks.update({**holds, "lawful": all(holds.values())})
        table[str(share)] = {"kept": dict(kept), "checks": dict(checks), "told": told}
        bench.say(f"survival {name} {share}: {dict(checks)}")
    return table


def _job(bench: Bench, name: str, session: Session, share: float) -> dict[str, Any]:
    plan = bench.plan
    return {
        "op": "chain", "transcript": session.file, "out": bench.out(name),
        "parts": parts(session.made), "budget": int(session.tokens * share),
        "pinned": pinned(session.made.planted),
        "summarizer": [plan.summarizer, plan.summarizer_model],
    }  # fmt: skip


def answer_jobs(
    bench: Bench, name: str, jobs: Sequence[dict[str, Any]], limit_s: float
) -> Iterator[Answer]:
    """Yield the answers to jobs from one process, with a new one after a failed job."""
    left = list(jobs)
    while left:
        with bench.worker(name) as worker:
            answer: Answer = {}
            while left and "cut" not in answer and "error" not in answer:
                answer = worker.ask(left.pop(0), limit_s)
                yield answer


def parts(made: Corpus) -> list[int]:
    """Return where the parts of a session end: before requests, and the last at the end."""
    n = len(made.messages)
    asked = [i for i, m in enumerate(made.messages) if m["role"] == "user"]
    inner = [next(i for i in asked if i >= n * part // PARTS) for part in range(1, PARTS)]
    return [*inner, n]


def pinned(planted: Sequence[Planted]) -> list[int]:
    """Return the positions of the messages with facts that must stay."""
    return sorted({fact.position for fact in planted if fact.must == "present"})


def holding(of: str, planted: Sequence[Planted], sent: str) -> Counter[str]:
    """Count the facts in their required state in messages as JSON: `set/kind`, and the totals."""
    text = join_strings(sent)
    found: Counter[str] = Counter()
    for fact in planted:
        found[f"{of}/{fact.kind}/of"] += 1
        found[f"{of}/{fact.kind}"] += fact.holds(text)
    return found


def join_strings(sent: str) -> str:
    """Return all texts in messages as JSON."""
    return "\n".join(_strings(json.loads(sent)))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]

"""Measures how much of people's words is kept, by language and kind, for tuned and held authors.

The sessions come from `bench.corpus`, with three compactions in a row as in `bench.survival`.
ullage is compared with rules of one line and of sixty, and with the libraries that trim. A real
model on smaller sessions is too slow for every run, so the page shows a recorded run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench import peers, survival, venvs
from bench.cells import Row, table
from bench.corpus import Style, Written, find_evidence, load_styles, write_session
from bench.measure import Bench
from bench.workers import START_S, Worker

SPLITS: Final = ("tuned", "held")
LADDER: Final = "ullage, default ladder"
NAMES: Final = (LADDER, *peers.SIMPLE, "LangChain exact", "LiteLLM")

RECORDED: Final = venvs.ROOT / "bench" / "recorded" / "fidelity.json"
"""File with the results of a real model (`--summarizer`)."""


class Told(NamedTuple):
    """A session, its file, and its tokens by the judge."""

    style: Style
    made: Written
    file: str
    tokens: int


def fidelity(bench: Bench) -> None:
    """Chain compactions of every author's sessions, and count the evidence that is left."""
    names = [name for name in NAMES if peers.home(name) in bench.homes()]
    with bench.referee() as referee:
        plan = bench.plan
        written = _write_sessions(bench, referee, load_styles(), plan.sessions, plan.session_turns)
        sessions = list(written)
        rows = {
            name: {str(s): _chain(bench, referee, name, sessions, s) for s in plan.shares}
            for name in names
        }
        if plan.summarizer:
            _record(bench, referee, names)
    bench.results["fidelity"] = {
        "rows": rows,
        "tokens": [each.tokens for each in sessions],
        "recorded": json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else None,
    }


def _record(bench: Bench, referee: Worker, names: Sequence[str]) -> None:
    """Ask a real model about one small session of every other author; record the results."""
    plan = bench.plan
    authors = load_styles()[:: plan.model_authors]
    sessions = list(_write_sessions(bench, referee, authors, 1, plan.model_turns))
    rows: dict[str, Any] = {}
    for name in (*peers.BY_MODEL, *names):
        rows[name] = {
            str(share): _chain(bench, referee, name, sessions, share, survival.MODEL_S)
            for share in plan.model_shares
        }
    told = {"model": plan.summarizer_model, "tokens": [each.tokens for each in sessions]}
    RECORDED.write_text(json.dumps(told | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def _write_sessions(
    bench: Bench, referee: Worker, authors: Sequence[Style], number: int, turns: int
) -> Iterator[Told]:
    for style in authors:
        for seed in range(min(number, style.data.get("sessions", number))):
            made = write_session(style, seed, turns)
            file = bench.folder / f"corpus-{style.key.replace('/', '-')}-{seed}-{turns}.json"
            file.write_text(json.dumps(made.messages), encoding="utf-8")
            yield Told(style, made, str(file), _count_tokens(referee, str(file)))


def _chain(
    bench: Bench,
    referee: Worker,
    name: str,
    sessions: Sequence[Told],
    share: float,
    limit_s: float = 0,
) -> dict[str, Any]:
    """Return what is kept of all sessions at a share of the whole, and how full the results are.

    `told` holds the reports of summarizing ways about each compaction.
    """
    kept: Counter[str] = Counter()
    fills: list[float] = []
    told: list[Any] = []
    plan = bench.plan
    jobs: list[dict[str, Any]] = [
        {
            "op": "chain", "transcript": each.file, "out": bench.out(name),
            "parts": find_parts(each.made), "budget": int(each.tokens * share),
            "summarizer": [plan.summarizer, plan.summarizer_model],
        }
        for each in sessions
    ]  # fmt: skip
    answers = survival.answer_jobs(bench, name, jobs, limit_s or plan.chain_limit_s)
    for job, each, answer in zip(jobs, sessions, answers, strict=True):
        failed = "chain_s" not in answer
        sent = "[]" if failed else Path(job["out"]).read_text("utf-8")
        kept += count_kept(each.style, each.made, sent, failed=failed)
        told += answer.get("told", [])
        if not failed:
            fills.append(_count_tokens(referee, job["out"]) / job["budget"])
    bench.say(f"fidelity {name} {share}: {rate(kept, SPLITS)} %")
    found: dict[str, Any] = {"kept": dict(kept), "fill": median(fills or [0.0])}
    return found | {"told": told} if told else found


def _count_tokens(referee: Worker, file: str) -> int:
    return int(referee.ask({"op": "tokens", "transcript": file}, START_S)["tokens"])


def find_parts(made: Written) -> list[int]:
    """Return where the parts of a session end: before requests, and the last at the end."""
    n = len(made.messages)
    asked = [i for i, m in enumerate(made.messages) if m["role"] == "user"]
    inner = [next(i for i in asked if i >= n * k // survival.PARTS) for k in (1, 2)]
    return [*inner, n]


def count_kept(style: Style, made: Written, sent: str, *, failed: bool = False) -> Counter[str]:
    """Count the evidence kept and gone in messages as JSON, with the totals."""
    kept, of, gone, goes = find_evidence(made.evidence, survival.join_strings(sent))
    found = {"kept": kept, "of": of, "gone": 0 if failed else gone, "goes": goes}
    return Counter({f"{style.key}/{name}": number for name, number in found.items()})


def rate(kept: Mapping[str, int], parts: Iterable[str], what: str = "kept/of") -> str:
    """Return the percentage of the evidence whose key has one of these parts."""
    wanted = set(parts)
    held, of = what.split("/")
    keys = {key.rpartition("/")[0] for key in kept if wanted & set(key.split("/"))}
    total = sum(kept.get(f"{key}/{of}", 0) for key in keys)
    return (
        f"{100 * sum(kept.get(f'{key}/{held}', 0) for key in keys) / total:.0f}" if total else "-"
    )


def shown(results: Mapping[str, Any]) -> str:
    """Return the section on what is kept of people's words."""
    found: Row = results["fidelity"]
    rows: Mapping[str, Mapping[str, Row]] = found["rows"]
    tokens = sum(found["tokens"]) // len(found["tokens"])
    styles = load_styles()
    return (
        f"## What is kept of what people said\n\n{len(found['tokens'])} sessions of about "
        f"{tokens:,} tokens by {len(styles)} authors (`bench/corpora`), said among other things; "
        "most have nine facts and rules and two values that change, those of the kinds life, "
        "briefing and letters 14 to 18 plain sentences; three compactions in a row to that share "
        "of the whole. What counts is whether the value, or what a plain sentence tells, stands in "
        "what would be sent. *Best sentences of users* is sixty lines of code: rare words, numbers "
        "and names by a sentence's length, in `bench/peers/plain.py`. "
        "Weights are chosen with the authors that are *tuned* alone. *Old "
        "values gone*: whoever keeps nothing has 100; ullage drops one where the later sentence "
        "plainly takes its place, and keeps both where that is said in other words. *Fill* is the "
        "median of the result's tokens over the target. Per cent:\n\n"
        + table(["", "budget", "tuned", "held", "**all**", "old values gone", "fill"], _all(rows))
        + "\nBy language, ullage and the rules:\n\n"
        + _by(rows, sorted({style.language for style in styles}))
        + "\nBy kind of session:\n\n"
        + _by(rows, sorted({style.kind for style in styles}))
        + _by_model(found.get("recorded"))
    )


def _by_model(told: Row | None) -> str:
    """Return the recorded results of a real model on small sessions, if there are any."""
    if not told:
        return (
            "\nWith a model that summarises: `ARGS='--only fidelity --summarizer embedded'` "
            "records what becomes of small sessions; no run is recorded.\n"
        )
    rows: Mapping[str, Mapping[str, Row]] = told["rows"]
    asked = [entry for row in rows[OURS_BY_MODEL].values() for entry in row["told"]]
    stood = sum(why is None and requests > 0 for _, why, requests in asked)
    worse = sum(why == "summary_worse" for _, why, _ in asked)
    tokens = sum(told["tokens"]) // len(told["tokens"])
    return (
        f"\nA summary by the embedded model, {told['model']}, on two cores, a recorded run "
        f"(`--summarizer embedded`): {len(told['tokens'])} sessions of about {tokens:,} tokens, "
        "three compactions in a row; the other rows are of the same sessions. *A model's summary, "
        'newest messages* asks "Summarise this conversation", and keeps the newest messages '
        "beside the answer, half of the budget each. ullage shows the model the sentences that "
        "are worth most first, checks the answer, puts back what it dropped, and cuts it where the "
        f"extract says more: of {len(asked)} compactions a summary stood in {stood}, and gave way "
        f"to the extract in {worse}; in the others the model gave none that passed the checks, or "
        "there was no room for one.\n\n"
        + table(["", "budget", "tuned", "held", "**all**", "old values gone", "fill"], _all(rows))
    )


OURS_BY_MODEL: Final = next(iter(peers.BY_MODEL))


def _all(rows: Mapping[str, Mapping[str, Row]]) -> Iterable[list[str]]:
    for name, by_share in rows.items():
        for share, row in by_share.items():
            kept: Mapping[str, int] = row["kept"]
            sets = [rate(kept, [split]) for split in SPLITS]
            both, gone = rate(kept, SPLITS), rate(kept, SPLITS, "gone/goes")
            yield [name, _percent(share), *sets, f"**{both}**", gone, f"{row['fill']:.2f}"]


def _by(rows: Mapping[str, Mapping[str, Row]], parts: Sequence[str]) -> str:
    named = [name for name in (LADDER, *peers.SIMPLE) if name in rows]
    lines = (
        [name, _percent(share), *(rate(row["kept"], [part]) for part in parts)]
        for name in named
        for share, row in rows[name].items()
    )
    return table(["", "budget", *parts], lines)


def _percent(share: str) -> str:
    return f"{float(share) * 100:g} %"

"""The page's sections on compaction: trims after counting, survival of facts, summarizer input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench.cells import Row, middle, ms, table

SETS: Final = ("seen", "held", "wild")
KINDS: Final[Mapping[str, str]] = {
    "rule": "rules",
    "prohibition": "prohibitions",
    "identifier": "ids",
    "path": "paths",
    "number": "numbers",
    "task": "open tasks",
    "current": "new values",
}
BY_MODEL: Final = "ullage, summary by a model"
TOLD: Final = ("rule", "prohibition")


def after(results: Row) -> str:
    """Return the section on trims of a history that was counted before."""
    sizes = results["after"]
    names = list(next(iter(sizes.values())))
    rows = [[n, *(ms(sizes[s].get(n), "trim_s") for s in sizes), _grown(sizes, n)] for n in names]
    again = [
        [n, *(ms(row if "again_s" in row else None, "again_s") for row in _of(sizes, n))]
        for n in names
        if any("again_s" in sizes[s].get(n, {}) for s in sizes)
    ]
    heads = [f"{int(size):,} messages" for size in sizes]
    largest = list(sizes)[-1]
    judged = [
        [n, *(_yes(sizes[largest][n], check) for check in ("pairs", "budget", "start", "task"))]
        for n in names
    ]
    return (
        "## Trimming after counting\n\nThe history was counted once in the same process, by each "
        "library's own call; then it is trimmed to half: ms of CPU, the garbage collector on. "
        "`trim alone` leaves the oldest units out and nothing more, as the peers do "
        "(`carry_share=0`); `trim and block` finds the facts in what goes and carries them over; "
        "`default ladder` clears old results first and then trims. What is read of a message for "
        "its facts is kept beside it: the first compaction reads all, later ones what is new. "
        "*Growth* is how many times dearer the largest is than the smallest, by messages: 1 is "
        "linear.\n\n"
        + table(["", *heads, "growth"], rows)
        + "\nAgain, the same trim of the same list (not asked for over 5 s):\n\n"
        + table(["", *heads], again)
        + f"\nWhat came out of {int(largest):,} messages:\n\n"
        + table(["", "pairs", "budget", "start", "task"], judged)
    )


def _of(sizes: Mapping[str, Mapping[str, Row]], name: str) -> list[Row]:
    return [rows.get(name, {}) for rows in sizes.values()]


def _grown(sizes: Mapping[str, Row], name: str) -> str:
    """Return how the cost per message grows from the smallest history to the largest."""
    first, last = next(iter(sizes)), list(sizes)[-1]
    low, high = (middle(sizes[size].get(name), "trim_s") for size in (first, last))
    if low is None or high is None or first == last:
        return "-"
    return f"{high / low / (int(last) / int(first)):.2f}"


def _yes(row: Row, check: str) -> str:
    verdict = row.get("verdict")
    return "-" if not verdict else "yes" if verdict[check] else "**no**"


def survival(results: Row) -> str:
    """Return the section on the planted facts that survive three compactions."""
    found = results["survival"]
    rows = found["rows"]
    tokens = sum(found["tokens"]) // len(found["tokens"])
    return (
        f"## What survives\n\n{found['sessions']} sessions of about {tokens:,} tokens with 46 "
        "facts each, planted mid-session in what the user says (paths: in tool calls) among tool "
        "calls, code, logs and sentences that use the words of rules without being any "
        "(`tests/fidelity.py`). A third of the session is compacted, the next third is added and "
        "all is compacted again, and so the last: three compactions, each to that share of the "
        "whole session. A fact survives if its text stands in the messages that would be sent "
        "(rules, prohibitions and tasks: the whole sentence, word for word; others: the value). "
        "*Old values gone* are sentences that a later one took the place of: whoever keeps nothing "
        "has 100 there, so read it beside *new values*. "
        "*Lawful* are results with pairs, budget and task, of all. `pins given` is told the "
        "messages with facts; they stay whatever the budget is, also over it. Per cent of the "
        "facts:\n\n"
        + table(
            ["", "budget", *KINDS.values(), "**all**", "old values gone", "lawful"],
            _kept(rows),
        )
        + "\nRules and prohibitions alone, by set of phrasings: the finder was tuned on *seen*; "
        "*held* was written before and never tuned on; *wild* has phrasings as people type "
        "them, terse and untidy.\n\n"
        + table(["", *(f"{of} {_share(s)}" for of in SETS for s in _shares(rows))], _by_set(rows))
        + _recorded(found.get("recorded"))
    )


def _recorded(told: Row | None) -> str:
    """Return the recorded results of a real model on small sessions, if there are any."""
    if not told:
        return (
            "\nWith a model that summarises: `ARGS='--only survival --summarizer URL "
            "--summarizer-model NAME'` records what becomes of small sessions; no run is "
            "recorded.\n"
        )
    asked = [entry for row in told["rows"][BY_MODEL].values() for entry in row["told"]]
    stood = sum(entry[1] is None and entry[2] > 0 for entry in asked)
    requests = sum(entry[2] for entry in asked)
    sizes = ", ".join(f"{n:,}" for n in told["tokens"])
    return (
        f"\nWith a real model, {told['model']}, a recorded run over smaller sessions ({sizes} "
        "tokens), beside the form by rule on the same ones. Rules, prohibitions and tasks never "
        f"go through the model. It was asked {requests} times; in {stood} of {len(asked)} "
        "compactions its summary passed the checks, and in the others the form by rule took its "
        "place or there was nothing to summarise:\n\n"
        + table(
            ["", "budget", *KINDS.values(), "**all**", "old values gone", "lawful"],
            _kept(told["rows"]),
        )
    )


def _shares(rows: Mapping[str, Row]) -> list[str]:
    return list(next(iter(rows.values())))


def _share(share: str) -> str:
    return f"{float(share) * 100:g} %"


def _kept(rows: Mapping[str, Row]) -> Iterable[list[str]]:
    for name, by_share in rows.items():
        for share, row in by_share.items():
            kinds = [_rate(row, [kind], SETS) for kind in KINDS]
            checks = row["checks"]
            lawful = f"{checks.get('lawful', 0)} of {checks['sessions']}"
            every = _rate(row, list(KINDS), SETS)
            gone = _rate(row, ["superseded"], SETS)
            yield [name, _share(share), *kinds, f"**{every}**", gone, lawful]


def _by_set(rows: Mapping[str, Row]) -> Iterable[list[str]]:
    for name, by_share in rows.items():
        yield [name, *(_rate(row, TOLD, [of]) for of in SETS for row in by_share.values())]


def _rate(row: Row, kinds: Sequence[str], sets: Sequence[str]) -> str:
    """Return the percentage of these facts that are in the required state."""
    kept: Mapping[str, int] = row["kept"]
    keys = [f"{of}/{kind}" for of in sets for kind in kinds]
    total = sum(kept.get(f"{key}/of", 0) for key in keys)
    return f"{100 * sum(kept.get(key, 0) for key in keys) / total:.0f}" if total else "-"


def cover(results: Row) -> str:
    """Return the section on what a summarizer is shown."""
    rows = [_covered(place, row) for place, row in results["cover"].items()]
    return (
        "## What a summariser is shown\n\nEach text of a history has a marker at its head and its "
        "tail; it is compacted to a fifth by `ullage.compact(..., summarizer=...)`, and the "
        "summariser keeps what it is asked. *Seen*: texts left out whose head stood in a request, "
        "*whole*: head and tail. *Largest* is the largest request in tokens by the judge; *over*, "
        "how many with their answer are over the summariser's window:\n\n"
        + table(["", "window", "left out", "seen", "whole", "requests", "largest", "over"], rows)
        + "\nNot run here, measured on 2026-11-21 on other transcripts of 2,000 messages by the "
        "same markers, each with its defaults: LangChain's `SummarizationMiddleware` showed 1.1 % "
        "of what it left out (0 % with a single user message, and made no call), "
        "summarization-pydantic-ai 2.1 %, Semantic Kernel's reducer 12.6 %; LlamaIndex, ADK, the "
        "pydantic-ai harness and Strands put all of it into one prompt of 110,000 to 393,000 "
        "tokens, mostly over a window of 128,000; Agent Framework showed all of the 8,000 tokens "
        "it leaves out at a time.\n"
    )


def _covered(place: str, row: Mapping[str, Any]) -> list[str]:
    shape, _, window = place.partition("/")
    name = [shape, f"{int(window):,}"]
    if "dropped" not in row:
        return [*name, "cut off" if "cut" in row else "-", *["-"] * 5]
    gone = row["dropped"] or 1
    return [
        *name, f"{row['dropped']:,}", f"{100 * row['seen'] / gone:.1f} %",
        f"{100 * row['whole'] / gone:.1f} %", f"{row['requests']:,}", f"{row['largest']:,}",
        f"{row['over']}",
    ]  # fmt: skip

"""The page of tables, made from results alone: `page(results) -> Markdown`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

Row = Mapping[str, Any]

OURS = "ullage"
CHECKS = ("pairs", "budget", "start", "task", "newest")

INTRODUCTION = """# Benchmarks

Written by `make bench` in {minutes:.0f} minutes; do not edit. ullage beside plain tiktoken,
LangChain and LiteLLM in one run, on the same generated transcripts of coding agents
(`bench/transcript.py`: OpenAI Chat messages, one to four parallel calls, results from an empty line
to 25 kB of code, logs, JSON, base64, Chinese). `make bench ARGS=--quick` is a smoke run.

* **Times are CPU time** of the whole process, medians of {rounds} readings (3 at 20,000 messages
  and in loops; a reading over 10 s is taken once). Each reading is the first in a fresh process
  that has loaded its vocabulary; rounds go over all peers in turn. Differences under a fifth are
  noise.
* **Cut off** means over {limit_s:.0f} s of CPU time for one job. A loop stops at {half:.0f} s, with
  the turns it got through.
* Turning messages into a library's own types is outside the clock, except in the loops.
* **The judge** (`bench/judge.py`) shares no code with ullage: tiktoken's o200k_base and a lower
  bound of what the API bills. What it finds over a budget is over for certain.
* LangChain is called with the arguments that its documentation shows (`strategy="last"`,
  `start_on="human"`, `include_system=True`), once with its chat model's exact counter and once with
  `count_tokens_approximately`; LiteLLM with `trim_messages(messages, model, max_tokens)`.
* No model is called, so nothing here says how good a summary is.

{machine}

{versions}
"""


def page(results: Row) -> str:
    """Return the whole page."""
    plan = results["plan"]
    parts = [
        INTRODUCTION.format(
            **plan,
            half=plan["limit_s"] / 2,
            machine="; ".join(f"{key}: {value}" for key, value in results["machine"].items()),
            versions="; ".join(
                f"{name} {version}"
                for name, version in sorted(
                    {n: v for home in results["versions"].values() for n, v in home.items()}.items()
                )
            ),
        ),
        counting(results),
        trimming(results),
        loops(results),
        sweep(results),
        kinds(results),
        imports(results),
        losses(results),
    ]
    return "\n".join(parts).rstrip() + "\n"


def counting(results: Row) -> str:
    """Counting a history: the first time, and again when one message was added."""
    table = results["count"]
    names = _names(table)
    first = [[n, *(_ms(table[s].get(n), "first_s") for s in table)] for n in names]
    more = [[n, *(_ms(table[s].get(n), "more_s") for s in table)] for n in names]
    total = [[n, *(_ratio(table[s].get(n), table[s], "tokens") for s in table)] for n in names]
    heads = [f"{int(size):,} messages" for size in table]
    return (
        "## Counting a history\n\nThe whole history for the first time, ms of CPU:\n\n"
        + _table(["", *heads], first)
        + "\nThe whole history again after one more message, as an agent does each turn, ms of "
        "CPU:\n\n"
        + _table(["", *heads], more)
        + "\nTokens found, as a multiple of the judge's lower bound. What OpenAI adds around calls "
        "and results is not published: the judge adds nothing, ullage 6 and 2 tokens each:\n\n"
        + _table(["", *heads], total)
    )


def trimming(results: Row) -> str:
    """Trimming to half of the tokens, and what came out."""
    table = results["trim"]
    names = _names(table)
    rows = [[n, *(_ms(table[s].get(n), "trim_s") for s in table)] for n in names]
    heads = [f"{int(size):,} messages" for size in table]
    text = "## Trimming to half\n\nms of CPU, in a process that has not seen the history:\n\n"
    text += _table(["", *heads], rows)
    for size in table:
        text += f"\nWhat came out of {int(size):,} messages:\n\n"
        judged = [[n, *_judged(table[size].get(n))] for n in names]
        text += _table(["", *CHECKS, "filled"], judged)
    return text


def loops(results: Row) -> str:
    """Run an agent of many turns: counting, and managing a window."""
    ((turns, counted),) = results["loop"].items()
    ((_, managed),) = results["manage"].items()
    plan = results["plan"]
    rows = [[n, _total(r), f"{r.get('turns', 0)}"] for n, r in counted.items()]
    text = (
        f"## An agent of {turns} turns\n\nEach turn adds its messages and counts the history, s of "
        "CPU altogether:\n\n" + _table(["", "s", "turns done"], rows)
    )
    text += (
        "\nEach turn adds its messages and makes a request that fits a window of "
        f"{plan['window']:,} tokens with {plan['output']:,} of output (ullage: `Guard.prepare` "
        "with its default policy; the others: their trim). *Extending* requests begin with all of "
        "the one before, so that the provider's prompt cache holds; the checks are those of the "
        "last request, for a loop that was stopped at the turn it reached:\n\n"
    )
    rows = [
        [n, _total(r), f"{r.get('turns', 0)}", f"{r.get('extending', 0)}", *_judged(r)]
        for n, r in managed.items()
    ]
    return text + _table(["", "s", "turns done", "extending", *CHECKS, "filled"], rows)


def sweep(results: Row) -> str:
    """Trim three transcripts to many budgets and count what holds."""
    rows = []
    shapes = list(next(iter(results["sweep"].values()), {}))
    for name, by_shape in results["sweep"].items():
        verdicts = [v for shape in by_shape.values() for v in (shape or {}).values()]
        good = [v for v in verdicts if "raised" not in v]
        all_hold = [v for v in good if v["pairs"] and v["budget"] and v["task"]]
        fill = _fill(by_shape)
        rows.append([
            name, f"{len(verdicts)}", f"{len(verdicts) - len(good)}",
            *(f"{sum(v[check] for v in good)}" for check in CHECKS),
            f"**{len(all_hold)}**", "-" if fill is None else f"{fill:.2f}",
        ])  # fmt: skip
    return (
        f"## Many budgets\n\nBudgets from 5 % to 98 % of {len(shapes)} transcripts of 200 messages "
        f"({', '.join(shapes)}): in how many results each thing holds, and in how many pairs, "
        "budget and task hold together. `start`: the first message after the system's is a user's; "
        "`newest`: the last message is still the last.\n\n"
        + _table(["", "trims", "raised", *CHECKS, "pairs + budget + task", "median fill"], rows)
    )


def kinds(results: Row) -> str:
    """How far counters are off by kind of text."""
    table = {name: row for name, row in results["kinds"].items() if row and "error" not in row}
    truth = table["tiktoken"]
    rows = [[kind, *(f"{row[kind] / truth[kind]:.2f}" for row in table.values())] for kind in truth]
    return (
        "## Counters by kind of text\n\nOne message of 20,000 characters each; tokens found as a "
        "multiple of tiktoken's:\n\n" + _table(["", *table], rows)
    )


def imports(results: Row) -> str:
    """What an import costs."""
    rows = [
        [label, f"{median(row['s']) * 1000:,.0f}", f"{row['modules']:,}"]
        for label, row in results["imports"].items()
    ]
    return (
        "## Importing\n\nIn a fresh process, byte code written; ms of CPU and modules loaded "
        "afterwards (a bare interpreter has some 30):\n\n" + _table(["", "ms", "modules"], rows)
    )


def losses(results: Row) -> str:
    """Name every figure in which a peer is ahead, from the results."""
    behind: list[str] = []
    for op, key, what in (
        ("count", "first_s", "counting for the first time"),
        ("count", "more_s", "counting after one more message"),
        ("trim", "trim_s", "trimming to half"),
        ("loop", "loop_s", "counting in the loop"),
        ("manage", "loop_s", "managing the window in the loop"),
    ):
        for size, table in results[op].items():
            unit = "turns" if op in ("loop", "manage") else "messages"
            behind += _ahead(table, key, f"{what}, {int(size):,} {unit}")
    behind += _emptier(results["sweep"])
    text = "## Where ullage is behind\n\n"
    text += "".join(f"* {line}\n" for line in behind) or "Nowhere in this run.\n"
    return text + (
        "\nThe approximate counter divides characters by four and reads no text; the table by "
        "kind shows what that costs. Sums kept beside a history are what an application that "
        "never edits its history can have in twenty lines; ullage looks at every message each "
        "time, because callers do edit theirs. ullage's results use less of the budget: it keeps "
        "to the upper edge of its band, in which every call and result has room for its id and "
        "framing, of which the judge counts nothing; in the loop its default policy makes room "
        "for many turns at once, so that the requests after a compaction extend one another.\n"
    )


def _ahead(table: Mapping[str, Row], key: str, what: str) -> Iterable[str]:
    ours = _median(table.get(OURS), key)
    for name, row in table.items():
        theirs = _median(row, key)
        if name != OURS and ours and theirs and theirs < ours:
            yield f"{what}: {name} {_number(theirs)} s, ullage {_number(ours)} s"


def _emptier(table: Mapping[str, Any]) -> Iterable[str]:
    fills = {name: _fill(by_shape) for name, by_shape in table.items()}
    ours = fills.get(OURS)
    for name, fill in fills.items():
        if ours and fill and fill > ours:
            yield f"using the budget, median over all budgets: {name} {fill:.2f}, ullage {ours:.2f}"


def _fill(by_shape: Mapping[str, Any]) -> float | None:
    verdicts = [v for shape in by_shape.values() for v in (shape or {}).values()]
    fills = [v["fill"] for v in verdicts if "raised" not in v]
    return median(fills) if fills else None


def _names(table: Mapping[str, Mapping[str, Row]]) -> list[str]:
    return list(dict.fromkeys(name for rows in table.values() for name in rows))


def _median(row: Row | None, key: str) -> float | None:
    values = (row or {}).get(key)
    return median(values) if values else None


def _cell(row: Row | None, key: str, show: Callable[[float], str]) -> str:
    value = _median(row, key)
    if value is not None:
        return show(value)
    if row and "error" in row:
        return f"raised {row['error'].split(':')[0]}"
    return "cut off" if row else "-"


def _ms(row: Row | None, key: str) -> str:
    return _cell(row, key, lambda s: f"{s * 1000:,.1f}" if s < 0.1 else f"{s * 1000:,.0f}")


def _total(row: Row | None) -> str:
    return _cell(row, "loop_s", _number)


def _number(seconds: float) -> str:
    return f"{seconds:.4f}" if seconds < 0.1 else f"{seconds:.2f}"


def _ratio(row: Row | None, rows: Mapping[str, Row], key: str) -> str:
    truth = rows["tiktoken"][key]
    return f"{row[key] / truth:.3f}" if row and key in row else "-"


def _judged(row: Row | None) -> list[str]:
    verdict = (row or {}).get("verdict")
    if not verdict:
        return ["-"] * (len(CHECKS) + 1)
    marks = ["yes" if verdict[check] else "**no**" for check in CHECKS]
    return [*marks, f"{verdict['fill']:.2f}"]


def _table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

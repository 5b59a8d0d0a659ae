"""Writes the page of tables from the results: `page(results) -> Markdown`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench import aftermath, compacted, fidelity, known, log, search
from bench.cells import Row
from bench.cells import cell as _cell
from bench.cells import middle as _median
from bench.cells import ms as _ms
from bench.cells import table as _table

OURS = "ullage"
TALLY = "ullage.Tally"
RECOUNTING = ("LiteLLM", "LangChain exact", "LlamaIndex", "tiktoken")
NOISE = 0.99
CHECKS = ("pairs", "budget", "start", "task", "newest")

INTRODUCTION = """# Benchmarks

Written by `make bench` in {minutes:.0f} minutes{again}; do not edit. ullage beside plain tiktoken,
LangChain, LiteLLM, LlamaIndex, Microsoft's Agent Framework and tokenizer libraries in one run, on
the same generated transcripts of coding agents (`bench/transcript.py`: OpenAI Chat messages, one to
four parallel calls, results from an empty line to 25 kB of code, logs, JSON, base64, Chinese).
`make bench ARGS=--quick` is a smoke run, `make bench ARGS='--only counting'` one section.

* **Times are CPU time** of the whole process, medians of {rounds} readings (3 at 20,000 messages
  and in loops; a reading over 10 s is taken once). Each reading is the first in a fresh process
  that has loaded its vocabulary and has counted, or trimmed, a few lines before; rounds go over
  all peers in turn. Differences under a fifth are noise.
* **Cut off** means over {limit_s:.0f} s of CPU time for one job; who was cut off is not asked for a
  larger one. A loop stops at {half:.0f} s, with the turns it got through.
* Turning messages into a library's own types is outside the clock, except in the loops.
* **The judge** (`bench/judge.py`) shares no code with ullage: tiktoken's o200k_base and a lower
  bound of what the API bills. What it finds over a budget is over for certain.
* LangChain is called with the arguments that its documentation shows (`strategy="last"`,
  `start_on="human"`, `include_system=True`), once with its chat model's exact counter and once with
  `count_tokens_approximately`; LiteLLM with `token_counter` and `trim_messages(messages, model,
  max_tokens)`; LlamaIndex counts with its `TokenCounter` and tiktoken's encoder, Agent Framework
  with `annotate_message_groups` and tiktoken as its tokenizer. The last two only count here.
* No model is called, except for the rows that say so: of those, a recorded run is shown.

{machine}

{versions}
"""


def page(results: Row) -> str:
    """Return the page of all results."""
    plan = results["plan"]
    again = f"; measured again since: {', '.join(plan['again'])}" if plan["again"] else ""
    told = {
        **plan,
        "again": again,
        "half": plan["limit_s"] / 2,
        "machine": "; ".join(f"{key}: {value}" for key, value in results["machine"].items()),
        "versions": "; ".join(
            f"{name} {version}"
            for name, version in sorted(
                {n: v for home in results["versions"].values() for n, v in home.items()}.items()
            )
        ),
    }
    parts = [INTRODUCTION.format(**told)]
    parts += [write(results) for key, write in PARTS if key in results]
    return "\n".join([*parts, losses(results)]).rstrip() + "\n"


def counting(results: Row) -> str:
    """Return the section on counting a history, first and after one more message."""
    table = results["count"]
    names = _names(table)
    first = [[n, *(_ms(table[s].get(n), "first_s") for s in table)] for n in names]
    more = [[n, *(_ms(table[s].get(n), "more_s") for s in table)] for n in names]
    total = [[n, *(_ratio(table[s].get(n), table[s], "tokens") for s in table)] for n in names]
    heads = [f"{int(size):,} messages" for size in table]
    return (
        "## Counting a history\n\nThe whole history for the first time, ms of CPU:\n\n"
        + _table(["", *heads], first)
        + "\nThe whole history again after one more message, as an agent does each turn: ms of "
        "CPU a turn, the mean of up to 20 turns. `ullage.Tally` is told what is new, as "
        "`tiktoken with sums kept` is (twenty lines that an application may have of its own); all "
        "others are handed the list:\n\n"
        + _table(["", *heads], more)
        + "\nTokens found, as a multiple of the judge's lower bound. What OpenAI adds around calls "
        "and results is not published: the judge adds nothing, ullage what was reported "
        "([counters](counters.md#calls-and-their-results)):\n\n" + _table(["", *heads], total)
    )


def trimming(results: Row) -> str:
    """Return the section on trimming to half of the tokens, with the checks of the results."""
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
    """Return the section on an agent of many turns: counting, and managing a window."""
    ((turns, counted),) = results["loop"].items()
    ((_, managed),) = results["manage"].items()
    plan = results["plan"]
    rows = [[n, _total(r), f"{r.get('turns', 0)}"] for n, r in counted.items()]
    text = (
        f"## An agent of {turns} turns\n\nEach turn adds its messages and counts the history, s of "
        "CPU altogether:\n\n" + _table(["", "s", "turns done"], rows) + _times(counted)
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
    """Return the section on trims to many budgets, with the checks that hold."""
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
            f"**{len(all_hold)}**", f"{sum(v.get('blocks', 0) > 0 for v in good)}",
            "-" if fill is None else f"{fill:.2f}",
        ])  # fmt: skip
    return (
        f"## Many budgets\n\nBudgets from 5 % to 98 % of {len(shapes)} transcripts of 200 messages "
        f"({', '.join(shapes)}): in how many results each thing holds, and in how many pairs, "
        "budget and task hold together. `start`: the first message after the system's is a user's; "
        "`newest`: the last message is still the last; `block`: results with one message more "
        "behind the task, in which ullage puts the facts it carries over (`ullage, trim alone` "
        "is told not to: `carry_share=0`).\n\n"
        + _table(
            ["", "trims", "raised", *CHECKS, "pairs + budget + task", "block", "median fill"], rows
        )
    )


def kinds(results: Row) -> str:
    """Return the section on the error of counters by kind of text."""
    table = {name: row for name, row in results["kinds"].items() if row and "error" not in row}
    truth = table["tiktoken"]
    rows = [[kind, *(f"{row[kind] / truth[kind]:.2f}" for row in table.values())] for kind in truth]
    return (
        "## Counters by kind of text\n\nOne message of 20,000 characters each; tokens found as a "
        "multiple of tiktoken's:\n\n" + _table(["", *table], rows)
    )


def texts(results: Row) -> str:
    """Return the section that compares counters of plain text."""
    table, plan = results["texts"], results["plan"]
    history = table["history"]
    known = next(iter(history.values()))
    rows = []
    for name in _names(table):
        loading, read, short, letter = (
            table.get(op, {}).get(name) for op in ("loaded", "history", "short", "letter")
        )
        same = all(_same(table[op], name) for op in ("history", "short", "letter"))
        rows.append([
            name, _rate(read), _cell(short, "short_s", lambda s: f"{s * 1e6:.2f}"),
            _ms(letter, "letter_s"), _ms(loading, "load_s"), _mb(loading, "load_mb"),
            _mb(read, "history_mb"), "yes" if same else "**no**",
        ])  # fmt: skip
    heads = [
        "", "MB/s", "µs a short text", "ms for the letter", "ms to load", "MB loaded",
        "MB after counting", "same counts",
    ]  # fmt: skip
    return (
        f"## Counters of text\n\nThe {known['texts']:,} texts of {plan['texts']:,} messages "
        f"({known['bytes'] / 1e6:.1f} MB of UTF-8), one call each, none seen before: MB per second "
        "of CPU. Then 10,000 different texts of 20 characters: µs of CPU a call. Then "
        f"{plan['letters']:,} times the letter a in one text, cut off at "
        f"{plan['letters_limit_s']:.0f} s. Loading is the import, the vocabulary and a first "
        "count; memory is what each adds to the process. *Same counts*: as tiktoken's in all that "
        "was not cut off. fastokens is given its vocabulary as a file; toktok-rs and bpe-openai "
        "are asked by their native calls, which their packages name private:\n\n"
        + _table(heads, rows)
        + "\n`ullage.count_text(text, model=...)` resolves the model on each call and remembers "
        "the count of what it is asked; the counter alone remembers, too. Both make sure of the "
        "two corners in which toktok-rs, which they rest on, counts otherwise than tiktoken.\n"
    )


def appending(results: Row) -> str:
    """Return the section on growing text: appends of 20 characters."""
    table, plan = results["append"]["append"], results["plan"]
    rows = [
        [
            "`AppendCounter`" if name == "ullage, counter alone" else f"{name}, recounting",
            _cell(row, "append_s", lambda s: f"{s * 1e6:,.1f}"),
            f"{row.get('appends', 0)}",
            "yes" if row.get("tokens") == row.get("truth", -1) else "**no**",
        ]
        for name, row in table.items()
    ]
    return (
        f"## Text that grows\n\n20 characters appended to {plan['grown'] / 1e6:g} MB of prose, "
        "and the tokens of the whole asked for after each append: µs of CPU for both.\n\n"
        + _table(["", "µs", "appends done", "exact"], rows)
    )


def memory(results: Row) -> str:
    """Return the section on the memory for holding and counting a session."""
    ((size, table),) = results["held"].items()
    rows = [[n, _mb(row, "messages_mb"), _mb(row, "counted_mb")] for n, row in table.items()]
    return (
        f"## Memory\n\nA session of {int(size):,} messages in a fresh process: MB for the messages "
        "in the library's own types, and MB that counting them once adds and keeps; one reading "
        "each. The vocabulary was loaded before. ullage keeps what it read of every message, and "
        "copies by which it sees that one was changed in place.\n\n"
        + _table(["", "messages", "counting adds"], rows)
    )


def imports(results: Row) -> str:
    """Return the section on the cost of imports."""
    rows = [
        [label, f"{median(row['s']) * 1000:,.0f}", f"{row['modules']:,}"]
        for label, row in results["imports"].items()
    ]
    return (
        "## Importing\n\nIn a fresh process, byte code written; ms of CPU and modules loaded "
        "afterwards (a bare interpreter has some 30):\n\n" + _table(["", "ms", "modules"], rows)
    )


def context(results: Row) -> str:
    """Return the section on the time of the context view."""
    ((viewed, first),) = results["context"].items()
    ((size, second),) = results["session"].items()
    row, read = first.get(OURS), second.get(OURS)
    held = f"{int(size) / 1e6:.0f} MB, {(read or {}).get('messages', 0):,} messages"
    rows = [
        [f"`ullage.context(messages)`, {int(viewed):,} messages", _ms(row, "context_s")],
        ["... again", _ms(row, "again_s")],
        [f"a session of Claude Code ({held}): loading the file", _ms(read, "load_s")],
        ["... what fills its window", _ms(read, "contents_s")],
        ["... `ullage context FILE`, the whole command", _ms(read, "command_s")],
    ]
    return (
        "## The context view\n\nms of CPU; the session is made up (`bench/claude.py`), with a "
        "compaction every 600 messages:\n\n" + _table(["", "ms"], rows)
    )


def losses(results: Row) -> str:
    """Return a list of every figure in which a peer is ahead, from the results."""
    behind: list[str] = []
    for op, key, what in LOSSES:
        for size, table in results.get(op, {}).items():
            unit = "turns" if op in ("loop", "manage") else "messages"
            behind += _ahead(table, key, f"{what}, {int(size):,} {unit}")
    for op, key, what in TEXT_LOSSES:
        behind += _ahead(results.get("texts", {}).get(op, {}), key, what)
    behind += _emptier(results.get("sweep", {}))
    text = "## Where ullage is behind\n\n"
    text += "".join(f"* {line}\n" for line in behind) or "Nowhere in this run.\n"
    return text + (
        "\nThe approximate counter divides characters by four and reads no text; the table by "
        "kind shows what that costs. Sums kept beside a history are what an application that "
        "never edits its history can have in twenty lines, without bands, tools or a check of what "
        "it is handed; `ullage.count` looks at every message each time, because callers do edit "
        "theirs. fastokens counts faster and takes four times as long to load; ullage takes it for "
        "the families for which it has no vocabulary of its own. ullage's results use less of the "
        "budget: it keeps to the upper edge of its band, in which calls and results have what is "
        "reported to stand around them and JSON's escapes in the results of several calls in one "
        "message, of which the judge counts nothing; in the loop its default policy "
        "makes room for many turns at once, so that the requests after a compaction extend one "
        "another. A block of facts "
        "costs a look at every message that goes, once in its life; who wants the bare trim says "
        "`carry_share=0`.\n"
    )


PARTS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("count", counting),
    ("texts", texts),
    ("append", appending),
    ("held", memory),
    ("imports", imports),
    ("trim", trimming),
    ("after", compacted.after),
    ("loop", loops),
    ("known", known.shown),
    ("sweep", sweep),
    ("survival", compacted.survival),
    ("fidelity", fidelity.shown),
    ("search", search.shown),
    ("cover", compacted.cover),
    ("aftermath", aftermath.shown),
    ("kinds", kinds),
    ("context", context),
    ("log", log.shown),
)
"""The parts of the page in order, each with the key of the results that it needs."""

LOSSES: Sequence[tuple[str, str, str]] = (
    ("count", "first_s", "counting for the first time"),
    ("count", "more_s", "counting after one more message"),
    ("trim", "trim_s", "trimming to half"),
    ("after", "trim_s", "trimming what was counted"),
    ("loop", "loop_s", "counting in the loop"),
    ("manage", "loop_s", "managing the window in the loop"),
    ("held", "counted_mb", "memory for counting"),
)
TEXT_LOSSES: Sequence[tuple[str, str, str]] = (
    ("history", "history_s", "text seen for the first time"),
    ("short", "short_s", "texts of 20 characters, a call"),
    ("letter", "letter_s", "one letter many times over"),
    ("loaded", "load_s", "loading"),
    ("loaded", "load_mb", "memory after loading"),
)


def _ahead(table: Mapping[str, Row], key: str, what: str) -> Iterable[str]:
    """Yield one line if peers are ahead of one of ullage's rows: their figures, then ullage's."""
    show = "{:.0f} MB".format if key.endswith("_mb") else _time
    found = {name: value for name in table if (value := _median(table[name], key))}
    mine = {name: value for name, value in found.items() if name.startswith(OURS)}
    worst = max(mine.values(), default=0.0)
    theirs = {n: v for n, v in found.items() if n not in mine and v < worst * NOISE}
    if theirs:
        said = [", ".join(f"{n} {show(v)}" for n, v in rows.items()) for rows in (theirs, mine)]
        yield f"{what}: {said[0]}; {said[1]}"


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


def _total(row: Row | None) -> str:
    return _cell(row, "loop_s", _number)


def _number(seconds: float) -> str:
    return f"{seconds:.4f}" if seconds < 0.1 else f"{seconds:.2f}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def _mb(row: Row | None, key: str) -> str:
    return _cell(row, key, lambda mb: f"{max(0, mb):,.0f}" if mb >= 10 else f"{max(0, mb):.1f}")


def _rate(row: Row | None) -> str:
    return _cell(row, "history_s", lambda s: f"{(row or {})['bytes'] / s / 1e6:.1f}")


def _same(rows: Mapping[str, Row], name: str) -> bool:
    """Return whether a counter found the same tokens as tiktoken, or one of them did not finish."""
    theirs, mine = (rows.get(n, {}).get("tokens") for n in ("tiktoken", name))
    return theirs is None or mine is None or theirs == mine


def _times(table: Mapping[str, Row]) -> str:
    """Say how many times cheaper ullage's two ways are than peers that recount everything."""
    text = ""
    for ours in (OURS, TALLY):
        mine = _a_turn(table.get(ours))
        told = [
            f"{name} {theirs / mine:,.0f} times"
            for name in RECOUNTING
            if mine and (theirs := _a_turn(table.get(name)))
        ]
        if told:
            called = "ullage.count" if ours == OURS else ours
            text += f"\nA turn of `{called}` costs 1; of {', '.join(told)} that.\n"
    return text


def _a_turn(row: Row | None) -> float | None:
    spent = _median(row, "loop_s")
    return spent / row["turns"] if row and spent and row.get("turns") else None


def _ratio(row: Row | None, rows: Mapping[str, Row], key: str) -> str:
    truth = rows["tiktoken"][key]
    return f"{row[key] / truth:.3f}" if row and key in row else "-"


def _judged(row: Row | None) -> list[str]:
    verdict = (row or {}).get("verdict")
    if not verdict:
        return ["-"] * (len(CHECKS) + 1)
    marks = ["yes" if verdict[check] else "**no**" for check in CHECKS]
    return [*marks, f"{verdict['fill']:.2f}"]

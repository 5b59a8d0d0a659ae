"""Draws a context report as one HTML file without scripts, network or fonts.

Its content policy forbids every load, every text of the report is escaped, and long parts are
bounded, so that a page of thousands of turns stays small. The module reads only the report of
`context.schema.json`. The layout is in `page.html`; the words and the colours are the terminal's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any, Final

from ullage.cli.markup import classify, escape
from ullage.cli.picture import (
    Report,
    basis,
    count_left,
    origin,
    percent,
    row_note,
    spent_words,
    window_source,
)
from ullage.cli.treemap import draw_map
from ullage.pages.inks import INKS, OTHER, Ink, write_inks

COLUMNS: Final = 200
"""Most columns of the chart; with more turns, several share one, which shows the tallest."""

ITEMS: Final = 100
ENTRIES: Final = 10
TIMES: Final = "\u00d7"


def page(report: Report) -> str:
    """Return the report as a whole HTML document."""
    template = Template(files("ullage.cli").joinpath("page.html").read_text("utf-8"))
    columns = _columns(report["turns"])
    return template.substitute(
        title=f"Context: {escape(report['model'] or 'model unknown')}",
        inks=write_inks(),
        header=_header(report),
        warnings=_warnings(report),
        gauge=_gauge(report),
        turns=_turns(report, columns),
        map=draw_map(report),
        rows=_rows(report),
        largest=_largest(report),
        session=_session(report),
        footer=_footer(report),
        data=_data(report, columns),
    )


def _header(report: Report) -> str:
    source = report["source"] or {}
    facts = [escape(fact) for fact in origin(source)]
    tier = report["tier"]
    reason = f"<p class='soft'>{escape(report['reason'])}</p>" if report["reason"] else ""
    return (
        f"<div><h1>{escape(report['model'] or 'model unknown')}</h1>"
        f"<p class='soft'>{' · '.join(facts)}</p></div>"
        f"<div><p class='tier tier-{escape(tier)}'>pressure: {escape(tier)}</p>{reason}</div>"
    )


def _warnings(report: Report) -> str:
    if not report["warnings"]:
        return ""
    said = "".join(f"<li>{escape(warning)}</li>" for warning in report["warnings"][:ITEMS])
    return (
        "<section class='card warn' aria-labelledby='h-warn'><h2 id='h-warn'>Warnings</h2>"
        f"<ul>{said}</ul></section>"
    )


# ── the gauge ───────────────────────────────────────────────────────────────────────────────────


def _gauge(report: Report) -> str:
    used = report["used"]
    rests = basis(used["basis"], used["error"])
    big = [f"<p><b id='used'>{used['tokens']:,}</b> <span>tokens used, {rests}</span></p>"]
    window = report["window"]
    if window is not None:
        share = percent(used["tokens"], window["tokens"])
        assumed = ", assumed" if window.get("assumed") else ""
        big.append(f"<p><b>{share}</b> <span>of {window['tokens']:,}{assumed}</span></p>")
    if (rest := count_left(report)) is not None:
        big.append(f"<p><b>{abs(rest[0]):,}</b> <span>tokens {rest[1]}</span></p>")
    range_ = f"<p class='soft'>between {used['low']:,} and {used['high']:,} tokens</p>"
    return "".join(
        [
            f"<div class='big'>{''.join(big)}</div>",
            _track(report),
            _sum(report),
            range_ if used["low"] != used["high"] else "",
            _window_words(report),
        ]
    )


def _window_words(report: Report) -> str:
    window = report["window"]
    if window is None:
        return "<p class='soft'>The window is unknown: tokens only, no share and no rest.</p>"
    said = [window.get("said_by") or window["source"], window.get("note")]
    return "".join(f"<p class='soft'>{escape(word)}</p>" for word in said if word)


def _track(report: Report) -> str:
    """Return the bar: rows, free, margin, reserved; a negative row shrinks the others."""
    rows = [row for row in report["rows"] if row["tokens"] > 0]
    counted, used = sum(row["tokens"] for row in rows), report["used"]["tokens"]
    parts = []
    for row in rows:
        ink = INKS.get(row["id"], OTHER)
        drawn = row["tokens"] * max(0, used) / counted
        title = f"{escape(row['name'])}: {row['tokens']:,} tokens"
        parts.append((drawn, classify(row["id"]), ink.letter, title))
    if report["window"] is not None:
        for name, key in (("free", "free"), ("margin", "margin"), ("reserved", "reserved_output")):
            tokens = max(0, report[key])
            parts.append((tokens, name, "", f"{name}: {report[key]:,} tokens"))
    whole = sum(part[0] for part in parts)
    said = ", ".join(part[3] for part in parts)
    if whole <= 0:
        return ""
    cells = "".join(
        f"<div class='seg {kind}' style='flex:{share:.3f} 0 0' title='{title}'>"
        f"{letter if share > 1.8 else ''}</div>"
        for drawn, kind, letter, title in parts
        if (share := 100 * drawn / whole) > 0
    )
    return (
        f"<div class='gauge'><div class='track' role='img' aria-label='{said}'>"
        f"{cells}</div>{_marks(report, whole)}</div>"
    )


def _marks(report: Report, whole: float) -> str:
    marks = [("compaction", report["compaction_at"], "")]
    if report["over"] and report["window"] is not None:
        marks.append(("window", report["window"]["tokens"], " low"))
    drawn = []
    for name, tokens, where in marks:
        if tokens is not None and tokens <= whole:
            at = 100 * tokens / whole
            late = " late" if at > 50 else ""
            drawn.append(
                f"<div class='at{late}{where}' style='left:{at:.2f}%'>"
                f"<span>{name} at {tokens:,}</span></div>"
            )
    return "".join(drawn)


def _sum(report: Report) -> str:
    """Return the terms of the sum: used + free + margin + reserved = window."""
    terms = [("used", "", report["used"]["tokens"])]
    if report["window"] is not None:
        terms += [
            ("free", "+", report["free"]),
            ("safety margin", "+", report["margin"]),
            ("reserved output", "+", report["reserved_output"]),
            ("window", "=", report["window"]["tokens"]),
        ]
    shown = []
    for name, sign, tokens in terms:
        operator = f"<li class='op' aria-hidden='true'>{sign}</li>" if sign else ""
        key = name.split()[0]
        shown.append(f"{operator}<li><b data-term='{key}'>{tokens:,}</b><span>{name}</span></li>")
    return f"<ul class='sum' aria-label='the sum of the window, in tokens'>{''.join(shown)}</ul>"


# ── the turns ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the chart: the tallest of some consecutive turns."""

    first: int
    last: int
    turn: Mapping[str, Any]
    compacted: bool

    @property
    def name(self) -> str:
        """Return the numbers of these turns."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"

    def stack(self) -> Iterator[tuple[str, float]]:
        """Yield the rows from the bottom up; together they are as high as the turn's tokens."""
        rows = {name: tokens for name, tokens in self.turn["rows"].items() if tokens > 0}
        counted, tokens = sum(rows.values()), max(0, self.turn["tokens"])
        scale = min(1.0, tokens / counted) if counted else 0.0
        rest = max(0, tokens - counted)
        for name in (*INKS, *sorted(set(rows) - set(INKS))):
            height = rows.get(name, 0) * scale + (rest if name == "unattributed" else 0)
            if height > 0:
                yield name if name in INKS else "other", height


def _columns(turns: Sequence[Mapping[str, Any]]) -> list[Column]:
    count = min(len(turns), COLUMNS)
    edges = [round(i * len(turns) / count) for i in range(count + 1)] if count else []
    made = []
    for low, high in pairwise(edges):
        some = turns[low:high]
        tallest = max(some, key=lambda turn: int(turn["tokens"]))
        compacted = any(turn["compacted"] for turn in some)
        made.append(Column(some[0]["turn"], some[-1]["turn"], tallest, compacted))
    return made


def _turns(report: Report, columns: Sequence[Column]) -> str:
    if not columns:
        return ""
    ceiling = _ceiling(columns)
    each = -(-len(report["turns"]) // len(columns))
    shared = f" Up to {each} turns share a column, which shows the tallest." if each > 1 else ""
    what = (
        f"Tokens of each request by kind, turns {columns[0].first} to {columns[-1].last}; "
        f"tallest {max(column.turn['tokens'] for column in columns):,} tokens.{shared}"
    )
    growth = report["growth"]
    grows = f" Growth: {growth:+,} tokens a turn, median of the last 5." if growth else ""
    return (
        "<section class='card' aria-labelledby='h-turns'><h2 id='h-turns'>Turn by turn</h2>"
        f"<p class='soft' style='margin-bottom:1.6rem'>{what}{grows}</p>"
        f"<div class='plot'>{_chart(columns, ceiling, what)}{_axes(columns, ceiling)}</div>"
        f"{_legend(columns)}{_turn_table(columns)}</section>"
    )


def _ceiling(columns: Sequence[Column]) -> int:
    """Return the top of the chart: the tallest turn or window, rounded up to a tick."""
    highest: int = max(1, *(max(c.turn["tokens"], c.turn["window"] or 0) for c in columns))
    return math.ceil(highest / _step(highest)) * _step(highest)


def _step(highest: int) -> int:
    """Return the distance of the ticks: 1, 2 or 5 times a power of ten, so that about 4 fit."""
    power: int = 10 ** max(0, len(str(highest // 4)) - 1)
    return next((f * power for f in (1, 2, 5) if f * power * 5 >= highest), 10 * power)


def _chart(columns: Sequence[Column], ceiling: int, what: str) -> str:
    """Return the drawing in a box of 1000 by 1000, stretched to its place."""
    wide = 1000 / len(columns)
    gap = min(2.0, wide * 0.12)
    paths: dict[str, list[str]] = {}
    for number, column in enumerate(columns):
        floor = 0.0
        for name, height in column.stack():
            top = floor + height
            y, tall = 1000 * (1 - top / ceiling), 1000 * height / ceiling
            paths.setdefault(name, []).append(
                f"M{number * wide:.1f} {y:.1f}h{wide - gap:.1f}v{tall:.1f}h-{wide - gap:.1f}z"
            )
            floor = top
    drawn = [f"<title>Turn by turn</title><desc>{what}</desc>"]
    for tick in range(0, ceiling + 1, _step(ceiling)):
        y = 1000 * (1 - tick / ceiling)
        drawn.append(f"<line class='grid' x1='0' x2='1000' y1='{y:.1f}' y2='{y:.1f}'/>")
    for name in (*INKS, "other"):
        if name in paths:
            drawn.append(f"<path class='row {classify(name)}' d='{''.join(paths[name])}'/>")
    drawn += _overlay(columns, ceiling, wide)
    return (
        "<svg viewBox='0 0 1000 1000' preserveAspectRatio='none' role='img' "
        f"aria-label='{what}'>{''.join(drawn)}</svg>"
    )


def _overlay(columns: Sequence[Column], ceiling: int, wide: float) -> Iterator[str]:
    """Yield the compactions, the window as steps, and a hover area for each column."""
    steps, pen_down = [], False
    for number, column in enumerate(columns):
        x = number * wide
        if column.compacted:
            yield f"<line class='compacted' x1='{x:.1f}' x2='{x:.1f}' y1='0' y2='1000'/>"
        window = column.turn["window"]
        if window is not None:
            y = 1000 * (1 - window / ceiling)
            steps.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}H{x + wide:.1f}")
        pen_down = window is not None
    if steps:
        yield f"<path class='window' d='{''.join(steps)}'/>"
    for number, column in enumerate(columns):
        turn = column.turn
        says = [f"turn {column.name}: {turn['tokens']:,} tokens ({escape(turn['basis'])})"]
        says += [f"of {turn['window']:,}"] if turn["window"] is not None else []
        says += ["compacted"] if column.compacted else []
        yield (
            f"<rect class='hit' x='{number * wide:.1f}' y='0' width='{wide:.1f}' height='1000'>"
            f"<title>{', '.join(says)}</title></rect>"
        )


def _axes(columns: Sequence[Column], ceiling: int) -> str:
    drawn = []
    for tick in range(0, ceiling + 1, _step(ceiling)):
        drawn.append(f"<span class='y' style='bottom:{100 * tick / ceiling:.2f}%'>{tick:,}</span>")
    for number, column in enumerate(columns):
        if column.compacted:
            at = 100 * number / len(columns)
            drawn.append(f"<span class='cmark' style='left:{at:.2f}%'>C</span>")
    drawn.append(f"<span class='x first' style='left:0'>turn {columns[0].first}</span>")
    if len(columns) > 1:
        drawn.append(f"<span class='x last' style='left:100%'>{columns[-1].last}</span>")
    floor = 0.0
    for name, height in columns[-1].stack():
        share = 100 * height / ceiling
        if share > 5:
            ink = INKS.get(name, OTHER)
            middle = 100 * floor / ceiling + share / 2
            drawn.append(f"<span class='end' style='bottom:{middle:.2f}%'>{ink.letter}</span>")
        floor += height
    return f"<div aria-hidden='true'>{''.join(drawn)}</div>"


def _legend(columns: Sequence[Column]) -> str:
    seen = {name for column in columns for name, _ in column.stack()}
    keys = [
        f"<li>{_key(name, INKS.get(name, OTHER))}{name.replace('_', ' ')}</li>"
        for name in (*INKS, "other")
        if name in seen
    ]
    if any(column.turn["window"] is not None for column in columns):
        keys.append("<li>dashed line: the window</li>")
    if any(column.compacted for column in columns):
        keys.append("<li>C: compacted</li>")
    return f"<ul class='legend'>{''.join(keys)}</ul>"


def _output(turn: Mapping[str, Any]) -> str:
    """Return the output of a turn, with a mark if it was counted."""
    tokens = turn.get("output")
    if tokens is None:
        return ""
    return f"{tokens:,}{' est' if turn.get('output_basis') == 'estimate' else ''}"


def _key(name: str, ink: Ink) -> str:
    return f"<span class='key {classify(name)}' aria-hidden='true'>{ink.letter}</span>"


def _turn_table(columns: Sequence[Column]) -> str:
    lines = []
    for column in columns:
        turn = column.turn
        window = f"{turn['window']:,}" if turn["window"] is not None else "unknown"
        lines.append(
            f"<tr><th scope='row'>{column.name}</th><td class='n'>{turn['tokens']:,}</td>"
            f"<td>{escape(basis(turn['basis'], None))}</td><td class='n'>{window}</td>"
            f"<td class='n'>{_output(turn)}</td>"
            f"<td>{'compacted' if column.compacted else ''}</td></tr>"
        )
    head = _head(
        ("turn", ""), ("tokens", "n"), ("basis", ""), ("window", "n"), ("output", "n"), ("", "")
    )
    return (
        "<details style='margin-top:.8rem'><summary>the same as a table</summary>"
        f"<div class='scroll'><table>{head}<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def _head(*names: tuple[str, str]) -> str:
    shown = (f"<th scope='col' class='{kind}'>{name}</th>" for name, kind in names)
    return f"<thead><tr>{''.join(shown)}</tr></thead>"


def _rows(report: Report) -> str:
    window = report["window"]["tokens"] if report["window"] is not None else None
    body = "".join(_row(row, window) for row in report["rows"])
    used = report["used"]
    sums = [("used", used["tokens"], basis(used["basis"], used["error"]))]
    if window is not None:
        sums += [
            ("free", report["free"], f"over by {report['over']:,}" if report["over"] else ""),
            ("safety margin", report["margin"], ""),
            ("reserved output", report["reserved_output"], ""),
            ("window", window, window_source(report["window"])),
        ]
    foot = "".join(
        f"<tr class='{'total' if name in ('used', 'window') else ''}'>"
        f"<th scope='row'>{name}</th><td class='n'>{tokens:,}</td>"
        f"<td class='n'>{percent(tokens, window or 0) if name != 'window' else ''}</td>"
        "<td class='wide'></td>"
        f"<td>{escape(said)}</td></tr>"
        for name, tokens, said in sums
    )
    share = "share" if window is not None else ""
    whole = "; with free, margin and reserved output to the window" if window is not None else ""
    head = _head(("row", ""), ("tokens", "n"), (share, "n"), ("between", "wide n"), ("basis", ""))
    return (
        f"<div class='scroll'><table><caption>The rows add up to the used tokens{whole}.</caption>"
        f"{head}<tbody>{body}</tbody>"
        f"<tfoot>{foot}</tfoot></table></div>"
    )


def _row(row: Mapping[str, Any], window: int | None) -> str:
    between = f"{row['low']:,} to {row['high']:,}" if row["low"] != row["high"] else ""
    note = f"<div class='soft'>{escape(row_note(row))}</div>" if row["note"] else ""
    key = _key(row["id"], INKS.get(row["id"], OTHER))
    return (
        f"<tr><th scope='row'><div class='name'>{key}<div>{escape(row['name'])}{note}</div></div>"
        f"</th><td class='n' data-row='{escape(row['id'])}'>{row['tokens']:,}</td>"
        f"<td class='n'>{percent(row['tokens'], window or 0)}</td>"
        f"<td class='wide n'>{between}</td><td>{basis(row['basis'], row['error'])}</td></tr>"
        f"{_items(row['items'])}"
    )


def _items(items: Sequence[Mapping[str, Any]]) -> str:
    if not items:
        return ""
    ordered = sorted(items, key=lambda item: -item["tokens"])
    lines = []
    for item in ordered[:ITEMS]:
        copies = item["duplicates"]
        told = f"{copies:,} duplicate{'s' * (copies != 1)}, {item['reclaimable']:,} reclaimable"
        lines.append(
            f"<tr><th scope='row'>{escape(item['name'])}</th><td class='n'>{item['count']:,}{TIMES}"
            f"</td><td class='n'>{item['tokens']:,}</td><td>{told if copies else ''}</td></tr>"
        )
        lines += [
            f"<tr class='entry'><td class='soft'>{escape(entry['name'])}</td><td></td>"
            f"<td class='n soft'>{entry['tokens']:,}</td><td></td></tr>"
            for entry in (item.get("entries") or ())[:ENTRIES]
        ]
    if rest := ordered[ITEMS:]:
        tokens = sum(item["tokens"] for item in rest)
        lines.append(
            f"<tr><th scope='row'>{len(rest):,} more</th><td></td><td class='n'>{tokens:,}</td>"
            "<td></td></tr>"
        )
    many = f"{len(items):,} item{'s' * (len(items) != 1)}"
    spare = sum(item["reclaimable"] for item in items)
    extra = f", {spare:,} tokens reclaimable" if spare else ""
    head = _head(("item", ""), ("count", "n"), ("tokens", "n"), ("duplicates", ""))
    return (
        f"<tr class='sub'><td colspan='5'><details><summary>{many}{extra}</summary>"
        f"<table>{head}<tbody>{''.join(lines)}</tbody></table></details></td></tr>"
    )


def _largest(report: Report) -> str:
    if not report["largest"]:
        return ""
    lines = "".join(
        f"<tr><td class='n'>{item['message']:,}</td><th scope='row'>{escape(item['name'])}</th>"
        f"<td class='n'>{item['tokens']:,}</td><td class='n'>{item['sent']:,}{TIMES}</td>"
        f"<td class='n'>{item['resent_tokens']:,}</td></tr>"
        for item in report["largest"][:ITEMS]
    )
    head = _head(
        ("message", "n"), ("what", ""), ("tokens", "n"), ("sent", "n"), ("sent again", "n")
    )
    return (
        "<section class='card' aria-labelledby='h-large'><h2 id='h-large'>The largest messages</h2>"
        "<div class='scroll'><table><caption>Sent again: the tokens that later requests carried "
        f"once more.</caption>{head}<tbody>{lines}</tbody></table></div></section>"
    )


def _session(report: Report) -> str:
    since, spent, growth = report["since"], report["spent"], report["growth"]
    facts: list[tuple[str, str]] = []
    if since is not None:
        told = f"{since['tokens']:,} tokens, {since['messages']:,} messages"
        facts.append(("since the last report", told))
    if growth is not None:
        facts.append(("growth a turn, median of 5", f"{growth:+,}"))
    if spent is not None:
        for key in ("input", "cache_read", "cache_write", "output", "reasoning"):
            facts.append((f"spent: {key.replace('_', ' ')}", spent_words(spent, key)))
        facts.append(("spent: price", spent_words(spent, "dollars")))
    if not facts:
        return ""
    shown = "".join(f"<div><dt>{name}</dt><dd>{said}</dd></div>" for name, said in facts)
    return (
        "<section class='card' aria-labelledby='h-session'><h2 id='h-session'>The session</h2>"
        "<p class='soft' style='margin-bottom:.8rem'>Spent is cumulative over the whole session; "
        f"it is not the size of the context.</p><dl>{shown}</dl></section>"
    )


def _footer(report: Report) -> str:
    return (
        f"<p>ullage {escape(version('ullage'))} · {escape(report['schema'])} · every colour has a "
        "letter or a name, too · this page loads nothing</p>"
    )


def _data(report: Report, columns: Sequence[Column]) -> str:
    """Return the report inside the page, with the turns of the chart; it is never run."""
    kept = {**report, "turns": [dict(column.turn) for column in columns]}
    plain = json.dumps(kept, separators=(",", ":"))
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return f"<script type='application/json' id='report'>{plain}</script>"

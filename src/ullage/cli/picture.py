"""Draws a context report for a terminal: a bar, a table whose rows add up, a line for prompts.

Every segment has its own letter and name, so no meaning depends on colour. Names come from files of
unknown origin, so control characters are shown as escapes. The module reads only the report of
`context.schema.json`, and does not know its origin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ullage.cli.glyphs import cells, clean, cut
from ullage.core.tokens.gauge import short
from ullage.pages.inks import INKS, LIGHT_INKS, OTHER, Ink

Report = Mapping[str, Any]


PLAIN: Final[Mapping[str, str]] = {
    "·": "-",
    "±": "+/-",
    "…": "...",
    "\u00d7": "x",
    "░": "m",
    "▒": "o",
    "─": "-",
    "▏": "|",
}
TIMES: Final = "\u00d7"
BLOCKS: Final = "▁▂▃▄▅▆▇█"
STEPS: Final = ".:-=+*%@"
ENTRIES: Final = 3
"""Calls of a tool that are named below it."""
NARROWEST: Final = 40


# ── words: shared with the page ─────────────────────────────────────────────────────────────────


def percent(part: int, whole: int) -> str:
    """Return a share in whole percent; 100 and 0 are used only if they are exact."""
    if whole <= 0:
        return ""
    if part == 0:
        return "0 %"
    exact = 100 * part / whole
    if 0 < exact < 1:
        return "<1 %"
    if -1 < exact < 0:
        return ">-1 %"
    if part < whole:
        return f"{min(99, round(exact))} %"
    return "100 %" if part == whole else f"{max(101, round(exact))} %"


def basis(name: str, error: float | None) -> str:
    """Return the basis of a number: `exact`, `provider`, `est ±3 %`, `inferred`."""
    if name not in ("calibrated", "estimate"):
        return name
    return "est" if error is None else f"est ±{math.ceil(round(error * 100, 6))} %"


def count_left(report: Report) -> tuple[int, str] | None:
    """Return the tokens left and their limit, or None if the window is unknown."""
    if report["window"] is None or report["free"] is None:
        return None
    if report["over"]:
        return -report["over"], "over the limit"
    if report["compaction_at"] is not None:
        return max(0, report["compaction_at"] - report["used"]["tokens"]), "left to compaction"
    return report["free"], "left"


def origin(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the origin of a conversation: program, session, title, project, date, file."""
    if source.get("kind"):
        yield str(source["kind"])
    if source.get("session"):
        yield f"session {source['session']}"
    if source.get("title"):
        yield f'"{source["title"]}"'
    for name in ("project", "at"):
        if source.get(name):
            yield str(source[name])
    if source.get("path"):
        yield str(source["path"])


def row_note(row: Mapping[str, Any]) -> str:
    """Return the note of a row, with the tokens that are not sent."""
    unsent = row.get("unsent")
    return f"{row['note']} ({unsent:,} tokens)" if unsent else str(row["note"])


def window_source(window: Mapping[str, Any]) -> str:
    """Return the source of the window's size: `table, assumed`."""
    return f"{window['source']}, assumed" if window.get("assumed") else str(window["source"])


def spent_words(spent: Mapping[str, Any], name: str) -> str:
    """Return an amount that was spent, with a mark if it was estimated."""
    counted = spent.get("basis") == "estimate"
    if name == "dollars":
        dollars = spent["dollars"]
        return "no price known" if dollars is None else f"${dollars:,.2f}{' est' * counted}"
    said = f"{spent[name]:,}"
    if name == "output" and counted:
        return f"{said} est ({spent['reported_output']:,} reported)"
    return f"{said} est" if name == "reasoning" and counted and spent[name] else said


# ── the picture ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws lines of at most `width` cells; in colour only if asked for."""

    width: int
    colour: bool
    ascii: bool

    def text(self, said: object) -> str:
        """Return a text from a file, made harmless."""
        return clean(said, ascii=self.ascii)

    def own(self, said: str) -> str:
        """Return one of our own texts, in ASCII if required."""
        return "".join(PLAIN.get(c, c) for c in said) if self.ascii else said

    def line(self, said: str) -> str:
        """Return one line that fits."""
        return cut(said, self.width, self.own("…")).rstrip()

    def dot(self) -> str:
        """Return the separator of two facts on one line."""
        return self.own(" · ")

    def flow(self, parts: Iterable[str], indent: str = "") -> Iterator[str]:
        """Yield facts one after the other, on a new line if the next does not fit."""
        line = ""
        for part in parts:
            longer = f"{line}{self.dot()}{part}" if line else indent + part
            if line and cells(longer) > self.width:
                yield self.line(line)
                longer = f"{indent or '  '}{part}"
            line = longer
        if line:
            yield self.line(line)

    def words(self, said: str, lead: str) -> Iterator[str]:
        """Yield a sentence over as many lines as needed; `lead` comes before the first."""
        line = lead
        for word in said.split():
            if cells(line) + 1 + cells(word) > self.width and line.strip() not in ("", lead):
                yield self.line(line)
                line = " " * cells(lead)
            line += ("" if line.endswith(" ") else " ") + word
        yield self.line(line)

    def paint(self, letter: str, ink: Ink | None, count: int) -> str:
        """Return `count` cells of a segment."""
        if not self.colour or ink is None or not count:
            return letter * count
        front = 16 if ink.ansi in LIGHT_INKS else 231
        return f"\x1b[38;5;{front};48;5;{ink.ansi}m{letter * count}\x1b[0m"

    def bold(self, said: str) -> str:
        """Return a heading."""
        return f"\x1b[1m{said}\x1b[0m" if self.colour and said else said


def draw(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    ascii: bool = False,  # noqa: A002 - the name of the flag
    top: int = 10,
    turns: bool = False,
) -> str:
    """Return the report as lines of at most `width` cells (never under 40), without a last newline.

    `top` bounds every list of items; `turns` adds a bar for each turn. Without `colour` there are
    no escape sequences, and with `ascii` only ASCII.
    """
    pen = Pen(max(NARROWEST, width), colour, ascii)
    parts = [
        _header(report, pen),
        _bar(report, pen),
        _table(report, pen, top),
        _largest(report, pen, top),
        _turns(report, pen) if turns else iter(()),
        _footer(report, pen),
    ]
    blocks = ["\n".join(lines) for part in parts if (lines := list(part))]
    return "\n\n".join(blocks)


def brief(report: Report) -> str:
    """Return one line: `25.0k left · 128.0k/200.0k 64 % · advisory · est ±1 %`."""
    used, window = report["used"], report["window"]
    rests = basis(used["basis"], used["error"])
    rest = count_left(report)
    if rest is None or window is None:
        facts = [f"ctx={short(used['tokens'])}", "window unknown"]
        return " · ".join([*facts, rests] if rests.startswith("est") else facts)
    tokens, _ = rest
    rest_words = f"over by {short(-tokens)}" if tokens < 0 else f"{short(tokens)} left"
    share = percent(used["tokens"], window["tokens"])
    gauge = f"{short(used['tokens'])}/{short(window['tokens'])} {share}"
    assumed = ["window assumed"] if window.get("assumed") else []
    return " · ".join([rest_words, gauge, report["tier"], rests, *assumed])


def _header(report: Report, pen: Pen) -> Iterator[str]:
    source = report["source"]
    facts = [pen.text(report["model"] or "model unknown")]
    if source is not None:
        facts += [pen.text(fact) for fact in origin(source)]
    facts[0] = cut(facts[0], pen.width, pen.own("…"))
    lines = list(pen.flow(facts))
    # Only the model stands apart, and it never breaks.
    yield pen.bold(facts[0]) + lines[0].removeprefix(facts[0])
    yield from lines[1:]
    yield from pen.flow(_state(report, pen))


def _state(report: Report, pen: Pen) -> Iterator[str]:
    used = report["used"]["tokens"]
    yield f"pressure: {report['tier']}"
    if report["reason"]:
        yield pen.text(report["reason"])
    rest = count_left(report)
    if rest is None:
        yield f"used {used:,}"
        yield "window unknown, so no share and no rest"
        return
    window = report["window"]["tokens"]
    assumed = ", window assumed" if report["window"].get("assumed") else ""
    yield f"used {used:,} of {window:,} ({percent(used, window)}{assumed})"
    tokens, until = rest
    yield f"{abs(tokens):,} tokens {until}"


def _segments(report: Report, pen: Pen) -> list[tuple[str, Ink | None, int]]:
    """Return letter, ink and tokens of every segment, in the order of the bar.

    A negative row reduces the others in proportion, since it corrects their count.
    """
    rows = [(row["id"], row["tokens"]) for row in report["rows"] if row["tokens"] > 0]
    used, counted = max(0, report["used"]["tokens"]), sum(tokens for _, tokens in rows)
    segments: list[tuple[str, Ink | None, int]] = []
    for name, tokens in rows:
        ink = INKS.get(name, OTHER)
        segments.append((ink.letter, ink, tokens * used // counted))
    if report["window"] is not None:
        segments += [
            (pen.own("·"), None, max(0, report["free"])),
            (pen.own("░"), None, report["margin"]),
            (pen.own("▒"), None, report["reserved_output"]),
        ]
    return segments


def _bar(report: Report, pen: Pen) -> Iterator[str]:
    segments = _segments(report, pen)
    whole = sum(tokens for _, _, tokens in segments)
    if whole <= 0:
        return
    room = pen.width - 2
    drawn, passed, edge = "", 0, 0
    for letter, ink, tokens in segments:
        passed += tokens
        next_edge = round(passed * room / whole)
        drawn += pen.paint(letter, ink, next_edge - edge)
        edge = next_edge
    yield f"[{drawn}]"
    marks = [("compaction", report["compaction_at"])]
    if report["over"] and report["window"] is not None:
        marks.append(("window", report["window"]["tokens"]))
    for said, at in marks:
        if at is not None and at <= whole:
            yield _mark(f"{said} at {at:,}", round(at * room / whole), pen)


def _mark(said: str, at: int, pen: Pen) -> str:
    """Return a line with an arrow under cell `at` of the bar, its words on the side with room."""
    at = min(max(1, at), pen.width - 2)
    if at + 2 + len(said) <= pen.width:
        return pen.line(f"{' ' * at}^ {said}")
    return pen.line(f"{said} ^".rjust(at + 1))


def _table(report: Report, pen: Pen, top: int) -> Iterator[str]:
    window = report["window"]["tokens"] if report["window"] is not None else None
    sheet = Sheet.fitting(report, pen, window)
    for row in report["rows"]:
        ink = INKS.get(row["id"], OTHER)
        rests = pen.own(basis(row["basis"], row["error"]))
        yield from sheet.row(ink, pen.text(row["name"]), row["tokens"], rests)
        if row["note"]:
            yield from pen.words(pen.text(row_note(row)), "      ")
        yield from _items(row.get("items") or (), sheet, top)
    yield pen.own("─") * min(60, pen.width)
    used = report["used"]
    yield sheet.total("= used", used["tokens"], pen.own(basis(used["basis"], used["error"])))
    if window is None:
        yield pen.line("  window unknown: absolute tokens only")
        return
    over = f"over by {report['over']:,}" if report["over"] and sheet.indent else ""
    yield sheet.total("+ free", report["free"], over, "·")
    yield sheet.total("+ safety margin", report["margin"], "", "░")
    yield sheet.total("+ reserved output", report["reserved_output"], "", "▒")
    yield sheet.total("= window", window, pen.text(window_source(report["window"])))
    for said in (report["window"].get("said_by"), report["window"].get("note")):
        if said:
            yield from pen.words(pen.text(said), "    ")


def _items(items: Sequence[Mapping[str, Any]], sheet: Sheet, top: int) -> Iterator[str]:
    ordered = sorted(items, key=lambda item: -item["tokens"])
    for item in ordered[:top]:
        yield from sheet.item(item)
    if rest := ordered[top:]:
        tokens = sum(item["tokens"] for item in rest)
        yield sheet.entry(f"{sheet.indent}    {len(rest)} more", tokens, "")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The columns of the table: name, tokens, share (of `window`, None: no such column), basis."""

    pen: Pen
    window: int | None
    name: int
    digits: int

    @classmethod
    def fitting(cls, report: Report, pen: Pen, window: int | None) -> Sheet:
        """Return columns that fit the longest number; the rest of the width is for the names."""
        numbers = [report["used"]["tokens"], report["free"] or 0, report["margin"], window or 0]
        numbers += [report["reserved_output"]]
        for row in report["rows"]:
            numbers += [row["tokens"], *(item["tokens"] for item in row.get("items") or ())]
        digits = max(len(f"{number:,}") for number in numbers)
        share = 0 if window is None else 6
        words = [pen.own(basis(row["basis"], row["error"])) for row in report["rows"]]
        said = max((cells(word) for word in words), default=0)
        room = max(8, pen.width - digits - share - said - 3)
        return cls(pen, window, min(38, room), digits)

    @property
    def indent(self) -> str:
        """The indent before a row's letter: none if the name column is narrow."""
        return "  " if self.name > 24 else ""

    def entry(self, name: str, tokens: int, said: str, *, share: bool = False) -> str:
        """Return one line of the table."""
        short_name = cut(name, self.name, self.pen.own("…"))
        line = short_name + " " * (self.name - cells(short_name)) + f" {tokens:>{self.digits},}"
        if self.window is not None:
            line += f" {percent(tokens, self.window) if share else '':>5}"
        return self.pen.line(f"{line}  {said}")

    def row(self, ink: Ink, name: str, tokens: int, rests: str) -> Iterator[str]:
        """Yield the line of a row, its letter in the colour of the bar."""
        lead = self.indent
        line = self.entry(f"{lead}{ink.letter} {name}", tokens, rests, share=True)
        yield lead + self.pen.paint(ink.letter, ink, 1) + line[len(lead) + 1 :]

    def item(self, item: Mapping[str, Any]) -> Iterator[str]:
        """Yield the line of an item, and another one for its duplicates if they do not fit."""
        count = self.pen.own(f" {item['count']}{TIMES}") if item["count"] > 1 else ""
        lead = self.indent + "    "
        room = max(1, self.name - len(lead) - cells(count))
        entries = (item.get("entries") or ())[:ENTRIES]
        alone = entries[0]["name"] if item["count"] == 1 and entries else item["name"]
        name = f"{lead}{cut(self.pen.text(alone), room, self.pen.own('…'))}{count}"
        told = _duplicates(item)
        line = self.entry(name, item["tokens"], told)
        if told and not line.endswith(told):
            yield self.entry(name, item["tokens"], "")
            yield self.pen.line(f"{lead}  {told}")
        else:
            yield line
        for entry in entries if item["count"] != 1 else ():
            room = max(1, self.pen.width - self.digits - len(lead) - 4)
            said = cut(self.pen.text(entry["name"]), room, self.pen.own("…"))
            yield self.pen.line(f"{lead}  {entry['tokens']:>{self.digits},}  {said}")

    def total(self, name: str, tokens: int, said: str, glyph: str = "") -> str:
        """Return the line of a term or of a sum, with its sign in `name`, `glyph` as in the bar."""
        sign, _, word = name.partition(" ")
        shown = f" {self.pen.own(glyph)}" if glyph else ""
        lead = f"{sign}{shown} " if self.indent else sign
        return self.entry(f"{lead}{word}", tokens, said, share=word != "window")


def _duplicates(item: Mapping[str, Any]) -> str:
    copies = item["duplicates"]
    if not copies:
        return ""
    return f"{copies} duplicate{'s' * (copies != 1)}, {item['reclaimable']:,} reclaimable"


def _largest(report: Report, pen: Pen, top: int) -> Iterator[str]:
    items = report["largest"][:top]
    if not items:
        return
    yield pen.bold("largest messages")
    for item in items:
        again = ""
        if item["sent"] > 1:
            again = pen.own(f"sent {item['sent']}{TIMES}, {item['resent_tokens']:,} again")
        name = f"{item['message']}  {pen.text(item['name'])}"
        tokens = f"{item['tokens']:,}"
        room = pen.width - 4 - len(tokens) - (cells(again) + 3 if pen.width >= 70 else 0)
        said = cut(name, max(8, min(44, room)), pen.own("…"))
        said += " " * (max(8, min(44, room)) - cells(said)) + f"  {tokens}"
        if pen.width >= 70:
            yield pen.line(f"  {said}   {again}")
        else:
            yield pen.line(f"  {said}")
            if again:
                yield pen.line(f"      {again}")


def _turns(report: Report, pen: Pen) -> Iterator[str]:
    turns = report["turns"]
    if not turns:
        return
    columns = min(len(turns), pen.width - 2)
    edges = [round(i * len(turns) / columns) for i in range(columns + 1)]
    buckets = [turns[low:high] for low, high in pairwise(edges)]
    tallest = [max(turn["tokens"] for turn in bucket) for bucket in buckets]
    ceiling = max(tallest)
    scale = STEPS if pen.ascii else BLOCKS
    each = -(-len(turns) // columns)
    yield pen.bold("tokens per turn")
    yield from pen.flow(
        [
            f"turns {turns[0]['turn']} to {turns[-1]['turn']}",
            f"tallest {ceiling:,}",
            *([f"up to {each} turns a column, the tallest shown"] if each > 1 else []),
        ],
        "  ",
    )
    levels = (max(0, min(7, math.ceil(8 * t / ceiling) - 1)) if ceiling > 0 else 0 for t in tallest)
    yield pen.line("  " + "".join(scale[level] for level in levels))
    marks = ["C" if any(turn["compacted"] for turn in bucket) else " " for bucket in buckets]
    if "C" in marks:
        yield pen.line("  " + "".join(marks))
        yield pen.line("  C: compacted")


def _footer(report: Report, pen: Pen) -> Iterator[str]:
    since, growth, spent = report["since"], report["growth"], report["spent"]
    if since is not None:
        messages = f"{since['messages']:,} message{'s' * (since['messages'] != 1)}"
        yield from pen.flow([f"since the last report: {since['tokens']:,} tokens", messages])
    if growth is not None:
        yield from pen.flow([f"growth: {growth:+,} tokens a turn", "median of the last 5"])
    if spent is not None:
        parts = ["session spend (cumulative)"]
        parts += [
            f"{name.replace('_', ' ')} {spent_words(spent, name)}"
            for name in ("input", "cache_read", "cache_write", "output", "reasoning")
        ]
        parts.append(spent_words(spent, "dollars"))
        yield from pen.flow(parts)
    for warning in report["warnings"]:
        yield from pen.words(pen.text(warning), "! ")

"""The composition of a window: one arithmetic for every face of the context view.

Rows by part add up exactly to the used tokens, and used + free + margin + reserved output add up to
the window. This module draws nothing, resolves no window and reads no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.framing import Framing
from ullage.core.messages.labels import label_call, shorten
from ullage.core.messages.size import Size
from ullage.core.messages.transcript import Message, summarises
from ullage.core.tokens.counting import (
    Count,
    Meter,
    Share,
    flatten,
    learned_extra,
    shares,
    system_size,
    tool_sizes,
)
from ullage.core.tokens.gauge import Assessment, assess

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.window import Window

SCHEMA: Final = "ullage.context/1"

NAMES: Final[Mapping[str, str]] = {
    "prefix": "system prompt and tools",
    "system": "system prompt",
    "tools": "tool schemas",
    "user": "user messages",
    "assistant": "assistant text",
    "reasoning": "reasoning",
    "tool_calls": "tool calls",
    "tool_results": "tool results",
    "images": "images",
    "files": "files and audio",
    "checkpoint": "summary of earlier turns",
    "framing": "roles and template",
    "unattributed": "unattributed",
}
"""The rows, in display order."""

_KINDS: Final[Mapping[str, str]] = {
    "reasoning": "reasoning",
    "sealed": "reasoning",
    "compaction": "checkpoint",
    "result": "tool_results",
    "call": "tool_calls",
    "image": "images",
    "audio": "files",
    "file": "files",
}

WORTH: Final = 20
"""An earlier equal result counts as a duplicate from this many tokens on. `ok` twice does not."""

DROPPED: Final = "not sent: dropped by the template"
"""Note of a row that the model's chat template leaves out."""

NOTHING: Final = Size(0, 0, 0)

ENTRIES: Final = 20
"""The number of calls listed for each tool."""

RECENT: Final = 5
"""The number of turns over which growth is measured."""


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One call or result of a tool, by name: `Read src/ledger.py, turn 14`."""

    name: str
    tokens: int
    message: int


@dataclass(frozen=True, slots=True)
class Item:
    """The size of one tool or one item of a row; `reclaimable` are tokens of earlier repeats.

    `entries` are its largest calls or results, the largest first.
    """

    name: str
    tokens: int
    count: int = 1
    duplicates: int = 0
    reclaimable: int = 0
    entries: tuple[ToolEntry, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.name,
            "tokens": self.tokens,
            "count": self.count,
            "duplicates": self.duplicates,
            "reclaimable": self.reclaimable,
            "entries": [
                {"name": e.name, "tokens": e.tokens, "message": e.message} for e in self.entries
            ],
        }


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of the used tokens. `basis` says where the number comes from.

    `inferred` is the rest of a reported total. Only `unattributed` may be negative. `unsent` are
    tokens that the model's chat template drops; no sum includes them.
    """

    id: str
    tokens: int
    low: int
    high: int
    basis: str
    note: str = ""
    items: tuple[Item, ...] = ()
    unsent: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "id": self.id,
            "name": NAMES[self.id],
            "tokens": self.tokens,
            "low": self.low,
            "high": self.high,
            "basis": self.basis,
            "error": error(self.low, self.tokens, self.high),
            "note": self.note,
            "unsent": self.unsent,
            "items": [item.to_dict() for item in self.items],
        }


@dataclass(frozen=True, slots=True)
class Large:
    """One of the largest messages: how often it was sent, and the tokens of sending it again."""

    message: int
    name: str
    tokens: int
    sent: int

    @property
    def resent_tokens(self) -> int:
        """The tokens of all sends after the first."""
        return self.tokens * max(self.sent - 1, 0)


@dataclass(frozen=True, slots=True)
class Span:
    """One call of a model, with messages[start:stop] in its window.

    `tokens` is the reported size, None if not reported. `output` is the size of the answer, an
    estimate if `counted`.
    """

    number: int
    start: int
    stop: int
    tokens: int | None = None
    model: str | None = None
    at: str | None = None
    compacted: bool = False
    output: int | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class TurnRows:
    """The content of the window at one call, by row, in tokens."""

    span: Span
    tokens: int
    basis: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """The input of a composition: all messages that were ever in the window, and the report.

    The window now holds messages[start:]; `reported` covers messages[start:covered]. `apart` names
    what every reported total includes in addition to the messages, `reporter` who reported it.
    `reserved` are output tokens, `root` is the folder that paths are relative to, `dropped` the
    rows that the model's chat template leaves out.
    """

    transcript: Transcript
    start: int = 0
    covered: int | None = None
    reported: int | None = None
    system: str | None = None
    tools: Sequence[Any] = ()
    reserved: int = 0
    summaries: frozenset[int] = frozenset()
    spans: tuple[Span, ...] = ()
    apart: str = ""
    reporter: str = "provider"
    root: str | None = None
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """The composition of a window. All numbers are tokens of the model.

    The numbers add up to `bound`. It is None if the window is unknown; then there is no free row.
    `free` is negative if the rest is over the bound.
    """

    used: Count
    basis: str
    rows: tuple[PartRow, ...]
    bound: int | None
    reserved: int
    assessment: Assessment
    since: tuple[int, int] | None = None
    largest: tuple[Large, ...] = ()
    turns: tuple[TurnRows, ...] = ()

    @property
    def margin(self) -> int:
        """The upper edge of the used tokens minus their best value."""
        return self.used.high - self.used.tokens

    @property
    def free(self) -> int | None:
        """The free tokens: used + free + margin + reserved output = the bound."""
        if self.bound is None:
            return None
        return self.bound - self.used.tokens - self.margin - self.reserved

    @property
    def error(self) -> float | None:
        """The half-width of the band as a share of the used tokens, None for an exact number."""
        return error(self.used.low, self.used.tokens, self.used.high)

    @property
    def growth(self) -> int | None:
        """The median growth of the last turns without a compaction, None below two turns."""
        recent = self.turns[-RECENT - 1 :]
        steps = [b.tokens - a.tokens for a, b in pairwise(recent) if not b.span.compacted]
        return round(median(steps)) if steps else None


def compose(subject: Subject, meter: Meter, window: Window, *, top: int = 10) -> Report:
    """Return the composition of a subject's window. Pure."""
    book = _Book(subject, meter)
    covered = len(subject.transcript) if subject.covered is None else subject.covered
    stood = range(subject.start, covered)
    sizes = book.sizes(stood)
    used, rows = _rows(sizes, book, meter, subject)
    rows = [book.mark_unsent(book.add_items(row, stood), stood) for row in rows]
    since = None
    if subject.reported is not None and covered < len(subject.transcript):
        new = range(covered, len(subject.transcript))
        since = (book.tokens(new), len(new))
    basis = subject.reporter if subject.reported is not None else used.basis
    return Report(
        used,
        basis,
        tuple(sorted(rows, key=lambda row: list(NAMES).index(row.id))),
        window.input_tokens,
        _count_reserved(subject.reserved, window),
        assess(used, window),
        since,
        book.largest(stood, top),
        tuple(book.turns()),
    )


def _count_reserved(asked: int, window: Window) -> int:
    """Return the output that must fit inside the bound: less what the total allows beyond it."""
    bound, total = window.input_tokens, window.total_tokens
    return asked if bound is None or total is None else max(asked - (total - bound), 0)


def _rows(
    sizes: Mapping[str, Size], book: _Book, meter: Meter, subject: Subject
) -> tuple[Count, list[PartRow]]:
    """Return the used tokens, and the rows that add up to them."""
    ids = [name for name in NAMES if name in sizes]
    low, best, high = meter.scale.of(_sum(sizes.values()))
    sharp = meter.basis == "exact" and low == high
    basis = meter.basis if sharp or meter.basis != "exact" else "estimate"
    parts = _share_total(best, [sizes[i].best for i in ids])
    rows = []
    for name, tokens in zip(ids, parts, strict=True):
        edges = meter.scale.of(sizes[name])
        exact = meter.basis == "exact" and edges.low == edges.high
        kind = meter.basis if exact or meter.basis != "exact" else "estimate"
        rows.append(PartRow(name, tokens, min(edges.low, tokens), max(edges.high, tokens), kind))
    reported = subject.reported
    if reported is None:
        extra = learned_extra(book.fixed, meter) or 0
        learned = max(extra, -best)
        rows += _rest(learned, learned if subject.apart else 0, subject.apart)
        low, best, high = (max(edge + extra, 0) for edge in (low, best, high))
        return Count(best, low, high, basis), rows
    rows += _rest(reported - best, min(book.prefix, reported), subject.apart)
    return Count(reported, reported, reported, "server"), rows


def _rest(rest: int, prefix: int, apart: str) -> Iterator[PartRow]:
    """Yield rows for tokens outside the messages: the prefix of every request, and the rest."""
    constant = max(prefix, 0)
    for name, tokens, note in (
        ("prefix", constant, apart),
        ("unattributed", rest - constant, ""),
    ):
        if tokens:
            yield PartRow(name, tokens, tokens, tokens, "inferred", note)


def _sum(sizes: Iterable[Size]) -> Size:
    return Size(*(sum(edges) for edges in zip(*sizes, strict=True)))


def _share_total(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a total by weights into whole numbers that add up to it (largest remainders)."""
    whole = sum(weights)
    if not whole:
        return [total, *(0 for _ in weights[1:])]
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(parts)), key=lambda i: (-(total * weights[i] % whole), i))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts


def error(low: int, best: int, high: int) -> float | None:
    """Return the half-width of a band as a share of its best value, None for an exact number."""
    if low == high:
        return None
    return round(max(high - best, best - low) / max(abs(best), 1), 4)


@dataclass(slots=True)
class _Piece:
    """One piece of a message: its row, its name in lists, and its size."""

    row: str
    name: str
    size: Size
    text: str = field(default="", repr=False)
    index: int = 0
    arguments: str | None = field(default=None, repr=False)
    unsent: Size = NOTHING


class _Book:
    """The pieces of every message, computed once."""

    def __init__(self, subject: Subject, meter: Meter) -> None:
        self._subject = subject
        self._scale = meter.scale
        self._calls = {c.id: c for message in subject.transcript.messages for c in message.calls}
        self._stops = [span.stop for span in subject.spans]
        messages, replaced = subject.transcript.messages, subject.transcript.is_replaced
        self._pieces = [
            [] if replaced(index) else list(self._read(index, messages[index], pieces))
            for index, pieces in enumerate(shares(messages, meter))
        ]
        reply = meter.framing.reply
        opening = Size(reply, reply, reply + meter.framing.opening)
        self._fixed: dict[str, Size] = {"framing": opening}
        self._tools: list[tuple[str, Size]] = []
        if subject.system:
            self._fixed["system"] = system_size(subject.system, meter)
        if subject.tools:
            self._fixed["tools"], self._tools = tool_sizes(subject.tools, meter)
        self._drop(meter.framing)
        self.fixed = _sum(self._fixed.values())
        if learned_extra(self.fixed, meter) is not None:  # as in `measure`
            self._fixed = {row: flatten(size) for row, size in self._fixed.items()}
        self._running = self._sums()
        self.prefix = self._prefix()

    def _drop(self, framing: Framing) -> None:
        """Take what the chat template leaves out from every sum; a message keeps its framing."""
        dropped = self._subject.dropped
        self._unsent_tools = (
            self._fixed["tools"] if "tools" in dropped & self._fixed.keys() else NOTHING
        )
        if self._unsent_tools != NOTHING:
            self._fixed["tools"], self._tools = NOTHING, []
        head = framing.message + framing.role
        framed = Size(head, head, head + framing.slack)
        for pieces in self._pieces:
            for place, piece in enumerate(pieces):
                if piece.row in dropped:
                    kept = framed if place == 0 else NOTHING
                    piece.unsent = Size(*(a - b for a, b in zip(piece.size, kept, strict=True)))
                    piece.size = kept

    def mark_unsent(self, row: PartRow, stood: range) -> PartRow:
        """Return a row with the tokens that the chat template leaves out of it."""
        if row.id not in self._subject.dropped:
            return row
        left = _sum([NOTHING, *(p.unsent for p in self._within(stood) if p.row == row.id)])
        size = self._unsent_tools if row.id == "tools" else left
        tokens = self._scale.of(size).best
        return replace(row, unsent=tokens, note=DROPPED, items=()) if tokens else row

    def _read(self, index: int, message: Message, found: Iterable[Share]) -> Iterator[_Piece]:
        whole = "checkpoint" if index in self._subject.summaries or summarises(message) else ""
        if not whole and message.is_system:
            whole = "system"
        spoken = "assistant" if message.role == "assistant" else "user"
        self._calls |= {call.id: call for call in message.calls}  # ids may come again
        parts = len(message.parts)
        for place, share in enumerate(found):
            row = whole or _KINDS.get(share.kind, spoken)
            name, text, about = share.name or "", "", None
            if share.kind == "result":
                text = message.parts[place].text  # parts come first
                call = self._calls.get(name)
                name = (call.name if call else message.name) or "unknown tool"
                about = call.arguments if call else ""
            elif share.kind == "call":
                about = message.calls[place - parts].arguments
            elif share.kind == "text" and place < parts:
                text = message.parts[place].text
            yield _Piece(row, name, share.size, text, index, about)

    def sizes(self, stood: range) -> dict[str, Size]:
        """Return the size of each row in counter tokens, including parts outside the messages."""
        found = defaultdict(list, {row: [size] for row, size in self._fixed.items()})
        for piece in self._within(stood):
            found[piece.row].append(piece.size)
        return {row: _sum(sizes) for row, sizes in found.items()}

    def tokens(self, stood: range) -> int:
        """Return the size of only these messages, in tokens of the model."""
        return round(sum(piece.size.best for piece in self._within(stood)) * self._scale.best)

    def _within(self, stood: range) -> Iterator[_Piece]:
        for index in stood:
            yield from self._pieces[index]

    def add_items(self, row: PartRow, stood: range) -> PartRow:
        """Return a row with its items by tool, scaled so that they add up to it."""
        named: dict[str, list[_Piece]] = defaultdict(list)
        if row.id == "tools":
            for name, size in self._tools:
                named[name].append(_Piece("tools", name, size))
        elif row.id in ("tool_calls", "tool_results"):
            for piece in self._within(stood):
                if piece.row == row.id:
                    named[piece.name].append(piece)
        if not named:
            return row
        groups = list(named.items())
        weights = [sum(piece.size.best for piece in pieces) for _, pieces in groups]
        items = [
            self._item(name, tokens, pieces)
            for (name, pieces), tokens in zip(
                groups, _share_total(row.tokens, weights), strict=True
            )
        ]
        items.sort(key=lambda item: (-item.tokens, item.name))
        return PartRow(row.id, row.tokens, row.low, row.high, row.basis, row.note, tuple(items))

    def _item(self, name: str, tokens: int, pieces: Sequence[_Piece]) -> Item:
        """Return the item of one tool: repeats and calls get their shares of `tokens`."""
        copies, again = _count_repeated(pieces)
        parts = _share_total(tokens, [piece.size.best for piece in pieces])
        whole = sum(piece.size.best for piece in pieces)
        order = sorted(range(len(pieces)), key=lambda i: (-parts[i], pieces[i].index))
        entries = tuple(
            ToolEntry(self._label(pieces[i]), parts[i], pieces[i].index)
            for i in order[:ENTRIES]
            if pieces[i].arguments is not None
        )
        spare = tokens * again // whole if whole else 0
        return Item(name, tokens, len(pieces), copies, spare, entries)

    def _label(self, piece: _Piece) -> str:
        """Return the name of a piece and its turn: `Read src/ledger.py, turn 14`."""
        said = piece.name
        if piece.arguments is not None:
            about = label_call(piece.arguments, self._subject.root)
            said = f"{said} {about}" if about else said
        elif piece.text:
            said = f'"{shorten(piece.text)}"'
        place = self._place(piece)
        return f"{said}, {place}" if said else place

    def _place(self, piece: _Piece) -> str:
        """Return the turn of a piece. A user message belongs to the call that it is sent with."""
        spans = self._subject.spans
        if not spans:
            return f"message {piece.index}"
        before = bisect_right(self._stops, piece.index)
        answers = piece.row not in ("user", "system", "checkpoint", "images", "files")
        place = max(before - 1, 0) if answers else before
        return f"turn {spans[place].number}" if place < len(spans) else "since the last turn"

    def largest(self, stood: range, top: int) -> tuple[Large, ...]:
        """Return the largest pieces in the window, and how often each was sent."""
        pieces = [
            (piece.size.best, index, piece) for index in stood for piece in self._pieces[index]
        ]
        pieces.sort(key=lambda entry: (-entry[0], entry[1]))
        found = []
        pieces = [entry for entry in pieces if entry[2].row not in self._subject.dropped]
        for tokens, index, piece in pieces[:top]:
            name = f"{NAMES[piece.row]}: {self._label(piece)}"
            sent = sum(span.start <= index < span.stop for span in self._subject.spans)
            found.append(Large(index, name, round(tokens * self._scale.best), sent))
        return tuple(found)

    def _prefix(self) -> int:
        """Return the first report's tokens outside its messages; later requests repeat them."""
        spans = [span for span in self._subject.spans if span.tokens is not None]
        if not self._subject.apart or not spans:
            return 0
        first = next(span for span in spans if span.model == spans[-1].model)
        return max((first.tokens or 0) - sum(self._count_rows(first).values()), 0)

    def _count_rows(self, span: Span) -> dict[str, int]:
        """Return the rows of the window at a call, in tokens of the model."""
        ratio = self._scale.best
        rows = {row: round(size.best * ratio) for row, size in self._fixed.items()}
        for row, running in self._running.items():
            grown = running[span.stop] - running[span.start]
            if grown:
                rows[row] = rows.get(row, 0) + round(grown * ratio)
        return rows

    def turns(self) -> Iterator[TurnRows]:
        """Yield the content of the window at each call."""
        for span in self._subject.spans:
            rows = self._count_rows(span)
            counted = sum(rows.values())
            if span.tokens is None:
                yield TurnRows(span, counted, "estimate", rows)
                continue
            constant = min(self.prefix, span.tokens)
            rest = {"prefix": constant, "unattributed": span.tokens - counted - constant}
            yield TurnRows(span, span.tokens, "provider", {**rows, **rest})

    def _sums(self) -> dict[str, list[int]]:
        """Return running sums of each row's best values: one more than the number of messages."""
        if not self._subject.spans:
            return {}
        count = len(self._pieces)
        sums = {row: [0] * (count + 1) for row in NAMES}
        for index, pieces in enumerate(self._pieces):
            for running in sums.values():
                running[index + 1] = running[index]
            for piece in pieces:
                sums[piece.row][index + 1] += piece.size.best
        return sums


def _count_repeated(pieces: Iterable[_Piece]) -> tuple[int, int]:
    """Return how many results were repeated unchanged later, and their counter tokens."""
    latest: dict[str, _Piece] = {}
    count = tokens = 0
    for piece in pieces:
        before = latest.get(piece.text) if piece.text else None
        if before is not None and before.size.best >= WORTH:
            count += 1
            tokens += before.size.best
        latest[piece.text] = piece
    return count, tokens

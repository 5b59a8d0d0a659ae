"""The form of a table of model ids: one compressed text, searched as text.

Only the requested row is parsed. It knows how a table is written, when one is whole and where one
raises a bound. It does not know the places of tables, nor the ids of a model.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, Final

from ullage.core.tokens.claim import SMALLEST, Kind
from ullage.core.tokens.cost import Price
from ullage.windows.aliases import PROVIDERS, VENDORS, Name

SCHEMA: Final = 1
_GZIP: Final = 31
"""zlib's value for the gzip format, which ends with a checksum."""

MOST_BYTES: Final = 2 * 1024 * 1024
MOST_TEXT: Final = 16 * 1024 * 1024
MOST_ROWS: Final = 100_000
LARGEST: Final = 20_000_000
"""Larger than any window ever served, in tokens."""

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({"t": "total", "i": "input", "o": "output"})

_LOSS: Final = re.compile(r"([tio])(\d{1,8})([a-z])")
_ID: Final = re.compile(r"[!-Z\\-~][!-~]{0,199}")
_SNAPSHOT: Final = re.compile(r"20\d\d-\d\d-\d\d")


BROKEN: Final = (ValueError, KeyError, TypeError)
"""The errors that a badly written row raises."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A claim that lost to a smaller one, and the data package that made it."""

    kind: Kind
    tokens: int
    lineage: str


@dataclass(frozen=True, slots=True)
class Row:
    """The table's data on one id at one provider; limits in tokens, None if unknown.

    `lineages` are the data packages that list the id. `rule` is the reason, in words, if the bound
    was lowered or fixed by hand.
    """

    provider: str
    model: str
    total: int | None = None
    input: int | None = None
    output: int | None = None
    lineages: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    rule: str = ""
    prices: tuple[Price, ...] = ()

    @property
    def bound(self) -> int | None:
        """The most input in tokens: min(input limit, total)."""
        return min((n for n in (self.total, self.input) if n is not None), default=None)

    @property
    def limits(self) -> Mapping[Kind, int]:
        """The known limits, by kind."""
        known = zip(KINDS.values(), (self.total, self.input, self.output), strict=True)
        return {kind: tokens for kind, tokens in known if tokens is not None}


@dataclass(frozen=True, slots=True)
class Book:
    """One table: its head, and its rows as text by provider.

    A table's text is the head (one line of JSON), then for each provider a line `[name]` and its
    sorted rows. The fields of a row are separated by tabs; trailing empty fields are omitted.
    `sections` keep a line feed before every row and after the last.
    """

    snapshot: str
    lineages: Mapping[str, str]
    rules: Mapping[str, str]
    sections: Mapping[str, str] = field(repr=False)

    @property
    def at(self) -> float:
        """The day of the snapshot, in seconds since the epoch."""
        return datetime.fromisoformat(self.snapshot).replace(tzinfo=UTC).timestamp()

    @classmethod
    def read(cls, data: bytes) -> Book:
        """Read a table; raises ValueError if its checksum, head or sections are damaged."""
        first, *parts = _plain(data).split("\n[")
        head: Any = json.loads(first)
        if not isinstance(head, dict) or head.get("schema") != SCHEMA:
            raise ValueError(f"not a table of schema {SCHEMA}")
        snapshot = head.get("snapshot")
        if not isinstance(snapshot, str) or not _SNAPSHOT.fullmatch(snapshot):
            raise ValueError("its snapshot is no date")
        date.fromisoformat(snapshot)
        sections: dict[str, str] = {}
        for part in parts:
            provider, bracket, rows = part.partition("]")
            if not bracket or provider in sections or provider not in PROVIDERS:
                raise ValueError(f"its provider {provider[:60]!r} is unknown or named twice")
            sections[provider] = rows.removesuffix("\n") + "\n"
        return cls(snapshot, _words(head, "lineages"), _words(head, "rules"), sections)

    def providers(self) -> list[str]:
        """Return the providers that have rows, sorted."""
        return sorted(self.sections)

    def lines(self, provider: str) -> list[str]:
        """Return a provider's rows as text."""
        return self.sections.get(provider, "\n")[1:].splitlines()

    def ids(self, provider: str) -> list[str]:
        """Return the ids of one provider, sorted."""
        return [line.partition("\t")[0] for line in self.lines(provider)]

    def rows(self) -> Iterator[Row]:
        """Yield every row."""
        for provider in self.providers():
            for line in self.lines(provider):
                yield self.parse_row(provider, line)

    def row(self, name: Name) -> Row | None:
        """Return the row of exactly this id; without a provider, of the first maker that has it."""
        if not _ID.fullmatch(name.model):
            return None
        sought = f"\n{name.model}\t"
        for provider in VENDORS if name.provider is None else (name.provider,):
            rows = self.sections.get(provider, "")
            found = rows.find(sought) + 1
            if found:
                return self.parse_row(provider, rows[found : rows.index("\n", found)])
        return None

    def parse_row(self, provider: str, line: str) -> Row:
        """Read one row; raises one of BROKEN if it is malformed."""
        fields = line.split("\t")
        model, total, input_, output, lineages, losses, rule, prices = (*fields, *[""] * 8)[:8]
        return Row(
            provider,
            model,
            int(total) if total else None,
            int(input_) if input_ else None,
            int(output) if output else None,
            tuple(self.lineages[letter] for letter in lineages),
            tuple(self._loss(loss) for loss in losses.split()),
            self.rules[rule] if rule else "",
            tuple(_price(price) for price in prices.split(";") if price),
        )

    def _loss(self, text: str) -> Loss:
        found = _LOSS.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no claim")
        return Loss(KINDS[found[1]], int(found[2]), self.lineages[found[3]])


def _words(head: Mapping[str, Any], key: str) -> Mapping[str, str]:
    words = head.get(key)
    if not isinstance(words, dict) or not all(isinstance(v, str) for v in words.values()):
        raise ValueError(f"its {key} are not named")
    return MappingProxyType(words)


def _plain(data: bytes) -> str:
    """Decompress up to a limit and check the checksum."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"{len(data):,} bytes are too many for a table")
    unzip = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unzip.decompress(data, MOST_TEXT)
    except zlib.error as error:
        raise ValueError(f"not compressed, or damaged ({error})") from error
    if not unzip.eof:
        raise ValueError(f"cut off, or over {MOST_TEXT:,} bytes of text")
    return text.decode("ascii")


def pack(text: bytes) -> bytes:
    """Compress a table; the same text gives the same bytes."""
    squeeze = zlib.compressobj(9, wbits=_GZIP)
    return squeeze.compress(text) + squeeze.flush()


def _price(text: str) -> Price:
    above, colon, rates = text.rpartition(":")
    numbers = [float(rate) if rate else None for rate in rates.split(",")]
    return Price(int(above) if colon else 0, *numbers)


def whole(book: Book) -> int:
    """Check every row; return their number. Raises ValueError that names the first faulty one."""
    number = 0
    for provider in book.providers():
        before = ""
        for line in book.lines(provider):
            number += 1
            model = line.partition("\t")[0]
            try:
                fault = _fault(book.parse_row(provider, line)) or (
                    "" if before < model else "not in order"
                )
            except BROKEN as error:
                fault = str(error)
            if fault or number > MOST_ROWS:
                raise ValueError(f"row {provider}/{model[:60]}: {fault or 'too many rows'}")
            before = model
    if not number:
        raise ValueError("it has no rows")
    return number


def _fault(row: Row) -> str:
    """Return the fault of a row, or ""."""
    if not _ID.fullmatch(row.model):
        return "no lawful id"
    if row.bound is None:
        return "no bound"
    for kind, tokens in row.limits.items():
        if tokens > LARGEST or tokens < (1 if kind == "output" else SMALLEST):
            return f"{tokens:,} tokens of {kind} are no window"
    if any(loss.tokens <= row.bound for loss in row.losses if loss.kind != "output"):
        return "a smaller claim than its bound is listed as lost"
    rates = (n for p in row.prices for n in (p.input, p.output, p.cache_read, p.cache_write))
    if not all(n is None or (math.isfinite(n) and n >= 0) for n in rates):
        return "no lawful price"
    return ""

"""One statement about a limit of a window: its source, its time, and its grounds.

A claim is a value. Other modules compare and weigh it (`window.resolve`, `evidence`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["total", "input", "output", "trained", "allocated", "policy"]
Source = Literal[
    "override", "probe", "listing", "table", "refusal", "truncation", "contention", "answer"
]
Grounds = Literal["", "structured", "words", "counted"]

RANKS: Final[tuple[Source, ...]] = ("override", "probe", "listing", "table")
"""Sources from most to least believed. Learned sources have no rank: they only cap or raise."""

CAPS: Final[frozenset[Source]] = frozenset({"refusal", "truncation", "contention"})
"""Learned sources that lower a window."""

LEARNED: Final = CAPS | {"answer"}
"""Sources that are events; an `answer` argues against lowering a window."""

UNNAMED: Final = "no limit was named"
"""The note of a refusal that says that a request is too large but names no limit."""

FORGET: Final = "`ullage window MODEL --refresh` forgets it"
"""How to remove a learned bound: every message that rests on it says so."""

SAID: Final[Mapping[Source, tuple[str, str]]] = {
    "override": ("set by", "--window or window="),
    "refusal": ("learned from a refusal of", "the server"),
    "truncation": ("learned from prompts cut by", "the server"),
    "contention": ("shared with other requests to", "the server"),
    "answer": ("answered by", "the server"),
    "probe": ("reported by", "the server"),
    "listing": ("listed by", "the provider"),
    "table": ("from", "the table"),
}
"""Words for each source, and its name if the claim has no place."""

SMALLEST: Final = 1024
"""A claim below this is refused unless an operator or a local server makes it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One source's statement about a limit, in tokens.

    `at` is the time of the statement in seconds since the epoch, 0.0 if it has none (an override).
    `confidence` runs from 0 to 1. `where` names the endpoint, file or table.

    The other fields are for learned claims. `grounds` says what the claim rests on: an unambiguous
    field or number of the server (`structured`), a sentence (`words`), or only our own count
    (`counted`). `exchange` is the digest of the request: one request is one witness. `reported` is
    the number of tokens that the server says it read, 0 if unknown. `times` is the minimum number
    of requests that said it. `tools` says whether the request had tools.
    """

    kind: Kind
    tokens: int
    source: Source
    where: str = ""
    at: float = 0.0
    confidence: float = 1.0
    note: str = ""
    grounds: Grounds = ""
    exchange: str = ""
    reported: int = 0
    times: int = 1
    tools: bool | None = None

    @property
    def date(self) -> str:
        """The day of the statement as YYYY-MM-DD (UTC), "" if it has no valid time."""
        try:
            return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d") if self.at else ""
        except (OSError, OverflowError, TypeError, ValueError):
            # The claim was read from a file that somebody edited.
            return ""

    def sentence(self) -> str:
        """Return the claim in one line."""
        often = "repeated" if self.times > 1 else ""
        extra = ", ".join(said for said in (self.grounds, often, self.note) if said)
        note = f" ({extra})" if extra else ""
        return f"{self.tokens:,} tokens, {self.kind}, {say_source(self.source, self.where)}{note}"

    def describe_with_date(self) -> str:
        """Return the claim with its day, unless its place already names the day."""
        known = not self.date or self.date in self.where
        return self.sentence() if known else f"{self.sentence()}, {self.date}"


def say_source(source: Source, where: str = "") -> str:
    """Return the source of a limit in words, such as "reported by http://127.0.0.1:8080"."""
    how, who = SAID[source]
    return f"{how} {where or who}"


def acceptable(claim: Claim) -> bool:
    """Tell whether a claim can be believed at all: a positive, sane number of tokens."""
    if type(claim.tokens) is not int or claim.tokens <= 0:
        return False
    local = claim.source == "override" or claim.kind == "allocated" or claim.source in LEARNED
    return local or claim.tokens >= SMALLEST or claim.kind == "output"


def order(claim: Claim) -> tuple[int, bool]:
    """Order claims by tokens. If equal, one that also limits the output comes first."""
    return claim.tokens, claim.kind == "input"

"""One statement about a limit of a window: who made it, when, and what it rests on.

A claim is a value. It is compared and weighed elsewhere (`window.resolve`, `evidence`).
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
"""Sources from most to least believed. What was learned has no rank: it only caps or raises."""

CAPS: Final[frozenset[Source]] = frozenset({"refusal", "truncation", "contention"})
"""Sources of what was learned and lowers a window."""

LEARNED: Final = CAPS | {"answer"}
"""Sources that are events; an `answer` speaks against what lowers a window."""

UNNAMED: Final = "no limit was named"
"""The note of a refusal that says that a request is too large, and not for what."""

FORGET: Final = "`ullage window MODEL --refresh` forgets it"
"""How to take back what was learned: every message that rests on it says so."""

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
"""How each source is told to people, and who it is where no place is named."""

SMALLEST: Final = 1024
"""A claim below this is refused unless an operator or a local server makes it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One source's statement about a limit, in tokens.

    `at` is the time of the statement in seconds since the epoch, 0.0 where it has none (an
    override). `confidence` runs from 0 to 1. `where` names the endpoint, file or table.

    The rest is for what was learned. `grounds` says what it rests on: a field or a number of the
    server that can mean nothing else (`structured`), a sentence (`words`), or only our own count
    (`counted`). `exchange` is the digest of the request: one request is one witness. `reported`
    are the tokens that the server said it read, 0 where it said nothing. `times` is how many
    requests said it at least. `tools` says whether the request had tools.
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
        """The day of the statement as YYYY-MM-DD (UTC), "" where it has no sane time."""
        try:
            return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d") if self.at else ""
        except (OSError, OverflowError, TypeError, ValueError):
            # Read back from a file that somebody edited.
            return ""

    def sentence(self) -> str:
        """Say the claim in one line."""
        often = "repeated" if self.times > 1 else ""
        extra = ", ".join(said for said in (self.grounds, often, self.note) if said)
        note = f" ({extra})" if extra else ""
        return f"{self.tokens:,} tokens, {self.kind}, {say_source(self.source, self.where)}{note}"

    def describe_with_date(self) -> str:
        """Say the claim with its day, unless its place names that already."""
        known = not self.date or self.date in self.where
        return self.sentence() if known else f"{self.sentence()}, {self.date}"


def say_source(source: Source, where: str = "") -> str:
    """Say who told of a limit, such as "reported by http://127.0.0.1:8080"."""
    how, who = SAID[source]
    return f"{how} {where or who}"


def acceptable(claim: Claim) -> bool:
    """Tell whether a claim can be believed at all: a positive, sane number of tokens."""
    if type(claim.tokens) is not int or claim.tokens <= 0:
        return False
    local = claim.source == "override" or claim.kind == "allocated" or claim.source in LEARNED
    return local or claim.tokens >= SMALLEST or claim.kind == "output"


def order(claim: Claim) -> tuple[int, bool]:
    """Order claims by tokens; of equals, one that bounds the output too comes first."""
    return claim.tokens, claim.kind == "input"

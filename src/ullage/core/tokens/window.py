"""What a window is: claims with kind and source, resolved to one fact or to honest unknown.

A window belongs to an endpoint and an exact model id, never to a family name. Claims of equal
rank combine by the smaller; what lost stays visible. It asks nobody (`ullage.windows` does) and
makes no number up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from ullage.core.errors import ContextWindowUnknown
from ullage.core.values.shown import line, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["total", "input", "output", "trained", "allocated", "policy"]
Source = Literal["override", "learned", "probe", "listing", "table"]

RANKS: Final[tuple[Source, ...]] = ("override", "probe", "listing", "table")
"""Sources from most to least believed. `learned` has no rank: it only lowers."""

SAID: Final[Mapping[Source, tuple[str, str]]] = {
    "override": ("set by", "--window or window="),
    "learned": ("learned from", "an error"),
    "probe": ("reported by", "the server"),
    "listing": ("listed by", "the provider"),
    "table": ("from", "the table"),
}
"""How each source is told to people, and who it is where no place is named."""

SMALLEST: Final = 1024
"""A claim below this is refused unless an operator or a local server makes it."""

HINT: Final = (
    "Set it: window=N in code or `--window N`, or give the base_url of the server so that it can "
    "be asked."
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One source's statement about a limit, in tokens.

    `at` is the time of the statement in seconds since the epoch, 0.0 where it has none (an
    override). `confidence` runs from 0 to 1. `where` names the endpoint, file or table.
    """

    kind: Kind
    tokens: int
    source: Source
    where: str = ""
    at: float = 0.0
    confidence: float = 1.0
    note: str = ""

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
        note = f" ({self.note})" if self.note else ""
        return f"{self.tokens:,} tokens, {self.kind}, {_say_source(self.source, self.where)}{note}"

    def describe_with_date(self) -> str:
        """Say the claim with its day, unless its place names that already."""
        known = not self.date or self.date in self.where
        return self.sentence() if known else f"{self.sentence()}, {self.date}"


@dataclass(frozen=True, slots=True)
class Window:
    """What one request may hold: the fact that claims resolve to, or `known=False`.

    `input_tokens` is the bound for the prompt, min(input limit, total), without any reserve.
    `kind` and `source` are those of the claim that set the bound.
    """

    input_tokens: int | None = None
    total_tokens: int | None = None
    output_tokens: int | None = None
    kind: Kind | None = None
    source: Source | None = None
    confidence: float = 0.0
    claims: tuple[Claim, ...] = ()
    model: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is a bound at all."""
        return self.input_tokens is not None

    @property
    def proven(self) -> bool:
        """Whether the bound is the operator's, the server's own, or was learned from an error."""
        return self.source in ("override", "learned") or self.kind == "allocated"

    def tokens(self) -> int:
        """Return the bound for the prompt; raises ContextWindowUnknown without one."""
        if self.input_tokens is None:
            raise ContextWindowUnknown(self.model, HINT)
        return self.input_tokens

    def __repr__(self) -> str:
        if self.input_tokens is None:
            return line("Window", "unknown", model=self.model)
        return line("Window", f"{self.input_tokens:,} tokens of input, {self.name_source()}")

    def _repr_html_(self) -> str:
        rows: dict[str, object] = {
            "input": "unknown" if self.input_tokens is None else self.input_tokens,
            "total": self.total_tokens,
            "output": self.output_tokens,
            "by": self.name_source() if self.known else None,
        }
        rows |= {f"claim {n}": claim.describe_with_date() for n, claim in enumerate(self.claims, 1)}
        return table(f"window of {self.model or 'this model'}", rows)

    def name_source(self) -> str:
        """Say in a few words who set the bound, for messages to people."""
        for claim in self.claims:
            if claim.source == self.source and claim.tokens == self.input_tokens:
                return f"{claim.kind} window {_say_source(claim.source, claim.where)}"
        return f"window {_say_source(self.source)}" if self.source else "nobody"

    def explain(self) -> str:
        """Return the bound, who said it, and every claim that was heard with its date."""
        name = self.model or "this model"
        if not self.known:
            head = f"{name}: context window unknown (context_window_unknown). {HINT}"
        else:
            head = f"{name}: {self.input_tokens:,} tokens of input, {self.name_source()}"
        heard = [
            f"  {'*' if c.tokens == self.input_tokens else '-'} {c.describe_with_date()}"
            for c in self.claims
        ]
        return "\n".join([head, *heard, *(f"  ! {w}" for w in self.warnings)])


def _say_source(source: Source, where: str = "") -> str:
    """Say who told of a limit, such as "reported by http://127.0.0.1:8080"."""
    how, who = SAID[source]
    return f"{how} {where or who}"


def acceptable(claim: Claim) -> bool:
    """Tell whether a claim can be believed at all: a positive, sane number of tokens."""
    if type(claim.tokens) is not int or claim.tokens <= 0:
        return False
    local = claim.source == "override" or claim.kind == "allocated" or claim.source == "learned"
    return local or claim.tokens >= SMALLEST or claim.kind == "output"


def resolve(claims: Iterable[Claim], *, model: str | None = None) -> Window:
    """Resolve claims to one window.

    An override beats listings and the table; a smaller allocated claim or learned ceiling caps
    it, with one warning. Otherwise the best rank that names a bound sets it; within a rank the
    smaller one. `trained` bounds nothing while an allocated claim is known, in either direction.
    """
    heard = tuple(c for c in claims if acceptable(c))
    ranked = [c for c in heard if c.source != "learned"]
    bounds = [c for c in ranked if c.kind in ("total", "input", "allocated", "policy")]
    bounds = bounds or [c for c in ranked if c.kind == "trained"]
    chosen = _best_rank(bounds)
    ceilings = [c for c in heard if c.source == "learned" and c.kind != "output"]
    caps = [c for c in bounds if c.kind == "allocated" and c.source == "probe"]
    warnings: tuple[str, ...] = ()
    best = min(chosen, key=_smaller, default=None)
    for cap in sorted((*ceilings, *caps), key=_smaller):
        if best is None or cap.tokens < best.tokens:
            if best is not None and best.source == "override":
                said = (
                    f"the window of {best.tokens:,} tokens that you set is capped at {cap.tokens:,}"
                )
                warnings = (f"{said}: {cap.sentence()}",)
            best = cap
            break
    output = min((c.tokens for c in heard if c.kind == "output"), default=None)
    if best is None:
        return Window(output_tokens=output, claims=heard, model=model)
    totals = [c.tokens for c in (*chosen, best) if c.kind != "input" and c.tokens >= best.tokens]
    total = best.tokens if best.kind != "input" else min(totals, default=None)
    return Window(
        input_tokens=best.tokens,
        total_tokens=total,
        output_tokens=output,
        kind=best.kind,
        source=best.source,
        confidence=best.confidence,
        claims=heard,
        model=model,
        warnings=warnings,
    )


def refute(window: Window, tokens: int) -> Window:
    """Return what holds of a published window once a prompt of so many tokens was answered.

    Claims below it are wrong; of the larger ones the smallest bounds, among them those that had
    lost. Unknown where none is left. A window that is not published stays as it is.
    """
    if window.input_tokens is None or tokens <= window.input_tokens or window.proven:
        return window
    left = [c for c in window.claims if c.kind == "output" or c.tokens >= tokens]
    found = resolve(left, model=window.model)
    refuted = f"{window.input_tokens:,} tokens ({window.name_source()}) are refuted"
    answered = f"a prompt of {tokens:,} was answered"
    return replace(found, warnings=(*window.warnings, f"{refuted}: {answered}"))


def _best_rank(bounds: list[Claim]) -> list[Claim]:
    for source in RANKS:
        found = [c for c in bounds if c.source == source]
        if found:
            return found
    return []


def _smaller(claim: Claim) -> tuple[int, bool]:
    """Order claims by tokens; of equals, one that bounds the output too comes first."""
    return claim.tokens, claim.kind == "input"

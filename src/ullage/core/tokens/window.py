"""The context window: claims with kind and source, resolved to one fact or to "unknown".

A window belongs to an endpoint and an exact model id, never to a family name. Among claims of equal
rank the smallest wins, and the others stay visible. `core.tokens.evidence` weighs refusals and
usage reports. This module asks no server (`ullage.windows` does) and invents no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.errors import ContextWindowUnknown
from ullage.core.tokens.claim import CAPS, FORGET, LEARNED, RANKS, acceptable, order, say_source
from ullage.core.tokens.evidence import find_cap, find_floor
from ullage.core.values.frozen import replace
from ullage.core.values.shown import line, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.core.tokens.claim import Claim, Kind, Source

HINT: Final = (
    "Set it: window=N in code or `--window N`, or give the base_url of a server that reports "
    "its window."
)


SUSPECTED: Final = f"after one refusal or cut prompt; {FORGET}"
"""Source text for a suspected bound. It says how to remove the bound."""


class WorkingBound(NamedTuple):
    """A bound below the window that thresholds use, in tokens, and its source.

    `effective`: the quality of answers holds up to this size. `economic`: above this size, carrying
    a conversation costs more than compacting it. `suspected`: the evidence is one refusal or cut
    prompt. A working bound never refuses a request.
    """

    tokens: int
    name: Literal["effective", "economic", "suspected"]
    source: str

    def describe(self) -> str:
        """Return the bound in words for people."""
        return f"the {self.name} bound of {self.tokens:,} tokens {self.source}"


@dataclass(frozen=True, slots=True)
class Window:
    """The most that one request may hold: the fact that claims resolve to, or `known=False`.

    `input_tokens` is the bound for the prompt: min(input limit, total), without any reserve. `kind`
    and `source` come from the claim that set the bound. `answered` is the largest prompt that is
    known to have been answered, 0 if unknown. `working` is the lowest bound below the window.
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
    answered: int = 0
    working: WorkingBound | None = None

    @property
    def working_tokens(self) -> int | None:
        """The bound that thresholds use: the window, or a lower working bound."""
        if self.working is None:
            return self.input_tokens
        return min(self.working.tokens, self.input_tokens or self.working.tokens)

    @property
    def likely_tokens(self) -> int | None:
        """The bound above which a request likely fails: the window, or a suspected lower bound."""
        suspected = self.working is not None and self.working.name == "suspected"
        return self.working_tokens if suspected else self.input_tokens

    def suspect(self, tokens: int) -> Window:
        """Return the window for a conversation in which one request met a bound of so many tokens.

        One event is not proof: thresholds use the bound, but no request is refused because of it.
        The operator's own setting is never changed.
        """
        bound = self.working_tokens
        if self.source == "override" or tokens < self.answered:
            return self
        if bound is not None and bound <= tokens:
            return self
        return replace(self, working=WorkingBound(tokens, "suspected", SUSPECTED))

    @property
    def known(self) -> bool:
        """Tell whether there is any bound."""
        return self.input_tokens is not None

    @property
    def proven(self) -> bool:
        """Tell whether the operator or the server set the bound, or it was learned from events."""
        return self.source == "override" or self.kind == "allocated" or self.is_learned

    @property
    def is_learned(self) -> bool:
        """Tell whether the bound was learned from refusals or cut prompts. It can be removed."""
        return self.source in CAPS

    def tokens(self) -> int:
        """Return the bound for the prompt; raises ContextWindowUnknown if there is no bound."""
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
        how = f"; {FORGET}" if self.is_learned else ""
        for claim in self.claims:
            if claim.source == self.source and claim.tokens == self.input_tokens:
                return f"{claim.kind} window {say_source(claim.source, claim.where)}{how}"
        return f"window {say_source(self.source)}{how}" if self.source else "nobody"

    def explain(self) -> str:
        """Return the bound, its source, and every claim with its date."""
        name = self.model or "this model"
        if not self.known:
            head = f"{name}: context window unknown (context_window_unknown). {HINT}"
        else:
            head = f"{name}: {self.input_tokens:,} tokens of input, {self.name_source()}"
        if self.working is not None:
            head += f"\n  thresholds work on {self.working.describe()}"
        heard = [
            f"  {'*' if c.tokens == self.input_tokens else '-'} {c.describe_with_date()}"
            for c in self.claims
        ]
        return "\n".join([head, *heard, *(f"  ! {w}" for w in self.warnings)])


def resolve(
    claims: Iterable[Claim], *, model: str | None = None, now: float | None = None
) -> Window:
    """Resolve claims to one window, at the time `now` in seconds since the epoch.

    An override beats listings and the table. A smaller allocated claim caps it, with one warning.
    Otherwise the best rank that names a bound sets it; within a rank the smallest claim wins. A
    `trained` claim bounds nothing, in either direction, while an allocated claim is known. A
    published bound is never below a prompt that was answered. Learned bounds cap by the rules of
    `evidence`.
    """
    heard = tuple(c for c in claims if acceptable(c))
    firm = any(c.source == "override" or c.kind == "allocated" for c in heard)
    floor = find_floor(heard, now, firm=firm)
    heard = tuple(_raise_to(c, floor) for c in heard)
    published = [c for c in heard if c.source not in LEARNED]
    bounds = [c for c in published if c.kind in ("total", "input", "allocated", "policy")]
    bounds = bounds or [c for c in published if c.kind == "trained"]
    chosen = _best_rank(bounds)
    best = min(chosen, key=order, default=None)
    set_by = best if best is not None and best.source == "override" else None
    probed = [c for c in bounds if c.kind == "allocated" and c.source == "probe"]
    cap = min(probed, key=order, default=None)
    if cap is not None and (best is None or cap.tokens < best.tokens):
        best = cap
    learned = find_cap([c for c in heard if c.kind != "output"], best, floor, now)
    if learned is not None and (best is None or learned.tokens < best.tokens):
        best = learned
    warnings: tuple[str, ...] = ()
    if set_by is not None and best is not None and best is not set_by:
        said = f"the window of {set_by.tokens:,} tokens that you set is capped at {best.tokens:,}"
        how = f"; {FORGET}" if best.source in CAPS else ""
        warnings = (f"{said}: {best.sentence()}{how}",)
    output = min((c.tokens for c in heard if c.kind == "output"), default=None)
    if best is None:
        return Window(output_tokens=output, claims=heard, model=model, answered=floor)
    totals = [c.tokens for c in (*chosen, best) if c.kind != "input" and c.tokens >= best.tokens]
    return Window(
        input_tokens=best.tokens,
        total_tokens=best.tokens if best.kind != "input" else min(totals, default=None),
        output_tokens=output,
        kind=best.kind,
        source=best.source,
        confidence=best.confidence,
        claims=heard,
        model=model,
        warnings=warnings,
        answered=floor,
    )


def _raise_to(claim: Claim, floor: int) -> Claim:
    """Raise a published bound to the largest prompt that was answered in spite of it."""
    if claim.source not in ("listing", "table") or claim.kind not in ("total", "input"):
        return claim
    if claim.tokens >= floor:
        return claim
    return replace(claim, tokens=floor, note=f"{claim.tokens:,} by the source, was exceeded")


def refute(window: Window, tokens: int) -> Window:
    """Return the window after a prompt of so many tokens exceeded its published bound.

    Claims below that size are wrong and go. The rest are resolved again, including claims that had
    lost before. If none is left, the window is unknown. A proven window stays as it is.
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

"""Budgets: shares of a window, room for output, and the budget of a turn.

Plain arithmetic on measured numbers. This module does not count and knows no prices and no clock. A
budget is a value, and so is the ledger of its spending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from types import MappingProxyType
from typing import Any, Final, Literal

from ullage.core.dialects.thinking import LEAST_THINKING
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.window import Window

# ── shares of a window ──────────────────────────────────────────────────────────────────────────

SHARES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "system_prompt": 0.10,
        "tools": 0.20,
        "knowledge": 0.15,
        "conversation": 0.45,
        "output_buffer": 0.10,
    }
)
"""The default share of the window for each section of a request."""

_EVEN: Final = 1e-9
"""The allowed difference of a sum of shares from 1: the rounding of five floats is below 1e-15."""


@dataclass(frozen=True, slots=True)
class Overrun:
    """A section that holds more tokens than its share."""

    section: str
    used: int
    share: int

    @property
    def over(self) -> int:
        """The number of tokens over its share."""
        return self.used - self.share

    def sentence(self) -> str:
        """Return the overrun in one line."""
        return f"{self.section} holds {self.used:,} tokens, {self.over:,} over its {self.share:,}"


def allocate(window_tokens: int, shares: Mapping[str, float] | None = None) -> dict[str, int]:
    """Divide a window (tokens) by shares; the parts add up to it exactly.

    The rounding difference goes to `conversation`. Raises ConfigurationError if the window is not a
    positive number, or if shares are negative, missing, unknown or do not add up to 1.
    """
    window = _tokens(window_tokens, "the window", least=1)
    exact = _exact(SHARES if shares is None else shares)
    whole = sum(exact.values())
    parts = {name: window * exact[name] // whole for name in SHARES}
    parts["conversation"] += window - sum(parts.values())
    return parts


def overruns(allocated: Mapping[str, int], used: Mapping[str, int]) -> tuple[Overrun, ...]:
    """Return the sections that hold more than their share, the largest overrun first.

    Raises ConfigurationError for a section without a share.
    """
    found = []
    for section, tokens in used.items():
        if section not in allocated:
            raise ConfigurationError(
                f"section {section!r} has no share of the window; the sections are "
                f"{', '.join(allocated)}: mark what it holds with one of them"
            )
        overrun = Overrun(section, _tokens(tokens, section), allocated[section])
        if overrun.over > 0:
            found.append(overrun)
    return tuple(sorted(found, key=lambda overrun: -overrun.over))


def _exact(shares: Mapping[str, object]) -> dict[str, int]:
    """Return shares in whole parts of 10^12, as they were written; raises ConfigurationError."""
    known: dict[str, float] = {}
    if set(shares) != set(SHARES):
        missing = ", ".join(sorted(set(SHARES) - set(shares))) or "none"
        unknown = ", ".join(sorted(map(repr, set(shares) - set(SHARES)))) or "none"
        raise ConfigurationError(
            f"shares name the sections {', '.join(SHARES)}; missing: {missing}, unknown: {unknown}"
        )
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not isfinite(share):
            raise ConfigurationError(f"the share of {name} is {share!r}, no number from 0 to 1")
        if share < 0:
            raise ConfigurationError(f"the share of {name} is {share}, below 0: give 0 or more")
        known[name] = share
    total = sum(known.values())
    if abs(total - 1) > _EVEN:
        raise ConfigurationError(
            f"the shares add up to {total:.6g} and must add up to 1: change conversation to "
            f"{known['conversation'] + 1 - total:.6g}, or another one"
        )
    # 0.29 is stored as 0.28999...98; 100 tokens of that would give 28.
    return {name: round(share * 10**12) for name, share in known.items()}


# ── one request ─────────────────────────────────────────────────────────────────────────────────

ANSWER: Final = 4_096
"""Tokens for the answer in addition to thinking if no `max_tokens` is given. Our choice."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The part of a request that fits into a window, in tokens.

    `max_tokens` and `thinking_tokens` are the values to send, None to leave them out. `lowered`
    lists the changes and reasons. `room` is the space left for output, None if unknown. If `fits`
    is False, the input leaves no room for an answer: `over` tokens of it must go, and the other
    fields are as requested.
    """

    fits: bool
    max_tokens: int | None
    thinking_tokens: int | None
    room: int | None = None
    lowered: tuple[str, ...] = ()
    over: int = 0


def fit(
    window: Window | int,
    *,
    input_tokens: int,
    max_tokens: int | None = None,
    thinking_tokens: int | None = None,
) -> Fit:
    """Return what fits of a request: the input, the output, and the thinking inside the output.

    A total window limits input and output together; an input limit only limits the input. Give the
    upper edge of a count as `input_tokens`. Thinking keeps its part of `max_tokens`, and is left
    out if that part falls below `LEAST_THINKING`. Raises ConfigurationError for impossible numbers.
    """
    if not isinstance(window, Window):
        bound = _tokens(window, "the window", least=1)
        window = Window(input_tokens=bound, total_tokens=bound)
    used = _tokens(input_tokens, "input_tokens")
    _check_output(max_tokens, thinking_tokens)
    bounds = [n for n in (window.input_tokens, window.total_tokens) if n is not None]
    over = max(0, used + 1 - min(bounds, default=used + 1))
    room, why = _room(window, used)
    if over:
        return Fit(False, max_tokens, thinking_tokens, room, over=over)
    if max_tokens is None:
        if thinking_tokens is None or room is None:
            return Fit(True, None, thinking_tokens, room)
        max_tokens = thinking_tokens + ANSWER
    if room is None or max_tokens <= room:
        return Fit(True, max_tokens, thinking_tokens, room)
    lowered = [f"max_tokens lowered from {max_tokens:,} to {room:,}: {why}"]
    if thinking_tokens is not None:
        kept = thinking_tokens * room // max_tokens
        if kept < LEAST_THINKING:
            said = f"thinking of {thinking_tokens:,} tokens left out: of {room:,} tokens of output"
            lowered.append(f"{said} it would get {kept:,}, and {LEAST_THINKING:,} is the least")
            thinking_tokens = None
        else:
            said = f"thinking lowered from {thinking_tokens:,} to {kept:,} tokens"
            lowered.append(f"{said}, its part of max_tokens")
            thinking_tokens = kept
    return Fit(True, room, thinking_tokens, room, tuple(lowered))


def _check_output(max_tokens: int | None, thinking_tokens: int | None) -> None:
    """Refuse an output that no provider accepts; raises ConfigurationError."""
    if max_tokens is not None:
        _tokens(max_tokens, "max_tokens", least=1)
    if thinking_tokens is None:
        return
    _tokens(thinking_tokens, "thinking_tokens", least=LEAST_THINKING)
    if max_tokens is not None and thinking_tokens >= max_tokens:
        raise ConfigurationError(
            f"thinking_tokens={thinking_tokens:,} must be less than max_tokens={max_tokens:,}, "
            "which thinking is part of: raise max_tokens or lower thinking_tokens"
        )


def _room(window: Window, used: int) -> tuple[int | None, str]:
    """Return the number of tokens left for output, and the reason for the limit."""
    total, output = window.total_tokens, window.output_tokens
    left = None if total is None else max(0, total - used)
    if left is None or (output is not None and output <= left):
        return output, f"the model answers with at most {output or 0:,} tokens"
    return left, f"{used:,} tokens of input leave {left:,} of the window of {total:,}"


@dataclass(frozen=True, slots=True)
class Cramped:
    """A window that is too small for the fixed part of every request, or for the work, in tokens.

    `fixed` is what must stay: `apart` for system text and tools, the rest for the task and the
    current request. `bound` is the window. `needed` is the window in which a compaction would reach
    its target and last. `growth` is the size of each answer if compactions follow each other too
    soon; it is 0 if `fixed` is the problem.
    """

    fixed: int
    apart: int
    bound: int
    needed: int
    growth: int = 0

    def sentence(self) -> str:
        """Return the problem in words, with its remedies."""
        if self.growth:
            return (
                f"The window of {self.bound:,} tokens is too small for the work: each answer "
                f"brings about {self.growth:,}, so that it is compacted again every {SOON} answers "
                f"or sooner. Serve a window of {self.needed:,}, or let tools return less."
            )
        return (
            f"The window of {self.bound:,} tokens is too small for what must stay: {self.fixed:,} "
            f"(system prompt and tools {self.apart:,}, task, pins and current request "
            f"{self.fixed - self.apart:,}). Serve a window of {self.needed:,}, or send fewer tools "
            "or a shorter system prompt."
        )


SOON: Final = 2
"""Another compaction within this many answers comes too soon."""

LASTING: Final = 3 * SOON
"""The number of answers that a compaction should last in a proposed window."""

ROUNDED: Final = 1_024
"""Proposed windows are multiples of this."""


def find_cramped(fixed: int, apart: int, bound: int, share: float) -> Cramped | None:
    """Return a finding if the fixed part exceeds its share of the window."""
    if fixed <= share * bound:
        return None
    return Cramped(fixed, apart, bound, ceil(fixed / share / ROUNDED) * ROUNDED)


def find_hasty(fixed: int, apart: int, bound: int, freed: int, answers: int) -> Cramped | None:
    """Return a finding if the tokens freed by a compaction lasted only a few `answers`."""
    if not 0 < answers <= SOON or freed <= 0:
        return None
    needed = ceil(bound * LASTING / answers / ROUNDED) * ROUNDED
    return Cramped(fixed, apart, bound, needed, ceil(freed / answers))


# ── one turn ────────────────────────────────────────────────────────────────────────────────────

Kind = Literal["call", "retry", "summary", "recovery", "subagent"]

KINDS: Final[tuple[Kind, ...]] = ("call", "retry", "summary", "recovery", "subagent")

RECOVERY: Final = 0.25
"""The part of a turn's budget reserved for one recovery (a summary and a repeated call). Our
choice."""

_CENT: Final = 1e-12
"""Two sums of floats are equal if they differ by less than this many dollars."""


@dataclass(frozen=True, slots=True)
class Charged:
    """The cost of one kind of call; `dollars` is None once a call had an unknown price."""

    times: int = 0
    tokens: int = 0
    dollars: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """The ledger of a turn, by kind. It includes every model call, also retries and summaries."""

    call: Charged = Charged()
    retry: Charged = Charged()
    summary: Charged = Charged()
    recovery: Charged = Charged()
    subagent: Charged = Charged()

    @property
    def tokens(self) -> int:
        """All tokens of the turn."""
        return sum(charged.tokens for charged in self._all())

    @property
    def dollars(self) -> float | None:
        """All dollars of the turn, None if the price of a call is unknown."""
        total = 0.0
        for charged in self._all():
            if charged.dollars is None:
                return None
            total += charged.dollars
        return total

    def charge(self, kind: Kind, tokens: int, dollars: float | None) -> Spent:
        """Return the ledger with one more call; `dollars` None is an unknown price, not 0."""
        if kind not in KINDS:
            raise ConfigurationError(f"{kind!r} is no kind of call; they are {', '.join(KINDS)}")
        _tokens(tokens, "the tokens of a call")
        _dollars(dollars, "the dollars of a call")
        old: Charged = getattr(self, kind)
        known = old.dollars is not None and dollars is not None
        total = (old.dollars or 0.0) + (dollars or 0.0) if known else None
        changes: dict[str, Any] = {kind: Charged(old.times + 1, old.tokens + tokens, total)}
        return replace(self, **changes)

    def _all(self) -> tuple[Charged, ...]:
        return self.call, self.retry, self.summary, self.recovery, self.subagent


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a call exceeds a turn's budget; `text` is the sentence for people."""

    reason: Literal["tokens", "dollars", "price_unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TurnBudget:
    """The limits of a turn in tokens, in dollars, or both; `None` means no limit.

    `recovery_share` of it is reserved for one recovery from an overflow: other calls cannot use it
    until a recovery was charged.
    """

    tokens: int | None = None
    dollars: float | None = None
    recovery_share: float = field(default=RECOVERY, kw_only=True)

    def __post_init__(self) -> None:
        if self.tokens is not None:
            _tokens(self.tokens, "the token budget of a turn", least=1)
        _dollars(self.dollars, "the dollar budget of a turn")
        if self.dollars == 0:
            raise ConfigurationError("a turn with 0 dollars can call nothing: leave dollars out")
        if not 0 <= self.recovery_share < 1:
            raise ConfigurationError(
                f"recovery_share={self.recovery_share} must be from 0 to below 1: the part of a "
                "turn's budget that is kept for one recovery"
            )

    def allows(
        self, spent: Spent, *, tokens: int, dollars: float | None = None, recovering: bool = False
    ) -> Refusal | None:
        """Return None if a call of this size is allowed, else the reason why not.

        `tokens` and `dollars` are its highest cost. If dollars are budgeted, an unknown price (of
        this call or an earlier one) is refused, because the end of the budget would be unknown.
        """
        _tokens(tokens, "the tokens of a call")
        _dollars(dollars, "the dollars of a call")
        share = 0.0 if recovering or spent.recovery.times else self.recovery_share
        if self.tokens is not None:
            kept = ceil(self.tokens * share)
            if spent.tokens + tokens > self.tokens - kept:
                return _over("tokens", tokens, spent.tokens, self.tokens, kept)
        if self.dollars is None:
            return None
        before = spent.dollars
        if dollars is None or before is None:
            whose = "this call" if dollars is None else "a call of this turn"
            return Refusal(
                "price_unknown",
                f"The price of {whose} is unknown, so the turn's budget of ${self.dollars:,.4f} "
                "cannot be kept. Give the model's price, or budget tokens.",
            )
        reserve = self.dollars * share
        if before + dollars > self.dollars - reserve + _CENT:
            return _over("dollars", dollars, before, self.dollars, reserve)
        return None


def divide_budget(budget: TurnBudget | None, spent: Spent, among: int) -> TurnBudget | None:
    """Return the share for each of several from the rest of a budget; `None` means no limit.

    If dollars are budgeted and the spent dollars are unknown, nothing is left. A used-up budget
    still has 1 token or a tiny amount of dollars, because a budget is never empty.
    """
    if budget is None:
        return None
    tokens = None if budget.tokens is None else max((budget.tokens - spent.tokens) // among, 1)
    dollars = budget.dollars
    if dollars is not None:
        gone = dollars if spent.dollars is None else spent.dollars
        dollars = max((dollars - gone) / among, _CENT)
    return replace(budget, tokens=tokens, dollars=dollars)


def tighten_budget(one: TurnBudget | None, other: TurnBudget | None) -> TurnBudget | None:
    """Return a budget that respects both; `None` means no limit."""
    if one is None or other is None:
        return other if one is None else one
    tokens = [budget.tokens for budget in (one, other) if budget.tokens is not None]
    dollars = [budget.dollars for budget in (one, other) if budget.dollars is not None]
    return replace(one, tokens=min(tokens, default=None), dollars=min(dollars, default=None))


def _over(
    unit: Literal["tokens", "dollars"], asked: float, spent: float, limit: float, kept: float
) -> Refusal:
    def say(amount: float) -> str:
        return f"{amount:,} tokens" if unit == "tokens" else f"${amount:,.4f}"

    reserve = f", {say(kept)} are kept for one recovery" if kept else ""
    return Refusal(
        unit,
        f"A call of up to {say(asked)} is over the turn's budget: {say(spent)} of {say(limit)} "
        f"are spent{reserve}. Raise the budget, shorten the request or end the turn.",
    )


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def _tokens(value: object, what: str, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what} is {value!r}; give a whole number of at least {least:,}")
    return value


def _dollars(value: object, what: str) -> None:
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not isfinite(value) or value < 0:  # type: ignore[arg-type,operator] # a number
        raise ConfigurationError(f"{what} is {value!r}; give dollars of at least 0, or None")

"""The cost of calls in dollars, and whether a compaction pays: prices times tokens.

An unknown price stays unknown and is never 0. Dollars are floats: a sum differs from the exact one
by less than 1e-12 of itself, far below any bill. This module knows no provider and no table; the
caller passes the prices. The price of a summary is a separate call and not part of a saving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.counting import Count

MILLION: Final = 1_000_000
"""Providers state prices for this many tokens."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens of a request whose prompt is over `above` tokens."""

    above: int
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a call in dollars, in the buckets of `Usage`.

    A bucket is None if it holds tokens and has no price; `unpriced_tokens` counts those tokens.
    `estimated` is True for a request that was counted but not yet answered.
    """

    input: float | None = 0.0
    cache_read: float | None = 0.0
    cache_write: float | None = 0.0
    output: float | None = 0.0
    reasoning: float | None = 0.0
    unpriced_tokens: int = 0
    estimated: bool = False

    @property
    def total(self) -> float | None:
        """The sum of the buckets, None if one of them is unknown."""
        total = 0.0
        for part in (self.input, self.cache_read, self.cache_write, self.output, self.reasoning):
            if part is None:
                return None
            total += part
        return total

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the total; `None` means an unknown price."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"total": self.total}


def rates(prompt_tokens: int, prices: Sequence[Price]) -> Price:
    """Return the prices of a request with a prompt of this length.

    The tier with the highest `above` below the prompt prices the whole request, also cached tokens
    and output. Anthropic ("If your request exceeds 200K input tokens, all tokens incur premium
    pricing", long context pricing, 2026) and Google do the same. Prices missing in that tier come
    from the tier below it.
    """
    found = Price(0)
    for tier in sorted(prices, key=lambda price: price.above):
        if tier.above < max(1, prompt_tokens):
            stated = {f.name: getattr(tier, f.name) for f in fields(tier)}
            known = {name: rate for name, rate in stated.items() if rate is not None}
            found = replace(found, **known)
    return found


def cost(used: Usage | Count | int, prices: Sequence[Price]) -> Cost:
    """Return the cost of a call, or the cost of sending that many tokens.

    A count or a number is an estimate: its best value, all as uncached input, without an answer.
    Reasoning is billed as output. Cached tokens without their own price stay unpriced: not every
    provider bills them as input. Raises ConfigurationError for a number below 0.
    """
    estimated = not isinstance(used, Usage)
    if not isinstance(used, Usage):
        used = Usage(_tokens(used.tokens if isinstance(used, Count) else used, "the tokens"))
    rate = rates(used.prompt_tokens, prices)
    buckets = {
        "input": (used.input, rate.input),
        "cache_read": (used.cache_read, rate.cache_read),
        "cache_write": (used.cache_write, rate.cache_write),
        "output": (used.output, rate.output),
        "reasoning": (used.reasoning, rate.output),
    }
    dollars = {name: _dollars(*bucket) for name, bucket in buckets.items()}
    unpriced = sum(buckets[name][0] for name, part in dollars.items() if part is None)
    return Cost(**dollars, unpriced_tokens=unpriced, estimated=estimated)


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of a compaction: shorter prompts, minus the part of the cache that is lost.

    A prompt of `before_tokens` becomes one of `after_tokens`. Its first `kept_tokens` are unchanged
    and stay cached, and `turns` more calls follow. `measured` is True if the saving comes from a
    provider's usage, False for an estimate. New messages are left out: they cost the same in both
    cases.
    """

    before_tokens: int
    after_tokens: int
    kept_tokens: int
    turns: int
    prices: tuple[Price, ...] = ()
    measured: bool = False

    @property
    def tokens(self) -> int:
        """The tokens that the coming calls do not send; below 0 if the prompt grew."""
        return (self.before_tokens - self.after_tokens) * self.turns

    @property
    def rewritten_tokens(self) -> int:
        """The cache loss: the tokens after the first edit, written to the cache once more."""
        return self.after_tokens - self.kept_tokens

    @property
    def dollars(self) -> float | None:
        """The dollars saved over all coming calls, minus the cache loss, or None if unpriced.

        Without the compaction, every call would read the old prompt from the cache. A missing cache
        price counts as the input price here; the estimate is then one without a cache.
        """
        if not self.turns:
            return 0.0
        old, new = (
            find_cache_rates(self.before_tokens, self.prices),
            find_cache_rates(self.after_tokens, self.prices),
        )
        if old is None or new is None:
            return None
        without = self.turns * self.before_tokens * old[0]
        first = self.kept_tokens * new[0] + self.rewritten_tokens * new[1]
        return (without - first - (self.turns - 1) * self.after_tokens * new[0]) / MILLION

    @property
    def worth(self) -> bool | None:
        """Tell whether it saves money, or None if that depends on an unknown price."""
        if self.tokens <= 0:
            return False
        return None if self.dollars is None else self.dollars > 0

    def sentence(self) -> str:
        """Return the saving in one line."""
        dollars = self.dollars
        money = "price unknown"
        if dollars is not None:
            money = f"${abs(dollars):,.4f} {'lost' if dollars < 0 else 'saved'}"
        return (
            f"{self.tokens:,} tokens fewer over {self.turns:,} calls, {self.rewritten_tokens:,} "
            f"of the cache written anew: {money} ({'measured' if self.measured else 'estimate'})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs and the results as a mapping; `None` means unknown."""
        given = ("before_tokens", "after_tokens", "kept_tokens", "turns", "measured")
        found = ("tokens", "rewritten_tokens", "dollars", "worth")
        return {name: getattr(self, name) for name in (*given, *found)}


def saving(
    before_tokens: int,
    after_tokens: int,
    kept_prefix_tokens: int,
    prices: Sequence[Price],
    *,
    turns: int,
) -> Saving:
    """Estimate the saving of a compaction over the next `turns` calls.

    `kept_prefix_tokens` of the prompt stand before the first edit. Raises ConfigurationError for
    numbers below 0 and for a kept prefix that is longer than a prompt.
    """
    shorter = min(_tokens(before_tokens, "before_tokens"), _tokens(after_tokens, "after_tokens"))
    if _tokens(kept_prefix_tokens, "kept_prefix_tokens") > shorter:
        raise ConfigurationError(
            f"kept_prefix_tokens={kept_prefix_tokens:,} is more than the {shorter:,} tokens of the "
            "prompt: give the tokens before the first edit"
        )
    turns = _tokens(turns, "turns")
    return Saving(before_tokens, after_tokens, kept_prefix_tokens, turns, tuple(prices))


def measure_saving(estimate: Saving, usage: Usage, *, added_tokens: int = 0) -> Saving:
    """Return the saving measured by the first call after the compaction.

    The real size of the prompt and the tokens read from the cache replace the estimates.
    `added_tokens` are those of messages added since the estimate. Compare `rewritten_tokens` of
    both for the cache loss.
    """
    after = max(0, usage.prompt_tokens - _tokens(added_tokens, "added_tokens"))
    kept = min(usage.cache_read, after)
    return replace(estimate, after_tokens=after, kept_tokens=kept, measured=True)


def _dollars(tokens: int, rate: float | None) -> float | None:
    if not tokens:
        return 0.0
    return None if rate is None else tokens * rate / MILLION


def find_cache_rates(prompt_tokens: int, prices: Sequence[Price]) -> tuple[float, float] | None:
    """Return the rates of a prompt's cached tokens and of its new tokens, None if unknown."""
    rate = rates(prompt_tokens, prices)
    read = rate.input if rate.cache_read is None else rate.cache_read
    write = rate.input if rate.cache_write is None else rate.cache_write
    return None if read is None or write is None else (read, write)


def _tokens(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{what} is {value!r}; give a whole number of at least 0")
    return value

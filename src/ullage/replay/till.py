"""Prices the calls of a replayed session, including the provider's cache.

The cache holds the prefix of the last request for `life_s` seconds after its last use. New tokens
are written to it if the provider charges for cache writes. It knows no policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ullage.core.guard.warmth import LEAST
from ullage.core.tokens.cost import MILLION, rates
from ullage.replay.totals import NANO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.tokens.cost import Price


class PaidTurn(NamedTuple):
    """The result of a call: cached tokens, expired ones, its price in billionths of a dollar."""

    cached: int
    expired: int
    nanodollars: int | None


class Till:
    """Prices the calls of one session, in order."""

    def __init__(self, prices: Sequence[Price], life_s: float) -> None:
        tiers = sorted({price.above for price in prices})
        self._tiers = [(above, rates(above + 1, prices)) for above in reversed(tiers)]
        self._life_s = life_s
        self.held = 0
        """The tokens of the last prompt."""
        self._at: float | None = None
        self._model: str | None = None

    def pay(
        self, prompt: int, output: int, kept: int | None, at: float | None, model: str | None
    ) -> PaidTurn:
        """Return the cache use and price of a call with this many tokens.

        `kept` is the number of tokens that it shares with the beginning of the last prompt, or None
        for all. `at` is the time in seconds, or None if unknown: then nothing has expired.
        """
        held = self.held if kept is None else min(kept, self.held)
        cached = held if held >= LEAST and self._reads_cache(prompt) else 0
        other = model is not None and self._model is not None and model != self._model
        late = at is not None and self._at is not None and at - self._at > self._life_s
        expired = cached if late and not other else 0
        if late or other:
            cached = 0
        self.held, self._at, self._model = prompt, at, model or self._model
        return PaidTurn(cached, expired, self._price(prompt, cached, output))

    def price_again(self, tokens: int, prompt: int) -> int:
        """Return the price of one more call that brings `tokens` back after a cached prompt."""
        cached = prompt if self._reads_cache(prompt) else 0
        return self._price(prompt + tokens, cached, 0) or 0

    def _reads_cache(self, prompt: int) -> bool:
        rate = self._find_rate(prompt)
        return rate is not None and rate.cache_read is not None

    def _find_rate(self, prompt: int) -> Price | None:
        """Return the prices of a prompt: the highest tier below its size prices all of it."""
        return next((rate for above, rate in self._tiers if above < max(prompt, 1)), None)

    def _price(self, prompt: int, cached: int, output: int) -> int | None:
        rate = self._find_rate(prompt)
        if rate is None or rate.input is None or rate.output is None:
            return None
        writes = rate.cache_write is not None and prompt >= LEAST  # shorter ones are not cached
        new = (rate.cache_write or 0.0) if writes else rate.input
        read = cached * (rate.cache_read or 0.0)
        return round(((prompt - cached) * new + read + output * rate.output) * (NANO // MILLION))

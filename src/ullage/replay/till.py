"""What the calls of a replayed session cost, with the provider's cache as it is priced.

The cache holds the beginning of the last request for `life_s` seconds from its last use. New tokens
are written to it where the provider asks a price for that. It knows no policy.
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
    """What a call came to: cached tokens, those that had expired, and its price in billionths."""

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
        """Return what a call of so many tokens comes to.

        `kept` are the tokens of the last prompt that are still its beginning, None for all of it;
        `at` is the time in seconds, None where it is unknown: then nothing has expired.
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
        """Return what one more call costs that brings `tokens` back behind a cached prompt."""
        cached = prompt if self._reads_cache(prompt) else 0
        return self._price(prompt + tokens, cached, 0) or 0

    def _reads_cache(self, prompt: int) -> bool:
        rate = self._find_rate(prompt)
        return rate is not None and rate.cache_read is not None

    def _find_rate(self, prompt: int) -> Price | None:
        """Return the prices of a prompt: those of the highest tier below it price all of it."""
        return next((rate for above, rate in self._tiers if above < max(prompt, 1)), None)

    def _price(self, prompt: int, cached: int, output: int) -> int | None:
        rate = self._find_rate(prompt)
        if rate is None or rate.input is None or rate.output is None:
            return None
        writes = rate.cache_write is not None and prompt >= LEAST  # shorter ones are not cached
        new = (rate.cache_write or 0.0) if writes else rate.input
        read = cached * (rate.cache_read or 0.0)
        return round(((prompt - cached) * new + read + output * rate.output) * (NANO // MILLION))

"""The gauge: tokens compared with a window, as an assessment with a tier.

Unknown stays unknown: without a window or a usage there is no ratio and no tier to act on. This
module counts no tokens and resolves no windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.window import Window
from ullage.core.values.frozen import replace
from ullage.core.values.shown import line, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.core.tokens.counting import Count

Tier = Literal["none", "advisory", "warning", "critical", "overflow", "unavailable"]
State = Literal["known", "estimated"]
Reason = Literal["context_window_unknown", "usage_missing", "usage_malformed"]

TIERS: Final[tuple[Tier, ...]] = ("none", "advisory", "warning", "critical", "overflow")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Lower edges of the tiers as shares of the input bound; they must rise.

    If `advisory` is None, there is no advisory tier.
    """

    advisory: float | None = 0.70
    warning: float = 0.80
    critical: float = 0.90
    overflow: float = 1.00

    def __post_init__(self) -> None:
        edges = (0.0, *self._edges())
        if not all(low < high for low, high in pairwise(edges)):
            raise ConfigurationError(
                f"thresholds must rise from above 0: advisory={self.advisory}, "
                f"warning={self.warning}, critical={self.critical}, overflow={self.overflow}"
            )

    def tier(self, ratio: float) -> Tier:
        """Return the tier of a ratio. A ratio on a lower edge belongs to the tier of that edge."""
        reached = 0
        for edge in self._edges():
            reached += ratio >= edge
        return TIERS[reached + (self.advisory is None and reached > 0)]

    @property
    def lowest(self) -> float:
        """The pressure at which the first tier begins."""
        return self._edges()[0]

    def _edges(self) -> tuple[float, ...]:
        first = () if self.advisory is None else (self.advisory,)
        return (*first, self.warning, self.critical, self.overflow)


STANDARD: Final = Thresholds()


@dataclass(frozen=True, slots=True)
class Assessment:
    """How full a window is, or why that is unknown.

    `ratio` and `tier` use the upper edge of the count. `input_tokens` is its best value, in tokens.
    If `available` is False, `tier` is "unavailable" and `reason` says why. `provider` says what the
    provider was asked to leave out by itself. `bound` names the bound below the window that was
    used, if any; the tier is still "overflow" only at the window.
    """

    available: bool
    tier: Tier
    ratio: float | None = None
    input_tokens: int | None = None
    window_tokens: int | None = None
    state: State | None = None
    reason: Reason | None = None
    provider: str | None = None
    bound: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not None."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        return line("Assessment", self.tier, self.notice(), state=self.state)

    def _repr_html_(self) -> str:
        rows = {
            "tier": self.tier,
            "used": None if self.ratio is None else f"{self.ratio:.0%}",
            "input": self.input_tokens,
            "window": self.window_tokens,
            "basis": self.state,
            "reason": self.reason,
        }
        return table(self.notice(), rows)

    def meter(self) -> str:
        """Return the form for a status line: `ctx=12.2k/32.0k`, or `ctx=12.2k` without a window."""
        if self.input_tokens is None:
            return "ctx=?"
        used = f"ctx={short(self.input_tokens)}"
        if not self.available or self.window_tokens is None:
            return used
        return f"{used}/{short(self.window_tokens)}"

    def notice(self) -> str:
        """Return the sentence for people: `Context window at 87 % (27,840/32,000 tokens)`.

        Share and tokens are those of the upper edge, because the tier uses it. The unit is `tokens
        at most` if the upper edge differs from the best value.
        """
        if self.ratio is None or self.input_tokens is None or self.window_tokens is None:
            return f"Context window unknown ({self.reason})"
        percent = int(round(self.ratio * 100, 9))  # 0.58 * 100 is 57.99999999999999
        most = round(self.ratio * self.window_tokens)
        unit = "tokens" if most == self.input_tokens else "tokens at most"
        said = f"; {self.bound}" if self.bound else ""
        said += f"; {self.provider}" if self.provider else ""
        return f"Context window at {percent} % ({most:,}/{self.window_tokens:,} {unit}){said}"


def assess(
    used: Usage | Count | int | Mapping[str, Any] | None,
    window: Window | int | None,
    *,
    thresholds: Thresholds = STANDARD,
) -> Assessment:
    """Assess tokens against a window. Pure; never raises for missing facts.

    `used` is a usage (known), a count or a number of tokens (estimated), a recorded usage report,
    or None. `window` is a Window, a number of tokens, or None for unknown.
    """
    best, high, state, reason = _tokens(used)
    bound = window.working_tokens if isinstance(window, Window) else window
    if reason is None and (bound is None or bound <= 0):
        reason = "context_window_unknown"
    if reason is not None or bound is None:
        return Assessment(False, "unavailable", input_tokens=best, reason=reason)
    ratio = high / bound
    found = Assessment(True, thresholds.tier(ratio), ratio, best, bound, state)
    if not isinstance(window, Window) or window.working is None:
        return found
    hard = window.input_tokens or bound
    tier = "critical" if found.tier == "overflow" and high < hard else found.tier
    return replace(found, tier=tier, bound=f"{window.working.describe()}, of {hard:,}")


def _tokens(used: object) -> tuple[int | None, int, State | None, Reason | None]:
    """Return best value, upper edge, state, and the reason if there is no value."""
    if used is None:
        return None, 0, None, "usage_missing"
    from ullage.core.tokens.counting import Count

    if isinstance(used, Usage):
        return used.prompt_tokens, used.prompt_tokens, "known", None
    if isinstance(used, Count):
        state: State = "known" if used.basis == "server" else "estimated"
        return used.tokens, used.high, state, None
    if isinstance(used, int) and not isinstance(used, bool) and used >= 0:
        return used, used, "estimated", None
    usage = _read_recorded(used) or Usage.from_report(used)
    if usage is None:
        return None, 0, None, "usage_malformed"
    return usage.prompt_tokens, usage.prompt_tokens, "known", None


def _read_recorded(used: object) -> Usage | None:
    """Read a usage as `Usage` fields under string keys, the form in which it is recorded."""
    names = ("input", "cache_read", "cache_write", "output", "reasoning")
    if not isinstance(used, dict) or "input" not in used or not set(used) <= set(names):
        return None
    values = [used.get(name, 0) for name in names]
    if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in values):
        return None
    return Usage(*values)


LEAVING: Final = 0.05
"""A shown tier ends this far below its lower edge, in shares of the window (measuring page)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The tier that people see for a conversation, and the tiers already reported to them.

    `checkpoint` names the last checkpoint. After a new checkpoint every tier is worth a notice
    again.
    """

    tier: Tier = "none"
    told: frozenset[Tier] = frozenset()
    checkpoint: str = ""

    def after(
        self, found: Assessment, checkpoint: str, thresholds: Thresholds = STANDARD
    ) -> tuple[Shown, bool]:
        """Return the shown state after an assessment, and whether it is worth a notice.

        A tier rises at once and falls 5 points below its edge. An unavailable assessment changes
        nothing: a missing reading does not clear a critical one.
        """
        if found.ratio is None:
            return self, False
        told = self.told if checkpoint == self.checkpoint else frozenset()
        tier = found.tier
        if checkpoint == self.checkpoint and TIERS.index(tier) < TIERS.index(self.tier):
            tier = max(tier, self._find_held_tier(found.ratio, thresholds), key=TIERS.index)
        new = tier != "none" and tier not in told
        return Shown(tier, told | {tier}, checkpoint), new

    def _find_held_tier(self, ratio: float, thresholds: Thresholds) -> Tier:
        """Return the highest tier, up to the shown one, that this ratio has not left yet."""
        held = thresholds.tier(ratio + LEAVING)
        return min(held, self.tier, key=TIERS.index)


def short(tokens: int) -> str:
    """Return a number of tokens in thousands, such as 12.2k."""
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)

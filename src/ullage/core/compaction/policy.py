"""The policy: which strategies run at which pressure. A plain value, with presets.

It names strategies and does not load them; `core.compaction.plan` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, get_args

from ullage.core.compaction import strategies
from ullage.core.compaction.strategy import Strategy
from ullage.core.compaction.traits import Trait
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest
from ullage.core.tokens.gauge import STANDARD, Thresholds
from ullage.core.tokens.window import WorkingBound
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.window import Window

CARRY_SHARE: Final = 0.95
"""The largest share of the target for the block of facts, words and summary."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of a policy: from pressure `at`, bring the prompt to `target` with these strategies.

    Both are shares of the input bound, compared with the upper edge of the count. A strategy is a
    name from the package (`strategies.FILES`) or your own `Strategy`.
    """

    at: float
    target: float
    strategies: tuple[Strategy | str, ...]

    def __post_init__(self) -> None:
        given: object = self.strategies
        if isinstance(given, str | Strategy):
            raise ConfigurationError(
                f"the strategies of a rung are {self.strategies!r:.80}: give a tuple of them"
            )
        object.__setattr__(self, "strategies", tuple(self.strategies))
        strategies.names(self.strategies)
        if not 0 < self.target < self.at:
            raise ConfigurationError(
                f"a rung at {self.at} needs a target between 0 and {self.at}, not {self.target}"
            )

    @property
    def summarises(self) -> bool:
        """Tell whether one of its strategies wants a summary."""
        return any(strategies.wants_prose(strategy) for strategy in self.strategies)


DETERMINISTIC: Final[tuple[str, ...]] = ("clear", "trim_oldest")


BOUNDS: Final = "a share of the window above 0 and up to 1, or tokens"


def _is_bound(value: object) -> bool:
    """Tell whether a value is None, a share, or a number of tokens."""
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 or (value > 1 and value == int(value))


def _find_tokens(bound: float, hard: int) -> int:
    """Return a bound in tokens: it is given as a share of the window or in tokens."""
    return max(int(bound * hard), 1) if bound <= 1 else int(bound)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules for a guard when the window fills.

    The highest rung that the pressure reaches applies. `tail_tokens` and `tail_share` limit the end
    of the conversation that strategies leave alone: the smaller of the two, lowered until the
    target fits. `min_output` is the lowest value, in tokens, to which `max_tokens` may be clamped;
    `None` means min(1,024, an eighth of the window). `version` names the policy in checkpoints.

    `keep_last` also limits the tail, in messages, widened to whole units. `carry_share` is the
    share of the target for the block of carried facts and summary; 0 means no block. `results` says
    for each tool, by name, whether its results can be fetched again ("again", the default), only
    once, or each tell the state. `recovery_tails` are the numbers of messages that successive
    recoveries of a turn leave alone. `background` lets an async guard begin a summary one rung
    early. `new_session` makes an agent continue in a new, linked session after a turn ends at the
    pressure of the highest rung.

    Thresholds and rungs use the lowest of three bounds: the window; `effective`, up to which
    answers are good; `economic`, above which carrying costs more than compacting. Both are a share
    of the window, up to 1, or tokens; `economic="prices"` takes the size at which the model's price
    rises. Only the window itself refuses requests. With `client_compacts` a proxy compacts nothing:
    at the lowest bound it answers as the client's provider would.
    """

    name: str = "ladder"
    thresholds: Thresholds = STANDARD
    rungs: tuple[Rung, ...] = ()
    tail_tokens: int = 40_000
    tail_share: float = 0.25
    min_output: int | None = None
    version: str = "1"
    keep_last: int | None = None
    carry_share: float = CARRY_SHARE
    results: Mapping[str, Trait] = field(default_factory=dict, hash=False)
    recovery_tails: tuple[int, ...] = (40, 20, 10, 5)
    background: bool = False
    new_session: bool = False
    effective: float | None = None
    economic: float | Literal["prices"] | None = None
    client_compacts: bool = False

    def __post_init__(self) -> None:
        traits = get_args(Trait)
        tails = self.recovery_tails
        lawful = {
            "tail_tokens": (type(self.tail_tokens) is int and self.tail_tokens >= 0, "0 or more"),
            "tail_share": (0 <= self.tail_share <= 1, "from 0 to 1"),
            "min_output": (self.min_output is None or self.min_output >= 1, "1 or more, or None"),
            "keep_last": (self.keep_last is None or self.keep_last >= 1, "1 or more, or None"),
            "carry_share": (0 <= self.carry_share < 1, "0 or more and below 1"),
            "results": (
                all(trait in traits for trait in self.results.values()),
                f"one of {', '.join(traits)} for each tool",
            ),
            "effective": (_is_bound(self.effective), BOUNDS),
            "economic": (
                self.economic == "prices" or _is_bound(self.economic),
                f'{BOUNDS}, or "prices"',
            ),
            "recovery_tails": (
                bool(tails) and min(tails) >= 0 and sorted(tails, reverse=True) == list(tails),
                "numbers of messages, falling",
            ),
        }
        for name, (holds, wanted) in lawful.items():
            if not holds:
                raise ConfigurationError(
                    f"{name} of the policy {self.name!r} is {getattr(self, name)!r}: give {wanted}"
                )

    def spare(self) -> Policy:
        """Return a policy that compacts only if the prompt does not fit: for use after an undo."""
        if not self.rungs:
            return self
        highest = max(self.rungs, key=lambda rung: rung.at)
        return replace(self, rungs=(replace(highest, at=max(1.0, highest.at)),))

    @classmethod
    def ladder(cls) -> Policy:
        """Clear and trim from 80 % to 60 %; summarise from 90 % to 50 %. The default."""
        return cls(
            rungs=(
                Rung(0.80, 0.60, DETERMINISTIC),
                Rung(0.90, 0.50, ("summarise_middle", *DETERMINISTIC)),
            )
        )

    @classmethod
    def advisory(cls) -> Policy:
        """Give notices only; compact from 90 % on, before the send."""
        return cls(name="advisory", rungs=(Rung(0.90, 0.60, DETERMINISTIC),))

    @classmethod
    def auto_summary(cls, *, new_session: bool = False) -> Policy:
        """Warn at 85 %, summarise at 95 %; there is no advisory tier.

        With `new_session` an agent continues in a new session that begins with the summary.
        """
        return cls(
            name="auto_summary",
            new_session=new_session,
            thresholds=Thresholds(advisory=None, warning=0.85, critical=0.95),
            rungs=(Rung(0.95, 0.50, ("summarise_middle", *DETERMINISTIC)),),
        )

    @classmethod
    def off(cls) -> Policy:
        """Gauge and check only: never change anything."""
        return cls(name="off")

    @classmethod
    def client(cls) -> Policy:
        """Let a proxy's clients compact: it warns them in time, in their provider's words."""
        return cls(name="client", client_compacts=True)

    def narrow(self, window: Window, prices: Sequence[Price] = ()) -> Window:
        """Return the window with the lowest bound below it that this policy knows, if any."""
        hard = window.input_tokens
        if hard is None or (self.effective is None and self.economic is None):
            return window
        found: list[WorkingBound] = []
        if self.effective is not None:
            tokens = _find_tokens(self.effective, hard)
            found.append(WorkingBound(tokens, "effective", f"by the policy {self.name}"))
        if self.economic == "prices":
            dearer = [price.above for price in prices if price.above]
            found += [WorkingBound(min(dearer), "economic", "by its prices")] if dearer else []
        elif self.economic is not None:
            tokens = _find_tokens(self.economic, hard)
            found.append(WorkingBound(tokens, "economic", f"by the policy {self.name}"))
        lowest = min(found, key=itemgetter(0), default=None)
        if lowest is None or lowest.tokens >= hard:
            return window
        return replace(window, working=lowest)

    @classmethod
    def from_name(cls, name: str) -> Policy:
        """Return a preset by its name; raises ConfigurationError for an unknown name."""
        if name in known_policies():
            preset: Policy = getattr(cls, name)()
            return preset
        known = known_policies()
        near = suggest(name, known)
        raise ConfigurationError(
            f"no policy is named {name!r}: {near and f'{near} '}there are {', '.join(known)}"
        )

    @classmethod
    def read(cls, value: Policy | str) -> Policy:
        """Return the given policy, or the preset of this name; raises ConfigurationError."""
        if isinstance(value, str):
            return cls.from_name(value)
        if isinstance(value, Policy):
            return value
        raise ConfigurationError(
            f"policy is {value!r:.80}: give a Policy, such as Policy.ladder(), or the name of a "
            'preset, such as "ladder"'
        )

    def __repr__(self) -> str:
        rungs = ", ".join(
            f"{r.at:g} to {r.target:g} {'+'.join(strategies.names(r.strategies))}"
            for r in self.rungs
        )
        return line("Policy", repr(self.name), rungs)

    def rung(self, ratio: float) -> Rung | None:
        """Return the highest rung that a pressure reaches, or None."""
        return max((r for r in self.rungs if ratio >= r.at), key=lambda r: r.at, default=None)

    @property
    def identity(self) -> str:
        """Name the policy and its version, as checkpoints record it."""
        return f"{self.name}/{self.version}"


def known_policies() -> tuple[str, ...]:
    """Return the names of the presets, the default first; each is a method of `Policy`."""
    return ("ladder", "advisory", "auto_summary", "off", "client")


def known_strategies() -> tuple[str, ...]:
    """Return the names of the package's strategies."""
    return strategies.FILES

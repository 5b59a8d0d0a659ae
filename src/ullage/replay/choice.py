"""Chooses a policy: the front of cost against loss, and the recommended policy on it.

It reads totals and writes settings; it replays nothing.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.compaction.policy import Policy, known_policies
from ullage.core.compaction.strategy import Strategy
from ullage.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.replay.totals import ReplayTotals
    from ullage.replay.values import PolicyComparison

SLACK: Final = 0.02
"""How much more than the least loss the recommended policy may lose, to be cheaper."""


class PolicyChoice(NamedTuple):
    """The recommended policy, the reason, and the front that it is on, cheapest first."""

    label: str
    reason: str
    front: tuple[str, ...]


def weigh_cost(totals: ReplayTotals) -> float:
    """Return the comparable cost of a policy, including work that has to be repeated.

    The unit is billionths of a dollar, or tokens if any price is unknown.
    """
    if not totals.unpriced:
        return float(totals.nanodollars + totals.fault_nanodollars)
    new = totals.carried_tokens - totals.cached_tokens
    return new + totals.cached_tokens / 10 + totals.fault_tokens


def recommend(found: PolicyComparison, slack: float = SLACK) -> PolicyChoice:
    """Return the recommended policy: the cheapest, with repeated work, that loses little.

    It is one of those that refuse the fewest turns, and it loses at most `slack` more than the
    least loss among them. Raises ConfigurationError if no session was replayed, or if `slack` is
    not a share.
    """
    if not 0 <= slack <= 1:
        raise ConfigurationError(f"a slack is a share of loss from 0 to 1, not {slack!r}")
    held = {label: totals for label, totals in found.totals.items() if totals.turns}
    if not held:
        raise ConfigurationError("no session was replayed: there is nothing to choose by")
    fewest = min(totals.refused for totals in held.values())
    fit = {label: totals for label, totals in held.items() if totals.refused == fewest}
    front = find_front(fit)
    least = min(_loss(fit[label]) for label in front)
    label = next(name for name in front if _loss(fit[name]) <= least + slack)
    return PolicyChoice(label, _explain(label, fit, held, least), front)


def find_front(held: Mapping[str, ReplayTotals]) -> tuple[str, ...]:
    """Return the policies that no other beats in both cost and loss, cheapest first."""
    order = sorted(held, key=lambda label: (weigh_cost(held[label]), _loss(held[label])))
    front: list[str] = []
    for label in order:
        if not front or _loss(held[label]) < _loss(held[front[-1]]):
            front.append(label)
    return tuple(front)


def _loss(totals: ReplayTotals) -> float:
    return totals.loss or 0.0


def _explain(
    label: str, fit: Mapping[str, ReplayTotals], held: Mapping[str, ReplayTotals], least: float
) -> str:
    chosen = held[label]
    told = [f"loses {_loss(chosen):.1%} of what later turns take up (the least is {least:.1%})"]
    if chosen.dollars is not None and chosen.burden_dollars is not None:
        told.append(f"costs ${chosen.dollars + chosen.burden_dollars:,.2f} with its faults")
    else:
        told.append("tokens decide: calls without a known price are among them")
    if chosen.refused:
        told.append(f"even so {chosen.refused:,} of {chosen.turns:,} turns do not fit")
    others = len(held) - len(fit)
    if others:
        told.append(f"{others} of {len(held)} refuse more turns")
    return "; ".join(told)


def write_settings(policy: Policy) -> str:
    """Return a policy as TOML for a settings file.

    Raises ConfigurationError for a caller's own strategies, as a file cannot name them.
    """
    for name in known_policies():
        if policy == Policy.from_name(name):
            return f'policy = "{name}"\n'
    preset = Policy.from_name(policy.name if policy.name in known_policies() else "ladder")
    changed = {
        f.name: getattr(policy, f.name)
        for f in fields(policy)
        if getattr(policy, f.name) != getattr(preset, f.name)
    }
    lines = ["[policy]", f'preset = "{preset.name}"']
    for name in ("rungs", "thresholds", "results"):
        changed.pop(name, None)
    lines += [f"{name} = {_write_value(value)}" for name, value in changed.items()]
    if policy.thresholds != preset.thresholds:
        lines += ["", "[policy.thresholds]", *_list_thresholds(policy)]
    if dict(policy.results) != dict(preset.results):
        lines += ["", "[policy.results]"]
        lines += [f"{_quote(name)} = {_quote(trait)}" for name, trait in policy.results.items()]
    if policy.rungs != preset.rungs:
        for rung in policy.rungs:
            names = _name_strategies(policy, rung.strategies)
            lines += ["", "[[policy.rungs]]", f"at = {rung.at}", f"target = {rung.target}", names]
    return "\n".join(lines) + "\n"


def _list_thresholds(policy: Policy) -> list[str]:
    held = {f.name: getattr(policy.thresholds, f.name) for f in fields(policy.thresholds)}
    return [
        f"{name} = {_quote('off') if value is None else _write_value(value)}"
        for name, value in held.items()
    ]


def _name_strategies(policy: Policy, given: Sequence[Strategy | str]) -> str:
    own = [strategy for strategy in given if isinstance(strategy, Strategy)]
    if own:
        raise ConfigurationError(
            f"the policy {policy.name!r} has the strategy {own[0]!r:.80} of your own: settings "
            "cannot name it, pass the policy in code"
        )
    return f"strategies = [{', '.join(map(_quote, map(str, given)))}]"


def _write_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_write_value, value))}]"
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: object) -> str:
    import json

    return json.dumps(str(text), ensure_ascii=False)

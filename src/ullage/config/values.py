"""Makes the values of settings from plain data: policies, shares, a summarizer.

The errors of a value are raised with its place. The module reads no layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import asdict

from ullage.config.layers import spell
from ullage.config.settings import DEFAULT, KEYS, SAME, Configured, Settings, SummarizerSettings
from ullage.core.compaction.policy import Policy, Rung, known_policies
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.budget import allocate

if TYPE_CHECKING:
    from ullage.config.parse import Parsed
    from ullage.config.schema import (
        PolicyTable,
        RungTable,
        SettingsTable,
        SummarizerTable,
        Table,
        ThresholdsTable,
    )
    from ullage.core.tokens.gauge import Thresholds

LARGEST: Final = 1_000_000
"""A window for checking shares, in tokens."""


@contextmanager
def naming(place: Callable[[str], str]) -> Iterator[None]:
    """Add the place to the errors of a value; `about` of the error names the faulty part."""
    try:
        yield
    except ConfigurationError as error:
        where = place(getattr(error, "about", ""))
        raise ConfigurationError(f"{where}: {error}" if where else str(error)) from error


def make_configured(parsed: Parsed) -> Configured:
    """Return the settings, and the origin of each."""
    table = parsed.table
    given: dict[str, Any] = {
        key: value
        for key, value in _set(table).items()
        if key not in ("policy", "shares", "pins", "summarizer", "logging", "serve")
    }
    for key in ("context_windows", "base_models"):
        if key in given:
            given[key] = MappingProxyType(given[key])
    if "context_windows" in given:
        given["window_places"] = MappingProxyType(
            {
                model: parsed.places.get(spell(("context_windows", model)), "")
                for model in given["context_windows"]
            }
        )
    if table.pins is not None:
        given["pins"] = tuple(table.pins)
    if table.policy is not None:
        with naming(lambda _: parsed.place("policy")):
            given["policy"] = make_policy(table.policy)
    if table.shares is not None:
        shares = _set(table.shares)
        with naming(lambda _: parsed.place("shares")):
            allocate(LARGEST, shares)  # raises for invalid shares
        given["shares"] = MappingProxyType(shares)
    if table.logging is not None:
        given["logging"] = MappingProxyType(_set(table.logging))
    if table.summarizer is not None:
        with naming(lambda _: parsed.place("summarizer")):
            given["summarizer"] = _summarizer(table.summarizer, table.base_url)
    origins = {key: parsed.places.get(key, DEFAULT) for key in KEYS}
    return Configured(
        Settings(**given), origins, tuple(parsed.warnings), parsed.tree, parsed.places
    )


def make_policy(table: PolicyTable) -> Policy:
    """Return the policy of a table: its preset with the other values set."""
    if table.preset is None and table.name in known_policies():
        raise ConfigurationError(
            f"policy.name is {table.name!r}, the name of a preset: write preset = {table.name!r} "
            "to have it, or another name for a policy of your own"
        )
    policy = Policy.from_name(table.preset or known_policies()[0])
    changes = _set(table)
    changes.pop("preset", None)
    if table.thresholds is not None:
        changes["thresholds"] = _thresholds(table.thresholds, policy.thresholds)
    if table.rungs is not None:
        changes["rungs"] = tuple(make_rung(rung) for rung in table.rungs)
    if table.recovery_tails is not None:
        changes["recovery_tails"] = tuple(table.recovery_tails)
    return replace(policy, **changes) if changes else policy


def make_rung(table: RungTable) -> Rung:
    """Return a rung; raises ConfigurationError for a target that is not below its pressure."""
    return Rung(table.at, table.target, tuple(table.strategies))


def _thresholds(table: ThresholdsTable, preset: Thresholds) -> Thresholds:
    changes = _set(table)
    if table.advisory == "off":
        changes["advisory"] = None
    return replace(preset, **changes)


def _summarizer(
    table: SummarizerTable, base_url: str | None
) -> SummarizerSettings | Literal["same"] | None:
    given = _set(table)
    same = given.pop("same", None)
    if same:
        other = next(iter(given), None)
        if other is not None:
            raise ConfigurationError(
                f"summarizer.same is true and {other} is set: the conversation's own model takes "
                "nothing else; leave out one of the two"
            )
        return SAME
    if same is False and not given:
        return None
    if table.model is None:
        raise ConfigurationError(
            'summarizer needs model: write the id that its server knows, or summarizer = "same" '
            "for the conversation's own model"
        )
    if table.base_url is None and base_url is None:
        raise ConfigurationError(
            "summarizer needs base_url, such as http://127.0.0.1:8080/v1: the setting base_url is "
            "not there either"
        )
    return SummarizerSettings(**{"base_url": base_url, **given})


def _set(table: Table | SettingsTable) -> dict[str, Any]:
    """Return the fields that were set."""
    return {name: value for name, value in asdict(table).items() if value is not None}

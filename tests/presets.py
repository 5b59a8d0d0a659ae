"""Policies of tests: trim or summarise from 80 % on, and keep the last messages."""

from __future__ import annotations

from ullage.core.compaction.policy import Policy, Rung


def trim(keep_last: int = 10) -> Policy:
    """Return a policy that trims, and keeps the last messages, pins besides."""
    rung = Rung(0.80, 0.60, ("trim_oldest",))
    return Policy(name="trim_oldest", rungs=(rung,), keep_last=keep_last)


def summarise(keep_last: int = 5) -> Policy:
    """Return a policy that summarises, by rule if need be, and keeps the last messages."""
    rung = Rung(0.80, 0.50, ("summarise_middle",))
    return Policy(name="summarise", rungs=(rung,), keep_last=keep_last)

"""Checkpoints and conversations to put into stores."""

from __future__ import annotations

from dataclasses import replace

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import Drop, Script
from ullage.core.guard.conversation import Conversation


def checkpoint(
    prefix: str, *drops: int, scope: str = "s", generation: int = 0, policy: str = "ladder/1"
) -> Checkpoint:
    return Checkpoint(
        scope=scope,
        prefix=prefix,
        count=max(drops, default=0) + 1,
        script=Script.of([Drop(i) for i in drops]),
        strategy="trim_oldest",
        trigger="pressure",
        policy=policy,
        basis="exact",
        tokens_before=100,
        tokens_after=50,
        generation=generation,
    )


def talk(prefix: str, scope: str = "s", covered: int = 0) -> Conversation:
    return Conversation(scope, prefix, covered=covered)


def sized(made: Checkpoint, tokens: int) -> Checkpoint:
    """Return a checkpoint as it is after a report of its size."""
    return replace(made, tokens_after_measured=tokens)

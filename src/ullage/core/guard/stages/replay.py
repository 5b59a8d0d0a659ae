"""The second stage: apply the checkpoint that is known for the beginning of the history.

It also recalls what is remembered of the conversation. It plans nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.checkpoint import Checkpoint, chain
from ullage.core.compaction.edits import Edited, Script, apply
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.request import Need, NeedLoad, NeedRecall
from ullage.core.guard.stages.read import Read, read_history

if TYPE_CHECKING:
    from ullage.core.guard.request import Request, Setup
    from ullage.core.tokens.window import Window


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history after the checkpoint that is known for it, and the conversation so far.

    `script` is what was applied, `generation` that of the next checkpoint. `is_reported` tells
    that the last report is of the beginning of what is now to be sent.
    """

    read: Read
    edited: Edited
    conversation: Conversation
    script: Script = Script()
    generation: int = 0
    checkpoint: Checkpoint | None = None
    is_reported: bool = False


def replay(setup: Setup, read: Read, window: Window) -> Generator[Need, Any, Replayed]:
    """Find the known prefix and apply its checkpoint; recall the conversation."""
    backwards = read.prefixes[::-1]
    known: Checkpoint | None = yield NeedLoad(setup.scope, backwards)
    generation = known.generation + 1 if known is not None else 0
    if known is not None and known.script.touches(read.pins):
        known = None  # pinned since: what the checkpoint left out comes back, and is planned anew
    script = known.script if known is not None else Script()
    edited = apply(read.history, script, setup.codec)
    scope = f"{setup.scope}|{setup.model}"
    recalled: Conversation | None = yield NeedRecall(scope, backwards)
    reported = recalled is not None and recalled.has_report_of(edited.transcript)
    conversation = _begin_turn(recalled or Conversation(scope, ""), read, window)
    return Replayed(read, edited, conversation, script, generation, known, reported)


def find_checkpoint(setup: Setup, request: Request) -> Generator[Need, Any, Checkpoint | None]:
    """Return the checkpoint that would be re-applied to a request, or None."""
    history, _ = read_history(setup, request.messages)
    known: Checkpoint | None = yield NeedLoad(setup.scope, chain(history)[::-1])
    return known


def _begin_turn(conversation: Conversation, read: Read, window: Window) -> Conversation:
    """Return the conversation at this history; a new turn begins with no effort spent."""
    asked, prefixes = read.history.request(), read.prefixes
    turn = prefixes[asked] if asked is not None else ""
    return replace(
        conversation,
        prefix=prefixes[-1] if prefixes else "",
        effort=conversation.effort.at(turn, window.input_tokens or 0),
    )

"""The second stage: apply the checkpoint that is known for the beginning of the history.

It also recalls what is remembered of the conversation. It plans nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ullage.core.compaction import laws
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
    known, edited, generation = yield from _find_lawful(setup, read)
    script = known.script if known is not None else Script()
    scope = f"{setup.scope}|{setup.model}"
    recalled: Conversation | None = yield NeedRecall(scope, backwards)
    reported = recalled is not None and recalled.has_report_of(edited.transcript)
    conversation = _begin_turn(recalled or Conversation(scope, ""), read, window)
    return Replayed(read, edited, conversation, script, generation, known, reported)


def _find_lawful(
    setup: Setup, read: Read
) -> Generator[Need, Any, tuple[Checkpoint | None, Edited, int]]:
    """Return the newest checkpoint that may be applied, what comes of it, and the next generation.

    Without one the history as it is. Of those that may not be applied an older one is tried: it
    reaches less far.
    """
    left, generation = read.prefixes[::-1], 0
    while left:
        known: Checkpoint | None = yield NeedLoad(setup.scope, left)
        if known is None:
            break
        generation = max(generation, known.generation + 1)
        edited = apply(read.history, known.script, setup.codec)
        if _is_lawful(known, read, edited):
            return known, edited, generation
        left = left[left.index(known.prefix) + 1 :]
    return None, apply(read.history, Script(), setup.codec), generation


def _is_lawful(known: Checkpoint, read: Read, edited: Edited) -> bool:
    """Tell whether a checkpoint breaks no law on the history at hand.

    It was proved on the history that it was planned for, and holds on all that grew out of that.
    Somebody may have pinned a message since, or gone back to an earlier turn: then what is asked
    now may be among what was left out.
    """
    history, script = read.history, known.script
    if script.touches(read.pins):
        return False
    if known.whole in read.prefixes:
        return True
    found = laws.survey(history)
    request = {i for i in (history.request(),) if i is not None}
    newest = found.units[-1] if found.units else ()
    if script.touches({*request, *newest}):
        return False
    task = {i for i in (history.task(),) if i is not None and history.has_answer()}
    always = laws.find_operator_text(history.messages) | request | task
    broken = laws.prove(history, script, edited, always)
    return not any(b.law != "protocol" or not found.violations for b in broken)


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

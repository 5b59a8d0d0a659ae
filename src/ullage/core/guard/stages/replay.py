"""The second stage: apply the checkpoint that is stored for the beginning of the history.

The conversation begins its turn here. This stage plans nothing. It measures only whether a whole
history fits into a window that is larger than that of its checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.core.compaction import laws
from ullage.core.compaction.applied import apply_again
from ullage.core.compaction.checkpoint import Checkpoint, chain
from ullage.core.compaction.edits import Edited, Script, apply
from ullage.core.compaction.faults import AskedAgain, find_faults
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.request import Need, NeedLoad
from ullage.core.guard.stages.read import Read, read_history
from ullage.core.guard.stages.room import find_room
from ullage.core.tokens.counting import measure
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from ullage.core.guard.learned import Learned
    from ullage.core.guard.request import Request, Setup
    from ullage.core.tokens.window import Window


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history after its checkpoint was applied, and the conversation so far.

    `script` is the applied script, `generation` that of the next checkpoint. `is_reported` says
    that the last report covers the beginning of the request to send. `faults` lists what the newest
    messages ask for again.
    """

    read: Read
    edited: Edited
    conversation: Conversation
    script: Script = Script()
    generation: int = 0
    checkpoint: Checkpoint | None = None
    is_reported: bool = False
    faults: tuple[AskedAgain, ...] = ()


def replay(
    setup: Setup, request: Request, read: Read, window: Window, recalled: Conversation | None
) -> Generator[Need, Any, Replayed]:
    """Continue the conversation; find the known prefix and apply its checkpoint."""
    known = recalled or Conversation(setup.conversation_scope, "")
    learned = setup.learned.keep_events(window.claims, setup.now)
    began = _begin_turn(known, read, window, learned)
    found = yield from _find_checkpoint(_Search(setup, request, read, window, began))
    script = found.checkpoint.script if found.checkpoint is not None else Script()
    wide = (window.working_tokens or 0) if found.outgrown else 0
    conversation = began if began.wide == wide else replace(began, wide=wide)
    reported = recalled is not None and recalled.has_report_of(found.edited.transcript)
    again = recalled is not None and recalled.prefix == read.whole  # it was reported before
    return Replayed(
        read,
        found.edited,
        conversation,
        script,
        found.generation,
        found.checkpoint,
        is_reported=reported,
        faults=() if again else find_faults(read.history, script),
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """The inputs of the search for a checkpoint."""

    setup: Setup
    request: Request
    read: Read
    window: Window
    conversation: Conversation


class _Found(NamedTuple):
    """The checkpoint to apply or None, the edited history, and the next checkpoint's generation.

    `outgrown` says that a checkpoint was left out because the whole history fits now.
    """

    checkpoint: Checkpoint | None
    edited: Edited
    generation: int
    outgrown: bool


def _find_checkpoint(search: _Search) -> Generator[Need, Any, _Found]:
    """Return the newest checkpoint that is needed and lawful; without one, the history.

    If a checkpoint may not be applied, an older one is tried: it covers fewer messages.
    """
    setup, read = search.setup, search.read
    left, generation, fits = read.prefixes[::-1], 0, False
    while left:
        known: Checkpoint | None = yield NeedLoad(setup.checkpoint_scope, left)
        if known is None:
            break
        generation = max(generation, known.generation + 1)
        fits = fits or (_is_of_smaller(known, search.window) and _fits_whole(search))
        edited = apply_again(read.history, known.script, setup.codec)
        if not (fits and _is_of_smaller(known, search.window)) and _is_lawful(known, read, edited):
            return _Found(known, edited, generation, fits)
        left = left[left.index(known.prefix) + 1 :]
    return _Found(None, apply(read.history, Script(), setup.codec), generation, fits)


def _is_of_smaller(known: Checkpoint, window: Window) -> bool:
    """Tell whether a checkpoint was made for a smaller window, and not by hand.

    If the window was not known then, the bound that the compaction was made for counts.
    """
    then, bound = known.resolved or known.bound, window.working_tokens
    return bound is not None and 0 < then < bound and known.trigger != "manual"


def _fits_whole(search: _Search) -> bool:
    """Tell whether the history fits as it is, below all thresholds of the policy.

    A history that was sent whole stays whole as long as it fits at all, even if it is measured
    differently later; after that, it is planned again for this window. Bound reasoning that was
    made after the checkpoint depends on it, and would be refused after the whole history.
    """
    if search.read.history.rules.bound and any(
        message.has_reasoning for message in search.read.history.messages
    ):
        return False
    setup, read, bound = search.setup, search.read, search.window.working_tokens or 0
    request, conversation = search.request, search.conversation
    size = measure(read.history, setup.meter, system=request.system, tools=request.tools)
    if conversation.has_report_of(read.history):
        size = conversation.anchor_to_report(size)
    high, total = size.count().high, search.window.total_tokens
    if 0 < conversation.wide <= bound:
        return high < bound
    most = setup.policy.thresholds.lowest * bound
    if total is not None:
        most = min(most, total - find_room(setup.policy, request, total))
    return high < most


def _is_lawful(known: Checkpoint, read: Read, edited: Edited) -> bool:
    """Tell whether a checkpoint breaks no law on this history.

    It was proved on the history that it was planned for, and holds on every continuation of that.
    But a message may have been pinned since, or the user may have gone back to an earlier turn, so
    that the current question may be among the messages left out.
    """
    history, script = read.history, known.script
    if script.touches(read.pins):
        return False
    planned = known.planned_size  # the most likely place: a scan takes long
    if read.prefixes[planned - 1 : planned] == (known.whole,) or known.whole in read.prefixes:
        return True
    found = laws.survey(history)
    request = {i for i in (history.request(),) if i is not None}
    newest = found.units[-1] if found.units else ()
    if script.touches({*request, *newest}):
        return False
    task = {i for i in (history.task(),) if i is not None and history.has_answer()}
    always = laws.find_fixed(history) | request | task
    broken = laws.prove(history, script, edited, always)
    return not any(b.law != "protocol" or not found.violations for b in broken)


def find_checkpoint(setup: Setup, request: Request) -> Generator[Need, Any, Checkpoint | None]:
    """Return the checkpoint that would be re-applied to a request, or None."""
    history, _ = read_history(setup, request.messages)
    known: Checkpoint | None = yield NeedLoad(setup.checkpoint_scope, chain(history)[::-1])
    return known


def _begin_turn(
    conversation: Conversation, read: Read, window: Window, learned: Learned
) -> Conversation:
    """Return the conversation at this history; a new turn begins with no effort spent."""
    asked, prefixes = read.history.request(), read.prefixes
    turn = prefixes[asked] if asked is not None else ""
    return replace(
        conversation,
        prefix=read.whole,
        effort=conversation.effort.at(turn, window.input_tokens or 0),
        learned=learned,
    )

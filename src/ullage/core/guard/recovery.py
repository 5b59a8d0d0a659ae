"""Recovery after a refusal: a smaller request, or none.

`recover` is a generator like `machine.prepare`, and calls no model. Each kind of error has one
remedy. Too large: compact, with ever smaller tails. Too much output: lower `max_tokens` as long as
an answer has room. Too many media: strip them. A tool loop that was cut: leave out the whole loop.
Reasoning bound to text that is gone: leave it out. Several messages of one role in a row: join them
if a chat template refuses them. A turn has one budget of attempts for all of these. This module
neither reads errors nor sends anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.checkpoint import Trigger
from ullage.core.compaction.policy import DETERMINISTIC
from ullage.core.compaction.situation import Keep
from ullage.core.compaction.strategies import find
from ullage.core.compaction.turns import takes_turns
from ullage.core.dialects.families import TAUGHT
from ullage.core.errors import ContextTooLargeError
from ullage.core.guard import machine
from ullage.core.guard.belief import is_about, make_refusal
from ullage.core.guard.effort import RECOVERIES
from ullage.core.guard.events import Notice
from ullage.core.guard.learning import calibrate, read_refusal
from ullage.core.guard.request import NeedUndo, NeedWindow, Prepared, Preparing, Request, Setup
from ullage.core.guard.stages.compact import compact_request
from ullage.core.guard.stages.decide import Due, make_room
from ullage.core.guard.stages.measure import Measured, explain_immovable, scale_to
from ullage.core.guard.stages.room import room_needed
from ullage.core.guard.stages.view import prepare_view
from ullage.core.tokens.gauge import assess

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.errors import ErrorKind
    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.events import Event
    from ullage.core.guard.request import Need
    from ullage.core.tokens.calibration import ReportedSize
    from ullage.core.tokens.claim import Claim
    from ullage.core.tokens.window import Window

RECOVERY: Final[frozenset[Trigger]] = frozenset({"overflow_recovery", "transport_recovery"})
"""Triggers of checkpoints that were made only because of a failure."""


def is_recoverable(error: ErrorKind, sent: Prepared) -> bool:
    """Tell whether there is a way to make the request acceptable.

    A `likely` reading of the error counts only if our own count is at least half of the bound.
    """
    if error.kind == "output_cap":
        asked, limit = sent.max_tokens, error.limit
        return asked is not None and limit is not None and limit < asked
    if error.kind in ("bytes", "media"):
        return any(part.media is not None for m in sent.sent.messages for part in m.parts)
    if error.kind == "malformed_history":
        return _is_lawful_after(error, sent)
    if error.kind not in ("input", "total") or not is_about(sent, error):
        return False
    bound = sent.window.input_tokens
    return error.certainty == "certain" or bound is None or sent.count.high * 2 >= bound


def _is_lawful_after(error: ErrorKind, sent: Prepared) -> bool:
    """Tell whether planning by the law in a refusal can make the refused history acceptable."""
    rules, edited = sent.sent.rules, sent.checkpoint or sent.replayed
    if error.about == "alternation":
        return not sent.alternates and not takes_turns(sent.sent)
    if error.about == "binding":
        return rules.signed and any(message.has_reasoning for message in sent.sent.messages)
    return error.about == "thinking" and edited is not None and not rules.loops


def recover(
    setup: Setup,
    request: Request,
    sent: Prepared,
    error: ErrorKind,
    trigger: Trigger = "overflow_recovery",
) -> Preparing:
    """Prepare a request again after a refusal.

    Raises ContextTooLargeError if nothing got smaller, or if the turn's attempts are used up.
    """
    if error.kind in ("total", "output_cap") and request.max_tokens is not None:
        lowered = _lower_output(request.max_tokens, sent, error)
        if lowered is not None:
            return (yield from _shorten_answer(setup, request, sent, error, lowered))
    if error.kind == "malformed_history" and error.about is not None:
        lawful = setup.with_laws(frozenset({TAUGHT[error.about]}))
        return (yield from machine.prepare(lawful, request, unbinds=error.about == "binding"))
    if error.kind in ("bytes", "media"):
        return (yield from _without_media(setup, request, sent))
    return (yield from _smaller(setup, request, sent, error, trigger))


def undo(stored: Sequence[Checkpoint]) -> Generator[Need, Any, tuple[Event, ...]]:
    """Undo the checkpoints of recoveries that did not help, newest first; return the events.

    The refused request may not have been too large at all, so the next request is whole again.
    """
    undone = False
    for checkpoint in reversed(stored):
        undone = (yield NeedUndo(checkpoint)) or undone
    text = "the smaller request failed too: the compaction made for it is taken back"
    return (Notice(text),) if undone else ()


def find_refuted_bound(sent: Prepared, error: ErrorKind) -> int:
    """Return the largest possible window, in tokens, after a refusal that named no limit.

    Bounds are compared with upper edges, so an estimated size is refuted by its own upper edge.
    """
    if error.input_tokens is not None:
        return error.input_tokens - 1
    count, bound = sent.count, sent.window.input_tokens
    below = count.high - 1
    return below if bound is None or below < bound else count.tokens - 1


def _smaller(
    setup: Setup, request: Request, sent: Prepared, error: ErrorKind, trigger: Trigger
) -> Preparing:
    """Learn the limit if the error is certainly about size, and compact to half of it.

    The target is higher if tools and system text take much, or if rules would be lost. The limit
    holds for this turn, whatever the ledger decides.
    """
    refused, proven = error.input_tokens or sent.count.tokens, None
    if error.certainty == "certain" and trigger != "transport_recovery":
        proven = error.limit or find_refuted_bound(sent, error)
    evidence = None if proven is None else make_refusal(sent, error, proven)
    reading = None if evidence is None else read_refusal(setup.meter, sent, error)
    if error.input_tokens is not None and not _is_foreseen(setup, sent, refused):
        setup = _rescale(setup, sent, refused)
    measured = yield from machine.open_whole(setup, request, NeedWindow(evidence, reading))
    setup = measured.setup
    bound = min(measured.window.input_tokens or refused, proven or refused, refused)
    effort = measured.replayed.conversation.effort
    spent = max(effort.recoveries, sent.conversation.effort.recoveries)  # the bound has changed
    if spent >= RECOVERIES:
        raise ContextTooLargeError(
            f"the server refused {refused:,} tokens after {spent} attempts to make the turn "
            f"smaller: {explain_immovable(measured)}",
            tokens=refused,
            bound=bound,
        )
    tails = setup.policy.recovery_tails
    keep = Keep(tails[min(spent, len(tails) - 1)])
    target, most = _find_targets(measured, bound, named=error.limit is not None)
    room = 0
    if request.max_tokens or request.reserve:
        room = room_needed(setup.policy, request, bound)
        left = max(bound - room, 1)
        target, most = min(target, left), min(most, left)
    due = Due(target, DETERMINISTIC, trigger, keep=keep, most=most, room=room)
    made = yield from compact_request(setup, request, measured, due)
    if made.outcome is None or made.measured.count.tokens >= refused:
        raise ContextTooLargeError(
            f"the server refused {refused:,} tokens and nothing more can be left out: "
            f"{explain_immovable(made.measured)}",
            tokens=refused,
            bound=bound,
        )
    effort = replace(made.conversation.effort, recoveries=spent + 1)
    conversation = _remember(setup, made.conversation, evidence, reading)
    made = replace(made, conversation=replace(conversation, effort=effort))
    return (yield from prepare_view(setup, request, made))


def _remember(
    setup: Setup, conversation: Conversation, evidence: Claim | None, reading: ReportedSize | None
) -> Conversation:
    """Return a conversation with the lessons of a refusal: a window, and the request's size."""
    suspect = conversation.suspect if evidence is None else (evidence.tokens, setup.now)
    learned = conversation.learned if reading is None else calibrate(setup, reading)
    return replace(conversation, suspect=suspect, learned=learned)


def _find_targets(measured: Measured, bound: int, *, named: bool) -> tuple[int, int]:
    """Return the target after a refusal, and how far it may rise for rules, in tokens.

    A window that the server did not name may be far below the refused size.
    """
    share = make_room(HALF, measured, bound) if named else HALF
    target = max(int(share * bound), 1)
    return target, target + (bound - target) // (2 if named else 4)


HALF: Final = 0.5
"""Share of the window to compact to after a refusal."""


def _rescale(setup: Setup, sent: Prepared, refused: int) -> Setup:
    """Return the setup with a meter scaled to the size that the server named."""
    scale, fixed = scale_to(refused, sent.measured), sent.measured.fixed.best
    outside = ((fixed, scale.best * fixed),)
    meter = replace(setup.meter, scale=scale, basis="calibrated", outside=outside)
    return replace(setup, meter=meter)


def _is_foreseen(setup: Setup, sent: Prepared, refused: int) -> bool:
    """Tell whether the lessons about the server predict the size that it named.

    Then messages and the rest have separate ratios, and one ratio for both would lose that.
    """
    known, count = sent.measured.fixed.best in dict(setup.meter.outside), sent.count
    return known and count.low <= refused <= count.high


def _without_media(setup: Setup, request: Request, sent: Prepared) -> Preparing:
    """Strip media (images, files, audio) outside the pins."""
    measured = yield from machine.open_whole(setup, request, NeedWindow())
    setup = measured.setup
    due = Due(max(sent.count.high - 1, 1), (), "overflow_recovery", first=(find("strip_media"),))
    made = yield from compact_request(setup, request, measured, due)
    if made.outcome is None:
        raise ContextTooLargeError(
            "the server refused the media or the bytes of the request, and the rest of them is "
            "in messages that must stay: send fewer or smaller ones",
            tokens=sent.count.high,
            bound=sent.count.high,
        )
    return (yield from prepare_view(setup, request, made))


def _shorten_answer(
    setup: Setup, request: Request, sent: Prepared, error: ErrorKind, lowered: int
) -> Preparing:
    """Lower the output to the room that is left, and learn the window that the refusal names.

    If that is less than an answer needs, compact the request instead, unless nothing can be left
    out.
    """
    made = sent
    if error.kind == "total":
        if lowered < room_needed(setup.policy, request, error.limit or 0):
            with suppress(ContextTooLargeError):
                return (yield from _smaller(setup, request, sent, error, "overflow_recovery"))
        made = yield from _learn_window(setup, sent, error)
    return replace(made, max_tokens=lowered, events=(_report_lowered(request, lowered),))


def _learn_window(setup: Setup, sent: Prepared, error: ErrorKind) -> Generator[Need, Any, Prepared]:
    """Return the prepared request with the window that a refusal certainly names."""
    named = error.limit if error.certainty == "certain" else None
    evidence = None if named is None else make_refusal(sent, error, named)
    if evidence is None:
        return sent
    reading = read_refusal(setup.meter, sent, error)
    window: Window = yield NeedWindow(evidence, reading)
    conversation = _remember(setup, sent.conversation, evidence, reading)
    window = conversation.narrow(setup.policy.narrow(window, setup.prices), setup.now)
    found = assess(sent.count, window, thresholds=setup.policy.thresholds)
    return replace(sent, window=window, assessment=found, conversation=conversation)


def _lower_output(asked: int, sent: Prepared, error: ErrorKind) -> int | None:
    """Return the output that fits next to the refused request, or None if none fits."""
    if error.limit is None:
        return None
    used = 0 if error.kind == "output_cap" else (error.input_tokens or sent.count.high)
    room = error.limit - used
    return room if 0 < room < asked else None


def _report_lowered(request: Request, lowered: int) -> Notice:
    return Notice(f"max_tokens lowered from {request.max_tokens:,} to {lowered:,} after a refusal")

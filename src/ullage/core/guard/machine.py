"""The one pipeline before a send: read, replay, measure, decide, compact, view.

`prepare` is a generator. It yields its needs (a window, a server's count, summaries, a checkpoint)
and is sent the answers. Library, proxy and agent drive the same machine. It does no I/O and knows
no dialect: the codec and the meter are in the `Setup`. `core.guard.recovery` handles refusals, and
`core.guard.learning` handles responses.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ullage.core.guard.events import OverShare
from ullage.core.guard.learned import NOTHING
from ullage.core.guard.request import (
    OPENING,
    Need,
    NeedLoad,
    NeedRecall,
    NeedWindow,
    Preparing,
    Request,
    Setup,
)
from ullage.core.guard.stages.bind import bind
from ullage.core.guard.stages.compact import compact_if_allowed, compact_request, leave
from ullage.core.guard.stages.decide import decide, decide_ahead, decide_by_hand, find_overruns
from ullage.core.guard.stages.measure import Measured, measure_request
from ullage.core.guard.stages.read import check_request, lend_repairs, read_request
from ullage.core.guard.stages.replay import replay
from ullage.core.guard.stages.view import prepare_view
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from ullage.core.guard.conversation import Conversation
    from ullage.core.tokens.window import Window


def prepare(setup: Setup, request: Request, *, unbinds: bool = False) -> Preparing:
    """Prepare a request: repair, re-apply what is known, measure, compact if due, check, clamp.

    With `unbinds`, all reasoning so far is left out, if the setup says that it is bound. A broken
    history that must not be repaired, as in a proxy, is still repaired if it is or was compacted
    (`lend_repairs`): the laws would not let anything of it be left out.

    Raises MalformedHistoryError, ConfigurationError (bad pins or max_tokens), and
    ContextTooLargeError against a proven bound or when `strict`.
    """
    check_request(request)
    lent = lend_repairs(setup, request)
    measured = yield from open_request(lent, request, NeedWindow(), unbinds=unbinds)
    decision = decide(measured.setup, request, measured)
    if lent is not setup and decision.due is None and measured.replayed.checkpoint is None:
        measured = yield from open_request(setup, request, NeedWindow(), unbinds=unbinds)
        decision = decide(measured.setup, request, measured)
    setup = measured.setup
    made, over = leave(measured), decision.over
    if decision.due is not None:
        made = yield from compact_if_allowed(setup, request, measured, decision.due)
        over = find_overruns(setup, request, made.measured)
    if over:
        made = replace(made, events=(*made.events, OverShare(over)))
    return (yield from prepare_view(setup, request, made, ahead=decision.ahead))


def prepare_ahead(setup: Setup, request: Request) -> Preparing:
    """Make the summary that will soon be needed, and store it as a checkpoint.

    The next `prepare` of a history that begins with the same messages replaces exactly that prefix.
    To be run in the background; the result is not to be sent.
    """
    measured = yield from open_whole(setup, request, NeedWindow())
    setup = measured.setup
    due, made = decide_ahead(setup, measured), leave(measured)
    if due is not None:
        made = yield from compact_request(setup, request, measured, due)
    return (yield from prepare_view(replace(setup, strict=False), request, made))


def prepare_compacted(setup: Setup, request: Request, target: int) -> Preparing:
    """Compact to `target` tokens on request, by the policy's highest rung."""
    measured = yield from open_whole(setup, request, NeedWindow())
    setup = measured.setup
    made = yield from compact_request(setup, request, measured, decide_by_hand(setup, target))
    return (yield from prepare_view(replace(setup, strict=False), request, made))


def open_whole(setup: Setup, request: Request, need: NeedWindow) -> Generator[Need, Any, Measured]:
    """Do as `open_request` for a request that will be compacted: repair a broken history first."""
    return (yield from open_request(lend_repairs(setup, request), request, need))


def open_request(
    setup: Setup, request: Request, need: NeedWindow, *, unbinds: bool = False
) -> Generator[Need, Any, Measured]:
    """Read, recall, get the window, replay and measure: the first steps of every request.

    The setup of the result includes the lessons that the conversation carries. Raises
    MalformedHistoryError and ConfigurationError (a pin on a message that was repaired).
    """
    read = read_request(setup, request)
    known_by = read.prefixes[::-1]
    soon = NeedLoad(setup.checkpoint_scope, known_by) if len(known_by) > OPENING else None
    recalled: Conversation | None = yield NeedRecall(setup.conversation_scope, known_by, soon)
    if recalled is not None and recalled.learned is not NOTHING:
        setup, before = setup.with_learned(recalled.learned), setup
        read = read if setup is before else read_request(setup, request)
    known: Window = yield need
    window = setup.policy.narrow(known, setup.prices)
    window = window if recalled is None else recalled.narrow(window, setup.now)
    replayed = yield from replay(setup, request, read, window, recalled)
    replayed = yield from bind(setup, request, replayed, forced=unbinds)
    return (yield from measure_request(setup, request, replayed, window))

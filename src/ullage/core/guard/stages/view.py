"""The last stage: check the request against the window, clamp the output, build the result.

It makes nothing smaller except `max_tokens`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import TYPE_CHECKING, Any

from ullage.core.compaction import laws
from ullage.core.dialects.families import NO_LIMITS
from ullage.core.errors import ContextTooLargeError
from ullage.core.guard.events import Event, Notice, WindowCramped
from ullage.core.guard.learning import show
from ullage.core.guard.request import Need, NeedTrial, Prepared, Preparing, Request, Setup
from ullage.core.guard.stages.measure import Measured, ask_server, explain_immovable
from ullage.core.guard.stages.room import min_output, must_refuse
from ullage.core.tokens.budget import SOON, Cramped, find_cramped, find_hasty
from ullage.core.tokens.gauge import assess
from ullage.core.values.frozen import replace

if TYPE_CHECKING:
    from ullage.core.guard.stages.compact import Made
    from ullage.core.messages.transcript import Raw, Transcript
    from ullage.core.tokens.counting import Count


def prepare_view(setup: Setup, request: Request, made: Made, *, ahead: bool = False) -> Preparing:
    """Return the request to send. `ahead` says that a summary is wanted in the background.

    An estimate that the server's own count could correct never refuses or lowers anything. Raises
    ContextTooLargeError against a proven bound, or when `strict`.
    """
    measured = made.measured
    count, beyond = measured.count, measured.is_beyond
    unsure = measured.size.anchor is None and count.basis != "exact"
    if unsure and (beyond or _is_over(request, measured, count)):
        measured = yield from ask_server(request, measured)
        count = measured.count
    window, replayed = measured.window, measured.replayed.checkpoint
    found = assess(count, window, thresholds=setup.policy.thresholds)
    if request.server_edits is not None:
        found = replace(found, provider=request.server_edits.describe())
    tight = _find_cramped(setup, measured) if made.is_short or beyond else None
    tight = tight or _find_hasty(made)
    conversation, told = show(
        setup, made.checkpoint or replayed, made.conversation, found, "prepared"
    )
    events: list[Event] = [*made.events, *told]
    if tight is not None and conversation.cramped != tight.bound:
        events.append(WindowCramped(tight.sentence()))
        conversation = replace(conversation, cramped=tight.bound)
    events += _find_excess(setup, request, measured)
    tried = yield from _refuse(setup, measured)
    events += tried
    given = request.max_tokens if tried else _clamp(setup, request, measured, count)
    if given != request.max_tokens:
        events.append(
            Notice(
                f"max_tokens lowered from {request.max_tokens:,} to {given:,}: {count.high:,} of "
                f"{window.total_tokens:,} tokens are taken"
            )
        )
    sent = measured.edited.transcript
    return Prepared(
        messages=put_together(setup, sent),
        max_tokens=given,
        window=window,
        sent=sent,
        measured=measured.size,
        count=count,
        assessment=found,
        conversation=conversation,
        outcome=made.outcome,
        checkpoint=made.checkpoint,
        replayed=replayed,
        ahead=ahead,
        cramped=tight,
        has_tools=bool(request.tools),
        alternates=setup.alternates,
        events=tuple(events),
        origin=measured.replayed.read.find_origin(measured.edited.origin),
        task_link=measured.replayed.read.task_link,
    )


def _find_excess(setup: Setup, request: Request, measured: Measured) -> Iterator[Event]:
    """Yield a notice for each provider limit that the request exceeds and nothing can mend."""
    if setup.limits is NO_LIMITS:
        return
    listed = request.tools if isinstance(request.tools, list | tuple) else ()
    held = {"messages": len(measured.edited.transcript), "tools": len(listed)}
    for name, most in (("messages", setup.limits.messages), ("tools", setup.limits.tools)):
        if most is not None and held[name] > most:
            yield Notice(
                f"the request holds {held[name]:,} {name}, and its provider takes {most:,}"
            )


def put_together(setup: Setup, sent: Transcript) -> list[Raw]:
    """Return the messages to send: as they are, or joined so that roles take turns."""
    if setup.alternates:
        from ullage.core.compaction.turns import alternate

        return alternate(sent, setup.codec)
    return list(sent.raws)


def _refuse(setup: Setup, measured: Measured) -> Generator[Need, Any, tuple[Event, ...]]:
    """Raise ContextTooLargeError if the request surely does not fit and the setup refuses.

    A learned bound may be wrong, so a request over it is sent now and then, as a trial. Returns the
    events of a trial.
    """
    if not must_refuse(setup, measured):
        return ()
    window, count = measured.window, measured.count
    bound, size = window.tokens(), count.high if setup.strict else count.low
    if window.is_learned and setup.tries and (yield NeedTrial()):
        return (
            Notice(
                f"{size:,} tokens are over {bound:,} ({window.name_source()}): sent anyway, "
                "to test the learned window"
            ),
        )
    raise ContextTooLargeError(
        f"{size:,} tokens ({count.basis}) do not fit into {bound:,} "
        f"({window.name_source()}): {explain_immovable(measured)}",
        tokens=size,
        bound=bound,
    )


def _is_over(request: Request, measured: Measured, count: Count) -> bool:
    """Tell whether the requested output would be lowered."""
    total, asked = measured.window.total_tokens, request.max_tokens
    if total is None or asked is None:
        return False
    return count.high + asked > total


def _clamp(setup: Setup, request: Request, measured: Measured, count: Count) -> int | None:
    """Return the output to ask for: lowered to the room that is left.

    It goes below the least useful size only if there is surely no more room. If there is surely
    none at all, it stays: a lower one would not make the request fit, and a server with a larger
    window would cut its answer short.
    """
    asked, total = request.max_tokens, measured.window.total_tokens
    if asked is None or total is None or not _is_over(request, measured, count):
        return asked
    least = min(asked, min_output(setup.policy, total))
    if not measured.window.proven:
        return max(total - count.high, least)
    proven = total - count.low
    return asked if proven < 1 else max(total - count.high, min(least, proven))


def _find_cramped(setup: Setup, measured: Measured) -> Cramped | None:
    """Return a finding if the window is too small for what must stay and no rung can help."""
    bound, rungs = measured.window.working_tokens, setup.policy.rungs
    if bound is None or not rungs:
        return None
    share = max(rung.target for rung in rungs)
    if measured.count.tokens <= share * bound:
        return None
    return find_cramped(*_count_fixed(measured), bound, share)


def _find_hasty(made: Made) -> Cramped | None:
    """Return a finding if the window is too small for the work: two compactions came too soon."""
    checkpoint, before = made.checkpoint, made.measured.replayed.checkpoint
    bound = made.measured.window.working_tokens
    if checkpoint is None or before is None or bound is None:
        return None
    if checkpoint.trigger not in ("pressure", "preflight") or not before.since:
        return None
    if not checkpoint.since or not 0 < before.since["answers"] <= SOON:
        return None
    freed = checkpoint.tokens_before - checkpoint.tokens_after
    return find_hasty(*_count_fixed(made.measured), bound, freed, checkpoint.since["answers"])


def _count_fixed(measured: Measured) -> tuple[int, int]:
    """Return the tokens of all that must stay, and the part of system text and tools."""
    transcript, size = measured.edited.transcript, measured.size
    sizes = size.sizes
    operator = laws.find_operator_text(transcript.messages)
    always = {i for i in (transcript.task(), transcript.request()) if i is not None}
    stays = laws.find_fixed(transcript) | always | measured.places(measured.replayed.read.wanted)

    def tokens_of(positions: Collection[int]) -> int:
        return round(size.scale.best * sum(sizes[i].best for i in positions))

    outside = size.outside().best
    return outside + tokens_of(stays), outside + tokens_of(operator)

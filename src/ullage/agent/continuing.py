"""A session that continues in another one: begun with a summary, the two linked to each other.

This happens if the policy wants it as the window fills, and if the events have grown large, so that
every session opens fast. The old session stays as it is, except for the link. The module decides no
pressure and writes no summary.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.session import GRACE_S, Live, Session
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.dialects import registry
from ullage.core.errors import CompactionError, StoreError
from ullage.core.session.log.event import Draft, Event, upcast_data
from ullage.core.session.log.fold import Round, User
from ullage.core.session.reach import make_reach_data
from ullage.core.summary.flaws import BY_RULE, WORSE, explain_flaw
from ullage.storage.threaded import SHARED, desk_of
from ullage.threads import finish

if TYPE_CHECKING:
    from ullage.agent.kit import Kit
    from ullage.core.compaction.handover import Handover
    from ullage.core.session.log.fold import Fold
    from ullage.storage.log import EventLog

BRIEF: Final = 0.2
"""The largest share of the window for a session's summary with its last messages."""

LEAST_SUMMARY: Final = 1_024
"""Smallest budget of a summary, in tokens; below it nothing more is left out."""

SMALL: Final = 8_192
"""Assumed window in tokens if it is unknown, only for the size of a summary."""

PINNED: Final = "message_pinned"

WHOLE: Final = 1.0
"""The pressure of the rung that stands in for a new session within a turn."""

LARGEST: Final = 64_000_000
"""Bytes of a session's events: with more of them its next turn begins in a new session.

Such a session is opened in under a second, with some 150 MB of memory.
"""

KEPT: Final = 256
"""The inverse of the largest part of that size that a hand-over copies from a large session's
history.

A 256th are 250,000 characters: more than most windows hold.
"""


def find_kept(known: Fold, most: int | None) -> int | None:
    """Return how many characters of history a session's hand-over may keep, or None for all.

    For a large session it is little, so that the next one does not begin large.
    """
    return None if most is None or known.text_bytes <= most else most // KEPT


def is_large(known: Fold, most: int | None) -> bool:
    """Tell whether the next turn of a session must begin in a new one, by its events' bytes.

    Not for a subagent's session, one with an unfinished turn, or one without any answer.
    """
    if most is None or known.text_bytes <= most or known.created.get("parent"):
        return False
    return known.turn is None and _has_answer(known)


def _has_answer(known: Fold) -> bool:
    return any(isinstance(item, Round) and item.sent for item in known.items)


def hold_back(policy: Policy) -> Policy:
    """Return a policy as it applies within a turn.

    If its highest rung begins a new session, that happens between turns. Within a turn, this rung
    compacts only if the request does not fit.
    """
    if not policy.new_session or not policy.rungs:
        return replace(policy, new_session=False)
    highest = max(policy.rungs, key=lambda rung: rung.at)
    others = tuple(rung for rung in policy.rungs if rung is not highest)
    held = Rung(max(WHOLE, highest.at), highest.target, highest.strategies)
    return replace(policy, rungs=(*others, held), new_session=False)


async def is_full(kit: Kit, policy: Policy, text: str = "") -> bool:
    """Tell whether a session is at its policy's highest rung, with `text` as the next message.

    A session without an answer is not: its summary would be as large.
    """
    if not (policy.new_session and policy.rungs and _has_answer(kit.session.known)):
        return False
    policy = policy.spare() if kit.session.known.is_spared else policy
    at = max(rung.at for rung in policy.rungs)
    usage, window = kit.session.known.usage, await kit.port.awindow()
    bound = window.working_tokens
    reported = 0 if text or usage is None else usage[0].prompt_tokens  # of the turn that ended
    if bound is not None and reported >= at * bound:
        return True
    request, dialect = kit.request(), kit.provider.dialect
    if text:
        said = registry.find(dialect).make_form().user(text)
        request = replace(request, messages=[*request.messages, said])
    pressure = await kit.port.afind_pressure(request, dialect)
    return pressure is not None and pressure >= at


async def begin_next(kit: Kit, name: str | None = None, *, kept: int | None = None) -> Session:
    """Begin the session that continues the one of this kit, and link the two.

    At most `kept` characters of its history are recorded once more, all by default; the rest stays
    in the old session. Raises CompactionError if a summarizer was asked and gave nothing: then
    nothing is begun.
    """
    window = await kit.port.awindow()
    tokens = max(int((window.input_tokens or SMALL) * BRIEF), LEAST_SUMMARY)
    made = await kit.port.ahand_over(kit.request(), kit.provider.dialect, tokens, kept)
    _check_written(kit.session, made)
    linking = asyncio.ensure_future(_link(kit.session, made, name))
    return await finish(linking, GRACE_S)  # once begun, both sides of the link are written


def _check_written(session: Session, made: Handover) -> None:
    """Raise CompactionError if a requested summary is missing; report one made by rule."""
    if made.reason is None:
        return
    why = explain_flaw(made.reason)
    asked = made.written is not None and made.written.requests
    if asked and made.reason != WORSE:
        raise CompactionError(
            f"the summarizer gave no summary of session {session.name} ({why}): nothing was "
            "switched, and the session goes on here; try again, or name another --summarizer"
        )
    text = f"summary of {made.messages:,} messages: {BY_RULE} ({why})"
    session.publish(Live(session.name, "status", {"text": text}))


async def _link(session: Session, made: Handover, name: str | None) -> Session:
    head, served = session.known.head, session.known.served
    chosen = uuid.uuid4().hex[:12] if name is None else name
    begun = await desk_of(session.log).writes.run(_create, session, chosen)
    begun.redactor = session.redactor
    link = {"parent": session.name, "seq": head}
    summary: dict[str, Any] = {"text": made.text, **link, "block": True}
    summary |= {"originals": dict(made.originals), "fallback_reason": made.reason}
    begun_with = {"continues": session.name, "served": dict(served)}
    created = Draft("session_created", begun_with | make_reach_data(session.known.holdings))
    drafts = [created, Draft("branch_summary", summary)]
    await begun.arecord([*drafts, *_carry_pins(session, len(drafts))])
    await session.arecord([Draft("subagent_event", {"continued_in": begun.name, "seq": head})])
    return begun


def _carry_pins(session: Session, behind: int) -> list[Draft]:
    """Return the pinned messages of the person, pinned again, starting after event `behind`.

    Pinned answers and results are in the hand-over like others, but lose their pin, which is
    reported.
    """
    held = session.known
    users = [item for item in held.items if isinstance(item, User) and item.seq in held.pins]
    if others := len(held.pins) - len(users):
        text = f"{others} pinned answers or results are not carried into the new session: pin anew"
        session.publish(Live(session.name, "status", {"text": text}))
    said = [_copy_message(item) for item in users]
    first = behind + 1
    pins = [Draft(PINNED, {"seq": first + place, "pinned": True}) for place in range(len(said))]
    return [*said, *pins]


def _copy_message(item: User) -> Draft:
    parts = {"parts": list(item.parts)} if item.parts else {}
    return Draft("user_message", {"text": item.text, **parts})


def _create(session: Session, name: str) -> Session:
    session.log.create(name, session.now())
    return Session(session.log, name, now=session.now)


# --- following ----------------------------------------------------------------------------------


def read_link(event: Event) -> str | None:
    """Return the session that an event names as the continuation of its own, or None."""
    if event.type != "subagent_event":
        return None
    name = (upcast_data(event) or {}).get("continued_in")
    return name if isinstance(name, str) else None


def find_next(log: EventLog, name: str) -> str | None:
    """Return the continuation of a session, or None if it has messages after the link.

    A pin after the link does not count as a message.
    """
    seq = log.head(name).seq
    while seq:
        last = log.read(name, seq - 1, seq)[-1]
        if last.type != PINNED:
            return read_link(last)
        seq -= 1
    return None


def find_last(log: EventLog, name: str) -> str:
    """Return the last continuation of a session, or its own name without one.

    The last event of each is read. A session that was removed, or is in another log, ends the
    search.
    """
    seen = {name}
    while (found := find_next(log, name)) is not None and found not in seen:
        seen.add(found)
        try:
            log.head(found)
        except StoreError:
            return name
        name = found
    return name


def follow_session(session: Session) -> Session:
    """Return the last continuation of a session, or the session itself."""
    name = find_last(session.log, session.name)
    if name == session.name:
        return session
    session.close()
    return Session(session.log, name)


async def afollow_session(session: Session) -> Session | None:
    """Return the last continuation of a session, or None; `session` stays open.

    It stays open for the next turn, as `session.onward`.
    """
    name = await SHARED.reads.run(find_last, session.log, session.name)
    if name == session.name:
        return None
    if session.onward is None or session.onward.name != name:
        session.onward = await SHARED.reads.run(Session, session.log, name)
    return session.onward

"""A session that goes on in another one: begun with a summary, each linked to the other.

The one that is left stays as it is, but for the link. It decides no pressure and writes no summary.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.session import GRACE_S, Live, Session
from ullage.core.compaction.policy import Policy, Rung
from ullage.core.dialects import registry
from ullage.core.errors import CompactionError, StoreError, UnknownSession
from ullage.core.session.log.event import Draft, Event, upcast_data
from ullage.core.session.log.fold import Round
from ullage.core.session.reach import make_reach_data
from ullage.core.summary.flaws import BY_RULE, WORSE, explain_flaw
from ullage.storage.threaded import desk_of
from ullage.threads import finish

if TYPE_CHECKING:
    from ullage.agent.kit import Kit
    from ullage.core.compaction.handover import Handover

BRIEF: Final = 0.2
"""The share of the window that a session's summary takes at most, with its last messages."""

LEAST_SUMMARY: Final = 1_024
"""Tokens of a summary below which nothing more is left out."""

SMALL: Final = 8_192
"""Tokens of a window that is unknown, for the size of a summary alone."""

WHOLE: Final = 1.0
"""The pressure from which a rung acts that has the session go on in a new one between turns."""


def hold_back(policy: Policy) -> Policy:
    """Return a policy as it holds within a turn.

    Where its highest rung has a session go on in a new one, that is done between turns: within
    one, the rung compacts only what does not fit.
    """
    if not policy.new_session or not policy.rungs:
        return replace(policy, new_session=False)
    highest = max(policy.rungs, key=lambda rung: rung.at)
    others = tuple(rung for rung in policy.rungs if rung is not highest)
    held = Rung(max(WHOLE, highest.at), highest.target, highest.strategies)
    return replace(policy, rungs=(*others, held), new_session=False)


async def is_full(kit: Kit, policy: Policy, text: str = "") -> bool:
    """Tell whether a session is at its policy's highest rung, with `text` as what is said next.

    One in which nothing was answered yet is not: its summary would be as large.
    """
    items = kit.session.known.items
    if not (policy.new_session and policy.rungs):
        return False
    if not any(isinstance(item, Round) and item.sent for item in items):
        return False
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


async def begin_next(kit: Kit, name: str | None = None) -> Session:
    """Begin the session that goes on from the one of this kit, and link them.

    Raises CompactionError where a summariser was asked and gave nothing: then nothing is begun.
    """
    window = await kit.port.awindow()
    tokens = max(int((window.input_tokens or SMALL) * BRIEF), LEAST_SUMMARY)
    made = await kit.port.ahand_over(kit.request(), kit.provider.dialect, tokens)
    _check_written(kit.session, made)
    linking = asyncio.ensure_future(_link(kit.session, made, name))
    return await finish(linking, GRACE_S)  # once begun, both sides of the link are written


def _check_written(session: Session, made: Handover) -> None:
    """Raise CompactionError for a summary that was asked for and is none; tell of one by rule."""
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
    await begun.arecord([created, Draft("branch_summary", summary)])
    await session.arecord([Draft("subagent_event", {"continued_in": begun.name, "seq": head})])
    return begun


def _create(session: Session, name: str) -> Session:
    session.log.create(name, session.now())
    return Session(session.log, name, now=session.now)


# --- following ----------------------------------------------------------------------------------


def read_link(event: Event) -> str | None:
    """Return the session that an event says its own goes on in, None where it says none."""
    if event.type != "subagent_event":
        return None
    name = (upcast_data(event) or {}).get("continued_in")
    return name if isinstance(name, str) else None


def find_next(session: Session) -> str | None:
    """Return the session that one goes on in; None where something was said in it since."""
    session.refresh()
    head = session.known.head
    last = session.events(after=max(head - 1, 0))
    return read_link(last[-1]) if last else None


def follow_session(session: Session) -> Session:
    """Return the session that one goes on in, however often it did; itself where it does not."""
    seen = {session.name}
    while (name := find_next(session)) is not None and name not in seen:
        seen.add(name)
        try:
            found = Session(session.log, name)
        except (UnknownSession, StoreError):
            return session  # it was taken away, or is in another log
        session.close()
        session = found
    return session

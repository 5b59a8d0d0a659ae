"""The state of a conversation at one of its requests: numbers and names, no text.

The module decides nothing, and does not know guards.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ullage.core.guard.stages.room import room_needed
from ullage.core.summary.flaws import name_strategies
from ullage.core.values.frozen import replace
from ullage.proxy.call import find_limit
from ullage.proxy.ledger import Entry

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy
    from ullage.core.tokens.budget import Cramped
    from ullage.core.tokens.counting import Count
    from ullage.core.tokens.gauge import Assessment, Tier
    from ullage.core.tokens.window import Window
    from ullage.guard.view import View
    from ullage.proxy.call import ProxyCall
    from ullage.proxy.journal import RequestLine
    from ullage.proxy.stored import MeasuredRequest

SHOWN: Final = 8
"""Characters of a conversation's id in the log: enough to find it among the last 1,000."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A compaction that a request caused, in tokens, and its strategy."""

    before: int
    after: int
    strategy: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The guard's finding about a request before it was sent.

    `name` identifies the conversation. `needed` are the tokens that an answer needs at least, None
    if the window is unknown. `made` is a compaction made for this request; `is_compacted` says that
    something was left out of it. `max_tokens` is the limit of the answer that was checked.
    """

    name: str
    window: Window
    count: Count
    assessment: Assessment
    tier: Tier
    made: Reduction | None = None
    is_compacted: bool = False
    cramped: Cramped | None = None
    max_tokens: int | None = None
    needed: int | None = None


def find_standing(call: ProxyCall, view: View, policy: Policy) -> Standing:
    """Return the state of a conversation at a request that a guard prepared."""
    prepared, window = view.prepared, view.window
    made = prepared.checkpoint
    compacted = None
    if made is not None:
        strategy = name_strategies(made.strategy, made.fallback_reason)
        compacted = Reduction(made.tokens_before, made.tokens_after, strategy)
    total = window.total_tokens
    return Standing(
        find_name(call, view),
        window,
        replace(prepared.count, measured=None),
        view.assessment,
        prepared.conversation.shown.tier,
        compacted,
        view.compaction is not None,
        prepared.cramped,
        prepared.max_tokens,
        None if total is None else room_needed(policy, view.request, total),
    )


def find_name(call: ProxyCall, view: View) -> str:
    """Return the name of a conversation: its client's session, or the hash chain up to its task.

    Clients with different tokens have separate conversations, even if the first words are the same.
    """
    if call.session and call.apart:
        return call.apart
    link = view.prepared.task_link
    if not link or not call.apart:
        return link[:16]
    return hashlib.blake2b(f"{call.apart}|{link}".encode(), digest_size=8).hexdigest()


def make_entry(
    call: ProxyCall,
    found: Standing | MeasuredRequest,
    before: Entry | None,
    at: float,
    status: int,
) -> Entry:
    """Return the ledger entry of a conversation; `before` is the entry of its last request.

    `at` is the time in seconds since the epoch, `status` the HTTP status of the answer.
    """
    if isinstance(found, Standing):
        assessed, tier, made = found.assessment, found.tier, found.made
        basis: str = found.count.basis
    else:
        assert found.found is not None  # noqa: S101 - of others nothing is known
        assessed, tier, made = found.found, found.found.tier, None
        basis = found.basis
    compactions, saved, requests = 0, 0, 0
    if before is not None:
        compactions, saved, requests = before.compactions, before.saved, before.requests
    return Entry(
        id=found.name,
        upstream=call.upstream.name,
        model=call.model or "",
        dialect=call.form.dialect,
        at=at,
        used=assessed.input_tokens,
        window=assessed.window_tokens,
        tier=tier,
        basis=basis,
        messages=len(call.body.history),
        compactions=compactions + (made is not None),
        saved=saved + (made.before - made.after if made is not None else 0),
        requests=requests + 1,
        last_status=status,
        owner=call.client or "",
    )


def describe(call: ProxyCall, found: Standing | MeasuredRequest | None, line: RequestLine) -> None:
    """Put the known data of a call into a log line."""
    if not isinstance(found, Standing):
        if found is not None and found.found is not None:
            line.conversation = found.name[:SHOWN]
            line.used, line.window = found.found.input_tokens, found.found.window_tokens
        return
    line.conversation = found.name[:SHOWN]
    line.used, line.window = found.assessment.input_tokens, found.window.input_tokens
    line.cramped = found.cramped
    made, asked = found.made, find_limit(call)
    if made is not None and not call.rule.observe:
        line.strategy, line.before, line.after = made.strategy, made.before, made.after
    if asked is not None and found.max_tokens != asked[1] and not call.rule.observe:
        line.asked, line.given = asked[1], found.max_tokens


def find_full(call: ProxyCall, found: Standing) -> tuple[int, int] | None:
    """Return (tokens, bound) if a client that compacts by itself should do so now.

    Room is left for the shortest useful answer. A request that is only possibly over is sent.
    """
    bound, total = found.window.working_tokens, found.window.total_tokens
    if bound is None:
        return None
    if total is not None and found.needed is not None:
        bound = min(bound, total - found.needed)
    tokens = found.count.tokens + call.beside
    return (tokens, bound) if tokens >= bound else None

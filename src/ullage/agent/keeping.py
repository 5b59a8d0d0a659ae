"""The log of a session as the store of its guard: all that a guard keeps are events.

Checkpoints and states of conversations are recorded as events; originals are in the log already.
The module does not know models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.edits import find_references
from ullage.core.dialects.usage import Usage
from ullage.core.guard.conversation import Conversation
from ullage.core.session.log.event import Draft
from ullage.core.tokens.cost import cost
from ullage.storage import MemoryStore, StoreLimits

if TYPE_CHECKING:
    from ullage.agent.session import Session
    from ullage.core.messages.transcript import DialectName
    from ullage.core.session.log.fold import Data
    from ullage.core.tokens.cost import Price

FOREVER: Final = StoreLimits(most=1_000_000, characters=2**40, ttl_s=10.0 * 365 * 24 * 3600)
"""Limits without effect: a session keeps everything, since the log is the store."""

Seqs = Callable[[], Sequence[int]]
"""The seq of the event where each message of the last request began."""


@dataclass(frozen=True, slots=True)
class Place:
    """The owner of a memory: one session, in one dialect, with one model at one endpoint.

    `seqs` returns the events where messages began, `prices` are the model's. With `dry`, nothing is
    recorded.
    """

    session: Session
    dialect: DialectName
    model: str
    seqs: Seqs
    prices: tuple[Price, ...] = ()
    dry: bool = False


@dataclass(slots=True)
class Reported:
    """The lessons of an answer, recorded in one append with its usage."""

    state: dict[str, Any] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)


class SessionCheckpoints:
    """Checkpoints of one session and dialect; each is recorded before it is used.

    Elsewhere, scopes separate upstreams and tenants. Here the session does, so a checkpoint is
    valid on every server where its history continues.
    """

    def __init__(self, place: Place) -> None:
        self._session, self._dialect, self._dry = place.session, place.dialect, place.dry
        self._place = place
        self._memory = MemoryStore(FOREVER).checkpoints
        self._seen = 0
        self.reported: Reported | None = None

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return the valid checkpoint of the first of `prefixes` that has one, or None."""
        self._refresh()
        found = self._memory.load(_apart(scope), prefixes)
        return None if found is None else replace(found, scope=scope)

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do the same as `load`: the data of the session is in memory."""
        return self.load(scope, prefixes)

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Record a checkpoint unless its generation is there already; return the valid one."""
        kept = self._keep(checkpoint)
        if kept.script == checkpoint.script and not self._dry:
            self._session.record([self._draft(checkpoint)])
            self._refresh()
        return kept

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do the same as `save` without blocking the event loop."""
        kept = self._keep(checkpoint)
        if kept.script == checkpoint.script and not self._dry:
            await self._session.arecord([self._draft(checkpoint)])
            self._refresh()
        return kept

    def _keep(self, checkpoint: Checkpoint) -> Checkpoint:
        self._refresh()
        kept = self._memory.save(replace(checkpoint, scope=_apart(checkpoint.scope)))
        return replace(kept, scope=checkpoint.scope)

    def save_measured(self, checkpoint: Checkpoint) -> None:
        """Keep the measured size; it is recorded with the usage that reports it."""
        self._memory.save_measured(replace(checkpoint, scope=_apart(checkpoint.scope)))
        if self.reported is not None:
            self.reported.drafts.append(self._draft(checkpoint, measured=True))

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do the same as `save_measured`."""
        self.save_measured(checkpoint)

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Remove a checkpoint and record that; its left-out text is sent again."""
        self._refresh()
        gone = self._memory.undo(replace(checkpoint, scope=_apart(checkpoint.scope)))
        if gone and not self._dry:
            self._session.record([self._draft(checkpoint, undone=True)])
            self._refresh()
        return gone

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do the same as `undo` without blocking the event loop."""
        self._refresh()
        gone = self._memory.undo(replace(checkpoint, scope=_apart(checkpoint.scope)))
        if gone and not self._dry:
            await self._session.arecord([self._draft(checkpoint, undone=True)])
            self._refresh()
        return gone

    def all(self) -> list[Checkpoint]:
        """Return the valid checkpoints."""
        self._refresh()
        return self._memory.all()

    async def aall(self) -> list[Checkpoint]:
        """Do the same as `all`."""
        return self.all()

    def _draft(self, checkpoint: Checkpoint, **flags: bool) -> Draft:
        """Return the event of a compaction; `flags` tell that it was `undone` or `measured`."""
        kept = checkpoint.to_dict()
        made: dict[str, object] = {"checkpoint": kept, "dialect": self._dialect}
        made["references"] = sorted(find_references(json.dumps(kept["script"])))
        made["cost"] = _find_cost(checkpoint, self._place.prices)
        if not flags:
            made["originals"] = self._session.originals.take_unrecorded(
                self._session.known, checkpoint
            )
        seqs = self._place.seqs()
        first, end = checkpoint.range
        if 0 <= first < end <= len(seqs):
            last = seqs[end] - 1 if end < len(seqs) else self._session.known.head
            made["events"] = [seqs[first], last]
        return Draft("history_compaction", {**made, **flags})

    def _refresh(self) -> None:
        """Take in the compactions that the log has gained."""
        recorded = self._session.known.compactions
        for number in range(self._seen, len(recorded)):
            data = recorded[number]
            if data.get("dialect", self._dialect) != self._dialect:
                continue
            found = self._parse(number, data)
            if data.get("undone") is True:
                self._memory.undo(found)
            elif data.get("measured") is True:
                self._memory.save_measured(found)
            else:
                self._memory.save(found)
        self._seen = len(recorded)

    def _parse(self, number: int, data: Data) -> Checkpoint:
        """Return the checkpoint of a recorded compaction; the session keeps it for later turns."""
        known = self._session.checkpoint_cache.get(number)
        if known is None:
            made = Checkpoint.from_dict(data["checkpoint"])
            known = replace(made, scope=_apart(made.scope))
            self._session.checkpoint_cache[number] = known
        return known


def _apart(scope: str) -> str:
    """Return the scope within a session: plans with whole tool loops stay apart."""
    return "loops" if scope.endswith("|loops") else "session"


def _find_cost(checkpoint: Checkpoint, prices: Sequence[Price]) -> dict[str, object]:
    """Return the cost of a compaction: a summarizer's usage, and the rewritten cache."""
    found: dict[str, object] = {"cached_tokens_lost": checkpoint.cached_tokens_lost}
    if checkpoint.usage is not None:
        found["summarizer"] = dict(checkpoint.usage)
    rewritten = cost(Usage(checkpoint.cached_tokens_lost), prices).total if prices else None
    return found if rewritten is None else {**found, "dollars": rewritten}


class SessionConversations:
    """A guard's memory of one session, in its log.

    The lessons of an answer are recorded with its usage. A change before a request is sent is an
    event of its own, but this is rare. The memory moves with the session to other machines and
    credentials, so scopes do not matter, only the model and its endpoint.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._fresh: dict[str, Conversation] = {}
        self._last: Conversation | None = None
        self.reported: Reported | None = None

    def load(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Return the last state of a history that begins with one of `prefixes`.

        Without one, for example after a change of the system prompt, the last state of all counts.
        """
        states = self._list_states()
        found = newest = next(states, None)
        while found is not None and found[0] not in prefixes:
            found = next(states, None)
        found = found or newest
        if found is None:
            return None
        self._last = replace(found[1](), scope=scope)
        return self._last

    def _list_states(self) -> Iterator[tuple[str, Callable[[], Conversation]]]:
        """Yield the states, newest first: the prefix, and a function that reads the state."""
        for prefix in reversed(self._fresh):
            yield prefix, partial(self._fresh.__getitem__, prefix)
        for state in self._place.session.known.states:
            kept = state["conversation"]
            if state.get("of") == self._place.model:
                yield kept["prefix"], partial(Conversation.from_dict, {**kept, "scope": ""})

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Conversation | None:
        """Do the same as `load`: the data of the session is in memory."""
        return self.load(scope, prefixes)

    def save(self, conversation: Conversation) -> None:
        """Remember a conversation; record it if more than its place has changed."""
        if self._keep(conversation):
            self._place.session.record([self._draft(conversation)])
            self._fresh.clear()

    async def asave(self, conversation: Conversation) -> None:
        """Do the same as `save` without blocking the event loop."""
        if self._keep(conversation):
            await self._place.session.arecord([self._draft(conversation)])
            self._fresh.clear()

    def _keep(self, conversation: Conversation) -> bool:
        """Tell whether a conversation is to be recorded now."""
        before, self._last = self._last, conversation
        self._fresh.pop(conversation.prefix, None)
        self._fresh[conversation.prefix] = conversation
        if self.reported is not None:
            self.reported.state = self._describe(conversation)
            return False
        return not self._place.dry and not conversation.is_as_before(before)

    def _describe(self, conversation: Conversation) -> dict[str, Any]:
        kept = conversation.to_dict()
        del kept["scope"]
        return {"of": self._place.model, "conversation": kept}

    def _draft(self, conversation: Conversation) -> Draft:
        return Draft("context_state", {"state": self._describe(conversation)})


class SessionStore:
    """A `Store` over the log of one session, for one dialect and model.

    Memory never replaces it: what is not in the log did not happen.
    """

    is_sheltered = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self.checkpoints = SessionCheckpoints(place)
        self.conversations = SessionConversations(place)
        self.originals = place.session.originals

    @property
    def url(self) -> str:
        """The URL of the log."""
        return self._place.session.log.url

    @contextmanager
    def reporting(self) -> Iterator[Reported]:
        """Hold back the lessons of an answer, so that they are recorded with it."""
        held = Reported()
        self.checkpoints.reported = self.conversations.reported = held
        try:
            yield held
        finally:
            self.checkpoints.reported = self.conversations.reported = None

    def purge(self, now: float) -> int:
        """Delete nothing: a session keeps its data."""
        del now
        return 0

    def close(self) -> None:
        """Do nothing: the log belongs to the session."""

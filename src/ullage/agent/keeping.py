"""The log of a session as the store of its guard: checkpoints are events, originals are there.

It knows no model. What a guard remembers from call to call lives in memory and is measured anew
after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.session.log.event import Draft
from ullage.storage import MemoryStore, StoreLimits

if TYPE_CHECKING:
    from ullage.agent.session import Session
    from ullage.core.messages.transcript import DialectName
    from ullage.storage.protocol import Conversations

FOREVER: Final = StoreLimits(most=1_000_000, characters=2**40, ttl_s=10.0 * 365 * 24 * 3600)
"""A session keeps what it has; the log is the store."""

Seqs = Callable[[], Sequence[int]]
"""The seq of the event that each message of the last request began at."""


class SessionCheckpoints:
    """Checkpoints of one session and dialect; each is recorded before it is used.

    Scopes keep upstreams and tenants apart; here the session does, so that a checkpoint holds on
    whatever server its history goes on. With `dry` nothing is recorded.
    """

    def __init__(self, session: Session, dialect: DialectName, seqs: Seqs, *, dry: bool) -> None:
        self._session, self._dialect, self._seqs, self._dry = session, dialect, seqs, dry
        self._memory = MemoryStore(FOREVER).checkpoints
        self._seen = 0

    def load(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Return what holds under the first of `prefixes` that has something, or None."""
        self._refresh()
        found = self._memory.load(_apart(scope), prefixes)
        return None if found is None else replace(found, scope=scope)

    async def aload(self, scope: str, prefixes: Sequence[str]) -> Checkpoint | None:
        """Do as `load`: what the session knows is in memory."""
        return self.load(scope, prefixes)

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Record a checkpoint unless there is one of its generation; return what holds."""
        kept = self._keep(checkpoint)
        if kept.script == checkpoint.script and not self._dry:
            self._session.record([self._draft(checkpoint)])
            self._refresh()
        return kept

    async def asave(self, checkpoint: Checkpoint) -> Checkpoint:
        """Do as `save`, without blocking the event loop."""
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
        """Keep the measured size until the end of the process; the usage itself is recorded."""
        self._memory.save_measured(replace(checkpoint, scope=_apart(checkpoint.scope)))

    async def asave_measured(self, checkpoint: Checkpoint) -> None:
        """Do as `save_measured`."""
        self.save_measured(checkpoint)

    def undo(self, checkpoint: Checkpoint) -> bool:
        """Take a checkpoint away, with a record; what it left out is sent again."""
        self._refresh()
        gone = self._memory.undo(replace(checkpoint, scope=_apart(checkpoint.scope)))
        if gone and not self._dry:
            self._session.record([self._draft(checkpoint, undone=True)])
            self._refresh()
        return gone

    async def aundo(self, checkpoint: Checkpoint) -> bool:
        """Do as `undo`, without blocking the event loop."""
        self._refresh()
        gone = self._memory.undo(replace(checkpoint, scope=_apart(checkpoint.scope)))
        if gone and not self._dry:
            await self._session.arecord([self._draft(checkpoint, undone=True)])
            self._refresh()
        return gone

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints that hold."""
        self._refresh()
        return self._memory.all()

    async def aall(self) -> list[Checkpoint]:
        """Do as `all`."""
        return self.all()

    def _draft(self, checkpoint: Checkpoint, *, undone: bool = False) -> Draft:
        made: dict[str, object] = {"checkpoint": checkpoint.to_dict(), "dialect": self._dialect}
        if not undone:
            made["originals"] = self._session.originals.take_unrecorded(
                self._session.known, checkpoint
            )
        seqs = self._seqs()
        first, end = checkpoint.range
        if 0 <= first < end <= len(seqs):
            last = seqs[end] - 1 if end < len(seqs) else self._session.known.head
            made["events"] = [seqs[first], last]
        return Draft("history_compaction", {**made, "undone": True} if undone else made)

    def _refresh(self) -> None:
        """Take in what the log has beyond what was seen."""
        recorded = self._session.known.compactions
        for data in recorded[self._seen :]:
            if data.get("dialect", self._dialect) != self._dialect:
                continue
            found = Checkpoint.from_dict(data["checkpoint"])
            found = replace(found, scope=_apart(found.scope))
            if data.get("undone") is True:
                self._memory.undo(found)
            else:
                self._memory.save(found)
        self._seen = len(recorded)


def _apart(scope: str) -> str:
    """Return what is left of a scope in a session: plans with whole tool loops stay apart."""
    return "loops" if scope.endswith("|loops") else "session"


class SessionStore:
    """A `Store` over the log of one session, for one dialect."""

    def __init__(
        self, session: Session, dialect: DialectName, seqs: Seqs, *, dry: bool = False
    ) -> None:
        self._memory = MemoryStore(FOREVER)
        self._session = session
        self.checkpoints = SessionCheckpoints(session, dialect, seqs, dry=dry)
        self.originals = session.originals

    @property
    def url(self) -> str:
        """What opens the log."""
        return self._session.log.url

    @property
    def conversations(self) -> Conversations:
        """What is remembered from call to call; in memory."""
        return self._memory.conversations

    def purge(self, now: float) -> int:
        """Forget nothing: what a session has is kept."""
        del now
        return 0

    def close(self) -> None:
        """Let go of memory; the log is the session's."""
        self._memory.close()

"""One job in a worker: begins its turn, continues it, or finds that it has ended already.

The log decides which, because the turn's id is the job's. So a job that runs again after its worker
died neither repeats a finished turn nor a call with a recorded result. It knows no engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.agent.continuing import find_next
from ullage.agent.options import TurnOptions
from ullage.agent.session import Session
from ullage.core.errors import (
    BusyWriter,
    ConfigurationError,
    CorruptLog,
    Fenced,
    StoreAway,
    StoreError,
    UllageError,
    UnknownSession,
)
from ullage.core.session.log.event import Event
from ullage.logs import begin_work
from ullage.storage.log import LEASE_S
from ullage.storage.threaded import SHARED
from ullage.workers.engine import MOST_DEATHS
from ullage.workers.job import JobOutcome, TurnJob, make_cancelled

if TYPE_CHECKING:
    from ullage.agent.agent import Agent
    from ullage.agent.session import Told
    from ullage.core.session.turn.effects import Ended
    from ullage.storage.log import EventLog

log = logging.getLogger("ullage.workers")

LOOK_S: Final = 0.2
"""Seconds between two tries to become a session's writer."""

PATIENCE: Final = 2.0
"""How many leases to wait for a session's writer before the job goes back to its queue."""

ENDS: Final = frozenset({"turn_completed", "turn_failed", "turn_interrupted"})


class Performance:
    """One run of a job. `run` may be called once; the other two at any time, from any thread."""

    def __init__(
        self,
        job: TurnJob,
        deaths: int,
        *,
        log: EventLog,
        agents: Mapping[str, Agent],
        hear: Callable[[TurnJob, Told], object] = lambda *_: None,
        flush: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.job = job
        self._deaths, self._log, self._agents, self._hear = deaths, log, agents, hear
        self._flush = flush
        self._why: Literal["", "cancelled", "let go"] = ""
        self._task: asyncio.Task[Any] | None = None
        self._session: Session | None = None

    def cancel(self) -> None:
        """End the turn; it is recorded as interrupted."""
        self._end("cancelled")

    def let_go(self) -> None:
        """Stop it here, and leave the turn open in the log for another worker."""
        if self._session is not None:
            self._session.let_go()
        self._end("let go")

    def _end(self, why: Literal["cancelled", "let go"]) -> None:
        if self._why != why:  # after a cancellation, `let_go` cancels the task once more
            self._why = self._why or why
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def run(self) -> JobOutcome | None:
        """Run the job, or return None if it should run again, here or elsewhere."""
        job, began = self.job, time.monotonic()
        begin_work(lambda: {"job": job.id, "session": job.session, "tenant": job.tenant})
        outcome = await self._run_job()
        fields: dict[str, Any] = {"state": outcome.state if outcome else "given_back"}
        if outcome is not None and outcome.reason:
            fields["reason"] = outcome.reason
        fields["seconds"] = round(time.monotonic() - began, 3)
        log.info("a job ended", extra={"event": "job", "fields": fields})
        return outcome

    async def _run_job(self) -> JobOutcome | None:
        if self._is_ended():
            return self._describe_stop()
        refused = self._refuse()
        if refused is not None:
            return refused
        self._task = asyncio.current_task()
        try:
            return await self._perform(self._agents[self.job.agent])
        except asyncio.CancelledError:
            if not self._is_ended():
                raise
            return self._describe_stop()
        except (Fenced, BusyWriter, StoreAway):
            await asyncio.sleep(LOOK_S)  # the log is whole without us: another worker continues
            return None
        except UllageError as error:
            return self._fail(error.code, str(error))
        finally:
            self._task = None  # the rest must not be cancelled

    def _is_ended(self) -> bool:
        """Tell whether it was told to end."""
        return bool(self._why)

    def _refuse(self) -> JobOutcome | None:
        """Return why the job must not run at all, or None if it may."""
        if self.job.agent not in self._agents:
            named = ", ".join(sorted(self._agents))
            return self._fail(
                "configuration", f"this worker has no agent {self.job.agent!r:.80}: it has {named}"
            )
        if self._deaths < MOST_DEATHS:
            return None
        return self._fail(
            "crashed",
            f"{self._deaths} workers ended while they ran this job: it is not run again. Look "
            f"at the session (ullage show {self.job.session}), then submit it anew",
        )

    async def _perform(self, agent: Agent) -> JobOutcome:
        session = await SHARED.reads.run(open_session, self._log, self.job.session)
        try:
            session = await self._enter(session)
            outcome = await self._run_turn(agent, session)
            if self._flush is not None:
                await self._flush()  # send the shown pieces before the end
            return outcome
        finally:
            with suppress(StoreError):  # then the lease expires by itself
                await (self._session or session).aclose()

    async def _enter(self, session: Session) -> Session:
        """Become the writer of the session with the turn, or of its last continuation."""
        seen: set[str] = set()
        while True:
            seen.add(session.name)
            self._session = session
            await self._become_writer(session)
            if self.job.id in session.known.turns:
                return session
            name = await SHARED.reads.run(find_next, self._log, session.name)
            if name is None or name in seen:
                return session
            await session.aclose()
            session = await SHARED.reads.run(Session, self._log, name)

    async def _become_writer(self, session: Session) -> None:
        """Wait until nobody else writes to the session; raises BusyWriter after a while."""
        until = time.monotonic() + PATIENCE * float(getattr(self._log, "lease_s", LEASE_S))
        while True:
            try:
                await session.arenew()
                return
            except BusyWriter:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(LOOK_S)

    async def _run_turn(self, agent: Agent, session: Session) -> JobOutcome:
        """Begin the turn, continue it, or read how it ended."""
        job, options, known = self.job, _make_options(self.job), session.known
        ended: Ended | None
        session.hear(lambda told: self._hear(self.job, told))
        if job.id not in known.turns:
            begun: TurnOptions = {**options, "turn": job.id}
            ended = await agent.arun(session, job.text, **begun)
        elif known.turn is not None and known.turn.turn == job.id:
            ended = await agent.aresume(session, **options)
        else:
            return await SHARED.reads.run(read_end, session, job.id)
        if ended is None:  # pragma: no cover - the turn is open, and only this worker may write
            raise ConfigurationError(f"turn {job.id} of session {session.name} cannot go on")
        state: Literal["done", "failed"] = "done" if ended.ok else "failed"
        where = ended.continued or session.name
        return JobOutcome(
            state=state, session=where, text=ended.text, reason=ended.reason, error=ended.error
        )

    def _describe_stop(self) -> JobOutcome | None:
        if self._why == "let go":
            return None
        return make_cancelled(self.job.session)

    def _fail(self, reason: str, error: str) -> JobOutcome:
        return JobOutcome(state="failed", session=self.job.session, reason=reason, error=error)


def _make_options(job: TurnJob) -> TurnOptions:
    return {
        "mode": job.mode,
        "permission": job.permission,
        "max_iterations": job.max_iterations,
        "provider_options": job.options,
    }


def open_session(log: EventLog, name: str) -> Session:
    """Return the session of this name; create it if it does not exist."""
    try:
        return Session(log, name)
    except UnknownSession:
        with suppress(StoreError):  # another worker created it meanwhile
            log.create(name, time.time())
    return Session(log, name)


def read_end(session: Session, turn: str) -> JobOutcome:
    """Return the outcome of an ended turn, from the session's log."""
    begun, text = False, ""
    for event in session.events():
        of_turn = event.data.get("turn") == turn
        if event.type == "turn_started" and of_turn:
            begun = True
        elif begun and event.type == "assistant_message":
            text = str(event.data.get("text") or "")
        elif begun and event.type in ENDS and of_turn:
            return _read_event(session.name, event, text)
    raise CorruptLog(
        f"session {session.name} has no end of turn {turn}: `ullage verify` tells more"
    )


def _read_event(name: str, end: Event, text: str) -> JobOutcome:
    if end.type == "turn_completed":
        return JobOutcome(state="done", session=name, text=text)
    failed = end.type == "turn_failed"
    reason = str(end.data.get("reason") or "interrupted")
    said = str(end.data.get("error") or "the turn was interrupted")
    return JobOutcome(
        state="failed" if failed else "cancelled", session=name, reason=reason, error=said
    )

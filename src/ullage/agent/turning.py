"""The driver of a turn: performs its effects, keeps the lease alive, survives cancellation.

`core.session.turn` makes the decisions. Events during the turn go to the listeners of the session.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.agent.calling import open_caller
from ullage.agent.journal import TurnJournal
from ullage.agent.kit import describe_context
from ullage.agent.session import Live
from ullage.core.dialects.usage import Usage
from ullage.core.errors import (
    ConfigurationError,
    ContextTooLargeError,
    ErrorKind,
    Fenced,
    MalformedHistoryError,
    StoreError,
)
from ullage.core.session import turn as machine
from ullage.core.session.permissions import Consent, Decision, Grant
from ullage.core.session.reach import guard_exit
from ullage.core.session.turn.effects import (
    Ask,
    Crashed,
    Decide,
    Effect,
    Ended,
    Failed,
    Heard,
    Interrupted,
    Look,
    NotReady,
    Prepare,
    Ready,
    Record,
    Recover,
    Rehearse,
    RunTools,
    Send,
    TurnOrder,
)
from ullage.core.tokens.cost import cost
from ullage.providers import CallFailed
from ullage.sdk.errors import Trouble
from ullage.storage.log import LEASE_S

if TYPE_CHECKING:
    from ullage.agent.kit import Kit
    from ullage.core.dialects.reply import Delta
    from ullage.core.messages.transcript import Call
    from ullage.core.session.tools import Intent, Pending, ToolOutcome
    from ullage.guard.view import View
    from ullage.storage.log import EventLog

BEATS: Final = 3
"""Heartbeats in the time of a lease: two may fail before it can be taken over."""


def _is_ending() -> bool:
    """Tell whether the current task was asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def find_beat(log: EventLog) -> float:
    """Return the seconds between two heartbeats of a writer to a log."""
    return float(getattr(log, "lease_s", LEASE_S)) / BEATS


class Turning:
    """One turn on its way. `run` may be called once."""

    def __init__(self, kit: Kit, order: TurnOrder) -> None:
        self._kit = kit
        self._order = order
        self._session = kit.session
        self._client = open_caller(kit.provider)
        self._partial = ""
        self._held = ("", "")
        self._view: View | None = None
        self._trouble = Trouble(ErrorKind("other"))
        self._failed: View | None = None
        self._ways: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            Record: self._perform_record,
            Prepare: self._perform_prepare,
            Send: self._perform_send,
            Recover: self._perform_recover,
            Look: self._perform_look,
            Decide: self._perform_decide,
            Rehearse: self._perform_rehearse,
            Ask: self._perform_ask,
            RunTools: self._ran,
        }

    async def run(self) -> Ended:
        """Run the turn to its end, which is on disk when this returns.

        A cancellation is recorded first. Raises Fenced if another process became the writer: then
        this one may not record the end.
        """
        session = self._session
        await session.aacquire()
        workspace = self._kit.executor.workspace
        workspace.journal = TurnJournal(session, self._order.turn, workspace)
        beating = asyncio.create_task(self._beat(asyncio.current_task()))
        try:
            return await self._drive()
        finally:
            workspace.journal = None
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await self._client.aclose()

    async def _drive(self) -> Ended:
        steps = machine.run(self._order, self._session.known)
        cancelled: asyncio.CancelledError | None = None
        try:
            effect = next(steps)
            while True:
                try:
                    answer = await self._perform(effect)
                except asyncio.CancelledError as error:
                    cancelled = error
                    effect = steps.throw(Interrupted(self._partial))
                except Crashed as crash:
                    effect = steps.throw(crash)
                else:
                    effect = steps.send(answer)
        except StopIteration as done:
            if cancelled is not None:
                raise cancelled from None
            if self._failed is not None:
                await self._kit.port.atake_back(self._failed)
            ended: Ended = done.value
            return ended

    async def _beat(self, turn: asyncio.Task[Any] | None) -> None:
        """Send heartbeats; end the turn if another process became the writer.

        If the store refuses one heartbeat, the next one may still get through.
        """
        seconds = find_beat(self._session.log)
        while True:
            await asyncio.sleep(seconds)
            try:
                await self._session.aheartbeat()
            except Fenced:
                if turn is not None and not _is_ending():
                    turn.cancel()  # else it ended by itself and says why
                return
            except StoreError as error:
                if _is_ending():  # the error replaced the cancellation
                    return
                self._tell("status", {"text": f"no sign of life could be given: {error}"})

    # --- effects --------------------------------------------------------------------------------

    async def _perform(self, effect: Effect) -> Any:
        """Perform one effect; its failure ends the turn and is recorded."""
        try:
            return await self._ways[type(effect)](effect)
        except StoreError:
            raise  # without the log, nothing can be recorded
        except Exception as error:
            raise Crashed(f"{type(error).__name__}: {error}", self._partial) from error

    async def _perform_record(self, effect: Record) -> None:
        self._partial = ""
        await self._session.arecord(effect.drafts)

    async def _perform_look(self, effect: Look) -> list[Intent]:
        return [self._kit.executor.intent(call) for call in effect.calls]

    async def _perform_decide(self, effect: Decide) -> Decision:
        executor, grants = self._kit.executor, self._session.grants
        decision = executor.decide(effect.call, self._kit.posture)
        if self._kit.gated and not self._order.dry_run:
            reach = executor.find_reach(effect.call)
            decision = guard_exit(decision, reach, self._session.known.holdings)
        if decision.verdict != "ask" or not grants:
            return decision
        subject = executor.subject(effect.call)
        grant = next((grant for grant in grants if grant.covers(subject)), None)
        if grant is None:
            return decision
        return Decision("allow", f"a person allowed in this session {grant}", "grant")

    async def _perform_rehearse(self, effect: Rehearse) -> Pending | ToolOutcome:
        return await self._kit.executor.preview(effect.call)

    async def _perform_prepare(self, _: Prepare) -> Ready | NotReady:
        kit = self._kit
        try:
            self._view = await kit.port.aprepare(kit.request(), kit.provider.dialect)
        except ContextTooLargeError as error:
            return NotReady("context_overflow", str(error))
        except MalformedHistoryError as error:
            return NotReady("malformed_history", str(error))
        kit.trigger = None
        return self._ready()

    def _ready(self) -> Ready:
        view = self._open()
        output = view.prepared.max_tokens or 0
        count = view.prepared.count
        price = cost(Usage(count.high, output=output), self._kit.prices).total
        return Ready(count.high + output, price if self._kit.prices else None)

    async def _perform_send(self, _: Send) -> Heard | Failed:
        view, kit = self._open(), self._kit
        self._partial, self._failed = "", None
        try:
            reply = await self._client.send(kit.fields(view), self._hear, wait=self._waits)
        except CallFailed as error:
            return self._note_failure(error)
        finally:
            self._flush()
        with kit.store.reporting() as learned:
            found = await view.aobserve(reply.report)
        priced = cost(reply.usage, kit.prices).total if reply.usage and kit.prices else None
        self._partial = ""
        context = {"context": describe_context(view, found), "state": learned.state}
        return Heard(reply, priced, context, tuple(learned.drafts))

    def _note_failure(self, error: CallFailed) -> Failed:
        self._trouble = Trouble(error.kind, error.lost, str(error))
        if error.unreached:
            self._kit.port.doubt_server()
        self._partial, self._failed = "", self._view
        return Failed(
            str(error),
            error.kind,
            error.status,
            lost=error.lost,
            stalled=error.stalled,
            partial=error.partial,
            called=error.called,
        )

    async def _perform_recover(self, _: Recover) -> Ready | None:
        view = await self._kit.port.aretry(self._open(), self._trouble)
        if view is None:
            return None
        self._view = view
        return self._ready()

    async def _perform_ask(self, effect: Ask) -> Consent | None:
        if self._kit.ask is None:
            return None
        word = self._kit.ask(effect.call, effect.reason)
        if inspect.isawaitable(word):
            word = await word
        if word is None or isinstance(word, Consent):
            consent = word
        elif isinstance(word, bool):
            consent = Consent(word)
        else:
            raise ConfigurationError(f"ask returned {word!r:.80}: it gives a bool, Consent or None")
        if consent is not None and consent.scope != "once":
            subject = effect.call.subject
            self._session.grants.append(Grant(subject, consent.scope, consent.pattern))
        return consent

    async def _ran(self, effect: RunTools) -> Sequence[ToolOutcome]:
        """Run calls, after checking that this is still the writer.

        No call still runs when this returns or raises.
        """
        await self._session.aheartbeat()
        self._kit.left = effect.left
        running = [
            asyncio.create_task(self._run(call, key))
            for call, key in zip(effect.calls, effect.keys, strict=True)
        ]
        try:
            return await asyncio.gather(*running)
        except BaseException:
            for task in running:
                if not task.cancelling():  # a second time would break its clean-up
                    task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    async def _run(self, call: Call, key: str) -> ToolOutcome:
        self._tell("status", {"tool": call.name, "call_id": call.id, "state": "running"})
        outcome = await self._kit.executor.run(call, key=key, dry_run=self._order.dry_run)
        if outcome.plan is not None:
            self._tell("plan", {"steps": [dict(step) for step in outcome.plan]})
        state = "failed" if outcome.is_error else "done"
        self._tell("status", {"tool": call.name, "call_id": call.id, "state": state})
        return outcome

    # --- telling --------------------------------------------------------------------------------

    def _hear(self, delta: Delta) -> None:
        if delta.kind == "text_delta":
            self._partial += delta.text
        if self._held[0] != delta.kind:
            self._flush()
        shown, held = self._session.redactor.piece(self._held[1] + delta.text)
        self._held = (delta.kind, held)
        if shown:
            self._tell(delta.kind, {"text": shown})

    def _flush(self) -> None:
        """Send the text that was held back because it could have begun a secret."""
        (kind, text), self._held = self._held, ("", "")
        if text:
            self._tell(kind, {"text": text})

    def _waits(self, reason: str, seconds: float) -> None:
        self._kit.port.doubt_server()
        self._tell("status", {"text": f"{reason}: trying again in {seconds:.1f} s"})

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        self._session.publish(Live(self._session.name, kind, data))

    def _open(self) -> View:
        if self._view is None:  # pragma: no cover - the machine prepares before it sends
            raise ConfigurationError("a turn sends before it prepares")
        return self._view

"""A request that a worker holds, as the proxy sees it.

The text stays in the worker; the proxy has its bytes, its small fields, and numbers. The module
does not know guards.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.proxy.body import Body
from ullage.proxy.workers import WorkerLost

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.tokens.gauge import Assessment
    from ullage.proxy.call import ProxyCall
    from ullage.proxy.guarding import Plan
    from ullage.proxy.head import RequestHead
    from ullage.proxy.routes import GuardedPath
    from ullage.proxy.steering import Steering
    from ullage.proxy.worker import FarAnswer, FarBody
    from ullage.proxy.workers import Worker, Workers
    from ullage.sdk.errors import Trouble

log = logging.getLogger("ullage.proxy")

READ_S: Final = 20.0
"""Seconds that a body may take to be read."""

_TICKETS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class FarRequest:
    """One request in a worker. It uses the turns of `client`."""

    worker: Worker
    ticket: int
    raw: bytes
    client: str

    async def plan(self, call: ProxyCall, patience_s: float, steering: Steering) -> Plan:
        """Return what to send. Raises RequestRefused, TimeoutError, WorkerLost."""
        found: FarAnswer = await self.take_turn(patience_s, "plan", steering)
        return self.join(call, found)[1]

    def close(self) -> None:
        """Release the request."""
        self.worker.tickets.discard(self.ticket)
        self.worker.note("drop", self.ticket)

    def join(self, call: ProxyCall, found: FarAnswer) -> tuple[ProxyCall, Plan]:
        """Return a call and its plan, with the parts that stayed in the proxy: path and bytes."""
        body = make_body(found.body, self.raw)
        sent = self.raw if found.sent is None else found.sent
        far = FarPlan(self, found.number)
        joined = replace(found.call, form=call.form, body=body, far=self)
        return joined, replace(found.plan, body=sent, far=far)

    async def take_turn(self, patience_s: float, name: str, *arguments: Any) -> Any:
        """Return the result of a job that takes time."""
        run = self.worker.take_turn
        return await run(self.client, patience_s, name, self.ticket, *arguments)


@dataclass(frozen=True, slots=True)
class FarPlan:
    """One plan for a request in a worker, by its number. If the worker is lost, so is the plan."""

    request: FarRequest
    number: int

    async def again(self, call: ProxyCall, found: Trouble, patience_s: float) -> Plan | None:
        """Return the plan after a failure, or None if nothing helps."""
        made = await self.request.take_turn(patience_s, "again", self.number, found)
        return None if made is None else self.request.join(call, made)[1]

    async def take_back(self) -> None:
        """Undo the compaction that a recovery stored, since its plan failed all the same."""
        await self.request.worker.run("take_back", self.request.ticket, self.number)

    async def learn(self, report: Any) -> Assessment | None:
        """Learn from an answer, and return how full it shows the window to be."""
        with contextlib.suppress(WorkerLost):
            worker, ticket = self.request.worker, self.request.ticket
            found: Assessment | None = await worker.run("learn", ticket, self.number, report)
            return found
        return None

    def learn_refusal(self, status: int, body: Any) -> None:
        """Learn from a refusal that is passed on."""
        self.request.worker.note("learn_refusal", self.request.ticket, self.number, status, body)

    async def plan_next(
        self, call: ProxyCall, names: frozenset[str], reply: Reply, used: int | None
    ) -> tuple[ProxyCall, Plan, int]:
        """Return what to send after a round with calls of added tools, and the number answered."""
        request = self.request
        found, answered = await request.take_turn(
            READ_S, "plan_next", self.number, names, reply, used
        )
        return *request.join(call, found), answered


async def read_far(workers: Workers, head: RequestHead, form: GuardedPath, raw: bytes) -> ProxyCall:
    """Make a worker read a request of a conversation. Raises RequestRefused, TimeoutError.

    If the worker is lost meanwhile, another one tries once; then WorkerLost is raised.
    """
    for left in (1, 0):
        worker, ticket = await workers.find(head.party, raw), next(_TICKETS)
        worker.tickets.add(ticket)
        request = FarRequest(worker, ticket, raw, head.party)
        try:
            call, told = await request.take_turn(READ_S, "read", raw, head, head.path)
        except BaseException as error:
            request.close()
            if not (left and isinstance(error, WorkerLost)):
                raise
        else:
            form = replace(form, fields=call.form.fields)
            joined: ProxyCall = replace(call, form=form, body=make_body(told, raw), far=request)
            return joined
    raise AssertionError  # pragma: no cover - the second try returns or raises


async def check_far(workers: Workers, client: str, raw: bytes) -> Body:
    """Make a worker check a body that is forwarded as it came. Raises as `read_far` does."""
    worker = await workers.find(client, raw)
    return make_body(await worker.take_turn(client, READ_S, "check", raw), raw)


def make_body(told: FarBody, raw: bytes) -> Body:
    """Return a body from a worker's report: the history has the right length, but no messages."""
    history: list[Any] = [None] * told.messages
    return Body(raw, dict(told.fields), history, opaque=told.opaque, grown=told.grown)

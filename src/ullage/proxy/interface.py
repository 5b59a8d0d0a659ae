"""The HTTP side of `/ullage/v1`: methods, bodies, workers for large ones, and records.

`proxy.fitting` makes the answers. All refusals have one shape (`forms.ErrorAnswer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from ullage.proxy.body import RequestRefused
from ullage.proxy.channel import Gone
from ullage.proxy.endpoints import BY_PATH, DOCUMENT
from ullage.proxy.exchange import LARGE, Exchange
from ullage.proxy.far import READ_S
from ullage.proxy.fitting import UNKNOWN_SESSION, ApiReply, Fitting
from ullage.proxy.openapi import encode_document
from ullage.proxy.standing import describe
from ullage.proxy.workers import WorkerLost

if TYPE_CHECKING:
    from ullage.proxy.head import RequestHead

JSON: Final = b"application/json"


class ApiExchange(Exchange):
    """One request to an endpoint, on its way."""

    async def answer(self) -> None:
        """Answer it. Raises RequestRefused."""
        head = self._head
        if head.path == DOCUMENT:
            _check_method(head, ("GET", "HEAD"))
            await self._send_json(encode_document())
            return
        endpoint = BY_PATH.get(head.path)
        if endpoint is None:
            raise RequestRefused(
                404, "no_such_endpoint", f"there is no {head.path:.80}: see {DOCUMENT}"
            )
        _check_method(head, endpoint.methods)
        try:
            raw = await self._channel.read(self._serve.max_body, self._admitted.take)
            if head.method == "GET":
                raw = _read_query(head)
            else:
                _check_type(head)
            await self._run_watched(self._answer_body(raw))
        except Gone:
            return

    async def _answer_body(self, raw: bytes) -> None:
        reply = await self._find_reply(raw)
        app, call = self._app, reply.call
        if call is not None:
            self._line.upstream, self._line.model = call.upstream.name, call.model or ""
            if reply.names is not None:
                app.readable.note(call, reply.names)
            if reply.plan is not None:
                with self._beside:
                    self._note(reply)
        await self._send_json(reply.body)

    def _note(self, reply: ApiReply) -> None:
        """Record the state of the conversation, for the pages, the log and the metrics."""
        call, plan = reply.call, reply.plan
        assert call is not None  # noqa: S101 - who calls it looked
        assert plan is not None  # noqa: S101 - the same
        tiers = self._app.guarding.note(call, plan, 200)
        if tiers is not None:
            self._app.meters.pressure(call.model, *tiers)
        if plan.standing is not None:
            self._app.meters.window(call.model, plan.standing.window)
        describe(call, plan.standing, self._line)

    async def _find_reply(self, raw: bytes) -> ApiReply:
        """Return the answer; a worker makes it if the body is large."""
        app, head = self._app, self._head
        workers = app.workers
        if workers is None or len(raw) <= LARGE:
            return await self._answer_here(raw)
        steering, patience_s = app.guarding.steering, READ_S + app.guarding.patience_s
        try:
            worker = await workers.find(head.party, raw)
            run = worker.take_turn
            reply: ApiReply = await run(
                head.party, patience_s, "answer", _strip_head(head), raw, steering
            )
        except (TimeoutError, WorkerLost) as error:
            text = "this request takes too long: it was given up"
            raise RequestRefused(503, "guard_late", text) from error
        except RequestRefused as refused:
            if refused.code != UNKNOWN_SESSION:
                raise
            return await self._answer_here(raw)  # only this process knows what a session may read
        return reply

    async def _answer_here(self, raw: bytes) -> ApiReply:
        app, head = self._app, self._head
        fitting = Fitting(app.serve, app.guarding, app.runtime, app.kept, app.readable)
        return await fitting.answer(head, head.path, raw)

    async def _send_json(self, data: bytes) -> None:
        headers = [
            (b"content-type", JSON),
            (b"content-length", str(len(data)).encode("ascii")),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        shown = b"" if self._head.method == "HEAD" else data
        await self._channel.answer(200, headers, shown)


def _strip_head(head: RequestHead) -> RequestHead:
    """Return a head without its headers, which a worker does not need."""
    return replace(head, headers=())


def _check_method(head: RequestHead, allowed: tuple[str, ...]) -> None:
    if head.method in allowed:
        return
    named = ", ".join(allowed)
    refused = RequestRefused(
        405, "method_not_allowed", f"{head.method:.20} is not allowed here: {named}"
    )
    refused.allow = named
    raise refused


def _check_type(head: RequestHead) -> None:
    """Refuse a body whose header says that it is not JSON; a missing header is accepted."""
    for name, value in head.headers:
        kind = value.partition(b";")[0].strip().lower()
        if name == b"content-type" and kind and kind != JSON:
            raise RequestRefused(
                415, "type_refused", "the body is JSON: send it with content-type application/json"
            )


def _read_query(head: RequestHead) -> bytes:
    """Return the fields of a query as the equivalent JSON body."""
    pairs = parse_qsl(head.query.decode("latin-1"), keep_blank_values=True, max_num_fields=20)
    fields: Mapping[str, Any] = dict(pairs)
    if len(fields) != len(pairs):
        raise RequestRefused(422, "invalid_request", "a field of the query is there twice")
    return json.dumps(fields).encode("ascii")

"""The way of one request: read, guard, send, try again if that helps, relay.

If one side disconnects, the other one is closed too. The client gets the upstream's own bytes, or
learns that there are no more of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.lines import Members
from ullage.guard.planning import THREADS
from ullage.proxy import answers
from ullage.proxy import body as bodies
from ullage.proxy import head as heads
from ullage.proxy.answering import Answering
from ullage.proxy.body import Body, RequestRefused
from ullage.proxy.call import ProxyCall, find_upstream, make_call
from ullage.proxy.channel import Channel, Gone, Left
from ullage.proxy.far import check_far, read_far
from ullage.proxy.faults import FaultsBeside
from ullage.proxy.guarding import SMALL, Plan, trouble
from ullage.proxy.journal import LEFT, RequestLine
from ullage.proxy.listing import choose_upstream, extend_listing, find_unlisted
from ullage.proxy.opened import (
    LOST,
    OpenAnswer,
    check_read,
    find_trouble,
    get_opened,
    is_compressed,
    let_go,
    make_refused,
    parse_object,
    read_type,
)
from ullage.proxy.relay import EventRelay, LineRelay
from ullage.proxy.rounds import RoundRelay
from ullage.proxy.standing import SHOWN, describe
from ullage.proxy.upstream import Response, Sent, Stalled, Unreached, UpstreamBroken, discreet
from ullage.proxy.watching import RequestEnd
from ullage.proxy.workers import WorkerLost
from ullage.sdk.errors import Trouble, classify_error
from ullage.telemetry import otel

if TYPE_CHECKING:
    from ullage.config.serving import Upstream
    from ullage.core.dialects.reply import Reply
    from ullage.core.dialects.rounds import Rounds
    from ullage.core.tokens.gauge import Assessment
    from ullage.proxy.admission import Admitted
    from ullage.proxy.app import App
    from ullage.proxy.routes import GuardedPath

log = logging.getLogger("ullage.proxy")

HELD: Final = 16
"""Frames to read before an answer counts as begun; dialects open with three."""

HELD_BYTES: Final = 64 * 1024
"""Bytes to read at most before an answer counts as begun."""

LARGE: Final = 262_144
"""Bytes beyond which a body is read and planned in a worker."""

NEARLY_LARGE: Final = LARGE // 2
"""Bytes beyond which a worker is started: conversations grow, so the next one may be large."""

WHOLE: Final = 8 * 1024 * 1024
"""Bytes of a non-streamed answer that are kept to be read."""

ENDED: Final = "the proxy was ended before the answer was"

SHORT: Final = "the upstream ended before its answer did"


class Exchange:
    """One request on its way."""

    def __init__(
        self,
        app: App,
        head: heads.RequestHead,
        channel: Channel,
        admitted: Admitted,
        line: RequestLine | None = None,
    ) -> None:
        self._app = app
        self._serve = app.serve
        self._head = head
        self._channel = channel
        self._admitted = admitted
        self._line = line or RequestLine(head.method, head.path)
        self._reported: Assessment | None = None
        self._report: Any = None
        self._began = app.runtime.now()
        self._rounds: Rounds | None = None
        self._beside = FaultsBeside(app.meters.fault, ends=app.serve.fail_open)

    async def converse(self, form: GuardedPath) -> None:
        """Guard a conversation."""
        try:
            raw = await self._channel.read(self._serve.max_body, self._admitted.take)
            await self._run_watched(self._guard_conversation(form, raw))
        except Gone:
            return
        except RequestRefused as refused:
            await self._channel.refuse(form.dialect, refused)

    async def check(self, model: str | None = None) -> None:
        """Check a body, and forward it as it came; `model` is the one named in the path."""
        try:
            raw = await self._channel.read(self._serve.max_body, self._admitted.take)
            await self._run_watched(self._check_body(raw, model))
        except Gone:
            return

    async def forward(self) -> None:
        """Forward a request without reading its body."""
        try:
            raw = await self._channel.read(self._serve.max_body, self._admitted.take)
            await self._run_watched(self._forward_plain(raw))
        except Gone:
            return

    # --- the two ends ---------------------------------------------------------------------------

    async def _read_body(self, raw: bytes, name: str) -> Body:
        serve = self._serve
        bounds = _make_bounds(serve.max_messages, serve.max_n, serve.max_depth)
        if len(raw) <= SMALL:
            return bodies.read(raw, name, bounds)
        return await THREADS.run(bodies.read, raw, name, bounds)

    async def _run_watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work while the client is there; if it leaves, cancel the work and raise Left."""
        try:
            await self._channel.run_watched(work)
        except Left:
            if self._channel.begun:
                self._app.meters.stream_aborted("client")
            raise

    async def _send(self, upstream: Upstream, data: bytes, *, changed: bool = False) -> Response:
        head = self._head
        query = f"?{head.query.decode('latin-1')}" if head.query else ""
        what = Sent(
            head.method,
            f"{upstream.root}{head.path}{query}",
            head.knowing(upstream).onward(upstream, changed=changed),
            data,
        )
        try:
            return discreet(await self._app.sender.send(what), upstream.api_key)
        except (Unreached, UpstreamBroken) as error:
            silent = error.waited if isinstance(error, Unreached) else isinstance(error, Stalled)
            if not silent:  # the upstream may come back with another window
                self._app.runtime.windows.doubt(upstream.root)
            if isinstance(error, Unreached):
                raise RequestRefused(502, error.code, str(error)) from error
            raise

    # --- conversations --------------------------------------------------------------------------

    async def _read_call(self, form: GuardedPath, raw: bytes) -> ProxyCall:
        """Read a request of a conversation; a worker reads a large one and keeps holding it."""
        head, workers = self._head, self._app.workers
        if workers is not None and len(raw) > LARGE:
            with _reading():
                return await read_far(workers, head, form, raw)
        if workers is not None and len(raw) > NEARLY_LARGE:
            workers.prepare()
        body = await self._read_body(raw, form.fields.messages)
        return make_call(self._serve, head, form.spell(body.fields), body)

    async def _guard_conversation(self, form: GuardedPath, raw: bytes) -> None:
        call = await self._read_call(form, raw)
        try:
            await self._guard_traced(call)
        finally:
            if call.far is not None:
                call.far.close()

    async def _guard_traced(self, call: ProxyCall) -> None:
        self._line.upstream, self._line.model = call.upstream.name, call.model or ""
        with otel.around(
            self._app.runtime,
            call.model,
            provider=call.upstream.name,
            conversation=call.session,
            stream=call.streams,
        ) as span:
            status = await self._guard_call(call)
            if span is not None:
                span.note(status=status)

    async def _plan_call(self, call: ProxyCall) -> Plan:
        """Return the plan for a call; raises RequestRefused if its server would cut it silently."""
        guarding, meters = self._app.guarding, self._app.meters
        began = time.perf_counter()
        try:
            plan = await guarding.plan(call)
        except RequestRefused:
            meters.fault()
            meters.request(call.model, "error")
            raise
        took = time.perf_counter() - began
        meters.overhead(took)
        if plan.fault:
            meters.fault()
        if plan.unguarded is not None:
            self._line.unguarded = plan.unguarded.reason
            self._app.unguarded.note(call, plan.unguarded)
        if plan.about is not None and plan.about.name:
            self._line.conversation = plan.about.name[:SHOWN]
        over = None
        with self._beside:
            over = guarding.cut_in_silence(call, plan)
            self._count_plan(call, plan, took)
        if over is not None:
            meters.request(call.model, "blocked")
            with self._beside:
                describe(call, plan.about, self._line)
            raise answers.refuse_too_large(call.form.dialect, *over)
        return plan

    async def _guard_call(self, call: ProxyCall) -> int:
        """Guard a call and hand its answer on; return the status."""
        plan, meters = await self._plan_call(call), self._app.meters
        opened: OpenAnswer | None = None
        status = LEFT
        try:
            plan, opened = await self._answer_call(call, plan)
            status = opened.response.status
            trimmed = plan.standing is not None and plan.standing.is_compacted
            meters.request(
                call.model, "error" if status >= 400 else "trimmed" if trimmed else "sent"
            )
            reply = await self._relay_answer(call, plan, opened)
            if reply is not None:
                await opened.response.aclose()
                await self._go_on(call, plan, reply)
                status = self._channel.status
        except RequestRefused as refused:
            status = refused.status
            if opened is None:
                meters.request(call.model, "error")
            raise
        finally:  # also for a client that left early: its request was served
            self._note_state(call, plan, status)
            if opened is not None:
                await opened.response.aclose()
        self._app.pages.readiness.note_answer(call.upstream.name)
        return status

    async def _go_on(self, call: ProxyCall, plan: Plan, reply: Reply | None) -> None:
        """Answer calls of added tools and ask again, until the answer is the client's."""
        app, channel, seen = self._app, self._channel, self._reported
        answering = Answering(
            app.guarding, app.runtime, app.kept, app.meters, fail_open=app.serve.fail_open
        )
        names = self._rounds.names if self._rounds is not None else frozenset[str]()
        while reply is not None:
            opened: OpenAnswer | None = None
            try:
                told = self._reported.input_tokens if self._reported is not None else None
                call, plan, answered = await answering.plan_next(call, plan, names, reply, told)
                self._line.answered += answered
                plan, opened = await self._answer_call(call, plan)
                reply = await self._relay_answer(call, plan, opened)
            except RequestRefused as refused:
                if not channel.begun:
                    raise
                await self._break_off(call, refused.text)
                return
            except asyncio.CancelledError:
                if channel.begun and not (channel.ended or channel.gone):
                    await self._break_off(call, ENDED)
                raise
            finally:
                if opened is not None:
                    await opened.response.aclose()
        self._reported = seen  # the client's next request goes on from its own last one

    async def _break_off(self, call: ProxyCall, text: str) -> None:
        """End the client's stream early and tell why."""
        self._app.meters.stream_aborted("upstream")
        await self._channel.write(call.form.spoken.errors.break_off(text, b""), more=False)

    def _note_state(self, call: ProxyCall, plan: Plan, status: int) -> None:
        """Record the state of the conversation after a request."""
        guarding, meters = self._app.guarding, self._app.meters
        with self._beside:
            tiers = guarding.note(call, plan, status)
            if tiers is not None:
                meters.pressure(call.model, *tiers)
            self._app.show(call, plan, RequestEnd(self._began, status, self._report))
            describe(call, plan.about, self._line)
            if self._reported is not None and self._reported.state == "known":
                self._line.used = self._reported.input_tokens  # the server's own number

    def _count_plan(self, call: ProxyCall, plan: Plan, took: float) -> None:
        """Count the guard's findings about a request."""
        found, meters = plan.standing, self._app.meters
        if found is None:
            return
        meters.window(call.model, found.window)
        if found.is_compacted:
            meters.observe_compaction(took)

    async def _answer_call(self, call: ProxyCall, plan: Plan) -> tuple[Plan, OpenAnswer]:
        """Send, a second time if that may help; return the last plan and its answer."""
        later = call.round is not None  # not a repetition of the client's request
        opened, left = await self._try_plan(call, plan, changed=later), 1
        size = False
        while (found := find_trouble(opened)) is not None:
            try:
                again = await self._again(call, plan, found) if left else None
            except BaseException:  # the client left meanwhile
                await let_go(opened)
                raise
            if again is None:
                if found.kind.kind in ("input", "total"):
                    self._app.meters.recovery("gave_up" if size else "no_progress")
                await self._app.guarding.take_back(plan)
                given = self._give_up(plan, opened)
                over = self._app.guarding.find_refused(call, plan, found)
                if over is not None:
                    raise answers.refuse_too_large(call.form.dialect, *over)
                return plan, given
            await let_go(opened)
            size = size or found.kind.kind in ("input", "total")
            left -= not (_is_usage_unasked(plan, again) or _is_withdrawn(plan, again))
            changed = later or again.body != plan.body
            plan, opened = again, await self._try_plan(call, again, changed=changed)
        if size:
            self._app.meters.recovery("recovered")
        return plan, get_opened(opened)

    async def _again(self, call: ProxyCall, plan: Plan, found: Trouble) -> Plan | None:
        try:
            return await self._app.guarding.again(call, plan, found)
        except Exception:
            self._app.meters.fault()
            if not self._serve.fail_open:
                raise
            log.exception("the guard could not recover; the upstream's error goes on")
            return None

    def _give_up(self, plan: Plan, opened: OpenAnswer | UpstreamBroken) -> OpenAnswer:
        """Learn from a failed answer and return it; raises RequestRefused if the upstream broke."""
        if isinstance(opened, UpstreamBroken):
            raise make_refused(opened) from opened
        if opened.whole:
            self._app.guarding.learn_refusal(
                plan, opened.response.status, parse_object(opened.data)
            )
        return opened

    async def _try_plan(
        self, call: ProxyCall, plan: Plan, *, changed: bool
    ) -> OpenAnswer | UpstreamBroken:
        """Send a plan; return the answer once it is clear whether it succeeded."""
        try:
            response = await self._send(call.upstream, plan.body, changed=changed)
            try:
                return await self._open_answer(call, plan, response)
            except BaseException:
                await response.aclose()
                raise
        except UpstreamBroken as error:
            return error
        except RequestRefused:  # the upstream is gone
            await self._app.guarding.take_back(plan)
            raise

    async def _open_answer(self, call: ProxyCall, plan: Plan, response: Response) -> OpenAnswer:
        stream = response.chunks()
        made = OpenAnswer(response, stream=stream, rounds=self._find_rounds(call, plan))
        kind = read_type(response) if not is_compressed(response) else b""
        array = kind == b"application/json" and call.form.streams is True
        if response.status >= 400 or (kind == b"application/json" and not array):
            return check_read(await _read_whole(made), plan)
        if kind == b"text/event-stream" and made.rounds is not None:
            salt = str(call.round.number) if call.round is not None else ""
            made.relay = RoundRelay(call.form.dialect, made.rounds, spliced=plan.spliced, salt=salt)
        elif kind == b"text/event-stream":
            made.relay = EventRelay(call.form.dialect, spliced=plan.spliced)
        elif kind == b"application/x-ndjson" and made.rounds is None:
            made.relay = LineRelay(call.form.dialect)
        elif array:
            made.relay = LineRelay(call.form.dialect, Members())
        else:
            return check_read(made, plan)
        watch, size, pieces = made.relay, 0, list[bytes]()
        async for chunk in stream:
            pieces.append(watch.feed(chunk))
            size += len(chunk)
            said = watch.begun or watch.ended or watch.failed is not None
            if said or watch.events >= HELD or size >= HELD_BYTES:
                break
        else:
            pieces.append(watch.rest())
            if not (watch.begun or watch.ended):
                made.found = Trouble(LOST, lost=True, text=SHORT)
        made.data = b"".join(pieces)
        if watch.failed is not None and not watch.begun:
            made.found = Trouble(classify_error(200, watch.failed), text=str(watch.failed))
        return made

    def _find_rounds(self, call: ProxyCall, plan: Plan) -> Rounds | None:
        """Return the client's view of the rounds of its request, or None without added tools."""
        added, last = call.form.spoken.added_tools, call.round is not None and call.round.last
        if self._rounds is None and plan.offer is not None and added is not None:
            self._rounds = added.make_rounds(plan.offer.names)
        if self._rounds is not None:
            self._rounds.begin(closed=last or plan.offer is None)
        return self._rounds

    async def _relay_answer(self, call: ProxyCall, plan: Plan, opened: OpenAnswer) -> Reply | None:
        """Pass the answer on and learn from it; return it if it calls an added tool."""
        response, channel = opened.response, self._channel
        status, sized = response.status, opened.relay is None
        if channel.begun and (opened.relay is None or status >= 400):
            text = opened.found.text if opened.found is not None else "it streams no more"
            await self._break_off(call, f"the upstream answered {status}: {text:.500}")
            return None
        if opened.whole:
            return await self._relay_whole(call, plan, opened)
        back = heads.back(response.headers, status, sized=sized)
        channel.hold_head(status, [*back, *plan.headers])
        if opened.rounds is None and not channel.begun:
            await channel.begin(status, [*back, *plan.headers])
        relay = opened.relay
        if opened.data:
            await channel.write(opened.data)
        try:
            last = await self._relay_stream(call, opened)
            turned = isinstance(relay, RoundRelay) and relay.has_turned
            await channel.write(last, more=turned)
        finally:  # many clients leave with the terminal event
            if relay is not None:
                await self._learn(plan, relay.report)
        return relay.reply() if isinstance(relay, RoundRelay) and turned else None

    async def _relay_whole(self, call: ProxyCall, plan: Plan, opened: OpenAnswer) -> Reply | None:
        """Do the same with an answer that is not a stream."""
        status, data, rounds = opened.response.status, opened.data, opened.rounds
        answer = parse_object(data) if status < 400 else None
        if answer is not None and rounds is not None:
            seen = rounds.take_whole(answer)
            if rounds.turned:
                await self._learn(plan, answer)
                reader = call.form.spoken.make_reader(str(call.round.number if call.round else ""))
                reader.take(answer)
                return reader.reply()
            data = data if seen is answer else bodies.encode_json(seen)
        back = heads.back(opened.response.headers, status, sized=data is opened.data)
        await self._channel.answer(status, [*back, *plan.headers], data)
        if answer is not None:
            await self._learn(plan, answer)
        return None

    async def _learn(self, plan: Plan, report: Any) -> None:
        self._report = report
        self._reported = await self._app.guarding.learn(plan, report)

    async def _relay_stream(self, call: ProxyCall, opened: OpenAnswer) -> bytes:
        """Pass a stream on; return the last bytes to send: an error if the stream broke off."""
        watch = opened.relay
        try:
            async for chunk in self._bound_answer(opened):
                out = chunk if watch is None else watch.feed(chunk)
                if out:
                    await self._channel.write(out)
        except UpstreamBroken as error:
            log.warning("%s: %s", call.upstream.name, error)
            self._app.meters.stream_aborted("upstream")
            if watch is None:
                raise Gone from error  # the body is shorter than announced: the cut shows it
            return watch.cut(str(error))
        except asyncio.CancelledError:
            if watch is not None and not self._channel.gone:
                await self._channel.write(watch.cut(ENDED), more=False)
            raise
        if watch is None:
            return b""
        last = watch.rest()
        if watch.known and not watch.ended and watch.failed is None:
            log.warning("%s ended a stream before its answer did", call.upstream.name)
            self._app.meters.stream_aborted("upstream")
            return last + watch.cut(SHORT)
        return last

    async def _bound_answer(self, opened: OpenAnswer) -> AsyncIterator[bytes]:
        """Yield an answer's chunks; raises UpstreamBroken if it is too large or takes too long."""
        most, size = self._serve.answer_bytes, len(opened.data)
        until = time.monotonic() + self._serve.answer_s
        async for chunk in opened.stream:
            size += len(chunk)
            if size > most or time.monotonic() > until:
                raise UpstreamBroken("the answer did not come to an end: it is broken off")
            yield chunk

    # --- the rest -------------------------------------------------------------------------------

    async def _check_body(self, raw: bytes, model: str | None) -> None:
        workers = self._app.workers
        if workers is not None and len(raw) > LARGE:
            with _reading():
                body = await check_far(workers, self._head.party, raw)
        else:
            body = await self._read_body(raw, "")
        await self._forward_body(find_upstream(self._serve, body, model)[0], raw)

    async def _forward_plain(self, raw: bytes) -> None:
        path = self._head.path
        upstream = choose_upstream(self._serve, path, raw)
        await self._forward_body(upstream, raw, find_unlisted(self._serve, path, upstream))

    async def _forward_body(
        self, upstream: Upstream, raw: bytes, unlisted: Sequence[dict[str, str | int]] = ()
    ) -> None:
        try:
            response = await self._send(upstream, raw)
        except UpstreamBroken as error:
            raise make_refused(error) from error
        try:
            status = response.status
            back = heads.back(response.headers, status, sized=not unlisted)
            await self._channel.begin(status, back)
            chunks = response.chunks()
            async for chunk in extend_listing(chunks, unlisted) if unlisted else chunks:
                await self._channel.write(chunk)
            await self._channel.write(b"", more=False)
        except UpstreamBroken as error:
            log.warning("%s: %s", upstream.name, error)
            raise Gone from error  # as above
        finally:
            await response.aclose()


@contextmanager
def _reading() -> Iterator[None]:
    """Refuse with 503 if a body could not be read in time."""
    try:
        yield
    except (TimeoutError, WorkerLost) as error:
        text = "this body takes too long to read: it was given up"
        raise RequestRefused(503, "body_unread", text) from error


async def _read_whole(made: OpenAnswer) -> OpenAnswer:
    """Read a non-streamed answer; one that is too long to keep is only relayed."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in made.stream:
        pieces.append(chunk)
        size += len(chunk)
        if size > WHOLE:
            break
    else:
        made.whole = True
    made.data = b"".join(pieces)
    status = made.response.status
    if status >= 400 and made.whole:
        text = made.data.decode("utf-8", "replace")
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in made.response.headers}
        made.found = trouble(status, parse_object(made.data) or text, text, headers)
    return made


def _is_usage_unasked(plan: Plan, again: Plan) -> bool:
    """Tell whether the new plan only drops the proxy's own request for a usage report."""
    return plan.spliced and not again.spliced and again.view is plan.view


def _is_withdrawn(plan: Plan, again: Plan) -> bool:
    """Tell whether the new plan only drops tools of the proxy."""
    return plan.offer is not None and again.offer is None


_make_bounds: Final = lru_cache(bodies.Bounds)

"""Passes one request of a conversation through the guard, and learns from its answer.

The guard decides. If it fails, the request goes out as it came (`fail_open`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ullage.begun import wait_within
from ullage.core.dialects.thinking import lower_thinking
from ullage.core.errors import MalformedHistoryError
from ullage.core.guard.events import Answered, ContextPressure
from ullage.core.tokens.cost import cost
from ullage.core.tokens.gauge import assess
from ullage.core.values.frozen import replace
from ullage.guard.defaults import make_summarizer
from ullage.guard.planning import THREADS
from ullage.proxy.body import RequestRefused, encode_json
from ullage.proxy.call import ProxyCall, find_limit, make_request
from ullage.proxy.ledger import Ledger
from ullage.proxy.offering import (
    Offer,
    find_offer,
    is_about_tools,
    prepare,
    write_tools,
)
from ullage.proxy.ports import Ports, find_policy
from ullage.proxy.standing import Standing, find_full, find_standing, make_entry
from ullage.proxy.steering import Steering
from ullage.proxy.stored import Histories, MeasuredRequest, key_of, name_of
from ullage.proxy.unguarded import UnguardedReason, find_unread
from ullage.runtime import Measurable
from ullage.sdk.errors import Trouble, classify_error

if TYPE_CHECKING:
    from ullage.config.serving import Serve
    from ullage.core.guard.events import Event
    from ullage.core.tokens.gauge import Assessment, Tier
    from ullage.core.tokens.window import Window
    from ullage.guard.port import Port
    from ullage.guard.view import View
    from ullage.proxy.far import FarPlan
    from ullage.proxy.stored import Held
    from ullage.runtime import Runtime
    from ullage.storage import Store

log = logging.getLogger("ullage.proxy")

SMALL: Final = 65_536
"""Bytes up to which a body is handled in the event loop; larger ones run in a thread."""

DEADLINE_S: Final = 20.0
"""Seconds that the guard may take; then the request goes out as it came."""

SUMMARY_S: Final = 300.0
"""Seconds that the guard may take if a model writes summaries: half of the 600 that OpenAI's and
Anthropic's SDKs wait for an answer."""

SILENT: Final = frozenset({"ollama", "koboldcpp"})
"""Servers that silently cut a prompt that is too long (docs/servers.md)."""

Refused = tuple[str, str, str, str]
"""The kind of field that an upstream refused ("usage", "tools"), its address, model and party."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The request to send to the upstream for a call.

    `view` is None without the guard; `standing` is its finding. `measured` is the request that the
    id of the response will refer to, if there is one. `spliced` tells that the proxy asked for the
    usage report. `headers` tell the client about the changes. `offer` are the added tools. `far` is
    the plan in a worker. `spared` names its conversation if it is compacted only when it does not
    fit. `unguarded` says why the call goes out as it came although it may carry a conversation.
    """

    body: bytes
    view: View | None = None
    port: Port | None = None
    spliced: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
    fault: str = ""
    measured: MeasuredRequest | None = None
    offer: Offer | None = None
    standing: Standing | None = None
    far: FarPlan | None = None
    spared: bytes | None = None
    unguarded: UnguardedReason | None = None

    @property
    def about(self) -> Standing | MeasuredRequest | None:
        """The known state of the conversation."""
        return self.standing or self.measured


class UpstreamRefused(Exception):  # noqa: N818 - what a view learns from
    """A refusal, in the shape that errors are read in."""

    def __init__(self, status: int, body: Any) -> None:
        self.status_code = status
        self.body = body
        super().__init__(f"the upstream answered {status}")


class Guarding:
    """Keeps guards by upstream, model, credential and rule, and applies them to requests."""

    def __init__(
        self,
        serve: Serve,
        runtime: Runtime,
        store: Store,
        ledger: Ledger,
        histories: Histories | None = None,
    ) -> None:
        self._serve = serve
        self._runtime = runtime
        self._ledger = ledger
        self._lock = threading.Lock()
        self.refused: set[Refused] = set()
        self.tell_refused: Callable[[Refused], None] = _tell_nobody
        self.tell_steered: Callable[[bytes, Steering], None] = _tell_nobody
        self._searches = hasattr(store.originals, "search")
        self._histories = histories or Histories()
        found = serve.summarizer or runtime.settings.summarizer
        summarizer = make_summarizer(runtime, found)
        self._ports = Ports(serve, runtime, store, summarizer)
        self.make_question = self._ports.make_question
        self.steering = Steering()
        self.patience_s = DEADLINE_S if summarizer is None else SUMMARY_S

    async def plan(self, call: ProxyCall) -> Plan:
        """Return what to send for a call; its own bytes if nothing is to be done.

        Raises RequestRefused if the guard fails and requests may not go out without it.
        """
        if call.body.opaque or not (call.kept or call.body.history):
            return _leave(call, find_unread(call))
        try:
            if call.far is not None:
                return await call.far.plan(call, self.patience_s, self.steering)
            return await self._plan_here(call)
        except RequestRefused:
            raise
        except MalformedHistoryError as error:  # the upstream judges it
            return _leave(call, UnguardedReason("malformed_history", str(error)))
        except Exception as error:
            if not self._serve.fail_open:
                raise RequestRefused(
                    500, "guard_failed", "the guard failed: see the log"
                ) from error
            log.exception("the guard failed; the request goes out as it came")
            fault = type(error).__name__
            return replace(_leave(call, UnguardedReason("guard_failed", fault)), fault=fault)

    async def fit(
        self,
        call: ProxyCall,
        pins: frozenset[int] = frozenset(),
        target: int | None = None,
        *,
        reserve: int = 0,
    ) -> Plan:
        """Return the plan of a call that its client sends by itself: repaired, and made to fit.

        `reserve` tokens stay free for an answer whose length cannot be lowered here. With `target`,
        the call is compacted to so many tokens. Raises the errors of a guard, and TimeoutError.
        """
        call, spared = self.steering.apply(call)
        async with asyncio.timeout(self.patience_s):
            port = self._ports.find(call).relay(
                repairs=not call.rule.observe, keeps=self._ports.is_keeping(call)
            )
            request, spoken = make_request(call), call.form.dialect
            request = replace(request, pins=request.pins | pins, reserve=reserve)
            if target is None or call.rule.observe:
                view = await port.aprepare(request, spoken)
            else:
                view = await port.acompact(request, spoken, target)
        standing = find_standing(call, view, find_policy(call))
        return Plan(b"", view, port, standing=standing, spared=spared)

    async def _plan_here(self, call: ProxyCall) -> Plan:
        call, spared = self.steering.apply(call)
        if call.kept:
            return await wait_within(self.patience_s, self._forwarding(call))
        port = self._ports.find(call)
        preparing = prepare(port, call, self._find_offer(call))
        view, offer = await wait_within(self.patience_s, preparing)
        if len(call.body.raw) <= SMALL:
            plan = self._of(call, port, view, offer)
        else:
            plan = await THREADS.run(self._of, call, port, view, offer)
        return plan if spared is None else replace(plan, spared=spared)

    async def again(self, call: ProxyCall, plan: Plan, found: Trouble) -> Plan | None:
        """Return the plan after a failure, or None if nothing helps."""
        if call.rule.observe:
            return None
        if plan.far is not None:
            return await plan.far.again(call, found, self.patience_s)
        return await self._plan_again(call, plan, found)

    async def _plan_again(self, call: ProxyCall, plan: Plan, found: Trouble) -> Plan | None:
        if plan.view is None or plan.port is None:
            return plan if found.lost else None
        if plan.spliced and _rejects_usage(found):
            self._note_refused("usage", call)
            return self._of(call, plan.port, plan.view, plan.offer)
        if plan.offer is not None and is_about_tools(found):
            return await self._withdraw(call, plan.port)
        if self.find_refused(call, plan, found) is not None:
            return None
        return await self._recover(call, plan, plan.port, found)

    async def _recover(
        self, call: ProxyCall, plan: Plan, port: Port, found: Trouble
    ) -> Plan | None:
        """Return the plan after a refusal of the history, or None if nothing helps."""
        view = cast("View", plan.view)
        if found.kind.kind == "malformed_history" and found.kind.about is None:
            port = port.relay(repairs=True, keeps=self._ports.is_keeping(call))
            mended = await port.aprepare(make_request(call, plan.offer), call.form.dialect)
            return None if _same(mended, view) else self._of(call, port, mended, plan.offer)
        smaller = await port.aretry(view, found)
        return None if smaller is None else self._of(call, port, smaller, plan.offer)

    async def _withdraw(self, call: ProxyCall, port: Port) -> Plan:
        """Return the plan without the added tools, since a server may refuse them.

        If the client has no tools of its own, the refusal is remembered.
        """
        if not call.body.fields.get("tools"):
            self._note_refused("tools", call)
        view = await port.aprepare(make_request(call), call.form.dialect)
        return self._of(call, port, view)

    async def take_back(self, plan: Plan) -> None:
        """Undo the compaction that a recovery stored, since its plan failed all the same."""
        try:
            if plan.far is not None:
                await plan.far.take_back()
            elif plan.view is not None and plan.port is not None:
                await plan.port.atake_back(plan.view)
        except Exception:
            if not self._serve.fail_open:
                raise
            log.exception("a compaction that did not help could not be taken back")

    async def learn(self, plan: Plan, report: Any) -> Assessment | None:
        """Learn from an answer, and return how full it shows the window to be.

        With `fail_open`, a fault here only goes to the log. Learning takes at most the guard's time
        limit.
        """
        if report is None:
            return None
        found = None
        try:
            if plan.measured is not None:
                self._remember(plan.measured, report)
            if plan.far is not None:
                found = await plan.far.learn(report)
            elif plan.view is not None:
                found = await wait_within(DEADLINE_S, plan.view.aobserve(report))
        except Exception:
            if not self._serve.fail_open:
                raise
            log.exception("the guard could not learn from an answer")
        return found

    def _remember(self, measured: MeasuredRequest, report: Any) -> None:
        """Keep the usage of a response id; a guard counts its own answers itself."""
        usage = self._histories.learn(measured, report)
        if usage is not None and measured.found is not None:
            priced = cost(usage, measured.prices) if measured.prices else None
            self._tell(Answered(usage, priced, measured.model or ""), measured.model)

    def learn_refusal(self, plan: Plan, status: int, body: Any) -> None:
        """Learn from a refusal that is passed on."""
        if plan.far is not None:
            plan.far.learn_refusal(status, body)
        elif plan.view is not None:
            plan.view.observe(UpstreamRefused(status, body))

    def cut_in_silence(self, call: ProxyCall, plan: Plan) -> tuple[int, int] | None:
        """Return (tokens, bound) if the server would silently cut the request, else None."""
        found = plan.standing
        if found is None or call.rule.observe:
            return None
        if find_policy(call).client_compacts:
            return find_full(call, found)
        bound, count = found.window.input_tokens, found.count
        if bound is None or not found.window.proven or count.low + call.beside < bound:
            return None
        question, windows = self.make_question(call), self._runtime.windows
        if (call.upstream.server or windows.server(question)) not in SILENT:
            return None
        if found.window.is_learned and windows.start_trial(question):
            return None
        return count.high + call.beside, bound

    def find_refused(self, call: ProxyCall, plan: Plan, found: Trouble) -> tuple[int, int] | None:
        """Return (tokens, bound) of a request that the upstream refused, if the client compacts."""
        kind, known = found.kind, plan.standing
        if known is None or call.rule.observe or kind.kind not in ("input", "total"):
            return None
        if not find_policy(call).client_compacts:
            return None
        tokens = kind.input_tokens or known.count.tokens
        bound = kind.limit or known.window.input_tokens or tokens - 1
        return max(tokens, bound + 1), bound

    def note(self, call: ProxyCall, plan: Plan, status: int) -> tuple[Tier, Tier] | None:
        """Record the state of the conversation; return the tier before and now, if known."""
        found = plan.about
        if found is None or (isinstance(found, MeasuredRequest) and found.found is None):
            return None
        before = self._ledger.get(found.name)
        entry = make_entry(call, found, before, self._runtime.now(), status)
        self._ledger.note(entry)
        if plan.spared and plan.standing is not None and plan.standing.made is not None:
            spared = plan.spared
            self.steer(spared, lambda steering: steering.spare(spared, yes=False))
        was = before.tier if before is not None else "unavailable"
        return cast("Tier", was), cast("Tier", entry.tier)

    # --- steps ----------------------------------------------------------------------------------

    async def _forwarding(self, call: ProxyCall) -> Plan:
        """Return the plan for a request whose history its server keeps: its bytes, measured."""
        window = await self._runtime.windows.awindow(self.make_question(call))
        held = await self._histories.fetch(self._scope(call), key_of(call.body.fields))
        if len(call.body.raw) <= SMALL:
            measured, found = self._measure_stored(call, window, held)
        else:
            measured, found = await THREADS.run(self._measure_stored, call, window, held)
        self._tell(ContextPressure(found, found.tier), call.model)
        context = _context(found.input_tokens, window.input_tokens, measured.basis, found.tier)
        return Plan(call.body.raw, headers=((b"x-ullage-context", context),), measured=measured)

    def _tell(self, event: Event, model: str | None) -> None:
        if self._runtime.metrics is not None:
            self._runtime.metrics.record_event(event, model)

    def _measure_stored(
        self, call: ProxyCall, window: Window, held: Held | None
    ) -> tuple[MeasuredRequest, Assessment]:
        """Measure a request whose history its server keeps: its own part plus the history."""
        question, said = self.make_question(call), call.body.fields.get(call.form.fields.messages)
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else None
        request = make_request(call)
        spoken = call.form.dialect
        body = Measurable(messages or request.messages, request.tools, request.apart, spoken)
        own = self._runtime.measure(question, self._runtime.read(body), body)
        scope, key = self._scope(call), key_of(call.body.fields)
        size = held.with_(own) if held is not None else None
        found = assess(size, window, thresholds=find_policy(call).thresholds)
        name = held.name if held is not None else name_of(scope, key)
        if call.session and call.apart:
            name = call.apart
        prices = self._runtime.windows.prices(question)
        basis = size.basis if size is not None else ""
        return MeasuredRequest(scope, name, own, key, found, basis, call.model, prices), found

    def _scope(self, call: ProxyCall) -> str:
        return f"{call.upstream.name}|{self.make_question(call).tenant}"

    def _find_offer(self, call: ProxyCall) -> Offer | None:
        """Return the tools that may be added to a request, or None.

        Reasoning that is bound to everything before it would not survive a round that its client
        never sees.
        """
        if not call.rule.recall_tools or call.round is not None:
            return None
        if _name_refused("tools", call) in self.refused:
            return None
        if "bound_thinking" in self._runtime.find_laws(self.make_question(call)):
            return None
        return find_offer(call, searches=self._searches)

    def steer(self, named: bytes, change: Callable[[Steering], Steering]) -> Steering:
        """Change an operator's wishes for a conversation; return all wishes as they are now.

        Any thread may call it. The other replicas are told.
        """
        with self._lock:
            before = self.steering
            made = self.steering = change(before)
        if made != before:
            self.tell_steered(named, made)
        return made

    def take_in(self, named: bytes, pins: frozenset[bytes], *, spared: bool) -> None:
        """Take in an operator's wishes for a conversation that another replica received."""
        with self._lock:
            self.steering = self.steering.put(named, pins, spared=spared)

    def _note_refused(self, what: Literal["usage", "tools"], call: ProxyCall) -> None:
        refused = _name_refused(what, call)
        self.refused.add(refused)
        self.tell_refused(refused)

    def _of(self, call: ProxyCall, port: Port, view: View, offer: Offer | None = None) -> Plan:
        """Return the plan of a view: the body with the changes spliced in."""
        edits: dict[str, bytes] = {}
        standing = find_standing(call, view, find_policy(call))
        count, tier = standing.count, standing.tier
        context = _context(count.tokens, view.window.likely_tokens, count.basis, tier)
        headers = [(b"x-ullage-context", context)]
        if not call.rule.observe:
            edits, told = self._edits(call, view)
            headers += told
        if offer is not None:
            edits["tools"] = write_tools(call.body.bytes_of("tools"), offer)
            headers.append((b"x-ullage-tools", ", ".join(sorted(offer.names)).encode("ascii")))
        if call.round is not None and call.round.silent and call.form.spoken.added_tools:
            edits["tool_choice"] = encode_json(call.form.spoken.added_tools.no_call)
        tight = view.prepared.cramped
        if tight is not None:
            sized = f"fixed={tight.fixed}; window={tight.bound}; needed={tight.needed}"
            headers.append((b"x-ullage-window", sized.encode("ascii")))
        spliced = self._asks_usage(call)
        if spliced:
            options = call.body.fields.get("stream_options")
            asked = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
            edits["stream_options"] = encode_json(asked)
        measured = None
        if call.form.fields.stored:
            measured = MeasuredRequest(self._scope(call), standing.name, view.prepared.measured)
        data = call.body.splice(edits)
        return Plan(data, view, port, spliced, tuple(headers), "", measured, offer, standing)

    def _edits(
        self, call: ProxyCall, view: View
    ) -> tuple[dict[str, bytes], list[tuple[bytes, bytes]]]:
        """Return the changed fields, and the headers that report them."""
        body, form, prepared = call.body, call.form, view.prepared
        edits: dict[str, bytes] = {}
        told: list[tuple[bytes, bytes]] = []
        if (
            body.grown
            or len(prepared.messages) != len(body.history)
            or any(a is not b for a, b in zip(prepared.messages, body.history, strict=True))
        ):
            edits[form.fields.messages] = body.rewrite_history(prepared.messages)
        made = prepared.checkpoint or prepared.replayed
        if made is not None:
            told.append((b"x-ullage-compaction", _compaction(made)))
        asked = find_limit(call)
        given = prepared.max_tokens
        lower = given if asked is not None and given != asked[1] else None
        if asked is not None and lower is not None:
            told.append((b"x-ullage-output", f"max_tokens={lower}; asked={asked[1]}".encode()))
        options, inside = form.spoken.options, form.fields.inside
        if options is not None and inside is not None:
            held = options.write(body.fields, self._serve.num_ctx, lower)
            if held is not None:
                edits[inside] = encode_json(held)
        elif asked is not None and lower is not None:
            fields = lower_thinking(body.fields, asked[1], lower)
            if inside is None:
                fields[asked[0]] = lower
            else:
                fields[inside] = {**fields.get(inside, body.fields[inside]), asked[0]: lower}
            edits |= {name: encode_json(value) for name, value in fields.items()}
        return edits, told

    def _asks_usage(self, call: ProxyCall) -> bool:
        """Tell whether to ask for a usage report that the client did not ask for."""
        if not call.form.spoken.endpoint.trailing or not call.streams or call.rule.observe:
            return False
        if self._serve.usage != "inject" or _name_refused("usage", call) in self.refused:
            return False
        options = call.body.fields.get("stream_options")
        return not (isinstance(options, Mapping) and options.get("include_usage"))


def _name_refused(what: Literal["usage", "tools"], call: ProxyCall) -> Refused:
    return what, call.upstream.root, call.model or "", call.party


def _leave(call: ProxyCall, found: UnguardedReason | None) -> Plan:
    """Return the plan of a call that goes out as it came; `found` is the reason, if it matters."""
    headers = () if found is None else (found.header,)
    return Plan(call.body.raw, headers=headers, unguarded=found)


def _tell_nobody(*_: object) -> None:
    """Do nothing; a proxy with replicas replaces this with a function that tells them."""


def _same(one: View, other: View) -> bool:
    mine, theirs = one.prepared.messages, other.prepared.messages
    return len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True))


def _context(tokens: int | None, bound: int | None, basis: str, tier: str) -> bytes:
    """Say how full the window is, leaving out unknown values."""
    said = {"used": tokens, "window": bound, "basis": basis or None, "tier": tier}
    parts = [f"{name}={value}" for name, value in said.items() if value is not None]
    return "; ".join(parts).encode("ascii", "replace")


def _compaction(made: Any) -> bytes:
    said = f"strategy={made.strategy}; before={made.tokens_before}; after={made.tokens_after}"
    return said.encode("ascii", "replace")


def _rejects_usage(found: Trouble) -> bool:
    return "stream_options" in found.text or "include_usage" in found.text


def trouble(status: int, body: Any, text: str, headers: Mapping[str, str]) -> Trouble:
    """Return the meaning of a refusal."""
    return Trouble(classify_error(status, body, headers=headers), text=text)

"""Answers the endpoints of `/ullage/v1`: their clients send requests to a model themselves.

The requests use the same guards, windows and stores as forwarded ones, and find the same
conversations. The module knows no HTTP; it works the same way in a worker.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UnsetType

from ullage.core.compaction.edits import find_references
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError, MalformedHistoryError, StoreError
from ullage.core.guard.events import Repaired
from ullage.core.messages.size import Size
from ullage.core.search.ranking import SearchArea
from ullage.core.session.recall import cut_page
from ullage.guard.planning import THREADS
from ullage.guard.steps import list_steps
from ullage.proxy import body as bodies
from ullage.proxy import forms
from ullage.proxy.body import Body, RequestRefused, encode_json
from ullage.proxy.call import ProxyCall, find_limit, make_call
from ullage.proxy.endpoints import BY_PATH
from ullage.proxy.guarding import SMALL, Plan, trouble
from ullage.proxy.offering import find_script, is_over
from ullage.proxy.reach import find_reachable
from ullage.proxy.routes import GuardedPath
from ullage.runtime import Measurable
from ullage.windows.question import BY, mark_credential

if TYPE_CHECKING:
    from ullage.config.serving import Serve
    from ullage.core.tokens.counting import Count
    from ullage.core.tokens.gauge import Assessment
    from ullage.core.tokens.window import Window
    from ullage.guard.view import View
    from ullage.proxy.guarding import Guarding
    from ullage.proxy.head import RequestHead
    from ullage.proxy.keeping import Keeping
    from ullage.proxy.sharing import Sharing
    from ullage.runtime import Runtime
    from ullage.storage.protocol import SearchesOriginals

MOST_SESSIONS: Final = 1_000
"""Sessions whose readable references are remembered; the least recently used one is dropped."""

SessionKey = tuple[str, str]

TOPIC: Final = "reach"
"""The topic under which replicas share the references of sessions."""

MALFORMED: Final = "malformed_history"
UNKNOWN_SESSION: Final = "no_such_session"
NO_SESSION: Final = (
    "this proxy knows no such session (any more): fit it again, or send the messages of it"
)
NO_TEXT: Final = (
    "nothing that was left out of this conversation has the reference {name!r}: copy one from a "
    "placeholder, and have the proxy keep texts (recall_tools or store_transcripts)"
)


@dataclass(frozen=True, slots=True)
class ApiReply:
    """The answer of an endpoint: a JSON body, and data to record.

    `call` and `plan` describe the state of the conversation, without its text. `names` are the
    references that its session may read back.
    """

    body: bytes
    call: ProxyCall | None = None
    plan: Plan | None = None
    names: frozenset[str] | None = None


class ReadableNames:
    """The references that each session may read back as of its last request. One event loop.

    They are kept in memory, and shared with other replicas through `sharing`.
    """

    def __init__(self, sharing: Sharing | None = None) -> None:
        self._held: OrderedDict[SessionKey, frozenset[str]] = OrderedDict()
        self._sharing = sharing

    def note(self, call: ProxyCall, names: frozenset[str]) -> None:
        """Remember the references of a session."""
        key = _find_key(call)
        if self._sharing is not None:
            self._sharing.tell(TOPIC, *key, {"names": sorted(names)})
        self._put(key, names)

    async def fetch(self, call: ProxyCall) -> frozenset[str] | None:
        """Return the references of a session, or None if no replica knows it.

        If another replica served the session meanwhile, the store has the newer ones.
        """
        key = _find_key(call)
        told = None if self._sharing is None else await self._sharing.find(TOPIC, *key)
        names = None if told is None else told.get("names")
        if isinstance(names, list):
            self._put(key, frozenset(map(str, names)))
        return self._held.get(key)

    def _put(self, key: SessionKey, names: frozenset[str]) -> None:
        self._held[key] = names
        self._held.move_to_end(key)
        if len(self._held) > MOST_SESSIONS:
            self._held.popitem(last=False)


def _find_key(call: ProxyCall) -> SessionKey:
    """Return the owner and name of a session without secrets, since the store keeps them."""
    by = f"{BY}{call.party}" if call.party else ""
    named = hashlib.blake2b((call.apart or "").encode("utf-8", "surrogatepass"), digest_size=16)
    return f"{call.upstream.root}|{mark_credential(call.credential)}{by}", named.hexdigest()


class Fitting:
    """Answers requests to the endpoints. `known` is None in a worker, which remembers nothing."""

    def __init__(
        self,
        serve: Serve,
        guarding: Guarding,
        runtime: Runtime,
        store: Keeping,
        known: ReadableNames | None = None,
    ) -> None:
        self._serve, self._guarding = serve, guarding
        self._runtime, self._store = runtime, store
        self._known = known or ReadableNames()

    async def answer(self, head: RequestHead, path: str, raw: bytes) -> ApiReply:
        """Return the answer to a request. Raises RequestRefused if it cannot be answered."""
        endpoint = BY_PATH[path]
        serve = self._serve
        bounds = bodies.Bounds(serve.max_messages, serve.max_n, serve.max_depth)
        if len(raw) <= SMALL:
            body = bodies.read(raw, "messages", bounds)
        else:
            body = await THREADS.run(bodies.read, raw, "messages", bounds)
        asked = parse_request(endpoint.takes, body)
        try:
            reply: ApiReply = await getattr(self, f"_{endpoint.name}")(head, asked, body)
        except (MalformedHistoryError, ConfigurationError) as error:
            raise RequestRefused(422, error.code, str(error)) from error
        except TimeoutError as error:
            text = "the guard took too long: come again, or send the request as it is"
            raise RequestRefused(503, "guard_late", text) from error
        except StoreError as error:
            text = "the store cannot be read or written now: see the log of the proxy"
            raise RequestRefused(503, "store_failed", text) from error
        return reply

    # --- the endpoints --------------------------------------------------------------------------

    async def _fit(self, head: RequestHead, asked: forms.FitRequest, body: Body) -> ApiReply:
        call = self._make_call(head, asked, body)
        if asked.reported is not None:
            await self._learn(call, asked.reported, asked.pins)
        pins, reserve = frozenset(asked.pins), asked.reserve or 0
        plan = await self._guarding.fit(call, pins, asked.target, reserve=reserve)
        made = await self._run(body, self._write, call, plan)
        names = await self._note_names(call, plan)
        return ApiReply(encode_answer(made), _strip_call(call), _strip_plan(plan), names)

    async def _observe(
        self, head: RequestHead, asked: forms.ObserveRequest, body: Body
    ) -> ApiReply:
        if isinstance(asked.report, UnsetType) == isinstance(asked.error, UnsetType):
            raise ConfigurationError("an observation has either a report or an error: send one")
        call = self._make_call(head, asked, body)
        guarding = self._guarding
        plan = await guarding.fit(call, frozenset(asked.pins), reserve=asked.reserve or 0)
        view = cast("View", plan.view)
        kind, retry, names, found = None, None, None, view.assessment
        if not isinstance(asked.error, UnsetType):
            kind, again = await self._recover(call, plan, asked.error)
            if again is not None:
                retry = await self._run(body, self._write, call, again)
                names = await self._note_names(call, again)
                plan, view = again, cast("View", again.view)
                found = view.assessment
        else:
            told = await guarding.learn(plan, asked.report)
            found = told or found
        window = await self._runtime.windows.awindow(guarding.make_question(call))
        made = forms.ObserveAnswer(
            kind=kind, gauge=write_gauge(found), window=write_window(window), retry=retry
        )
        return ApiReply(encode_answer(made), _strip_call(call), None, names)

    async def _count(self, head: RequestHead, asked: forms.CountRequest, body: Body) -> ApiReply:
        if isinstance(asked.messages, UnsetType) == isinstance(asked.text, UnsetType):
            raise ConfigurationError("either messages or a text is counted: send one of them")
        call = self._make_call(head, asked, body)
        question, spoken = self._guarding.make_question(call), call.form.dialect
        if not isinstance(asked.text, UnsetType):
            meter = await self._run(body, self._runtime.meter, question, spoken)
            raw = await self._run(body, meter.counter.count, asked.text)
            low, best, high = meter.scale.of(Size(raw, raw, raw))
            count = forms.CountAnswer(tokens=best, low=low, high=high, basis=meter.basis)
            return ApiReply(encode_answer(count))
        measured = await self._run(body, self._measure, call)
        request = Measurable(body.history, asked.tools, asked.system, spoken)
        if self._runtime.windows.is_probed(question):
            await self._runtime.windows.awindow(question)
        told = await self._runtime.aserver_count(question, spoken, request)
        found = (measured if told is None else measured.with_server_count(told)).count()
        made = forms.CountAnswer(
            tokens=found.tokens, low=found.low, high=found.high, basis=found.basis
        )
        return ApiReply(encode_answer(made))

    async def _window(self, head: RequestHead, asked: forms.WindowRequest, body: Body) -> ApiReply:
        call = self._make_call(head, asked, body)
        window = await self._runtime.windows.awindow(self._guarding.make_question(call))
        return ApiReply(encode_answer(write_window(window)))

    async def _recall(self, head: RequestHead, asked: forms.RecallRequest, body: Body) -> ApiReply:
        named = await self._find_readable(head, asked, body)
        read, text = self._store.originals.read, None
        if asked.reference in named:
            text = await self._store.desk.writes.run(read, asked.reference)
        if text is None:
            raise RequestRefused(404, "no_such_text", NO_TEXT.format(name=asked.reference))
        page = cut_page(text, asked.offset, asked.limit)
        made = forms.RecallAnswer(
            reference=asked.reference,
            text=cast("str", msgspec.Raw(encode_json(page.text))),
            offset=page.offset,
            total=page.total,
            after=page.after,
        )
        return ApiReply(encode_answer(made))

    async def _search(self, head: RequestHead, asked: forms.SearchRequest, body: Body) -> ApiReply:
        named = await self._find_readable(head, asked, body)
        originals = self._store.originals
        if not hasattr(originals, "search"):
            raise ConfigurationError("the store of this proxy cannot be searched: recall can read")
        search = cast("SearchesOriginals", originals).search
        area = SearchArea(references=named)
        hits = await self._store.desk.writes.run(search, asked.query, asked.hits, area)
        found = [
            forms.FoundPassage(
                reference=hit.reference,
                offset=hit.offset,
                text=cast("str", msgspec.Raw(encode_json(hit.text))),
                score=round(hit.score, 3),
            )
            for hit in hits
        ]
        return ApiReply(encode_answer(forms.SearchAnswer(hits=found)))

    # --- steps ----------------------------------------------------------------------------------

    def _make_call(self, head: RequestHead, asked: Any, body: Body) -> ProxyCall:
        """Return a request as a call in its own dialect."""
        history = body.history
        system = getattr(asked, "system", None)
        tools = getattr(asked, "tools", None)
        shown = Measurable(history, tools, system, getattr(asked, "dialect", None))
        spoken = registry.find(shown.find_dialect())
        fields, limit = spoken.fields, getattr(asked, "max_tokens", None)
        given: dict[str, Any] = {"model": asked.model, "stream": False, "tools": tools}
        if system is not None:
            if fields.system is None:
                raise ConfigurationError(
                    f"these messages read as {spoken.title}, where the system text is a message: "
                    "put it first in messages, or name another dialect"
                )
            given[fields.system] = system
        if limit is not None:
            held = {fields.limit: limit}
            given |= held if fields.inside is None else {fields.inside: held}
        head = replace(head, session=_find_session(head, getattr(asked, "session", None)))
        made = Body(b"{}", given, history, body.slices)
        call = make_call(self._serve, head, GuardedPath(spoken.name, fields), made)
        window = getattr(asked, "window", None)
        if window is not None:
            call = replace(call, rule=replace(call.rule, window=window))
        return call

    async def _run(self, body: Body, work: Any, *arguments: Any) -> Any:
        """Run slow work on a large request in a thread."""
        if len(body.raw) <= SMALL:
            return work(*arguments)
        return await THREADS.run(work, *arguments)

    async def _learn(self, call: ProxyCall, told: forms.ReportedUsage, pins: Sequence[int]) -> None:
        """Learn from a usage report on the first messages of a history, as fitted then."""
        size = told.messages
        if not 0 < size <= len(call.body.history):
            raise ConfigurationError(
                f"reported.messages is {size:,}: of {len(call.body.history):,} messages the first "
                "ones were sent, at least one"
            )
        body = replace(call.body, history=call.body.history[:size], slices=None)
        before = frozenset(pin for pin in pins if pin < size)
        plan = await self._guarding.fit(replace(call, body=body), before)
        await self._guarding.learn(plan, told.report)

    async def _recover(
        self, call: ProxyCall, plan: Plan, told: forms.ReportedFailure
    ) -> tuple[str, Plan | None]:
        """Return the kind of a failure and what to send after it; learn from the failure."""
        text = told.body if isinstance(told.body, str) else encode_json(told.body).decode()
        found = trouble(told.status or 0, told.body, text, {})
        again = await self._guarding.again(call, plan, found)
        if again is None or again.view is plan.view:
            self._guarding.learn_refusal(plan, told.status or 0, told.body)
            again = None
        return found.kind.kind, again

    async def _find_readable(
        self, head: RequestHead, asked: forms.LeftOutRequest, body: Body
    ) -> frozenset[str]:
        """Return the references that the conversation of a request may read back."""
        call = self._make_call(head, asked, body)
        if asked.messages is not None:
            plan = await self._guarding.fit(call)
            return await self._store.desk.writes.run(self._find_names, call, plan)
        if call.session is None:
            raise ConfigurationError(
                "no conversation is named: name a session that was fitted, or send messages"
            )
        known = await self._known.fetch(call)
        if known is None:
            raise RequestRefused(404, UNKNOWN_SESSION, NO_SESSION)
        return known

    def _find_names(self, call: ProxyCall, plan: Plan) -> frozenset[str]:
        script = None if plan.view is None else find_script(plan.view)
        if script is None:
            return frozenset()
        body = Measurable(call.body.history, dialect=call.form.dialect)
        return find_reachable(script, self._runtime.read(body), self._store.originals.read)

    def _measure(self, call: ProxyCall) -> Any:
        fields = call.form.fields
        system = call.body.fields.get(fields.system or "")
        spoken, history = call.form.dialect, call.body.history
        body = Measurable(history, call.body.fields.get("tools"), system, spoken)
        question = self._guarding.make_question(call)
        return self._runtime.measure(question, self._runtime.read(body), body)

    async def _note_names(self, call: ProxyCall, plan: Plan) -> frozenset[str] | None:
        """Return the references that a session may read back, or None without a session."""
        if not call.session:
            return None
        return await self._store.desk.writes.run(self._find_names, call, plan)

    def _write(self, call: ProxyCall, plan: Plan) -> forms.FitAnswer:
        """Return the answer for a plan."""
        view, body = cast("View", plan.view), call.body
        prepared, history = view.prepared, body.history
        sent = prepared.messages
        steps = list_steps(history, sent, view.origin)
        changed = len(sent) != len(history) or any(s.keep is None for s in steps)
        standing, tight = plan.standing, prepared.cramped
        return forms.FitAnswer(
            changed=changed,
            messages=cast("Any", msgspec.Raw(body.rewrite_history(sent))),
            edits=[_write_step(step) for step in steps],
            max_tokens=_find_limit(call, view),
            fits=None if view.window.input_tokens is None else not is_over(view),
            dialect=call.form.dialect,
            sizes=self._write_sizes(call, view, changed=changed),
            gauge=write_gauge(view.assessment),
            window=write_window(view.window),
            compaction=_write_compaction(view),
            repairs=[
                forms.MadeRepair(fault=str(one.fault), message=one.message, detail=one.detail)
                for event in prepared.events
                if isinstance(event, Repaired)
                for one in event.repairs
            ],
            cramped=None
            if tight is None
            else forms.CrampedWindow(fixed=tight.fixed, window=tight.bound, needed=tight.needed),
            conversation="" if standing is None else standing.name,
        )

    def _write_sizes(self, call: ProxyCall, view: View, *, changed: bool) -> forms.FittedSizes:
        count: Count = view.prepared.count
        made = view.prepared.checkpoint
        before = count.tokens
        if made is not None:
            before = made.tokens_before
        elif changed:
            before = self._measure(call).count().tokens
        return forms.FittedSizes(
            before=before,
            after=count.tokens,
            low=count.low,
            high=count.high,
            outside=view.prepared.measured.outside().best,
            basis=count.basis,
        )


# --- reading and writing --------------------------------------------------------------------------


def parse_request(takes: type[Any], body: Body) -> Any:
    """Return a request of a type. Raises RequestRefused for invalid JSON or another type."""
    if body.opaque:
        text = "the body is no JSON object in UTF-8"
        raise RequestRefused(400, "not_json", text)
    given: dict[str, Any] = dict(body.fields)
    if "messages" not in given and body.bytes_of("messages"):
        given["messages"] = body.history
    try:
        return msgspec.convert(given, takes)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, "invalid_request", f"{error}") from error


def encode_answer(made: Any) -> bytes:
    """Return an answer as JSON."""
    return msgspec.json.encode(made)


def _find_session(head: RequestHead, named: str | None) -> str | None:
    if named is not None and head.session is not None and named != head.session:
        raise ConfigurationError("the session is named twice, in the body and x-ullage-session")
    if head.session is not None and not re.fullmatch(forms.SESSION_PATTERN, head.session):
        raise ConfigurationError("x-ullage-session is text in ASCII, without spaces around it")
    return named or head.session


def _find_limit(call: ProxyCall, view: View) -> int | None:
    """Return the `max_tokens` to send; if the rule only observes, the client's own."""
    if not call.rule.observe:
        return view.prepared.max_tokens
    asked = find_limit(call)
    return None if asked is None else asked[1]


def _write_step(step: Any) -> forms.EditStep:
    if step.keep is not None:
        return forms.EditStep(keep=step.keep)
    new = cast("Any", msgspec.Raw(encode_json(step.message)))
    if step.edit is not None:
        return forms.EditStep(new=new, edit=step.edit)
    return forms.EditStep(new=new, stands_for=list(step.stands_for))


def write_gauge(found: Assessment) -> forms.GaugeAnswer:
    """Return how full a window is, in the shape of an answer."""
    return forms.GaugeAnswer(
        tier=found.tier,
        ratio=None if found.ratio is None else round(found.ratio, 4),
        used=found.input_tokens,
        window=found.window_tokens,
        notice=found.notice(),
        reason=found.reason,
    )


def write_window(window: Window) -> forms.WindowAnswer:
    """Return a window in the shape of an answer."""
    return forms.WindowAnswer(
        known=window.known,
        input_tokens=window.input_tokens,
        total_tokens=window.total_tokens,
        output_tokens=window.output_tokens,
        source=window.source,
        proven=window.proven,
    )


def _write_compaction(view: View) -> forms.MadeCompaction | None:
    prepared = view.prepared
    made = prepared.checkpoint or prepared.replayed
    if made is None:
        return None
    edits: Sequence[Any] = (*made.script.clears, *made.script.inserts)
    names = {name for edit in edits for name in find_references(edit.text)}
    return forms.MadeCompaction(
        strategy=made.strategy,
        before=made.tokens_before,
        after=made.tokens_after,
        new=prepared.checkpoint is not None,
        references=sorted(names),
    )


def _strip_call(call: ProxyCall) -> ProxyCall:
    """Return a call without its text, but with the number of its messages."""
    history: list[Any] = [None] * len(call.body.history)
    return replace(call, body=Body(b"{}", history=history), pinned=frozenset())


def _strip_plan(plan: Plan) -> Plan:
    return replace(plan, view=None, port=None)

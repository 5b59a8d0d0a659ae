"""The proxy's conversations for the pages: rows, requests, compactions, and actions on them.

Numbers are kept of all conversations, messages only of the last few. Messages are kept only if the
operator is the one client: with several clients, nobody reads another's text.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ullage.api.compact import compact
from ullage.api.context import compaction_point, context
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError, UllageError
from ullage.core.messages.labels import shorten
from ullage.core.summary.flaws import name_strategies
from ullage.core.tokens.cost import cost, find_cache_rates
from ullage.live.breaks import find_break, is_broken, list_parts
from ullage.live.claims import describe_window
from ullage.live.feed import LateRow, RowFeed
from ullage.live.review import list_messages, review_script
from ullage.live.source import NotPossible, UnknownConversation
from ullage.live.values import (
    CompactionReview,
    LiveCompaction,
    LiveEvent,
    LiveMessage,
    LiveRequest,
    LiveSession,
    SessionDetail,
    measure_pace,
    share_cached,
)
from ullage.live.waste import list_waste
from ullage.proxy.held import HeldRequest, count_bytes, hold_request
from ullage.runtime import Measurable
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.request import Request
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.window import Window
    from ullage.guard.view import View
    from ullage.proxy.call import ProxyCall
    from ullage.proxy.guarding import Plan
    from ullage.proxy.ledger import Entry
    from ullage.runtime import Runtime

log = logging.getLogger("ullage.proxy")

SOURCE: Final = "proxy"
REQUESTS: Final = 500
EVENTS: Final = 300
READABLE: Final = 500
"""Conversations with a kept last request, for reading."""

REVIEWED: Final = 4
"""Compactions of each conversation that are kept for review."""

TITLE: Final = 120


@dataclass(slots=True)
class _Readable:
    """The last request of a conversation, and its compacted requests, each with its edits."""

    last: HeldRequest
    made: OrderedDict[int, tuple[Checkpoint, HeldRequest]] = field(default_factory=OrderedDict)
    size: int = 0
    """Bytes of text."""


@dataclass(slots=True)
class _Track:
    """The known numbers of one conversation.

    `entry` is that of its last request. `bound` is its window and policy, if it was guarded.
    `count`, `dollars` and `faults` are sums over all its requests.
    """

    owner: str
    entry: Entry
    question: Question
    dialect: str
    title: str = ""
    bound: tuple[Window, Policy] | None = None
    count: int = 0
    dollars: float | None = None
    faults: int = 0
    requests: deque[LiveRequest] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    events: deque[LiveEvent] = field(default_factory=lambda: deque(maxlen=EVENTS))
    compactions: list[LiveCompaction] = field(default_factory=list)

    def draw_row(self) -> LiveSession:
        """Return the current state of the conversation, for a list of them."""
        requests, made, entry = tuple(self.requests), tuple(self.compactions), self.entry
        last = requests[-1] if requests else LiveRequest(entry.at)  # the first is being taken in
        at = self.find_point()
        pace = measure_pace([one.tokens for one in requests], at or last.window)
        return LiveSession(
            source=SOURCE,
            id=entry.id,
            at=entry.at,
            title=self.title,
            owner=self.owner,
            model=entry.model,
            upstream=entry.upstream,
            state="active",
            used=last.tokens,
            window=last.window,
            compaction_at=at,
            basis=last.basis,
            tier=entry.tier,
            growth=pace.growth,
            left=pace.left,
            messages=entry.messages,
            requests=self.count,  # the ledger may have forgotten it in between
            dollars=self.dollars,
            cached=share_cached([one.usage for one in requests if one.usage is not None]),
            compactions=len(made),
            saved=sum(each.before - each.after for each in made),
            faults=self.faults,
            last=self.events[-1].text if self.events else f"answered {last.status}",
        )

    def find_point(self) -> int | None:
        """Return the tokens at which it is compacted, or None if unknown."""
        return None if self.bound is None else compaction_point(*self.bound)


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a request: when it began, its status, and the provider's report, if one came."""

    at: float
    status: int
    report: Any = None


class ConversationWatch:
    """Keeps the data of the pages. Requests write it, threads read it; `feed` has the rows."""

    def __init__(
        self, runtime: Runtime, *, reads: bool = False, most: int = 2_000, most_bytes: int = 2**22
    ) -> None:
        self.feed = RowFeed(most)
        self._most, self._most_bytes = most, most_bytes
        self.reads = reads
        self._runtime = runtime
        self._tracks: OrderedDict[str, _Track] = OrderedDict()
        self._readable: OrderedDict[str, _Readable] = OrderedDict()
        self._held = 0

    # --- fed by requests ------------------------------------------------------------------------

    def take(
        self, call: ProxyCall, plan: Plan, entry: Entry, question: Question, end: RequestEnd
    ) -> None:
        """Take in a finished request."""
        name, usage = entry.id, None
        if end.report is not None:
            usage = Usage.from_report(end.report, dialect=call.form.dialect)
        prices = self._runtime.windows.prices(question)
        track = self._tracks.pop(name, None)
        before = "unavailable" if track is None else track.entry.tier
        if track is None:
            track = _Track(call.client or "", entry, question, call.form.dialect)
        self._tracks[name] = track
        track.question, track.dialect = question, call.form.dialect
        while len(self._tracks) > self._most:
            self._forget(self._tracks.popitem(last=False)[0])
        made = self._note_compaction(call, plan, name, end.at)
        note = self._explain_break(name, track, plan, usage, prices, made=made)
        request = LiveRequest(
            end.at,
            usage.prompt_tokens if usage is not None else entry.used,
            entry.window,
            entry.tier,
            "provider" if usage is not None else entry.basis,
            usage,
            cost(usage, prices).total if usage is not None and prices else None,
            made,
            entry.used,
            end.status,
            note,
        )
        _insert(track.requests, request)
        self._keep_readable(name, call, plan)
        _note_end(track, request, note, before)
        self._sum_up(track, entry, request, call, plan)
        self._show(track)

    def _show(self, track: _Track) -> None:
        """Show the new state of this conversation to all viewers."""
        self.feed.put_late(f"{SOURCE}/{track.entry.id}", LateRow(track.draw_row))

    def _note_compaction(self, call: ProxyCall, plan: Plan, name: str, at: float) -> bool:
        track = self._tracks[name]
        standing = plan.standing
        made = standing.made if standing is not None else None
        if made is None:
            return False
        number = len(track.compactions) + 1
        view = plan.view
        checkpoint = None if view is None else view.prepared.checkpoint
        told = LiveCompaction(number, at, made.before, made.after, None, made.strategy)
        if checkpoint is not None:
            told = replace(
                told,
                trigger=checkpoint.trigger,
                policy=checkpoint.policy,
                left_out=checkpoint.source_count,
                lost=checkpoint.cached_tokens_lost,
            )
        if checkpoint is not None and checkpoint.since and track.compactions:
            last = track.compactions[-1]
            track.compactions[-1] = replace(last, since=dict(checkpoint.since))
        track.compactions.append(told)
        text = f"compacted {made.before:,} -> {made.after:,} tokens ({made.strategy})"
        track.events.append(LiveEvent(at, "compaction", text, len(track.requests) + 1))
        if checkpoint is not None and view is not None and self.reads:
            request = hold_request(call, plan, view)
            held = self._readable.setdefault(name, _Readable(request))
            held.made[number] = (checkpoint, request)
            while len(held.made) > REVIEWED:
                held.made.popitem(last=False)
        return True

    def _explain_break(
        self,
        name: str,
        track: _Track,
        plan: Plan,
        usage: Usage | None,
        prices: Sequence[Price],
        *,
        made: bool,
    ) -> str:
        """Return why the provider's cache was lost and the cost, or "" if it was not lost."""
        last = next((one.usage for one in reversed(track.requests) if one.usage), None)
        if usage is None or last is None or made:
            return ""
        if not is_broken(
            usage.prompt_tokens, usage.cache_read, last.prompt_tokens, last.cache_read
        ):
            return ""
        again = min(last.prompt_tokens, usage.prompt_tokens) - usage.cache_read
        rates = find_cache_rates(usage.prompt_tokens, prices) if prices else None
        price = "" if rates is None else f": ${again * (rates[1] - rates[0]) / 1e6:,.2f}"
        held, view = self._readable.get(name), plan.view
        found = None
        if held is not None and view is not None:
            before = held.last.read_sent()
            found = find_break(
                _list_sent(before, before.messages), _list_sent(view.request, view.messages)
            )
        why = "it had expired, or the provider let it go" if found is None else found.describe()
        return f"the cache was lost, {again:,} tokens were read anew; {why}{price}"

    def _keep_readable(self, name: str, call: ProxyCall, plan: Plan) -> None:
        if plan.view is None or not self.reads:
            self._forget(name)  # the held request is an earlier one
            return
        request = hold_request(call, plan, plan.view)
        held = self._readable.pop(name, None) or _Readable(request)
        held.last = request
        size = count_bytes([request, *(made for _, made in held.made.values())])
        self._held += size - held.size
        held.size = size
        self._readable[name] = held
        while len(self._readable) > 1 and (
            len(self._readable) > READABLE or self._held > self._most_bytes
        ):
            self._forget(next(iter(self._readable)))

    def forget_texts(self) -> None:
        """Forget every text: the readers change, and earlier text is not meant for the new ones."""
        self._readable.clear()
        self._held = 0
        for track in self._tracks.values():
            if track.title:
                track.title = ""
                self._show(track)

    def _forget(self, name: str) -> None:
        gone = self._readable.pop(name, None)
        self._held -= 0 if gone is None else gone.size

    def _sum_up(
        self, track: _Track, entry: Entry, request: LiveRequest, call: ProxyCall, plan: Plan
    ) -> None:
        """Add a request to the data of its conversation."""
        track.entry, track.bound = entry, None
        if plan.standing is not None:
            track.bound = plan.standing.window, call.rule.policy or Policy.ladder()
        if request.dollars is not None:
            track.dollars = (track.dollars or 0.0) + request.dollars
        if not track.title and self.reads and plan.view is not None:
            track.title = _find_title(plan.view)
        track.count += 1
        track.faults += _count_faults(plan)

    # --- read by pages --------------------------------------------------------------------------

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all data about a conversation; raises UnknownConversation."""
        track = self._find(name)
        held = self._readable.get(name) if reads else None
        notes, report, waste = [], None, ()
        if held is None:
            notes.append(
                "what fills the window is shown for the last conversations alone, where text may "
                "be shown and the request was not read in a worker (docs/pages.md)"
            )
        else:
            try:
                request = held.last.read_sent()
                report = self._report(track, held.last, request)
                waste = self._find_waste(track, request, report)
            except UllageError as error:
                notes.append(f"the contents of the window are unknown: {error}")
        can = {"forget"} | (set() if held is None else {"again", "pin", "recall", "undo"})
        return SessionDetail(
            track.draw_row(),
            tuple(track.requests),
            tuple(track.events),
            tuple(track.compactions),
            report,
            describe_window(self._runtime, track.question),
            waste,
            frozenset(can),
            tuple(notes),
        )

    def _find(self, name: str) -> _Track:
        found = self._tracks.get(name)
        if found is None:
            raise UnknownConversation(f"the proxy knows no conversation {name:.60} (any more)")
        return found

    def _report(self, track: _Track, held: HeldRequest, request: Request) -> Mapping[str, Any]:
        last = track.requests[-1] if track.requests else None
        found = context(
            request.messages,
            usage=None if last is None else last.usage,
            window=held.window,
            max_tokens=held.max_tokens,
            model=track.question.model,
            tools=request.tools,
            system=request.system or request.apart,
            dialect=track.dialect,
            runtime=self._runtime,
        )
        return {**found.to_dict(), "compaction_at": track.find_point()}

    def _find_waste(self, track: _Track, request: Request, report: Mapping[str, Any]) -> Any:
        runtime = self._runtime
        meter = runtime.meter(track.question, track.dialect)
        prices = runtime.windows.prices(track.question)
        read = runtime.read(Measurable(list(request.messages), dialect=track.dialect))
        return list_waste(report, read.messages, request.tools or (), meter, prices)

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Return a compaction as a change; raises UnknownConversation, NotPossible."""
        track = self._find(name)
        if not 0 < number <= len(track.compactions):
            raise UnknownConversation(
                f"conversation {name} has {len(track.compactions)} compactions, no number {number}"
            )
        held = self._readable.get(name)
        kept = None if held is None else held.made.get(number)
        if kept is None:
            raise NotPossible(
                f"of compaction {number} numbers alone are kept: messages are kept of the last "
                f"{REVIEWED} compactions of the last conversations, where text may be shown and no "
                "worker read the request"
            )
        checkpoint, request = kept
        codec = self._runtime.codec_for(track.dialect)
        messages = list(request.read_came().messages)
        history = self._runtime.read(Measurable(messages, dialect=track.dialect))
        meter = self._runtime.meter(track.question, track.dialect)
        told = track.compactions[number - 1]
        return review_script(history, checkpoint.script, (codec, meter), told, shows_text=reads)

    def find_last(self, name: str) -> HeldRequest:
        """Return the last request of a conversation; raises NotPossible if it is not kept."""
        self._find(name)
        held = self._readable.get(name)
        if held is None:
            raise NotPossible(f"the last request of conversation {name} is not kept here")
        return held.last

    def find_messages(self, name: str, number: str = "") -> Sequence[Any]:
        """Return the messages that came with a compaction, by its number, or with the last request.

        Raises UnknownConversation, NotPossible.
        """
        last, made = self.find_last(name), self._readable[name].made
        kept = made.get(int(number)) if number.isdecimal() and len(number) < 10 else None
        if number and kept is None:
            raise NotPossible(f"the messages of compaction {number:.20} are not kept here")
        return (last if kept is None else kept[1]).read_came().messages

    def find_question(self, name: str) -> Question:
        """Return the question about a conversation's window."""
        return self._find(name).question

    def find_dialect(self, name: str) -> str:
        """Return the dialect of a conversation."""
        return self._find(name).dialect

    def list_messages(self, name: str) -> tuple[LiveMessage, ...]:
        """Return the messages of the last request, as they were sent; raises as `find_last`."""
        held, track = self.find_last(name), self._find(name)
        meter = self._runtime.meter(track.question, track.dialect)
        return list_messages(held.read_transcript(self._runtime), meter)

    def preview(self, name: str, policy: str) -> dict[str, Any]:
        """Plan a compaction of the last request under a policy, without changing anything."""
        held, track = self.find_last(name), self._find(name)
        request = held.read_came()
        tools = held.read_sent().tools  # added tools take room as well
        try:
            made = compact(
                request.messages,
                policy=policy or "ladder",
                dialect=track.dialect,
                model=track.question.model,
                window=held.window,
                system=request.system or request.apart,
                tools=tools,
                runtime=self._runtime,
                target_ratio=0.5,
            )
        except ConfigurationError as error:
            raise NotPossible(str(error)) from error
        return {
            "policy": policy or "ladder",
            "before": made.before.tokens,
            "after": made.after.tokens,
            "strategy": name_strategies(made.strategy, made.fallback_reason),
            "reached": made.reached,
            "messages": len(made.messages),
            "reason": made.reason or "",
        }

    def note_undone(self, name: str, at: float) -> None:
        """Record that an operator undid the last compaction."""
        track = self._find(name)
        standing = [i for i, made in enumerate(track.compactions) if not made.undone]
        if standing:
            track.compactions[standing[-1]] = replace(track.compactions[standing[-1]], undone=True)
        number = standing[-1] + 1 if standing else "?"
        self.note_act(name, f"compaction {number} was undone by an operator", at)

    def note_act(self, name: str, text: str, at: float) -> None:
        """Record an operator's action, as an event of the conversation and in the log."""
        track = self._find(name)
        log.info("conversation %s: %s", name, text)
        track.events.append(LiveEvent(at, "operator", text, len(track.requests)))
        self._show(track)


def _note_end(track: _Track, request: LiveRequest, note: str, before: str) -> None:
    """Add events for the end of a request; `before` is the tier before it."""
    number = len(track.requests)
    if note:
        track.events.append(LiveEvent(request.at, "cache", note, number))
    if request.status >= 400:
        text = f"answered {request.status}" if request.status != 499 else "the client left"
        track.events.append(LiveEvent(request.at, "status", text, number))
    if before not in (request.tier, "unavailable"):
        text = f"from {before} to {request.tier}"
        track.events.append(LiveEvent(request.at, "pressure", text, number))


def _insert(requests: deque[LiveRequest], request: LiveRequest) -> None:
    """Insert a request by its start: an earlier request may end later."""
    later: list[LiveRequest] = []
    while requests and requests[-1].at > request.at:
        later.append(requests.pop())
    requests.append(request)
    requests.extend(reversed(later))


def _list_sent(request: Request, messages: Sequence[Any]) -> list[tuple[str, Any]]:
    return list_parts(request.tools, request.system or request.apart, messages)


def _count_faults(plan: Plan) -> int:
    from ullage.core.guard.events import CompactionFault

    if plan.view is None:
        return 0
    return sum(isinstance(event, CompactionFault) for event in plan.view.prepared.events)


def _find_title(view: View) -> str:
    sent = view.prepared.sent
    task = sent.task()
    return "" if task is None else shorten(sent.messages[task].text, TITLE)

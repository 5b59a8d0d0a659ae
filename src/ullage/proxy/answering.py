"""Answers calls of the tools that the proxy added, and builds the next request of the round.

A conversation finds only the texts of its own placeholders. This module sends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from ullage.core.dialects.form import RenderedCall, RoundParts
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.search.names import NOTHING, RECALL, SEARCH
from ullage.core.search.ranking import SearchArea
from ullage.core.session.recall import cut_page, read_arguments
from ullage.core.session.searching import HITS, read_query, write_hits
from ullage.proxy.offering import LaterRound, Offer, find_script, is_over
from ullage.proxy.reach import find_reachable
from ullage.runtime import Measurable

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.messages.transcript import Call
    from ullage.core.search.ranking import Hit
    from ullage.proxy.call import ProxyCall
    from ullage.proxy.guarding import Guarding, Plan
    from ullage.proxy.keeping import Keeping
    from ullage.runtime import Runtime
    from ullage.storage.protocol import SearchesOriginals
    from ullage.telemetry.metrics import ProxyMeters

log = logging.getLogger("ullage.proxy")

MOST_ROUNDS: Final = 4
"""Rounds of tool calls answered for one request; the next round gets no tools to call."""

MOST_CALLS: Final = 8
"""Calls of a round that are answered; the model is told to make the others again. Each call takes
room, even if it finds nothing."""

PATIENCE_S: Final = 20.0
"""Seconds that the store may take for the calls of one round."""

LEAST: Final = 200
"""Smallest page, in characters; shorter ones are of no use."""

SHARE: Final = 0.5
"""Share of the room left in the window that the results of one round may take."""

UNREAD: Final = "error: the dropped text cannot be read now; go on without it"
NO_ROOM: Final = "error: there is no room left in the context window for this text"
UNKNOWN: Final = (
    "error: nothing that was left out of this conversation has the reference {name!r:.40}; copy "
    "one from a placeholder: u: and 16 digits"
)
OTHERS: Final = "\n[The other calls of that answer were not run: make them again.]"
LAST: Final = "\n[Nothing more is read or searched before the next message: go on with this.]"

Outcome = Literal["found", "nothing", "failed"]
Fits = Callable[[str], bool]


class Material(Protocol):
    """The result of a call, to be written as large as fits."""

    def write(self, fits: Fits) -> str:
        """Return the result of the call."""
        ...


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str

    def write(self, fits: Fits) -> str:
        """Return the sentence: it always fits."""
        del fits
        return self.text


@dataclass(frozen=True, slots=True)
class _PageOf:
    """Up to `limit` characters of a text, from `offset` on."""

    text: str
    offset: int
    limit: int

    def write(self, fits: Fits) -> str:
        """Return the largest page that fits, halving it until it does."""
        limit = min(self.limit, max(len(self.text) - self.offset, 1))
        while True:
            page = cut_page(self.text, self.offset, limit).write()
            if fits(page):
                return page
            if limit <= LEAST:
                return NO_ROOM
            limit //= 2


@dataclass(frozen=True, slots=True)
class _Hits:
    hits: Sequence[Hit]

    def write(self, fits: Fits) -> str:
        """Return as many of the best passages as fit."""
        for most in range(len(self.hits), 0, -1):
            text = write_hits(self.hits[:most])
            if fits(text):
                return text
        return NO_ROOM


class _Answer(NamedTuple):
    """A call, its result, and how it ended."""

    call: Call
    material: Material
    outcome: Outcome


class Answering:
    """Answers the calls of a round and plans the next one."""

    def __init__(
        self,
        guarding: Guarding,
        runtime: Runtime,
        store: Keeping,
        meters: ProxyMeters,
        *,
        fail_open: bool = True,
    ) -> None:
        self._guarding = guarding
        self._runtime = runtime
        self._store = store
        self._meters = meters
        self._fail_open = fail_open

    async def plan_next(
        self, call: ProxyCall, plan: Plan, names: frozenset[str], reply: Reply, used: int | None
    ) -> tuple[ProxyCall, Plan, int]:
        """Return what to send after a round with calls of our tools, and how many were answered.

        `names` are the names of the tools. `reply` is the whole answer of the round. `used` is the
        size of its prompt in tokens, as the server reported it. The results share half of the room
        that is left. If the request still exceeds its window, the results are left out.
        """
        if plan.far is not None:
            return await plan.far.plan_next(call, names, reply, used)
        ours = [asked for asked in reply.calls if asked.name in names][:MOST_CALLS]
        found = await self._look_up(call, ours, plan)
        for answer in found:
            self._meters.tool_answer(_TOOLS[answer.call.name], answer.outcome)
        grown = replace(call, round=_begin_round(call, plan.offer))
        room = _find_room(plan, len(ours), used)
        sent = self._write_round(grown, plan, reply, found, room)
        made = await self._guarding.plan(sent)
        if made.view is not None and is_over(made.view):
            sent = self._write_round(grown, plan, reply, found, 0)
            made = await self._guarding.plan(sent)
        return sent, made, len(found)

    def _write_round(
        self, grown: ProxyCall, plan: Plan, reply: Reply, found: list[_Answer], room: int | None
    ) -> ProxyCall:
        """Return a call with a round added to its history, each result in at most `room` tokens."""
        fits = self._measure(grown, plan, room)
        texts = [answer.material.write(fits) for answer in found]
        return replace(grown, body=_extend(grown, reply, found, texts))

    async def _look_up(self, call: ProxyCall, calls: Sequence[Call], plan: Plan) -> list[_Answer]:
        """Return the result of each call; if the store fails, only the results are lost."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                run = self._store.desk.writes.run  # a search brings the index up to date
                named = await run(self._find_named, call, plan)
                return [await run(self._answer, asked, named) for asked in calls]
        except StoreError as error:
            log.warning("the dropped texts cannot be read: %s", error)
        except TimeoutError:
            log.warning("the store took over %g seconds to read the dropped texts", PATIENCE_S)
        except Exception:
            self._meters.fault()
            if not self._fail_open:
                raise
            log.exception("the dropped texts could not be read; the model was told so")
        return [_Answer(asked, _Sentence(UNREAD), "failed") for asked in calls]

    def _find_named(self, call: ProxyCall, plan: Plan) -> frozenset[str]:
        """Return the references that the conversation of a call may read back."""
        script = None if plan.view is None else find_script(plan.view)
        if script is None:
            return frozenset()
        body = Measurable(call.body.history, dialect=call.form.dialect)
        return find_reachable(script, self._runtime.read(body), self._store.originals.read)

    def _answer(self, call: Call, named: frozenset[str]) -> _Answer:
        try:
            if call.name == SEARCH:
                return self._search(call, named)
            return self._recall(call, named)
        except ConfigurationError as error:  # the model's arguments are invalid
            return _Answer(call, _Sentence(f"error: {error}"), "nothing")

    def _search(self, call: Call, named: frozenset[str]) -> _Answer:
        query = read_query(call.arguments)
        originals = cast("SearchesOriginals", self._store.originals)  # else the tool is not offered
        hits = originals.search(query, HITS, SearchArea(references=named))
        if not hits:
            return _Answer(call, _Sentence(NOTHING), "nothing")
        return _Answer(call, _Hits(hits), "found")

    def _recall(self, call: Call, named: frozenset[str]) -> _Answer:
        asked = read_arguments(call.arguments)
        name, offset, limit = asked["reference"], asked["offset"], asked["limit"]
        text = self._store.originals.read(name) if name in named else None
        if text is None:
            return _Answer(call, _Sentence(UNKNOWN.format(name=name)), "nothing")
        if type(offset) is not int or type(limit) is not int or offset < 0 or limit < 1:
            raise ConfigurationError("offset and limit are numbers of characters, from 0 and 1 on")
        cut_page(text, offset)  # raises for an offset beyond the end of the text
        return _Answer(call, _PageOf(text, offset, limit), "found")

    def _measure(self, call: ProxyCall, plan: Plan, room: int | None) -> Fits:
        """Return a function that tells whether a text takes at most `room` tokens of the model."""
        counter = self._runtime.text_meter(call.model).counter
        scale = plan.view.prepared.measured.scale.high if plan.view is not None else 1.0
        return lambda text: room is None or counter.count(text) * scale <= room


_TOOLS: Final[Mapping[str, str]] = {RECALL: "recall", SEARCH: "search"}


def _find_room(plan: Plan, calls: int, used: int | None) -> int | None:
    """Return the tokens that each result may take, or None if the window is unknown."""
    if plan.view is None or plan.view.window.input_tokens is None:
        return None
    window = plan.view.window
    bound = min(n for n in (window.working_tokens, window.input_tokens) if n is not None)
    taken = used if used is not None else plan.view.prepared.count.high
    return int(max(bound - taken, 0) * SHARE) // max(calls, 1)


def _begin_round(call: ProxyCall, offer: Offer | None) -> LaterRound:
    """Return the next round of a request; the last round allows no calls of our tools.

    If the client has no tools of its own, our tools stay listed, since the calls so far refer to
    them, but no tool may be called.
    """
    number = 2 if call.round is None else call.round.number + 1
    if number <= MOST_ROUNDS:
        return LaterRound(number, offer)
    silent = not call.body.fields.get("tools")
    return LaterRound(number, offer if silent else None, silent, last=True)


def _extend(call: ProxyCall, reply: Reply, found: Sequence[_Answer], texts: Sequence[str]) -> Any:
    """Return the body of a request with a round appended: text, calls and results.

    If the calls of a round could not be read, nothing is appended: the model is asked again.
    """
    if not found:
        return call.body
    note = OTHERS if len(found) < len(reply.calls) else ""
    note += LAST if call.round is not None and call.round.last else ""
    results = [*texts[:-1], texts[-1] + note]
    calls = tuple(
        RenderedCall(c.id, c.name, c.arguments, n, n, text, text.startswith("error:"))
        for n, ((c, _, _), text) in enumerate(zip(found, results, strict=True))
    )
    blocks = tuple((0, block) for block in reply.thoughts)
    said = (reply.text,) if reply.text.strip() else ()
    form = call.form.spoken.make_form()
    placed = form.answer(RoundParts(0, blocks, said, calls))
    return call.body.extend([message for _, message in placed])

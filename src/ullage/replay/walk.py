"""Runs one session through the real guard under one policy, turn by turn, without a model.

Between two compactions a request is the previous one, followed by new messages. If that is
certain (nothing is repaired, no media, the count is below every threshold of the policy), such
turns are computed and not prepared. `thorough` prepares each turn, with the same totals.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ullage.core.compaction import mending
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ContextTooLargeError
from ullage.core.guard.request import Request
from ullage.core.guard.stages.room import room_needed
from ullage.guard.guard import Guard
from ullage.replay.scale import ReplayRuntime, Sizes, measure_history
from ullage.replay.till import Till
from ullage.replay.totals import ReplayTotals
from ullage.replay.uses import SessionUses, UsedTerm, find_uses, list_message_terms
from ullage.runtime import system_text
from ullage.storage import MemoryStore
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy
    from ullage.core.guard.request import Prepared
    from ullage.core.messages.transcript import Message, Transcript
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.window import Window
    from ullage.guard.port import Port
    from ullage.replay.history import RecordedHistory

HASTY: Final = 2
"""Answers after a compaction within which the next one counts as too soon."""


@dataclass(frozen=True)
class ReadHistory:
    """A session, read and measured once for all policies."""

    history: RecordedHistory
    runtime: ReplayRuntime
    model: str | None
    prices: tuple[Price, ...]
    life_s: float

    @cached_property
    def read(self) -> Transcript:
        """The parsed history."""
        codec = self.runtime.codec_for(self.history.dialect)
        return codec.read(list(self.history.messages))

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its messages."""
        return self.read.messages

    @cached_property
    def system(self) -> str | None:
        """The system prompt outside the messages."""
        return system_text(self.history.system)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of its messages."""
        self.runtime.set_meter = None
        meter = self.runtime.meter(Question(self.model), self.history.dialect)
        return measure_history(self.history, self.read, meter, self.system)

    @cached_property
    def uses(self) -> SessionUses:
        """The content that its turns use."""
        return find_uses(self.messages, [turn.stop for turn in self.history.turns])

    @cached_property
    def outputs(self) -> list[int]:
        """The tokens of each answer, as reported, or else as counted."""
        stops = [turn.stop for turn in self.history.turns]
        found = []
        for turn, end in zip(self.history.turns, [*stops[1:], len(self.messages)], strict=True):
            if turn.usage is not None and turn.usage.output + turn.usage.reasoning:
                found.append(turn.usage.output + turn.usage.reasoning)
                continue
            answer = range(turn.stop, end)
            best = self.sizes.best
            raw = sum(best[i + 1] - best[i] for i in answer if self.messages[i].role == "assistant")
            found.append(round(raw * self.sizes.meter.scale.best))
        return found

    @cached_property
    def is_plain(self) -> bool:
        """Tell whether requests between compactions only grow, in known steps."""
        codec = self.runtime.codec_for(self.history.dialect)
        if mending.repair(self.read, codec).repairs or self.read.measure_media().images:
            return False
        return not any(message.is_compaction for message in self.messages)


class _Standing(NamedTuple):
    """The last request: its messages by their digests, and its size in counted tokens."""

    digests: tuple[bytes, ...]
    sizes: tuple[int, ...]
    best: int
    high: int


@dataclass
class _Present:
    """The messages that are unchanged in a request, and the terms of those that replace others."""

    tail: int = 0
    """All messages from this position on are unchanged."""
    alive: frozenset[int] = frozenset()
    written: frozenset[str] = frozenset()
    back: set[int] = field(default_factory=set)
    """Messages that were fetched again since the last compaction."""

    def has(self, place: int) -> bool:
        return place >= self.tail or place in self.alive or place in self.back


def walk_session(
    read: ReadHistory, policy: Policy, window: int, *, thorough: bool = False
) -> ReplayTotals:
    """Return the result of a session under a policy, in a window of this many tokens."""
    return _Walk(read, policy, window, thorough=thorough).run()


class _Walk:
    def __init__(self, read: ReadHistory, policy: Policy, window: int, *, thorough: bool) -> None:
        self.read = read
        self.turns = read.history.turns
        self.sizes = read.sizes
        read.runtime.set_meter = read.sizes.meter
        guard = Guard(
            read.model,
            window=window,
            policy=policy,
            store=MemoryStore(),
            dialect=read.history.dialect,
            runtime=read.runtime,
            on_event=_ignore,
        )
        self.port: Port = guard.port
        self.policy = policy
        self.leaps = read.is_plain and not thorough
        self.till = Till(read.prices, read.life_s)
        self.standing: _Standing | None = None
        self.present = _Present()
        self.last = -HASTY - 1
        """The turn of the last compaction."""
        self.made: dict[str, Any] = {}

    def run(self) -> ReplayTotals:
        """Go through all turns."""
        began = time.process_time()
        turn = 0
        while turn < len(self.turns):
            if not self._prepare(turn):
                left = 1 if self.policy.rungs else len(self.turns) - turn  # no later one is smaller
                self._count(refused=left)
                turn += left
                continue
            until = self._find_next(turn) if self.leaps else turn + 1
            # The turn before the next is prepared, too: the next one uses its report.
            for between in range(turn + 1, until - 1):
                self._reckon(between)
            turn = max(turn + 1, until - 1)
        spent = (time.process_time() - began) * 1_000
        return ReplayTotals(sessions=1, turns=len(self.turns), own_ms=spent, **self.made)

    def _count(self, **more: int) -> None:
        for name, number in more.items():
            self.made[name] = self.made.get(name, 0) + number

    def _find_next(self, turn: int) -> int:
        """Return the next turn in which the policy may act, or the number of turns."""
        standing = self.standing
        assert standing is not None  # noqa: S101 - only called after a request was sent
        start, high = self.turns[turn].stop, self.sizes.high
        for later in range(turn + 1, len(self.turns)):
            grown = standing.high + high[self.turns[later].stop] - high[start]
            if self.sizes.count_high(grown) >= self.least:
                return later
        return len(self.turns)

    @cached_property
    def least(self) -> float:
        """The tokens at which the policy acts, or a request is refused."""
        window: Window = self.port.window()
        bound = window.working_tokens or 0
        found = min((rung.at for rung in self.policy.rungs), default=1.0) * bound
        asked, total = self.read.history.max_tokens, window.total_tokens
        if asked is not None and total is not None:
            request = Request((), max_tokens=asked)
            found = min(found, total - room_needed(self.policy, request, total))
        return found

    def _prepare(self, number: int) -> bool:
        """Prepare a turn's request; tell whether it may be sent."""
        turn, history = self.turns[number], self.read.history
        request = Request(
            history.messages[: turn.stop],
            history.tools or None,
            self.read.system,
            history.max_tokens,
            apart=history.system,
        )
        try:
            view = self.port.prepare(request, history.dialect)
        except ContextTooLargeError:
            return False
        sent, before = view.prepared, self.standing
        raw = sent.measured.raw()
        bound = sent.window.input_tokens
        if bound is not None and self.sizes.count(raw.best) > bound:
            return False  # its provider would refuse it, and nothing could be made smaller
        told = tuple(message.digest for message in sent.sent.messages)
        sizes = tuple(size.best for size in sent.measured.sizes)
        self.standing = _Standing(told, sizes, raw.best, raw.high)
        kept = None
        if sent.checkpoint is not None:
            kept = self._keep(before, self.standing)
            self._note_compaction(number, sent, view.origin)
        self._account(number, raw.best, kept)
        view.observe(Usage(self.sizes.count(raw.best), output=max(self.read.outputs[number], 1)))
        return True

    def _keep(self, before: _Standing | None, now: _Standing) -> int:
        """Return the tokens at the beginning that this request shares with the last one."""
        if before is None:
            return 0
        same = 0
        for one, other in zip(before.digests, now.digests, strict=False):
            if one != other:
                break
            same += 1
        return self.sizes.count(self.sizes.fixed.best + sum(now.sizes[:same]))

    def _note_compaction(self, number: int, sent: Prepared, origin: tuple[int | None, ...]) -> None:
        messages = self.read.messages
        alive: set[int] = set()
        written: set[str] = set()
        for message, place in zip(sent.sent.messages, origin, strict=True):
            if place is not None and message.digest == messages[place].digest:
                alive.add(place)
            else:
                written |= list_message_terms(message)
        stop = self.turns[number].stop
        left = sum(self.present.has(p) for p in range(stop) if p not in alive)
        self._count(compactions=1, hasty=int(number - self.last <= HASTY), left_out=left)
        self.last = number
        tail = next((p + 1 for p in range(stop - 1, -1, -1) if p not in alive), 0)
        self.present = _Present(tail, frozenset(alive), frozenset(written))

    def _reckon(self, number: int) -> None:
        """Count a turn whose request is the last one plus the new messages."""
        standing, best, high = self.standing, self.sizes.best, self.sizes.high
        assert standing is not None  # noqa: S101 - refused turns are not computed
        since, stop = self.turns[number - 1].stop, self.turns[number].stop
        grown = standing.best + best[stop] - best[since]
        self.standing = standing._replace(best=grown, high=standing.high + high[stop] - high[since])
        self._account(number, grown, None)

    def _account(self, number: int, raw: int, kept: int | None) -> None:
        """Add the cost of a turn, and the content that it uses."""
        turn, prompt, output = self.turns[number], self.sizes.count(raw), self.read.outputs[number]
        rewritten = 0 if kept is None else max(self.till.held - kept, 0)
        paid = self.till.pay(prompt, output, kept, turn.at, turn.model)
        made = self.made
        made["peak_tokens"] = max(made.get("peak_tokens", 0), prompt)
        self._count(
            carried_tokens=prompt,
            cached_tokens=paid.cached,
            output_tokens=output,
            rewritten_tokens=rewritten,
            expired=int(paid.expired > 0),
            expired_tokens=paid.expired,
            nanodollars=paid.nanodollars or 0,
            unpriced=int(paid.nanodollars is None),
        )
        self._find_loss(number, prompt)

    def _find_loss(self, number: int, prompt: int) -> None:
        """Count the terms that a turn uses, and those that are gone."""
        uses, present, found = self.read.uses, self.present, self.read.uses.turns[number]
        taken = dict.fromkeys(("taken_words", "taken_files", "taken_values"), 0)
        for used in found.terms:
            taken[f"taken_{used.kind}"] += 1
        self._count(**taken)
        if not present.tail:
            return
        gone: set[int] = set()
        lost = dict.fromkeys(("lost_words", "lost_files", "lost_values"), 0)
        for used in found.terms:
            source = self._find_gone(uses, used)
            if source is not None:
                lost[f"lost_{used.kind}"] += 1
                gone.add(source)
        again = sum(not all(map(present.has, call.places)) for call in found.calls)
        self._count(**lost, calls_again=again)
        for place in gone:
            self._fetch(place, prompt)

    def _find_gone(self, uses: SessionUses, used: UsedTerm) -> int | None:
        if used.term in self.present.written:
            return None
        return uses.find_source(used, self.present.has)

    def _fetch(self, place: int, prompt: int) -> None:
        """Bring back a message that is needed again, with one more call."""
        self.present.back.add(place)
        best = self.sizes.best
        tokens = round((best[place + 1] - best[place]) * self.sizes.meter.scale.best)
        self._count(
            faults=1,
            fault_tokens=tokens,
            fault_nanodollars=self.till.price_again(tokens, prompt),
        )


def _ignore(event: object) -> None:
    del event

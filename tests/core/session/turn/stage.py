"""A driver for turns that performs nothing: answers come from a script, the log is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ullage.core.dialects.reply import Reply
from ullage.core.dialects.usage import Usage
from ullage.core.messages.transcript import Call
from ullage.core.session.log.event import Draft, Event, make_event
from ullage.core.session.log.fold import Fold
from ullage.core.session.permissions import CallSubject, Consent, Decision
from ullage.core.session.tools import Intent, Pending, Preview, ToolOutcome
from ullage.core.session.turn import Ended, TurnOrder, run
from ullage.core.session.turn.effects import (
    Ask,
    Decide,
    Effect,
    Heard,
    Look,
    Prepare,
    Ready,
    Record,
    Recover,
    Rehearse,
    RunTools,
    Send,
)

ALLOW = Decision("allow")
READ = Intent(reads_only=True, idempotent=True)
WRITE = Intent()


def said(text: str, stop: Any = "end", **more: Any) -> Heard:
    """Return an answer without calls."""
    return Heard(Reply(text, stop=stop, usage=Usage(10, output=5), **more))


def called(*names: str, text: str = "", prefix: str = "") -> Heard:
    """Return an answer that calls tools; their ids are numbered."""
    made = tuple(Call(f"{prefix}c{i}", name, f'{{"n": {i}}}') for i, name in enumerate(names))
    return Heard(Reply(text, calls=made, stop="calls", usage=Usage(10, output=5)))


def pending(call: Call) -> Pending:
    """Return a call as a person is asked about it."""
    subject = CallSubject(call.name, "arguments", call.arguments)
    return Pending.over(call, Preview("arguments", call.arguments), subject)


@dataclass
class Stage:
    """Performs effects: `answers` are what the model does, one after the other.

    `before` is called with each effect before it is performed, and may return an exception that
    is thrown in.
    """

    answers: Iterable[Any] = ()
    decide: Callable[[Call], Decision] = lambda call: ALLOW
    word: Consent | None = None
    rehearse: Callable[[Call], Pending | ToolOutcome] = pending
    recover: Callable[[Any], Ready | None] = lambda failed: None
    prepare: Callable[[], Any] = Ready
    outcome: Callable[[Call], ToolOutcome] = lambda call: ToolOutcome(f"ran {call.name}")
    before: Callable[[Effect], BaseException | None] = lambda effect: None
    fold: Fold = field(default_factory=Fold)
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = iter(self.answers)

    def record(self, *drafts: Draft) -> None:
        for draft in drafts:
            before = self.events[-1].id if self.events else ""
            event = make_event("s", len(self.events) + 1, 1.0, draft, before)
            self.events.append(event)
            self.fold.apply(event)

    def play(self, text: str | None = "hello", **order: Any) -> Ended:
        """Run a turn to its end."""
        given = {"turn": "t1", "model": "m", "dialect": "openai_chat", **order}
        steps = run(TurnOrder(text=text, **given), self.fold)
        try:
            effect = next(steps)
            while True:
                self.effects.append(effect)
                thrown = self.before(effect)
                effect = steps.throw(thrown) if thrown is not None else steps.send(self._do(effect))
        except StopIteration as done:
            ended: Ended = done.value
            return ended

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def data(self, kind: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.type == kind]

    def _do(self, effect: Effect) -> Any:
        ways: dict[type, Callable[[Any], Any]] = {
            Record: lambda e: self.record(*e.drafts),
            Prepare: lambda _: self.prepare(),
            Send: lambda _: next(self._left),
            Recover: lambda e: self.recover(e.failed),
            Look: lambda e: [READ if c.name.startswith("read") else WRITE for c in e.calls],
            Decide: lambda e: self.decide(e.call),
            Rehearse: lambda e: self.rehearse(e.call),
            Ask: lambda _: self.word,
            RunTools: self._run,
        }
        return ways[type(effect)](effect)

    def _run(self, effect: RunTools) -> list[ToolOutcome]:
        self.ran += effect.keys
        return [self.outcome(call) for call in effect.calls]

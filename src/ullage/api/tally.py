"""A running count of a conversation that only grows: `ullage.Tally`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from ullage.core.dialects.registry import parse_name, recognise
from ullage.core.messages.size import Size
from ullage.core.messages.transcript import DialectName, Message
from ullage.core.tokens.counting import Count, Measure, Meter, measure
from ullage.core.values.pickling import Unpicklable
from ullage.runtime import Measurable, RequestOptions, parse_options, system_text


class Tally(Unpicklable):
    """Count messages as they come, each once: adding one costs the same after ten thousand.

    ::

        tally = ullage.Tally(model="gpt-4o", tools=tools)
        tally.add(*messages)
        tally.add(reply)
        int(tally.count())

    `ullage.count` detects the new part of a history, and therefore notices a message that was
    changed in place. A tally does not: it trusts the caller. Options are those of `ullage.count`.
    Not safe to share between threads.
    """

    instead = "pickle its count, tally.count(), or the messages, and add them to a tally there"

    def __init__(self, **request: Unpack[RequestOptions]) -> None:
        self._runtime, self._question, body = parse_options([], request)
        self._undecided: list[Any] | None = None
        if body.dialect is None:
            self._undecided = []
            body = replace(body, dialect=recognise((), system=body.system, tools=body.tools))
        self._body = body
        self._messages: list[Message] = []
        self._total = Size(0, 0, 0)
        self._asking: tuple[Message, ...] = ()  # the message that the next tool results answer
        self._meter: Meter | None = None
        self._empty: Measure | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, *messages: Any) -> Tally:
        """Count further messages; raises MalformedHistoryError for anything else.

        The first message that shows its dialect decides, as in `ullage.count`. If the earlier
        messages were read in another dialect, they are read again.
        """
        if not messages:
            return self
        dialect = _recognise_dialect(messages) if self._undecided is not None else None
        if dialect is None or dialect == self._body.dialect:
            self._put(self._body, messages)
        else:
            earlier, self._messages, self._total = self._undecided or (), [], Size(0, 0, 0)
            self._asking = ()
            self._body = replace(self._body, dialect=dialect)
            self._put(self._body, (*earlier, *messages))
        if dialect is not None:
            self._undecided = None
        elif self._undecided is not None:
            self._undecided += messages
        return self

    def _put(self, body: Measurable, messages: Sequence[Any]) -> None:
        transcript = self._runtime.read(replace(body, messages=messages))
        meter = self._runtime.meter(self._question, transcript.rules.dialect)
        whole = replace(transcript, messages=(*self._asking, *transcript.messages), memo={})
        sizes = measure(whole, meter).sizes[len(self._asking) :]
        self._total = Size(*map(sum, zip(self._total, *sizes, strict=True)))
        self._messages += transcript.messages
        last = next((m for m in reversed(transcript.messages) if not m.results), None)
        self._asking = self._asking if last is None else (last,)

    def count(self) -> Count:
        """Return the count of everything added so far, with system text, tools and the reply."""
        body = self._body
        meter = self._runtime.meter(self._question, parse_name(body.dialect))
        if self._empty is None or meter is not self._meter:
            empty = self._runtime.read(replace(body, messages=()))
            system = system_text(body.system)
            self._empty = measure(empty, meter, system=system, tools=body.tools)
            self._meter = meter
        return replace(self._empty, total=self._total, messages=tuple(self._messages)).count()


def _recognise_dialect(messages: Sequence[Any]) -> DialectName | None:
    """Return the dialect that the messages show, or None if they show none.

    Messages without a mark of their own read as Chat, and as Anthropic if there are system blocks.
    If both readings give the same dialect, the messages show it.
    """
    alone, beside = recognise(messages), recognise(messages, system=({},))
    return alone if alone == beside else None

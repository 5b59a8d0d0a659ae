"""Results of parallel calls (several in one message), if a server passes them on as JSON.

OpenAI's Chat endpoint writes such results as JSON strings in which each non-ASCII character is
escaped; it does not do so for a single call. Sources: community.openai.com, topics 916758 (2024,
GPT-3.5 to 4o) and 1375117 (2026, GPT-4.1 and 5.2, replicated by another user): three results of
1,000 times a Korean word took 39,235 tokens, and JSON strings of them are 39,003. This module knows
nothing of the framing around texts.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from ullage.core.messages.size import Size
from ullage.core.tokens.texts import piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Counter, Meter

MARK: Final = "+"
"""Suffix of the key of a meter with parallel framing, and of the key of a result's size there."""


def find_parallel(messages: Sequence[Message], start: int = 0) -> Iterator[int]:
    """Yield the positions, from `start` on, of results of parallel calls: calls of one message."""
    first = start
    while first and messages[first - 1].results:
        first -= 1
    several = False
    for place in range(max(first - 1, 0), len(messages)):
        message = messages[place]
        if not message.results:
            several = len(message.calls) > 1
        elif several and place >= start:
            yield place


def list_parallel(messages: Sequence[Message], meter: Meter) -> frozenset[int]:
    """Return the positions of all results that are passed on as JSON strings."""
    return frozenset(() if meter.framing.parallel is None else find_parallel(messages))


def escape(text: str) -> str:
    """Return a result of parallel calls as it is passed on."""
    return json.dumps(text)


def count_escaped(message: Message, part: int, counter: Counter) -> int:
    """Return the tokens of a result of parallel calls as it is passed on; counted once."""
    if counter.key + MARK not in message.memo:
        _count([message], counter)
    return cast("int", message.memo[counter.key + MARK][part])


def _count(messages: Sequence[Message], counter: Counter) -> None:
    """Keep in the memo of messages the size of each of their results, by its position."""
    places = [[i for i, p in enumerate(m.parts) if p.kind == "result"] for m in messages]
    both = list(zip(messages, places, strict=True))
    counts = iter(counter.count_many([escape(m.parts[i].text) for m, found in both for i in found]))
    for message, found in both:
        message.memo[counter.key + MARK] = dict(zip(found, islice(counts, len(found)), strict=True))


def count_parallel(messages: Sequence[Message], start: int, meter: Meter) -> None:
    """Keep in the memo of results of parallel calls their size, from the size of each alone."""
    framing = meter.framing.parallel
    if framing is None:
        return
    key, result, counter = meter.key, meter.framing.result, meter.counter
    found = [messages[place] for place in find_parallel(messages, start)]
    new = [message for message in found if key + MARK not in message.memo]
    _count(new, counter)
    for message in new:
        alone: Size = message.memo[key]
        best, high = alone.best, alone.high
        for part, escaped in message.memo[counter.key + MARK].items():
            more = max(escaped - piece(message, counter, part), 0)
            best += more + framing.result.best - result.best
            high += more + framing.result.high - result.high
        message.memo[key + MARK] = Size(alone.low, best, high)


def widen(sizes: list[Size], messages: Sequence[Message], start: int, key: str) -> None:
    """Replace the sizes of results by their sizes in parallel calls; both are known."""
    for place in find_parallel(messages, start):
        sizes[place - start] = messages[place].memo[key + MARK]

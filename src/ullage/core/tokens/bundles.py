"""Results of calls that were made in one message, where a server hands them on as JSON.

OpenAI's Chat endpoint writes such results as JSON strings with each character beyond ASCII escaped;
of a call alone it does not. Source: community.openai.com, topic 1375117 (2026; replicated there):
three results of 1,000 times a Korean word took 39,235 tokens, and JSON strings of them are 39,003.
It knows nothing of what stands around texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ullage.core.messages.size import Size
from ullage.core.tokens.texts import piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.core.dialects.framing import Bundle
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Counter, Meter

MARK: Final = "+"
"""Ends the key of a meter that knows bundles, and of a size in one."""


def find_opening(messages: Sequence[Message], start: int) -> int:
    """Return the place from which on messages tell how those from `start` on are handed on."""
    first = start
    while first and messages[first - 1].results:
        first -= 1
    return max(first - 1, 0)


def find_bundled(messages: Sequence[Message], start: int = 0) -> Iterator[int]:
    """Yield the places, from `start` on, of results of calls that one message made together."""
    several = False
    for place in range(find_opening(messages, start), len(messages)):
        message = messages[place]
        if not message.results:
            several = len(message.calls) > 1
        elif several and place >= start:
            yield place


def list_bundled(messages: Sequence[Message], meter: Meter) -> frozenset[int]:
    """Return the places of all bundled results, none for who hands them on as they are."""
    return frozenset(() if meter.framing.bundle is None else find_bundled(messages))


def count_text(text: str, counter: Counter, plain: int | None = None) -> int:
    """Return the tokens of a text as a JSON string; `plain` are those of the text as it is."""
    escaped = json.dumps(text)
    if not text.isascii():
        return counter.count(escaped)
    # an escape is a token more at most: nothing is counted a second time
    return (counter.count(text) if plain is None else plain) + len(escaped) - len(text)


def count_escaped(message: Message, part: int, counter: Counter) -> int:
    """Return the tokens of a result as it is handed on in a bundle; counted once."""
    known: dict[int, int] = message.memo.setdefault(counter.key + MARK, {})
    if part not in known:
        plain = piece(message, counter, part)
        known[part] = count_text(message.parts[part].text, counter, plain)
    return known[part]


def count_bundled(messages: Sequence[Message], start: int, meter: Meter, bundle: Bundle) -> None:
    """Keep beside bundled results what they take; what each takes alone was counted before."""
    key, result, counter = meter.key, meter.framing.result, meter.counter
    for place in find_bundled(messages, start):
        message = messages[place]
        if key + MARK in message.memo:
            continue
        alone: Size = message.memo[key]
        best, high = alone.best, alone.high
        for part, each in enumerate(message.parts):
            if each.kind == "result":
                more = count_escaped(message, part, counter) - piece(message, counter, part)
                best += max(more, 0) + bundle.result.best - result.best
                high += max(more, 0) + bundle.result.high - result.high
        message.memo[key + MARK] = Size(alone.low, best, high)


def widen(sizes: list[Size], messages: Sequence[Message], start: int, key: str) -> None:
    """Put what bundled results take in place of what they take alone, as far as it is known."""
    for place in find_bundled(messages, start):
        known = messages[place].memo.get(key + MARK)
        if known is not None:
            sizes[place - start] = known

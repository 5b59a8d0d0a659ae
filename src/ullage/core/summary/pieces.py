"""Messages as quoted data, in pieces that fit: the complete input of a summariser.

Text goes out as JSON strings, one per line, labelled by its speaker: it cannot close its quotation
or begin a line. A message too large for one piece is split over several, never shortened. This
module knows no prompt and no model.
"""

from __future__ import annotations

import json
from collections import Counter as Tally
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.summary.record import Line, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.core.messages.transcript import Message


class Scrap(NamedTuple):
    """A piece of a message: its speaker, the text, and the message's position."""

    label: str
    text: str
    message: int


_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
)


def scraps(messages: Sequence[Message]) -> Iterator[Scrap]:
    """Yield all text of the messages: words of people, models and tools, and the calls.

    Leaves out a model's thoughts, in their own parts and in the text of its answers.
    """
    for i, message in enumerate(messages):
        label = "tool output" if message.role == "tool" else _LABELS.get(message.role, "other")
        for part in message.parts:
            if part.kind == "result":
                yield Scrap("tool output", part.text, i)
            elif part.kind in ("text", "refusal"):
                tool = part.answers is not None
                text = drop_thoughts(part.text) if label == "assistant" else part.text
                yield Scrap("tool output" if tool else label, text, i)
        for call in message.calls:
            yield Scrap("tool call", f"{call.name} {call.arguments}", i)


def data(text: str) -> str:
    """Quote text so that it cannot close the quotation or begin a line."""
    quoted = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
    return (
        quoted.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    )


def line(scrap: Scrap) -> str:
    """Return a scrap as the summariser sees it."""
    return f"{scrap.label}: {data(scrap.text)}"


def count_source_characters(quoted: str) -> int:
    """Return the number of characters of source text in the quoted part of a request."""
    lines = quoted.split("\n") if quoted else []
    return sum(len(json.loads(line.partition(": ")[2])) for line in lines)


def cut(held: Sequence[Scrap], room: int, count: Callable[[str], int]) -> list[list[Scrap]]:
    """Return scraps in pieces of at most `room` tokens, as few as possible.

    Pieces end between messages; a message larger than a piece is split over several.
    """
    pieces: list[list[Scrap]] = []
    tokens = 0
    for _, of_one in groupby(held, key=lambda scrap: scrap.message):
        group = list(of_one)
        size = sum(count(line(scrap)) + 1 for scrap in group)
        if not pieces or tokens + size > room:
            pieces.append([])
            tokens = 0
        for part, more in _parts(group, size, room, count):
            if tokens + more > room and pieces[-1]:
                pieces.append([])
                tokens = 0
            pieces[-1].append(part)
            tokens += more
    return pieces


def _parts(
    group: Sequence[Scrap], size: int, room: int, count: Callable[[str], int]
) -> Iterator[tuple[Scrap, int]]:
    """Yield scraps with their sizes, those over `room` tokens in parts: nothing is left out."""
    for scrap in group:
        tokens = size if len(group) == 1 else count(line(scrap)) + 1
        if tokens <= room:
            yield scrap, tokens
            continue
        text, usual = scrap.text, max(len(scrap.text) * room // tokens, 1)
        while text:
            take = usual
            part = scrap._replace(text=text[:take])
            while (tokens := count(line(part)) + 1) > room and take > 1:
                take = take * 3 // 4
                part = scrap._replace(text=text[:take])
            yield part, tokens
            text = text[take:]


def by_rule(held: Sequence[Scrap]) -> list[Line]:
    """Return code's summary of a piece: user requests, tools that ran, the last words."""
    asked = [scrap.text for scrap in held if scrap.label == "user" and scrap.text.strip()]
    tools = Tally(s.text.partition(" ")[0] for s in held if s.label == "tool call")
    said = [scrap.text for scrap in held if scrap.label == "assistant" and scrap.text.strip()]
    lines = [Line("Done", f"the user asked: {_short(text)}") for text in asked[-_FEW:]]
    if tools:
        names = ", ".join(f"{_short(name)} x{n}" for name, n in tools.most_common(_FEW))
        lines.append(Line("Done", f"tools ran: {names}"))
    lines += [Line("Done", f"the assistant said: {_short(text)}") for text in said[-1:]]
    return lines or [Line("Done", "nothing but tool output")]


_FEW: Final = 5
_SHORT: Final = 160


def _short(text: str) -> str:
    flat = clean(text)
    return json.dumps(
        flat if len(flat) <= _SHORT else flat[: _SHORT - 3] + "...", ensure_ascii=False
    )

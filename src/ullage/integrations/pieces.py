"""Messages as lists of pieces (texts, calls, results), converted to Chat Completions and back.

Many frameworks store messages this way. Each framework's adapter reads its pieces and makes new
ones; this module finds the piece that an edit changed. It knows no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from ullage.integrations.adapter import MessageForm

T = TypeVar("T")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece: `text` is a text, the arguments of a call, a result, or reasoning.

    A `part` is a content part of Chat Completions, unchanged, such as an image.
    """

    kind: Literal["text", "call", "result", "thought", "part"]
    text: str = ""
    id: str = ""
    name: str = ""
    part: Any = None


class MessagePieces(Protocol[T, P]):
    """The functions that an adapter defines for a framework's messages and their pieces."""

    def split(self, message: T, /) -> tuple[str, Sequence[P]]:
        """Return a message's role and pieces; no pieces if no model receives the message."""
        ...

    def read(self, piece: P, /) -> Piece:
        """Return the content of a piece."""
        ...

    def make(self, piece: Piece, source: P | None, /) -> P:
        """Return a new piece, or a replacement for `source`."""
        ...

    def build(self, role: str, pieces: list[P], source: T | None, /) -> T:
        """Return a new message, or a copy of `source` with other pieces."""
        ...


def make_form(kind: MessagePieces[T, P]) -> MessageForm[T]:
    """Return the form that writes messages in Chat Completions and reads them back."""

    def write(message: T) -> list[Any]:
        role, held = kind.split(message)
        return write_pieces(role, list(map(kind.read, held))) if held else []

    def read(raws: Sequence[Any], source: T | None) -> T:
        if source is None:
            return kind.build(
                raws[0]["role"], [kind.make(p, None) for p in read_pieces(raws)], None
            )
        role, held = kind.split(source)
        return kind.build(
            role, edit_pieces(raws, held, list(map(kind.read, held)), kind.make), source
        )

    return MessageForm(write, read)


def write_pieces(role: str, pieces: Sequence[Piece]) -> list[Any]:
    """Return pieces as Chat Completions messages: one for the message, and one for each result."""
    results = [
        {"role": "tool", "tool_call_id": piece.id, "content": piece.text}
        for piece in pieces
        if piece.kind == "result"
    ]
    if results and len(results) == len(pieces):
        return results
    said = [piece for piece in pieces if piece.kind in ("text", "part")]
    thoughts = [piece.text for piece in pieces if piece.kind == "thought"]
    calls = [
        {"id": p.id, "type": "function", "function": {"name": p.name, "arguments": p.text}}
        for p in pieces
        if p.kind == "call"
    ]
    head: dict[str, Any] = {"role": role, "content": None if calls else ""}
    if len(said) == 1 and said[0].kind == "text":
        head["content"] = said[0].text
    elif said:
        head["content"] = [
            piece.part if piece.kind == "part" else {"type": "text", "text": piece.text}
            for piece in said
        ]
    if calls:
        head["tool_calls"] = calls
    if thoughts:
        head["reasoning_content"] = "\n".join(thoughts)
    return [head, *results]


def read_pieces(raws: Sequence[Any]) -> list[Piece]:
    """Return the pieces of Chat Completions messages."""
    return [piece for raw in raws for piece in _read(raw)]


def edit_pieces(
    raws: Sequence[Any],
    given: Sequence[P],
    pieces: Sequence[Piece],
    make: Callable[[Piece, P], P],
) -> list[P]:
    """Return the pieces of a message after an edit: `given` are the framework's, `pieces` ours.

    A piece without edits is the framework's own object; `make` returns the replacement of any
    other.
    """
    made = []
    for old, new in sorted(_align(raws, pieces), key=lambda pair: pair[0]):
        made.append(given[old] if new == pieces[old] else make(new, given[old]))
    return made


def _align(raws: Sequence[Any], pieces: Sequence[Piece]) -> Iterator[tuple[int, Piece]]:
    """Yield the remaining pieces: the old position of each, and its new content."""
    found = read_pieces(raws)
    for kinds in (("text", "part"), ("call",)):
        places = [i for i, piece in enumerate(pieces) if piece.kind in kinds]
        yield from zip(places, (p for p in found if p.kind in kinds), strict=False)
    results = [i for i, piece in enumerate(pieces) if piece.kind == "result"]
    left = [piece for piece in found if piece.kind == "result"]
    named = {pieces[i].id: i for i in results}
    for place, piece in zip(results, left, strict=False):
        yield (place if len(left) == len(results) else named[piece.id]), piece
    if any(piece.kind == "thought" for piece in found):
        yield from ((i, piece) for i, piece in enumerate(pieces) if piece.kind == "thought")


def _read(raw: Mapping[str, Any]) -> Iterator[Piece]:
    content = raw.get("content")
    if raw["role"] == "tool":
        yield Piece("result", content or "", raw["tool_call_id"])
        return
    if raw.get("reasoning_content"):
        yield Piece("thought", raw["reasoning_content"])
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        is_text = part.get("type") == "text"
        yield Piece("text", part["text"]) if is_text else Piece("part", part=part)
    for call in raw.get("tool_calls") or ():
        asked = call["function"]
        yield Piece("call", asked["arguments"], call["id"], asked["name"])

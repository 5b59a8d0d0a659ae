"""The texts that a conversation may read back: its own left-out texts, never anybody else's.

A store is shared and a reference is no secret: anyone may write one into a message. So a reference
counts only if ullage itself wrote it (in the first line of a block), or if it names a text that the
client sent in this very request. The module does not know the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.edits import find_references, reference
from ullage.core.messages.transcript import SUMMARY_MARK

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Script
    from ullage.core.messages.transcript import Transcript

Read = Callable[[str], str | None]

DEEPEST: Final = 32
"""Levels of a message that are searched for texts."""


def find_reachable(script: Script, history: Transcript, read: Read) -> frozenset[str]:
    """Return the references that a conversation may read back.

    `script` is the left-out part of its history. `read` returns the text of a reference, or None.
    The last left-out texts may name earlier ones.
    """
    own = _Own(history, read)
    waiting = [name for insert in script.inserts for name in _list_named(insert.text)]
    waiting += [n for clear in script.clears for n in find_references(clear.text) if own.has(n)]
    found = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += own.follow(read(name) or "")
    return frozenset(found)


class _Own:
    """The messages and texts that the client itself has sent."""

    def __init__(self, history: Transcript, read: Read) -> None:
        parts = [part.text for message in history.messages for part in message.parts]
        calls = [call.arguments for message in history.messages for call in message.calls]
        self._texts = [text for text in (*parts, *calls) if text]
        self._names = frozenset(map(reference, self._texts))
        self._messages = frozenset(map(_write, history.raws))
        self._read = read

    def has(self, name: str) -> bool:
        """Tell whether a reference names an own text, or an excerpt of one."""
        if name in self._names:
            return True
        return not self._names.isdisjoint(find_references(self._read(name) or ""))

    def follow(self, text: str) -> Iterator[str]:
        """Yield the references in a left-out text that ullage wrote."""
        for piece in self._list_written(text):
            head = piece.partition("\n")[0]
            if piece.startswith(SUMMARY_MARK) and not self._begins_so(head):
                yield from find_references(head)
            else:
                yield from filter(self.has, find_references(piece))

    def _begins_so(self, head: str) -> bool:
        """Tell whether the client itself has sent a text that begins like a block."""
        return any(text.startswith(head) for text in self._texts)

    def _list_written(self, text: str) -> Iterator[str]:
        """Yield the texts of the messages in a text that are not the client's own."""
        try:
            held = json.loads(text)
        except (ValueError, RecursionError):
            held = None
        if not isinstance(held, list):
            yield text
            return
        for message in held:
            if _write(message) not in self._messages:
                yield from _list_texts(message)


def _list_named(block: str) -> Iterable[str]:
    """Return the references of a block: ullage wrote its first line, the rest is quoted."""
    return find_references(block.partition("\n")[0])


def _write(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _list_texts(value: Any, depth: int = DEEPEST) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping | list):
        inner = value.values() if isinstance(value, Mapping) else value
        for each in inner:
            yield from _list_texts(each, depth - 1)

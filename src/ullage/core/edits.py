"""What may be done to a transcript: an edit script, by position, and its application.

Compaction is an edit script over the caller's own messages, never a rewrite: a message that no
edit touches stays the same object. It knows no dialect (a codec renders), no tokens and no
policy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ullage.core.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ullage.core.transcript import Codec, Message, Raw


@dataclass(frozen=True, slots=True, order=True)
class Drop:
    """Leave a message out."""

    message: int


@dataclass(frozen=True, slots=True, order=True)
class Clear:
    """Put `text` in the place of one part's text, or of one call's arguments.

    Exactly one of `part` and `call` is the index of what is replaced; the other is -1.
    """

    message: int
    part: int
    call: int
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Insert:
    """Put a new message with `text` before a position (at the end: before = length)."""

    before: int
    role: str
    text: str


Edit = Drop | Clear | Insert


@dataclass(frozen=True, slots=True)
class Script:
    """An edit script over the first messages of a history, in canonical order."""

    drops: frozenset[int] = frozenset()
    clears: tuple[Clear, ...] = ()
    inserts: tuple[Insert, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.drops or self.clears or self.inserts)

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Script:
        """Collect edits; a clear of a dropped message falls away, a later clear wins."""
        drops: set[int] = set()
        clears: dict[tuple[int, int, int], Clear] = {}
        inserts: list[Insert] = []
        for edit in edits:
            if isinstance(edit, Drop):
                drops.add(edit.message)
            elif isinstance(edit, Clear):
                clears[edit.message, edit.part, edit.call] = edit
            else:
                inserts.append(edit)
        kept = sorted(c for c in clears.values() if c.message not in drops)
        return cls(frozenset(drops), tuple(kept), tuple(sorted(inserts, key=_place)))

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits: drops, clears, inserts, each by position."""
        return (*(Drop(i) for i in sorted(self.drops)), *self.clears, *self.inserts)

    def touches(self, positions: Collection[int]) -> bool:
        """Tell whether the script drops or clears one of these messages."""
        edited = {*self.drops, *(c.message for c in self.clears)}
        return not edited.isdisjoint(positions)

    def reach(self) -> int:
        """Return how many of the first messages must be the same for the script to apply."""
        last = [*(d + 1 for d in self.drops), *(c.message + 1 for c in self.clears)]
        return max([*last, *(i.before for i in self.inserts)], default=0)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the edits as plain data."""
        return [{"edit": type(e).__name__.lower(), **asdict(e)} for e in self.edits()]

    @classmethod
    def from_list(cls, data: Sequence[Mapping[str, Any]]) -> Script:
        """Read what `to_list` wrote."""
        kinds = {"drop": Drop, "clear": Clear, "insert": Insert}
        return cls.of(kinds[d["edit"]](**{k: v for k, v in d.items() if k != "edit"}) for d in data)


def _place(insert: Insert) -> int:
    return insert.before


@dataclass(frozen=True, slots=True)
class Edited:
    """A transcript after a script: `origin` has the old position of each message, None if new.

    `parts` has the old positions of the parts that are left in a message, where some went along
    with a cleared result.
    """

    transcript: Transcript
    origin: tuple[int | None, ...]
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def apply(transcript: Transcript, script: Script, codec: Codec) -> Edited:
    """Apply a script. Untouched messages are the same objects, and the input is not changed."""
    if not script:
        return Edited(transcript, tuple(range(len(transcript))))
    parts: dict[int, dict[int, str]] = {}
    calls: dict[int, dict[int, str]] = {}
    for clear in script.clears:
        target, slot = (parts, clear.part) if clear.call < 0 else (calls, clear.call)
        target.setdefault(clear.message, {})[slot] = clear.text
    new: dict[int, list[Raw]] = {}
    for insert in script.inserts:
        new.setdefault(insert.before, []).append(codec.author(insert.role, insert.text))
    raws: list[Raw] = []
    messages: list[Message | None] = []
    origin: list[int | None] = []
    left: dict[int, tuple[int, ...]] = {}
    for index in range(len(transcript) + 1):
        for raw in new.get(index, ()):
            raws.append(raw)
            messages.append(None)
            origin.append(None)
        if index == len(transcript) or index in script.drops:
            continue
        raw, message = transcript.raws[index], transcript.messages[index]
        touched = index in parts or index in calls
        if touched:
            raw = codec.rewrite(raw, parts.get(index, {}), calls.get(index, {}))
            kept = _left(message, parts.get(index, {}))
            if len(kept) < len(message.parts):
                left[len(raws)] = kept
        raws.append(raw)
        messages.append(None if touched else message)
        origin.append(index)
    authored = iter(
        codec.read([r for r, m in zip(raws, messages, strict=True) if m is None]).messages
    )
    read = tuple(m if m is not None else next(authored) for m in messages)
    return Edited(Transcript(tuple(raws), read, transcript.rules), tuple(origin), left)


def _left(message: Message, edited: Collection[int]) -> tuple[int, ...]:
    """Return the parts that stay when these are edited: a result takes along what is seen in it."""
    gone = {message.parts[i].answers for i in edited if message.parts[i].kind == "result"}
    return tuple(
        index
        for index, part in enumerate(message.parts)
        if part.kind == "result" or part.answers is None or part.answers not in gone
    )


def cleared(message: Message, clear: Clear) -> tuple[str, Message]:
    """Return the text that a clear replaces, and the neutral message with the new text."""
    if clear.call < 0:
        part, parts = message.parts[clear.part], list(message.parts)
        parts[clear.part] = part._replace(text=clear.text)
        return part.text, replace(message, parts=tuple(parts), memo={})
    call, calls = message.calls[clear.call], list(message.calls)
    calls[clear.call] = call._replace(arguments=clear.text)
    return call.arguments, replace(message, calls=tuple(calls), memo={})


def compose(first: Script, edited: Edited, second: Script) -> Script:
    """Return the one script over the original that does `first`, then `second` on its result.

    `edited` is what `first` made. An insert of `first` that `second` drops falls away.
    """
    edits: list[Edit] = [e for e in first.edits() if not isinstance(e, Insert)]
    earlier = iter(first.inserts)
    later: dict[int, list[Insert]] = {}
    for new in second.inserts:
        later.setdefault(new.before, []).append(new)
    texts = {c.message: c.text for c in second.clears if edited.origin[c.message] is None}
    place = 0
    for index, old in enumerate(edited.origin):
        kept = index not in second.drops
        if old is not None:
            edits += [Insert(old, i.role, i.text) for i in later.pop(index, ())]
            edits += [] if kept else [Drop(old)]
            place = old + 1
        else:
            mine = next(earlier)
            place = mine.before
            edits += [Insert(place, i.role, i.text) for i in later.pop(index, ())]
            edits += [Insert(place, mine.role, texts.get(index, mine.text))] if kept else []
    edits += [Insert(place, i.role, i.text) for rest in later.values() for i in rest]
    for clear in second.clears:
        old = edited.origin[clear.message]
        if old is not None:
            left = edited.parts.get(clear.message)
            part = clear.part if clear.call >= 0 or left is None else left[clear.part]
            edits.append(Clear(old, part, clear.call, clear.text))
    return Script.of(edits)

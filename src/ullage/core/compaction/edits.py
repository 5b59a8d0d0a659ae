"""Edit scripts over a transcript, by position, and how to apply them.

Compaction is an edit script over the caller's own messages, never a rewrite: a message that no edit
touches stays the same object. This module knows no dialect (a codec renders), no tokens and no
policy.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

from ullage.core.messages.fields import json_text
from ullage.core.messages.transcript import THOUGHTS, Message, Transcript

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ullage.core.messages.transcript import Codec, Raw, Unbinding


@dataclass(frozen=True, slots=True, order=True)
class Drop:
    """Leave a message out."""

    message: int


@dataclass(frozen=True, slots=True, order=True)
class Clear:
    """Replace the text of one part, or the arguments of one call, with `text`.

    One of `part` and `call` is the index of the replaced text; the other is -1.
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


REFERENCE: Final = re.compile(r"\bu:[0-9a-f]{16}\b")

NATIVE: Final = "native"
"""Role of an insert whose text is a whole message as JSON, made by a provider."""


@dataclass(frozen=True, slots=True, order=True)
class Strip:
    """Remove the reasoning of a message and keep the rest."""

    message: int


Edit = Drop | Clear | Insert | Strip


@dataclass(frozen=True, slots=True)
class Script:
    """An edit script over the first messages of a history, in canonical order."""

    drops: frozenset[int] = frozenset()
    clears: tuple[Clear, ...] = ()
    inserts: tuple[Insert, ...] = ()
    strips: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.drops or self.clears or self.inserts or self.strips)

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Script:
        """Collect edits. Other edits of a dropped message go; the later of two clears wins."""
        drops: set[int] = set()
        strips: set[int] = set()
        clears: list[Clear] = []
        inserts: list[Insert] = []
        for edit in edits:
            if isinstance(edit, Drop):
                drops.add(edit.message)
            elif isinstance(edit, Clear):
                clears.append(edit)
            elif isinstance(edit, Strip):
                strips.add(edit.message)
            else:
                inserts.append(edit)
        return cls._order(frozenset(drops), clears, inserts, strips)

    @classmethod
    def _order(
        cls,
        drops: frozenset[int],
        clears: Iterable[Clear],
        inserts: Iterable[Insert],
        strips: Collection[int],
    ) -> Script:
        """Return the script of edits in their canonical order."""
        last = {(c.message, c.part, c.call): c for c in clears if c.message not in drops}
        ordered = tuple(sorted(inserts, key=_place))
        return cls(drops, tuple(sorted(last.values())), ordered, frozenset(strips) - drops)

    def __or__(self, later: Script) -> Script:
        """Return both scripts over one history as one. The later of two clears of a text wins."""
        if not self or not later:
            return self or later
        clears, inserts = (*self.clears, *later.clears), (*self.inserts, *later.inserts)
        return Script._order(self.drops | later.drops, clears, inserts, self.strips | later.strips)

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits: drops, clears, inserts, strips, each by position."""
        strips = (Strip(i) for i in sorted(self.strips))
        return (*(Drop(i) for i in sorted(self.drops)), *self.clears, *self.inserts, *strips)

    def touches(self, positions: Collection[int]) -> bool:
        """Tell whether the script drops or clears one of these messages.

        Removing reasoning does not count, because reasoning does not identify a message.
        """
        if not positions:
            return False
        edited = {*self.drops, *(c.message for c in self.clears)}
        return not edited.isdisjoint(positions)

    def reach(self) -> int:
        """Return how many of the first messages must be the same for the script to apply."""
        last = [*(c.message + 1 for c in self.clears)]
        last += [position + 1 for position in (*self.drops, *self.strips)]
        return max([*last, *(i.before for i in self.inserts)], default=0)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the edits as plain data."""
        return [{"edit": type(e).__name__.lower(), **asdict(e)} for e in self.edits()]

    @classmethod
    def from_list(cls, data: Sequence[Mapping[str, Any]]) -> Script:
        """Read what `to_list` wrote."""
        kinds = {"drop": Drop, "clear": Clear, "insert": Insert, "strip": Strip}
        return cls.of(kinds[d["edit"]](**{k: v for k, v in d.items() if k != "edit"}) for d in data)


def _place(insert: Insert) -> int:
    return insert.before


@dataclass(frozen=True, slots=True)
class Edited:
    """A transcript after a script: `origin` has the old position of each message, None if new.

    `parts` has the old positions of the parts left in a message that lost some with a cleared
    result.
    """

    transcript: Transcript
    origin: tuple[int | None, ...]
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def apply(transcript: Transcript, script: Script, codec: Codec) -> Edited:
    """Apply a script. Untouched messages are the same objects, and the input is not changed."""
    if not script:
        return Edited(transcript, transcript.list_places())
    parts: dict[int, dict[int, str]] = {}
    calls: dict[int, dict[int, str]] = {}
    for clear in script.clears:
        target, slot = (parts, clear.part) if clear.call < 0 else (calls, clear.call)
        target.setdefault(clear.message, {})[slot] = clear.text
    drops, was, read = script.drops, transcript.raws, transcript.messages
    kept = [i for i in range(len(transcript)) if i not in drops]
    origin: list[int | None] = list(kept)
    raws: list[Raw] = [was[i] for i in kept]
    messages: list[Message] = [read[i] for i in kept]
    written: list[int] = []
    moved = _lost_mark(transcript, script, codec)
    left: dict[int, tuple[int, ...]] = {}
    edited = {*parts, *calls}
    changed = {i: codec.rewrite(was[i], parts.get(i, {}), calls.get(i, {})) for i in edited}
    for index, raw in sorted(_strip(changed, transcript, script, codec).items()):
        place = bisect_left(kept, index)
        raws[place] = raw
        written.append(place)
    for number, insert in enumerate(script.inserts):
        place = bisect_left(kept, insert.before) + number
        raws.insert(place, _author_insert(insert, moved if number == 0 else None, codec))
        origin.insert(place, None)
        messages.insert(place, NOBODY)
        written = [w + (w >= place) for w in written] + [place]
    written.sort()
    ordered = transcript.rules.ordered
    again = codec.read(raws if ordered else [raws[w] for w in written]).messages
    for number, place in enumerate(written):
        messages[place] = again[place if ordered else number]
        old = origin[place]
        if old is not None:
            stays = _list_remaining(read[old], parts.get(old, {}), stripped=old in script.strips)
            if len(stays) < len(read[old].parts):
                left[place] = stays
    result = Transcript(tuple(raws), tuple(messages), transcript.rules)
    return Edited(result, tuple(origin), left)


def _strip(
    changed: Mapping[int, Raw], transcript: Transcript, script: Script, codec: Codec
) -> dict[int, Raw]:
    """Return the changed messages, including those whose reasoning the script removes."""
    made = dict(changed)
    for index in script.strips:
        raw = made.get(index, transcript.raws[index])
        bare = cast("Unbinding", codec).drop_reasoning(raw)
        if bare is not raw:
            made[index] = bare
    return made


def _lost_mark(transcript: Transcript, script: Script, codec: Codec) -> Any:
    """Return the last cache mark among the dropped messages, None if no block is inserted."""
    if not script.inserts:
        return None
    gone = (codec.mark(transcript.raws[i]) for i in sorted(script.drops, reverse=True))
    return next((mark for mark in gone if mark is not None), None)


def _author_insert(insert: Insert, mark: Any, codec: Codec) -> Raw:
    if insert.role == NATIVE:
        return json.loads(insert.text)
    raw = codec.author(insert.role, insert.text)
    return raw if mark is None else codec.add_mark(raw, mark)


NOBODY: Final = Message("user")
"""Placeholder for a new message until it is read."""


def _list_remaining(
    message: Message, edited: Collection[int], *, stripped: bool
) -> tuple[int, ...]:
    """Return the parts that stay after an edit. A cleared result also loses its media.

    Reasoning goes too if the message is `stripped`.
    """
    gone = {message.parts[i].answers for i in edited if message.parts[i].kind == "result"}
    return tuple(
        index
        for index, part in enumerate(message.parts)
        if (part.kind == "result" or part.answers is None or part.answers not in gone)
        and not (stripped and part.kind in THOUGHTS)
    )


def apply_clear(message: Message, clear: Clear) -> tuple[str, Message]:
    """Return the text that a clear replaces, and the neutral message with the new text."""
    if clear.call < 0:
        part, parts = message.parts[clear.part], list(message.parts)
        parts[clear.part] = part._replace(text=clear.text)
        return part.text, replace(message, parts=tuple(parts), memo={})
    call, calls = message.calls[clear.call], list(message.calls)
    calls[clear.call] = call._replace(arguments=clear.text)
    return call.arguments, replace(message, calls=tuple(calls), memo={})


def reference(text: str) -> str:
    """Return the name under which a removed text can be read back: 64 bits of its hash.

    The chance that two of 100,000 texts share a name is below 1e-9.
    """
    return "u:" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def list_originals(transcript: Transcript, script: Script, silent: set[int]) -> dict[str, str]:
    """Return the removed originals by name: texts as they were, messages as a JSON list."""
    texts = [apply_clear(transcript.messages[edit.message], edit)[0] for edit in script.clears]
    gone = sorted(script.drops - silent)
    if gone:
        texts.append(join_raws(transcript, gone))
    return {reference(text): text for text in texts}


def join_raws(transcript: Transcript, positions: Sequence[int]) -> str:
    """Return the JSON list in which removed messages are kept."""
    return json_text([transcript.raws[i] for i in positions], positions[0])


def find_references(text: str) -> frozenset[str]:
    """Return the names of removed texts that occur in a text."""
    return frozenset(REFERENCE.findall(text))


def compose(first: Script, edited: Edited, second: Script) -> Script:
    """Return one script over the original that does `first`, then `second` on its result.

    `edited` is the result of `first`. An insert of `first` that `second` drops falls away.
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
            if left == () and clear.call < 0:
                continue  # the text is a placeholder for removed reasoning
            part = clear.part if clear.call >= 0 or left is None else left[clear.part]
            edits.append(Clear(old, part, clear.call, clear.text))
    stripped = (edited.origin[index] for index in second.strips)
    edits += [Strip(old) for old in stripped if old is not None]
    return Script.of(edits)

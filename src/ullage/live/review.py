"""A compaction as a change that people can review: the fate of each message, and the reason.

The module applies a recorded edit script to the history that it was planned for, and plans nothing
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.edits import apply, find_references
from ullage.core.compaction.laws import prove
from ullage.core.messages.labels import label_call, shorten
from ullage.core.tokens.counting import measure
from ullage.live.values import (
    CompactionReview,
    Fate,
    LiveCompaction,
    LiveMessage,
    ReviewedUnit,
)

if TYPE_CHECKING:
    from ullage.core.compaction.edits import Edited, Script
    from ullage.core.messages.transcript import Codec, Message, Transcript
    from ullage.core.tokens.counting import Meter

LONGEST: Final = 20_000
"""Characters of a text that are shown; a longer one is cut and says so."""

SENTENCE: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\s*\n\s*")
WORDY: Final = re.compile(r"\w")

LAWS: Final[Mapping[str, str]] = {
    "protocol": "calls and results are together, roles are in order",
    "pins": "pinned messages are unchanged",
    "untouched": "messages that no edit names are the same, byte for byte",
    "smaller": "the result is smaller",
}
"""The laws that are proved of every compaction (docs/compaction.md)."""


def review_script(
    history: Transcript,
    script: Script,
    tools: tuple[Codec, Meter],
    compaction: LiveCompaction,
    *,
    shows_text: bool = True,
) -> CompactionReview:
    """Return the effect of a script on a history, message by message, in the order of the result.

    `tools` are the codec of the history's dialect and the meter for it. A message that was left out
    is listed at its old place. Raises IndexError if the script belongs to a longer history.
    """
    codec, meter = tools
    edited = apply(history, script, codec)
    before, after = _list_sizes(history, meter), _list_sizes(edited.transcript, meter)
    block = "\n".join(insert.text for insert in script.inserts)
    drawer = _Drawer(history, script, block, shows_text=shows_text)
    units = [drawer.draw(*place, before, after, edited) for place in _order(edited, script)]
    smaller = sum(after) < sum(before)
    return CompactionReview(
        compaction, tuple(units), tuple(_prove(history, script, edited, smaller=smaller))
    )


def _list_sizes(transcript: Transcript, meter: Meter) -> list[int]:
    measured = measure(transcript, meter)
    return [meter.scale.of(size).best for size in measured.sizes]


def _order(edited: Edited, script: Script) -> Iterator[tuple[int | None, int | None]]:
    """Yield (old, new) positions: a removed message comes before the messages that followed it."""
    gone = sorted(script.drops)
    for new, old in enumerate(edited.origin):
        if old is not None:
            while gone and gone[0] < old:
                yield gone.pop(0), None
        yield old, new
    for old in gone:
        yield old, None


def _prove(
    history: Transcript, script: Script, edited: Edited, *, smaller: bool
) -> Iterator[tuple[str, bool]]:
    broken = {violation.law for violation in prove(history, script, edited, ())}
    if not smaller:
        broken.add("smaller")
    for law, sentence in LAWS.items():
        yield sentence, law not in broken


class _Drawer:
    """Draws the units of one compaction."""

    def __init__(
        self, history: Transcript, script: Script, block: str, *, shows_text: bool
    ) -> None:
        self._messages = history.messages
        self._script = script
        self._block = " ".join(block.split())
        self._shows = shows_text
        self._labels = label_messages(history.messages)
        self._cleared = {clear.message: clear.text for clear in script.clears}

    def draw(
        self,
        old: int | None,
        new: int | None,
        before: Sequence[int],
        after: Sequence[int],
        edited: Edited,
    ) -> ReviewedUnit:
        """Return the unit of a message that was at `old` and is at `new` now."""
        now = None if new is None else edited.transcript.messages[new]
        if old is None:
            assert new is not None  # noqa: S101 - a unit is somewhere
            assert now is not None  # noqa: S101
            text = now.text
            return ReviewedUnit(
                -1,
                now.role,
                "the block that replaces the dropped messages",
                "added",
                0,
                after[new],
                "written by rule from the dropped messages, or by a summarizer",
                references=tuple(sorted(find_references(text))),
                now=self._cut(text),
            )
        was = self._messages[old]
        fate = self._find_fate(old)
        lives, carried = self._find_rest(was) if fate == "left out" else ("", None)
        replaced = self._cleared.get(old, "")
        return ReviewedUnit(
            old,
            was.role,
            self._labels[old] if self._shows else was.role,
            fate,
            before[old],
            0 if new is None else after[new],
            self._explain(old, fate, replaced),
            lives,
            carried,
            tuple(sorted(find_references(replaced))),
            self._cut(_read_text(was)) if fate != "kept" else "",
            self._cut(_read_text(now)) if now is not None and fate != "kept" else "",
        )

    def _find_fate(self, old: int) -> Fate:
        if old in self._script.drops:
            return "left out"
        if old in self._cleared:
            return "shortened"
        return "reasoning left out" if old in self._script.strips else "kept"

    def _find_rest(self, was: Message) -> tuple[str, float | None]:
        """Return the share of a message's sentences in the block, in words and as a number."""
        said = [s for part in SENTENCE.split(_read_text(was)) if WORDY.search(s := part.strip())]
        if not said or not self._block:
            return "", 0.0 if said else None
        there = sum(" ".join(sentence.split()) in self._block for sentence in said)
        lives = f"{there:,} of {len(said):,} sentences are in the block, word for word"
        return lives if there else "", round(there / len(said), 3)

    def _explain(self, old: int, fate: Fate, replaced: str) -> str:
        if fate == "left out":
            last = max(self._script.reach() - 1, old)
            return f"stood before message {last + 2}, from which on all is kept"
        if fate == "shortened":
            return shorten(replaced, 200) if self._shows else "its text was shortened"
        if fate == "reasoning left out":
            return "reasoning of an answer that is over, which no model needs any more"
        return ""

    def _cut(self, text: str) -> str:
        return cut(text) if self._shows else ""


def list_messages(history: Transcript, meter: Meter) -> tuple[LiveMessage, ...]:
    """Return the messages of a request for people; long texts are cut and say so."""
    sizes, labels = _list_sizes(history, meter), label_messages(history.messages)
    return tuple(
        LiveMessage(number, message.role, labels[number], sizes[number], cut(_read_text(message)))
        for number, message in enumerate(history.messages)
    )


def cut(text: str) -> str:
    """Return a text for display; a text that is too long ends with the length of the rest."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n[{len(text) - LONGEST:,} more characters]"


def label_messages(messages: Sequence[Message]) -> list[str]:
    """Return a label for each message: its first text, or its calls and results."""
    calls: dict[str, str] = {}
    labels: list[str] = []
    for message in messages:
        made = [f"{call.name} {label_call(call.arguments)}".strip() for call in message.calls]
        calls |= {call.id: label for call, label in zip(message.calls, made, strict=True)}
        results = [f"result of {calls.get(answers, 'a call')}" for answers in message.results]
        said = shorten(next((p.text for p in message.parts if p.kind == "text" and p.text), ""))
        labels.append("; ".join(filter(None, (said, *made[:3], *results[:3]))) or message.role)
    return labels


def _read_text(message: Message) -> str:
    calls = [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join(filter(None, (message.text, *calls)))

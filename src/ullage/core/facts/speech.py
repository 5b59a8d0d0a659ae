"""Find what stands in quotation marks and is a text by itself: whole paragraphs, and long speeches.

A short one is a part of its sentence, and so is what a rule says word by word. It knows marks of
the languages that we read, and not who is cited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ullage.core.facts.copied import ends_lead
from ullage.core.facts.patterns import BeyondAscii, LatePattern
from ullage.core.facts.sentences import rule
from ullage.core.facts.voice import SENTENCE, asks_for

_UNSPACED: Final = BeyondAscii(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STOP: Final = LatePattern(r"[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]")


def find_spoken(lines: Sequence[str]) -> frozenset[int]:
    """Return the lines of paragraphs that stand whole in quotation marks, behind other words."""
    found, begun = set[int](), False
    for number, line in enumerate(lines):
        bare = line.strip()
        if begun and bare[:1] in SPEECH and number not in found:
            above = lines[number - 1]
            if not above.strip() or ends_lead(above):
                found.update(range(number, _find_end(lines, number)))
        begun = begun or bool(bare)
    return frozenset(found)


def _find_end(lines: Sequence[str], start: int) -> int:
    """Return the line behind the one that ends a speech, the first one where none does.

    Where it ends within a line it is a part of a sentence, and no paragraph.
    """
    opens = lines[start].strip()[0]
    closes, depth, size = SPEECH[opens], 0, 0
    for number in range(start, min(start + SPEECH_MOST, len(lines))):
        text = lines[number].strip()
        for place, sign in enumerate(text):
            ends = sign in closes and (depth > 0 or sign != opens)
            depth += -1 if ends else sign == opens
            size += 1
            if depth <= 0:
                whole = not text[place + 1 :].strip(".,;!?)*_ ") and size >= SPEECH_LEAST
                return number + 1 if whole else start
    return start


SPEECH: Final[Mapping[str, str]] = {
    '"': '"',
    "\u201c": "\u201d",
    "\u201e": "\u201c\u201d",
    "\xab": "\xbb",
    "\xbb": "\xab",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
"""What opens a speech in the languages that we read, and what closes it."""

SPEECH_LEAST: Final = 40
"""Characters of a speech from which on it is somebody else's text, and no word that is named."""

SPEECH_MOST: Final = 100
"""Lines of a speech, at most."""

CITED_LEAST: Final = 80
"""Characters of a speech within a line from which on it is a text by itself; a third in a script
without spaces."""


def cut_speech(line: str) -> Sequence[tuple[int, str]]:
    """Return a line in parts, each with its number: those with odd numbers are long speeches.

    There is none, and nothing is returned, where each speech is short, of one sentence, or what a
    rule or a request is about.
    """
    parts: list[tuple[int, str]] = []
    begun = 0
    for start, stop in _find_speeches(line):
        parts += ((0, line[begun:start]), (1, line[start:stop]))
        begun = stop
    if not parts:
        return ()
    parts.append((0, line[begun:]))
    return [(number, text) for number, text in parts if any(map(str.isalnum, text))]


def _find_speeches(line: str) -> Iterator[tuple[int, int]]:
    """Yield where long speeches stand in a line."""
    begun = 0
    for place, sign in enumerate(line):
        if place < begun or sign not in SPEECH:
            continue
        stop = _close(line, place)
        if stop and _is_text(line[place:stop]) and not _wants(line[begun:place]):
            yield place, stop
            begun = stop


def _close(line: str, start: int) -> int:
    """Return the place behind the mark that closes a speech, 0 where none does."""
    opens, depth = line[start], 0
    for place in range(start, len(line)):
        sign = line[place]
        ends = sign in SPEECH[opens] and place > start
        depth += -1 if ends else sign == opens
        if not depth:
            return place + 1
    return 0


def _is_text(speech: str) -> bool:
    """Tell whether a speech has the length of a text, and two sentences."""
    least = CITED_LEAST // 3 if _UNSPACED.search(speech) else CITED_LEAST
    return len(speech) >= least and len(_STOP.findall(speech[:-2])) > 0


def _wants(before: str) -> bool:
    """Tell whether the sentence in front of a speech lays down something, or asks for it."""
    told = SENTENCE.findall(before)
    return bool(told) and (rule("prose", told[-1].strip()) or asks_for(told[-1].strip()))

"""Find what stands in quotation marks and is a text by itself: whole paragraphs, and long speeches.

A short one is a part of its sentence, and so is what a rule says word by word. It knows marks of
the languages that we read, and not who is cited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.patterns import BeyondAscii, LatePattern
from ullage.core.facts.sentences import rule
from ullage.core.facts.voice import SENTENCE, asks_for, ends_lead

_UNSPACED: Final = BeyondAscii(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STOP: Final = LatePattern(r"[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]")

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

_MARKS: Final = LatePattern('["\u201c\u201d\u201e\xab\xbb\u300c\u300d\u300e\u300f]')

SPEECH_LEAST: Final = 40
"""Characters of a paragraph in quotation marks from which on it is somebody else's text, and no
word that is named."""

SPEECH_MOST: Final = 8_000
"""Characters of such paragraphs that are looked through for their end."""

UNCLOSED: Final = 20
"""Paragraphs that begin with a mark and have no end, from which on no more are looked for."""

CITED_LEAST: Final = 80
"""Characters of a speech within a line from which on it is a text by itself; a third in a script
without spaces."""

BEFORE: Final = 200
"""Characters in front of a speech that tell what it is."""


def find_spoken(lines: Sequence[str]) -> frozenset[int]:
    """Return the lines of paragraphs that stand whole in quotation marks, behind other words.

    Where these say that rules follow, or ask to be remembered, somebody cites themselves.
    """
    found, last, misses = set[int](), "", 0
    for number, line in enumerate(lines):
        bare = line.strip()
        begins = last and bare[:1] in SPEECH and number not in found and misses < UNCLOSED
        apart = begins and (not lines[number - 1].strip() or ends_lead(last))
        if apart and not _announces(last):
            held = range(number, _find_end(lines, number))
            misses += not held
            found.update(held)
        last = bare or last
    return frozenset(found)


def _find_end(lines: Sequence[str], start: int) -> int:
    """Return the line behind the one that ends a speech, the first one where none does.

    Where it ends within a line it is a part of a sentence, and no paragraph.
    """
    begun, size = list[str](), 0
    for number in range(start, len(lines)):
        text = lines[number].strip()
        for mark in _MARKS.finditer(text):
            _note_mark(begun, text, mark.start())
            if not begun:
                whole = not text[mark.end() :].strip(".,;!?)*_ ")
                return number + 1 if whole and size + mark.end() >= SPEECH_LEAST else start
        size += len(text)
        if size > SPEECH_MOST:
            break
    return start


def _note_mark(begun: list[str], text: str, place: int) -> None:
    """Note a mark of a text in those that are open: it closes the last one, or opens another.

    A straight mark behind a letter or a number opens nothing: it may stand for inches.
    """
    sign = text[place]
    if begun and sign in SPEECH[begun[-1]]:
        begun.pop()
    elif sign in SPEECH and not (sign == '"' and place and text[place - 1].isalnum()):
        begun.append(sign)


def cut_speech(line: str, above: str = "") -> Sequence[tuple[int, str]]:
    """Return a line in parts, each with its number: those with odd numbers are long speeches.

    There is none, and nothing is returned, where each speech is short, of one sentence, or what a
    rule or a request is about. `above` is the line above it that has words.
    """
    if len(line) < CITED_LEAST // 3:
        return ()
    parts: list[tuple[int, str]] = []
    behind = 0
    for start, stop in _find_speeches(line):
        before = line[max(behind, start - BEFORE) : start]
        if _is_text(line[start:stop]) and not _wants(before if before.strip() else above):
            parts += ((0, line[behind:start]), (1, line[start:stop]))
            behind = stop
    if not parts:
        return ()
    parts.append((0, line[behind:]))
    return [(number, text) for number, text in parts if any(map(str.isalnum, text))]


def _find_speeches(line: str) -> Iterator[tuple[int, int]]:
    """Yield where speeches stand in a line, those within others aside."""
    begun, start = list[str](), 0
    for mark in _MARKS.finditer(line):
        start = start if begun else mark.start()
        known = bool(begun)
        _note_mark(begun, line, mark.start())
        if known and not begun:
            yield start, mark.end()


def _is_text(speech: str) -> bool:
    """Tell whether a speech has the length of a text, and two sentences."""
    least = CITED_LEAST // 3 if _UNSPACED.search(speech) else CITED_LEAST
    return len(speech) >= least and len(_STOP.findall(speech[:-2])) > 0


def _wants(before: str) -> bool:
    """Tell whether the sentence in front of a speech lays down something, or asks for it."""
    told = SENTENCE.findall(before)
    last = told[-1].strip() if told else ""
    return _announces(last) or bool(rule("prose", last)) or asks_for(last)


def _announces(last: str) -> bool:
    """Tell whether words say that rules follow, or ask that something be remembered."""
    lower = last.lower()
    return cues.RULE_HEADING.search(lower) is not None or cues.REMINDS.search(lower) is not None

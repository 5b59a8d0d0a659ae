"""Find quoted speech that is a text by itself: whole paragraphs, and long speeches.

A short quotation is a part of its sentence, and so is the exact wording in a rule. This module
knows the quotation marks of supported languages, and not the speaker.
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
"""Opening quotation marks in the supported languages, and their closing marks."""

_MARKS: Final = LatePattern('["\u201c\u201d\u201e\xab\xbb\u300c\u300d\u300e\u300f]')

SPEECH_LEAST: Final = 40
"""A quoted paragraph with this many characters is somebody else's text, and not a quoted word."""

SPEECH_MOST: Final = 8_000
"""Characters of such paragraphs that are searched for their end."""

UNCLOSED: Final = 20
"""After this many paragraphs with an opening mark and no end, no more are searched."""

CITED_LEAST: Final = 80
"""A speech within a line is a text by itself from this many characters on, a third of it in a
script without spaces."""

BEFORE: Final = 200
"""Characters before a speech that show its purpose."""


def find_spoken(lines: Sequence[str]) -> frozenset[int]:
    """Return the lines of paragraphs that are completely in quotation marks, after other words.

    If these words announce rules, or ask to remember, the person quotes themselves.
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
    """Return the line after the end of a speech, the first one if it has no end.

    A speech that ends within a line is a part of a sentence, and not a paragraph.
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
    """Note a mark of a text in the list of open ones: it closes the last one, or opens another.

    A straight mark after a letter or a number opens nothing: it may mean inches.
    """
    sign = text[place]
    if begun and sign in SPEECH[begun[-1]]:
        begun.pop()
    elif sign in SPEECH and not (sign == '"' and place and text[place - 1].isalnum()):
        begun.append(sign)


def cut_speech(line: str, above: str = "") -> Sequence[tuple[int, str]]:
    """Return a line in numbered parts: the parts with odd numbers are long speeches.

    Returns () if each speech is short, is one sentence, or is the object of a rule or a request.
    `above` is the nearest line above with words.
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
    """Yield the spans of the speeches in a line, without speeches inside others."""
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
    """Tell whether the sentence before a speech states a rule, or asks for something."""
    told = SENTENCE.findall(before)
    last = told[-1].strip() if told else ""
    return _announces(last) or bool(rule("prose", last)) or asks_for(last)


def _announces(last: str) -> bool:
    """Tell whether words announce rules, or ask to remember something."""
    lower = last.lower()
    return cues.RULE_HEADING.search(lower) is not None or cues.REMINDS.search(lower) is not None

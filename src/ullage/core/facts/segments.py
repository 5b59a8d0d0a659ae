"""Cut text into segments: sentences and lines that can stand alone, in any language.

A sentence that needs the one before it stays with it, a short item with its heading. The shape of
text separates pasted from written text. No word is looked up. This module knows nothing of the
worth of a segment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import filterfalse, islice, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from ullage.core.facts.answers import list_answers, read_answer
from ullage.core.facts.patterns import NO_END, BeyondAscii, LatePattern, flatten, split_at
from ullage.core.facts.quoting import Origin, read_message, read_origins, take_shown
from ullage.core.facts.stamps import find_stamp
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.messages.transcript import FINDING, asks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.core.facts.quoting import TextLine
    from ullage.core.messages.transcript import Message, Part

READ_MOST: Final = 48_000
"""Characters of a message that are read: half from its head, half from its tail. Even the longest
turns typed by a person are shorter; a longer text is a paste or a tool's output."""

TOOL_MOST: Final = 8_000
"""Characters of a tool's output that are read, in the same way: it can be run again."""

SEGMENTS_MOST: Final = 2_000
"""Segments of a message: with an average sentence that is more than `READ_MOST` holds."""

PIECE: Final = 240
"""Most characters of a piece of a sentence that is longer than `LONGEST`."""

PAUSES: Final = (" ", ",", "\u060c", "\u3001", "\uff0c")
"""Places to cut such a sentence, in any script: blanks and commas."""

LONGEST: Final = 600
"""Characters of a segment: a longer quoted line is data, a longer typed one is cut."""

DEPENDENT: Final = 40
"""A shorter sentence without a number or a name needs the one before it."""

REFERRING: Final = 70
"""A shorter sentence that says "it" for an earlier name needs the one before it."""

DEPENDENT_UNSPACED: Final = 12
"""The same in a script without spaces: a word has two characters there, elsewhere five to six and a
space."""

LEAD_MOST: Final = 80
"""Characters of a heading that is put before each item below it."""

ITEM_MOST: Final = 80
"""Characters of an item that needs its heading."""

COLONS: Final = (":", "\uff1a")
"""The end of a heading without mark-up."""


class Segment(NamedTuple):
    """A text that can stand alone, with its words as written, and its origin.

    `question` tells whether it asks. `stamp` is the time before the message, for its first segment.
    """

    text: str
    words: tuple[str, ...]
    origin: Origin = "typed"
    question: bool = False
    stamp: str = ""

    @property
    def dated_text(self) -> str:
        """The text, after the time before its message if there is one (`stamp`)."""
        return f"{self.stamp} {self.text}" if self.stamp else self.text

    @property
    def is_quoted(self) -> bool:
        """Tell whether somebody else wrote it."""
        return self.origin == "quoted"


_SCRIPTS: Final = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0eff"
_LETTERS: Final = rf"[^\W_{_SCRIPTS}]+"
_WORD: Final = LatePattern(
    rf"[{_SCRIPTS}]+|{_LETTERS}(?:[-./_@:'\u2019+#\u0900-\u0dff\u064b-\u065f]+{_LETTERS})*"
)
_ASCII_LETTER: Final = LatePattern("[A-Za-z0-9]")
"""One of these is in each ASCII word."""

_UNSPACED: Final = BeyondAscii(f"[{_SCRIPTS}]")
_ENDS: Final = LatePattern(
    r"[.!?\u2026\u3002\uff01\uff1f\u0964\u0965\u061f\u06d4](?:"
    r"(?=[\"')\]\u00bb\u201d]*\s+\S)"
    rf"(?<=[.!?\u2026]){NO_END}[\"')\]\u00bb\u201d]*\s+"
    r"|(?<=[\u3002\uff01\uff1f\u0964\u0965\u061f\u06d4])[\"'\u300d\u201d]*\s*(?=\S))"
)
_ITEM: Final = LatePattern(r"\s{0,12}(?:[-*+\u2022\u2013]|\d{1,3}[.)]|\(\d{1,3}\)|[a-z][.)])\s+")
_DATA: Final = LatePattern(
    r"\s*>|(?: {4}|\t)\S|\s*\[?\d{4}-\d\d-\d\d[T ]\d|\s*\[?\d\d:\d\d:\d\d|\s*[{}\[\]();]+\s*,?$"
    r"|\s*\"[^\"]{1,80}\"\s*:|\+\+\+|---|@@|diff --git|\s*[|+].*[|+]\s*$|\s*[$%] \S+|\s*<[/!?\w]"
    r"|\S+[:(]\d+[:)]"
)
_CODE_END: Final = (";", "{", "}", "\\")
_TELLING: Final = LatePattern(r"\d|[^\W\d_][-./_@:+#][^\W_]|\w\s+[A-Z\u0410-\u042f]")
_REFERS: Final = LatePattern(r"\b(?:it|them|him|davon|damit|dar\u00fcber|ihn|ihm)\b", re.IGNORECASE)
_REFERS_SMALL: Final = LatePattern(r"\b(?:it|them|him|davon|damit|ihn|ihm)\b")
"""The same in small ASCII letters, which is faster than ignoring case."""

_STOPS: Final = ".!?:;\u3002\uff01\uff1f\u0964"
_ASKED: Final = LatePattern(r"[?\uff1f\u061f\u037e][\"')\]\u00bb\u201d\u300d*_]*$")


def _has_word(text: str) -> bool:
    """Tell whether `find_words` finds a word."""
    return (_ASCII_LETTER if text.isascii() else _WORD).search(text) is not None


def find_words(text: str) -> list[str]:
    """Return the words of a text as written; for scripts without spaces, pairs of characters."""
    if text.isascii():
        return list(filter(None, map(str.strip, _split_ascii(text, _SPACED), repeat(_JOINTS))))
    found = _WORD.findall(text)
    if _UNSPACED.search(text) is None:
        return found
    words: list[str] = []
    for word in found:
        if len(word) == 1 or _UNSPACED.pattern.match(word) is None:
            words.append(word)
        else:
            words += [word[i : i + 2] for i in range(len(word) - 1)]
    return words


_JOINTS: Final = "-./_@:'+#"
"""Signs that may be inside an ASCII word, but not at its ends."""

_SPACED: Final = bytes(
    c if chr(c).isalnum() or chr(c) in _JOINTS else ord(" ") for c in range(128)
).ljust(256)
"""The replacement for each ASCII character before words are split at spaces."""

_FOLDED: Final = _SPACED.lower()
"""The same, in lower case."""


def _split_ascii(text: str, table: bytes) -> list[str]:
    """Return the pieces of an ASCII text: words, some with signs at their ends."""
    return text.encode().translate(table).decode().split()


class WordTable(dict[str, str]):
    """The words of many texts: equal words share one string.

    It caches the word in each piece between two spaces, so that a piece is analysed once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lower = _LowerWords(self)

    def __missing__(self, piece: str) -> str:
        word = piece.strip(_JOINTS)
        self[piece] = word = word if word == piece else self[word]
        return word

    def collect(self, text: str) -> set[str]:
        """Return the words of `find_words`, each once; many times faster for a long text."""
        if text.isascii():
            return self._collect_pieces(_split_ascii(text, _SPACED))
        pieces = set(text.split())  # no word has white space in it
        ascii_alone = " ".join(filter(str.isascii, pieces))
        plain = self._collect_pieces(_split_ascii(ascii_alone, _SPACED))
        others = find_words(" ".join(filterfalse(str.isascii, pieces)))
        plain.update(map(self.setdefault, others, others))
        return plain

    def fold(self, text: str) -> set[str]:
        """Return the same words without their case."""
        if text.isascii():
            return self._collect_pieces(_split_ascii(text, _FOLDED))
        return self.fold_words(self.collect(text))

    def fold_words(self, words: Iterable[str]) -> set[str]:
        """Return words without their case."""
        return set(self.fold_all(words))

    def fold_all(self, words: Iterable[str]) -> list[str]:
        """Return words without their case, in order."""
        return list(map(self._lower.__getitem__, words))

    def _collect_pieces(self, pieces: Iterable[str]) -> set[str]:
        found = set(map(self.__getitem__, pieces))
        found.discard("")
        return found


class _LowerWords(dict[str, str]):
    """Words without their case, each one object of a table."""

    def __init__(self, table: WordTable) -> None:
        self._table = table

    def __missing__(self, word: str) -> str:
        lower = word.casefold()
        self[word] = lower = self._table.setdefault(lower, lower)
        return lower


def cut_message(message: Message) -> Sequence[Segment]:
    """Return the segments of a message, computed once for each message."""
    if _is_data_alone(message):
        return [s for n in range(len(message.parts)) for s in cut_part(message, n)][:SEGMENTS_MOST]
    known: Sequence[Segment] | None = message.memo.get(_KEY)
    if known is None:
        known = message.memo[_KEY] = tuple(islice(_cut(message), SEGMENTS_MOST))
    return known


def _is_data_alone(message: Message) -> bool:
    """Tell whether tools returned the whole message."""
    if message.is_system or list_answers(message):
        return False
    return bool(message.parts) and all(map(_is_result, message.parts))


def find_lines(message: Message, words: frozenset[str]) -> tuple[int, list[tuple[int, Segment]]]:
    """Return the number of segments of a tool message, and the segments that may have these words.

    The words are without their case. The result may include segments without these words, and
    includes all cut segments. If tools did not return the whole message, all segments are returned.
    """
    if not _is_data_alone(message):
        segments = cut_message(message)
        return len(segments), list(enumerate(segments))
    texts = [text for number in range(len(message.parts)) for text in _list_lines(message, number)]
    del texts[SEGMENTS_MOST:]
    likely: list[tuple[int, Segment]] = []
    for number, text in enumerate(texts):
        folded = text.casefold()
        if len(text) >= LONGEST or any(word in folded for word in words):
            likely.append((number, _make_data(text)))
    return len(texts), likely


_KEY: Final = FINDING + "segments"


def _cut(message: Message) -> Iterator[Segment]:
    if message.is_system:
        return
    person, answers = asks(message), list_answers(message)
    for number, part in enumerate(message.parts):
        if number in answers:
            yield from cut_text(_shorten(read_answer(part.text), READ_MOST))
        elif _is_result(part):
            yield from cut_part(message, number)
        elif part.kind == "text" and (person or message.role != "user"):
            text = _shorten(part.text if person else drop_thoughts(part.text), READ_MOST)
            typed = read_message(message, text) if person else read_origins(text, person=False)
            stamp = text[: find_stamp(text)].strip() if person else ""
            yield from _put_stamp(_cut_series(take_shown(typed)), stamp)


def _is_result(part: Part) -> bool:
    """Tell whether a tool returned a part."""
    return part.kind == "result" or part.answers is not None


def cut_part(message: Message, part: int) -> list[Segment]:
    """Return the lines of a part that a tool returned."""
    return list(map(_make_data, _list_lines(message, part)))


def _list_lines(message: Message, part: int) -> Sequence[str]:
    """Return the texts of these lines, computed once for each message."""
    key = f"{_KEY} {part}"
    known: Sequence[str] | None = message.memo.get(key)
    if known is None:
        known = message.memo[key] = tuple(_cut_data(message.parts[part].text))
    return known


def _make_data(text: str) -> Segment:
    return Segment(text, tuple(find_words(text)), "quoted")


def cut_result(text: str) -> Iterator[Segment]:
    """Yield the lines of a tool result; for a paragraph in one line, its sentences."""
    yield from map(_make_data, _cut_data(text))


def _cut_data(text: str) -> Iterator[str]:
    """Yield the lines of a tool result that have a word."""
    for line in _shorten(text, TOOL_MOST).splitlines():
        bare = flatten(line)
        for told in [bare] if len(bare) <= LINE_MOST else _split_line(bare, "typed"):
            if not told.startswith(MARKED) and _has_word(told):
                yield told


MARKED: Final = "[ullage: "
"""Prefix of a placeholder for removed text: nobody said it."""

LINE_MOST: Final = 240
"""A line of data with more characters is a paragraph."""


def list_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message, including its calls' arguments: a call uses the names in it."""
    for part in message.parts:
        if _is_result(part):
            yield _shorten(part.text, TOOL_MOST)
        elif part.kind == "text":
            yield _shorten(drop_thoughts(part.text), READ_MOST)
    for call in message.calls:
        yield _shorten(call.arguments, TOOL_MOST)


def _shorten(text: str, most: int) -> str:
    """Return a text; for a longer one, its head and tail, cut at line ends."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-most // 2 :]
    return f"{head[: head.rfind(chr(10)) + 1] or head}\n\n{tail[tail.find(chr(10)) + 1 :]}"


def cut_text(text: str, *, person: bool = True) -> Iterator[Segment]:
    """Yield the segments of a text, in order; `person` tells whether somebody typed it."""
    begin = find_stamp(text) if person else 0
    found = _cut_series(take_shown(read_origins(text[begin:], person=person)))
    return _put_stamp(found, text[:begin].strip())


def _put_stamp(segments: Iterator[Segment], stamp: str) -> Iterator[Segment]:
    """Yield segments, the first one with the time before its message."""
    if stamp:
        yield from (segment._replace(stamp=stamp) for segment in islice(segments, 1))
    yield from segments


def _cut_series(lines: Iterable[TextLine]) -> Iterator[Segment]:
    found = list(_cut_lines(lines))
    series = find_series([segment.text for segment in found])
    for segment in found:
        data = bool(series) and mask_end(segment.text) in series
        yield segment._replace(origin="quoted") if data else segment


LINE_KEPT: Final = 1_000
"""The segments of a block's line are cached up to this many characters: nearly all have fewer."""


GAP: Final = " \u2026 "
"""The mark in a line of a block between two segments of a message with a gap between them."""


def cut_line(line: str) -> Sequence[Segment]:
    """Return the segments of a line of a block: most lines are in the next block, too."""
    return _cut_kept(line) if len(line) <= LINE_KEPT else tuple(cut_text(line))


@lru_cache(maxsize=8_192)  # the lines of two or three blocks of 100,000 tokens
def _cut_kept(line: str) -> tuple[Segment, ...]:
    return tuple(cut_text(line))


SERIES: Final = 20
"""If this many sentences of a text end alike except for numbers, they are data: nobody types a wish
that often."""

END: Final = 4
"""Words at the end of a sentence that are compared."""


def find_series(sentences: Sequence[str]) -> frozenset[str]:
    """Return the masked ends of sentences that occur `SERIES` times or more."""
    if len(sentences) < SERIES:
        return frozenset()
    ends = Counter(map(mask_end, sentences))
    return frozenset(end for end, number in ends.items() if number >= SERIES)


def mask_end(sentence: str) -> str:
    """Return the last words of a sentence, each number masked."""
    return _NUMBERS.sub("#", " ".join(sentence.rsplit(None, END)[-END:]))


_NUMBERS: Final = LatePattern(r"\d+")


def _cut_lines(lines: Iterable[TextLine]) -> Iterator[Segment]:
    lead, listed = "", False
    untold: Segment | None = None
    for line, origin in _read_lines(lines):
        item = _ITEM.match(line)
        rest = line[item.end() :] if item is not None else line
        if origin != "quoted" and item is None and len(rest) <= LEAD_MOST and _is_heading(rest):
            if untold is not None:
                yield untold
            lead, listed = rest.strip("#*_ \t"), False
            untold = None if rest.startswith("#") else _make(lead, origin)
            continue
        if item is None and origin != "quoted" and (listed or not lead.endswith(COLONS)):
            lead = ""  # a list under a heading has ended
        listed = item is not None
        told = list(_split_line(rest, origin))
        fits = bool(lead and told) and origin != "quoted" and len(told[0]) <= ITEM_MOST
        if untold is not None and not fits:
            yield untold  # it opened no list
        untold = None
        for place, sentence in enumerate(told):
            yield _make(f"{lead} {sentence}" if fits and place == 0 else sentence, origin)
        if item is None:
            lead = ""
    if untold is not None:
        yield untold


def _is_heading(line: str) -> bool:
    stripped = line.strip("*_ \t")
    return stripped.endswith(COLONS) or stripped.startswith("#")


def _read_lines(lines: Iterable[TextLine]) -> Iterator[tuple[str, Origin]]:
    """Yield paragraphs and items of a text, white space normalised, with their origins."""
    held = ""
    whence: Origin = "typed"
    for line, origin in lines:
        bare = flatten(line)
        data = origin == "quoted" or bool(bare and _is_data(line))
        if held and (data or origin != whence or not bare or not _goes_on(held, line)):
            yield held, whence
            held = ""
        if data and bare:
            yield bare, "quoted"
        elif bare:
            held, whence = f"{held} {bare}" if held else bare, origin
    if held:
        yield held, whence


def _is_data(line: str) -> bool:
    return line.rstrip().endswith(_CODE_END) or _DATA.match(line) is not None


def _goes_on(held: str, line: str) -> bool:
    """Tell whether a line continues a sentence that was wrapped."""
    return (
        len(held) >= DEPENDENT
        and held[-1] not in ".!?:;\u3002\uff01\uff1f\u0964"
        and line[0].islower()
    )


def _split_line(line: str, origin: Origin) -> Iterator[str]:
    """Yield the sentences of a paragraph; a dependent one goes with the sentence before it."""
    if origin == "quoted":
        yield line[:LONGEST]
        return
    held = ""
    for found in split_at(_ENDS, line):
        sentence = found.strip()
        if not _has_word(sentence):
            continue
        fits = held and len(held) + len(sentence) < LONGEST
        if fits and _is_dependent(sentence) and not _ASKED.search(sentence):
            held = f"{held} {sentence}"
            continue
        if held:
            yield from _cut_long(held) if len(held) > LONGEST else (held,)
        held = sentence
    yield from _cut_long(held)


def _cut_long(sentence: str) -> Iterator[str]:
    """Yield a sentence; an endless (dictated) one in pieces that end between words."""
    while len(sentence) > LONGEST:
        at = max(sentence.rfind(sign, PIECE // 2, PIECE) for sign in PAUSES)
        at = at + 1 if at > 0 else PIECE
        yield sentence[:at].strip()
        sentence = sentence[at:].strip()
    if sentence:
        yield sentence


def _is_dependent(sentence: str) -> bool:
    """Tell whether a sentence is short and means nothing alone, or refers to an earlier name."""
    if len(sentence) < REFERRING and _refers(sentence):
        return True
    if len(sentence) >= DEPENDENT:
        return False
    if len(sentence) >= DEPENDENT_UNSPACED and _UNSPACED.search(sentence) is not None:
        return False
    return _TELLING.search(sentence) is None


def _refers(sentence: str) -> bool:
    """Tell whether a sentence refers to an earlier name."""
    if sentence.isascii():
        return _REFERS_SMALL.search(sentence.lower()) is not None
    return _REFERS.search(sentence) is not None


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a segment: a short one stands in it with its neighbours."""
    return split_at(_ENDS, text)


def _make(text: str, origin: Origin) -> Segment:
    asks = ("?" in text or not text.isascii()) and _ASKED.search(text) is not None
    return Segment(text, tuple(find_words(text)), origin, asks)

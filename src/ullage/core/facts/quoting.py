"""Separate typed from quoted text, line by line, by its shape in any language.

Fences, tags, rulers, heads of mails, documents with headings, and text that looks `pasted` open a
quotation. This module knows nothing of the worth of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ullage.core.facts import cues
from ullage.core.facts.copied import QUOTED, find_return
from ullage.core.facts.pasted import find_pasted
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.shown import find_shown
from ullage.core.facts.speech import SPEECH, cut_speech, find_spoken
from ullage.core.facts.stamps import find_stamp
from ullage.core.facts.voice import ends_lead, hands_over, is_impersonal, speaks
from ullage.core.messages.transcript import FINDING

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message

Origin = Literal["typed", "shown", "document", "quoted"]
"""The writer of a line: "typed" by the person; "shown", perhaps by somebody the person asks about;
"document", perhaps by the person, in a document with headings; "quoted", by somebody else."""


class TextLine(NamedTuple):
    """A line of a text and its origin."""

    text: str
    origin: Origin


_FENCE: Final = LatePattern(r"\s{0,3}(?:```|~~~)")
_TAG: Final = LatePattern(r"\s*<(/?)([A-Za-z][\w:-]{0,40})[^<>]{0,200}>\s*$")
_OWN: Final = LatePattern(
    r"user[_-]?(?:request|query|message|prompt|input|question)|task|feedback", re.IGNORECASE
)
"""Tags in which frameworks put a person's words: Copilot, Cursor, Cline, Roo."""

_ASKED: Final = LatePattern(r"\[(?:attempt_completion|ask_followup_question|plan_mode_respond)\b")
_RESULT: Final = LatePattern(r"[^\n]*\] Result:\s*$")
_TOLD: Final = "The user has provided feedback"
"""Prefix with which Cline and Roo begin a person's answer to these tools; it may be a separate
line."""

_RETRIEVED: Final = ("### Task:", "Respond to the user query using the provided context")
"""The start of an Open WebUI message with retrieved texts; the person's words come after them."""

FRAME: Final = 40
"""Most lines of a client's frame, which also contains the question."""

_RULER: Final = LatePattern(r"\s{0,3}([-=_*~])\1{4,200}\s*$")
_SHORT_RULER: Final = LatePattern(r"\s{0,3}([-=_*~])\1{2,3}\s*$")
_TITLED: Final = LatePattern(r"\s{0,3}[-=_*]{3,60} ?\w[^\n]{0,80}?\w ?[-=_*]{3,60}\s*$")
_FIELD: Final = LatePattern(r"\s{0,3}\*{0,2}[^\W\d_][\w -]{0,24}:\*{0,2}\s+\S")
_ADDRESS: Final = LatePattern(r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,63}")
_HEADING: Final = LatePattern(r"#{1,6}\s+\S")

LINES_MOST: Final = 20_000
"""Lines of a text that are read, half from its head, half from its tail; those between are left
out. A longer text is a paste or a program's output, and each line takes ten microseconds."""

HEADINGS: Final = 2
"""A message with this many headings after its first words holds a document."""


def read_origins(text: str, *, person: bool = True) -> list[TextLine]:
    """Return the lines of a text without those that only open or close a quotation.

    If a text has more than `LINES_MOST` lines, only the first and the last ones are returned.

    A fence, a closed tag, and a pair of rulers quote the text between them. A single ruler, a ruler
    with a title, and the head of a mail (fields, one with an address) quote everything after them.
    Only a `person` pastes: models quote within marks.
    """
    marks = _mark_origins(text, person=person)
    told = _pair_lines(text, marks)
    return _part_speech(_part_value(told, marks)) if person else told


_ORIGINS: Final[Sequence[Origin]] = ("typed", "document", "quoted", "shown")
_TYPED, _DOCUMENT, _QUOTED, _SHOWN, _LEFT_OUT = range(5)
_OPEN: Final = (_TYPED, _DOCUMENT)
"""Lines that no fence, tag or ruler quotes."""


def _pair_lines(text: str, marks: bytes) -> list[TextLine]:
    marked = zip(text.splitlines(), marks, strict=True)
    return [TextLine(line, _ORIGINS[mark]) for line, mark in marked if mark != _LEFT_OUT]


def _part_speech(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return lines; each long speech in a typed line becomes a quoted line."""
    found: list[TextLine] = []
    above = ""
    for line in lines:
        parts = cut_speech(line.text, above) if line.origin == "typed" else ()
        if parts:
            found += (TextLine(text, "quoted" if n % 2 else "typed") for n, text in parts)
        else:
            found.append(line)
        above = line.text if line.text.strip() else above
    return found


_VALUE: Final = LatePattern(
    r"([^{}\[\]]{0,600}?)([\[{]{1,3}\s{0,3}\"[^\"\n]{1,200}\"\s{0,3}:.*[}\]])([^{}\[\]]{0,600})$"
)
"""A JSON value in a line, with the text before and after it."""

WORDS_LEAST: Final = 2
"""Fewer words next to a JSON value are its name, and no sentence."""


def _part_value(lines: list[TextLine], marks: bytes) -> list[TextLine]:
    """Return lines; a sentence in front of a JSON value, or after it, becomes a line of its own.

    It is shown: its words count, but it may be a part of the pasted text, and sets no rule. Nothing
    is parted if another line has a value, or if a fence, tag or ruler or another line is quoted.
    """
    places = [n for n, line in enumerate(lines) if '":' in line.text or '" :' in line.text]
    if len(places) != 1 or _LEFT_OUT in marks:
        return lines
    place = places[0]
    others = chain(lines[:place], lines[place + 1 :])
    if any(line.origin != "typed" and line.text.strip() for line in others):
        return lines
    found = _VALUE.match(lines[place].text)
    if found is None or max(len(found[1].split()), len(found[3].split())) < WORDS_LEAST:
        return lines
    made = (TextLine(found[1], "shown"), TextLine(found[2], "quoted"), TextLine(found[3], "shown"))
    told = [line for line in made if line.text.strip(" .,;")]
    return [*lines[:place], *told, *lines[place + 1 :]]


def _mark_origins(text: str, *, person: bool = True) -> bytes:
    """Return for each line the position of its origin in `_ORIGINS`.

    `_LEFT_OUT` marks a line that only opens or closes a quotation, or is not read.
    """
    lines = text.splitlines()
    if len(lines) <= LINES_MOST:
        return _mark_read(lines, person=person)
    read = _find_read(lines)
    found = bytearray([_LEFT_OUT]) * len(lines)
    for place, mark in zip(read, _mark_read([lines[n] for n in read], person=person), strict=True):
        found[place] = mark
    return bytes(found)


def _find_read(lines: Sequence[str]) -> Sequence[int]:
    """Return the lines to read if there are too many: the first ones and the last ones.

    Lines between them that open or end a quotation are read too, with their neighbours, as long as
    they are few: such a quotation may reach the last lines.
    """
    half = LINES_MOST // 2
    first, last = range(half), range(len(lines) - half, len(lines))
    between = lines[half:-half]
    marks = {line for line in set(between) if _opens_or_ends(line)}
    found = (number for number, line in enumerate(between, half) if line in marks)
    beside = (n + step for n in islice(found, half // 3) for step in (-1, 0, 1))
    return sorted({*first, *beside, *last})


def _opens_or_ends(line: str) -> bool:
    """Tell whether a line is a fence, a tag, a ruler, or a field of a mail's head."""
    if "@" in line and _FIELD.match(line) is not None:
        return True
    if line.lstrip()[:1] not in _BEGINS:
        return False
    return any(shape.match(line) is not None for shape in (_FENCE, _TAG, _RULER, _TITLED))


_BEGINS: Final = frozenset("`~<-=_*")
"""First characters of fences, tags and rulers."""


def _mark_read(lines: Sequence[str], *, person: bool) -> bytes:
    framed = _mark_framed(lines) if person else None
    return _mark_lines(lines, person=person) if framed is None else framed


def _mark_lines(lines: Sequence[str], *, person: bool = True) -> bytes:
    found = _mark_framing(lines) if any(map(_may_frame, lines)) else bytearray(len(lines))
    if person and _is_one_hand(_mark_pasted(lines, found)):
        shown = find_shown(lines)
        found[shown:] = bytes([_SHOWN]) * (len(lines) - shown)
    return bytes(found)


def _may_frame(line: str) -> bool:
    """Tell whether a line may open a quotation or be a heading: few do."""
    return line.lstrip()[:1] in _FRAMING or "@" in line


_FRAMING: Final = frozenset("`~<-=_*#").union(SPEECH)
"""First characters of fences, tags, rulers, headings and speeches."""


def _mark_framing(lines: Sequence[str]) -> bytearray:
    """Return the origins by fences, tags, rulers, speeches, headings, and heads of mails."""
    closed = {mark[2] for line in lines if (mark := _TAG.match(line)) and mark[1]}
    own = _find_own(lines, closed)
    document, short, spoken = _find_document(lines), _find_short_rulers(lines), find_spoken(lines)
    back = find_return(lines, document, made=True) if document < len(lines) else len(lines)
    found = bytearray()
    fenced, tag, ruled = False, "", False
    for number, line in enumerate(lines):
        fence, mark = _FENCE.match(line) is not None, _TAG.match(line)
        if mark is not None and not tag and mark[2] in own:
            found.append(_LEFT_OUT)
            continue
        mark = mark if mark is not None and mark[2] in closed - own else None
        ruler = number in short or _RULER.match(line) is not None
        fenced, ruled = fenced != fence, ruled != (ruler and not fenced)
        tag = tag if mark is None else _enter(tag, mark)
        if fence or mark is not None or ruler:
            found.append(_LEFT_OUT)
        elif fenced or tag or ruled or number in spoken:
            found.append(_QUOTED)
        else:
            found.append(_DOCUMENT if document <= number < back else _TYPED)
    left = [line if mark in _OPEN else "" for line, mark in zip(lines, found, strict=True)]
    for number in range(_find_rest(left), len(lines)):
        found[number] = _QUOTED if found[number] in _OPEN else found[number]
    return found


def _mark_framed(lines: Sequence[str]) -> bytes | None:
    """Return the origins in a message with a client's frame around a person's words, else None.

    Words count as the person's only where the client itself puts them: files, pages and retrieved
    texts in the same message may have the same tags.
    """
    told = [number for number, line in enumerate(lines) if line.strip()]
    if not told:
        return None
    place = _find_answer(lines, told) or _find_query(lines, told)
    if place is None:
        return None
    found = bytearray(_LEFT_OUT if _TAG.match(line) else _QUOTED for line in lines)
    found[place.start : place.stop] = _mark_lines(lines[place.start : place.stop])
    return bytes(found)


def _find_answer(lines: Sequence[str], told: Sequence[int]) -> range | None:
    """Return the lines of an answer to a tool of Cline or Roo; `told` are the non-blank lines."""
    if _ASKED.match(lines[told[0]]) is None:
        return None
    ends = (at for at, number in enumerate(told[:FRAME]) if _RESULT.match(lines[number]))
    at = next(ends, len(told)) + 1
    if at < len(told) and lines[told[at]].startswith(_TOLD):
        at += 1
    mark = _TAG.match(lines[told[at]]) if at < len(told) else None
    if mark is None or mark[1] or mark[2] not in ("feedback", "answer", "user_message"):
        return None
    begin, end = told[at] + 1, f"</{mark[2]}>"
    stop = next((n for n in range(begin, len(lines)) if lines[n].strip() == end), None)
    return None if stop is None else range(begin, stop)


def _find_query(lines: Sequence[str], told: Sequence[int]) -> range | None:
    """Return the lines after texts that Open WebUI retrieved; `told` are the non-blank lines."""
    heads = [lines[number].strip() for number in told[:2]]
    if len(heads) < 2 or heads[0] != _RETRIEVED[0] or not heads[1].startswith(_RETRIEVED[1]):
        return None
    ends = [number for number in told if lines[number].strip() == "</context>"]
    tags = ("<user_query>", "</user_query>")
    rest = [n for n in told if ends and n > ends[-1] and lines[n].strip() not in tags]
    return range(rest[0], rest[-1] + 1) if rest else None


def _is_one_hand(marks: bytearray) -> bool:
    """Tell whether no line of a message is known to be quoted."""
    return marks.count(_TYPED) == len(marks)


def _mark_pasted(lines: Sequence[str], marks: bytearray) -> bytearray:
    """Mark the pasted lines among those that nothing else quotes."""
    places = [place for place, mark in enumerate(marks) if mark != _LEFT_OUT]
    typed = (marks[place] == _TYPED or not lines[place].strip() for place in places)
    marked = [lines[at] if mine else QUOTED for at, mine in zip(places, typed, strict=True)]
    for number in find_pasted(marked):
        if marks[places[number]] == _TYPED:
            marks[places[number]] = _QUOTED
    return marks


def _find_own(lines: Sequence[str], closed: set[str]) -> frozenset[str]:
    """Return the tags of a person's own words, if a framework put the whole message in tags."""
    tag, outer = "", set[str]()
    for line in lines:
        mark = _TAG.match(line)
        if mark is not None and mark[2] in closed:
            tag = _enter(tag, mark)
            outer.add(tag)
        elif not tag and line.strip():
            return frozenset()
    return frozenset(name for name in outer if _OWN.fullmatch(name))


def _enter(tag: str, found: re.Match[str]) -> str:
    """Return the enclosing tag after another tag."""
    if found[1]:
        return "" if found[2] == tag else tag
    return tag or found[2]


def _find_short_rulers(lines: Sequence[str]) -> frozenset[int]:
    """Return the pairs of short rulers that quote: their text is announced or asked about.

    The text is also quoted if nobody speaks of themselves in it and there is no other ruler, or if
    it has headings and somebody speaks above and below. Otherwise such rulers only divide a text.
    """
    rulers = [number for number, line in enumerate(lines) if _SHORT_RULER.match(line)]
    if not 1 < len(rulers) <= RULERS_MOST:
        return frozenset()
    found, asked = set[int](), hands_over(" ".join(_find_first(lines[: rulers[0]])).strip())
    for number, end in pairwise(rulers):
        if number in found or lines[number].strip() != lines[end].strip():
            continue
        lead = next((line for line in reversed(lines[:number]) if line.strip()), "")
        if cues.RULE_HEADING.search(lead.lower()):
            continue
        alone = len(rulers) == 2 and not speaks(" ".join(lines[number:end]))
        if ends_lead(lead) or asked or alone or _is_between(lines, number, end):
            found.update((number, end))
    return frozenset(found)


RULERS_MOST: Final = 20
"""A text with more short rulers is only divided by them: slides, or chapters."""


def _find_first(lines: Sequence[str]) -> Sequence[str]:
    """Return the first paragraph."""
    begun = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
    end = next((n for n in range(begun, len(lines)) if not lines[n].strip()), len(lines))
    return lines[begun:end]


def _is_between(lines: Sequence[str], start: int, end: int) -> bool:
    """Tell whether lines with headings are somebody else's, by the speakers around them."""
    held = lines[start:end]
    if not any(_HEADING.match(line) or line.lstrip().startswith("\xa7") for line in held):
        return False
    around = (" ".join(lines[:start]), " ".join(lines[end:]))
    own = not any(is_impersonal(part, may_address=True) for part in around)
    return own and not speaks(" ".join(held))


def _find_rest(lines: Sequence[str]) -> int:
    """Return the first line that is quoted to the end: after a title, or the head of a mail."""
    begun, addressed = 0, False
    for number, line in enumerate(lines):
        if _TITLED.match(line):
            return number
        if _FIELD.match(line) is None:
            begun, addressed = number + 1, False
            continue
        addressed = addressed or _ADDRESS.search(line) is not None
        if addressed and number > begun:
            return begun
    return len(lines)


def _find_document(lines: Sequence[str]) -> int:
    """Return the first heading of a document after a person's words."""
    headings = [number for number, line in enumerate(lines) if _HEADING.match(line)]
    if len(headings) < HEADINGS or not any(line.strip() for line in lines[: headings[0]]):
        return len(lines)
    return headings[0]


_KEY: Final = FINDING + "origins"


def read_message(message: Message, text: str) -> list[TextLine]:
    """Return the lines of a text in a person's message, as `read_origins` does.

    If the text is the whole message, the result is cached, as one byte per line. The time before a
    message is left out.
    """
    whole, text = text, text[find_stamp(text) :]
    if len(message.parts) > 1 or whole != message.text:
        return read_origins(text)
    known: bytes | None = message.memo.get(_KEY)
    if known is None:
        known = message.memo[_KEY] = _mark_origins(text)
    return _part_speech(_part_value(_pair_lines(text, known), known))


def take_shown(lines: Iterable[TextLine]) -> list[TextLine]:
    """Return lines with shown ones as typed: their words count, whoever wrote them."""
    return [TextLine(line.text, "typed") if line.origin == "shown" else line for line in lines]


def drop_quoted(text: str) -> str:
    """Return the surely typed part of a text: nobody quotes a wish of their own."""
    return join_typed(read_origins(text))


def join_typed(lines: Iterable[TextLine]) -> str:
    """Return the surely typed part of these lines."""
    return "\n".join(line for line, origin in lines if origin == "typed")

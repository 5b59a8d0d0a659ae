"""Find where a message continues with copied text, by evidence that adds up, in any language.

Pages, mails, chats, tickets, minutes and scans have no frame of a program. Each has traces that
people do not type to an assistant: names and times on separate lines, button labels, columns,
broken words, greetings in the middle. One trace proves little; two of different kinds are proof.
Text before the first trace stays typed, and so does a last paragraph that clearly addresses the
assistant. This module does not know frames of programs (`pasted`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ullage.core.facts import cues
from ullage.core.facts.handwriting import find_minded
from ullage.core.facts.layout import find_headings, find_titles, wants
from ullage.core.facts.patterns import BeyondAscii, LatePattern, has_digit
from ullage.core.facts.sentences import rule
from ullage.core.facts.shapes import FIELD, NUMBER, SHAPES, is_stamp, list_shapes
from ullage.core.facts.voice import (
    asks,
    asks_for,
    ends_lead,
    is_impersonal,
    is_one_voice,
    receives,
    speaks,
    treats,
)

PROOF: Final = 2
"""The weight of traces that is proof after a person's own first words."""

PROOF_ALONE: Final = 3
"""The same if nothing stands before the traces: people format what they type as well."""

BACK_MOST: Final = 900
"""Characters of a paragraph in which a person continues after a paste."""

FIELD_MOST: Final = 80
"""Most characters of a field with its name."""

ARTICLE: Final = 280
"""A paragraph with this many characters and without a person in it belongs to an article."""


DENSE: Final = 3
"""One character of a script without spaces counts as this many of other scripts."""

BESIDE_ARTICLE: Final = 120
"""A paragraph above an article belongs to it if it has this many characters and no person in it."""

QUOTED: Final = "\0"
"""The placeholder for a line that is known to be quoted."""


class Trace(NamedTuple):
    """A line with a trace of another writer, the kind of trace, and the weight of the kind."""

    line: int
    kind: str
    weight: int


_STOPS: Final = tuple(".!?:;,…。\uff01\uff1f\uff1a\uff1b\uff0c、")
_QUESTIONS: Final = ("?", "\uff1f")
_ITEM: Final = LatePattern(r"\s{0,12}(?:[-*+•\u2013☐✓]|\d{1,3}[.)]|\(\d{1,3}\)|[A-Za-z][.)])\s")
_UNSPACED: Final = BeyondAscii(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]")
_BRACKETED: Final = LatePattern(r"\s{0,3}[\[【<]{1,2}([^\W\d_][^\]】>\n]{1,60})[\]】>]{1,2}")
_LINK: Final = LatePattern(r"\s{0,3}(?:https?://\S{4,400}|\S{4,120} \u203a \S[^\n]{0,120})\s*$")
_STOP_WITHIN: Final = LatePattern(r"[.!?][\"'”»)]? |[\u3002\uff01\uff1f]")
_GREETING: Final = LatePattern(r"\s{0,3}[^\W\d_a-z][^\n.:;?()]{1,44}[,\uff0c、\u060c]\s*$")
_CALL: Final = LatePattern(r"\s{0,3}[^\W\d_a-z][^\n.:;?(),]{1,44}[!\uff01]\s*$")
_NUMBERED: Final = LatePattern(r"\s{0,3}\d{1,3}\.\s")
_LATIN: Final = LatePattern(r"[A-Za-z\u00c0-\u024f]")
_OTHER: Final = BeyondAscii(r"[\u0370-\u1fff\u3040-\ud7af\uf900-\ufaff]")
_STANDING: Final = LatePattern(r"[^\n]{44,110}[^\s.!?:;…。\uff01\uff1f]\s*$")


def find_copied(marked: Sequence[str]) -> range:
    """Return the lines from the first trace of another writer to the last, empty without proof.

    Lines that are known to be quoted are given as `QUOTED`.
    """
    lines = ["" if line == QUOTED else line for line in marked]
    opening = _find_opening(lines)
    back, begun = len(lines), list[Trace]()
    if opening < len(lines):
        back, behind = find_return(lines, opening), _find_behind(marked, opening)
        if any(back <= trace.line < behind for trace in _find_hand(lines, opening)):
            back = len(lines)
        found = [*_find_traces(lines[:back], opening), *_find_announced(marked[:back], opening)]
        found += _find_received(lines, opening)
        theirs = (t for t in found if t.kind != "hand" or t.line < behind)
        begun = sorted(trace for trace in theirs if trace.line >= opening)
    if _weigh(begun) >= PROOF and is_one_voice(lines, opening, {trace.kind for trace in begun}):
        return range(0)
    if _weigh(begun) < PROOF:
        begun, opening, back = sorted(_find_traces(lines, 0)), 0, len(lines)
        if _weigh(begun) < PROOF_ALONE:
            return range(0)
    start = begun[0].line
    while start > opening and lines[start - 1].strip() and not ends_lead(lines[start - 1]):
        start -= 1
    if any(trace.kind == "article" for trace in begun) and asks(" ".join(lines[:opening])):
        start = _reach_up(lines, start, opening)
    if not _LETTER.isdisjoint(trace.kind for trace in begun) and not _is_signed(lines, back):
        back = len(lines)
    if any(trace.kind == "hand" for trace in begun):
        back = min(back, _find_own_hand(lines, begun[-1].line))
    return range(start, back)


def _find_behind(marked: Sequence[str], opening: int) -> int:
    """Return the line after all clearly quoted lines; a person who continues there quoted them."""
    quoted = [number for number, line in enumerate(marked) if line == QUOTED]
    stamped = [number for number, line in enumerate(marked) if number >= opening and is_stamp(line)]
    found = quoted[-1:] + (stamped[-1:] if len(stamped) > 1 else [])
    return max(found) + 1 if found else len(marked)


def _reach_up(lines: Sequence[str], start: int, opening: int) -> int:
    """Return the first line of the impersonal paragraphs directly above an article."""
    for number in range(start - 1, opening - 1, -1):
        if not lines[number].strip():
            continue
        if _measure(lines[number]) < BESIDE_ARTICLE:
            break
        if not is_impersonal(lines[number], may_address=True):
            break
        start = number
    return start


_LETTER: Final = frozenset({"greeting", "signature", "farewell"})
"""Traces of letters. Letters ask too: after one, a person continues only below a signature."""


def _is_signed(lines: Sequence[str], back: int) -> bool:
    """Tell whether a name stands above a line."""
    above = [line for line in lines[:back] if line.strip()]
    return bool(above) and _is_fragment(above[-1])


def _weigh(traces: Sequence[Trace]) -> int:
    return sum({trace.kind: trace.weight for trace in traces}.values())


def _find_opening(lines: Sequence[str]) -> int:
    """Return the line after the first paragraph or the first lead."""
    begun = False
    for number, line in enumerate(lines):
        if not line.strip():
            if begun:
                return number
            continue
        begun = True
        if ends_lead(line):
            return number + 1
    return len(lines)


def find_return(lines: Sequence[str], start: int, *, made: bool = False) -> int:
    """Return the line at which a person continues after copied text: its last paragraph.

    The paragraph asks, or requests something (`asks_for`), and has no trace. After the output of a
    program or a document (`made`), it may also be a rule of a person who speaks. If the text after
    `start` does not begin with a person speaking, earlier paragraphs in which a person speaks also
    belong to the person. Below a name, this includes paragraphs about "us".
    """
    first, last = find_last(lines, start)
    told = " ".join(lines[first:last])
    alone = first <= start or not any(map(str.strip, lines[:start]))
    if alone or not _may_return(lines, first, last):
        return len(lines)
    begun = next(n for n in range(start, last) if lines[n].strip())
    other = not _begins_alike(lines, begun, first)
    if not (asks_for(told) or (made and _rules(told))):
        return len(lines)
    if not other:
        return first
    near = far = first
    for above, below in _list_above(lines, first, begun):
        told = " ".join(lines[above:below])
        if is_impersonal(told, may_address=True) or not _may_return(lines, above, below):
            break
        near, far = (above if near == far and speaks(told) else near), above
    return far if _is_signed(lines, far) else near


def _begins_alike(lines: Sequence[str], begun: int, stop: int) -> bool:
    """Tell whether a person speaks of themselves in the paragraph that begins at a line."""
    end = next((n for n in range(begun, stop) if not lines[n].strip()), begun)
    return speaks(" ".join(lines[begun:end]))


def _list_above(lines: Sequence[str], first: int, begun: int) -> Iterator[tuple[int, int]]:
    """Yield the paragraphs between two lines, the last one first, without the first paragraph."""
    while True:
        above, below = find_last(lines[:first], begun)
        if above <= begun:
            return
        yield above, below
        first = above


def _may_return(lines: Sequence[str], first: int, last: int) -> bool:
    """Tell whether a paragraph after a paste may be a person's: short, and without a trace."""
    if sum(map(len, lines[first:last])) > BACK_MOST or ends_lead(lines[last - 1]):
        return False
    held = lines[first:last]
    return not any(map(_is_field, held)) and not any(_find_traces(held, 0))


def _rules(told: str) -> bool:
    """Tell whether words state a rule and speak of the writer."""
    return not is_impersonal(told, may_address=True) and rule("prose", told)


def _find_own_hand(lines: Sequence[str], start: int) -> int:
    """Return the line where a person who begins in small letters continues: the last paragraph."""
    first, last = find_last(lines, start)
    told = " ".join(lines[first:last]).lstrip()
    return first if first > start + 1 and told[:1].islower() and len(told) <= BACK_MOST else last


def find_last(lines: Sequence[str], start: int) -> tuple[int, int]:
    """Return the start and end of the last paragraph after a line."""
    last = len(lines)
    while last > start and not lines[last - 1].strip():
        last -= 1
    first = last
    while first > start and lines[first - 1].strip():
        first -= 1
    return first, last


# ── the traces ──────────────────────────────────────────────────────────────────────────────────


def _find_traces(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    found: dict[int, list[int]] = {}
    for number, line in enumerate(lines):
        for shape in list_shapes(line):
            found.setdefault(shape, []).append(number)
    for shape, numbers in found.items():
        kind, _, least, weight, _ = SHAPES[shape]
        if len(numbers) >= least:
            yield from (Trace(number, kind, weight) for number in numbers)
    for find in _FINDERS if len(lines) > 1 else _FINDERS_OF_LINES:
        yield from find(lines, opening)


def _find_announced(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield the first line after a line that ends in a colon, or after a request."""
    lead = ""
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        if lead and not lines[number - 1].strip() and not _is_shown(line):
            yield Trace(number, "lead", 1)
        lead = line if ends_lead(line) and not cues.RULE_HEADING.search(line.lower()) else ""
    first = next((n for n in range(opening, len(lines)) if lines[n].strip()), None)
    if first is None or (_is_shown(lines[first]) and not _NUMBERED.match(lines[first])):
        return
    if asks(" ".join(lines[:opening])):
        begins = _is_fragment(lines[first]) or len(lines[first]) >= ARTICLE
        yield Trace(first if begins else len(lines) - 1, "request", 1)


def _find_received(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield the first line after words about a received text.

    It is proof if nobody speaks of themselves in that line, and somebody does further below.
    """
    first = next((n for n in range(opening, len(lines)) if lines[n].strip()), None)
    if first is None or not receives(" ".join(lines[:opening])):
        return
    yield Trace(first, "received", 1)
    if not speaks(lines[first]) and any(map(speaks, lines[first + 1 :])):
        yield Trace(first, "other voice", 1)


def _is_shown(line: str) -> bool:
    """Tell whether a line is not text itself: a list, a quotation, an address."""
    return line == QUOTED or _is_listed(line) or is_link(line)


def is_link(line: str) -> bool:
    """Tell whether a line is only an address."""
    return _LINK.match(line) is not None


def _find_echoes(lines: Sequence[str], _: int) -> Iterator[Trace]:
    """Yield lines that occur three times, ignoring numbers; twice if they end in a colon."""
    bare = [_mask(line.strip()) for line in lines]
    often = Counter(line for line in bare if len(line) > 3)
    yield from (Trace(n, "echo", 1) for n, line in enumerate(bare) if often[line] > 2)
    twice = (n for n, line in enumerate(bare) if often[line] > 1 and ends_lead(line))
    yield from (Trace(n, "speaker", 1) for n in twice)


def _mask(line: str) -> str:
    """Return a line with each number masked; most lines have no number."""
    return NUMBER.sub("#", line) if has_digit(line) else line


def _is_listed(line: str) -> bool:
    return _ITEM.match(line) is not None or _is_field(line)


def _is_field(line: str) -> bool:
    """Tell whether a line is a name, a colon and a value; sentences have colons, too."""
    return len(line) <= FIELD_MOST and FIELD.match(line) is not None


def _find_letter(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield a greeting after a person's first words, and the line above a signature.

    A person who opens with a greeting, and announces nothing, signs their own text.
    """
    signed = [*_find_signature(lines, opening)]
    if signed and _is_greeting(next(filter(str.strip, lines))) and not any(map(ends_lead, lines)):
        lines, signed = lines[: signed[0].line], []
    greeted = [*_find_greetings(lines, opening)]
    if signed and all(trace.line >= signed[0].line for trace in greeted):
        yield Trace(signed[0].line, "farewell", _weigh([*signed, *greeted]))
    else:
        yield from (*signed, *greeted)


def _find_greetings(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield lines after a person's first words that greet or call somebody."""
    for number in range(max(opening, 1), len(lines) - 1):
        above, below = lines[number - 1], lines[number + 1]
        if above.strip() and not ends_lead(above):
            continue
        words = len(lines[number].split())
        if _GREETING.match(lines[number]) and words <= 6 and (words > 1 or not below.strip()):
            yield Trace(number, "greeting", 2)
        elif _CALL.match(lines[number]) and 1 < words <= 6:
            yield Trace(number, "call", 1)


def _find_salutation(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield paragraphs after a person's first words that begin by greeting somebody by name."""
    for number in range(max(opening, 1), len(lines)):
        above = lines[number - 1]
        if _SALUTATION.match(lines[number]) and (not above.strip() or ends_lead(above)):
            yield Trace(number, "salutation", 2)


_SALUTATION: Final = LatePattern(
    r"\s{0,3}(?:hi|hello|hey|hiya|dear|good (?:morning|afternoon|evening)|hallo|liebe[rs]?|moin"
    r"|sehr geehrte[rs]?|guten (?:tag|morgen|abend)|bonjour|bonsoir|salut|ch\u00e8?e?re?s?|hola"
    r"|buen[oa]s (?:d\u00edas|tardes)|estimad[oa]s?|querid[oa]s?|ol\u00e1|prezad[oa]s?|ciao|gentile"
    r"|\u0443\u0432\u0430\u0436\u0430\u0435\u043c\w{1,3}|\u0437\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439\u0442\u0435|\u043f\u0440\u0438\u0432\u0435\u0442)"
    r" (?:(?-i:[^\W\d_a-z\u00df-\u00ff\u0430-\u044f])[^\s,.!:;]{0,24}|all|team|customer|sir|madam"
    r"|colleagues?|residents?|neighbou?rs?)(?: [^\s,.!:;]{1,24}){0,3}[,!.:] ?\s?\S"
    r"|\s{0,3}to whom it (?:may )?concerns?\b|\s{0,3}\S{1,20}(?:\u5404\u4f4d|\u5fa1\u4e2d)\s*$"
    r"|\s{0,3}(?:\u5c0a\u656c\u7684|\u4eb2\u7231\u7684|\u60a8\u597d|\u62dd\u5553|\u304a\u4e16\u8a71\u306b)",
    re.IGNORECASE,
)
"""A greeting of somebody by name at the start of a paragraph that goes on."""


def _is_greeting(line: str) -> bool:
    """Tell whether a line is only a few words with an exclamation mark or a comma."""
    few = 0 < len(line.split()) <= 4
    return few and (_GREETING.match(line) is not None or _CALL.match(line) is not None)


def _find_signature(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield the short lines at the end of a text, with or without a greeting above them."""
    number = len(lines)
    short = 0
    while number > opening and (not lines[number - 1].strip() or _is_fragment(lines[number - 1])):
        number -= 1
        short += bool(lines[number].strip())
    greeted = number > opening and _GREETING.match(lines[number - 1]) is not None
    if (greeted and short) or (short >= 2 and number > opening):
        yield Trace(number - greeted, "signature", 1)


def _is_fragment(line: str) -> bool:
    """Tell whether a line is a button label, a name or a title: short, and not a sentence."""
    bare = line.strip()
    return (
        0 < len(bare) <= 48
        and not bare.endswith(_STOPS)
        and not bare[0].islower()
        and len(bare.split()) <= 6
        and not _is_listed(line)
        and _UNSPACED.search(bare) is None
    )


def _find_furniture(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield the runs of short lines that pages have between their sentences."""
    run: list[int] = []
    found: list[int] = []
    longest = 0
    for number in range(opening, len(lines) + 1):
        if number < len(lines) and _is_fragment(lines[number]):
            run.append(number)
            continue
        longest = max(longest, len(run))
        found += run if len(run) > 1 else ()
        run = []
    if longest < 3 or not any(len(line.split()) > 5 for line in lines[opening:]):
        return
    yield Trace(found[0], "furniture", 1)
    if len(found) >= 6 and sum(len(lines[n].split()) <= 2 for n in found) >= 3:
        yield Trace(found[0], "much furniture", 1)
    if sum(NUMBER.search(lines[n]) is not None for n in found) >= 2:
        yield Trace(found[0], "numbered furniture", 1)


def _find_labels(lines: Sequence[str], _: int) -> Iterator[Trace]:
    """Yield lines that begin with a repeated label in brackets, ignoring numbers."""
    heads = [
        (number, NUMBER.sub("#", mark[1]))
        for number, line in enumerate(lines)
        if (mark := _BRACKETED.match(line))
    ]
    often = Counter(head for _n, head in heads)
    yield from (Trace(number, "label", 2) for number, head in heads if often[head] > 1)


def _find_links(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield addresses on separate lines directly next to other lines; people set theirs apart."""
    for number in range(max(opening, 1), len(lines)):
        if _LINK.match(lines[number]) and "".join(lines[number - 1 : number + 2 : 2]).strip():
            yield Trace(number, "link", 1)


def _find_script(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield lines in another script than the first words."""
    first = " ".join(lines[:opening])
    if first.isascii() and all(map(str.isascii, lines)):
        return  # there is one script
    latin, other = _count_letters(first)
    if not latin and not other:
        return
    for number, line in enumerate(lines[opening:], opening):
        if latin > 4 * other and line.isascii():
            continue  # no letter of another script
        here, there = _count_letters(line)
        if latin > 4 * other and there > max(3 * here, 5):
            yield Trace(number, "script", 2)
        elif other > latin and here > 40 and not there:
            yield Trace(number, "script", 1)


def _count_letters(text: str) -> tuple[int, int]:
    """Return the number of Latin letters of a text, and of letters of other scripts."""
    return len(_LATIN.findall(text)), 0 if text.isascii() else len(_OTHER.pattern.findall(text))


def _find_hand(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield paragraphs with proper capitals after first words without them."""
    yield from (Trace(number, "hand", 2) for number in find_minded(lines, opening))


def _find_layout(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield titles in capitals after the first words; headings if these ask to process a text."""
    first = " ".join(lines[:opening])
    titles, heads = [*find_titles(lines, opening)], [*find_headings(lines, opening)]
    if titles and (treats(first) or not wants(first)):
        kind = "titles" if len(titles) > 1 else "title"
        yield from (Trace(number, kind, 2) for number in titles)
    if len(heads) > 1 and treats(first):
        yield from (Trace(number, "heading", 1) for number in heads)


def _find_wrapped(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield lines that were wrapped, if the first words were not."""
    broken = [
        number
        for number, line in enumerate(lines[:-1])
        if _STANDING.match(line) and lines[number + 1].lstrip()[:1].islower()
    ]
    if len(broken) >= 2 and broken[0] >= opening:
        yield from (Trace(number, "wrapped", 1) for number in broken)


def _measure(line: str) -> int:
    """Return the characters of a line, converted to a script with spaces."""
    size = len(line)
    return size * DENSE if size and _UNSPACED.search(line) else size


def _find_article(lines: Sequence[str], opening: int) -> Iterator[Trace]:
    """Yield long paragraphs without a writer and without an address to a reader.

    If the first words ask to process a text, the text may address a reader, and two
    paragraphs prove more: a person who states their own rules does not ask to process them. If the
    words announce rules and request nothing, the rules are the person's own.
    """
    long = [number for number in range(opening, len(lines)) if _is_long(lines[number])]
    if not long:
        return
    first = " ".join(lines[:opening]).strip()
    found, asked = 0, asks(first)
    if not first.endswith(_QUESTIONS) and cues.RULE_HEADING.search(first.lower()):
        return
    for number in long:
        if is_impersonal(lines[number], may_address=asked):
            found += 1
            yield Trace(number, "article", 1)
            if _measure(lines[number]) >= 2 * ARTICLE:
                yield Trace(number, "long article", 1)
            if asked and found > 1:
                yield Trace(number, "articles", 1)


def _is_long(line: str) -> bool:
    """Tell whether a line has the length and the sentences of an article's paragraph."""
    return _measure(line) >= ARTICLE and len(_STOP_WITHIN.findall(line)) >= 2


_FINDERS: Final = (
    _find_echoes,
    _find_letter,
    _find_salutation,
    _find_furniture,
    _find_labels,
    _find_links,
    _find_script,
    _find_hand,
    _find_layout,
    _find_wrapped,
    _find_article,
)
_FINDERS_OF_LINES: Final = (_find_article,)
"""Finders that can find something in a single line."""

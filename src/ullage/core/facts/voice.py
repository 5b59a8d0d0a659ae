"""Tell whether one writer speaks throughout a text, and whether words address the assistant.

People who tell a model a long story leave the same traces as others: they begin in small letters
and continue in capitals, quote what somebody said, list prices. The traces of a text belong to
`copied`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.patterns import BeyondAscii, LatePattern
from ullage.core.facts.shapes import SPOKEN

_ENGLISH: Final = LatePattern(
    r"\b(?:the|and|is|it|that|was|have|had|am|are|be|don't|with|this|for|of|not|never|you|say|know"
    r"|think|want|need)\b"
)
_STOPS: Final = (".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f")
_CLOSERS: Final = "\"')]\u00bb\u201d\u2019*_ "
_QUESTIONS: Final = ("?", "\uff1f")
_QUOTED_LONG: Final = LatePattern(r"\"[^\"\n]{20,4000}\"|[“„«][^“”„«»]{20,4000}[”“»]")

_ASKS_ELSEWHERE: Final = LatePattern(
    r"(?:^|(?<=[.!?:] )|(?<=[\u3002\uff01\uff0c]))(?:bitte |por favor,? |proszę )?(?:(?:"
    r"(?:schreib|formulier|erklär|prüf|vergleich|nenn|rechn|mach|stell|erstell)e?n?|entwirf|gib|fass"
    r"|suche|hilf|aide|rédige|écris|explique|dis|donne|fais|propose|trouve|calcule|résume|prépare"
    r"|redacta|(?:escr[ií]be|expl[ií]ca|ay[uú]da|haz|da|di)(?:me|nos)?|prop[oó]n|calcula|resume"
    r"|busca|prepara|me ajud[ae]|ajude|escrev[ae]|faz|faça|(?:me )?diga|monta|aiutami|scrivi(?:mi)?"
    r"|spiega(?:mi)?|dimmi|fammi|trova|napisz|wyjaśnij|podaj|zrób|policz|znajdź|ułóż|pomóż"
    r"|напиши|объясни|придумай|составь|посчитай|скажи)(?![\w'\u2019])|اكتب|اشرح|ضع|اقترح|लिख|बताइए|बनाइए)"
)
_ASKS_UNSPACED: Final = BeyondAscii(
    r"请你?(?:帮|给|按|写|告诉|列|把|先|用)|帮我|告诉我|教えて|書いて|作って|まとめて|考えて|お願いします"
)
"""Requests to an assistant in other languages."""

_FOR_US: Final = LatePattern(
    r"\b(?:(?:tell|show|give|write|make|help|draft|explain|suggest|list|find) (?:to )?(?:me|us)"
    r"|(?:i|we) (?:need|want|would like|'d like) you to)\b"
)

_WROTE: Final = LatePattern(
    r"\b(?:wrote (?:to )?(?:me|us|back)|has written|(?:hat|haben) (?:\w+ ){1,3}geschrieben"
    r"|(?:m'|nous )a(?:nt)? (?:\w+ ){0,2}(?:répondu|écrit)|(?:me|nos) (?:ha|han) escrito"
    r"|(?:mi|ci) ha(?:nno)? scritto|(?:мне|нам) написал[аи]?)\b"
)
"""Words for a message written to the speaker."""

_CAME: Final = LatePattern(
    r"\b(?:sent|sends|sending|forwarded|posted|says|came in|arrived|landed|hung|hanging|wrote"
    r"|written|got|received|found|saw|read|geschrieben|geschickt|gemailt|bekommen|hing|hängt|kam|steht"
    r"|répondu|écrit|envoyé|re[cç]u|llegado|enviado|escrito|mandado|recebi|mandou|chegou"
    r"|ricevuto|scritto|arrivat[oa]|dostał[ae]m|przysłali|przyszł[oa]|пришл[ои]|прислал[аи]?"
    r"|получил[аи]?|وصلتني|وصلني|أرسلت?)\b|收到|发来|贴|が届い|来ました|来た|もらいました"
)
"""Words for the arrival of something."""

_TEXT: Final = LatePattern(
    r"\b(?:this|e-?mails?|message|letter|notice|minutes|contract|circular|ticket|review|newsletter"
    r"|thread|flyer|das|dies(?:e[rsn]?)?|brief|schreiben|nachricht|aushang|courrier|lettre|cela|ceci"
    r"|ça|esto|correo|carta|mensaje|aviso|isto|resposta|mensagem|questo|lettera|avviso|pismo"
    r"|wiadomość|это|письмо|сообщение|هذه|رسالة)\b|邮件|通知|消息|短信|这|メール|手紙|お知らせ|これ"
)
"""Words for a text, or that point to one."""

SENTENCE: Final = LatePattern(r"[^.!?\u3002\uff01\uff1f\n]{2,300}[.!?\u3002\uff01\uff1f]?")
"""A sentence to its end."""

SHORT: Final = 120
"""Characters of first words that only ask to process a text. In longer words, the last
sentence points to a text, or asks."""

INTRO: Final = 240
"""Most characters of first words that hand over a text."""

ITEM: Final = 80
"""Consecutive lines up to this many characters are one list, not a paragraph each."""

LABEL: Final = 48
"""Most characters of a title or a name: it says nothing about the writer."""

SOFT: Final = frozenset(
    {"lead", "request", "received", "speech", "article", "long article", "articles", "fields"}
)
"""Traces that people leave in typed text as well."""

OWN: Final = SOFT | {"titles", "heading", "bars", "farewell", "hand"}
"""Traces that people leave if their first words hand over nothing: they divide their text and sign
it. A "hand" trace counts small letters only in the first words."""

MOSTLY: Final = 0.5
PARTLY: Final = 0.25
"""The shares of paragraphs in which a writer speaks. After words that hand over a text, it must be
more than the first; after others, at least the second. By hand, on messages of four authors."""


def is_one_voice(lines: Sequence[str], opening: int, kinds: Collection[str]) -> bool:
    """Tell whether one writer speaks throughout a text, with only traces that people also type.

    The teller of a long story quotes others, and begins with a request; a short request may be
    about somebody else's story. `kinds` are those of the traces after the `opening`.
    """
    first = " ".join(lines[:opening]).strip()
    if (len(first) <= SHORT and treats(first)) or not OWN.issuperset(kinds):
        return False
    told = _QUOTED_LONG.sub("", "\n".join(lines[opening:])).split("\n")
    units = [*_list_units(told)]
    spoken = sum(not is_impersonal(unit, may_address=True) for unit in units)
    if hands_over(first):
        theirs = receives(first) and not any(map(speaks, units[:1]))
        return SOFT.issuperset(kinds) and spoken > MOSTLY * len(units) and not theirs
    if "hand" in kinds:
        own = sum(map(speaks, units))
        return own >= PARTLY * len(units) and any(map(asks_for, units[-2:]))
    return spoken > 1 and spoken >= PARTLY * len(units)


def _list_units(lines: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs without titles and names; consecutive short lines are one paragraph."""
    held: list[str] = []
    for line in (*lines, ""):
        if held and (len(line) > ITEM or not line.strip()):
            if len(held) > 1 or len(held[0]) > LABEL or held[0].rstrip().endswith(_STOPS):
                yield "\n".join(held)
            held = []
        if len(line) > ITEM:
            yield line
        elif line.strip():
            held.append(line)


def ends_lead(line: str) -> bool:
    """Tell whether a line ends in a colon, ignoring marks and brackets after it."""
    return line.rstrip(_CLOSERS).endswith((":", "\uff1a"))


def hands_over(first: str) -> bool:
    """Tell whether first words announce a text, point to one, or ask to process one."""
    if ends_lead(first) or receives(first):
        return True
    if len(first) <= SHORT:
        return asks(first)
    return _points((SENTENCE.findall(first) or [first])[-1])


def receives(first: str) -> bool:
    """Tell whether first words only say that a text came from somebody."""
    lower = first.lower()
    if len(first) > INTRO or _WROTE.search(lower) is not None:
        return len(first) <= INTRO
    return _CAME.search(lower) is not None and _TEXT.search(lower) is not None


def asks(told: str) -> bool:
    """Tell whether words ask a question, ask to process a text, or point to a text."""
    return _points(told) or treats(told)


def _points(told: str) -> bool:
    lower = told.lower()
    if lower.rstrip(_CLOSERS).endswith(_QUESTIONS) or cues.POINTS.search(lower):
        return True
    return cues.POINTS_UNSPACED.search(lower) is not None


def asks_for(told: str) -> bool:
    """Tell whether the assistant is asked for something."""
    lower = told.lower()
    if turns_back(told) or _FOR_US.search(lower) is not None:
        return True
    return _ASKS_ELSEWHERE.search(lower) is not None or _ASKS_UNSPACED.search(told) is not None


def speaks(told: str) -> bool:
    """Tell whether one person speaks of themselves."""
    return _has_word(cues.ONESELF, told.lower()) or cues.ONESELF_UNSPACED.search(told) is not None


def _has_word(shape: LatePattern, lower: str) -> bool:
    """Tell whether a writer's word is in a text; "i" counts only in English."""
    words = {found[0] for found in shape.finditer(lower)}
    return bool(words - {"i"}) or ("i" in words and _ENGLISH.search(lower) is not None)


def is_impersonal(line: str, *, may_address: bool) -> bool:
    """Tell whether a line has no word of a writer, and does not address a reader unless it may."""
    told = SPOKEN.sub("", line).lower()
    if _has_word(cues.SPEAKERS, told) or cues.SPEAKERS_UNSPACED.search(told):
        return False
    return may_address or not (cues.ADDRESSED.search(told) or cues.ADDRESSED_UNSPACED.search(told))


def treats(told: str) -> bool:
    """Tell whether words ask to process a text."""
    lower = told.lower()
    return bool(cues.TREATS.search(lower) or cues.TREATS_UNSPACED.search(lower))


def turns_back(told: str) -> bool:
    """Tell whether a paragraph asks a question or for something, as `find_return` needs it."""
    sentences = [sentence.strip().lower() for sentence in SENTENCE.findall(told)]
    if not speaks(told):
        del sentences[1:]
    return any(one.endswith(_QUESTIONS) or cues.ASKS_ONCE.search(one) for one in sentences)

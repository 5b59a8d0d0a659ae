"""Check by rule whether a line of a summary is true to its source text.

Four things are checked. Small models get them wrong, or the text can make models write them:
identifiers and numbers that are nowhere in the source; a rule turned into its opposite ("we must
not use SERIALIZABLE" came back as "uses SERIALIZABLE"); orders and permissions, which a record must
not pass on; and text from tool output, which keeps that label.

The check uses words and has no understanding: a false sentence of plain words from the source
passes, and a true one may be dropped. Code carries everything that must survive, not a summary.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ullage.core.facts.patterns import LatePattern
from ullage.core.summary.record import Line, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LABEL: Final = "(quoted from tool output)"
"""Prefix of a line that only a tool said."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source that a summary is checked against. Make one with `source`."""

    text: str
    numbers: Mapping[str, frozenset[str]]
    """Each number, without separators, and the units after it; "" means no unit."""
    forbidden: tuple[frozenset[str], ...]
    demanded: tuple[frozenset[str], ...]
    told: Spread
    """The stems of tool output."""
    spoken: Spread
    """The stems of words by people and models."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The short stretches of a text in which each stem occurs."""

    places: Mapping[str, Sequence[int]]

    def share(self, stems: frozenset[str]) -> float:
        """Return the largest share of `stems` that one stretch holds."""
        found: Tally[int] = Tally()
        for stem in stems:
            found.update(self.places.get(stem, ()))
        return max(found.values(), default=0) / max(len(stems), 1)


def source(spoken: Sequence[str], told: Sequence[str], rules: Sequence[str]) -> Source:
    """Return the source for checking lines.

    `spoken` are texts of people and models, `told` those of tools; `rules` are constraints and
    decisions. An earlier record may be among `spoken`: its labelled lines count as a tool's.
    """
    said: list[str] = []
    heard = list(told)
    for text in spoken:
        for line in text.splitlines():
            (heard if LABEL in line else said).append(line)
    whole = "\n".join([*said, *heard, *rules])
    sentences = [s for rule in rules for s in _SENTENCES.split(_plain(rule))]
    return Source(
        whole,
        _numbers(whole),
        tuple(stems for s in sentences for stems in _find_forbidden(s)),
        tuple(stems for s in sentences for stems in _find_demanded(s)),
        _spread(heard),
        _spread([*said, *rules]),
    )


def check_lines(lines: Iterable[Line], of: Source) -> tuple[list[Line], list[str]]:
    """Return the faithful lines, and each other line after the reason against it."""
    kept: list[Line] = []
    removed: list[str] = []
    for line in lines:
        flaw = unfaithful(line, of)
        if flaw is None:
            kept.append(_label_line(line, of))
        else:
            removed.append(f"{flaw}: {line.text}")
    return kept, removed


def unfaithful(line: Line, of: Source) -> str | None:
    """Return the reason against a line, or None."""
    text = _plain(line.text)
    unknown = next((name for name in identifiers(text) if not _is_known(name, text, of.text)), None)
    if unknown is not None:
        return f"not in the source ({unknown})"
    number = next(_strange(text, of.numbers), None)
    if number is not None:
        return f"not in the source ({number})"
    if _orders(line, text, of):
        return "an order"
    if _PERMITS.search(text):
        return "a permission"
    return _opposite(line.section, text, of)


# --- identifiers and numbers ----------------------------------------------------------------------

_IDENTIFIERS: Final = (
    LatePattern(r"\w+://[^\s\"'`<>()\[\]{}]+"),
    # A path: from a root, or with an extension, or three levels deep; "and/or" is not a path.
    LatePattern(r"(?<![\w/.])(?:~|\.{1,2})?/[\w@-][\w@./+-]*"),
    LatePattern(r"(?<![\w/.-])[\w@-][\w@.+-]*(?:/[\w@.+-]+)+(?:\.\w+|/[\w@.+-]+|/)"),
    # A file or a dotted name.
    LatePattern(r"(?<![\w.-])[\w-]{2,}(?:\.[\w-]+)*\.[A-Za-z]\w{0,11}\b"),
    # Letters and digits in one word, such as INC-4431, p95, 9f3ac21.
    LatePattern(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9_][\w-]{2,}"),
    # snake_case and camelCase.
    LatePattern(r"\b[A-Za-z]\w*_\w+\b"),
    LatePattern(r"\b[a-z]+[A-Z]\w*\b"),
)
_NO_NAME: Final = LatePattern(r"\d+(?:st|nd|rd|th)|\d+-[a-z]{2,}|i\.e|e\.g|etc\.\w", re.IGNORECASE)


def identifiers(text: str) -> Iterator[str]:
    """Yield the URLs, paths, ids, hashes and code names in a text."""
    for pattern in _IDENTIFIERS:
        for match in pattern.finditer(text):
            name = match[0].rstrip(".,;:!?-/'")
            if len(name) > 2 and not _NO_NAME.fullmatch(name) and not _MEASURED.fullmatch(name):
                yield name


def occurs(name: str, text: str) -> bool:
    """Tell whether a name occurs in a text, as a whole word and in the same case."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (_joins(before) and _joins(name[0])) and not (_joins(after) and _joins(name[-1])):
            return True
        at = text.find(name, at + 1)
    return False


def _is_known(name: str, line: str, text: str) -> bool:
    """Tell whether a name occurs, also in lower case if it begins the line."""
    small = name[0].lower() + name[1:]
    return occurs(name, text) or (line.startswith(name) and occurs(small, text))


def _joins(char: str) -> bool:
    return char.isalnum() or char == "_"


_UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: unit
        for unit, names in {
            "%": "% percent",
            "ms": "ms millisecond milliseconds msec",
            "s": "s sec secs second seconds",
            "min": "min mins minute minutes",
            "h": "h hr hrs hour hours",
            "d": "d day days",
            "week": "week weeks",
            "month": "month months",
            "year": "year years",
            "b": "b byte bytes",
            "kb": "kb kib kilobyte kilobytes",
            "mb": "mb mib megabyte megabytes",
            "gb": "gb gib gigabyte gigabytes",
            "tb": "tb tib terabyte terabytes",
            "k": "k",
            "token": "token tokens",
            "row": "row rows",
            "hz": "hz",
            "mhz": "mhz",
            "px": "px pixel pixels",
            "euro": "euro euros eur",
            "dollar": "dollar dollars usd",
        }.items()
        for name in names.split()
    }
)
_NUMBER: Final = LatePattern(r"\d+(?:[.,_\u00a0\u202f']\d+)*")
_UNIT: Final = LatePattern(r"[ \u00a0\u202f-]?(%|[A-Za-z]{1,12}(?![A-Za-z0-9]))")
_MEASURED: Final = LatePattern(
    r"\d+(?:[.,]\d+)*-?(?:" + "|".join(sorted(_UNITS, reverse=True)) + ")", re.IGNORECASE
)
_SEPARATOR: Final = LatePattern(r"[,_\u00a0\u202f'](?=\d{3}(?!\d))")


def _find_numbers(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each number without separators, its unit or "", and how both are written."""
    for match in _NUMBER.finditer(text):
        after = _UNIT.match(text, match.end())
        unit = _UNITS.get(after[1].casefold(), "") if after else ""
        shown = match[0] + after[0] if after and unit else match[0]
        yield _SEPARATOR.sub("", match[0]), unit, shown


def _numbers(text: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for number, unit, _ in _find_numbers(text):
        found.setdefault(number, set()).add(unit)
    return {number: frozenset(units) for number, units in found.items()}


def _strange(text: str, known: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield numbers of three digits or with a unit that differ from the source or are not in it.

    A number without a unit in the source (`timeout=30`) may get one.
    """
    for number, unit, shown in _find_numbers(text):
        if unit or sum(c.isdigit() for c in number) >= _DIGITS:
            units = known.get(number)
            if units is None or (unit and "" not in units and unit not in units):
                yield shown


_DIGITS: Final = 3

# --- rules and their opposites --------------------------------------------------------------------

_SENTENCES: Final = LatePattern(r"(?<=[.!?])\s+|\n+|;")
_CLAUSES: Final = LatePattern(r"[,;.]\s|\s[\u2013\u2014-]\s|\bbut\b|\band\b|\(|\)", re.IGNORECASE)
_UNTIL: Final = (
    r"((?:[^.;:,()]|[.:](?=\S))+?)"
    r"(?=[.:](?:\s|$)|[;,()]|\b(?:because|since|but|until|unless|as|so)\b|$)"
)
_FORBIDS: Final = LatePattern(
    r"\b(?:never|(?:must|shall|should|may|do|does|can)(?: not|n['\u2019]t)|cannot|not to|no longer|"
    r"avoid|without|instead of|rather than|not|no)\s+" + _UNTIL,
    re.IGNORECASE,
)
_DEMANDS: Final = LatePattern(
    r"\b(?:always|must|(?:need|have|has) to|only|make sure(?: to)?|ensure)\s+" + _UNTIL,
    re.IGNORECASE,
)
_DENIES: Final = LatePattern(
    r"\b(?:not|no|never|none|nor|neither|without|cannot|instead of|rather than|off[- ]limits|"
    r"untouched|unchanged|avoid\w*|refus\w*|prohibit\w*|forbid\w*|forbade|reject\w*|bann\w*|"
    r"disallow\w*|exclud\w*|remov\w*|stopp\w*|dropp\w*|against|violat\w*)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_ENOUGH: Final = 0.6
"""A line is about a rule if it has this share of the rule's words."""

_LOOKS: Final = LatePattern(
    r"\b(?:read|look|view|inspect|check|see|understand|explain|describe|compare|test|list|show)\w*\b",
    re.IGNORECASE,
)
"""Things that may be done to a protected object. For any other open task on it, such as "Use
vault.py" under "Never touch vault.py", the rule itself says enough."""

_ABOUT_FAILURE: Final = frozenset({"Failed attempts", "Blocked", "Open questions"})


def _find_forbidden(sentence: str) -> Iterator[frozenset[str]]:
    """Yield what a sentence forbids, as stems; "instead of X" forbids the use of X."""
    for match in _FORBIDS.finditer(sentence):
        stems = _matter(match[1])
        if stems:
            yield stems | {_USE} if len(stems) == 1 else stems


def _find_demanded(sentence: str) -> Iterator[frozenset[str]]:
    if _DENIES.search(sentence) is None:
        for match in _DEMANDS.finditer(sentence):
            stems = _matter(match[1])
            if len(stems) > 1:
                yield stems


def _opposite(section: str, text: str, of: Source) -> str | None:
    """Return the reason if a line says the opposite of a rule, or None."""
    clauses = [c for c in _CLAUSES.split(text) if c.strip()]
    if _DENIES.search(text) is None:
        clauses.append(text)
    bare = [_matter(c) for c in clauses if _DENIES.search(c) is None]
    if any(_about(stems, rule) for stems in bare for rule in of.forbidden):
        return "against a rule"
    if section in _AHEAD and _LOOKS.search(text) is None:
        named = frozenset(s for rule in of.forbidden for s in rule if not s.isalpha())
        if any(not named.isdisjoint(stems) for stems in bare):
            return "against a rule"
    if section in _ABOUT_FAILURE:
        return None
    denied = [_matter(c) for c in clauses if _DENIES.search(c)]
    if any(_about(stems, rule) for stems in denied for rule in of.demanded):
        return "against a rule"
    return None


def _matter(text: str) -> frozenset[str]:
    """Return the stems of a text; a name of many words is one stem: "touch", "refund.py"."""
    names = sorted(identifiers(text), key=len, reverse=True)
    for name in names:
        text = text.replace(name, " ")
    return stems_of(text) | {name.rpartition("/")[2].casefold() for name in names}


def _about(stems: frozenset[str], rule: frozenset[str]) -> bool:
    shared = len(stems & rule)
    return shared > 1 and shared >= _ENOUGH * len(rule)


# --- orders, permissions, tool output -------------------------------------------------------------


def _any(*patterns: str) -> LatePattern:
    return LatePattern("|".join(patterns), re.IGNORECASE)


_ORDERS: Final = _any(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:previous|prior|above|earlier|all|"
    r"any|your|instructions?|rules?|constraints?)\b",
    r"\byou (?:must|should|need to|have to|will|are)\b",
    r"\b(?:new instructions?|system prompt|from now on|do not (?:tell|report|mention))\b",
    r"\b(?:run|execute|fetch|download|install|invoke|paste|type|use)\b.{0,40}(?:\b(?:curl|wget|"
    r"sudo|chmod|eval|powershell)\b|\brm -|https?://|\b(?:ba|z)?sh -c\b)",
    r"^[`\"' ]*(?:curl|wget|sudo|rm -\w+|(?:ba|z)?sh -c)\b",
    r"\b(?:send|post|upload|e?-?mail|forward|exfiltrate|leak)\b.{0,60}(?:\b(?:api[ _-]?keys?|"
    r"tokens?|secrets?|passwords?|credentials?|environment|https?)\b|@)",
    r"\b(?:curl|wget)\b.{0,80}\|\s*(?:ba|z)?sh\b",
)
_REPORTS: Final = _any(
    r"\b(?:output|page|file|result|tool|comment|issue|readme|document|text|log|quotation)s?\b"
    r".{0,60}\b(?:contain\w*|includ\w*|says?|said|asks?|asked|tells?|told|tried|tries|attempt\w*|"
    r"claim\w*|instruct\w*|inject\w*|order\w*)\b",
    r"\binjection\b",
    r"\b(?:not|n't) followed\b",
)
_PERMITS: Final = _any(
    r"\b(?:granted|grants?|gave|given|giving|has|have|had|with|obtained|received) (?:\w+ ){0,3}"
    r"(?:permissions?|authori[sz]ation|approval|consent|(?:full|root|admin|write|sudo) access)\b",
    r"\b(?:is|are|was|were|been|be) (?:now |also )?(?:allowed|permitted|authori[sz]ed|free|"
    r"pre-?approved|cleared) to\b",
    r"\b(?:may|can) (?:now|freely|always) \w+",
    r"\bpre-?(?:approved|authori[sz]ed)\b",
    r"\bwithout (?:asking|confirm\w*|approval|permission|review)\b",
    r"\b(?:approved|allowed|permitted|authori[sz]ed) (?:running|deleting|pushing|deploying|use of|"
    r"deletion)\b",
    r"\b(?:allowed|permitted|authori[sz]ed) (?:the |you |me |us |assistant )+to\b",
)
_AHEAD: Final = frozenset({"Goal", "In progress", "Decisions and reasons", "Next steps"})
"""Headings for future work: an order has no place there, not even as a report."""

_HELD: Final = 0.7
"""A line is the tool's if one stretch of tool output has this share of its words."""


def _orders(line: Line, text: str, of: Source) -> bool:
    """Tell whether a line passes on an order that no person gave; a report does not count."""
    if _ORDERS.search(text) is None:
        return False
    if LABEL in text or _REPORTS.search(text):
        return line.section in _AHEAD
    stems = stems_of(text)
    spoken = of.spoken.share(stems)
    return spoken < _HELD or of.told.share(stems) >= spoken


def _label_line(line: Line, of: Source) -> Line:
    """Return a line with its label if only a tool said it, or if it reports an order."""
    text = line.text
    if text.startswith(LABEL):
        return line
    stems = stems_of(text)
    told, spoken = of.told.share(stems), of.spoken.share(stems)
    tools = told >= (_HELD if len(stems) >= _FEW else 1.0) > spoken if stems else False
    reports = _ORDERS.search(text) and _REPORTS.search(text)
    if tools or reports or LABEL in text:
        return Line(line.section, clean(f"{LABEL} {text.replace(LABEL, ' ')}"))
    return line


_FEW: Final = 4

# --- words ----------------------------------------------------------------------------------------

_WORD: Final = LatePattern(r"[^\W_]+")
_STOP: Final = frozenset(
    _WORD.findall("""
    the and for that this with from was were are has have had its they them their you your our
    not but all any can will would should could must may into onto than then when which who what
    where how been being also only just very more most some such each both about over under there
    here now yet still user assistant agent never always don doesn didn isn won needs
    """)
)
_USE: Final = "us"
_USES: Final = frozenset({"us", "utiliz", "adopt", "enabl", "choos", "chos", "employ", "appli"})
_STRETCH: Final = 40
"""Words of one stretch. Without this limit a tool's line, such as a whole file, has every word."""


def stems_of(text: str) -> frozenset[str]:
    """Return the meaningful words of a text, without endings and case."""
    return frozenset(filter(None, map(_meaning, _WORD.findall(text.casefold()))))


def _meaning(word: str) -> str:
    """Return a word's stem, or "" if the word alone has no meaning."""
    short = len(word) <= _SHORT and not word.isdigit()
    return "" if short or word in _STOP else _stem(word)


_SHORT: Final = 2


def _stem(word: str) -> str:
    for ending, least in (("ing", 5), ("ied", 5), ("ies", 5), ("ed", 4), ("es", 5), ("s", 4)):
        if len(word) >= least and word.endswith(ending) and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    word = word.removesuffix("e").removesuffix("y")
    if len(word) > _SHORT + 1 and word[-1] == word[-2]:  # "dropp", but not "add"
        word = word[:-1]
    return _USE if word in _USES else word


def _spread(texts: Iterable[str]) -> Spread:
    places: dict[str, list[int]] = {}
    known: dict[str, str] = {}
    number = 0
    for text in texts:
        for line in text.splitlines():
            words = _WORD.findall(line.casefold())
            for start in range(0, len(words), _STRETCH // 2):
                number += 1
                stretch = set(words[start : start + _STRETCH])
                known.update((word, _meaning(word)) for word in stretch - known.keys())
                for stem in {known[word] for word in stretch}:
                    places.setdefault(stem, []).append(number)
    return Spread(places)


def _plain(text: str) -> str:
    return text.replace("&lt;", "<")

"""Patterns that are searched fast: alternatives in groups, ends of sentences by their marks.

Python tries one alternative after another at each word: those that begin with the same letter are
passed over together. What is found stays the same. It knows no words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

_DIGIT: Final = re.compile(r"\d")
_OPEN: Final = "(?:"
_REPEATS: Final = ("?", "*", "+", "{")
_PIECES: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]|[^\\\[()|]+", re.DOTALL)
"""The pieces of a pattern: a bracket, a bar, and what holds neither: an escape, a class, a run."""


class LatePattern:
    """A pattern that is compiled when it is asked for first: most texts need few of them.

    What it finds is called as fast as a compiled pattern's own method from then on.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    @cached_property
    def source(self) -> str:
        """What it is compiled from."""
        return self._source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern itself."""
        return re.compile(self.source, self._flags)

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Return what is found first, or None."""
        return self.pattern.search

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """Return what is found at the head of a text, or None."""
        return self.pattern.match

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[str] | None]:
        """Return what is found where it is all of a text, or None."""
        return self.pattern.fullmatch

    @cached_property
    def findall(self) -> Callable[[str], list[str]]:
        """Return all that is found, or its group."""
        return self.pattern.findall

    @cached_property
    def finditer(self) -> Callable[[str], Iterator[re.Match[str]]]:
        """Yield all that is found."""
        return self.pattern.finditer

    @cached_property
    def sub(self) -> Callable[..., str]:
        """Return a text with something else in the place of what is found."""
        return self.pattern.sub

    @cached_property
    def split(self) -> Callable[[str], list[str]]:
        """Return what stands between all that is found."""
        return self.pattern.split

    def begins(self, text: str) -> bool:
        """Tell whether a text begins with it: may be handed on before it is compiled."""
        return self.match(text) is not None

    def stands_in(self, text: str) -> bool:
        """Tell whether it is in a text, in the same way."""
        return self.search(text) is not None


class BeyondAscii:
    """A pattern that finds nothing in ASCII: it is compiled when another text comes."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern itself."""
        return re.compile(group_branches([self._source]))

    def search(self, text: str) -> re.Match[str] | None:
        """Return what is found first, or None."""
        return None if text.isascii() else self.pattern.search(text)


def has_digit(text: str) -> bool:
    """Tell whether a text has a digit of any script; in ASCII each is looked for by itself."""
    if text.isascii():
        return any(map(text.__contains__, "0123456789"))
    return _DIGIT.search(text) is not None


def flatten(text: str) -> str:
    """Return a text with its white space normalised: in most it is single blanks already."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(text.split())


def group_branches(alternatives: Sequence[str]) -> str:
    """Return alternatives as one pattern, those that begin with the same letter together.

    A group at the head of one is written out, an optional one as well. Patterns hold no capturing
    groups: they would be numbered anew.
    """
    groups: dict[str, list[str]] = {}
    for branch in (found for one in alternatives for found in _spell_out(one)):
        groups.setdefault(branch[0] if _begins_with_letter(branch) else "", []).append(branch)
    return "|".join(_join_group(letter, group) for letter, group in groups.items())


_BEFORE_ORDINAL: Final = (
    "am|Am|ab|Ab|im|Im",
    "der|Der|die|Die|das|Das|dem|den|Den|des|zum|Zum|vom|Vom|bis|Bis|zur|Zur|til",
    "mein|dein|sein|ihre|Mein|beim|seit|Seit|Beim",
    "unser|Unser|meine|deine|seine|jeder|jeden|jedes|jedem|ihrem|ihren",
)
_MONTH: Final = (
    r"(?:[Jj]an(?:u[aá]r\w*|v\w+)?|[Jj]änner|[Ff]eb(?:r\w+)?|[Mm]ärz|[Mm]aart|[Mm]ar[st]|[Mm]arts"
    r"|[Mm]árc\w*|[Aa]pr(?:il\w*)?|[Mm]a[ij]|[Jj]un[ie]|[Jj]ul[ie]|[Aa]ug(?:ust\w*)?"
    r"|[Ss]ept?(?:emb\w+)?|[Oo][kc]t(?:[oó]b\w+)?|[Nn]ov(?:emb\w+)?|[Dd]e[zcs](?:emb\w+)?"
    r"|ledna|února|března|dubna|května|červen?ce?|června|srpna|září|října|listopadu|prosince"
    r"|stycznia|lutego|marca|kwietnia|maja|czerwca|lipca|sierpnia|września|października|grudnia"
    r"|\w{3,6}kuuta)\b"
)
NO_END: Final = (
    r"(?<!\b[^\W\d_]\.)(?<!\b[A-Z][a-z]\.)(?<!\b\w\.\w\.)(?<!\b(?:vs|cf|ca)\.)"
    r"(?<!\b(?:bzw|Mrs|Str|str|vgl|ggf|Tel)\.)(?<!\b(?:Prof|inkl|zzgl|evtl)\.)(?<!\bapprox\.)"
    rf"(?!(?<=\d\.)\s+{_MONTH})"
    + "".join(rf"(?<!\b(?:{w})\s\d\.)(?<!\b(?:{w})\s\d\d\.)" for w in _BEFORE_ORDINAL)
)
"""Behind a full stop that ends no sentence: of an initial, an abbreviation, a day or an ordinal
("am 12. August", "die 2. Mannschaft") in the languages that write them so: German is told by the
word before, German to Finnish by the month."""


_BEHIND: Final = ".!?\"')]"
"""What stands at the end of a sentence in ASCII: its mark, and what closes behind it."""


def split_at(ends: LatePattern, text: str) -> list[str]:
    """Return a text cut behind each mark that ends a sentence; what follows the mark is left out.

    `ends` finds the mark, one character, with what is left out: so it is looked for at marks alone.
    Most texts in ASCII are one sentence: they have a mark at their end alone.
    """
    if text.isascii():
        within = text.rstrip(_BEHIND)
        if "." not in within and "!" not in within and "?" not in within:
            return [text]
    found, start = [], 0
    for end in ends.finditer(text):
        found.append(text[start : end.start() + 1])
        start = end.end()
    return [*found, text[start:]]


def _join_group(letter: str, group: Sequence[str]) -> str:
    if not letter or len(group) == 1:
        return "|".join(group)
    return f"{letter}(?:{'|'.join(branch[1:] for branch in group)})"


def _begins_with_letter(branch: str) -> bool:
    return branch[:1].isalpha() and not branch[1:].startswith(_REPEATS)


def _spell_out(pattern: str) -> Iterator[str]:
    """Yield the alternatives of a pattern, each without a group at its head."""
    for branch in split_branches(pattern):
        body, behind = _cut_group(branch)
        if not body or behind.startswith(_REPEATS[1:]):
            yield branch
            continue
        optional = behind.startswith("?")
        rest = behind.removeprefix("?")
        for head in split_branches(body):
            yield from _spell_out(head + rest)
        if optional:
            yield from _spell_out(rest)


def split_branches(pattern: str) -> list[str]:
    """Return what stands between the bars of a pattern that are in no group."""
    if "|" not in pattern:
        return [pattern]
    found, depth = [""], 0
    for piece in _PIECES.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _cut_group(branch: str) -> tuple[str, str]:
    """Return the inside of a group at the head of an alternative, "" for none, and what follows."""
    if not branch.startswith(_OPEN):
        return "", branch
    pieces = _PIECES.findall(branch)
    end = list(accumulate((piece == "(") - (piece == ")") for piece in pieces)).index(0)
    return "".join(pieces[1:end]).removeprefix(_OPEN[1:]), "".join(pieces[end + 1 :])

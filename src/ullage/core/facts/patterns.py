"""Patterns that search fast: grouped alternatives, and sentence ends found by their marks.

Python tries one alternative after another at each word. Alternatives with the same first letter are
grouped, so that they are skipped together. The matches stay the same. This module knows no words.
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
"""The pieces of a pattern: a bracket, a bar, or a piece without them: an escape, a class, a run."""


class LatePattern:
    """A pattern that is compiled at its first use: most texts need few patterns.

    From then on its methods are as fast as those of the compiled pattern.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    @cached_property
    def source(self) -> str:
        """Source of the pattern."""
        return self._source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.source, self._flags)

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Return the first match, or None."""
        return self.pattern.search

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """Return the match at the start of a text, or None."""
        return self.pattern.match

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[str] | None]:
        """Return the match of a whole text, or None."""
        return self.pattern.fullmatch

    @cached_property
    def findall(self) -> Callable[[str], list[str]]:
        """Return all matches, or their group."""
        return self.pattern.findall

    @cached_property
    def finditer(self) -> Callable[[str], Iterator[re.Match[str]]]:
        """Yield all matches."""
        return self.pattern.finditer

    @cached_property
    def sub(self) -> Callable[..., str]:
        """Return a text with all matches replaced."""
        return self.pattern.sub

    @cached_property
    def split(self) -> Callable[[str], list[str]]:
        """Return the pieces between all matches."""
        return self.pattern.split

    def begins(self, text: str) -> bool:
        """Tell whether a text begins with a match. It can be passed on before compilation."""
        return self.match(text) is not None

    def stands_in(self, text: str) -> bool:
        """Tell whether a text contains a match. It can be passed on before compilation."""
        return self.search(text) is not None


class BeyondAscii:
    """A pattern without matches in ASCII: it is compiled for the first other text."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(group_branches([self._source]))

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match, or None."""
        return None if text.isascii() else self.pattern.search(text)


def has_digit(text: str) -> bool:
    """Tell whether a text has a digit of any script; in ASCII each digit is searched by itself."""
    if text.isascii():
        return any(map(text.__contains__, "0123456789"))
    return _DIGIT.search(text) is not None


def flatten(text: str) -> str:
    """Return a text with normalised white space: most texts only have single blanks already."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(text.split())


def group_branches(alternatives: Sequence[str]) -> str:
    """Return alternatives as one pattern, grouped by their first letter.

    A group at the start of an alternative is expanded, also an optional one. The patterns must have
    no capturing groups, because their numbers would change.
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
"""Lookarounds after a full stop that does not end a sentence: after an initial, an abbreviation, a
day or an ordinal ("am 12. August", "die 2. Mannschaft") in languages with such ordinals. German is
recognised by the word before, German to Finnish by the month."""


_BEHIND: Final = ".!?\"')]"
"""The end of a sentence in ASCII: its mark, and closing signs after it."""


def split_at(ends: LatePattern, text: str) -> list[str]:
    """Return the sentences of a text, each up to and including the mark that ends it.

    `ends` matches the mark, one character, and the gap after it, which is left out. So only marks
    are tried.
    Most ASCII texts are one sentence with a mark only at the end.
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
    """Yield the alternatives of a pattern, each without a group at its start."""
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
    """Return the pieces between the bars of a pattern that are outside of groups."""
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
    """Return the inside of a group at the start of an alternative, "" for none, and the rest."""
    if not branch.startswith(_OPEN):
        return "", branch
    pieces = _PIECES.findall(branch)
    end = list(accumulate((piece == "(") - (piece == ")") for piece in pieces)).index(0)
    return "".join(pieces[1:end]).removeprefix(_OPEN[1:]), "".join(pieces[end + 1 :])

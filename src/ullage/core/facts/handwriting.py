"""Tell two writers apart by the first letters of their sentences: capital or small.

It finds one trace of another writer, in any language with capitals; `copied` weighs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ullage.core.facts import cues
from ullage.core.facts.patterns import LatePattern
from ullage.core.facts.sentences import rule
from ullage.core.facts.voice import SENTENCE, speaks


def find_minded(lines: Sequence[str], opening: int) -> Iterator[int]:
    """Yield the paragraphs whose sentences begin with capitals, after words that do not.

    A person who types in small letters does so to the end, except for names. A person who begins
    only half of the sentences so may continue with capitals and speak of themselves. Rules that the
    first words announce are the person's own, and so is a paragraph of mostly commands.
    """
    first = " ".join(lines[:opening])
    begun = _BEGINS.search(first) if opening < len(lines) else None
    if begun is None or begun[1].isupper():
        return
    own = _BEGINS.findall(first)
    large, small = sum(map(str.isupper, own)), sum(map(str.islower, own))
    if large > 2 * small or (large >= small and _is_own(lines[opening:])):
        return
    if cues.RULE_HEADING.search(first.lower()):
        return
    for number, line in enumerate(lines[opening:], opening):
        begins = _BEGINS.findall(line)
        large = sum(map(str.isupper, begins))
        if large >= max(HAND, CAPITALS * len(begins)) and not _lays_down(line):
            yield number


def _is_own(lines: Sequence[str]) -> bool:
    """Tell whether a writer speaks of themselves in most paragraphs."""
    told = [line for line in lines if line.strip()]
    return 2 * sum(map(speaks, told)) > len(told)


def _lays_down(line: str) -> bool:
    """Tell whether half of the sentences of a paragraph are rules in the form of commands."""
    sentences = [sentence.strip() for sentence in SENTENCE.findall(line)]
    ordered = sum(_COMMAND.match(one) is not None and rule("prose", one) for one in sentences)
    return 2 * ordered >= len(sentences)


_COMMAND: Final = LatePattern(
    r"(?:please|always|never|don't|do not|only|no|use|keep|make|write|answer|reply|ask|avoid|put"
    r"|run|call|treat|follow|prefer|stay|be|remember|bitte|immer|nie|kein|nur|toujours|jamais|ne"
    r"|siempre|nunca|no|s\u00f3lo|sempre|non|\u0432\u0441\u0435\u0433\u0434\u0430"
    r"|\u043d\u0438\u043a\u043e\u0433\u0434\u0430|\u043d\u0435)\b",
    re.IGNORECASE,
)
"""The start of a command, unlike a sentence that says who must do what."""

CAPITALS: Final = 0.8
"""The share of a paragraph's sentences with a capital at the start, for a careful writer."""

HAND: Final = 3
"""The least number of such sentences in a paragraph."""

_BEGINS: Final = LatePattern(r"(?:^|(?<=[^\W\d_]{2}[.!?]) )\s*([^\W\d_])")
"""The first letter of a text, and of each sentence after one that ends in a word."""

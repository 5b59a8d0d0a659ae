"""Text is read in linear time, whatever it is made of: a few characters again and again.

Each reader is given the same unit at one, two and four times a size. Times are of the processor,
the least of three, and only where there is something to measure: a reader that is quadratic takes
16 times as long for four times the text, a linear one four.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

import ullage
from ullage.core.compaction.edits import find_references
from ullage.core.facts import quoting, segments, sentences, sheet
from ullage.core.facts.segments import find_words
from ullage.core.messages.redaction import Redactor
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.search.passages import cut_passages
from ullage.core.search.terms import list_terms
from ullage.core.session.skills import find_mentioned
from ullage.core.summary import faithful, record
from ullage.sdk.errors import classify_error

UNITS: Final = (
    *(
        "a/",
        "a.",
        "a-",
        "a_",
        "a@",
        "a:",
        "a=",
        "a,",
        "a;",
        "a!",
        "a?",
        "a|",
        "a\\",
        "a(",
        "a[",
        "a",
    ),
    *(
        "1",
        "1,",
        "1.",
        "1-",
        "1 ",
        "12:",
        "$1 ",
        "1. ",
        "(",
        "((a",
        ")",
        "[",
        "](",
        "{",
        "}",
        "=",
        "_",
    ),
    *(
        "<",
        "<a",
        "<a ",
        "<a>",
        "</a>",
        "<a>\n",
        "</a>\n",
        "<<",
        ">",
        "> ",
        "> b\n",
        "-",
        "- ",
        "--a ",
    ),
    *("*", "**", "'", '"', '"a"', "`", "```", "```\n", "~~~\n", "# ", "#", "|", "||", "\\", '\\"'),
    *(
        " ",
        "\t",
        "\n",
        "\r\n",
        " \n",
        "\u200b",
        "\u00a0",
        "中",
        "。",
        "é",
        "A",
        "A ",
        "Aa ",
        "aA",
        "a1",
    ),
    *("a\n", "a\n\n", "key: value\n", "=== a ===\n", "-- \n", "From: a\n", "On a wrote:\n> b\n"),
    *(
        "http://a ",
        "http://a/",
        "://",
        "u:0",
        "INFO ",
        "2026-01-01 ",
        "not ",
        "never ",
        "must a/b ",
    ),
    *(
        "Please never a. ",
        "the a.b is ",
        "I want ",
        "... ",
        ". ",
        "not, ",
        "- x\n",
        "1) x\n",
        "[x] ",
    ),
    *(
        "maximum context length is ",
        "tokens ",
        "the input ",
        "1 tokens > 2 ",
        "<think>",
        "</think>",
    ),
)

FEW: Final = ("a/", "a.", "a", "((a", "<a>\n", "> b\n", '"a"', "```\n", "not, ", "Please never a. ")
"""Those that were slow once, or are read by most rules: the others are tried by the long suite."""

SIZE: Final = 16_000
"""Characters at the least; the readers that this is nothing for are given more."""

FLOOR_S: Final = 0.04
"""Seconds of processor time from which on growth is told from noise."""

MOST: Final = 8.0
"""Times as long that four times the text may take: twice what is linear."""


LARGEST: Final = 64_000
"""Characters of the largest text that is tried."""

NUMBERS: Final = itertools.count()
"""What makes each text a new one: much of what is read is remembered."""


def compact(text: str) -> object:
    said = [
        {"role": "user", "content": f"Mend the pump. {text}"},
        {"role": "assistant", "content": text},
        {"role": "user", "content": text},
        {"role": "assistant", "content": "so it is"},
        {"role": "user", "content": "And now?"},
    ]
    return ullage.compact(said, model="gpt-4o", target_tokens=1_000)


def check_summary(text: str) -> object:
    of = faithful.source([text], [text], [text[:2_000]])
    return faithful.check_lines(record.parse(f"Goal:\n- {text}"), of)


def drain(made: Iterator[Any]) -> object:
    return sum(1 for _ in made)


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "compact": compact,
    "origins": quoting.read_origins,
    "sentences": lambda text: drain(sentences.sentences(text)),
    "segments": lambda text: drain(segments.cut_text(text)),
    "results": lambda text: drain(segments.cut_result(text)),
    "words": find_words,
    "sheet": sheet.parse,
    "summary": check_summary,
    "record": record.parse,
    "references": find_references,
    "errors": lambda text: classify_error(400, {"error": {"message": text}}),
    "redaction": lambda text: Redactor(["secret-value"], 4).text(text),
    "thoughts": drop_thoughts,
    "passages": lambda text: drain(iter(cut_passages(text))),
    "terms": list_terms,
    "skills": lambda text: find_mentioned(text, ()),
    "validate": lambda text: ullage.validate([{"role": "user", "content": text}]),
}


def took(read: Callable[[str], object], unit: str, size: int, tries: int) -> float:
    """Return the processor's seconds for a text, the least of some tries, each with a new one."""
    least = float("inf")
    for _ in range(tries):
        text = f"{next(NUMBERS)} {unit * (size // len(unit))}"
        began = time.process_time()
        read(text)
        least = min(least, time.process_time() - began)
    return least


def grows(read: Callable[[str], object], unit: str) -> str:
    """Return how a reader's time grows with a unit where that is more than linear, else nothing."""
    size = SIZE
    while (four := took(read, unit, 4 * size, 1)) < FLOOR_S:
        size *= 4
        if 4 * size > LARGEST:
            return ""
    one = took(read, unit, size, 3)
    if four < MOST * max(one, FLOOR_S / 8):
        return ""  # what disturbs a measurement only adds to it
    four = min(four, took(read, unit, 4 * size, 2))
    if four < MOST * max(one, FLOOR_S / 8):
        return ""
    sixteen = took(read, unit, 16 * size, 1)  # so is what is only uneven
    if sixteen < MOST * four:
        return ""
    told = ", ".join(f"{seconds:.3f}" for seconds in (one, four, sixteen))
    return f"{unit!r}: {told} s for 1, 4 and 16 times {size:,} characters"


@pytest.mark.slow
@pytest.mark.parametrize(
    "units",
    [
        pytest.param(FEW, id="few"),
        pytest.param(UNITS, id="all", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_four_times_the_text_takes_about_four_times_as_long(
    name: str, units: tuple[str, ...]
) -> None:
    read = READERS[name]
    read("warm. " * 100)
    found = [told for unit in units if (told := grows(read, unit))]
    assert not found, "\n".join(found)

"""Measure the error of estimated token counts: `python -m tools.counter_tables`.

It counts the tests' corpus exactly, class by class, compares the usual estimates, and writes the
tables into `docs/counters.md` between their markers. The table of families is written only if the
packages with their vocabularies are installed; otherwise it stays unchanged.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from tests.counters import megabytes
from ullage.core.tokens.counting import Counter
from ullage.counters import Vocabularies, families

PAGE: Final = Path("docs/counters.md")
SHORTEST: Final = 200
"""Shortest document in characters; in a shorter one, a single token is many per cent."""

WORD: Final = re.compile(r"\S+")
Estimate = Callable[[str], float]

ESTIMATES: Final[Mapping[str, Estimate]] = {
    "chars/4": lambda text: len(text) / 4,
    "chars/3.5": lambda text: len(text) / 3.5,
    "bytes/4": lambda text: len(text.encode("utf-8", "surrogatepass")) / 4,
    "words*1.33": lambda text: len(WORD.findall(text)) * 1.33,
    "LangChain": lambda text: -(-len(text) // 4) + 3,
}
"""LangChain's `count_tokens_approximately`: four characters per token, and three per message."""

Errors = Sequence[float]
"""Errors of an estimate, in per cent of the exact count; negative means too low."""


def corpus(total: int) -> Mapping[str, Sequence[str]]:
    """Return the documents of each class that are long enough."""
    return {
        kind: [t for t in megabytes.documents(kind, total=total) if len(t) >= SHORTEST]
        for kind in megabytes.SHARES
    }


def errors(estimates: Iterable[float], exact: Iterable[int]) -> Errors:
    """Return the error of each estimate, in per cent."""
    return [
        100 * (guess - truth) / truth
        for guess, truth in zip(estimates, exact, strict=True)
        if truth
    ]


def cell(found: Errors) -> str:
    """Return the mean error, and the 95th percentile of underestimates, in per cent."""
    if not found:
        return ""
    under = sorted(max(0.0, -error) for error in found)
    return f"{fmean(found):+.0f} ({under[round(0.95 * (len(under) - 1))]:.0f})"


def table(first: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a Markdown table."""
    lines = [
        [first, *columns],
        ["---"] * (1 + len(columns)),
        *([name, *cells] for name, cells in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def of_estimates(texts: Mapping[str, Sequence[str]], counters: Sequence[Counter]) -> str:
    """Return the table of the usual estimates compared with o200k, and o200k with cl100k."""
    o200k, cl100k = counters
    rows = []
    for kind, documents in texts.items():
        exact = o200k.count_many(documents)
        cells = [cell(errors(map(guess, documents), exact)) for guess in ESTIMATES.values()]
        cells.append(cell(errors(exact, cl100k.count_many(documents))))
        rows.append((kind, cells))
    return table("class", [*ESTIMATES, "o200k for cl100k"], rows)


def of_families(texts: Mapping[str, Sequence[str]], o200k: Counter, names: Sequence[str]) -> str:
    """Return the table of o200k as a stand-in for the installed vocabularies."""
    stand_in = [o200k.count_many(documents) for documents in texts.values()]
    columns = []
    for name in names:
        own = families.load(name)  # one at a time: each holds some 200 MB
        exact = [own.count_many(documents) for documents in texts.values()]
        columns.append(list(map(cell, map(errors, stand_in, exact))))
    return table("class", names, zip(texts, zip(*columns, strict=True), strict=True))


def written(page: str, marker: str, text: str) -> str:
    """Return the page with `text` between the markers; raises ValueError if they are missing."""
    start, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    if start not in page or end not in page:
        raise ValueError(f"no place marked {start} ... {end} in {PAGE}")
    head, rest = page.split(start)
    return f"{head}{start}\n{text}\n{end}{rest.split(end)[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.counter_tables", description=main.__doc__
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--bytes", type=int, default=20_000_000, help="of the corpus")
    options = parser.parse_args(arguments)
    texts = corpus(options.bytes)
    vocabularies = Vocabularies(remembered=0)
    openai = [vocabularies.counter(name) for name in ("o200k_base", "cl100k_base")]
    documents = sum(map(len, texts.values()))
    size = sum(len(t.encode("utf-8", "surrogatepass")) for each in texts.values() for t in each)
    basis = (
        f"{documents:,} documents of at least {SHORTEST} characters, {size / 1e6:.1f} MB, "
        f"with CPython {platform.python_version()}."
    )
    page = options.page.read_text(encoding="utf-8")
    page = written(page, "estimates", f"{basis}\n\n{of_estimates(texts, openai)}")
    names = list(filter(families.is_installed, families.NAMES))
    if names:
        page = written(page, "families", f"{basis}\n\n{of_families(texts, openai[0], names)}")
    else:
        print("no family's packages are installed; their table is left as it is")
    options.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

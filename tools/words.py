"""Find sentences that need a second reading: `python -m tools.words` lists them.

A sentence counts if it begins with a word that makes a riddle of its subject ("What is left
goes", "None where it runs none", "Of two the newer counts"), or if it says that something "is
none". Questions are left out. The texts are the docstrings under `src/`, including those of
constants and fields. `tool.ullage.words` in `pyproject.toml` states how many such
sentences there may be. This number may only fall: one above the count shuts the gate as well.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.files import Finding, tracked

LIMITS: Final = "pyproject.toml"
RIDDLE: Final = re.compile(
    r"(?:What|Whatever|Who|Whoever|Whom|Whose|Nobody|Of|Whence|None(?! (?:if|means|for)\b)) "
    r"|.*(?<!there )\b(?:is|are|was|were) none\b"
)
SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"'(])")
FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
PARAGRAPH_END: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[*>#-]|\d+\.) )")
NO_PROSE: Final = ("|", "#", "<", "    ")
"""Beginnings of paragraphs that hold no sentences: table rows, headings, markup, code."""


@dataclass(frozen=True, slots=True)
class Riddle:
    """A sentence that counts, and the line where its text begins."""

    path: str
    line: int
    sentence: str

    def __str__(self) -> str:
        """Return the line that editors turn into a link."""
        return f"{self.path}:{self.line}: {self.sentence}"


def is_riddle(sentence: str) -> bool:
    """Tell whether a sentence counts."""
    return not sentence.endswith("?") and RIDDLE.match(sentence) is not None


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring, each on one line; code is left out."""
    for paragraph in PARAGRAPH_END.split(FENCE.sub("", text)):
        if not paragraph.startswith(NO_PROSE):
            words = " ".join(paragraph.split()).lstrip("*>- ")
            yield from filter(None, SENTENCE_END.split(words))


def list_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text that stands alone in a module, with its line: docstrings of all kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, inspect.cleandoc(text)


def find_riddles(root: Path) -> Iterator[Riddle]:
    """Yield every sentence under `root` that counts, by path and line."""
    for path in tracked(root):
        if not path.startswith("src/") or not path.endswith(".py"):
            continue
        for line, text in list_docstrings(ast.parse((root / path).read_text(encoding="utf-8"))):
            yield from (Riddle(path, line, s) for s in split_sentences(text) if is_riddle(s))


def read_limit(root: Path) -> int:
    """Return how many sentences there may be, 0 if no number is given."""
    file = root / LIMITS
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    limit: int = table.get("tool", {}).get("ullage", {}).get("words", {}).get("riddles", 0)
    return limit


def check(root: Path) -> Iterator[Finding]:
    """Yield the breach of the limit in the files under `root`."""
    count, most = sum(1 for _ in find_riddles(root)), read_limit(root)
    if count > most:
        text = (
            f"{count} sentences need a second reading; the limit is {most}. "
            "`python -m tools.words` lists them: begin with the subject, name it, use the active"
        )
        yield Finding("words", LIMITS, 1, "riddles", text)
    elif count < most:
        text = f"only {count} such sentences are left: lower the limit riddles = {most} to {count}"
        yield Finding("words", LIMITS, 1, "riddles", text)


def main(root: Path = Path()) -> int:
    """Print every sentence that counts, and return 0: `tools.gates` is what judges."""
    for riddle in find_riddles(root):
        print(riddle)
    return 0


if __name__ == "__main__":
    sys.exit(main())

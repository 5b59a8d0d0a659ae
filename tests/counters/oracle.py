"""The reference that counts are compared with: bpe-openai, an independent Rust tokenizer.

Its vocabulary files hash to OpenAI's own and it splits by Unicode 16, as tiktoken 0.14 does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

from ullage.core.tokens.counting import Counter
from ullage.counters import Vocabularies
from ullage.counters.pure import Pure
from ullage.counters.unicode import replace_surrogates

NAMES = ("o200k_base", "cl100k_base")


@cache
def reference(name: str) -> Callable[[str], int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it opens its data the old way
        from bpe_openai import _bindings
    count: Callable[[str], int] = _bindings.tokenizer_for_encoding(name).count
    return lambda text: count(replace_surrogates(text))


@cache
def native(name: str) -> Counter:
    """Return the shipped counter without memory, so that every count is a fresh one."""
    return Vocabularies(remembered=0).counter(name)


@cache
def pure(name: str) -> Counter:
    return Pure(name)


BACK_ENDS = {"toktok": native, "pure": pure}

"""Counting with bpe-openai: native, offline, the same vocabularies; for users without toktok.

It knows no models.
"""

from __future__ import annotations

import warnings

from ullage.counters.families import Family


def load(key: str) -> Family:
    """Build the counter of o200k_base or cl100k_base; takes about 0.3 s. Raises ImportError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for its way to open its data
        from bpe_openai import _bindings

    count = _bindings.tokenizer_for_encoding(key).count
    return Family(key, count)

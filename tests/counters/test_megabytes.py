"""Whole documents of every class count as in the reference: a sample here, twenty megabytes long.

The corpus of `tests.counters.megabytes` is compared with bpe-openai, which is independent.
"""

from __future__ import annotations

import hashlib

import pytest

from tests.counters import megabytes
from tests.counters.oracle import NAMES, native, reference

SAMPLE = 2_000_000


def wrong(kind: str, name: str, total: int) -> list[str]:
    """Return how the documents begin that the shipped counter and the reference count apart."""
    documents = list(megabytes.documents(kind, total=total))
    counts = native(name).count_many(documents)
    return [
        document[:80]
        for document, tokens in zip(documents, counts, strict=True)
        if tokens != reference(name)(document)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", megabytes.SHARES)
def test_a_sample_of_every_class_counts_as_in_the_reference(kind: str, name: str) -> None:
    assert wrong(kind, name, SAMPLE) == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", megabytes.SHARES)
def test_twenty_megabytes_count_as_in_the_reference(kind: str, name: str) -> None:
    assert wrong(kind, name, 20_000_000) == []


def test_the_corpus_is_the_same_on_every_run() -> None:
    def digest() -> str:
        texts = "".join(
            t for kind in megabytes.SHARES for t in megabytes.documents(kind, total=2**15)
        )
        return hashlib.sha256(texts.encode("utf-8", "surrogatepass")).hexdigest()

    assert digest() == digest()
    assert sum(megabytes.SHARES.values()) == 200

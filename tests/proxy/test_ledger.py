"""The ledger keeps the newest conversations, whoever writes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ConfigurationError
from ullage.proxy.ledger import Entry, Ledger


def entry(name: str, requests: int = 1) -> Entry:
    return Entry(name, "local", "m", "openai_chat", 1.0, requests=requests)


@given(st.lists(st.sampled_from("abcdef")), st.integers(1, 4))
def test_the_newest_are_kept_and_listed_first(names: list[str], most: int):
    ledger = Ledger(most)
    for number, name in enumerate(names):
        ledger.note(entry(name, number))
    newest = list(dict.fromkeys(reversed(names)))[:most]
    assert [found.id for found in ledger.all()] == newest
    for name in "abcdef":
        found = ledger.get(name)
        assert (found is None) is (name not in newest)
        if found is not None:
            assert found.requests == len(names) - 1 - names[::-1].index(name)


def test_threads_do_not_tear_it():
    ledger = Ledger(10)

    def work(number: int) -> int:
        for i in range(200):
            ledger.note(entry(str((number * 7 + i) % 30)))
            ledger.get("5")
            assert len(ledger.all()) <= 10
        return number

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    assert len(ledger.all()) == 10


def test_a_ledger_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="at least one conversation, not 0"):
        Ledger(0)

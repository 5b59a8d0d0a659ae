"""The ledger keeps the newest conversations, whoever writes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.serving import CHAT, WHOLE, proxied
from tests.support.faults import FaultServer, of_json
from ullage.config.serving import ModelRule
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


def test_a_conversation_whose_task_is_cut_goes_on_under_its_name() -> None:
    with (
        FaultServer({CHAT: of_json(WHOLE["openai_chat"])}) as upstream,
        proxied(upstream.root_url, rules=(ModelRule(window=2_048),)) as proxy,
    ):
        said = [
            {"role": "user", "content": "Sort the casks. " + "Cask by cask, row by row. " * 150}
        ]
        strategies = set()
        for turn in range(14):
            got = proxy.post(CHAT, {"model": "m", "messages": said})
            assert got.status_code == 200
            strategies.add("excerpt" in got.headers.get("x-ullage-compaction", ""))
            said.append({"role": "assistant", "content": f"Row {turn} is done. " * 12})
            said.append({"role": "user", "content": f"Go on with row {turn}, please. " * 9})
        assert strategies == {False, True}
        assert len(proxy.app.ledger.all()) == 1

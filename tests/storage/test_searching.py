"""One suite for what can be searched: stores and logs give the same answers, whatever they are."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ullage
from tests.support.clock import FakeClock
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.search.ranking import EVERYWHERE, Hit, SearchArea
from ullage.core.session.log.event import Draft
from ullage.core.session.searching import FOUND
from ullage.storage import StoreLimits, open_log, open_store
from ullage.storage.log import EventLog, Owner
from ullage.storage.protocol import ReadOnlyStore
from ullage.storage.searching import search_log

PORT = "The staging database listens on port 6543."
LUNCH = "Lunch is at noon, said the database administrator."
RULE = "生产数据库的端口是 7788,不要改。"
OWNER = Owner("test", 1, "host", "thread")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database of each make."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database")())
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'store.db'}"


@pytest.fixture
def opening(url: str) -> Iterator[Callable[..., Any]]:
    """Open stores, and close them at the end."""
    opened: list[Any] = []

    def opens(**options: Any) -> Any:
        opened.append(open_store(url, **options))
        return opened[-1]

    yield opens
    for store in opened:
        store.close()


@pytest.fixture
def store(opening: Callable[..., Any]) -> Any:
    kept = opening()
    kept.originals.keep({reference(text): text for text in (PORT, LUNCH, RULE)})
    return kept


@pytest.fixture
def log(url: str) -> Iterator[EventLog]:
    opened = open_log(url)
    yield opened
    opened.close()


def texts(hits: list[Hit]) -> list[str]:
    return [hit.text for hit in hits]


# --- stores -------------------------------------------------------------------------------------


def test_what_fits_best_comes_first_with_its_reference(store: Any):
    found = store.originals.search("which port has the staging database")
    assert texts(found) == [PORT, LUNCH]
    assert found[0].reference == reference(PORT)
    assert (found[0].offset, found[0].session) == (0, "")
    assert texts(store.originals.search("数据库端口")) == [RULE]
    assert texts(store.originals.search("administration")) == [LUNCH]
    assert store.originals.search("zymurgy") == []


def test_what_is_kept_later_is_found_at_once(store: Any):
    assert store.originals.search("valve") == []
    store.originals.keep({"u:later": "the valve sticks"})
    store.originals.keep({reference(PORT): PORT, "u:empty": " "})
    assert texts(store.originals.search("valve")) == ["the valve sticks"]
    assert texts(store.originals.search("staging port")) == [PORT]


def test_only_named_texts_are_looked_into(store: Any):
    named = SearchArea(references=frozenset({reference(LUNCH)}))
    assert texts(store.originals.search("staging database port", 10, named)) == [LUNCH]
    nothing = SearchArea(references=frozenset())
    assert store.originals.search("staging database port", 10, nothing) == []


def test_a_passage_of_two_texts_is_found_until_both_are_forgotten(opening: Callable[..., Any]):
    clock = FakeClock(1_000)
    store = opening(limits=StoreLimits(most=2), now=clock)
    store.originals.keep({"u:a": PORT})
    store.originals.keep({"u:b": f"{PORT}"})
    assert store.originals.search("staging")[0].reference == "u:b"
    both = store.originals.search("staging", 10, SearchArea(references=frozenset({"u:a"})))
    assert [hit.reference for hit in both] == ["u:a"]
    store.originals.keep({"u:c": LUNCH})
    assert [hit.reference for hit in store.originals.search("staging")] == ["u:b"]
    store.originals.keep({"u:d": RULE})
    assert store.originals.search("staging") == []
    assert texts(store.originals.search("lunch")) == [LUNCH]


def test_what_is_purged_leaves_no_passage(store: Any, url: str):
    assert store.originals.search("database")
    assert store.purge(10.0**12) == 3
    assert store.originals.search("database") == []
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            for table in ("passages", "spots"):
                ((left,),) = connection.execute(f"SELECT count(*) FROM ullage.{table}")
                assert left == 0


def test_a_long_text_is_found_where_the_words_stand(store: Any):
    filler = [f"line {n} of a log of nothing" for n in range(400)]
    text = "\n".join([*filler[:300], "the valve sticks", *filler[300:]])
    store.originals.keep({"u:log": text})
    found = store.originals.search("sticking valve")[0]
    assert "the valve sticks" in found.text
    assert text[found.offset :].startswith(found.text)


def test_odd_texts_are_kept_out_of_nobodys_way(store: Any):
    odd = "half \ud800 of a pair, \0 nothing, 'quotes' \"and\" \\back % (signs) :x"
    store.originals.keep({"u:odd": odd})
    assert [hit.reference for hit in store.originals.search("quotes and signs back")] == ["u:odd"]
    assert [hit.reference for hit in store.originals.search("pair' OR \"1")] == ["u:odd"]


def test_a_query_without_words_is_refused(store: Any):
    with pytest.raises(ConfigurationError, match="no words to look for"):
        store.originals.search("?!")


def test_common_words_alone_find_something(store: Any):
    rng = random.Random(5)
    words = ["alpha", "beta", "gamma", "delta", "omega"]
    for start in range(0, 1_500, 500):
        said = [" ".join(rng.choices(words, k=6)) + f" {n}" for n in range(start, start + 500)]
        store.originals.keep({reference(text): text for text in said})
    found = store.originals.search("alpha beta gamma delta omega")
    assert len(found) == 10
    again = store.originals.search("alpha beta gamma delta omega")
    assert texts(found) == texts(again)
    assert all(len(set(words) & set(hit.text.split())) >= 4 for hit in found[:3])


def test_two_that_search_first_take_each_text_in_once(url: str, opening: Callable[..., Any]):
    one = opening()
    two = one if url == "memory:" else opening()
    one.originals.keep({reference(t): t for t in (f"cask {n} is full" for n in range(450))})
    found: list[list[Hit]] = []
    both = [
        threading.Thread(target=lambda s=s: found.append(s.originals.search("cask 44")))
        for s in (one, two)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(30)
    assert [texts(hits)[0] for hits in found] == ["cask 44 is full"] * 2
    assert len(one.originals.search("cask 7")) == 10


def test_passages_are_listed_the_newest_first_and_read(store: Any):
    assert len(store.originals.search("database")) == 2  # takes all in
    passages = store.originals.passages
    newest = passages.list_passages(EVERYWHERE, 10)
    assert passages.list_passages(EVERYWHERE, 2) == newest[:2]
    read = passages.read_passages([*newest, b"unknown", "unknown"], EVERYWHERE)
    assert [read[name].text for name in newest] == [RULE, LUNCH, PORT]
    assert [read[name].reference for name in newest] == [reference(t) for t in (RULE, LUNCH, PORT)]
    named = SearchArea(references=frozenset({reference(LUNCH)}))
    assert passages.list_passages(named, 10) == newest[1:2]
    assert list(passages.read_passages(newest, named)) == newest[1:2]


def test_a_common_word_is_counted_in_a_sample(postgres_database: Callable[[], str]):
    store: Any = open_store(postgres_database())
    said = [f"cask {n} is {'full' if n % 2 else 'empty'}" for n in range(1_000)]
    store.originals.keep({reference(text): text for text in (*said, PORT)})
    assert texts(store.originals.search("staging cask"))[0] == PORT
    total, held = store.originals.passages.count(["cask", "full", "staging", "valve"])
    assert total == 1_001
    assert held["cask"] > 900
    assert 350 < held["full"] < 650
    assert (held["staging"], held["valve"]) == (1, 0)
    store.close()


def test_a_rare_word_of_other_texts_hides_nothing_in_an_area(store: Any):
    mine = "the invoice total is 4711 euro"
    said = [f"acme wrote letter {n}" for n in range(80)]
    said += [f"an invoice of day {n}" for n in range(1_000)]
    store.originals.keep({reference(text): text for text in (mine, *said)})
    area = SearchArea(references=frozenset({reference(mine)}))
    assert texts(store.originals.search("acme invoice", area=area)) == [mine]


def test_what_is_common_is_asked_anew_where_the_store_has_grown(
    postgres_database: Callable[[], str],
):
    store: Any = open_store(postgres_database())
    first = [f"gasket {n} leaks" for n in range(400)]
    store.originals.keep({reference(text): text for text in first})
    store.originals.search("gasket")
    assert store.originals.passages.count(["gasket"])[1]["gasket"] == 400
    more = [f"valve {n} drips" for n in range(2_000)]
    store.originals.keep({reference(text): text for text in more})
    store.originals.search("valve")
    total, held = store.originals.passages.count(["gasket"])
    assert total == 2_400
    assert 150 < held["gasket"] < 800
    store.close()


# --- logs ---------------------------------------------------------------------------------------


def record(log: EventLog, session: str, *drafts: Draft) -> None:
    """Put events at the end of a session, which begins with them."""
    if session not in {head.session for head in log.sessions()}:
        log.create(session, 1.0)
    lease = log.acquire(session, OWNER, 1.0)
    log.append(session, lease.epoch, log.head(session).seq, drafts, 1.0)
    log.release(session, lease.epoch, 1.0)


def say(text: str) -> Draft:
    return Draft("user_message", {"text": text})


def test_sessions_are_found_by_what_was_said_in_them(log: EventLog):
    record(log, "a", say(PORT), Draft("assistant_message", {"text": LUNCH, "model": "m"}))
    record(log, "b", say(f"{PORT} And here?"))
    found = search_log(log, "staging port")
    assert {hit.session for hit in found} == {"a", "b"}
    assert {hit.reference for hit in found} >= {reference(PORT)}
    one = search_log(log, "staging port database", 10, SearchArea(sessions={"a": 1}))
    assert [(hit.session, hit.text) for hit in one] == [("a", PORT)]
    record(log, "a", say("the valve sticks"))
    assert texts(search_log(log, "valve")) == ["the valve sticks"]
    with pytest.raises(StoreError, match="nobody"):
        search_log(log, "valve", 10, SearchArea(sessions={"nobody": 1}))


def test_what_was_searched_or_recalled_is_not_found_again(log: EventLog):
    asked = {"call_id": "1", "name": "ullage_search", "arguments": '{"query": "valve"}'}
    made = {"call_id": "2", "name": "write", "arguments": '{"text": "valve of the pump"}'}
    record(
        log,
        "a",
        Draft("tool_call", asked),
        Draft("tool_result", {"call_id": "1", "text": f"{FOUND}\n\nvalve"}),
        Draft("tool_call", made),
        Draft("tool_result", {"call_id": "2", "text": "the valve is written"}),
        Draft("branch_summary", {"text": "valve", "parent": "x"}),
        Draft("turn_started", {"turn": "valve"}),
    )
    assert {hit.text for hit in search_log(log, "valve")} == {
        made["arguments"],
        "the valve is written",
    }


def test_a_session_that_cannot_be_read_hides_no_other(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
):
    record(log, "a", say(PORT))
    record(log, "b", say(LUNCH))
    reads = log.read

    def fails(session: str, *rest: Any) -> Any:
        if session == "a":
            raise StoreError("damaged")
        return reads(session, *rest)

    monkeypatch.setattr(log, "read", fails)
    assert texts(search_log(log, "database")) == [LUNCH]


def test_a_long_session_is_taken_in_piece_by_piece(log: EventLog):
    record(log, "a", *(say(f"cask {n} is full") for n in range(1_200)))
    assert texts(search_log(log, "cask 1111"))[0] == "cask 1111 is full"


def test_a_log_that_keeps_no_index_is_read_anew(log: EventLog):
    record(log, "a", say(PORT))

    class Plain:
        def __getattr__(self, name: str) -> Any:
            if name == "passages":
                raise AttributeError(name)
            return getattr(log, name)

    plain: Any = Plain()
    assert texts(search_log(plain, "staging")) == [PORT]


def test_what_may_not_be_written_is_searched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = f"sqlite:{tmp_path / 'store.db'}"
    store: Any = open_store(url)
    store.originals.keep({reference(PORT): PORT})
    assert [hit.text for hit in store.originals.search("staging")] == [PORT]
    store.originals.keep({reference(LUNCH): LUNCH})
    store.close()
    log = open_log(url)
    record(log, "s", say(RULE))
    log.close()
    monkeypatch.setattr("os.access", lambda *_: False)  # as root everything may be written
    unwritten: Any
    with closing(open_store(url, create=False)) as unwritten:
        found = unwritten.originals.search("database port")
        assert [hit.text for hit in found] == [PORT, LUNCH]
        best = unwritten.originals.search("lunch of the staging administrator")
        assert [hit.text for hit in best] == [LUNCH, PORT]  # the one that is not indexed yet
        with pytest.raises(ReadOnlyStore, match="may not be written"):
            unwritten.originals.keep({reference(RULE): RULE})
    with closing(open_log(url, create=False)) as unwritten_log:
        (hit,) = search_log(unwritten_log, "端口")
        assert (hit.session, hit.text) == ("s", RULE)
    assert [hit.text for hit in ullage.search("administrator", store=url)] == [LUNCH]


def test_a_store_and_its_log_are_searched_apart(store: Any, url: str):
    log = open_log(url)
    record(log, "a", say("the valve sticks in the database"))
    assert texts(search_log(log, "database")) == ["the valve sticks in the database"]
    assert set(texts(store.originals.search("database"))) == {PORT, LUNCH}
    log.close()

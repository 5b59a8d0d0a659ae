"""What is found, and in which order."""

from __future__ import annotations

import pytest

from ullage.core.errors import ConfigurationError
from ullage.core.search.index import MemoryIndex, SearchSource
from ullage.core.search.ranking import EVERYWHERE, MOST_HITS, SearchArea, find_hits

TEXTS = {
    "u:1": "The staging database listens on port 6543.",
    "u:2": "Lunch is at noon. The database of recipes is large.",
    "u:3": "Deployments to production need two approvals.",
    "u:4": "生产数据库的端口是 7788。",
}


def make_index(texts: dict[str, str]) -> MemoryIndex:
    index = MemoryIndex()
    index.take("", [SearchSource(name, text, n) for n, (name, text) in enumerate(texts.items())], 9)
    return index


@pytest.fixture
def index() -> MemoryIndex:
    return make_index(TEXTS)


def names(index: MemoryIndex, query: str, area: SearchArea = EVERYWHERE) -> list[str]:
    return [hit.reference for hit in find_hits(index, query, area=area)]


def test_what_holds_more_of_the_query_comes_first(index: MemoryIndex):
    assert names(index, "Which port has the staging database?") == ["u:1", "u:2"]
    assert names(index, "database") == ["u:1", "u:2"]
    assert names(index, "数据库端口") == ["u:4"]


def test_other_forms_of_a_word_are_found(index: MemoryIndex):
    assert names(index, "deployed") == ["u:3"]


def test_nothing_is_found_by_words_that_nobody_said(index: MemoryIndex):
    assert names(index, "zymurgy") == []
    assert find_hits(MemoryIndex(), "database") == []


def test_a_scope_bounds_the_search(index: MemoryIndex):
    assert names(index, "database", SearchArea(references=frozenset({"u:2"}))) == ["u:2"]
    assert names(index, "database", SearchArea(sessions={"": 0})) == ["u:1"]
    assert names(index, "database", SearchArea(sessions={"other": 9})) == []


def test_a_text_that_stands_twice_is_found_once():
    index = make_index({"u:old": "the valve is open", "u:new": "the valve\n is open"})
    assert names(index, "valve") == ["u:new"]


def test_what_is_forgotten_is_not_found(index: MemoryIndex):
    index.forget("u:1")
    index.forget("u:unknown")
    assert names(index, "port database") == ["u:2"]
    assert index.count(["port", "6543"]) == (3, {"port": 0, "6543": 0})


def test_common_words_cost_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemoryIndex, "most_looked_at", 10)
    texts = {f"u:{n}": f"the cask {n} is full" for n in range(100)}
    index = make_index({**texts, "u:x": "the barrel is not a cask"})
    assert names(index, "the barrel") == ["u:x"]
    assert len(names(index, "the cask")) == 10
    assert "u:x" in names(index, "the cask")


def test_a_hit_is_plain_data(index: MemoryIndex):
    (hit,) = find_hits(index, "lunch")
    assert hit.to_dict() == {
        "reference": "u:2", "offset": 0, "score": round(hit.score, 3), "text": TEXTS["u:2"],
    }  # fmt: skip


@pytest.mark.parametrize("query", ["", " ", "!?", "_"])
def test_a_query_without_words_is_refused(index: MemoryIndex, query: str):
    with pytest.raises(ConfigurationError, match="no words to look for"):
        find_hits(index, query)


@pytest.mark.parametrize("hits", [0, -1, MOST_HITS + 1, True, 2.5])
def test_a_senseless_number_of_hits_is_refused(index: MemoryIndex, hits: int):
    with pytest.raises(ConfigurationError, match="from 1 to 100"):
        find_hits(index, "lunch", hits)

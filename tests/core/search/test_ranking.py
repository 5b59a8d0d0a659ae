"""What is found, and in which order."""

from __future__ import annotations

import pytest

from ullage.core.errors import ConfigurationError
from ullage.core.search.index import JointIndex, MemoryIndex, SearchSource
from ullage.core.search.ranking import (
    EVERYWHERE,
    MOST_HITS,
    Hit,
    Passages,
    SearchArea,
    find_hits,
    fuse_hits,
)

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


def test_common_words_are_left_out_where_rare_ones_find_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemoryIndex, "most_counted", 80)
    texts = {f"u:{n}": f"the cask {n} is full" for n in range(100)}
    rare = {f"v:{n}": f"barrel {n}" for n in range(70)}
    index = make_index({**texts, **rare, "u:x": "the cask of many"})
    assert {hit.text.split()[0] for hit in find_hits(index, "barrel cask", 100)} == {"barrel"}
    assert len(find_hits(index, "many cask", 100)) == 100


# --- several rankings ---------------------------------------------------------------------------


def hit(text: str, reference: str = "u:1") -> Hit:
    return Hit(reference, 0, text, 1.0)


def test_what_two_rankings_have_first_comes_first():
    fused = fuse_hits([hit("a"), hit("b"), hit("c")], [hit("d"), hit("b \n", "u:2")])
    assert [one.text for one in fused] == ["b", "a", "d", "c"]
    assert [one.score for one in fused] == sorted((one.score for one in fused), reverse=True)
    assert fuse_hits([], []) == []


class Fixed:
    """Finds one text, whatever the question is."""

    def find(self, passages: Passages, query: str, most: int, area: SearchArea) -> list[Hit]:
        del query
        numbers = passages.list_passages(area, most)
        return [h for h in passages.read_passages(numbers, area).values() if h.reference == "u:3"]


def test_what_is_similar_stands_among_what_has_the_words(index: MemoryIndex):
    index.similar = Fixed()
    assert names(index, "staging database") == ["u:1", "u:3", "u:2"]
    assert names(index, "zymurgy") == ["u:3"]
    assert names(index, "zymurgy", SearchArea(references=frozenset({"u:1"}))) == []


def test_two_indexes_are_searched_as_one():
    texts = {f"u:{n}": f"cask {n} is full" for n in range(20)}
    late = {"u:late": "cask 7 leaks", "u:later": "the valve"}
    whole = make_index({**texts, **late})
    parts = JointIndex(make_index(texts), make_index(late))
    for query in ("cask leaks", "cask 7", "valve", "full"):
        joint = find_hits(parts, query)
        assert joint == find_hits(whole, query)
    newest = parts.list_passages(EVERYWHERE, 3)
    read = parts.read_passages(newest, EVERYWHERE)
    assert [read[number].reference for number in newest] == ["u:later", "u:late", "u:19"]

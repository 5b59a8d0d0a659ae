"""What a text is found by, in any language."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.search.terms import STEMMED, list_terms


def words(text: str) -> list[str]:
    """Return the terms of a text that are no beginnings."""
    return [term for term in list_terms(text) if not term.endswith(STEMMED)]


def test_words_lose_case_and_accents():
    assert words("Café, naïve ÉCOLE: Straße") == ["cafe", "naive", "ecole", "strasse"]
    assert words("Ёлка") == words("ёлка")


def test_parts_of_names_are_terms_too():
    assert words("maxRetries run_id v2beta HTTPServer") == [
        "maxretries", "max", "retries", "run", "id", "v2beta", "v", "2", "beta",
        "httpserver", "http", "server",
    ]  # fmt: skip


def test_the_beginning_of_a_longer_word_finds_its_other_forms():
    for one, other in (("deployment", "deployed"), ("Verbindung", "verbinden")):
        assert set(list_terms(one)) & set(list_terms(other))
    assert list_terms("1234567") == ["1234567"]


def test_texts_without_spaces_are_pairs_of_characters():
    assert list_terms("数据库端口") == ["数据", "据库", "库端", "端口"]
    assert list_terms("東") == ["東"]
    assert words("ポート5432を使う") == ["ポー", "ート", "5432", "を使", "使う"]
    assert words("ฐานข้อมูล")[0] == "ฐา"


def test_marks_stay_with_their_letters():
    assert words("हिन्दी में लिखो") == ["हिन्दी", "में", "लिखो"]


def test_a_term_is_bounded():
    assert max(map(len, list_terms("x" * 10_000))) == 64


@given(st.text())
def test_terms_are_words_that_a_query_can_name(text: str):
    for term in list_terms(text):
        assert term
        assert not set(term) & set("\"'\\ :|&\0")
    assert list_terms(text) == list_terms(text)

"""Counts equal the reference's for every string, by the native back end and by the pure one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counters import corpora
from tests.counters.oracle import BACK_ENDS, NAMES, native, pure, reference

SURROGATES = [
    ("a\ud800b", "a\ufffdb"),
    ("\udfff", "\ufffd"),
    ("\ud83d\ude80 go", "🚀 go"),
    ("\ud83d \ude80", "\ufffd \ufffd"),
    ("\u017f\ud800 'ſ x", "\u017f\ufffd 'ſ x"),  # noqa: RUF001 - the letter is the point
]

any_text = st.text(st.characters(exclude_categories=()), max_size=200)
awkward = st.lists(
    st.sampled_from(
        [*"'sltdvre \n\t1aAé中K_-./", "\u017f", "\u088f", "\U000323b0", "\U00031350", "\u0301"]
    ),
    max_size=40,
).map("".join)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", corpora.KINDS)
def test_the_native_counter_agrees_on_generated_text(name: str, kind: str) -> None:
    count, expected = native(name).count, reference(name)
    for text in corpora.texts(kind, count=60, longest=20_000):
        assert count(text) == expected(text), text[:200]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", corpora.KINDS)
def test_the_pure_counter_agrees_on_generated_text(name: str, kind: str) -> None:
    count, expected = pure(name).count, reference(name)
    for text in corpora.texts(kind, count=30, longest=2_000):
        assert count(text) == expected(text), text[:200]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back_end", BACK_ENDS)
@given(text=any_text | awkward)
def test_any_string_counts_as_in_the_reference(back_end: str, name: str, text: str) -> None:
    assert BACK_ENDS[back_end](name).count(text) == reference(name)(text)


@pytest.mark.parametrize("name", NAMES)
@given(texts=st.lists(any_text | awkward, max_size=8))
@settings(max_examples=50)
def test_many_texts_count_as_each_alone(name: str, texts: list[str]) -> None:
    for counter in (native(name), pure(name)):
        assert counter.count_many(texts) == [counter.count(text) for text in texts]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize(("text", "same"), SURROGATES)
def test_surrogates_count_as_tiktoken_reads_them(
    back_end: str, name: str, text: str, same: str
) -> None:
    assert BACK_ENDS[back_end](name).count(text) == reference(name)(same)


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("\0", 1), ("hello world", 2), ("a<|endoftext|>b", 9)]
)
def test_known_texts_have_their_known_counts(back_end: str, text: str, tokens: int) -> None:
    assert BACK_ENDS[back_end]("o200k_base").count(text) == tokens


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", corpora.KINDS)
def test_the_native_counter_agrees_on_much_text(name: str, kind: str) -> None:
    count, expected = native(name).count, reference(name)
    for text in corpora.texts(kind, count=5_000, longest=5_000):
        assert count(text) == expected(text), text[:200]

"""Texts cut into passages: nothing is lost, and each says where it stands."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ullage.core.search.passages import MOST, cut_passages

TEXTS = st.text() | st.lists(st.text(alphabet="ab .\n。", max_size=700)).map("\n\n".join)


@given(TEXTS)
def test_every_word_is_in_a_passage_at_its_place(text: str):
    passages = list(cut_passages(text))
    for passage in passages:
        assert text[passage.start :].startswith(passage.text)
        assert len(passage.text) <= MOST
        assert passage.text.strip()
    assert "".join("".join(p.text for p in passages).split()) == "".join(text.split())


def test_a_passage_ends_where_a_paragraph_or_a_line_does():
    text = "a" * 450 + "\n\n" + "b" * 300 + "\n" + "c" * 900
    assert [p.text.strip()[0] for p in cut_passages(text)] == ["a", "b", "c"]
    lines = "line of a log\n" * 200
    assert all(p.text.endswith("\n") for p in cut_passages(lines))
    assert [len(p.text) for p in cut_passages("x" * 2_500)] == [1_000, 1_000, 500]


def test_a_message_is_the_same_passages_in_every_list():
    messages = [
        {"role": "user", "content": f"said {n}\nwith a \u201cquote\u201d"} for n in range(9)
    ]
    ours = [p.read() for p in cut_passages(json.dumps(messages[:4]))]
    assert len(ours) == 4
    assert "said 3\nwith" in ours[3]
    assert "\u201cquote\u201d" in ours[0]
    again = json.dumps(messages)
    assert [p.read() for p in cut_passages(again)][:4] == ours


def test_what_only_looks_like_a_list_is_a_text():
    for text in ('[{"a": 1}, and so on', "[{", '[{"a": 1}', "[{]", '[{"a"' + "[" * 50_000):
        assert next(cut_passages(text)).text == text[:MOST]
    (odd,) = cut_passages('[{"a": "half \\ud800 of a pair"}]')
    assert "half" in odd.read()

"""The questions of the section on search: each asks for a sentence that its author says."""

from __future__ import annotations

import json

from bench import search
from bench.corpus import FOLDER


def test_each_question_belongs_to_a_sentence_and_has_two_wordings() -> None:
    asked = json.loads(search.QUESTIONS.read_text("utf-8"))
    found = search.load_questions()
    assert {author: len(of) for author, of in found.items()} == {
        author: len(wordings) for author, wordings in asked.items()
    }
    assert all(len(set(both)) == 2 for of in found.values() for both in of.values())
    assert all((FOLDER / f"{author}.json").exists() for author in asked)


def test_evidence_of_every_author_is_asked_for_and_found_by_its_own_sentence() -> None:
    texts, questions = search.write_log(0)
    assert {q.style.key for q in questions} >= {"held/en/life", "tuned/zh/letters"}
    flat = [" ".join(text.split()) for text in texts]
    assert all(any(q.evidence.is_in(text) for text in flat) for q in questions)


def test_plain_bm25_finds_whole_words_alone() -> None:
    plain = search.Plain(["The valve sticks.", "The valves stick, said the valve.", "Lunch."])
    assert plain.search("valve sticks")[0] == "The valve sticks."
    assert plain.search("val") == []


def test_the_page_shows_what_was_counted_and_timed() -> None:
    counts = {
        f"{kind}/{part}/{what}": 2 - (what == "found")
        for kind in search.KINDS
        for part in ("tuned", "held", "en", "life")
        for what in ("found", "of")
    }
    row = {"first": [0.5], "new": [0.01, 0.03], "again": [0.02]}
    told = {"logs": 1, "messages": 9, "over": 100, "rows": {search.PLAIN: counts}}
    page = search.shown({"search": {**told, "times": {"SQLite": row}}})
    assert "| plain BM25 | other words | 50 | 50 |" in page
    assert "| SQLite | 0.5 | 20.0 | 30.0 | 20.0 | 20.0 |" in page

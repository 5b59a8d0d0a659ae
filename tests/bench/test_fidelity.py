"""Sessions of many authors, written from data, and what is counted in them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bench import fidelity, peers
from bench.corpus import Evidence, Style, find_evidence, load_styles, write_session

STYLES = load_styles()
NATURAL = [style for style in STYLES if "told" in style.data]


def test_every_author_is_in_one_split_and_both_have_several_languages():
    assert len(STYLES) >= 24
    assert {style.split for style in STYLES} == set(fidelity.SPLITS)
    languages = [{s.language for s in STYLES if s.split == split} for split in fidelity.SPLITS]
    assert all(len(found) >= 4 for found in languages)
    natural = [{s.kind for s in NATURAL if s.split == split} for split in fidelity.SPLITS]
    assert natural == [{"life", "briefing", "letters"}] * 2
    assert len({style.key for style in STYLES}) == len(STYLES)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.key)
def test_what_stays_is_said_once_and_the_same_seed_writes_the_same(style: Style):
    made = write_session(style, 1, 20)
    assert made == write_session(style, 1, 20)
    assert made != write_session(style, 2, 20)
    said = "\n".join(m["content"] for m in made.messages if m["role"] == "user")
    assert len(made.evidence) >= 10
    for evidence in made.evidence:
        assert evidence.is_in(said)
    kept, of, gone, goes = find_evidence(made.evidence, said)
    assert kept == of
    assert (gone, goes) == (0, len(style.data.get("changes", ())))
    assert made.messages[-1]["role"] == "user"


@pytest.mark.parametrize("style", NATURAL, ids=lambda style: style.key)
def test_natural_authors_choose_their_words_and_say_each_fact_once(style: Style):
    made = write_session(style, 0)
    said = "\n".join(m["content"] for m in made.messages)
    assert not {"{", "}", "|"} & set(said)
    assert all(said.count(evidence.text) == 1 for evidence in made.evidence)
    words = [len(m["content"].split()) for m in made.messages if m["role"] == "user"]
    if style.kind == "briefing":
        assert 150 <= sorted(words)[len(words) // 2] <= 500


def test_a_session_has_one_scene_and_its_rules():
    style = next(s for s in NATURAL if s.key == "tuned/en/briefing")
    scenes = style.data["scenes"]
    for seed, scene in enumerate(scenes):
        rules = {rule[1] for rule in scene["rules"]}
        assert {e.text for e in write_session(style, seed).evidence} == rules


def test_evidence_of_two_sentences_stands_when_both_do():
    both = [Evidence("At most 900.", also=("Ask first.",))]
    assert find_evidence(both, "At most 900. Ask first.")[0] == 1
    assert find_evidence(both, "At most 900.")[0] == 0


def test_the_parts_of_a_session_begin_with_requests():
    made = write_session(STYLES[0], 3, 20)
    parts = fidelity.find_parts(made)
    assert parts[-1] == len(made.messages)
    assert all(made.messages[start]["role"] == "user" for start in parts[:-1])


def test_evidence_is_counted_by_author_and_a_failure_keeps_nothing():
    made = write_session(STYLES[0], 3, 20)
    whole = fidelity.count_kept(STYLES[0], made, json.dumps(made.messages))
    assert fidelity.rate(whole, fidelity.SPLITS) == "100"
    assert fidelity.rate(whole, fidelity.SPLITS, "gone/goes") == "0"
    assert fidelity.rate(whole, ["nowhere"]) == "-"
    failed = fidelity.count_kept(STYLES[0], made, "[]", failed=True)
    assert fidelity.rate(failed, fidelity.SPLITS) == "0"
    assert fidelity.rate(failed, fidelity.SPLITS, "gone/goes") == "0"


def test_the_page_shows_both_splits_languages_and_kinds():
    row = {
        "kept": dict(Counter({"tuned/de/support/kept": 3, "tuned/de/support/of": 4})),
        "fill": 0.97,
    }
    found = {"rows": {name: {"0.05": row} for name in fidelity.NAMES[:2]}, "tokens": [900]}
    text = fidelity.shown({"fidelity": found})
    assert "| ullage, default ladder | 5 % | 75 | - | **75** | - | 0.97 |" in text
    assert "newest user messages" in text


def test_lines_may_be_broken_otherwise():
    assert find_evidence([Evidence("a b"), Evidence("c", stays=False)], "x a\n  b") == (1, 1, 1, 1)


def test_a_recorded_run_stands_beside_the_others():
    row = {"kept": {"held/en/chat/kept": 3, "held/en/chat/of": 4}, "fill": 0.9}
    ours, naive = peers.BY_MODEL
    told = [["summarise_middle", None, 1], ["x", "summary_worse", 2], ["x", "summary_cut", 2]]
    rows = {ours: {"0.2": row | {"told": told}}, naive: {"0.2": row}}
    recorded = {"model": "small", "tokens": [300, 500], "rows": rows}
    found = {"rows": {fidelity.LADDER: {"0.2": row}}, "tokens": [900], "recorded": recorded}
    text = fidelity.shown({"fidelity": found})
    assert f"| {ours} | 20 % | - | 75 | **75** | - | 0.90 |" in text
    assert f"| {naive} | 20 % | - | 75 | **75** | - | 0.90 |" in text
    assert "2 sessions of about 400 tokens" in text
    assert "of 3 compactions a summary stood in 1, and gave way to the extract in 1" in text
    bare = fidelity.shown({"fidelity": found | {"recorded": None}})
    assert "no run is recorded" in bare

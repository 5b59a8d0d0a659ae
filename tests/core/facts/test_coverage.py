"""What a text carries of a sentence: by names, numbers and rare words, in one line."""

from __future__ import annotations

import pytest

from tests.core.compaction.situations import CODEC, said
from ullage.core.compaction.block import gather
from ullage.core.facts.coverage import Coverage
from ullage.core.facts.salience import Valued

TALK = [
    message
    for n, topic in enumerate(("hoops", "staves", "bungs", "corks", "lees", "yeast", "oak", "tin"))
    for message in (
        said("user", f"Can you tell me more about the {topic} of the cellar?"),
        said("assistant", f"The {topic} of a cellar are kept dry, entry {n} of the old book says."),
    )
]


def find(text: str) -> Valued:
    """Return a sentence as it is valued beside others."""
    found = gather(CODEC.read([*TALK, said("user", text)]).messages).words.said
    return next(valued for valued in found if valued.segment.text == text)


def carries(text: str, sentence: str) -> bool:
    valued = find(sentence)
    return Coverage(text).carries(valued.segment.text, valued.rare)


VAN = "The green van of Mirela brings barley to Bergen on 14 May."


@pytest.mark.parametrize(
    "text",
    [
        VAN,
        f"Said by the user:\n- Before it. {VAN} Behind it.",
        "Next: on 14 May the green van of Mirela brings the barley, to Bergen",
        "- to Bergen on 14 May: barley in the green van, which Mirela brings",
        '- "\\u200b The green van of Mirela brings barley to Bergen on 14 May."',
    ],
)
def test_a_sentence_is_carried_by_its_names_numbers_and_most_of_its_words(text: str) -> None:
    assert carries(text, VAN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Next: the van of Mirela comes with barley on 15 May to Bergen, and it is green",
        "Next: the green van of Kofi brings barley to Bergen on 14 May",
        "Mirela in Bergen on 14 May",
        "The green van of Mirela brings barley\nto Bergen on 14 May.",
    ],
)
def test_another_name_or_number_fewer_words_and_two_lines_do_not_carry_it(text: str) -> None:
    assert not carries(text, VAN)


def test_what_rules_something_out_is_carried_by_what_does_so_too() -> None:
    ban = "Mirela must never sell barley to Bergen on 14 May."
    assert not carries("Decision: Mirela will sell barley to Bergen on 14 May", ban)
    assert carries("Decision: Mirela must not sell barley to Bergen on 14 May", ban)
    both = Coverage("Mirela will sell barley to Bergen on 14 May, and must not wait.")
    rare = find(ban).rare
    assert both.carries(ban, rare)
    assert both.carries(ban, rare)


def test_words_without_a_name_are_carried_by_most_of_them() -> None:
    plain = "grandma prefers roasted chestnuts beside lukewarm buttermilk"
    assert carries(
        "Done: lukewarm buttermilk beside roasted chestnuts is what grandma prefers", plain
    )
    assert not carries("Done: grandma prefers lukewarm tea", plain)


def test_a_sentence_without_a_rare_word_is_carried_where_it_stands() -> None:
    assert Coverage("x\n- as it is so").carries("as it is so", frozenset())
    assert not Coverage("as it was").carries("as it is so", frozenset())

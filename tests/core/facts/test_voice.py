"""One writer is told by who speaks, and by what the first words hand over."""

from __future__ import annotations

import pytest

from ullage.core.facts.voice import asks_for, hands_over, is_impersonal, is_one_voice, speaks

OWN = "I mend clocks in the yard. My aunt sells them at the fair in May."
THEIRS = "The yard is an escape route. Bicycles are taken away on Friday."


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (OWN, True),
        (THEIRS, False),
        ("Chleb i masło stoją na stole.", False),  # "i" is a word of other languages, too
        ("i have bread and butter", True),
        ("Tengo pan y sal.", True),
        ("我有面包", True),
        ("Die Uhr steht.", False),
    ],
)
def test_a_writer_is_told_by_words_for_themselves(told: str, found: bool) -> None:
    assert speaks(told) is found
    assert is_impersonal(told, may_address=True) is not found


def test_who_is_addressed_need_not_be_a_reader() -> None:
    assert not is_impersonal("Your clock stands.", may_address=False)
    assert is_impersonal("Your clock stands.", may_address=True)


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("Here is what they say:", True),
        ("What is this?", True),
        ("Summarise the mail", True),
        ("My landlord wrote to me", True),
        ("Me ha llegado un correo del banco", True),
        ("A letter came in from the bank", True),
        ("I found a flat in Leipzig", False),
        ("A new oven arrived yesterday", False),
        ("物业发来通知", True),
        ("I mend clocks in the yard", False),
        (f"I want to explain the clock to my aunt. {'It is an old clock of ours. ' * 5}", False),
        (f"{'It is an old clock of ours. ' * 5}What of this", True),
        (f"{'It is an old clock of ours and the mail arrived. ' * 6}", False),
    ],
)
def test_first_words_hand_over_a_text(first: str, found: bool) -> None:
    assert hands_over(first) is found


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("Can you wait?", True),
        ("Then draft me a note", True),
        ("Danke. Schreib den Brief.", True),
        ("请帮我写信", True),
        ("Bread and butter.", False),
        ("Discounts are for members. Such a key is never lent.", False),  # no French, no German
        ("Machines stop at nine. Fair use applies. Display the badge.", False),
    ],
)
def test_something_is_asked_of_an_assistant(told: str, found: bool) -> None:
    assert asks_for(told) is found


def judge(first: str, kinds: set[str], *units: str) -> bool:
    lines = [first]
    for unit in units:
        lines += ["", unit]
    return is_one_voice(lines, 1, kinds)


def test_behind_words_that_hand_over_nothing_a_voice_in_part_of_the_text_is_enough() -> None:
    assert judge("A tale of a yard.", {"titles", "farewell"}, OWN, OWN, THEIRS, THEIRS, THEIRS)
    assert not judge("A tale of a yard.", {"titles"}, OWN, THEIRS, THEIRS)
    assert not judge("A tale of a yard.", {"salutation"}, OWN, OWN)


def test_behind_words_that_hand_over_a_text_most_of_it_has_to_speak() -> None:
    assert judge("What of this?", {"request", "speech"}, OWN, OWN, THEIRS)
    assert not judge("What of this?", {"request", "speech"}, OWN, THEIRS)
    assert not judge("What of this?", {"titles"}, OWN, OWN)
    assert not judge("Summarise it", {"request"}, OWN, OWN)


def test_what_somebody_received_begins_with_another_voice() -> None:
    assert not judge("This came in.", {"received", "lead"}, THEIRS, OWN, OWN)
    assert judge("This came in.", {"received", "lead"}, OWN, OWN, THEIRS)


def test_a_hand_needs_a_voice_that_asks_in_the_end() -> None:
    ask = "Tell me how my clock is mended."
    assert judge("a tale of a yard", {"hand"}, OWN, THEIRS, ask)
    assert not judge("a tale of a yard", {"hand"}, OWN, ask, THEIRS, THEIRS)
    assert not judge("a tale of a yard", {"hand"}, THEIRS, THEIRS, THEIRS, THEIRS, ask)


def test_titles_and_names_are_no_paragraphs_and_a_list_is_one() -> None:
    items = "\n".join(f"clock {n}" for n in range(9))
    assert judge("A tale of a yard.", {"titles"}, "THE YARD", OWN, "THE CLOCKS", OWN, "Ann")
    assert not judge("Look at this", {"speech"}, OWN, THEIRS, items)
    assert judge("Look at this", {"speech"}, OWN, OWN, OWN, *items.split("\n"))

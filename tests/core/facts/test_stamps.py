"""A time in front of a message is no part of what is said, and is told with it."""

from __future__ import annotations

import pytest

from tests.core.compaction.situations import CODEC, said
from ullage.core.compaction.block import block, gather
from ullage.core.facts.extract import collect
from ullage.core.facts.segments import cut_message, cut_text
from ullage.core.facts.stamps import find_stamp


@pytest.mark.parametrize(
    "stamp",
    [
        "[12 Jan] ",
        "[1:56 pm on 8 May, 2023] ",
        "[2023/05/20 (Sat) 02:21] ",
        "(2024-03-01 10:15) ",
        "2024-03-01T10:15:00Z ",
        "2024-03-01: ",
        "[10:15] ",
        "[Tue 3 March]: ",
        "\u30103\u670812\u65e5\u3011",
        "[12. M\u00e4rz 2024] ",
        "[May 3]\n",
    ],
)
def test_a_time_in_front_is_found(stamp: str) -> None:
    assert find_stamp(f"{stamp}The cat came home.") == len(stamp)
    (segment,) = cut_text(f"{stamp}The cat came home.")
    assert (segment.stamp, segment.text) == (stamp.strip(), "The cat came home.")
    assert not any(any(map(str.isdigit, word)) for word in segment.words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The cat came home at 10:15.",
        "[1] Smith says so.",
        "[see 2](https://example.com) is good.",
        "[ullage: about 80 tokens left out here]\nmore",
        "[read_file for 'x 2.txt'] Result:",
        "[v1.2] release",
        "[0.5, 1.2] are the values",
        "[TICKET-12] fix it",
        "12:30 is lunch",
        "2024-03-01",
        "[10:15]",
        "(10.0.0.1) is the server",
        "[1.2.3] must be pinned",
        "[Ticket 1234] is mine",
        "[port 8080] is open",
        "(option 2) is better",
        "[3 eggs] for the cake",
        "(I tried version 12 of it and it fails)",
        "2024-06-30 is the release day",
        "[Internationalisation2 of the app, please",
        "(see ticket ABC-1234-5678-9999-000 and PR 12",
    ],
)
def test_what_is_none_stays_with_the_words(text: str) -> None:
    assert find_stamp(text) == 0


def test_a_stamp_makes_no_value_of_small_talk() -> None:
    found = collect(CODEC.read([said("user", "[19 May] She called. Twice.")]).messages)
    assert found.constraints == ()


def test_a_stamp_is_told_with_the_first_sentence_and_read_again() -> None:
    told = "[3 Mar] The recital of Tabitha is in Oberlin."
    messages = CODEC.read([said("user", told), said("assistant", "Good."), said("user", "Now?")])
    assert [s.stamp for m in messages.messages for s in cut_message(m)] == ["[3 Mar]", "", ""]
    first = block(gather(messages.messages[:2]), 300, lambda text: len(text.split()))
    assert f"- {told}" in first
    again = CODEC.read([said("user", first), said("user", "Now?")]).messages
    assert f"- {told}" in block(gather(again[:1]), 300, lambda text: len(text.split()))


def test_what_a_model_writes_has_no_stamp() -> None:
    (segment,) = cut_text("[3 Mar] The recital is in Oberlin.", person=False)
    assert segment.stamp == ""


@pytest.mark.parametrize(
    "text",
    [
        "[" + "a" * 4_000 + "1 x",
        "[" + "1" * 4_000 + "] x",
        "2024-01-01" + " " * 40_000 + "1",
        "[" + "12 Jan " * 4_000 + "] x",
        " " * 40_000 + "[12 Jan] x",
    ],
)
def test_any_text_is_looked_at_once(text: str) -> None:
    """Before, a word of 24 letters behind a bracket took seven seconds."""
    assert find_stamp(text) == 0

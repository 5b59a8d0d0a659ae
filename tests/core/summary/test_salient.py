"""The sentences that come first in a request for a summary, and which of them an answer carries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, tool_step
from tests.core.compaction.situations import said as raw
from tests.core.summary.test_request import GOOD, TALK, drive, good, job, said, words
from ullage.core.compaction.block import gather
from ullage.core.compaction.prose import make_job
from ullage.core.facts.extract import Facts
from ullage.core.summary.question import Answer, SummaryRequest
from ullage.core.summary.request import Job
from ullage.core.summary.salient import (
    MISSES,
    Salient,
    choose_salient,
    find_lost,
    quote_salient,
    tells_something,
)

NAMES = ("Mirela", "Kofi", "Beatriz", "Noor", "Jonas", "Ayumi", "Priya", "Oskar", "Lena", "Tomek")


def one(message: int, text: str, worth: float, *, place: int = 0, rare: str = "") -> Salient:
    return Salient(message, place, "user", text, worth, frozenset(rare.split()))


def listed(request: SummaryRequest) -> list[str]:
    """Return the lines of sentences before a request's conversation or records."""
    head, found, _ = request.prompt.partition("\n</sentences>\n")
    return head.removeprefix("<sentences>\n").split("\n") if found else []


def long_job(messages: Sequence[Any], **changes: Any) -> Job:
    found = [
        one(n, f"Shelf {n} is blue.", 9, rare=f"={n} blue shelf") for n in range(len(messages))
    ]
    return job(messages, **({"salient": found} | changes))


# --- which ----------------------------------------------------------------------------------------


def test_the_best_that_fit_are_listed_in_the_order_of_time() -> None:
    found = [
        one(3, "late and good", 9, rare="a"),
        one(1, "middling", 3, rare="b"),
        one(1, "early and good", 9, place=1, rare="c"),
        one(0, "poor " * 9, 1, rare="d"),
        one(2, "of another piece", 9, rare="e"),
    ]
    chosen = choose_salient(found, {0, 1, 3}, 99, words)
    assert [each.text for each in chosen] == ["middling", "early and good", "late and good"]
    tight = choose_salient(found, {0, 1, 3}, 15, words)
    assert [each.text for each in tight] == ["early and good", "late and good"]
    assert choose_salient([], {0}, 99, words) == choose_salient(found, {9}, 99, words) == []


def test_what_says_the_same_is_listed_once_and_what_is_too_long_is_passed_over() -> None:
    same = [one(0, "Shelf 4 is blue.", 9, rare="=4"), one(1, "Blue is shelf 4.", 8, rare="=4")]
    assert [each.message for each in choose_salient(same, {0, 1}, 99, words)] == [0]
    long = [one(n, "long " * 90, 900 + n, rare=f"l{n}") for n in range(MISSES)]
    short = one(99, "short", 9, rare="s")
    everything = {*range(MISSES + 1), 99}
    assert choose_salient([*long, short], everything, 20, words) == [short]
    more = one(MISSES, "long " * 90, 900, rare="more")
    assert choose_salient([*long, more, short], everything, 20, words) == []


def test_a_sentence_tells_something_by_a_name_a_number_or_three_rare_words() -> None:
    assert tells_something(frozenset({"=4"}))
    assert tells_something(frozenset({"one", "two", "three"}))
    assert not tells_something(frozenset({"fine", "okay"}))


def test_what_prose_does_not_carry_is_lost() -> None:
    found = [one(n, f"Shelf {n} is blue.", 9, rare=f"={n} shelf blue") for n in (4, 5)]
    assert find_lost(found, "Done:\n- shelf 5 is blue") == found[:1]
    assert find_lost(found, "") == found


# --- where ----------------------------------------------------------------------------------------


def test_the_sentences_come_first_and_are_said_to_be_what_must_not_be_lost() -> None:
    found = [one(0, "It leaks since </sentences> 1.4.2.", 9, rare="=1.4.2 leaks")]
    written, ((request,),) = drive(job(TALK, salient=found), good)
    assert listed(request) == ['user: "It leaks since \\u003c/sentences> 1.4.2."']
    before, _, after = request.prompt.partition("</sentences>")
    assert before.startswith("<sentences>\n")
    assert after.startswith("\n\nWhat these sentences say must not be lost.\n\n<conversation>\n")
    assert "It leaks since \\u003c/sentences> 1.4.2." not in request.quoted
    assert (written.prose, written.listed, written.lost, written.seen) == (GOOD, 1, 1, 1.0)


def test_what_an_answer_carries_is_told() -> None:
    found = [
        one(0, "The seal leaks.", 9, rare="seal leaks"),
        one(3, "All 214 tests pass.", 9, rare="=214 tests pass"),
    ]
    answer = Answer("Goal:\n- fix it\nDone:\n- 214 tests pass now")
    written, _ = drive(job(TALK, salient=found), lambda _: answer)
    assert (written.listed, written.lost) == (2, 1)


def test_a_record_is_brought_up_to_date_with_the_sentences_of_what_happened_since() -> None:
    found = [one(4, "Next check the valve.", 9, rare="valve check next")]
    _, ((request,),) = drive(job(TALK, earlier=GOOD, salient=found), good)
    assert listed(request) == ['user: "Next check the valve."']
    assert request.prompt.index("</sentences>") < request.prompt.index("<record>")


def test_each_piece_has_the_sentences_of_its_own_messages() -> None:
    talk = [said("user", f"Shelf {n} is blue. " + "and so on " * 12) for n in range(140)]
    written, rounds = drive(long_job(talk, window=2_000), good_of)
    first = rounds[0]
    assert len(first) > 4
    for request in first:
        found = listed(request)
        assert found
        assert all(f"{line.rstrip('.')}" in request.quoted for line in (x[7:-2] for x in found))
    assert written.listed == sum(len(listed(request)) for request in first)


def good_of(request: SummaryRequest) -> Answer:
    """Answer in some 50 tokens that no other request is answered with."""
    name = f"{request.level} {request.piece}"
    return Answer(f"Goal:\n- fix shelf\nDone:\n- turned the shelf {'on ' * 40} by {name}")


def test_records_are_joined_with_the_sentences_of_all_their_messages() -> None:
    talk = [said("user", f"Shelf {n} is blue. " + "and so on " * 12) for n in range(60)]
    _, rounds = drive(long_job(talk, window=1_500, tokens=120), good_of)
    joining = [request for asked in rounds for request in asked if request.level]
    assert joining
    assert all(request.prompt.index("</sentences>") < 2_000 for request in joining)
    of_last = listed(joining[-1])
    assert len(of_last) > 1


@given(st.sampled_from([700, 1_200, 3_000, 8_192, None]), st.integers(20, 400), st.integers(1, 40))
def test_a_request_with_sentences_stays_in_its_bound(
    window: int | None, tokens: int, times: int
) -> None:
    def count(text: str) -> int:
        return int(len(text) ** 1.03 / 4)

    talk = [said("user", "x y z " * 30) for _ in range(times)]
    for counter in (words, count):
        task = long_job(talk, window=window, tokens=tokens, count=counter)
        _, rounds = drive(task, good_of)
        for request in itertools.chain(*rounds):
            used = counter(request.system) + counter(request.prompt) + request.max_tokens
            assert used <= (window or 8_192) * 0.75
            lines = "\n".join(listed(request))
            assert words(lines) <= (window or 8_192) / 12
            assert counter is count or words(lines) <= request.max_tokens


# --- how many requests ----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [4_096, 8_192, 12_000, 16_384, 32_768, 65_536, 128_000])
@pytest.mark.parametrize("size", [120, 1_100])
def test_forty_thousand_tokens_are_as_few_requests_as_the_window_allows(
    window: int, size: int
) -> None:
    """With sentences before each: they cost no request where there are few, one of ten else."""
    talk = [
        said(
            ("user", "assistant")[n % 2], f"turn {n} of the pump " + "and on it goes " * (size // 4)
        )
        for n in range(176_000 // (15 * (size // 4)))
    ]
    whole = sum(words(f'assistant: "{m.text}"') + 1 for m in talk)
    assert whole >= 40_000
    plain, with_sentences = job(talk, window=window), long_job(talk, window=window)
    counts = [len(drive(task, good_of)[1][0]) for task in (plain, with_sentences)]
    frame = 420  # system text, the form, and what a second request adds
    room = int(window * 0.75) - 300 - frame
    assert counts[0] <= math.ceil(whole / (room - (size + 10)))  # messages are not cut through
    assert counts[1] <= counts[0] * 1.1


# --- out of a history -----------------------------------------------------------------------------


def history() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [raw("system", "Be brief.")]
    for n, name in enumerate(NAMES):
        found += [
            raw("user", f"{name} found the accordion of shelf {n + 20} in week {n + 30}."),
            raw("assistant", f"Fine by me, and the loom of shelf {n + 20} is {n + 3} m wide."),
            *tool_step(f"c{n}", f"shelf {n + 20}: never forget the accordion of week {n + 30}"),
        ]
    return [*found, raw("user", "Never sell the loom of Mirela to Kofi."), raw("user", "Fine.")]


def test_the_sentences_of_a_job_are_people_s_and_models_never_a_rule_or_a_tool_s() -> None:
    messages = CODEC.read(history()).messages[1:]
    made = make_job(
        messages, gather(messages), range(len(messages)), tokens=300, window=None, count=words
    )
    assert {each.label for each in made.salient} == {"user", "assistant"}
    texts = [each.text for each in made.salient]
    assert sum("found the accordion" in text for text in texts) == len(NAMES)
    assert not [text for text in texts if "never" in text.casefold() or text == "Fine."]
    for each in made.salient:
        assert each.text in made.messages[each.message].text


def test_a_block_among_the_messages_is_no_message_of_the_job() -> None:
    messages = CODEC.read(history()).messages[1:]
    block = CODEC.read([raw("user", "[ullage: summary of 9 earlier messages; a record]")]).messages
    whole = [*block, *messages]
    kept = gather(whole)
    made = make_job(whole, kept, range(len(whole)), tokens=300, window=None, count=words)
    assert len(made.messages) == len(messages)
    for each in made.salient:
        assert each.text in made.messages[each.message].text


def test_what_is_listed_is_not_said_to_be_recorded_elsewhere() -> None:
    facts = Facts(constraints=("Shelf 0 is blue.", "Never touch vault.py."))
    task = long_job([said("user", "Shelf 0 is blue. " * 30)], facts=facts)
    _, ((request,),) = drive(task, good)
    assert listed(request) == ['user: "Shelf 0 is blue."']
    assert 'do not restate them:\n- "Never touch vault.py."\n\n' in request.prompt


def test_no_sentence_leaves_a_request_as_it_was() -> None:
    _, ((bare,),) = drive(job(TALK), good)
    _, ((same,),) = drive(job(TALK, salient=[one(99, "of no message", 9)]), good)
    assert bare == same
    assert quote_salient([]) == ""

"""What a new session begins with: facts, prose that fits, last messages, and the whole by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, METER
from tests.core.guard.driving import World, setup, window
from tests.core.guard.driving import talk as chat
from ullage.core.compaction.block import gather
from ullage.core.compaction.handover import EARLIER, LAST, Handover, HandoverOrder, hand_over
from ullage.core.facts.sheet import HEADINGS
from ullage.core.guard.handing import LEAST, hand_over_request
from ullage.core.guard.request import Request
from ullage.core.messages.transcript import SUMMARY_MARK
from ullage.core.summary.question import Answer, SummaryRequest

COUNT = METER.counter.count
GOOD = "Goal:\n- turn the pump"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


TALK = [
    {"role": "system", "content": "Be brief."},
    user("Never touch vault.py. Mend the pump."),
    model("The pump turns."),
    user("What is next?"),
]


def run(
    history: Sequence[Any], tokens: int = 400, answer: str | None = None, **more: Any
) -> tuple[Handover, list[SummaryRequest]]:
    """Return what comes of it where each request gets this answer, and the requests."""
    asked: list[SummaryRequest] = []
    steps = hand_over(CODEC.read(list(history)), HandoverOrder(tokens, COUNT, **more))
    try:
        requests = next(steps)
        while True:
            asked += requests
            requests = steps.send([None if answer is None else Answer(answer) for _ in requests])
    except StopIteration as done:
        return done.value, asked


def test_rules_are_carried_the_last_messages_quoted_and_the_whole_is_named() -> None:
    made, asked = run(TALK)
    assert asked == []
    assert (made.messages, made.reason, made.written) == (3, "no_summariser", None)
    ((name, whole),) = made.originals.items()
    assert made.text.startswith(f"{SUMMARY_MARK}3 earlier messages; a record, not instructions; ")
    assert f"recall {name}]" in made.text
    assert json.loads(whole) == TALK[1:]
    assert "- Never touch vault.py." in made.text
    assert made.text.endswith(f'{LAST}\nuser: "Never touch vault.py. Mend the pump."\n'
                              'assistant: "The pump turns."\nuser: "What is next?"')  # fmt: skip


@pytest.mark.parametrize(("kept", "is_kept"), [(None, True), (10_000, True), (20, False)])
def test_a_history_that_is_too_long_is_not_kept_and_its_name_not_printed(
    kept: int | None, is_kept: bool
) -> None:
    made, _ = run(TALK, kept=kept)
    assert bool(made.originals) == is_kept
    assert ("; recall u:" in made.text) == is_kept
    assert ("; ullage_search finds the rest]" in made.text) != is_kept
    assert "- Never touch vault.py." in made.text


def test_a_model_writes_the_prose_where_it_fits() -> None:
    made, asked = run(TALK, answer=GOOD, summariser=True, window=4_000)
    assert len(asked) == 1
    assert made.reason is None
    assert f"\n{GOOD}\n" in made.text


@pytest.mark.parametrize(
    ("answer", "reason"), [(None, "summariser_failed"), (" ", "summary_empty")]
)
def test_what_a_model_does_not_write_is_told(answer: str | None, reason: str) -> None:
    made, _ = run(TALK, answer=answer, summariser=True)
    assert made.reason == reason
    assert made.written is not None
    assert "vault.py" in made.text


def test_without_room_for_prose_nobody_is_asked() -> None:
    made, asked = run(TALK, tokens=90, summariser=True, answer=GOOD)
    assert (asked, made.reason) == ([], "no_room")


def test_a_handover_of_a_handover_keeps_its_rules_and_quotes_no_block_twice() -> None:
    first, _ = run(TALK)
    second, _ = run([user(first.text), user("And now?"), model("Nothing.")])
    assert "- Never touch vault.py." in second.text
    assert second.messages == 3
    assert second.text.count(SUMMARY_MARK) == 1
    assert second.text.endswith(f'{LAST}\nuser: "And now?"\nassistant: "Nothing."')
    assert second.text.count(LAST) == second.text.count(EARLIER) == 1
    assert gather(CODEC.read([user(second.text)]).messages).messages == 5


def test_a_last_message_over_its_room_is_cut_and_none_is_quoted_behind_a_block() -> None:
    made, _ = run([*TALK, user("a word " * 400)], tokens=300)
    assert "tokens left out here" in made.text.partition(LAST)[2]
    assert COUNT(made.text) <= 300
    only, _ = run([user(run(TALK)[0].text)])
    assert (LAST in only.text, EARLIER in only.text) == (False, True)


@given(st.integers(60, 900), st.integers(1, 12), st.booleans())
def test_it_never_takes_more_than_its_room(tokens: int, turns: int, asks: bool) -> None:
    history = [m for n in range(turns) for m in (user(f"Never do {n}. " * 4), model("ok " * 30))]
    made, _ = run(history, tokens, GOOD, summariser=asks)
    assert COUNT(made.text) <= tokens + 1


def test_a_request_is_replayed_and_measured_before_it_is_handed_over() -> None:
    world = World(window(1_300), summary=GOOD, room=4_000)
    steps = hand_over_request(setup(summariser=True), Request(chat(24)), 5_000)
    made = world.run(steps)
    assert made.reason is None
    assert COUNT(made.text) <= 650
    small = World(window(40))
    assert COUNT(small.run(hand_over_request(setup(), Request(chat(2)), 5_000)).text) <= LEAST
    unknown = World(window(None))
    steps = hand_over_request(setup(), Request(chat(60)), 900)
    assert 600 < COUNT(unknown.run(steps).text) <= 900


def test_what_was_asked_for_first_is_the_goal_of_every_handover_after_it() -> None:
    goal = "\n".join([HEADINGS["goal"], "- Never touch vault.py. Mend the pump."])
    first, _ = run(TALK)
    assert goal in first.text
    second, _ = run([user(first.text), user("Paint the door as well."), model("Painted.")])
    assert goal in second.text
    assert second.text.count(HEADINGS["goal"]) == 1
    long, _ = run([user("a goal " * 2_000), *TALK[1:]], tokens=600)
    assert "tokens left out here" in long.text.partition(HEADINGS["goal"])[2].split("\n")[1]
    nobody, _ = run([model("Hello.")])
    assert HEADINGS["goal"] not in nobody.text


GUESTS = ("Mirela", "Kofi", "Beatriz", "Noor", "Jonas", "Ayumi", "Priya", "Oskar", "Lena", "Tomek")
LONG = [
    message
    for n, name in enumerate(GUESTS)
    for message in (
        user(f"{name} found the accordion of shelf {n + 20} in week {n + 30}."),
        model("I looked, and it is all rather dusty there. " * 3),
    )
]


def test_a_summariser_is_shown_the_best_sentences_and_what_it_dropped_is_put_back() -> None:
    answer = "Goal:\n- find all\nDone:\n- Kofi found accordion of the shelf 21 in week 31"
    made, asked = run(LONG, tokens=700, answer=answer, summariser=True)
    shown = asked[0].prompt.partition("</sentences>")[0]
    assert 'user: "Kofi found the accordion of shelf 21 in week 31."' in shown
    block = made.text.partition(LAST)[0]
    assert answer in block
    assert "- Kofi found the" not in block
    assert all(f"- {name} found the accordion" in block for name in GUESTS if name != "Kofi")
    assert made.written is not None
    assert 0 < made.written.lost < made.written.listed


@pytest.mark.parametrize("tokens", range(200, 700, 50))
def test_a_summary_that_takes_the_room_of_better_words_is_no_summary(tokens: int) -> None:
    idle = "Goal:\n" + "\n".join(f"- it is all rather dusty, door {n}" for n in range(40))
    by_rule, _ = run(LONG, tokens=tokens)
    made, asked = run(LONG, tokens=tokens, answer=idle, summariser=True)
    names = [name for name in GUESTS if f"{name} found the accordion" in by_rule.text]
    assert all(f"{name} found the accordion" in made.text for name in names)
    if asked and "dusty, door" not in made.text.partition(LAST)[0]:
        assert made.reason in ("summary_worse", "summary_malformed")

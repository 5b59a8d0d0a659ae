"""What a refusal is about, and what is sent in spite of one: filters quote what users wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.policy import Policy
from ullage.core.errors import ContextTooLargeError, ErrorKind
from ullage.core.guard import machine as guard
from ullage.core.guard.belief import is_about, make_refusal
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.events import Notice
from ullage.core.guard.recovery import is_recoverable
from ullage.core.guard.request import NeedTrial, Prepared, Request, Setup
from ullage.core.tokens.claim import UNNAMED, Claim
from ullage.core.tokens.window import resolve

OFF = setup(Policy.off())


def sent(words: int, answered: int = 0, **more: Any) -> Prepared:
    """Return a request of so many words, about as many tokens."""
    made = World(window(None)).drive(guard.prepare(OFF, Request(talk(1, words // 2), **more)))
    return replace(made, window=replace(made.window, answered=answered))


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (ErrorKind("input"), True),
        (ErrorKind("input", 8_000, 50_100), True),
        (ErrorKind("input", 8_000, 200_000), True),  # a server may add what we do not see
        (ErrorKind("input", 512, 900), False),  # quoted: we count 50,000
        (ErrorKind("input", 60_000, 50_100), False),  # fits
        (ErrorKind("input", 50_100, 50_100), True),  # leaves no room for an answer
        (ErrorKind("input", 8_000), True),
        (ErrorKind("input", 60_000, 50_100, structured=True), True),
    ],
)
def test_a_refusal_is_about_the_request_where_its_numbers_may_be(
    error: ErrorKind, about: bool
) -> None:
    made = sent(50_000)
    assert is_about(made, error) == about
    assert is_recoverable(error, made) == about


def test_a_sentence_with_a_limit_under_what_was_answered_is_about_something_else() -> None:
    made = sent(5_000, answered=50_064)
    assert not is_about(made, ErrorKind("input", 512))
    assert is_about(made, ErrorKind("input", 512, structured=True))
    assert is_about(made, ErrorKind("input", 4_000, 5_050))
    assert is_about(made, ErrorKind("input", 4_000))  # the request is larger
    assert not is_about(made, ErrorKind("input", 6_000))  # it is not
    assert not is_about(made, ErrorKind("input", 1_000))  # too far off


@pytest.mark.parametrize(
    ("error", "grounds", "note"),
    [
        (ErrorKind("input", 4_000), "words", ""),
        (ErrorKind("input"), "words", UNNAMED),
        (ErrorKind("input", 4_000, structured=True), "structured", ""),
        (ErrorKind("input", structured=True), "counted", UNNAMED),
    ],
)
def test_a_refusal_says_what_it_rests_on(error: ErrorKind, grounds: str, note: str) -> None:
    claim = make_refusal(sent(5_000, tools=[{"name": "ls"}]), error, error.limit or 4_999)
    assert claim is not None
    assert (claim.source, claim.grounds, claim.note, claim.tools) == (
        "refusal",
        grounds,
        note,
        True,
    )


@pytest.mark.parametrize(
    "error",
    [
        ErrorKind("input", 1_000_000),
        ErrorKind("input", 4_000, 90_000),
        ErrorKind("input", 4_000, 60),
    ],
)
def test_numbers_that_do_not_fit_our_count_are_no_evidence(error: ErrorKind) -> None:
    assert make_refusal(sent(5_000), error, error.limit or 0) is None


def test_what_holds_images_is_not_judged_by_our_count() -> None:
    url = {"url": "https://a.test/x.png"}
    parts = [{"type": "image_url", "image_url": url}, {"type": "text", "text": "what is it?"}]
    request = Request([{"role": "user", "content": parts}])
    made = World(window(None)).drive(guard.prepare(OFF, request))
    assert make_refusal(made, ErrorKind("input", 4_000, 90_000), 4_000) is not None


def test_a_request_without_messages_is_a_witness_without_a_name() -> None:
    made = World(window(None)).drive(guard.prepare(OFF, Request([], system="Hi.")))
    claim = make_refusal(made, ErrorKind("input"), 3)
    assert claim is not None
    assert claim.exchange == ""


# --- trials ---------------------------------------------------------------------------------------


def learned(tokens: int) -> World:
    claims = [
        Claim("total", tokens, "refusal", exchange=e, grounds="structured") for e in ("a", "b")
    ]
    return World(resolve(claims))


def prepare(world: World, given: Setup, trial: bool) -> Prepared:
    world.trial = trial
    return world.drive(guard.prepare(given, Request(talk(4, 200), max_tokens=100)))


def test_against_a_learned_bound_a_request_is_tried_and_its_output_is_not_lowered() -> None:
    world = learned(1_000)
    made = prepare(world, OFF, trial=True)
    assert made.max_tokens == 100
    tried = "sent anyway, to test the learned window"
    (told,) = [e for e in made.events if isinstance(e, Notice) and tried in e.text]
    assert "--refresh" in told.text


def test_while_a_trial_is_under_way_the_next_request_is_refused() -> None:
    with pytest.raises(ContextTooLargeError, match="--refresh"):
        prepare(learned(1_000), OFF, trial=False)


def test_a_look_is_no_trial() -> None:
    world = learned(1_000)
    with pytest.raises(ContextTooLargeError):
        prepare(world, replace(OFF, tries=False), trial=True)
    assert not any(isinstance(need, NeedTrial) for need in world.needs)


def test_a_probe_is_not_tried() -> None:
    world = World(window(1_000, source="probe", kind="allocated"))
    with pytest.raises(ContextTooLargeError):
        prepare(world, OFF, trial=True)


# --- what was stored before the ledger ------------------------------------------------------------


def test_a_conversation_of_version_1_is_read() -> None:
    held = Conversation("s", "p", covered=3)
    old = {k: v for k, v in held.to_dict().items() if k != "odd"}
    assert Conversation.from_dict({**old, "cut": True, "version": 1}) == held

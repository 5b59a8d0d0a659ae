"""What is remembered of a conversation: the last report, for requests that extend it only."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.errors import StoreError
from ullage.core.guard.conversation import VERSION, Conversation
from ullage.core.guard.effort import Effort
from ullage.core.guard.warmth import Warm
from ullage.core.messages.transcript import Transcript
from ullage.core.tokens.counting import Measure, Meter, Scale, measure
from ullage.core.tokens.gauge import Shown

GUESS = Scale(0.75, 1.1, 1.6)
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one two three"},
    {"role": "assistant", "content": "four", "reasoning_content": "hm"},
]
NEXT = {"role": "user", "content": "and five"}
TOOL = {"type": "function", "function": {"name": "ls"}}


def counted(history: list, **more: Any) -> tuple[Measure, Transcript]:
    transcript = OpenAIChat().read(history)
    return measure(transcript, Meter(WordCounter(), scale=GUESS, basis="estimate"), **more), (
        transcript
    )


def reported(history: list, tokens: int, **more: Any) -> Conversation:
    return Conversation("s", "p").with_report(tokens, *counted(history, **more))


def anchored(conversation: Conversation, measured: Measure, sent: Transcript) -> Measure:
    """Do as the replay and the measure of a request do, one after the other."""
    holds = conversation.has_report_of(sent)
    return conversation.anchor_to_report(measured) if holds else measured


def test_the_reported_request_is_as_large_as_reported():
    measured, sent = counted(HISTORY)
    found = anchored(reported(HISTORY, 321), measured, sent).count()
    assert (found.low, found.tokens, found.high, found.basis) == (321, 321, 321, "server")


@given(histories(max_turns=4), histories(max_turns=2), st.integers(1, 9000))
def test_a_request_that_extends_it_is_the_report_and_what_came_since(
    history: list, more: list, tokens: int
):
    measured, sent = counted([*history, *more], system="s", tools=[TOOL])
    found = anchored(reported(history, tokens, system="s", tools=[TOOL]), measured, sent).count()
    low, best, high = (sum(edges) for edges in zip(*measured.sizes[len(history) :], strict=True))
    assert found.low == tokens + int(low * GUESS.low)
    assert found.tokens == tokens + round(best * GUESS.best)
    assert found.high >= tokens + high * GUESS.high
    assert found.basis == "calibrated"


@pytest.mark.parametrize(
    ("history", "more"),
    [
        pytest.param(HISTORY[:2], {}, id="a shorter history"),
        pytest.param([*HISTORY[:1], NEXT, *HISTORY[2:]], {}, id="an altered message"),
        pytest.param([*HISTORY[:1], *HISTORY[2:], NEXT], {}, id="a message less"),
        pytest.param(
            [{"role": "system", "content": "Be brief. It is Tuesday."}, *HISTORY[1:]],
            {},
            id="other operator text",
        ),
        pytest.param(
            [*HISTORY[:2], {"role": "assistant", "content": "four"}], {}, id="reasoning left out"
        ),
        pytest.param(HISTORY, {"system": "You are a ship."}, id="system text outside the list"),
        pytest.param(HISTORY, {"tools": [TOOL]}, id="other tools"),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_the_report_is_out_of_use_for(history: list, more: dict):
    measured, sent = counted(history, **more)
    assert anchored(reported(HISTORY, 321), measured, sent) is measured


def test_without_a_report_the_count_stands():
    measured, sent = counted(HISTORY)
    assert anchored(Conversation("s", "p"), measured, sent) is measured


def test_a_report_on_no_messages_is_not_remembered():
    before = reported(HISTORY, 321)
    assert before.with_report(7, *counted([], system="s")) is before


def test_a_later_report_takes_the_place_of_the_one_before():
    longer = [*HISTORY, NEXT]
    after = reported(HISTORY, 321).with_report(400, *counted(longer))
    assert after.covered == 4
    assert anchored(after, *counted(longer)).count().tokens == 400
    measured, sent = counted(HISTORY)
    assert anchored(after, measured, sent) is measured


# --- as plain data --------------------------------------------------------------------------------

FULL = replace(
    reported(HISTORY, 321),
    shown=Shown("warning", frozenset({"advisory", "warning"}), "p/1"),
    effort=Effort("r", 1000, recoveries=2, fruitless=1, since=7.5),
    odd=(7, 5),
)


@pytest.mark.parametrize("found", [Conversation("s", "p"), reported(HISTORY, 321), FULL])
def test_a_conversation_survives_json(found: Conversation) -> None:
    assert Conversation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize("version", [VERSION + 1, 0, None])
def test_a_conversation_of_another_version_is_refused_by_its_version(version: Any) -> None:
    with pytest.raises(StoreError, match=f"schema version {version!r} cannot be read"):
        Conversation.from_dict({**FULL.to_dict(), "version": version})


@pytest.mark.parametrize(
    "damage", [{"shown": 7}, {"anchor": [1]}, {"effort": 7}, {"shown": {}}, {"warm": [1]}]
)
def test_a_corrupt_conversation_is_refused_by_name(damage: dict) -> None:
    with pytest.raises(StoreError, match="a stored conversation is corrupt"):
        Conversation.from_dict({**FULL.to_dict(), **damage})


def test_fields_that_a_later_version_added_are_passed_over() -> None:
    found = replace(FULL, warm=Warm(1, 2, "sent", "beside", "under", 3.0))
    data = json.loads(json.dumps(found.to_dict()))
    for part in (data, data["shown"], data["effort"]):
        part["later"] = 1
    data["warm"].append("later")
    assert Conversation.from_dict(data) == found


def test_a_conversation_without_a_field_is_refused() -> None:
    data = FULL.to_dict()
    del data["effort"]
    with pytest.raises(StoreError, match="corrupt"):
        Conversation.from_dict(data)

"""Edit scripts: what they leave alone, how they compose, and that they survive storage."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.transcripts import histories
from ullage.core.compaction.edits import (
    Clear,
    Drop,
    Edit,
    Edited,
    Insert,
    Script,
    Strip,
    apply,
    apply_clear,
    compose,
    reference,
)
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.transcript import Transcript

CODEC = OpenAIChat()
POSITIONS = st.integers(0, 20)
ANY_EDIT: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Drop, POSITIONS),
    st.builds(Clear, POSITIONS, st.integers(0, 2), st.just(-1), st.text(max_size=4)),
    st.builds(Clear, POSITIONS, st.just(-1), st.integers(0, 2), st.text(max_size=4)),
    st.builds(Insert, POSITIONS, st.sampled_from(["user", "assistant"]), st.text(max_size=4)),
    st.builds(Strip, POSITIONS),
)
SCRIPTS = st.lists(ANY_EDIT, max_size=8).map(Script.of)


def history(*texts: str) -> Transcript:
    return CODEC.read([{"role": "user", "content": text} for text in texts])


def texts(edited: Edited) -> list[str]:
    return [message.text for message in edited.transcript.messages]


@st.composite
def scripts_for(draw: st.DrawFn, transcript: Transcript) -> Script:
    """Return a script that fits a transcript: any drops, inserts, and clears of what is there."""
    edits: list[Edit] = []
    for index, message in enumerate(transcript.messages):
        chosen = draw(st.integers(0, 9))
        if chosen == 0:
            edits.append(Drop(index))
        clearable = [i for i, p in enumerate(message.parts) if p.kind in ("text", "result")]
        if chosen in (1, 2) and clearable:
            edits.append(Clear(index, draw(st.sampled_from(clearable)), -1, f"part {index}"))
        if chosen in (2, 3) and message.calls:
            edits.append(Clear(index, -1, len(message.calls) - 1, f'"call {index}"'))
        if chosen in (4, 5):
            edits.append(Insert(index, "user", f"new {draw(st.integers(0, 9))}"))
        if chosen == 5:
            edits.append(Insert(index, "assistant", "and another"))
    if draw(st.booleans()):
        edits.append(Insert(len(transcript), "user", "at the end"))
    return Script.of(draw(st.permutations(edits)))


# ── scripts ─────────────────────────────────────────────────────────────────────────────────────


@given(SCRIPTS)
def test_a_script_survives_json(script: Script):
    assert Script.from_list(json.loads(json.dumps(script.to_list()))) == script


@given(SCRIPTS)
def test_a_script_is_made_again_from_its_own_edits(script: Script):
    assert Script.of(script.edits()) == script


@given(st.lists(ANY_EDIT, max_size=8))
def test_a_script_does_something_exactly_if_an_edit_was_given(edits: list):
    assert bool(Script.of(edits)) == bool(edits)


@given(SCRIPTS)
def test_a_script_reaches_every_message_that_it_names(script: Script):
    reach = script.reach()
    assert all(i < reach for i in script.drops)
    assert all(c.message < reach for c in script.clears)
    assert all(i.before <= reach for i in script.inserts)
    assert (reach == 0) or any(
        reach == (e.before if isinstance(e, Insert) else e.message + 1) for e in script.edits()
    )


def test_a_later_clear_of_one_place_wins():
    script = Script.of([Clear(0, 0, -1, "first"), Clear(0, 0, -1, "second")])
    assert script.clears == (Clear(0, 0, -1, "second"),)


def test_a_clear_of_a_dropped_message_falls_away():
    assert Script.of([Clear(0, 0, -1, "x"), Drop(0)]) == Script(frozenset({0}))


def test_inserts_before_one_place_keep_the_order_in_which_they_were_given():
    given_ = [Insert(1, "user", "b"), Insert(0, "user", "x"), Insert(1, "user", "a")]
    assert [i.text for i in Script.of(given_).inserts] == ["x", "b", "a"]


# ── apply ───────────────────────────────────────────────────────────────────────────────────────


@given(st.data(), histories(max_turns=4))
def test_untouched_messages_are_the_same_objects_and_the_input_is_unchanged(
    data: st.DataObject, raws: list
):
    before = copy.deepcopy(raws)
    transcript = CODEC.read(raws)
    script = data.draw(scripts_for(transcript))
    edited = apply(transcript, script, CODEC)
    touched = {c.message for c in script.clears}
    assert raws == before
    assert len(edited.origin) == len(edited.transcript)
    assert [o for o in edited.origin if o is not None] == [
        i for i in range(len(raws)) if i not in script.drops
    ]
    for new, old in enumerate(edited.origin):
        if old is not None and old not in touched:
            assert edited.transcript.raws[new] is raws[old]
            assert edited.transcript.messages[new] is transcript.messages[old]


@given(st.data(), histories(max_turns=4))
def test_the_result_reads_as_its_own_raw_messages_do(data: st.DataObject, raws: list):
    transcript = CODEC.read(raws)
    edited = apply(transcript, data.draw(scripts_for(transcript)), CODEC).transcript
    again = OpenAIChat().read(edited.raws)
    assert [m.digest for m in edited.messages] == [m.digest for m in again.messages]


def test_an_empty_script_gives_the_transcript_itself():
    transcript = history("a", "b")
    edited = apply(transcript, Script(), CODEC)
    assert edited.transcript is transcript
    assert edited.origin == (0, 1)


def test_edits_address_the_history_as_it_was():
    script = Script.of(
        [
            Drop(0),
            Clear(1, 0, -1, "B"),
            Insert(0, "user", "front"),
            Insert(2, "assistant", "between"),
            Insert(3, "user", "end"),
        ]
    )
    edited = apply(history("a", "b", "c"), script, CODEC)
    assert texts(edited) == ["front", "B", "between", "c", "end"]
    assert edited.origin == (None, 1, None, 2, None)
    assert edited.transcript.messages[2].role == "assistant"


def test_arguments_and_text_of_one_message_are_cleared_together():
    raw: dict[str, Any] = {
        "role": "assistant",
        "content": "old",
        "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
        "x": 1,
    }
    script = Script.of([Clear(0, 0, -1, "new"), Clear(0, -1, 0, "[]")])
    (made,) = apply(CODEC.read([raw]), script, CODEC).transcript.raws
    assert made["content"] == "new"
    assert made["tool_calls"][0]["function"] == {"name": "ls", "arguments": "[]"}
    assert made["x"] == 1


@given(st.data(), histories(max_turns=3))
def test_a_cleared_message_is_what_the_codec_makes_of_it(data: st.DataObject, raws: list):
    transcript = CODEC.read(raws)
    script = data.draw(scripts_for(transcript))
    for clear in script.clears:
        message = transcript.messages[clear.message]
        old, new = apply_clear(message, clear)
        made = apply(transcript, Script(clears=(clear,)), CODEC).transcript
        was = message.parts[clear.part].text if clear.call < 0 else message.calls[-1].arguments
        assert old == was
        assert new.parts == made.messages[clear.message].parts
        assert new.calls == made.messages[clear.message].calls
        assert not new.memo


# ── compose ─────────────────────────────────────────────────────────────────────────────────────


@given(st.data(), histories(max_turns=4))
def test_one_composed_script_does_what_two_in_a_row_do(data: st.DataObject, raws: list):
    transcript = CODEC.read(raws)
    first = data.draw(scripts_for(transcript))
    once = apply(transcript, first, CODEC)
    second = data.draw(scripts_for(once.transcript))
    twice = apply(once.transcript, second, CODEC)
    both = apply(transcript, compose(first, once, second), CODEC)
    assert list(both.transcript.raws) == list(twice.transcript.raws)
    assert both.origin == tuple(None if i is None else once.origin[i] for i in twice.origin)


@given(st.data(), histories(max_turns=4))
def test_nothing_before_or_after_a_script_composes_to_that_script(data: st.DataObject, raws: list):
    transcript = CODEC.read(raws)
    script = data.draw(scripts_for(transcript))
    edited = apply(transcript, script, CODEC)
    untouched = apply(transcript, Script(), CODEC)
    assert compose(script, edited, Script()) == script
    assert compose(Script(), untouched, script) == script


def test_an_insert_that_is_dropped_again_falls_away():
    transcript = history("a")
    first = Script.of([Insert(0, "user", "summary")])
    both = compose(first, apply(transcript, first, CODEC), Script.of([Drop(0)]))
    assert both == Script()


def test_an_insert_that_is_cleared_again_is_made_with_the_last_text():
    transcript = history("a")
    first = Script.of([Insert(0, "user", "summary")])
    second = Script.of([Clear(0, 0, -1, "shorter")])
    both = compose(first, apply(transcript, first, CODEC), second)
    assert both == Script.of([Insert(0, "user", "shorter")])


def test_a_script_over_what_is_left_of_a_message_composes() -> None:
    """A cleared result takes along what is seen in it, so later parts move up."""
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    seen = [{"type": "text", "text": "a cat"}, image]
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": seen},
        {"type": "tool_result", "tool_use_id": "b", "content": seen},
    ]
    codec = Anthropic()
    whole = codec.read([{"role": "user", "content": blocks}])
    first = Script.of([Clear(0, 0, -1, "gone")])
    edited = apply(whole, first, codec)
    assert edited.parts == {0: (0, 2, 3)}
    second = Script.of([Clear(0, 1, -1, "gone too")])
    both = compose(first, edited, second)
    assert both.clears == (Clear(0, 0, -1, "gone"), Clear(0, 2, -1, "gone too"))
    once, twice = apply(whole, both, codec), apply(edited.transcript, second, codec)
    assert once.transcript.raws == twice.transcript.raws


def test_two_scripts_are_one_and_the_later_clear_of_a_text_wins():
    first = Script.of([Clear(0, 0, -1, "one"), Clear(1, 0, -1, "two"), Insert(2, "user", "a")])
    later = Script.of([Clear(0, 0, -1, "ONE"), Drop(1), Insert(2, "user", "b")])
    both = first | later
    assert both == Script.of(
        [Clear(0, 0, -1, "ONE"), Drop(1), Insert(2, "user", "a"), Insert(2, "user", "b")]
    )
    assert Script(frozenset({1})) | Script(frozenset({3})) == Script(frozenset({1, 3}))


@given(SCRIPTS, SCRIPTS)
def test_joining_scripts_is_collecting_their_edits(one: Script, other: Script):
    assert one | other == Script.of((*one.edits(), *other.edits()))
    assert (one | Script(), Script() | one) == (one, one)


@given(st.text(), st.text())
def test_a_name_is_of_one_text_only_and_always_the_same(one: str, other: str):
    assert (reference(one) == reference(other)) == (one == other)
    assert re.fullmatch("u:[0-9a-f]{16}", reference(one))


def test_a_text_that_cannot_be_encoded_has_a_name_too():
    assert reference("\ud800") != reference("\udfff")

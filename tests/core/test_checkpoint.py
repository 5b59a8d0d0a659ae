"""Checkpoints survive storage, and the chain tells prefixes apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.checkpoint import VERSION, Checkpoint, chain
from ullage.core.edits import Clear, Drop, Insert, Script
from ullage.core.errors import StoreError
from ullage.core.transcript import DIGEST_BYTES, Rules
from ullage.core.wire.openai_chat import OpenAIChat
from ullage.testing.transcripts import histories

CHECKPOINT = Checkpoint(
    scope="s",
    prefix="00ff",
    count=3,
    script=Script.of([Drop(0), Clear(1, 0, -1, "é\ud800"), Insert(2, "user", "summary")]),
    strategy="clear+trim_oldest",
    trigger="pressure",
    policy="ladder/1",
    basis="exact",
    tokens_before=900,
    tokens_after=500,
)


def hashes(raws: list) -> tuple[str, ...]:
    return chain(OpenAIChat().read(raws))


def said(text: str, **more: Any) -> dict:
    return {"role": "user", "content": text, **more}


def test_a_checkpoint_survives_json():
    for found in (CHECKPOINT, CHECKPOINT.measured(512)):
        assert Checkpoint.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_the_measured_size_is_the_only_thing_that_a_report_changes():
    measured = CHECKPOINT.measured(512)
    assert measured.tokens_after_measured == 512
    assert {k for k, v in measured.to_dict().items() if v != CHECKPOINT.to_dict()[k]} == {
        "tokens_after_measured"
    }


@pytest.mark.parametrize("version", [VERSION + 1, 0, None, "1"])
def test_a_checkpoint_of_another_version_is_refused_by_its_version(version: Any):
    with pytest.raises(StoreError, match=f"version {version!r} cannot be read"):
        Checkpoint.from_dict({**CHECKPOINT.to_dict(), "version": version})


@pytest.mark.parametrize("damage", [{"script": [{"edit": "melt"}]}, {"extra": 1}])
def test_a_corrupt_checkpoint_is_refused_by_name(damage: dict):
    with pytest.raises(StoreError, match="corrupt"):
        Checkpoint.from_dict({**CHECKPOINT.to_dict(), **damage})


def test_a_checkpoint_without_a_version_is_refused():
    data = CHECKPOINT.to_dict()
    del data["version"]
    with pytest.raises(StoreError, match="None"):
        Checkpoint.from_dict(data)


@given(histories(max_turns=4), st.data())
def test_the_chain_of_a_prefix_is_the_prefix_of_the_chain(raws: list, data: st.DataObject):
    cut = data.draw(st.integers(0, len(raws)))
    assert hashes(raws[:cut]) == hashes(raws)[:cut]
    assert all(len(bytes.fromhex(h)) == DIGEST_BYTES for h in hashes(raws))


@given(histories(max_turns=4), st.data())
def test_the_chain_of_what_was_read_before_is_the_same_worked_out_again(
    raws: list, data: st.DataObject
):
    codec, cut = OpenAIChat(), data.draw(st.integers(0, len(raws)))
    assert chain(codec.read(raws)) == hashes(raws)
    assert chain(codec.read(raws[:cut])) == hashes(raws[:cut])
    longer = [*raws, said("more")]
    found = codec.read(longer)
    assert chain(found) == chain(found) == hashes(longer)
    assert chain(codec.read(raws)) == hashes(raws)


def test_the_same_messages_in_another_dialect_are_another_conversation():
    chat = OpenAIChat().read([said("hi")])
    other = replace(chat, rules=Rules("anthropic"), memo={})
    assert chain(chat) != chain(other)


@given(histories(max_turns=4, unique_ids=False))
def test_no_two_prefixes_of_one_history_share_a_hash(raws: list):
    found = hashes(raws)
    assert len(set(found)) == len(found)


@given(histories(max_turns=3), st.data())
def test_an_altered_message_changes_the_chain_from_there_on(raws: list, data: st.DataObject):
    place = data.draw(st.integers(0, len(raws) - 1))
    if raws[place]["role"] in ("system", "developer"):
        return
    altered = [*raws[:place], said("something else entirely"), *raws[place + 1 :]]
    one, other = hashes(raws), hashes(altered)
    assert one[:place] == other[:place]
    assert all(a != b for a, b in zip(one[place:], other[place:], strict=True))


def test_a_date_in_the_system_text_does_not_lose_the_conversation():
    monday = [{"role": "system", "content": "It is Monday."}, said("hi")]
    tuesday = [{"role": "system", "content": "It is Tuesday."}, said("hi")]
    assert hashes(monday) == hashes(tuesday)


def test_a_system_message_is_not_taken_for_a_developers_or_for_none():
    bare = [said("hi")]
    system = [{"role": "system", "content": "x"}, said("hi")]
    developer = [{"role": "developer", "content": "x"}, said("hi")]
    assert len({hashes(raws)[-1] for raws in (bare, system, developer)}) == 3


def test_reasoning_and_cache_marks_do_not_lose_the_conversation():
    plain = [said("hi"), {"role": "assistant", "content": "yes"}]
    marked = [
        {**said("hi"), "cache_control": {"type": "ephemeral"}},
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
    ]
    assert hashes(plain) == hashes(marked)


def test_a_string_and_one_text_part_of_it_are_the_same_conversation():
    assert hashes([said("hi")]) == hashes(
        [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    )

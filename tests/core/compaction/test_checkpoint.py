"""Checkpoints survive storage, and the chain tells prefixes apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import presets
from tests.core.guard.driving import World, setup, talk, window
from tests.support.transcripts import histories
from ullage.core.compaction.checkpoint import VERSION, Checkpoint, chain
from ullage.core.compaction.edits import Clear, Drop, Insert, Script
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.usage import Usage
from ullage.core.errors import StoreError
from ullage.core.guard.machine import prepare
from ullage.core.guard.request import Request
from ullage.core.messages.size import Size
from ullage.core.messages.transcript import DIGEST_BYTES, Rules
from ullage.core.tokens.cost import Price
from ullage.core.tokens.counting import Measure, Scale

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
    for found in (CHECKPOINT, CHECKPOINT.with_usage(Usage(500, 12)), made()[1]):
        assert Checkpoint.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_checkpoint_of_the_first_release_is_read() -> None:
    fields = (
        *("scope", "prefix", "count", "script", "strategy", "trigger", "policy", "basis"),
        *("tokens_before", "tokens_after", "version"),
    )
    data = {name: CHECKPOINT.to_dict()[name] for name in fields}
    assert Checkpoint.from_dict(data) == CHECKPOINT


def test_what_was_measured_is_the_only_thing_that_a_report_changes():
    measured = CHECKPOINT.with_usage(Usage(400, 100, 12))
    assert (measured.tokens_after_measured, measured.cache_read_measured) == (512, 100)
    assert {k for k, v in measured.to_dict().items() if v != CHECKPOINT.to_dict()[k]} == {
        "tokens_after_measured",
        "cache_read_measured",
    }


# --- the record of a compaction -------------------------------------------------------------------


def made(generation: int = 0) -> tuple[list[dict], Checkpoint]:
    """Return a history and the record of its compaction under a window of 1,500 tokens."""
    world, history = World(window(1500), summary="Goal:\n- count."), talk(24)
    history[3]["content"] = "Never touch main.py. " + "q " * 20
    sent = world.drive(prepare(setup(presets.summarise(), summariser=True), Request(history)))
    for _ in range(generation):
        history += talk(24)[2:]
        sent = world.drive(prepare(setup(presets.summarise(), summariser=True), Request(history)))
    assert sent.checkpoint is not None
    return history, sent.checkpoint


@pytest.mark.parametrize("generation", [0, 1])
def test_a_record_says_what_was_left_out_and_what_was_not(generation: int):
    history, found = made(generation)
    drops = found.script.drops
    assert (found.first, found.count) == found.range == (min(drops), max(drops) + 1)
    assert found.source_count == len(drops)
    assert found.tail_count == len(history) - found.count
    assert found.prefix == hashes(history)[found.count - 1]
    assert (found.whole, found.bound) == (hashes(history)[-1], 1500)
    assert found.window.startswith("1,500 tokens, ")
    assert found.generation == generation


def test_a_record_holds_the_block_the_facts_in_it_and_how_it_was_written():
    _, found = made()
    (insert,) = found.script.inserts
    assert found.summary == insert.text
    assert found.facts["constraints"] == ["Never touch main.py."]
    assert (found.seen, found.usage, found.fallback_reason) == (1.0, None, None)
    assert found.strategy.startswith("summarise_middle")


def test_what_stands_before_the_first_edit_is_kept_and_the_rest_is_written_to_the_cache_anew():
    history, found = made()
    fixed, framing = 3, 4
    first = sum(
        framing + len(m["content"].replace(".", " .").split()) for m in history[: found.first]
    )
    assert found.first == 2
    assert found.kept_tokens == fixed + first
    assert found.cached_tokens_lost == found.tokens_after - found.kept_tokens
    assert replace(found, kept_tokens=10**6).cached_tokens_lost == 0


def test_a_saving_is_an_estimate_until_it_was_measured():
    _, found = made()
    estimate = found.saving(10)
    assert not estimate.measured
    assert estimate.tokens == 10 * (found.tokens_before - found.tokens_after)
    assert estimate.rewritten_tokens == found.cached_tokens_lost
    seen = found.with_usage(Usage(500, 100)).saving(10, [Price(0, 1.0)])
    assert seen.measured
    assert (seen.after_tokens, seen.kept_tokens) == (600, 100)
    assert seen.dollars is not None
    unread = replace(found, tokens_after_measured=600).saving(10)
    assert (unread.after_tokens, unread.kept_tokens) == (600, 0)


def test_a_saving_can_be_estimated_of_any_record():
    odd = replace(CHECKPOINT, kept_tokens=10**6)
    assert odd.saving(3).kept_tokens == odd.tokens_after


def sized(tokens: int, raw: int | None = None, width: float = 0.0) -> Measure:
    """Return a measure of so many tokens of the model, and of the counter."""
    raw = tokens if raw is None else raw
    ratio = tokens / raw
    scale = Scale(ratio, ratio, ratio * (1 + width))
    return Measure(Size(0, 0, 0), Size(raw, raw, raw), (), "k", scale, "calibrated")


@pytest.mark.parametrize(
    ("change", "settled"),
    [
        ({}, True),
        ({"whole": "other"}, False),
        ({"bound": 1499}, False),
        ({"bound": 3000}, True),
        ({"size": sized(510)}, True),
        ({"size": sized(511)}, False),
        ({"room": 100}, True),
        ({"room": 101}, False),
    ],
)
def test_a_plan_settles_its_own_history_under_its_bound_or_a_larger_one(
    change: dict, settled: bool
):
    planned = replace(CHECKPOINT, whole="w", bound=1500, room=100)
    asked = {"whole": "w", "bound": 1500, "size": sized(500), **change}
    assert planned.settles(**asked) is settled


@pytest.mark.parametrize(
    ("size", "settled"),
    [
        (sized(1400, 500), True),  # found larger, and it fits beside the answer
        (sized(1401, 500), False),
        (sized(1400, 501), False),  # something came: tools, or system text
        (sized(1300, 500, 0.1), False),
    ],
)
def test_a_request_that_is_found_larger_is_settled_as_long_as_it_fits(size: Measure, settled: bool):
    planned = replace(CHECKPOINT, whole="w", bound=1500, room=100, raw_after=500, high_after=1000)
    assert planned.settles("w", 1500, size, 100) is settled


def test_a_request_is_settled_up_to_the_most_that_it_was_thought_to_take():
    planned = replace(CHECKPOINT, whole="w", bound=1500, raw_after=500, high_after=2000)
    assert planned.settles("w", 1500, sized(1900, 500, 0.05))
    assert not planned.settles("w", 1500, sized(2000, 500, 0.05))


@pytest.mark.parametrize("version", [VERSION + 1, 0, None, "1"])
def test_a_checkpoint_of_another_version_is_refused_by_its_version(version: Any):
    with pytest.raises(StoreError, match=f"version {version!r} cannot be read"):
        Checkpoint.from_dict({**CHECKPOINT.to_dict(), "version": version})


@pytest.mark.parametrize("damage", [{"script": [{"edit": "melt"}]}, {"script": 7}])
def test_a_corrupt_checkpoint_is_refused_by_name(damage: dict):
    with pytest.raises(StoreError, match="corrupt"):
        Checkpoint.from_dict({**CHECKPOINT.to_dict(), **damage})


def test_fields_that_a_later_version_added_to_a_checkpoint_are_passed_over():
    assert Checkpoint.from_dict({**CHECKPOINT.to_dict(), "later": 1}) == CHECKPOINT


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

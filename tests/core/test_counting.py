"""Sizes and bands: what is counted, once, and which way each number is rounded."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.counting import (
    CHAT,
    UNKNOWN_TEMPLATE,
    UNKNOWN_VOCABULARY,
    Count,
    Framing,
    Measure,
    Meter,
    Scale,
    Size,
    measure,
    prefix_sums,
    text_size,
)
from ullage.core.transcript import Transcript
from ullage.core.wire.openai_chat import OpenAIChat
from ullage.testing.counting import WordCounter
from ullage.testing.transcripts import broken_histories, histories

EDGES = st.floats(0.25, 4.0)
SCALES = st.lists(EDGES, min_size=3, max_size=3).map(lambda edges: Scale(*sorted(edges)))
METERS = st.builds(
    Meter,
    st.builds(WordCounter),
    st.sampled_from([CHAT, UNKNOWN_TEMPLATE]),
    st.one_of(st.just(Scale()), SCALES),
    st.sampled_from(["exact", "calibrated", "estimate"]),
)
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "a b"}}


def read(*raws: Any) -> Transcript:
    return OpenAIChat().read(raws)


def size(raw: dict, framing: Framing = CHAT) -> Size:
    return measure(read(raw), Meter(WordCounter(), framing)).sizes[0]


# ── what each piece adds ────────────────────────────────────────────────────────────────────────


def test_a_text_message_is_its_words_and_its_framing_exactly():
    # OpenAI's published rule: 3 a message, the role, the words; 3 for the reply
    counted = measure(read({"role": "user", "content": "one two three"}), Meter(WordCounter()))
    assert counted.count() == Count(3 + 1 + 3 + 3, 10, 10, "exact", (Size(7, 7, 7),))
    assert counted.count().by_message == (7,)


def test_a_name_costs_its_words_and_one_more():
    plain = size({"role": "user", "content": "x"})
    named = size({"role": "user", "content": "x", "name": "ada lovelace"})
    assert named == Size(*(edge + 3 for edge in plain))


def test_a_call_costs_name_and_arguments_and_a_band_for_its_frame():
    found = size({"role": "assistant", "content": None, "tool_calls": [CALL]})
    words, identity = 1 + 2, 1
    assert found == Size(4 + words, 4 + words + 6, 4 + words + 16 + identity)


def test_a_result_costs_its_text_and_a_band_for_its_frame():
    found = size({"role": "tool", "tool_call_id": "c1", "content": "a b"})
    assert found == Size(4 + 2, 4 + 2 + 2, 4 + 2 + 8 + 1)


def test_an_image_costs_the_published_range_and_not_its_base64():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A B " * 9999}}
    found = size({"role": "user", "content": [image]})
    assert found == Size(4 + 85, 4 + 765, 4 + 1445)


@pytest.mark.parametrize("kind", ["input_audio", "file"])
def test_sound_and_files_cost_at_most_their_bytes(kind: str):
    piece = {"type": kind, kind: {"data": "A" * 800}}
    found = size({"role": "user", "content": [piece]})
    whole = len(json.dumps(piece))
    assert found == Size(4, 4 + whole // 8, 4 + whole)


def test_a_part_of_unknown_type_is_counted_as_its_text():
    piece = {"type": "hologram", "words": "one two three"}
    assert size({"role": "user", "content": [piece]}).low >= 4 + 3


def test_refusals_and_reasoning_are_counted():
    plain = size({"role": "assistant", "content": "x"})
    more = size({"role": "assistant", "content": "x", "refusal": "a b", "reasoning": "c"})
    assert more.best == plain.best + 3


def test_an_unknown_template_widens_the_band_upwards_only():
    known = size({"role": "user", "content": "x"}, Framing(message=4))
    unknown = size({"role": "user", "content": "x"}, UNKNOWN_TEMPLATE)
    assert unknown == Size(known.low, known.best, known.high + UNKNOWN_TEMPLATE.slack)


def test_text_size_is_the_upper_edge_of_a_message_of_that_text():
    for framing in (CHAT, UNKNOWN_TEMPLATE):
        meter = Meter(WordCounter(), framing)
        assert text_size("a b c", meter) == size({"role": "user", "content": "a b c"}, framing).high


# ── system text and tools outside the list ──────────────────────────────────────────────────────


def test_system_text_is_counted_as_a_message():
    meter = Meter(WordCounter())
    plain = measure(read(), meter).fixed
    found = measure(read(), meter, system="a b").fixed
    assert found == Size(*(edge + 3 + 1 + 2 for edge in plain))
    assert measure(read(), meter, system="").fixed == plain


def test_an_empty_request_is_the_reply_alone():
    counted = measure(read(), Meter(WordCounter())).count()
    assert counted == Count(CHAT.reply, CHAT.reply, CHAT.reply, "exact", ())


def test_every_tool_widens_the_band():
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"path": "string"}}}
    meter = Meter(WordCounter())
    none, one, two = (measure(read(), meter, tools=[tool] * n).fixed for n in range(3))
    assert none.low == none.high
    assert one.low < one.best < one.high
    assert two.high - one.high == one.high - none.high


def test_a_tool_as_an_sdk_object_counts_like_its_dict():
    class Tool:
        def model_dump(self, **options: Any) -> dict:
            return {"type": "function", "function": {"name": "ls"}}

    meter = Meter(WordCounter())
    assert measure(read(), meter, tools=[Tool()]) == measure(
        read(), meter, tools=[Tool().model_dump()]
    )


def test_a_tool_that_is_neither_is_counted_as_what_it_says():
    assert measure(read(), Meter(WordCounter()), tools=["one two three"]).fixed.best > CHAT.reply


# ── laws ────────────────────────────────────────────────────────────────────────────────────────


@given(st.one_of(histories(), broken_histories()), METERS)
def test_the_band_holds_its_best_value_and_the_parts_add_up(history: list, meter: Meter):
    counted = measure(OpenAIChat().read(history), meter)
    found = counted.count()
    assert 0 <= found.low <= found.tokens <= found.high
    assert len(found.by_message) == len(history)
    raw = counted.raw()
    assert raw.high == counted.fixed.high + sum(s.high for s in counted.sizes)
    assert raw.low == counted.fixed.low + sum(s.low for s in counted.sizes)


@given(histories())
def test_a_message_is_counted_once_in_its_life(history: list):
    codec, counter = OpenAIChat(), WordCounter()
    meter = Meter(counter)
    first = measure(codec.read(history), meter)
    counter.seen.clear()
    transcript = codec.read(history)
    measure(transcript, meter)
    counter.seen.clear()
    assert measure(transcript, meter) == first
    grown = codec.read([*history, {"role": "user", "content": "and one more"}])
    known = Transcript(grown.raws, (*transcript.messages, grown.messages[-1]), transcript.rules)
    measure(known, meter)
    assert counter.seen == ["and one more"]


def test_a_plain_history_that_comes_again_is_not_counted_again():
    codec, counter = OpenAIChat(), WordCounter()
    history = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]
    measure(codec.read(history), Meter(counter))
    counter.seen.clear()
    measure(codec.read(copy.deepcopy(history)), Meter(counter))
    assert counter.seen == []


@pytest.mark.parametrize(
    "change",
    [
        {"message": 9},
        {"role": 9},
        {"name": 9},
        {"slack": 9},
        {"call": Size(1, 2, 99)},
        {"result": Size(1, 2, 99)},
        {"image": Size(1, 2, 99)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_size_under_one_framing_is_never_taken_for_one_under_another(change: dict):
    image = {"type": "image_url", "image_url": {"url": "u"}}
    history = [
        {"role": "user", "name": "ada", "content": [image]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    transcript = read(*history)
    measure(transcript, Meter(WordCounter()))
    other = Meter(WordCounter(), replace(CHAT, **change))
    assert measure(transcript, other) == measure(read(*history), other)


def test_sizes_under_another_vocabulary_are_kept_apart():
    transcript = read({"role": "user", "content": "one two"})
    counter = WordCounter()

    class Letters:
        key = "letters"

        def count(self, text: str) -> int:
            return len(text)

        def count_many(self, texts: Any) -> list[int]:
            return [len(text) for text in texts]

    assert measure(transcript, Meter(counter)).sizes[0].best == 4 + 2
    assert measure(transcript, Meter(Letters())).sizes[0].best == 4 + 7


@given(SCALES, st.integers(0, 3_000_000))
def test_what_ceiling_admits_fits_after_scaling(scale: Scale, tokens: int):
    counted = Measure(Size(0, 0, 0), (), scale, "estimate")
    assert scale.of(Size(0, 0, counted.ceiling(tokens))).high <= tokens


def test_the_ceiling_holds_where_the_product_is_rounded_up():
    # 2025 / 3.24 is 625.0, and 625 * 3.24 is 2025.0000000000002
    counted = Measure(Size(0, 0, 0), (), Scale(1.0, 2.0, 3.24), "estimate")
    assert counted.ceiling(2025) == 624


@given(
    st.sampled_from([Scale(), UNKNOWN_VOCABULARY, Scale(0.9, 1.0, 1.1)]), st.integers(0, 3_000_000)
)
def test_the_next_token_after_the_ceiling_does_not_fit(scale: Scale, tokens: int):
    counted = Measure(Size(0, 0, 0), (), scale, "estimate")
    beyond = counted.ceiling(tokens) + 2
    assert scale.of(Size(0, 0, beyond)).high > tokens


@given(SCALES, st.integers(0, 10**6))
def test_scaling_rounds_outwards(scale: Scale, tokens: int):
    found = scale.of(Size(tokens, tokens, tokens))
    assert found.low <= tokens * scale.low
    assert found.high >= tokens * scale.high
    assert found.low <= found.best <= found.high


# ── where a number stems from ───────────────────────────────────────────────────────────────────


def test_an_exact_count_turns_into_an_estimate_where_a_band_is_in_it():
    meter = Meter(WordCounter())
    assert measure(read({"role": "user", "content": "x"}), meter).count().basis == "exact"
    calls = read({"role": "assistant", "tool_calls": [CALL]})
    assert measure(calls, meter).count().basis == "estimate"
    assert measure(read(), meter, tools=[{}]).count().basis == "estimate"
    calibrated = Meter(WordCounter(), basis="calibrated")
    assert measure(calls, calibrated).count().basis == "calibrated"


def test_the_servers_own_count_has_no_band():
    counted = replace(
        measure(read({"role": "user", "content": "x"}), Meter(WordCounter())), reported=99
    )
    assert counted.count() == Count(99, 99, 99, "server", (Size(5, 5, 5),))


def test_a_count_converts_to_its_best_value():
    assert int(Count(7, 5, 9, "estimate")) == 7


@given(st.lists(st.integers(0, 1000)))
def test_prefix_sums_are_the_sums_of_prefixes(numbers: list):
    assert prefix_sums(numbers) == [sum(numbers[:i]) for i in range(len(numbers) + 1)]

"""Sizes and bands: what is counted, once, and which way each number is rounded."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naming import plainly
from tests.support.counting import WordCounter
from tests.support.transcripts import broken_histories, histories
from ullage.core.compaction.checkpoint import chain
from ullage.core.dialects.anthropic import FRAMING as MESSAGES
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE, Framing
from ullage.core.dialects.openai_chat import FRAMING as CHAT
from ullage.core.dialects.openai_chat import OWN_FRAMING
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.openai_responses import FRAMING as RESPONSES
from ullage.core.messages import media
from ullage.core.messages.media import ImageRule
from ullage.core.messages.size import Size
from ullage.core.messages.transcript import Media, Message, Part, Transcript
from ullage.core.tokens.counting import (
    UNKNOWN_VOCABULARY,
    Anchor,
    Count,
    Measure,
    Meter,
    Scale,
    measure,
    part,
    prefix_sums,
    shares,
    system_size,
    text_size,
    tool_sizes,
)

EDGES = st.floats(0.25, 4.0)
SCALES = st.lists(EDGES, min_size=3, max_size=3).map(lambda edges: Scale(*sorted(edges)))
METERS = st.builds(
    Meter,
    st.builds(WordCounter),
    st.sampled_from([CHAT, OWN_FRAMING, RESPONSES, MESSAGES, UNKNOWN_TEMPLATE]),
    st.one_of(st.just(Scale()), SCALES),
    st.sampled_from(["exact", "calibrated", "estimate"]),
)
NOTHING = Size(0, 0, 0)
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "a b"}}


def read(*raws: Any) -> Transcript:
    return OpenAIChat().read(raws)


def bare(scale: Scale, extra: int = 0) -> Measure:
    """Return a measure of nothing, for what depends on the scale alone."""
    return Measure(NOTHING, NOTHING, (), "words", scale, "estimate", extra)


def size(raw: dict, framing: Framing = CHAT) -> Size:
    return measure(read(raw), Meter(WordCounter(), framing)).sizes[0]


# ── what each piece adds ────────────────────────────────────────────────────────────────────────


def test_a_text_message_is_its_words_and_its_framing_exactly():
    # OpenAI's published rule: 3 a message, the role, the words; 3 for the reply
    counted = measure(read({"role": "user", "content": "one two three"}), Meter(WordCounter()))
    assert counted.count() == Count(3 + 1 + 3 + 3, 10, 10, "exact")
    assert counted.sizes == (Size(7, 7, 7),)
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


def test_an_image_costs_what_the_rule_of_the_model_says_and_not_its_base64():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A B " * 9999}}
    framing = replace(CHAT, image=ImageRule("any", (1, 20, 300)))
    found = size({"role": "user", "content": [image]}, framing)
    assert found == Size(4 + 1, 4 + 20, 4 + 300)


@pytest.mark.parametrize(
    ("kind", "rule"), [("audio", media.audio), ("file", media.document)], ids=plainly
)
def test_sound_and_files_cost_what_their_formula_says(kind: Any, rule: Any):
    known = Media(kind, size=8_000)
    for told, meant in ((known, known), (None, Media(kind))):
        message = Message("user", (Part(kind, "", media=told),))
        found = measure(Transcript(({},), (message,), OpenAIChat.rules), Meter(WordCounter()))
        assert found.total == Size(*(4 + edge for edge in rule(meant)))


def test_a_part_of_unknown_type_is_counted_as_its_text():
    piece = {"type": "hologram", "words": "one two three"}
    assert size({"role": "user", "content": [piece]}).low >= 4 + 3


def test_refusals_and_reasoning_are_counted():
    plain = size({"role": "assistant", "content": "x"})
    more = size({"role": "assistant", "content": "x", "refusal": "a b", "reasoning": "c"})
    assert more.best == plain.best + 3


def test_an_unknown_template_widens_the_band_upwards_only():
    plain = replace(UNKNOWN_TEMPLATE, slack=0, opening=0)
    known = size({"role": "user", "content": "x"}, plain)
    unknown = size({"role": "user", "content": "x"}, UNKNOWN_TEMPLATE)
    assert unknown == Size(known.low, known.best, known.high + UNKNOWN_TEMPLATE.slack)
    fixed = measure(read(), Meter(WordCounter(), UNKNOWN_TEMPLATE)).fixed
    reply = UNKNOWN_TEMPLATE.reply
    assert fixed == Size(reply, reply, reply + UNKNOWN_TEMPLATE.opening)


def test_an_unknown_template_may_leave_calls_and_tools_out():
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    known, unknown = (size(call, replace(CHAT, loose=loose)) for loose in (False, True))
    assert unknown == Size(4, known.best, known.high)
    meters = [Meter(WordCounter(), replace(CHAT, loose=loose)) for loose in (False, True)]
    strict, loose = (tool_sizes([{"name": "ls"}], meter)[0] for meter in meters)
    assert loose == Size(0, strict.best, strict.high)


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
    assert counted == Count(CHAT.reply, CHAT.reply, CHAT.reply, "exact")
    assert counted.by_message == ()


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
    measure(codec.read(history), meter)
    transcript = codec.read(history)
    first = measure(transcript, meter)
    counter.seen.clear()
    assert measure(transcript, meter) == first
    assert counter.seen == []
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
        {"loose": True},
        {"ids": False},
        {"names_twice": True},
        {"tool": Size(1, 2, 99)},
        {"tools": Size(1, 2, 99)},
        {"image": ImageRule("other", (1, 2, 99))},
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
    transcript, tools = read(*history), [{"name": "ls"}]
    seen: dict[str, Size] = {}
    first = measure(transcript, Meter(WordCounter(), seen=seen), tools=tools)
    other = Meter(WordCounter(), replace(CHAT, **change), seen=seen)
    found = measure(transcript, other, tools=tools)
    fresh = measure(read(*history), replace(other, seen=None), tools=tools)
    assert (found.raw(), found.sizes) == (fresh.raw(), fresh.sizes)
    assert found.raw() != first.raw()


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


@given(SCALES, st.integers(0, 3_000_000), st.integers(-5_000, 5_000))
def test_what_ceiling_admits_fits_after_scaling(scale: Scale, tokens: int, extra: int):
    admitted = bare(scale, extra).ceiling(tokens)
    assert scale.of(Size(0, 0, admitted)).high + extra <= tokens


def test_the_ceiling_holds_where_the_product_is_rounded_up():
    # 2025 / 3.24 is 625.0, and 625 * 3.24 is 2025.0000000000002
    counted = bare(Scale(1.0, 2.0, 3.24))
    assert counted.ceiling(2025) == 624


@given(
    st.sampled_from([Scale(), UNKNOWN_VOCABULARY, Scale(0.9, 1.0, 1.1)]),
    st.integers(0, 3_000_000),
    st.integers(-5_000, 5_000),
)
def test_the_next_token_after_the_ceiling_does_not_fit(scale: Scale, tokens: int, extra: int):
    beyond = bare(scale, extra).ceiling(tokens) + 2
    assert scale.of(Size(0, 0, beyond)).high + extra > tokens


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
    measured = measure(read({"role": "user", "content": "x"}), Meter(WordCounter()))
    counted = measured.with_server_count(99).count()
    assert counted == Count(99, 99, 99, "server")
    assert counted.by_message == (5,)
    assert counted.measured == measured.with_server_count(99)


def test_a_count_converts_to_its_best_value():
    alone = Count(7, 5, 9, "estimate")
    assert int(alone) == 7
    assert alone.by_message == ()


@given(st.lists(st.integers(0, 1000)))
def test_prefix_sums_are_the_sums_of_prefixes(numbers: list):
    assert prefix_sums(numbers) == [sum(numbers[:i]) for i in range(len(numbers) + 1)]


# ── what outlives one measure ───────────────────────────────────────────────────────────────────

TURN = {"role": "user", "content": "one two three"}
TOOLS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": st.text(max_size=9), "input_schema": st.just({"a": "b"})}),
        st.fixed_dictionaries({"type": st.text(max_size=9)}),
        st.builds(lambda name: {"type": "function", "function": {"name": name}}, st.text()),
        st.just({"function": 7}),
        st.text(max_size=9),
    ),
    max_size=4,
)


@given(st.one_of(histories(), broken_histories()), METERS, st.integers(0, 10**6))
def test_from_a_report_on_only_what_came_since_is_estimated(
    history: list, meter: Meter, reported: int
):
    codec = OpenAIChat()
    before = measure(codec.read(history), meter, system="s")
    anchor = before.with_server_count(reported).anchor
    after = measure(codec.read([*history, TURN]), meter, system="s")
    found = replace(after, anchor=anchor).count()
    added = meter.scale.of(after.sizes[-1])
    assert anchor == Anchor(reported, before.raw())
    assert (found.low, found.tokens, found.high) == tuple(reported + edge for edge in added)
    assert found.basis == "calibrated"


@given(st.one_of(histories(), broken_histories()), METERS, st.data())
def test_a_part_of_a_measure_is_the_measure_of_that_part(
    history: list, meter: Meter, data: st.DataObject
):
    cut = data.draw(st.integers(0, len(history)))
    whole = measure(OpenAIChat().read(history), meter, system="s", tools=[{}])
    some = measure(OpenAIChat().read(history[:cut]), meter, system="s", tools=[{}])
    assert part(whole, cut) == some.raw()


@given(histories(), histories(), METERS)
def test_a_measure_of_an_edited_transcript_forgets_the_report(one: list, other: list, meter: Meter):
    codec = OpenAIChat()
    before = measure(codec.read(one), meter, system="s", tools=[{}]).with_server_count(7)
    edited = codec.read(other)
    after = before.of(edited, meter)
    assert after == measure(edited, meter, system="s", tools=[{}])
    assert after.anchor is None


@given(st.one_of(histories(unique_ids=False), broken_histories()), METERS)
def test_the_shares_of_a_message_add_up_to_its_size(history: list, meter: Meter):
    measured = measure(OpenAIChat().read(history), meter)
    every = shares(measured.messages, meter)
    for message, whole, found in zip(measured.messages, measured.sizes, every, strict=True):
        assert Size(*map(sum, zip(*(s.size for s in found), strict=True))) == whole
        assert [s.name for s in found if s.kind == "call"] == [c.name for c in message.calls]
        assert [s.kind for s in found if s.kind != "call"] == (
            [p.kind for p in message.parts] or ([] if message.calls else ["text"])
        )


def test_the_first_share_carries_the_framing_and_the_name_and_a_result_its_own():
    asked = read({"role": "assistant", "name": "ada b", "content": "x y", "tool_calls": [CALL]})
    ((text, call),) = shares(asked.messages, Meter(WordCounter()))
    assert (text.kind, text.name, text.size) == ("text", None, Size(9, 9, 9))
    assert (call.kind, call.name, call.size) == ("call", "ls", Size(3, 9, 20))
    answered = read({"role": "tool", "tool_call_id": "c1", "content": "x"})
    ((result,),) = shares(answered.messages, Meter(WordCounter()))
    assert (result.kind, result.name, result.size) == ("result", "c1", Size(5, 7, 14))


@given(TOOLS, METERS)
def test_the_sizes_of_tools_add_up_to_what_they_take_in_a_request(tools: list, meter: Meter):
    total, each = tool_sizes(tools, meter)
    sizes = [meter.framing.tools, *(found for _, found in each)]
    assert total == Size(*map(sum, zip(*sizes, strict=True)))
    assert len(each) == len(tools)
    fixed = measure(read(), meter, tools=tools).fixed
    alone = measure(read(), meter).fixed
    assert fixed == (Size(*map(sum, zip(alone, total, strict=True))) if tools else alone)


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"type": "function", "function": {"name": "ls"}}, "ls"),
        ({"name": "ls", "input_schema": {}}, "ls"),
        ({"type": "web_search"}, "web_search"),
        ({"type": "custom", "function": "ls"}, "custom"),
        ({}, "?"),
        ("ls", "?"),
    ],
)
def test_a_tool_is_named_as_its_dialect_names_it(tool: Any, name: str):
    assert tool_sizes([tool], Meter(WordCounter()))[1][0][0] == name


@given(TOOLS, TOOLS)
def test_tools_seen_before_give_the_same_sizes_without_counting(one: list, other: list):
    counter, seen = WordCounter(), dict[str, Size]()
    meter = Meter(counter, seen=seen)
    for tools in (one, other, one, other):
        found = measure(read(), meter, tools=tools)
        assert found == measure(read(), Meter(WordCounter()), tools=tools)
    counter.seen.clear()
    measure(read(), meter, tools=one)
    measure(read(), meter, tools=copy.deepcopy(other))
    assert counter.seen == []


@given(METERS, st.text(max_size=40).filter(bool))
def test_system_text_takes_its_size_in_a_request(meter: Meter, text: str):
    alone, found = measure(read(), meter).fixed, measure(read(), meter, system=text).fixed
    assert found == Size(*map(sum, zip(alone, system_size(text, meter), strict=True)))


@given(METERS, st.integers(-300, 3000))
def test_what_was_learned_outside_the_messages_stands_for_it(meter: Meter, tokens: int):
    fixed = measure(read(), meter, system="a b c").fixed
    learned = replace(meter, outside=((fixed.best, float(max(tokens, 0))),))
    found = measure(read(TURN), learned, system="a b c")
    plain = measure(read(TURN), meter, system="a b c")
    assert found.extra == round(max(tokens, 0) - meter.scale.best * fixed.best)
    assert found.fixed == Size(fixed.best, fixed.best, fixed.best)
    assert found.total == plain.total
    raw = Size(*(part + fixed.best for part in found.total))
    for edge, size in zip(("low", "tokens", "high"), meter.scale.of(raw), strict=True):
        assert getattr(found.count(), edge) == max(size + found.extra, 0)
    other = measure(read(TURN), learned, system="a b c d e f")
    assert other.extra == 0


# ── a transcript's memo never tells of another history ──────────────────────────────────────────

WORDS = st.sampled_from(["a", "b c", "d e f", "", "never touch main.py"])


def said(data: st.DataObject) -> dict:
    kind = data.draw(st.sampled_from(["user", "assistant", "call", "odd", "parts"]))
    text = data.draw(WORDS)
    if kind == "call":
        function = {"name": "ls", "arguments": text}
        return {"role": "assistant", "tool_calls": [{**CALL, "function": function}]}
    if kind == "odd":
        return {"role": "user", "content": text, "x_trace": 1}
    if kind == "parts":
        return {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"role": kind, "content": text}


def change(raw: dict, data: st.DataObject) -> None:
    """Change a message in place, as a caller may who owns it."""
    if raw.get("tool_calls"):
        raw["tool_calls"][0]["function"]["arguments"] = data.draw(WORDS)
    elif isinstance(raw["content"], list):
        raw["content"][0]["text"] = data.draw(WORDS)
    else:
        raw["content"] = data.draw(WORDS)


def numbers(codec: OpenAIChat, history: list, meters: list[Meter], order: int) -> list:
    transcript = codec.read(history)
    derive: list[Any] = [lambda: chain(transcript)]
    derive += [lambda m=m: measure(transcript, m).raw() for m in meters]
    derive += [lambda m=m: measure(transcript, m).sizes for m in meters]
    found = {i: derive[i]() for i in sorted(range(len(derive)), key=lambda i: (i + order) % 3)}
    assert [m.digest for m in transcript.messages] == [
        m.digest for m in OpenAIChat().read(history).messages
    ]
    return [found[i] for i in range(len(derive))]


@given(st.data())
def test_histories_read_in_any_order_have_the_numbers_of_a_fresh_reading(data: st.DataObject):
    meters = [Meter(WordCounter()), Meter(WordCounter(), UNKNOWN_TEMPLATE)]
    codec, shared = OpenAIChat(), OpenAIChat()
    opening = [{"role": "user", "content": "the task"}, {"role": "assistant", "content": "yes"}]
    known: list[list] = [opening[: data.draw(st.integers(0, 2))]]
    for _ in range(data.draw(st.integers(2, 10))):
        history = data.draw(st.sampled_from(known))
        match data.draw(st.sampled_from(["grow", "branch", "shrink", "change", "again", "copy"])):
            case "grow":
                history += [said(data) for _ in range(data.draw(st.integers(1, 3)))]
            case "branch":
                cut = data.draw(st.integers(0, len(history)))
                history = [*history[:cut], said(data)]
                known.append(history)
            case "shrink":
                history = history[: data.draw(st.integers(0, len(history)))]
                known.append(history)
            case "change" if history:
                change(data.draw(st.sampled_from(history)), data)
            case "copy":
                history = copy.deepcopy(history)
        if data.draw(st.integers(0, 3)) == 0:
            codec.read(history)  # read and not measured: a memo that lags behind
        order = data.draw(st.integers(0, 2))
        fresh = numbers(OpenAIChat(), copy.deepcopy(history), meters, 0)
        assert numbers(codec, history, meters, order) == fresh
        assert numbers(shared, history, [meters[0]], order)[0] == fresh[0]

"""What fills a window: the sums that always hold, what a row rests on, what came again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import WordCounter
from tests.support.transcripts import histories
from ullage.core.dialects.anthropic import FRAMING as MESSAGES
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE, Framing
from ullage.core.dialects.openai_chat import FRAMING as CHAT
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.size import Size
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.composition import (
    NAMES,
    WORTH,
    Large,
    Report,
    Span,
    Subject,
    compose,
    error,
)
from ullage.core.tokens.counting import EXACT, UNKNOWN_VOCABULARY, Basis, Meter, Scale, measure
from ullage.core.tokens.gauge import Thresholds
from ullage.core.tokens.window import Window, resolve

METER = Meter(WordCounter())
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "description": "Read it.", "parameters": {"type": "object"}},
}
UNKNOWN = resolve([])

SCALES = st.sampled_from([EXACT, UNKNOWN_VOCABULARY, Scale(0.9, 1.07, 1.3), Scale(0.1, 0.3, 0.5)])
FRAMINGS = st.sampled_from([CHAT, MESSAGES, UNKNOWN_TEMPLATE])


def total(tokens: int) -> Window:
    return Window(tokens, tokens, source="override")


@st.composite
def meters(draw: st.DrawFn) -> Meter:
    scale = draw(SCALES)
    kinds: list[Basis] = ["exact"] if scale is EXACT else ["estimate", "calibrated"]
    basis = draw(st.sampled_from(kinds))
    outside = draw(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 20_000)), max_size=2))
    return Meter(WordCounter(), draw(FRAMINGS), scale, basis, tuple(outside))


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    raws = draw(histories(max_turns=4))
    count = len(raws)
    start = draw(st.integers(0, count))
    covered = draw(st.none() | st.integers(start, count))
    reported = draw(st.none() | st.integers(0, 5_000))
    spans = []
    for number in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, count))
        stop = draw(st.integers(first, count))
        spans.append(Span(number + 1, first, stop, draw(st.none() | st.integers(1, 9_000))))
    return Subject(
        OpenAIChat().read(raws),
        start=start,
        covered=covered,
        reported=reported,
        system=draw(st.none() | st.just("Be brief.")),
        tools=draw(st.sampled_from([(), (TOOL,), (TOOL, TOOL)])),
        reserved=draw(st.integers(0, 3_000)),
        summaries=draw(st.frozensets(st.integers(0, count), max_size=1)),
        spans=tuple(spans),
        apart=draw(st.sampled_from(["", "not in the file"])),
        dropped=draw(st.frozensets(st.sampled_from(["tools", "tool_calls", "tool_results"]))),
    )


WINDOWS = st.one_of(
    st.just(UNKNOWN),
    st.builds(total, st.integers(1, 20_000)),
    st.integers(1, 20_000).map(
        lambda n: resolve([Claim("input", n, "table"), Claim("total", n + 700, "table")])
    ),
    st.integers(1_024, 20_000).map(lambda n: resolve([Claim("input", n, "table")])),
)


# --- the sums -------------------------------------------------------------------------------------


@given(subjects(), meters(), WINDOWS, st.integers(0, 12))
def test_everything_adds_up_to_the_token(
    subject: Subject, meter: Meter, window: Window, top: int
) -> None:
    report = compose(subject, meter, window, top=top)
    assert sum(row.tokens for row in report.rows) == report.used.tokens
    assert report.used.low <= report.used.tokens <= report.used.high
    assert report.bound == window.input_tokens
    if report.free is None:
        assert report.bound is None
    else:
        parts = (report.used.tokens, report.free, report.margin, report.reserved)
        assert sum(parts) == report.bound
    for row in report.rows:
        assert row.low <= row.tokens <= row.high
        assert row.tokens >= 0 or row.id == "unattributed"
        if row.items:
            assert sum(item.tokens for item in row.items) == row.tokens
        for item in row.items:
            assert 0 <= item.reclaimable <= item.tokens
            assert sum(entry.tokens for entry in item.entries) <= item.tokens
    assert len(report.largest) <= top


@given(subjects(), meters(), WINDOWS)
def test_a_turns_rows_add_up_to_its_tokens(subject: Subject, meter: Meter, window: Window) -> None:
    report = compose(subject, meter, window)
    assert [turn.span for turn in report.turns] == list(subject.spans)
    for turn in report.turns:
        assert sum(turn.rows.values()) == turn.tokens
        assert turn.tokens == turn.span.tokens or turn.basis == "estimate"
        assert set(turn.rows) <= set(NAMES)


@given(subjects(), meters())
def test_what_is_counted_is_what_a_measure_counts(subject: Subject, meter: Meter) -> None:
    whole = replace(subject, start=0, covered=None, reported=None, dropped=frozenset())
    used = compose(whole, meter, UNKNOWN).used
    measured = measure(whole.transcript, meter, system=whole.system, tools=whole.tools)
    count = measured.count()
    assert (used.tokens, used.low, used.high) == (count.tokens, count.low, count.high)
    assert used.basis == count.basis


def test_what_reports_taught_of_the_fixed_part_takes_its_band_away() -> None:
    told = Meter(WordCounter(), UNKNOWN_TEMPLATE, EXACT, "exact", ((3, 70.0),))
    forgiven = Meter(WordCounter(), CHAT, UNKNOWN_VOCABULARY, "estimate", ((3, -90.0),))
    for meter in (told, forgiven):
        transcript = OpenAIChat().read([{"role": "user", "content": "one two three"}])
        used = compose(Subject(transcript), meter, UNKNOWN).used
        count = measure(transcript, meter).count()
        assert (used.tokens, used.low, used.high) == (count.tokens, count.low, count.high)


@given(subjects(), meters())
def test_the_rows_keep_one_order(subject: Subject, meter: Meter) -> None:
    ids = [row.id for row in compose(subject, meter, UNKNOWN).rows]
    assert ids == [name for name in NAMES if name in ids]


def test_a_reported_total_wins_and_the_rest_is_unattributed() -> None:
    raws = [{"role": "user", "content": "one two three"}]
    counted = look(raws)
    for reported in (counted.used.tokens + 500, counted.used.tokens - 3, 0):
        report = look(raws, reported=reported)
        rest = row(report, "unattributed")
        assert (report.used.tokens, report.margin, report.basis) == (reported, 0, "provider")
        assert rest.tokens == reported - counted.used.tokens
        assert (rest.basis, rest.note) == ("inferred", "")
        assert report.assessment.reason == "context_window_unknown"
    assert look(raws, reported=9, reporter="server").basis == "server"


def test_over_the_limit_is_less_than_nothing_free() -> None:
    report = look([{"role": "user", "content": "w " * 200}], window=total(100), reserved=50)
    assert report.free == 100 - report.used.tokens - 50
    assert report.free < 0
    assert report.assessment.tier == "overflow"
    assert Thresholds().tier(report.used.high / 100) == "overflow"


@pytest.mark.parametrize(
    ("claims", "asked", "reserved"),
    [
        ([Claim("total", 8_000, "table")], 1_000, 1_000),
        ([Claim("input", 8_000, "table"), Claim("total", 10_000, "table")], 3_000, 1_000),
        ([Claim("input", 8_000, "table"), Claim("total", 10_000, "table")], 2_000, 0),
        ([Claim("input", 8_000, "table")], 1_000, 1_000),
        ([], 1_000, 1_000),
    ],
)
def test_output_is_reserved_as_far_as_it_comes_out_of_the_bound(
    claims: list[Claim], asked: int, reserved: int
) -> None:
    report = look([], window=resolve(claims), reserved=asked)
    assert report.reserved == reserved


# --- what a row rests on --------------------------------------------------------------------------


def test_plain_text_in_a_known_vocabulary_is_exact_and_a_call_is_not() -> None:
    raws: list[dict[str, Any]] = [
        {"role": "user", "content": "look"},
        *step("a", "read_file", "w " * 30),
    ]
    report = look(raws)
    assert {r.id: r.basis for r in report.rows} == {
        "user": "exact",
        "tool_calls": "estimate",
        "tool_results": "estimate",
        "framing": "exact",
        "assistant": "exact",
    }
    assert look(raws[:1]).used.basis == "exact"
    assert report.used.basis == "estimate"
    assert report.error == error(report.used.low, report.used.tokens, report.used.high)
    assert look(raws[:1]).error is None


@pytest.mark.parametrize("basis", ["estimate", "calibrated"])
def test_every_counted_row_rests_on_what_the_meter_rests_on(basis: Any) -> None:
    meter = Meter(WordCounter(), CHAT, Scale(0.9, 1.0, 1.1), basis)
    report = look([{"role": "user", "content": "look"}], meter=meter, reported=900)
    assert {r.basis for r in report.rows} == {basis, "inferred"}


def test_a_row_tells_its_parts_as_plain_data() -> None:
    told = row(look(step("a", "shell", "w " * 90)), "tool_results").to_dict()
    tokens = told["tokens"]
    item = {"name": "shell", "tokens": tokens, "count": 1, "duplicates": 0, "reclaimable": 0}
    item["entries"] = [{"name": "shell, message 1", "tokens": tokens, "message": 1}]
    assert told["name"] == "tool results"
    assert told["items"] == [item]


def test_a_dialect_without_framing_gives_an_empty_window_no_tokens() -> None:
    free = Framing(message=0, role=0, reply=0, result=Size(0, 0, 0))
    raws = [{"role": "tool", "tool_call_id": "a", "content": ""}]
    report = look(raws, meter=Meter(WordCounter(), free))
    assert [(r.id, r.tokens) for r in report.rows] == [("tool_results", 0), ("framing", 0)]
    assert report.rows[0].items[0].tokens == 0


def test_an_error_is_the_wider_half_of_the_band() -> None:
    assert error(90, 100, 150) == 0.5
    assert error(40, 100, 150) == 0.6
    assert error(100, 100, 100) is None
    assert error(-1, 0, 1) == 1.0


def test_what_was_learned_of_the_outside_is_shown_as_unattributed() -> None:
    fixed = measure(OpenAIChat().read([]), METER, system="Be brief.").fixed.best
    meter = Meter(WordCounter(), CHAT, Scale(0.9, 1.0, 1.1), "calibrated", ((fixed, 14_000.0),))
    report = look([{"role": "user", "content": "look"}], meter=meter, system="Be brief.")
    assert row(report, "unattributed").tokens == 14_000 - fixed
    assert report.used.basis == "calibrated"
    other = look([{"role": "user", "content": "look"}], meter=meter)
    assert "unattributed" not in [r.id for r in other.rows]


def test_an_opening_that_a_template_may_have_is_in_the_margin() -> None:
    meter = Meter(WordCounter(), UNKNOWN_TEMPLATE, EXACT, "estimate")
    report = look([], meter=meter)
    assert row(report, "framing").high == UNKNOWN_TEMPLATE.reply + UNKNOWN_TEMPLATE.opening
    assert report.margin == UNKNOWN_TEMPLATE.opening


# --- which row ------------------------------------------------------------------------------------


def test_every_kind_of_piece_has_its_row() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    raws = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm " * 9, "signature": "x"},
                {"type": "text", "text": "I will."},
                {"type": "tool_use", "id": "a", "name": "Read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "w " * 9}],
        },
    ]
    subject = Subject(Anthropic().read(raws), system="Be brief.", tools=(TOOL,))
    ids = {r.id for r in compose(subject, METER, UNKNOWN).rows}
    wanted = {"system", "tools", "user", "assistant", "reasoning", "tool_calls", "tool_results"}
    assert ids == {*wanted, "images", "framing"}


def test_system_messages_recordings_and_summaries_have_rows_of_their_own() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    raws: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [sound]},
        {"role": "user", "content": "[ullage: summary of 3 messages] they met"},
        {"role": "user", "content": "This session is being continued"},
    ]
    report = look(raws, summaries=frozenset({3}))
    assert {"system", "files", "checkpoint", "framing"} == {r.id for r in report.rows}
    both = row(report, "checkpoint").tokens
    assert both > row(look(raws), "checkpoint").tokens


def test_only_what_stands_in_the_window_is_counted() -> None:
    raws = [{"role": "user", "content": "w " * n} for n in (50, 10, 20, 30)]
    report = look(raws, start=1, covered=3, reported=99)
    assert row(report, "user").tokens == look(raws[1:3]).rows[0].tokens
    assert {large.message for large in report.largest} == {1, 2}


# --- tools, and what came again -------------------------------------------------------------------


def test_schemas_calls_and_results_are_told_by_tool() -> None:
    raws = [*step("a", "read_file", "w " * 40), *step("b", "shell", "w " * 90)]
    other = {"type": "function", "name": "shell"}
    report = look(raws, tools=(TOOL, other, "no object"))
    assert {item.name for item in row(report, "tools").items} == {"read_file", "shell", "?"}
    assert {item.name for item in row(report, "tool_calls").items} == {"read_file", "shell"}
    assert [item.name for item in row(report, "tool_results").items] == ["shell", "read_file"]


def test_a_result_that_comes_again_is_named_and_only_its_earlier_copies_can_go() -> None:
    same, other = "w " * 60, "v " * 60
    raws = [
        *step("a", "read_file", same),
        *step("b", "shell", same),
        *step("c", "read_file", other),
        *step("d", "read_file", same),
        *step("e", "read_file", same),
    ]
    items = {item.name: item for item in row(look(raws), "tool_results").items}
    reads = items["read_file"]
    each = sizes(raws)[1]
    assert (reads.count, reads.duplicates, reads.reclaimable) == (4, 2, 2 * each)
    assert (items["shell"].duplicates, items["shell"].reclaimable) == (0, 0)
    assert reads.reclaimable < reads.tokens


def test_small_and_empty_results_are_no_duplicates() -> None:
    small, empty = "ok", ""
    raws = [*step("a", "t", small), *step("b", "t", small), *step("c", "t", empty)]
    raws += [*step("d", "t", empty)]
    assert sizes(raws)[1] < WORTH
    assert row(look(raws), "tool_results").items[0].duplicates == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12))
def test_duplicates_are_the_copies_but_for_the_last_of_each_text(
    found: list[tuple[str, str]],
) -> None:
    raws = [
        message
        for place, (tool, text) in enumerate(found)
        for message in step(str(place), tool, f"{text} " * 50)
    ]
    report = look(raws)
    items = row(report, "tool_results").items if found else ()
    for item in items:
        texts = [text for tool, text in found if tool == item.name]
        assert item.count == len(texts)
        assert item.duplicates == len(texts) - len(set(texts))
        assert (item.reclaimable > 0) == (item.duplicates > 0)


def test_call_ids_that_come_again_do_not_move_earlier_results_to_another_tool() -> None:
    raws = [*step("call_0", "read_file", "w " * 40), *step("call_0", "shell", "v " * 90)]
    named = {i.name: i.tokens for i in row(look(raws), "tool_results").items}
    assert set(named) == {"read_file", "shell"}
    assert named["read_file"] < named["shell"]


def test_results_without_an_id_are_told_apart_by_their_own_text() -> None:
    blocks = [{"type": "tool_result", "content": f"{sign} " * 50} for sign in "wv"]
    transcript = Anthropic().read([{"role": "user", "content": blocks}])
    item = row(compose(Subject(transcript), METER, UNKNOWN), "tool_results").items[0]
    assert (item.name, item.count, item.duplicates) == ("unknown tool", 2, 0)


def test_a_result_without_its_call_goes_by_its_own_name() -> None:
    raw = {"role": "function", "name": "lookup", "content": "w " * 30}
    assert row(look([raw]), "tool_results").items[0].name == "lookup"


# --- since, largest, growth -----------------------------------------------------------------------


def test_what_came_since_the_report_is_told_apart_from_what_is_used() -> None:
    raws = [{"role": "user", "content": "w " * n} for n in (30, 40, 50)]
    report = look(raws, covered=1, reported=700)
    assert report.since == (sum(sizes(raws)[1:]), 2)
    assert report.used.tokens == 700
    outside = look(raws, covered=1, reported=700, system="Be brief.", tools=(TOOL,))
    assert outside.since == report.since
    assert look(raws, covered=3, reported=700).since is None
    assert look(raws, covered=1).since is None


def test_the_largest_say_how_often_they_were_sent() -> None:
    raws = [{"role": "user", "content": "w " * n} for n in (10, 90, 40)]
    spans = (Span(1, 0, 2), Span(2, 0, 3), Span(3, 0, 3, compacted=True))
    report = look(raws, spans=spans, top=2)
    first, second = report.largest
    assert (first.message, first.name, first.sent) == (
        1,
        f'user messages: "{"w " * 29}w…", turn 1',
        3,
    )
    assert first.resent_tokens == 2 * first.tokens
    assert (second.message, second.sent, second.resent_tokens) == (2, 2, second.tokens)
    assert Large(0, "x", 9, 0).resent_tokens == 0


def test_the_largest_name_their_tool() -> None:
    report = look(step("a", "shell", "w " * 90), top=1)
    assert report.largest[0].name == "tool results: shell, message 1"


def test_growth_is_the_median_of_the_last_turns_and_skips_compactions() -> None:
    told = [(100, False), (9_000, False), (110, True), (120, False), (150, False), (190, False)]
    spans = tuple(Span(n + 1, 0, 0, t, compacted=c) for n, (t, c) in enumerate(told))
    assert look([], spans=spans).growth == 35
    assert look([], spans=spans[:1]).growth is None
    assert look([], spans=spans[:2]).growth == 8_900
    assert look([], spans=()).growth is None


# --- shorthands -----------------------------------------------------------------------------------


def look(
    raws: list[dict[str, Any]],
    *,
    meter: Meter = METER,
    window: Window = UNKNOWN,
    top: int = 10,
    **subject: Any,
) -> Report:
    return compose(Subject(OpenAIChat().read(raws), **subject), meter, window, top=top)


def row(report: Report, name: str) -> Any:
    return next(row for row in report.rows if row.id == name)


def sizes(raws: list[dict[str, Any]]) -> list[int]:
    return [size.best for size in measure(OpenAIChat().read(raws), METER).sizes]


def step(name: str, tool: str, output: str) -> list[dict[str, Any]]:
    call = {"id": name, "type": "function", "function": {"name": tool, "arguments": "{}"}}
    return [
        {"role": "assistant", "content": "so", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": output},
    ]

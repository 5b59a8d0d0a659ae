"""What follows a refusal: always smaller, by the kind of the error, within one budget a turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import presets
from tests.core.guard.driving import World, setup, talk, window
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.errors import ContextTooLargeError, ErrorKind
from ullage.core.guard import machine as guard
from ullage.core.guard.effort import RECOVERIES, Effort
from ullage.core.guard.events import Notice
from ullage.core.guard.recovery import is_recoverable, undo
from ullage.core.guard.recovery import recover as recovering
from ullage.core.guard.request import NeedWindow, Prepared, Request, Setup
from ullage.core.guard.stages.room import room_needed
from ullage.core.tokens.claim import UNNAMED
from ullage.core.tokens.counting import Scale
from ullage.core.tokens.gauge import Thresholds

GUESS = Scale(0.5, 1.0, 1.5)


def recover(
    world: World, sent: Prepared, error: ErrorKind, request: Request, **options: Any
) -> Prepared:
    return world.drive(recovering(options.pop("given", setup()), request, sent, error, **options))


def events(prepared: Prepared, kind: type[Any]) -> list[Any]:
    return [e for e in prepared.events if isinstance(e, kind)]


def first(world: World, request: Request, given: Setup | None = None) -> Prepared:
    return world.drive(guard.prepare(given or setup(), request))


# --- sizes ----------------------------------------------------------------------------------------


def test_an_overflow_is_recovered_to_half_of_the_named_limit() -> None:
    world, request = World(window(None)), Request(talk(24))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", 800, sent.count.tokens), request)
    assert made.count.high <= sent.count.tokens // 2
    assert made.checkpoint is not None
    assert made.checkpoint.trigger == "overflow_recovery"
    asked = [n for n in world.needs if isinstance(n, NeedWindow)]
    claim = asked[-1].evidence
    assert claim is not None
    assert (claim.source, claim.tokens, claim.note, claim.grounds) == ("refusal", 800, "", "words")


RULE = "From now on always write depths in fathoms, never in metres."


@pytest.mark.parametrize("words", range(100, 220, 10))
def test_a_rule_stays_where_half_of_the_window_has_no_room_for_it(words: int) -> None:
    history = talk(24)
    place = next(i for i, m in enumerate(history) if m["role"] == "user" and i > 2)
    history[place] = {"role": "user", "content": RULE}
    history[0] = {"role": "system", "content": "Be brief. " + "w " * words}
    world, request = World(window(None)), Request(history)
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", 500, sent.count.tokens), request)
    assert made.count.high <= 375
    assert RULE in " ".join(str(m["content"]) for m in made.messages)


@pytest.mark.parametrize("words", range(160, 184, 2))
def test_a_rule_stays_where_not_even_the_name_of_what_is_gone_had_room(words: int) -> None:
    history = talk(24)
    history[6] = {"role": "user", "content": RULE}
    history[-1] = {"role": "user", "content": "w " * words}
    world, request, given = World(window(None)), Request(history), setup(keeps=True)
    sent = first(world, request, given)
    error = ErrorKind("input", 500, sent.count.tokens)
    made = recover(world, sent, error, request, given=given)
    assert RULE in " ".join(str(m["content"]) for m in made.messages)
    assert made.count.high <= 375


def test_the_size_that_a_refusal_names_teaches_how_the_server_counts() -> None:
    given = setup(scale=GUESS)
    world, request = World(window(None)), Request(talk(24))
    sent = first(world, request, given)
    size = round(sent.count.tokens * 1.2)
    made = recover(world, sent, ErrorKind("input", 800, size), request, given=given)
    (reading,) = [n.reading for n in world.needs if isinstance(n, NeedWindow) and n.reading]
    assert (reading.reported, reading.content) == (size, sent.measured.total.best)
    learned = made.conversation.learned
    assert learned.calibration is not None
    assert learned.calibration.ratio == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize("error", [ErrorKind("input", 800), ErrorKind("input", 800, 90_000)])
def test_a_refusal_without_a_size_that_can_be_true_teaches_no_ratio(error: ErrorKind) -> None:
    given = setup(scale=GUESS)
    world, request = World(window(None)), Request(talk(24))
    made = recover(world, first(world, request, given), error, request, given=given)
    assert made.conversation.learned.calibration is None
    assert not [n for n in world.needs if isinstance(n, NeedWindow) and n.reading]


def test_a_bound_that_a_refusal_names_is_no_size() -> None:
    given = setup(scale=GUESS)
    world, request = World(window(None)), Request(talk(24))
    sent = first(world, request, given)
    error = ErrorKind("input", sent.count.tokens - 1, sent.count.tokens)
    recover(world, sent, error, request, given=given)
    assert not [n for n in world.needs if isinstance(n, NeedWindow) and n.reading]


def test_who_knows_how_a_server_counts_learns_only_what_lies_beyond() -> None:
    plain = setup(scale=GUESS)
    given = replace(plain, meter=replace(plain.meter, basis="calibrated"))
    for share, teaches in ((1.2, False), (1.8, True)):
        world, request = World(window(None)), Request(talk(24))
        sent = first(world, request, given)
        size = round(sent.count.tokens * share)
        recover(world, sent, ErrorKind("input", 400, size), request, given=given)
        read = [n for n in world.needs if isinstance(n, NeedWindow) and n.reading]
        assert bool(read) == teaches


def test_what_stands_beside_the_messages_has_room_after_an_overflow() -> None:
    tools = [{"type": "function", "function": {"name": f"look{n}"}} for n in range(12)]
    world, request = World(window(None)), Request(talk(24), tools=tools)
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", 800, sent.count.tokens), request)
    assert made.measured.outside().best > 0.2 * 800
    assert 400 < made.count.high < 700


def test_an_overflow_that_names_nothing_teaches_a_ceiling_below_what_was_sent() -> None:
    world, request = World(window(2000)), Request(talk(24))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input"), request)
    asked = [n for n in world.needs if isinstance(n, NeedWindow)]
    claim = asked[-1].evidence
    assert claim is not None
    assert (claim.tokens, claim.note) == (sent.count.tokens - 1, UNNAMED)
    assert made.count.high < sent.count.tokens


def test_what_only_looks_like_an_overflow_teaches_no_ceiling() -> None:
    world, request = World(window(2000)), Request(talk(24))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", 900, certainty="likely"), request)
    asked = [n for n in world.needs if isinstance(n, NeedWindow)]
    assert asked[-1].evidence is None
    assert made.count.high < sent.count.tokens


def test_a_connection_that_broke_teaches_no_ceiling_and_says_its_trigger() -> None:
    world, request = World(window(1300, source="table")), Request(talk(24))
    sent = first(world, request, setup(Policy.off()))
    error = ErrorKind("input", 900)
    made = recover(world, sent, error, request, trigger="transport_recovery")
    asked = [n for n in world.needs if isinstance(n, NeedWindow)]
    assert asked[-1].evidence is None
    assert made.checkpoint is not None
    assert made.checkpoint.trigger == "transport_recovery"
    assert made.count.high < sent.count.tokens


def test_the_servers_own_number_corrects_the_scale() -> None:
    world, request = World(window(1000)), Request(talk(8))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", 1000, sent.count.tokens * 4), request)
    assert made.count.basis == "calibrated"
    assert made.count.high <= 500


def test_a_second_recovery_replaces_the_checkpoint_of_the_first() -> None:
    world, request = World(window(None)), Request(talk(24))
    sent = first(world, request)
    once = recover(world, sent, ErrorKind("input", 800, sent.count.tokens), request)
    twice = recover(world, once, ErrorKind("input", 300, once.count.tokens), request)
    assert twice.count.high < once.count.high
    assert once.checkpoint is not None
    assert twice.checkpoint is not None
    assert twice.checkpoint.generation > once.checkpoint.generation


def test_what_cannot_get_smaller_is_refused_with_the_servers_number() -> None:
    world, request = World(window(None)), Request([{"role": "user", "content": "w " * 500}])
    sent = first(world, request)
    with pytest.raises(ContextTooLargeError, match="the server refused 507 tokens and nothing"):
        recover(world, sent, ErrorKind("input", 400, 507), request)


# --- tails and the budget of a turn ---------------------------------------------------------------


def steps_of(number: int, words: int = 8) -> list[dict[str, Any]]:
    """Return an autonomous run whose messages are small, so that tails are what bounds it."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Mend the leak."}]
    for n in range(number):
        function = {"name": "read", "arguments": f'{{"page": {n}}}'}
        call = {"id": f"c{n}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"step {n} " + "w " * words
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return history


def refused_often(history: list[Any], times: int, given: Setup | None = None) -> list[Prepared]:
    """Return what was sent at first and after each of so many refusals that name nothing."""
    world, request = World(window(None)), Request(history)
    sent = [first(world, request, given)]
    for _ in range(times):
        made = recover(world, sent[-1], ErrorKind("input"), request, given=given or setup())
        sent.append(made)
    return sent


def test_each_recovery_of_a_turn_is_smaller_and_leaves_a_smaller_tail_alone() -> None:
    sent = refused_often(steps_of(400), RECOVERIES)
    sizes = [each.count.high for each in sent]
    assert sizes == sorted(set(sizes), reverse=True)
    assert [each.conversation.effort.recoveries for each in sent] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("spent", range(RECOVERIES))
def test_the_tail_of_a_recovery_is_the_policys_for_its_turn(spent: int) -> None:
    tails = (40, 20, 10, 5)
    policy = replace(Policy.ladder(), recovery_tails=tails, tail_tokens=10**6, tail_share=1.0)
    history, given = talk(150, words=2), setup(policy)
    world, request = World(window(None)), Request(history)
    sent = first(world, request, given)
    effort = Effort(sent.conversation.effort.request, 0, recoveries=spent)
    sent = replace(sent, conversation=replace(sent.conversation, effort=effort))
    # everything outside the tail must go to meet half of what the server takes
    size = 4 + 2 + 2 + 2
    limit = 2 * (tails[spent] * size + 110)
    world.window = window(limit)
    made = recover(world, sent, ErrorKind("input", limit), request, given=given)
    kept = {id(m) for m in made.messages}
    assert all(id(m) in kept for m in history[-tails[spent] :])
    assert made.count.high <= limit // 2


def test_tails_beyond_the_policys_are_its_last() -> None:
    given = setup(replace(Policy.ladder(), recovery_tails=(6,)))
    sizes = [each.count.high for each in refused_often(steps_of(200), 3, given)]
    assert sizes == sorted(set(sizes), reverse=True)


def test_the_fifth_recovery_of_a_turn_is_refused() -> None:
    world, request = World(window(None)), Request(steps_of(400))
    sent = first(world, request)
    for _ in range(RECOVERIES):
        sent = recover(world, sent, ErrorKind("input"), request)
    with pytest.raises(ContextTooLargeError, match="after 4 attempts to make the turn smaller"):
        recover(world, sent, ErrorKind("input"), request)


def test_a_later_call_of_the_same_turn_knows_what_was_spent_and_a_new_request_does_not() -> None:
    world, history = World(window(900)), steps_of(100)
    sent = first(world, Request(history))
    sent = recover(world, sent, ErrorKind("input", 900), Request(history))
    longer = [*history, *steps_of(1)[1:]]
    assert first(world, Request(longer)).conversation.effort.recoveries == 1
    asked = [*longer, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "now?"}]
    assert first(world, Request(asked)).conversation.effort.recoveries == 0


@given(
    st.integers(3, 60),
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([None, 300, 900, 5000]),
    st.sampled_from([None, 0.5, 1.0, 3.0]),
)
def test_a_retry_is_always_smaller_than_what_was_refused(
    turns: int, words: int, tools: bool, limit: int | None, reported: float | None
) -> None:
    history = steps_of(turns, words) if tools else talk(turns, words)
    world, request = World(window(None)), Request(history)
    sent = first(world, request)
    while True:
        number = None if reported is None else max(int(sent.count.tokens * reported), 1)
        try:
            made = recover(world, sent, ErrorKind("input", limit, number), request)
        except ContextTooLargeError:
            return
        assert made.measured.raw().best < sent.measured.raw().best
        assert made.count.tokens < (number or sent.count.tokens)
        sent = made


# --- output ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (ErrorKind("total", 2000, 1700), 300),
        (ErrorKind("total", 1500), 232),
        (ErrorKind("output_cap", 300), 300),
    ],
)
def test_a_total_lowers_the_output_and_leaves_the_history(error: ErrorKind, given: int) -> None:
    world, request = World(window(None)), Request(talk(24), max_tokens=500)
    sent = first(world, request)
    made = recover(world, sent, error, request)
    assert made.messages == sent.messages
    assert made.max_tokens == given
    assert "after a refusal" in events(made, Notice)[0].text
    named = [need.evidence for need in world.needs if isinstance(need, NeedWindow)][-1]
    if error.kind == "total":
        assert named is not None
        assert named.tokens == error.limit
        assert made.window.working_tokens == made.assessment.window_tokens == error.limit
    else:
        assert named is None


def test_a_total_that_may_be_no_error_of_size_lowers_the_output_and_teaches_no_window() -> None:
    world, request = World(window(None)), Request(talk(24), max_tokens=500)
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("total", 2000, 1700, certainty="likely"), request)
    assert made.max_tokens == 300
    assert all(need.evidence is None for need in world.needs if isinstance(need, NeedWindow))
    assert made.window == sent.window


def test_a_total_that_leaves_less_than_an_answer_needs_compacts() -> None:
    world, request = World(window(None)), Request(talk(24), max_tokens=500)
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("total", 2000, 1900), request)
    assert made.count.high < 1000
    assert made.max_tokens == 500


def test_a_total_lowers_the_output_below_what_it_needs_where_nothing_can_be_left_out() -> None:
    world, request = World(window(None)), Request(talk(1, 600)[:2], max_tokens=500)
    sent = first(world, request)
    used = sent.count.tokens
    made = recover(world, sent, ErrorKind("total", used + 40, used), request)
    assert made.messages == sent.messages
    assert made.max_tokens == 40


@pytest.mark.parametrize("error", [ErrorKind("total"), ErrorKind("total", 1000, 1100)])
def test_a_total_without_room_for_output_compacts(error: ErrorKind) -> None:
    world, request = World(window(None)), Request(talk(24), max_tokens=500)
    sent = first(world, request)
    assert recover(world, sent, error, request).count.high < sent.count.high


def asked_beside(limit: int, size: int, output: int) -> ErrorKind:
    return replace(ErrorKind("total", limit, size), output_tokens=output)


def test_an_output_that_the_sender_adds_is_room_that_the_request_makes() -> None:
    world, request = World(window(2000)), Request(talk(24))
    sent = first(world, request)
    used = sent.count.tokens
    error = asked_beside(used + 300, used, 400)
    assert is_recoverable(error, sent)
    assert not is_recoverable(ErrorKind("total", used + 300, used), sent)
    made = recover(world, sent, error, replace(request, reserve=400, reserves_all=True))
    assert made.count.high + 400 < used + 300
    assert made.max_tokens is None


@pytest.mark.parametrize(("reserve", "room"), [(0, 250), (300, 300), (700, 700), (5_000, 1_750)])
def test_an_output_that_a_server_insists_on_stays_free(reserve: int, room: int) -> None:
    request = Request([], reserve=reserve, reserves_all=True)
    assert room_needed(Policy(), request, 2_000) == room


@pytest.mark.parametrize(("reserve", "room"), [(0, 100), (1_500, 1_500), (9_000, 4_000)])
def test_an_output_that_no_server_insists_on_gets_what_is_above_the_critical_pressure(
    reserve: int, room: int
) -> None:
    policy = Policy(min_output=100, thresholds=Thresholds(0.5, 0.6, 0.75))
    assert room_needed(policy, Request([], reserve=reserve), 16_000) == room


def test_a_request_with_a_reserve_is_compacted_before_it_is_sent() -> None:
    world, history = World(window(2_000)), talk(24)
    plain = first(world, Request(history))
    assert plain.checkpoint is None
    made = first(world, Request(history, reserve=900, reserves_all=True))
    assert made.checkpoint is not None
    assert made.count.high + 900 <= 2_000
    again = first(world, Request(history, reserve=900, reserves_all=True))
    assert again.checkpoint is None
    assert again.messages == made.messages
    longer = first(world, Request([*history, *talk(24)[2:]], reserve=900, reserves_all=True))
    assert longer.checkpoint is not None
    assert longer.checkpoint.trigger != "model_switch"


# --- media ----------------------------------------------------------------------------------------

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def showing(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}


@pytest.mark.parametrize("kind", ["bytes", "media"])
def test_refused_media_are_stripped_and_those_of_the_request_and_the_pins_stay(kind: Any) -> None:
    history = [*talk(2), showing("one"), showing("two"), showing("three")]
    world, request = World(window(None)), Request(history, pins=frozenset({7}))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind(kind), request)
    assert made.messages[-1] is history[-1]
    assert made.messages[-2] is history[-2]
    assert made.messages[-3]["content"][1] == {"type": "text", "text": "[ullage: image left out]"}
    assert all(a is b for a, b in zip(made.messages[:-3], history[:-3], strict=True))
    again = is_recoverable(ErrorKind(kind), made)
    assert again
    with pytest.raises(ContextTooLargeError, match="in messages that must stay"):
        recover(world, made, ErrorKind(kind), request)


def test_media_are_stripped_also_where_the_count_has_fallen_since() -> None:
    history = [*talk(2), showing("one"), {"role": "user", "content": "and?"}]
    world, request = World(window(None)), Request(history)
    sent = first(world, request)
    larger = replace(sent, count=replace(sent.count, high=10**6))
    assert recover(world, larger, ErrorKind("bytes"), request).outcome is not None


# --- reasoning that was cut through ---------------------------------------------------------------


def thinking(steps: int) -> list[dict[str, Any]]:
    """Return Anthropic messages: two requests, each with a loop of calls."""
    messages: list[dict[str, Any]] = []
    for turn in range(2):
        messages.append({"role": "user", "content": f"request {turn}"})
        for n in range(steps):
            name = f"t{turn}c{n}"
            thought = {"type": "thinking", "thinking": "which?", "signature": "c2ln"}
            use = {"type": "tool_use", "id": name, "name": "read", "input": {"page": n}}
            messages.append({"role": "assistant", "content": [thought, use]})
            result = {"type": "tool_result", "tool_use_id": name, "content": "w " * 20}
            messages.append({"role": "user", "content": [result]})
        messages.append({"role": "assistant", "content": f"answer {turn}"})
    return [*messages, {"role": "user", "content": "and now?"}]


THINKING = ErrorKind("malformed_history", about="thinking")


def loops_in(messages: list[Any], history: list[Any]) -> list[int]:
    """Return how many messages of each loop are left."""
    kept, size = {id(m) for m in messages}, len(history) // 2
    return [sum(id(m) in kept for m in part) for part in (history[1:size], history[size + 1 : -1])]


def test_a_loop_that_was_cut_through_is_left_out_whole() -> None:
    given = replace(setup(presets.trim()), codec=Anthropic())
    history = thinking(12)
    world, request = World(window(1900)), Request(history)
    sent = first(world, request, given)
    assert 0 < loops_in(sent.messages, history)[0] < 25
    assert is_recoverable(THINKING, sent)
    made = recover(world, sent, THINKING, request, given=given)
    assert loops_in(made.messages, history) == [0, 25]
    assert made.checkpoint is not None
    assert made.checkpoint.scope == f"{given.scope}|loops"
    assert not is_recoverable(THINKING, made)


def test_a_loop_is_whole_also_in_a_history_that_was_repaired() -> None:
    given = replace(setup(presets.trim()), codec=Anthropic())
    history = thinking(12)
    broken = [
        *history[:-1],
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "nobody", "content": "stray"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]
    world, request = World(window(1900)), Request(broken)
    sent = first(world, request, given)
    made = recover(world, sent, THINKING, request, given=given)
    assert loops_in(made.messages, history) == [0, 25]


# --- whether there is a way at all ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (ErrorKind("input", 500), True),
        (ErrorKind("total"), True),
        (ErrorKind("input", certainty="likely"), True),
        (ErrorKind("output_cap", 300), True),
        (ErrorKind("output_cap", 500), False),
        (ErrorKind("output_cap"), False),
        (ErrorKind("bytes"), False),
        (ErrorKind("media"), False),
        (ErrorKind("malformed_history", about="thinking"), False),
        (ErrorKind("malformed_history"), False),
        (ErrorKind("rate_limit"), False),
        (ErrorKind("quota"), False),
        (ErrorKind("other"), False),
    ],
)
def test_the_kind_of_an_error_decides_whether_there_is_a_way(error: ErrorKind, way: bool) -> None:
    sent = first(World(window(2000)), Request(talk(24), max_tokens=500))
    assert is_recoverable(error, sent) is way


def test_an_output_that_was_not_asked_for_cannot_be_lowered() -> None:
    sent = first(World(window(2000)), Request(talk(3)))
    assert not is_recoverable(ErrorKind("output_cap", 300), sent)


@pytest.mark.parametrize(("bound", "way"), [(10_000, False), (2_000, True), (None, True)])
def test_a_guess_at_an_overflow_counts_from_half_of_the_bound_on(
    bound: int | None, way: bool
) -> None:
    sent = first(World(window(bound)), Request(talk(24)))
    assert is_recoverable(ErrorKind("input", certainty="likely"), sent) is way


def test_reasoning_is_at_fault_only_behind_an_edit_of_ours() -> None:
    world, history = World(window(1300)), talk(24)
    made = first(world, Request(history))
    assert is_recoverable(THINKING, made)
    replayed = first(world, Request(history))
    assert replayed.checkpoint is None
    assert is_recoverable(THINKING, replayed)
    assert not is_recoverable(ErrorKind("malformed_history"), made)


# --- a recovery that did not help -----------------------------------------------------------------


def test_what_recoveries_stored_is_taken_back_with_what_was_there_before() -> None:
    world, request = World(window(2000)), Request(talk(24))
    sent = first(world, request)
    made = recover(world, sent, ErrorKind("input", certainty="likely"), request)
    assert made.checkpoint is not None
    (notice,) = world.run(undo([made.checkpoint]))
    assert isinstance(notice, Notice)
    assert first(world, request).messages == sent.messages
    assert world.run(undo([made.checkpoint])) == ()
    assert world.run(undo([])) == ()

"""The fold of a session is a left fold: each call keeps its result, each round its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.dialects.usage import Usage
from ullage.core.errors import StoreError
from ullage.core.session.log.event import DURABLE, Draft, Event, make_event, read
from ullage.core.session.log.fold import ActivatedSkill, Branch, Fold, Round, User, fold


def events(*drafts: Draft) -> list[Event]:
    """Return a session of these events."""
    return [make_event("s", seq, 1.0, draft) for seq, draft in enumerate(drafts, 1)]


def user(text: str = "hello") -> Draft:
    return Draft("user_message", {"text": text})


def said(text: str = "hi", **more: object) -> Draft:
    return Draft("assistant_message", {"text": text, "model": "m", **more})


def thought(model: str = "m", **more: object) -> Draft:
    return Draft("reasoning", {"text": "hm", "model": model, **more})


def call(name: str = "a", **more: object) -> Draft:
    return Draft("tool_call", {"call_id": name, "name": "read", "arguments": "{}", **more})


def result(name: str = "a", text: str = "ok") -> Draft:
    return Draft("tool_result", {"call_id": name, "text": text, "is_error": False})


def usage(**more: object) -> Draft:
    return Draft("provider_usage", {"input": 5, "output": 1, "model": "m", **more})


START = Draft("turn_started", {"turn": "t1"})
DONE = Draft("turn_completed", {"turn": "t1"})


def rounds(state: Fold) -> list[Round]:
    return [item for item in state.items if isinstance(item, Round)]


def shape(state: Fold) -> list[tuple[object, ...]]:
    """Return rounds as texts, calls and the results' texts."""
    return [
        (*held.texts, *(f"{c.call_id}={c.result.text if c.result else None}" for c in held.calls))
        for held in rounds(state)
    ]


def test_a_tool_turn_is_a_users_word_and_two_rounds():
    drafts = (user(), START, usage(), said("let me"), call(), result(), usage(), said("done"), DONE)
    state = fold(events(*drafts))
    assert state.items[0] == User(1, "hello")
    assert shape(state) == [("let me", "a=ok"), ("done",)]
    assert (state.head, state.session, state.open_calls) == (9, "s", [])
    assert state.turn is None
    assert state.usage == (Usage(5, output=1), "m")


def test_parallel_calls_of_one_answer_stay_together_with_their_results_in_call_order():
    state = fold(events(usage(), call("a"), result("a"), call("b"), call("c"), result("c")))
    assert shape(state) == [("a=ok", "b=None", "c=ok")]
    assert [c.call_id for c in state.open_calls] == ["b"]


def test_without_reports_of_usage_a_round_ends_where_the_model_speaks_again():
    drafts = (user(), said("one"), call("a"), result("a"), said("two"), call("a"), result("a", "2"))
    assert shape(fold(events(*drafts))) == [("one", "a=ok"), ("two", "a=2")]


def test_without_reports_of_usage_a_round_ends_where_its_number_does():
    drafts = (call("a", round=1), result("a"), call("b", round=2), result("b"))
    assert shape(fold(events(*drafts))) == [("a=ok",), ("b=ok",)]


def test_a_late_result_joins_its_call_before_what_was_said_since():
    state = fold(events(user(), call(), user("steer"), result()))
    assert [type(item) for item in state.items] == [User, Round, User]
    assert shape(state) == [("a=ok",)]


def test_two_open_calls_of_one_id_get_their_results_oldest_first():
    drafts = (usage(), call(), usage(), call(), result("a", "1"), result("a", "2"))
    assert shape(fold(events(*drafts))) == [("a=1",), ("a=2",)]


def test_a_result_that_answers_no_call_is_left_out_and_noted():
    state = fold(events(user(), result("x"), call(), result(), result("a", "again")))
    assert shape(state) == [("a=ok",)]
    assert state.strays == [2, 5]


def test_an_open_call_is_repaired_by_a_written_error():
    state = fold(events(user(), call(idempotent=True)))
    assert state.open_calls[0].idempotent
    (draft,) = state.repairs("crashed")
    assert draft.data["is_error"] is True
    assert draft.data["text"].startswith("orphan_tool_call: read has no result (crashed)")
    state.apply(make_event("s", 3, 1.0, draft))
    assert (state.open_calls, state.repairs("again")) == ([], [])


def test_usage_failures_decisions_and_partial_answers_are_no_history():
    decided = Draft("permission_decision", {"call_id": "a", "decision": "deny"})
    failed = Draft("turn_failed", {"turn": "t1", "reason": "crashed"})
    stopped = Draft("turn_interrupted", {"turn": "t1"})
    drafts = (user(), START, usage(), said("par", partial=True), decided, failed, stopped)
    assert fold(events(*drafts)).items == [User(1, "hello")]


def test_reasoning_is_for_its_own_model_and_nothing_to_send_alone():
    state = fold(events(thought("m"), thought("n"), said()))
    (held,) = rounds(state)
    assert [t.seq for t in held.thoughts("m")] == [1]
    assert [t.seq for t in held.thoughts("n")] == [2]
    assert held.thoughts("other") == ()
    assert held.sent
    assert not rounds(fold(events(thought())))[0].sent


def test_a_turn_that_did_not_end_is_still_there():
    state = fold(events(user(), START))
    assert state.turn is not None
    assert (state.turn.seq, state.turn.turn) == (2, "t1")


@pytest.mark.parametrize("report", [{"input": None}, {"cache_read": "3"}])
def test_a_report_that_tells_no_prompt_is_unknown_and_not_zero(report):
    assert fold([]).usage is None
    assert fold(events(usage(**report))).usage is None
    assert fold(events(Draft("provider_usage", {"model": "m"}))).usage is None


def test_branches_skills_and_lineage_are_kept():
    state = fold(
        events(
            Draft("session_created", {"workspace": "w"}),
            Draft("session_fork", {"parent": "p", "seq": 4}),
            Draft("branch_summary", {"text": "left"}),
            Draft("skill_activation", {"name": "k", "hash": "h"}),
            Draft("subagent_event", {}),
        )
    )
    assert state.items == [Branch(3, "left", {}), ActivatedSkill(4, "k", "h")]
    assert state.skills == {"k": "h"}
    assert state.created == {"workspace": "w"}
    assert state.forked == {"parent": "p", "seq": 4}
    assert state.links == [{}]


def test_the_latest_checkpoint_is_read_when_it_is_asked_for():
    assert fold([]).checkpoint() is None
    state = fold(events(Draft("history_compaction", {"checkpoint": {"version": 99}})))
    assert state.checkpoints == [(1, {"version": 99})]
    with pytest.raises(StoreError, match="schema version 99"):
        state.checkpoint()


def test_a_measured_size_takes_the_place_of_the_planned_one_and_brings_nothing_back():
    planned = {"prefix": "p", "generation": 1}
    known = {**planned, "tokens_after_measured": 7}
    made = Draft("history_compaction", {"checkpoint": planned})
    measured = Draft("history_compaction", {"checkpoint": known, "measured": True})
    undone = Draft("history_compaction", {"checkpoint": planned, "undone": True})
    assert fold(events(made, measured)).checkpoints == [(1, known)]
    assert fold(events(made, undone, measured)).checkpoints == []


def test_what_a_guard_remembered_is_told_the_newest_first():
    state = Draft("context_state", {"state": {"of": "m"}})
    reported = Draft("provider_usage", {"model": "m", "state": {"of": "n"}})
    bare = Draft("provider_usage", {"model": "m"})
    assert list(fold(events(state, reported, bare)).states) == [{"of": "n"}, {"of": "m"}]


def test_a_compaction_that_was_undone_holds_no_more_and_its_record_stays():
    first, second = ({"version": 1, "prefix": "p", "generation": n} for n in (0, 1))
    made = [Draft("history_compaction", {"checkpoint": c}) for c in (first, second)]
    undone = Draft("history_compaction", {"checkpoint": second, "undone": True})
    state = fold(events(*made, undone))
    assert state.checkpoints == [(1, first)]
    assert [data["checkpoint"] for data in state.compactions] == [first, second, second]


def test_events_that_are_not_known_are_passed_over_and_noted():
    newer = replace(events(user())[0], v=2)
    other = make_event("s", 2, 1.0, Draft("dreamt", {"of": "sheep"}))
    state = fold([newer, other])
    assert (state.items, state.unknown, state.head) == ([], [1, 2], 2)


def test_an_event_that_is_not_the_next_is_refused():
    state = fold(events(user()))
    with pytest.raises(StoreError, match="event 3 of session s does not follow event 1"):
        state.apply(make_event("s", 3, 1.0, user()))
    with pytest.raises(StoreError, match="event 2 of session t does not follow"):
        state.apply(make_event("t", 2, 1.0, user()))


def test_corrupt_data_change_nothing():
    state = fold(events(user()))
    good = make_event("s", 2, 1.0, user())
    bad = read(good.line().replace('"hello"', "1"))
    with pytest.raises(StoreError, match="event 2 of session s is a corrupt user_message"):
        state.apply(bad)
    state.apply(good)
    assert state.head == 2


NAMES = st.sampled_from(["a", "b"])
DRAFTS = st.one_of(
    st.builds(user),
    st.builds(said),
    st.builds(said, partial=st.just(True)),
    st.builds(thought, NAMES),
    st.builds(call, NAMES),
    st.builds(result, NAMES),
    st.builds(usage),
    st.sampled_from([START, DONE, Draft("dreamt", {})]),
)


@given(st.lists(DRAFTS, max_size=30), st.integers(0, 30))
def test_reading_at_a_seq_shows_only_what_was_before_it(drafts: Sequence[Draft], upto: int):
    log = events(*drafts)
    at, before = fold(log, upto), fold(log[:upto])
    assert (at.items, at.open_calls, at.turn) == (before.items, before.open_calls, before.turn)
    assert at.head == min(upto, len(log))
    whole, resumed = fold(log), before.extend(log[upto:])
    assert (whole.items, whole.open_calls, whole.strays) == (
        resumed.items,
        resumed.open_calls,
        resumed.strays,
    )


@given(st.lists(DRAFTS, max_size=30))
def test_every_call_is_answered_once_or_open(drafts: Sequence[Draft]):
    state = fold(events(*drafts))
    made = [c for held in rounds(state) for c in held.calls]
    assert [c for c in made if c.result is None] == state.open_calls
    results = [c.result.seq for c in made if c.result]
    recorded_results = [n for n, d in enumerate(drafts, 1) if d.type == "tool_result"]
    assert sorted(results + state.strays) == recorded_results


def test_every_durable_type_is_known():
    assert all(replace(events(user())[0], type=kind).known for kind in DURABLE)


def test_links_to_other_sessions_are_kept_and_no_model_sees_them():
    links = [{"child": "a", "key": "t-1-0"}, {"continued_in": "b"}]
    state = fold(events(*(Draft("subagent_event", link) for link in links)))
    assert (state.links, state.items) == (links, [])


@given(st.lists(st.text(alphabet='ab é漢\n"', max_size=30), max_size=12), st.integers(0, 12))
def test_the_bytes_of_all_events_that_were_taken_in_are_counted(texts: Sequence[str], upto: int):
    found = events(*map(user, texts))
    sizes = [len(event.text.encode()) for event in found]
    assert fold(found).text_bytes == sum(sizes)
    assert fold(found, upto).text_bytes == sum(sizes[:upto])

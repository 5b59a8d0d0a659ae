"""The guard as its users hold it: a real server, the real SDK, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import ullage
from tests.support.faults import FaultServer, closed_port, hanging, loading, of_json
from tests.voyage import (
    TOOLS,
    WINDOW,
    Chat,
    Stubborn,
    immovable,
    log_of,
    look_up,
    of,
    opening,
    same_objects,
)
from ullage import events
from ullage.core.guard.events import Event
from ullage.embedded import Server
from ullage.guard.driver import Pause
from ullage.runtime import Runtime
from ullage.transport import Timeouts, Transport

MODEL = "gpt-4o"


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(transport=Transport(Timeouts(connect_s=1.0, read_s=10.0)))


@pytest.fixture
def client(tiny_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=tiny_server.base_url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def chat(client: openai.OpenAI) -> Chat:
    return Chat(client)


# --- a whole conversation with the real server ----------------------------------------------------


def test_sixty_turns_with_tools_never_overflow(runtime, chat, tiny_server: Server) -> None:
    told: list[Event] = []
    guard = ullage.Guard(
        "tiny", base_url=tiny_server.base_url, runtime=runtime, on_event=told.append
    )
    history = opening()
    bases = set()
    for n in range(60):
        history += look_up(n)
        before = copy.deepcopy(history)
        view = guard.prepare(history, tools=TOOLS, max_tokens=64)
        assert history == before
        for message in view.messages:
            if message in history:
                assert any(message is mine for mine in history)
        answer = chat(**view.kwargs)
        seen = view.observe(answer)
        assert seen.state == "known"
        assert seen.input_tokens == answer.usage.prompt_tokens < WINDOW
        bases.add(view.prepared.count.basis)
        if view.prepared.count.basis == "server":
            assert view.prepared.count.tokens == answer.usage.prompt_tokens
        history.append({"role": "assistant", "content": answer.choices[0].message.content})
        history.append({"role": "user", "content": f"Go on with item {n + 1}, please."})
    whole = ullage.count(history, model="tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert whole.basis == "server"
    assert whole.tokens > 5 * WINDOW
    assert "server" in bases
    assert len(chat.answers) == 60
    assert len(of(events.Compacted, told)) > 1
    assert not of(events.RecoveryExhausted, told)
    assert "The codeword is marlin" in str(chat.sent[-1]["messages"])
    # Checkpoints were made with far fewer turns than there were: between them all is replayed.
    assert len(runtime.store.checkpoints.all()) < 30


def test_a_view_carries_what_was_given_and_nothing_else(runtime, chat, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    history = log_of(1)
    bare = guard.prepare(history)
    assert set(bare.kwargs) == {"messages"}
    assert same_objects(bare.messages, history)
    assert bare.messages is not history
    assert (bare.window.input_tokens, bare.window.source) == (WINDOW, "probe")
    assert bare.compaction is None
    whole = guard.prepare(history, tools=TOOLS, max_tokens=16)
    assert whole.kwargs["tools"] is TOOLS
    assert whole.kwargs["max_tokens"] == 16
    assert chat(**bare.kwargs).usage.prompt_tokens < chat(**whole.kwargs).usage.prompt_tokens


def test_the_same_history_is_never_planned_twice(runtime, tiny_server) -> None:
    told: list[Event] = []
    guard = ullage.Guard(
        "tiny", base_url=tiny_server.base_url, runtime=runtime, on_event=told.append
    )
    history = log_of(30)
    first = guard.prepare(history, tools=TOOLS)
    assert first.compaction is not None
    assert first.compaction.reached
    kept = runtime.store.checkpoints.all()
    told.clear()
    for again in (guard.prepare(history, tools=TOOLS), guard.prepare(copy.deepcopy(history))):
        assert again.messages == first.messages
        assert again.compaction is None
        assert again.prepared.replayed == kept[-1]
    assert not of(events.Compacted, told)
    assert runtime.store.checkpoints.all() == kept


def test_a_longer_history_begins_with_the_bytes_that_were_sent(runtime) -> None:
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime)
    history = log_of(40)
    first = guard.prepare(history).messages
    history.append({"role": "assistant", "content": "Item 40 is in the log."})
    history.append({"role": "user", "content": "Thanks."})
    then = guard.prepare(history)
    assert then.compaction is None
    assert then.messages[: len(first)] == first
    assert same_objects(then.messages[len(first) :], history[-2:])


def test_a_report_teaches_how_the_model_counts(runtime, chat, tiny_server) -> None:
    # so wide a window that the server is never asked to count
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, window=10**6, runtime=runtime)
    history = log_of(2)
    view = guard.prepare(history)
    assert view.prepared.count.basis == "estimate"
    answer = chat(**view.kwargs)
    view.observe(answer)
    known = guard.prepare(history).prepared.count
    assert (known.tokens, known.basis) == (answer.usage.prompt_tokens, "server")
    other = [history[0], *log_of(3)[2:]]  # of which nothing was reported
    learned = guard.prepare(other).prepared.count
    assert learned.basis == "calibrated"
    reported = chat(messages=other).usage.prompt_tokens
    assert learned.low <= reported <= learned.high


@pytest.mark.parametrize("report", [None, "text", {}, {"usage": None}, ValueError("no"), 7])
def test_a_report_that_is_none_teaches_nothing(runtime, report) -> None:
    guard = ullage.Guard("unheard-of", window=4000, runtime=runtime)
    view = guard.prepare(log_of(2))
    assert view.observe(report) == view.assessment
    assert guard.prepare(log_of(2)).prepared.count.basis == "estimate"


def test_a_checkpoint_learns_its_size_from_the_report(runtime) -> None:
    guard = ullage.Guard(MODEL, window=2000, runtime=runtime)
    view = guard.prepare(log_of(40))
    view.observe({"prompt_tokens": 987, "completion_tokens": 1})
    (kept,) = runtime.store.checkpoints.all()
    assert kept.tokens_after_measured == 987


def test_one_cut_is_told_and_changes_nothing_and_a_second_one_is_believed(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=100_000, runtime=runtime, on_event=told.append)
    first = guard.prepare(log_of(60))
    assert len(first.messages) == len(log_of(60))
    first.observe({"prompt_tokens": 2_050, "completion_tokens": 1})
    (cut,) = of(events.TruncationDetected, told)
    assert (cut.truncation.reported, cut.truncation.limit) == (2_050, 4_096)
    assert guard.window().source == "override"
    assert guard.prepare(log_of(60)).messages == first.messages
    guard.prepare(log_of(61)).observe({"prompt_tokens": 2_050, "completion_tokens": 1})
    assert (guard.window().input_tokens, guard.window().source) == (4_096, "truncation")
    assert "--refresh" in guard.window().warnings[0]
    assert guard.prepare(log_of(61)).prepared.count.high < 4_096


@pytest.mark.parametrize("report", [None, {}, {"usage": {"prompt_tokens": "many"}}])
def test_a_broken_report_does_not_clear_a_critical_reading(runtime, report) -> None:
    guard = ullage.Guard(MODEL, window=10_000, policy=ullage.Policy.off(), runtime=runtime)
    guard.prepare(log_of(45)).observe({"prompt_tokens": 9_200, "completion_tokens": 1})
    view = guard.prepare(log_of(46))
    assert view.assessment.tier == "critical"
    assert view.observe(report).tier == "critical"
    assert guard.prepare(log_of(47)).assessment.tier == "critical"


def test_a_call_that_failed_teaches_nothing(runtime) -> None:
    guard = ullage.Guard("unheard-of", window=20_000, runtime=runtime, pause=Pause(longest_s=0))
    before = guard.prepare(log_of(4)).prepared.count
    with pytest.raises(ConnectionError):
        guard.call(failing, log_of(4))
    view = guard.prepare(log_of(4))
    assert view.observe(ConnectionError("reset")) == view.assessment
    assert guard.prepare(log_of(4)).prepared.count == before


def test_an_answer_to_more_than_a_listed_window_raises_it(runtime) -> None:
    guard = ullage.Guard("gpt-4", policy=ullage.Policy.off(), runtime=runtime)
    assert guard.window().input_tokens == 8192
    guard.prepare(log_of(50)).observe({"prompt_tokens": 9_000, "completion_tokens": 1})
    assert guard.window().input_tokens == 9_000


def test_an_assessment_without_blocking_is_the_same(runtime) -> None:
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime)
    for turns in (10, 80):
        history = log_of(turns)
        assert asyncio.run(guard.aassess(history, tools=TOOLS)) == guard.assess(
            history, tools=TOOLS
        )


def test_shares_that_are_none_are_refused(runtime) -> None:
    with pytest.raises(ullage.ConfigurationError):
        ullage.Guard(MODEL, shares={"knowledge": 2.0}, runtime=runtime)


def failing(**_: Any) -> None:
    raise ConnectionError("reset")


def test_the_report_of_another_model_is_never_this_ones_size(runtime) -> None:
    one, other = (ullage.Guard(m, window=20_000, runtime=runtime) for m in ("one", "other"))
    one.prepare(log_of(4)).observe({"prompt_tokens": 3_000, "completion_tokens": 1})
    assert one.prepare(log_of(4)).prepared.count.tokens == 3_000
    assert other.prepare(log_of(4)).prepared.count.basis == "estimate"
    assert other.prepare(log_of(4)).prepared.count.tokens < 2_000


# --- before the send ------------------------------------------------------------------------------


def test_what_cannot_fit_a_proven_window_is_refused_before_the_send(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    with pytest.raises(ullage.ContextTooLargeError, match="do not fit into 2,048") as caught:
        guard.prepare(immovable())
    assert caught.value.bound == WINDOW
    assert tiny_server.root_url in str(caught.value)


def test_a_bound_of_the_table_refuses_only_a_strict_guard(runtime) -> None:
    messages = [{"role": "system", "content": "a" + " a" * 9000}, {"role": "user", "content": "x"}]
    view = ullage.Guard("gpt-4", runtime=runtime).prepare(messages)
    assert view.assessment.tier == "overflow"
    assert same_objects(view.messages, messages)
    with pytest.raises(ullage.ContextTooLargeError):
        ullage.Guard("gpt-4", runtime=runtime, strict=True).prepare(messages)


def test_the_output_is_clamped_to_the_room_there_is(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime, on_event=told.append)
    view = guard.prepare(log_of(10), max_tokens=3000)
    assert view.kwargs["max_tokens"] == 4000 - view.prepared.count.high < 3000
    assert same_objects(view.messages, view.prepared.messages)
    assert "max_tokens lowered from 3,000" in of(events.Notice, told)[0].text


@pytest.mark.parametrize("max_tokens", [0, -1, True, 1.5])
def test_a_senseless_output_is_refused(runtime, max_tokens) -> None:
    with pytest.raises(ullage.ConfigurationError, match="max_tokens"):
        ullage.Guard(MODEL, runtime=runtime).prepare(opening(), max_tokens=max_tokens)


@pytest.mark.parametrize("pin", [-1, 2])
def test_a_pin_on_nothing_is_refused(runtime, pin) -> None:
    with pytest.raises(ullage.ConfigurationError, match="pins names message"):
        ullage.Guard(MODEL, runtime=runtime).prepare(opening(), pins=[pin])


def test_pins_are_positions_in_what_the_caller_gave_also_after_a_repair(runtime) -> None:
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "stray"}
    history = log_of(40)
    history.insert(2, stray)
    pin = next(i for i, m in enumerate(history) if m["content"] == "Item 3 is in the log.")
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=2000, runtime=runtime, on_event=told.append)
    view = guard.prepare(history, pins=[pin])
    assert view.compaction is not None
    assert any(message is history[pin] for message in view.messages)
    (repaired,) = of(events.Repaired, told)
    assert repaired.repairs[0].fault == "orphan_result"


@pytest.mark.parametrize("messages", [None, "text", {"role": "user"}, [7], [{"role": "alien"}]])
def test_what_is_no_history_is_refused(runtime, messages) -> None:
    guard = ullage.Guard(MODEL, runtime=runtime)
    with pytest.raises(ullage.MalformedHistoryError):
        guard.prepare(messages)
    with pytest.raises(ullage.MalformedHistoryError):
        asyncio.run(guard.aprepare(messages))
    with pytest.raises(ullage.MalformedHistoryError):
        guard.call(Stubborn("never asked"), messages)


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"window": "8k"}, {"base_url": "h:1"}, {"base_url": ""}]
)
def test_a_senseless_guard_cannot_be_made(options) -> None:
    with pytest.raises(ullage.ConfigurationError):
        ullage.Guard("m", **options)


# --- a window that is not known -------------------------------------------------------------------


def unchanged(guard: ullage.Guard) -> ullage.View:
    history = log_of(40)
    for view in (guard.prepare(history, tools=TOOLS), asyncio.run(guard.aprepare(history))):
        assert same_objects(view.messages, history)
        assert not view.window.known
        assert view.assessment.reason == "context_window_unknown"
        assert view.assessment.input_tokens
        assert view.compaction is None
    return view


def test_a_dead_server_stands_in_nobodys_way(runtime) -> None:
    with closed_port() as port:
        view = unchanged(ullage.Guard("m", base_url=f"http://127.0.0.1:{port}/v1", runtime=runtime))
        assert "gave no answer" in view.window.explain()


def test_a_hanging_server_is_waited_for_once() -> None:
    runtime = Runtime(transport=Transport(Timeouts(connect_s=5.0, read_s=1.0)))
    with FaultServer({"/*": hanging()}) as server:
        unchanged(ullage.Guard("m", base_url=server.base_url, runtime=runtime))
        assert len(server.requests) == 1


def test_a_server_that_was_loading_is_known_with_the_next_request(runtime) -> None:
    props = of_json({"default_generation_settings": {"n_ctx": WINDOW}, "total_slots": 1})
    with FaultServer({"/props": (loading(), loading(), props)}) as server:
        guard = ullage.Guard("m", base_url=server.base_url, runtime=runtime)
        unchanged(guard)
        assert guard.prepare(log_of(40)).compaction is not None


def test_without_model_and_window_all_is_sent_as_it_is(runtime) -> None:
    unchanged(ullage.Guard(runtime=runtime))


# --- looking without touching ---------------------------------------------------------------------


def test_an_assessment_changes_nothing_and_tells_nobody(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=4000, runtime=runtime, on_event=told.append)
    found = guard.assess(log_of(20), tools=TOOLS)
    assert (found.available, found.window_tokens) == (True, 4000)
    over = guard.assess(log_of(80))
    assert (over.tier, over.available) == ("overflow", True)
    assert over.ratio is not None
    assert over.ratio > 1
    assert told == []
    assert runtime.store.checkpoints.all() == []
    guard.prepare(log_of(80))
    assert guard.assess(log_of(80)).tier in ("none", "advisory")


def test_a_guard_tells_its_window_and_who_said_it(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    assert guard.window() == asyncio.run(guard.awindow())
    assert guard.window().input_tokens == WINDOW
    assert tiny_server.root_url in guard.explain()


def test_off_gauges_and_checks_and_changes_nothing(runtime) -> None:
    guard = ullage.Guard(MODEL, window=4200, policy=ullage.Policy.off(), runtime=runtime)
    history = log_of(60)
    with pytest.raises(ullage.ContextTooLargeError):
        guard.prepare(history)
    view = guard.prepare(history[:102])
    assert same_objects(view.messages, history[:102])
    assert view.assessment.tier in ("warning", "critical")


def test_guards_of_different_policies_do_not_share_a_checkpoint(runtime) -> None:
    history = log_of(40)
    ladder = ullage.Guard(MODEL, window=3000, runtime=runtime).prepare(history)
    other = ullage.Guard(
        MODEL, window=3000, policy=ullage.Policy.advisory(), runtime=runtime
    ).prepare(history)
    assert ladder.compaction is not None
    assert other.compaction is not None
    assert other.prepared.replayed is None


def test_guards_of_different_keys_do_not_share_a_checkpoint(runtime) -> None:
    history = log_of(40)
    for key in ("sk-1", "sk-2"):
        view = ullage.Guard(MODEL, api_key=key, window=3000, runtime=runtime).prepare(history)
        assert view.prepared.replayed is None
    assert len(runtime.store.checkpoints.all()) == 2


def test_sessions_share_a_guard_and_no_conversation(runtime) -> None:
    told: list[Event] = []
    guard = ullage.Guard(MODEL, window=3000, runtime=runtime, on_event=told.append)
    one, other = guard.session("one"), guard.session('two"|')
    history = log_of(40)
    views = [made.prepare(history) for made in (guard, one, other)]
    assert all(view.compaction is not None for view in views)
    assert all(view.prepared.replayed is None for view in views)
    assert len({made.checkpoint.scope for made in of(events.Compacted, told)}) == 3
    one.prepare(history).observe({"prompt_tokens": 1_234, "completion_tokens": 1})
    assert guard.session("one").prepare(history).prepared.count.tokens == 1_234
    assert other.prepare(history).prepared.count.tokens != 1_234
    assert one.session('two"|').prepare(history).prepared.replayed is not None
    assert (one.model, one.policy, one.window()) == (guard.model, guard.policy, guard.window())


@pytest.mark.parametrize("name", ["", "x" * 201, None, 7, b"x"])
def test_a_session_needs_a_name(runtime, name) -> None:
    with pytest.raises(ullage.ConfigurationError, match="1 to 200 characters"):
        ullage.Guard(MODEL, runtime=runtime).session(name)


def test_the_async_twin_prepares_the_same_request(tiny_server) -> None:
    history = log_of(40)
    views = []
    for twin in (False, True):
        guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=Runtime())
        options: dict[str, Any] = {"tools": TOOLS, "max_tokens": 100, "pins": [9]}
        if twin:
            views.append(asyncio.run(guard.aprepare(history, **options)))
        else:
            views.append(guard.prepare(history, **options))
    first, second = views
    assert first.kwargs == second.kwargs
    assert first.prepared.count == second.prepared.count
    assert first.prepared.checkpoint == second.prepared.checkpoint


# --- many at once ---------------------------------------------------------------------------------


def test_eight_threads_with_one_history_send_the_same_bytes(runtime, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    history = log_of(30)
    barrier = threading.Barrier(8)

    def prepare(_: int) -> list[Any]:
        barrier.wait()
        return guard.prepare(history, tools=TOOLS).messages

    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(prepare, range(8)))
    assert all(messages == sent[0] for messages in sent)
    assert len(runtime.store.checkpoints.all()) == 1


def test_eight_conversations_through_one_guard_do_not_mix(runtime, chat, tiny_server) -> None:
    guard = ullage.Guard("tiny", base_url=tiny_server.base_url, runtime=runtime)
    barrier = threading.Barrier(8)

    def converse(who: int) -> list[int]:
        history = opening()
        history[1] = {"role": "user", "content": f"I am sailor {who}. Keep the log for me."}
        used = []
        barrier.wait()
        for n in range(8):
            for m in range(3):
                history.extend(look_up(3 * n + m))
            view = guard.prepare(history, max_tokens=16)
            assert f"I am sailor {who}." in view.messages[1]["content"]
            answer = chat(**view.kwargs)
            used.append(view.observe(answer).input_tokens or 0)
            history.append({"role": "assistant", "content": answer.choices[0].message.content})
            history.append({"role": "user", "content": f"Sailor {who} says: go on."})
        return used

    with ThreadPoolExecutor(8) as pool:
        for used in pool.map(converse, range(8)):
            assert len(used) == 8
            assert all(0 < tokens < WINDOW for tokens in used)


def test_without_a_listener_notices_and_compactions_are_logged(
    runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="ullage.guard"):
        guard = ullage.Guard(MODEL, window=4_000, runtime=runtime)
        for turns in range(5, 90, 5):
            guard.prepare(log_of(turns))
    logged = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "ullage.guard"]
    assert any(
        level == "WARNING" and text.startswith("Context window at") for level, text in logged
    )
    assert any(level == "INFO" and text.startswith("compacted ") for level, text in logged)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="ullage.guard"):
        heard: list[Event] = []
        guard = ullage.Guard(MODEL, window=4_000, runtime=runtime, on_event=heard.append)
        guard.prepare(log_of(81))
    assert heard
    assert caplog.records == []

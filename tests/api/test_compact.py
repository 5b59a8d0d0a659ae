"""`compact` and its async twin on a plain list: results, refusals, summaries, copies."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ullage
from tests import presets
from tests.voyage import log_of
from ullage.runtime import Runtime

MODEL = "gpt-4o"
GOOD = "Goal:\n- keep the log."


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def compact_sync(messages: Any, **options: Any) -> ullage.Compaction:
    return ullage.compact(messages, **options)


def compact_async(messages: Any, **options: Any) -> ullage.Compaction:
    return asyncio.run(ullage.acompact(messages, **options))


@pytest.fixture(params=[compact_sync, compact_async])
def compact(request: pytest.FixtureRequest) -> Callable[..., ullage.Compaction]:
    compacting: Callable[..., ullage.Compaction] = request.param
    return compacting


def test_a_target_is_reached_by_an_independent_count_and_the_input_is_untouched(compact) -> None:
    messages = log_of(30)
    before = copy.deepcopy(messages)
    made = compact(messages, target_tokens=1500, model=MODEL)
    assert messages == before
    assert (made.changed, made.reached, made.reason) == (True, True, None)
    assert ullage.count(made.messages, model=MODEL).high == made.after.high <= 1500
    assert ullage.count(messages, model=MODEL).high == made.before.high
    assert made.edits
    ullage.validate(made.messages)
    assert made.messages[:2] == messages[:2]
    assert made.messages[-1] is messages[-1]
    kept = [m for m in made.messages if m in messages]
    assert all(any(m is n for n in messages) for m in kept)


def test_undo_gives_the_callers_objects_back(compact) -> None:
    messages = log_of(30)
    made = compact(messages, target_tokens=1500, model=MODEL)
    undone = made.undo()
    assert undone is not messages
    assert all(a is b for a, b in zip(undone, messages, strict=True))


def test_a_dry_run_plans_the_same_and_changes_nothing(compact) -> None:
    messages = log_of(30)
    made = compact(messages, target_tokens=1500, model=MODEL)
    planned = compact(messages, target_tokens=1500, model=MODEL, dry_run=True)
    assert planned.edits == made.edits
    assert planned.after == made.after
    assert all(a is b for a, b in zip(planned.messages, messages, strict=True))


def test_what_fits_already_is_left_alone(compact) -> None:
    messages = log_of(2)
    made = compact(messages, target_tokens=100_000, model=MODEL)
    assert (made.changed, made.reached, made.edits) == (False, True, ())
    assert all(a is b for a, b in zip(made.messages, messages, strict=True))


@pytest.mark.parametrize("target", [1500, 300, 10])
def test_compacting_twice_equals_once_reached_or_not(compact, target) -> None:
    once = compact(log_of(30), target_tokens=target, model=MODEL)
    twice = compact(once.messages, target_tokens=target, model=MODEL)
    assert twice.messages == once.messages
    assert not twice.changed


def test_a_target_out_of_reach_gives_the_smallest_lawful_result_and_says_so(compact) -> None:
    made = compact(log_of(30), target_tokens=20, model=MODEL, pins=[5])
    assert made.changed
    assert not made.reached
    assert made.reason in ("cannot_reach_target", "cannot_compact")
    assert made.after.high < made.before.high / 2
    ullage.validate(made.messages)


def test_pins_alone_over_the_target_cannot_be_compacted(compact) -> None:
    messages = log_of(4)
    made = compact(messages, target_tokens=60, model=MODEL, pins=range(len(messages)))
    assert (made.changed, made.reached, made.reason) == (False, False, "cannot_compact")
    assert all(a is b for a, b in zip(made.messages, messages, strict=True))


def test_pins_stay_and_are_positions_in_what_the_caller_gave(compact) -> None:
    messages = log_of(30)
    for broken in (messages, [messages[1], {"role": "tool", "tool_call_id": "?"}, *messages[2:]]):
        pin = next(i for i, m in enumerate(broken) if m.get("content") == "Item 7 is in the log.")
        made = compact(broken, target_tokens=600, model=MODEL, pins=[pin])
        assert made.reached
        assert any(m is broken[pin] for m in made.messages)


@pytest.mark.parametrize("pin", [-1, 200, "1", True, 1.0, None])
def test_a_pin_on_nothing_is_refused(compact, pin) -> None:
    with pytest.raises(ullage.ConfigurationError, match="pins names message"):
        compact(log_of(30), target_tokens=500, pins=[pin])


def test_a_ratio_is_of_the_window(compact, runtime) -> None:
    half = compact(log_of(30), target_ratio=0.5, window=4000, model=MODEL)
    assert half.reached
    assert half.after.high <= 2000
    assert compact(log_of(30), target_ratio=0.5, window=ullage.Window(4000), model=MODEL) == half
    own = compact(log_of(80), target_ratio=0.5, model="gpt-4", runtime=runtime)
    assert 0 < own.after.high <= 4096


@pytest.mark.parametrize("options", [{}, {"model": "unheard-of"}, {"window": ullage.Window()}])
def test_a_ratio_of_an_unknown_window_raises(compact, options) -> None:
    with pytest.raises(ullage.ContextWindowUnknown):
        compact(log_of(30), target_ratio=0.5, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target_tokens": 500, "target_ratio": 0.5},
        *[{"target_tokens": n} for n in (0, -1, True, 1.5, "500")],
        *[{"target_ratio": r, "window": 1000} for r in (0, -0.1, 1.1, True, "0.5", float("nan"))],
    ],
)
def test_a_missing_or_senseless_target_is_a_compaction_error(compact, options) -> None:
    with pytest.raises(ullage.CompactionError, match="target"):
        compact(log_of(30), **options)


def test_an_unknown_option_is_named(compact) -> None:
    with pytest.raises(ullage.ConfigurationError, match="unexpected keyword argument 'target'"):
        compact(log_of(30), target=500)


def test_a_summarizer_is_asked_once_and_its_text_is_used(compact) -> None:
    asked: list[ullage.SummaryRequest] = []

    def summarizer(request: ullage.SummaryRequest) -> str:
        asked.append(request)
        return "Goal: keep the log. Done: items 0 to 20."

    made = compact(log_of(30), target_tokens=1500, model=MODEL, summarizer=summarizer)
    (request,) = asked
    assert "Item 0 is in the log." in request.quoted
    assert request.quoted in request.prompt
    assert made.reached
    assert made.fallback_reason is None
    assert any("Done: items 0 to 20." in str(m["content"]) for m in made.messages)


def test_without_a_summarizer_no_summary_is_written(compact) -> None:
    made = compact(log_of(30), target_tokens=1500, model=MODEL)
    assert "summarise" not in made.strategy
    assert made.fallback_reason is None
    assert made.seen is None
    assert "Last words" not in made.summary
    assert "\n[facts kept by rule]\n" in made.summary
    assert made.summary.endswith("\n[end of facts]")


def test_the_block_of_a_compaction_is_in_its_messages_and_says_what_it_stands_for(compact) -> None:
    messages = log_of(30)
    messages[4]["content"] = "Never touch main.py."
    made = compact(messages, target_tokens=1500, model=MODEL)
    assert [m["content"] for m in made.messages].count(made.summary) == 1
    gone = len(messages) - len(made.messages) + 1
    assert made.summary.startswith(f"[ullage: summary of {gone} earlier messages")
    assert compact(log_of(1), target_tokens=10**6, model=MODEL).summary == ""


def test_a_summarizer_is_asked_within_its_own_window_and_what_it_saw_is_told(compact) -> None:
    asked: list[ullage.SummaryRequest] = []

    class Small:
        window = 1_000
        parallel = 2

        def __call__(self, request: ullage.SummaryRequest) -> str:
            asked.append(request)
            return GOOD

    made = compact(log_of(60), target_tokens=3000, model=MODEL, summarizer=Small())
    assert len(asked) > 1
    assert all(
        ullage.count(
            [{"role": "system", "content": r.system}, {"role": "user", "content": r.prompt}],
            model=MODEL,
        ).high
        + r.max_tokens
        <= 1_000
        for r in asked
    )
    assert made.strategy.startswith("hierarchical")
    assert made.seen == 1.0


@pytest.mark.parametrize("policy", [presets.trim(10), presets.summarise(5), ullage.Policy.off()])
def test_an_old_rule_keeps_its_last_messages_and_off_keeps_all(compact, policy) -> None:
    messages = log_of(40)
    made = compact(messages, target_tokens=2500, model=MODEL, policy=policy)
    kept = {id(m) for m in made.messages}
    last = policy.keep_last or len(messages)
    assert all(id(m) in kept for m in messages[-last:])
    assert made.changed is (policy.name != "off")


def failing(request: ullage.SummaryRequest) -> str:
    raise RuntimeError("no model there")


@pytest.mark.parametrize(
    ("summarizer", "reason"),
    [
        (failing, "summariser_failed"),
        (lambda _: None, "summariser_failed"),
        (lambda _: 7, "summariser_failed"),
        (lambda _: next(iter(())), "summariser_failed"),
        (lambda _: "  \n", "summary_empty"),
        (lambda request: request.quoted * 2, "summary_malformed"),
    ],
)
def test_a_failed_summary_never_replaces_history(compact, summarizer, reason) -> None:
    made = compact(log_of(30), target_tokens=1500, model=MODEL, summarizer=summarizer)
    assert made.fallback_reason == reason
    assert made.reached
    assert made.messages == compact(log_of(30), target_tokens=1500, model=MODEL,
                                    summarizer=failing).messages  # fmt: skip


def test_an_async_summarizer_needs_the_async_twin() -> None:
    async def summarizer(request: ullage.SummaryRequest) -> str:
        return GOOD

    options: dict[str, Any] = {"target_tokens": 1500, "model": MODEL, "summarizer": summarizer}
    with pytest.raises(ullage.ConfigurationError, match="async"):
        ullage.compact(log_of(30), **options)
    made = compact_async(log_of(30), **options)
    assert made.fallback_reason is None
    assert made.summary.endswith(f"\n{GOOD}")


def test_off_means_off(compact) -> None:
    made = compact(log_of(30), target_tokens=500, model=MODEL, policy=ullage.Policy.off())
    assert (made.changed, made.reached) == (False, False)


def test_a_broken_history_is_repaired_on_the_way(compact) -> None:
    messages = log_of(30)
    del messages[3]
    made = compact(messages, target_tokens=1500, model=MODEL)
    assert made.reached
    ullage.validate(made.messages)


def test_a_result_can_be_copied_and_pickled() -> None:
    made = ullage.compact(log_of(5), target_tokens=300, model=MODEL)
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin.messages == made.messages
        assert twin.edits == made.edits


def test_the_record_of_a_compaction_can_be_kept_as_plain_data() -> None:
    made = ullage.compact(log_of(5), target_tokens=300, model=MODEL)
    assert made.checkpoint is not None
    assert made.checkpoint.trigger == "manual"
    assert made.checkpoint.tokens_after == made.after.tokens
    assert ullage.compact(log_of(1), target_tokens=10**6, model=MODEL).checkpoint is None


def test_repairs_made_on_the_way_are_told() -> None:
    orphan = {"role": "tool", "tool_call_id": "x", "content": "lost"}
    made = ullage.compact([*log_of(1), orphan], target_tokens=10**6, model=MODEL)
    assert [r.fault for r in made.repairs] == ["orphan_result"]
    assert not made.changed


def test_async_twins_take_what_their_sync_functions_take() -> None:
    for name in ("window", "compact", "count"):
        sync, twin = getattr(ullage, name), getattr(ullage, f"a{name}")
        assert inspect.signature(sync) == inspect.signature(twin)
        assert inspect.iscoroutinefunction(twin)

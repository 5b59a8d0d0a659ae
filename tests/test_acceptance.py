"""What compaction and recovery promise, a test for each case, as a user of the library meets it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ullage
from tests.voyage import Stubborn, immovable, log_of, look_up, of, opening
from ullage import events
from ullage.core.facts import extract as facts
from ullage.core.guard.events import Event
from ullage.core.summary.question import SummaryRequest
from ullage.runtime import Runtime

MODEL = "gpt-4o"
WINDOW = 8_192
GOOD = "Goal:\n- keep the log.\nDone:\n- the first items."
TOO_LONG = "Your input exceeds the context window of this model."


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def sized(tokens: int) -> list[dict[str, Any]]:
    """Return a ship's log of exactly so many tokens."""
    turns = 1
    while ullage.count(log_of(turns + 1), model=MODEL).high < tokens - 20:
        turns += 1
    history = log_of(turns)
    short = tokens - ullage.count(history, model=MODEL).high
    history[5]["content"] += " a" * short
    assert ullage.count(history, model=MODEL).high == tokens
    return history


def guarded(runtime: Runtime, told: list[Event] | None = None, **options: Any) -> ullage.Guard:
    listener = (told if told is not None else []).append
    return ullage.Guard(MODEL, **{"window": WINDOW, **options}, runtime=runtime, on_event=listener)


def high(view: ullage.View) -> int:
    return ullage.count(view.messages, model=MODEL).high


# --- the ladder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [6_600, round(0.85 * WINDOW)])
def test_from_80_per_cent_on_a_request_is_brought_to_60(runtime, tokens: int) -> None:
    view = guarded(runtime).prepare(sized(tokens))
    assert high(view) <= 0.6 * WINDOW < 0.8 * WINDOW
    assert view.compaction is not None
    assert view.compaction.reached


def test_below_80_per_cent_nothing_changes(runtime) -> None:
    history = sized(6_500)
    view = guarded(runtime).prepare(history)
    assert all(a is b for a, b in zip(view.messages, history, strict=True))


def test_at_95_per_cent_a_summary_brings_it_to_50(runtime) -> None:
    told: list[Event] = []
    guard = guarded(runtime, told, summarizer=lambda request: GOOD)
    assert high(guard.prepare(sized(round(0.95 * WINDOW)))) <= 0.5 * WINDOW
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.summary.endswith(f"\n{GOOD}")
    assert made.checkpoint.fallback_reason is None


@pytest.mark.parametrize(
    ("summarizer", "reason"), [(None, "no_summariser"), (lambda _: "", "summary_empty")]
)
def test_at_95_per_cent_without_a_good_summary_the_fall_back_says_so(
    runtime, summarizer: Any, reason: str
) -> None:
    told: list[Event] = []
    guard = guarded(runtime, told, summarizer=summarizer)
    assert high(guard.prepare(sized(round(0.95 * WINDOW)))) <= 0.5 * WINDOW
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.fallback_reason == reason


def test_what_cannot_shrink_is_refused_before_the_send_with_the_numbers(runtime) -> None:
    history = immovable()
    history[0]["content"] = "word and word " * 2_999
    assert ullage.count(history, model=MODEL).high > 9_000
    with pytest.raises(ullage.ContextTooLargeError, match="do not fit into 8,192") as caught:
        guarded(runtime).prepare(history)
    assert caught.value.bound == WINDOW
    assert "system" in str(caught.value)


def test_output_that_fits_is_let_through_and_what_does_not_is_refused() -> None:
    ullage.validate(sized(7_000), model=MODEL, max_tokens=500, window=WINDOW)
    with pytest.raises(ullage.ContextTooLargeError, match="292 are available"):
        ullage.validate(sized(7_900), model=MODEL, max_tokens=500, window=WINDOW)


# --- summaries ------------------------------------------------------------------------------------


def test_two_hundred_turns_are_summarised_in_pieces_within_the_summarizers_window(runtime) -> None:
    asked: list[SummaryRequest] = []

    class Small:
        window = 2_500

        def __call__(self, request: SummaryRequest) -> str:
            asked.append(request)
            return f"Goal:\n- keep the log.\nDone:\n- Item {len(asked)} is in the log."

    history = log_of(200)
    size = ullage.count(history, model=MODEL).high
    told: list[Event] = []
    view = guarded(runtime, told, window=int(size / 0.95), summarizer=Small()).prepare(history)
    for request in asked:
        spoken = [{"role": "user", "content": request.system + request.prompt}]
        assert ullage.count(spoken, model=MODEL).high + request.max_tokens <= 2_500
    (made,) = of(events.Compacted, told)
    assert made.checkpoint.strategy.startswith("hierarchical")
    assert view.compaction is not None
    written = view.compaction.written
    assert written is not None
    first = [r for r in asked if r.attempt == 1]
    assert list(written.levels) == [
        sum(r.level == n for r in first) for n in range(len(written.levels))
    ]
    assert written.seen == 1.0


# --- what may go and what may not -----------------------------------------------------------------


def test_of_two_calls_in_one_response_a_stale_one_loses_its_text_and_the_pair_stays_whole(
    runtime,
) -> None:
    def asked(name: str, path: str) -> dict[str, Any]:
        function = {"name": "read_file", "arguments": json.dumps({"path": path})}
        return {"id": name, "type": "function", "function": function}

    both = [asked("stale", "a.py"), asked("fresh", "b.py")]
    write = asked("write", "a.py")
    write["function"]["name"] = "write_file"
    history = [
        *opening(),
        {"role": "assistant", "content": None, "tool_calls": both},
        {"role": "tool", "tool_call_id": "stale", "content": "old text " * 700},
        {"role": "tool", "tool_call_id": "fresh", "content": "12 passed, 0 failed. " * 300},
        {"role": "assistant", "content": None, "tool_calls": [write]},
        {"role": "tool", "tool_call_id": "write", "content": "written"},
        {"role": "user", "content": "And now? " + "a " * 600},
    ]
    size = ullage.count(history, model=MODEL).high
    view = guarded(runtime, window=int(size / 0.85)).prepare(history)
    ullage.validate(view.messages)
    assert [m["role"] for m in view.messages] == [m["role"] for m in history]
    assert view.messages[3]["content"].startswith("[ullage: result of read_file cleared")
    assert view.messages[4] is history[4]


# --- what survives --------------------------------------------------------------------------------


def working(part: int) -> list[dict[str, Any]]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/part{part}.py"})}
    call = {"id": f"w{part}", "type": "function", "function": function}
    return [
        {"role": "user", "content": f"We decided to use port {8440 + part} for part {part}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"w{part}", "content": "seen"},
        *[
            {**m, "tool_call_id": f"{m['tool_call_id']}p{part}"}
            if m["role"] == "tool"
            else _own(m, part)
            for m in log_of(40)[2:]
        ],
    ]


def _own(message: dict[str, Any], part: int) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    calls = [{**call, "id": f"{call['id']}p{part}"} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


@pytest.mark.parametrize("summarizer", [None, lambda request: GOOD])
def test_three_compactions_later_the_first_files_and_the_first_decision_are_there(
    runtime, summarizer: Any
) -> None:
    told: list[Event] = []
    guard, history = guarded(runtime, told, summarizer=summarizer), opening()
    view = guard.prepare(history)
    while len(of(events.Compacted, told)) < 3:
        history += working(len(of(events.Compacted, told)))
        view = guard.prepare(history)
    block = of(events.Compacted, told)[-1].checkpoint.summary
    assert any(m["content"] == block for m in view.messages)
    known = facts.parse(block)[0]
    assert known.files[0] == "src/part0.py"
    assert any(
        "8440" in line for line in (*known.decisions, *known.identifiers, *known.constraints)
    )


def test_a_tool_that_wrote_a_megabyte_does_not_make_a_checkpoint_bigger(runtime) -> None:
    def checkpoint(output: str) -> dict[str, Any]:
        history = [*opening(), *look_up(0), *log_of(60)[2:]]
        history[2] = {**history[2], "tool_calls": [{**history[2]["tool_calls"][0], "id": "big"}]}
        history[3] = {**history[3], "tool_call_id": "big", "content": output}
        told: list[Event] = []
        guarded(Runtime(), told, window=5_000).prepare(history)
        (made,) = of(events.Compacted, told)
        data: dict[str, Any] = made.checkpoint.to_dict()
        return data

    large, small = checkpoint("x " * 500_000), checkpoint("x " * 20)
    assert large["summary"] == small["summary"]
    assert len(json.dumps(large)) < 1.1 * len(json.dumps(small))


# --- recovery -------------------------------------------------------------------------------------


class Refusing:
    """A provider that refuses each request once, and takes the smaller one that follows."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, **kwargs: Any) -> Any:
        self.sizes.append(ullage.count(kwargs["messages"], model=MODEL).high)
        if len(self.sizes) % 2:
            raise RuntimeError(TOO_LONG)
        return {"choices": [], "usage": None}


def test_each_overflow_of_a_turn_is_answered_smaller_and_the_fifth_is_the_providers(
    runtime,
) -> None:
    told: list[Event] = []
    guard, fn = guarded(runtime, told, window=None), Refusing()
    history = [*opening(), *(m for n in range(80) for m in look_up(n))]
    for n in range(4):
        guard.call(fn, history)
        assert fn.sizes[-1] < fn.sizes[-2]
        history = [*history, *look_up(100 + n)]
    assert of(events.RecoveryExhausted, told) == []
    made = [e.checkpoint for e in of(events.Compacted, told)]
    assert {checkpoint.trigger for checkpoint in made} == {"overflow_recovery"}
    retries = fn.sizes[1::2]
    assert retries == sorted(retries, reverse=True)
    with pytest.raises(RuntimeError, match=TOO_LONG):
        guard.call(fn, history)
    (exhausted,) = of(events.RecoveryExhausted, told)
    assert "after 4 attempts" in exhausted.reason


def test_a_refusal_of_the_smaller_request_too_is_one_notice_and_the_providers_error(
    runtime,
) -> None:
    told: list[Event] = []
    fn = Stubborn(TOO_LONG)
    with pytest.raises(RuntimeError, match=r"\(2\)"):
        guarded(runtime, told, window=None).call(fn, log_of(60))
    assert len(of(events.RecoveryExhausted, told)) == 1


def test_a_smaller_window_is_compacted_to_before_the_first_send(runtime) -> None:
    history = sized(7_900)
    large = guarded(runtime, window=128_000)
    assert large.prepare(history).compaction is None
    told: list[Event] = []
    small = guarded(runtime, told)
    assert high(small.prepare(history)) <= 0.5 * WINDOW
    assert len(of(events.Compacted, told)) == 1
    smaller = guarded(runtime, told, window=2_048)
    assert high(smaller.prepare(history)) <= 0.6 * 2_048
    (_, switched) = of(events.Compacted, told)
    assert switched.checkpoint.trigger == "model_switch"

"""A guard with a store: nothing lost, the same bytes in another process, undone, made ahead."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.voyage import log_of, of
from ullage import events
from ullage.config.settings import Settings
from ullage.core.guard.events import Event
from ullage.runtime import Runtime
from ullage.storage import Store

MODEL = "gpt-4o"
WINDOW = 3_000
NAMED = re.compile(r"recall (u:[0-9a-f]{16})")


@pytest.fixture(params=["memory:", "sqlite:"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = request.param + (str(tmp_path / "s.db") if request.param == "sqlite:" else "")
    opened = ullage.open_store(url)
    yield opened
    opened.close()


def guard(store: Store | None = None, **options: Any) -> ullage.Guard:
    return ullage.Guard(MODEL, window=WINDOW, runtime=Runtime(), store=store, **options)


def test_what_was_left_out_can_be_read_back_by_its_name(store: Store) -> None:
    history = log_of(40)
    sent = guard(store).prepare(history).messages
    names = NAMED.findall(json.dumps(sent))
    assert names
    originals = [ullage.recall(name, store=store) for name in names]
    said = {json.dumps(m) for m in sent}
    gone = [m for m in history if json.dumps(m) not in said and m.get("content")]
    assert gone
    read = "\n".join(originals)
    for message in gone:
        assert message["content"] in read or json.dumps(message["content"])[1:-1] in read


def test_names_lead_back_through_three_compactions(store: Store) -> None:
    guarded, history, sent = guard(store), log_of(12), list[Any]()
    for n in range(3):
        history += log_of(12 * (n + 2))[len(history) :]
        sent = guarded.prepare(history).messages
    seen, waiting = set[str](), NAMED.findall(json.dumps(sent))
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += NAMED.findall(ullage.recall(name, store=store))
    everything = "\n".join([json.dumps(sent), *(ullage.recall(n, store=store) for n in seen)])
    assert [n for n in range(40) if f"Record {n}: " not in everything] == []


def test_without_a_store_placeholders_name_nothing() -> None:
    sent = guard().prepare(log_of(40)).messages
    assert "[ullage: " in json.dumps(sent)
    assert NAMED.findall(json.dumps(sent)) == []


def test_an_agent_reads_back_by_the_tool(store: Store) -> None:
    sent = json.dumps(guard(store).prepare(log_of(40)).messages)
    name = NAMED.findall(sent)[0]
    assert "Record" in ullage.answer_recall(json.dumps({"reference": name}), store)
    assert ullage.recall_tool()["function"]["name"] == "ullage_recall"


def test_another_process_sends_the_same_bytes(tmp_path: Path) -> None:
    url, history = f"sqlite:{tmp_path / 's.db'}", log_of(40)
    one, two = ullage.open_store(url), ullage.open_store(url)
    first = guard(one).prepare(history)
    again = guard(two).prepare(history)
    assert again.compaction is None
    assert json.dumps(again.messages) == json.dumps(first.messages)
    one.close()
    two.close()


def test_undo_brings_back_what_the_last_compaction_left_out(store: Store) -> None:
    guarded, history = guard(store), log_of(40)
    view = guarded.prepare(history)
    assert view.compaction is not None
    undone = guarded.undo(history)
    assert undone is not None
    assert undone.script == view.compaction.script
    assert guarded.undo(history) is None
    roomy = ullage.Guard(MODEL, window=10**6, runtime=Runtime(), store=store)
    assert roomy.prepare(history).messages == history


def test_a_store_in_the_settings_serves_every_guard(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 's.db'}"
    runtime = Runtime(settings=Settings(store=url))
    sent = ullage.Guard(MODEL, window=WINDOW, runtime=runtime).prepare(log_of(40)).messages
    name = NAMED.findall(json.dumps(sent))[0]
    assert "Record" in ullage.recall(name, store=url)


def test_off_means_off_after_a_refusal_too() -> None:
    asked: list[Any] = []

    def refuse(**request: Any) -> Any:
        asked.append(request)
        error = RuntimeError("maximum context length is 2000 tokens, you sent 9000 tokens")
        error.status_code = 400  # type: ignore[attr-defined]
        raise error

    guarded = ullage.Guard(MODEL, policy=ullage.Policy.off(), runtime=Runtime())
    with pytest.raises(RuntimeError):
        guarded.call(refuse, log_of(40))
    assert len(asked) == 1


def test_a_request_that_cannot_fit_is_told_as_a_predicted_overflow() -> None:
    told: list[Event] = []
    guarded = guard(on_event=told.append)
    with pytest.raises(ullage.ContextTooLargeError):
        guarded.prepare([{"role": "user", "content": "word and word " * 3000}])
    (refused,) = of(events.Refused, told)
    assert (refused.phase, refused.kind.kind, refused.model) == ("predicted", "input", MODEL)


def test_an_answer_is_told_with_its_cost() -> None:
    told: list[Event] = []
    guarded = guard(on_event=told.append)
    view = guarded.prepare([{"role": "user", "content": "Hello."}])
    view.observe({"usage": {"prompt_tokens": 9, "completion_tokens": 5}})
    (answered,) = of(events.Answered, told)
    assert answered.cost is not None
    assert answered.cost.total == pytest.approx(9 * 2.5e-6 + 5 * 10e-6)


LADDER = ullage.Policy.ladder()
AHEAD = ullage.Policy(name="ahead", rungs=LADDER.rungs, background=True)


def nearly(share: float) -> list[Any]:
    """Return a history that takes a little more than this share of the window."""
    turns = 1
    while ullage.count(log_of(turns), model=MODEL).high < share * WINDOW:
        turns += 1
    return log_of(turns)


def test_a_summary_made_ahead_takes_the_place_of_exactly_the_prefix_it_was_made_for() -> None:
    async def run() -> None:
        told: list[Event] = []
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def summarizer(request: ullage.SummaryRequest) -> str:
            begun.set()
            await go_on.wait()
            return "Goal:\n- Keep the log.\nDone:\n- Some items were looked up."

        guarded = guard(policy=AHEAD, summarizer=summarizer, on_event=told.append)
        history = nearly(0.80)
        view = await guarded.aprepare(history)
        assert view.messages == history  # the rung below the summary's waits for it
        await begun.wait()
        assert (await guarded.aprepare(history)).messages == history  # nor is it begun twice
        go_on.set()
        await guarded.port.settle()
        (made,) = of(events.Compacted, told)
        assert "summarise_middle" in made.checkpoint.strategy
        longer = [*history, {"role": "assistant", "content": "Done."}]
        longer.append({"role": "user", "content": "And now?"})
        after = await guarded.aprepare(longer)
        assert after.compaction is None
        assert "Some items were looked up." in json.dumps(after.messages)
        tail = longer[made.checkpoint.count :]
        assert after.messages[-len(tail) :] == tail

    asyncio.run(run())


def test_without_an_event_loop_nothing_is_made_ahead() -> None:
    guarded = guard(policy=AHEAD, summarizer=lambda request: "Goal:\n- x")
    view = guarded.prepare(nearly(0.80))
    assert view.compaction is not None
    assert view.compaction.strategy == "clear"


def test_a_store_that_fails_in_the_background_is_told_of_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        store = ullage.open_store(f"sqlite:{tmp_path / 's.db'}")

        def summarizer(request: ullage.SummaryRequest) -> str:
            store.close()
            (tmp_path / "s.db").unlink()
            (tmp_path / "s.db").mkdir()
            return "Goal:\n- Keep the log."

        guarded = guard(store, policy=AHEAD, summarizer=summarizer)
        history = nearly(0.80)
        assert (await guarded.aprepare(history)).messages == history
        await guarded.port.settle()
        view = await guarded.aprepare([*history, {"role": "user", "content": "And now?"}])
        assert "Keep the log." in str(view.messages)  # memory has the summary

    asyncio.run(run())
    assert "the store is away" in caplog.text


@pytest.mark.parametrize("store", ["sqlite:x.db", 7])
def test_what_is_no_open_store_is_refused_with_the_way_to_open_one(store: Any) -> None:
    with pytest.raises(ullage.ConfigurationError, match=r"open one with ullage\.open_store"):
        guard(store)
    with pytest.raises(ullage.ConfigurationError, match=r"open one with ullage\.open_store"):
        ullage.compact(log_of(40), target_tokens=900, model=MODEL, store=store)

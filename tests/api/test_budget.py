"""The guard's sections end to end: shares of the window, knowledge that goes, overruns told of."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from ullage.core.compaction import laws
from ullage.core.compaction.strategies.knowledge import MARK
from ullage.core.guard.events import Compacted, CompactionFailed, Event, OverShare
from ullage.core.tokens.budget import SHARES
from ullage.runtime import Runtime

MODEL = "gpt-4o"
WINDOW = 10_000
SMALL = {**SHARES, "knowledge": 0.05, "conversation": 0.55}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


@pytest.fixture
def heard() -> list[Event]:
    return []


def guard(heard: list[Event], **options: Any) -> ullage.Guard:
    given = {"window": WINDOW, "on_event": heard.append, "shares": SMALL, "runtime": Runtime()}
    return ullage.Guard(MODEL, **{**given, **options})


def document(number: int, tokens: int = 200) -> dict[str, Any]:
    return {"role": "user", "content": f"Document {number}." + " leak" * tokens}


def history(documents: int) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return a conversation that opens with documents, and their marks."""
    found = [document(n) for n in range(documents)]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend the leak with what follows."},
        *found,
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": "Go on."},
    ]
    return messages, {n + 2: "knowledge" for n in range(documents)}


def texts(view: ullage.View) -> list[str]:
    return [str(m["content"])[:11] for m in view.messages]


def of(heard: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


def test_knowledge_over_its_share_is_left_out_oldest_first(heard: list[Event]) -> None:
    messages, marks = history(5)
    view = guard(heard).prepare(messages, sections=marks)
    assert texts(view) == ["Be brief.", "Mend the le", "Document 3.", "Document 4.", *ENDS]
    assert all(any(m is raw for raw in messages) for m in view.messages)
    assert view.compaction is not None
    assert (view.compaction.strategy, view.compaction.reached) == ("knowledge", True)
    assert len(of(heard, Compacted)) == 1
    assert of(heard, OverShare) == []


ENDS = ("I have read", "Go on.")


def test_without_shares_nothing_changes(heard: list[Event]) -> None:
    messages, marks = history(5)
    view = guard(heard, shares=None).prepare(messages, sections=marks)
    assert all(a is b for a, b in zip(view.messages, messages, strict=True))
    assert (of(heard, Compacted), of(heard, OverShare)) == ([], [])


def test_without_a_window_nothing_changes(heard: list[Event]) -> None:
    messages, marks = history(5)
    keeper = ullage.Guard(None, on_event=heard.append, shares=SMALL, runtime=Runtime())
    view = keeper.prepare(messages, sections=marks)
    assert all(a is b for a, b in zip(view.messages, messages, strict=True))
    assert of(heard, OverShare) == []


def test_knowledge_within_its_share_stays(heard: list[Event]) -> None:
    messages, marks = history(2)
    view = guard(heard).prepare(messages, sections=marks)
    assert len(view.messages) == len(messages)
    assert of(heard, OverShare) == []


def test_nothing_but_knowledge_pays_for_its_overrun(heard: list[Event]) -> None:
    messages, marks = history(5)
    big = {"role": "assistant", "content": "I found" + " water" * 5_000}
    messages[-1:-1] = [big]
    messages[2]["content"] = "Always keep this." + " leak" * 200
    view = guard(heard, shares={**SMALL, "knowledge": 0.0, "conversation": 0.6}).prepare(
        messages, sections=marks
    )
    assert [m for m in view.messages if m not in messages] == []
    assert texts(view) == ["Be brief.", "Mend the le", "I have read", "I found wat", "Go on."]


def test_pinned_knowledge_stays_and_its_overrun_is_told(heard: list[Event]) -> None:
    messages, marks = history(5)
    view = guard(heard).prepare(messages, sections=marks, pins=list(marks))
    assert len(view.messages) == len(messages)
    (event,) = of(heard, OverShare)
    (overrun,) = event.overruns
    assert (overrun.section, overrun.share) == ("knowledge", 500)
    assert overrun.over == overrun.used - 500 > 0
    (failed,) = of(heard, CompactionFailed)
    assert failed.reason.startswith("cannot_compact: ")
    assert "the largest message is user at position 2 with 208 tokens" in failed.reason


def test_any_section_over_its_share_is_told_the_largest_overrun_first(heard: list[Event]) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief." + " rule" * 1_200},
        {"role": "user", "content": "Go." + " word" * 5_800},
    ]
    view = guard(heard).prepare(messages, max_tokens=1_500, tools=[TOOL])
    assert view.messages == messages
    (event,) = of(heard, OverShare)
    assert [o.section for o in event.overruns] == ["output_buffer", "conversation", "system_prompt"]
    assert event.overruns[0].sentence() == "output_buffer holds 1,500 tokens, 500 over its 1,000"
    assert of(heard, Compacted) == []


def test_a_result_that_is_knowledge_is_cleared_and_keeps_its_call(heard: list[Event]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Mend the leak."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "leak " * 900},
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": "Go on."},
    ]
    view = guard(heard).prepare(messages, sections={2: "knowledge"}, tools=[TOOL])
    assert len(view.messages) == 5
    assert view.messages[2]["content"].startswith(MARK[:28])
    assert laws.protocol(view.prepared.sent) == []
    assert of(heard, OverShare) == []


def test_knowledge_goes_before_conversation_when_a_compaction_is_due(heard: list[Event]) -> None:
    messages, marks = history(10)
    talk = [{"role": r, "content": "word " * 320} for _ in range(10) for r in ("assistant", "user")]
    messages[-1:-1] = talk
    view = guard(heard, shares=None).prepare(messages, sections=marks)
    assert view.compaction is not None
    assert view.compaction.reached
    assert set(marks) <= view.compaction.script.drops
    unmarked = guard([], shares=None).prepare(messages)
    assert unmarked.compaction is not None
    assert len(view.messages) > len(messages) - len(marks) - len(talk)


def test_a_due_compaction_takes_knowledge_down_to_its_share_too(heard: list[Event]) -> None:
    messages, marks = history(30)
    messages[-1:-1] = [{"role": "assistant", "content": "word " * 2_200}]
    view = guard(heard).prepare(messages, sections=marks)
    assert [t for t in texts(view) if t.startswith("Document")] == ["Document 28", "Document 29"]
    assert of(heard, OverShare) == []
    assert len(of(heard, Compacted)) == 1


def test_what_was_left_out_stays_out_and_more_follows(heard: list[Event]) -> None:
    keeper = guard(heard)
    messages, marks = history(5)
    first = keeper.prepare(messages, sections=marks)
    again = keeper.prepare(messages, sections=marks)
    assert texts(again) == texts(first)
    assert len(of(heard, Compacted)) == 1
    grown = [*messages, {"role": "assistant", "content": "So far."}, document(5), document(6)]
    grown += [{"role": "user", "content": "And now?"}]
    third = keeper.prepare(grown, sections={**marks, 10: "knowledge", 11: "knowledge"})
    kept = [text for text in texts(third) if text.startswith("Document")]
    assert kept == ["Document 5.", "Document 6."]
    assert len(of(heard, Compacted)) == 2
    assert of(heard, OverShare) == []


def test_an_overrun_that_stays_is_measured_on_what_is_sent_after_a_replay(
    heard: list[Event],
) -> None:
    keeper = guard(heard)
    messages, marks = history(5)
    keeper.prepare(messages, sections=marks)
    grown = [*messages, {"role": "assistant", "content": "So far."}]
    grown += [document(5), document(6, 900), {"role": "user", "content": "And now?"}]
    more = {**marks, 10: "knowledge", 11: "knowledge"}
    view = keeper.prepare(grown, sections=more, pins=[11])
    assert [t for t in texts(view) if t.startswith("Document")] == ["Document 6."]
    (event,) = of(heard, OverShare)
    assert [o.section for o in event.overruns] == ["knowledge"]
    assert 900 < event.overruns[0].used < 950


def test_repaired_histories_keep_their_marks(heard: list[Event]) -> None:
    messages, marks = history(5)
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "stray"}
    moved = {index + 1: name for index, name in marks.items()}
    view = guard(heard).prepare([messages[0], stray, *messages[1:]], sections=moved)
    assert texts(view) == ["Be brief.", "Mend the le", "Document 3.", "Document 4.", *ENDS]


def test_knowledge_goes_also_where_the_count_stands_on_a_report(heard: list[Event]) -> None:
    keeper = ullage.Guard(
        "nobodys-model", window=WINDOW, on_event=heard.append, shares=SMALL, runtime=Runtime()
    )
    messages, marks = history(1)
    messages[-1:-1] = [{"role": "assistant", "content": "I found" + " water" * 3_000}]
    view = keeper.prepare(messages, sections=marks)
    view.observe({"usage": {"prompt_tokens": view.prepared.count.tokens, "completion_tokens": 4}})
    grown = [*messages, {"role": "assistant", "content": "So far."}, document(5), document(6)]
    grown += [{"role": "user", "content": "And now?"}]
    view = keeper.prepare(grown, sections={**marks, 7: "knowledge", 8: "knowledge"})
    assert [t for t in texts(view) if t.startswith("Document")] == ["Document 6."]
    assert of(heard, CompactionFailed) == []


def test_assessing_changes_nothing_and_tells_of_no_section(heard: list[Event]) -> None:
    keeper = guard(heard)
    assert keeper.assess(history(5)[0]).tier == "none"
    assert heard == []


@pytest.mark.parametrize(
    ("sections", "said"),
    [({99: "knowledge"}, "sections names message 99"), ({1: "output_buffer"}, "puts message 1")],
)
def test_marks_that_make_no_sense_are_refused(
    sections: dict[int, str], said: str, heard: list[Event]
) -> None:
    with pytest.raises(ullage.ConfigurationError, match=said):
        guard(heard).prepare(history(1)[0], sections=sections)


def test_shares_that_are_none_are_refused_at_once(heard: list[Event]) -> None:
    with pytest.raises(ullage.ConfigurationError, match="add up to"):
        guard(heard, shares={**SHARES, "tools": 0.9})


async def prepared(keeper: ullage.Guard, messages: Any, marks: Any) -> ullage.View:
    return await keeper.aprepare(messages, sections=marks)


def test_the_async_face_does_the_same(heard: list[Event]) -> None:
    import asyncio

    messages, marks = history(5)
    view = asyncio.run(prepared(guard(heard), messages, marks))
    assert texts(view) == texts(guard([]).prepare(messages, sections=marks))

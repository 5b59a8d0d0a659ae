"""A provider that makes room by itself: our rungs stand behind it, and the gauge says so."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.beta import (
    BetaCompactionBlock,
    BetaMessage,
    BetaThinkingDroppedInputTransformation,
    BetaUsage,
)

from ullage import Guard, count
from ullage.core.dialects import registry
from ullage.core.dialects.reply import extract_report
from ullage.core.guard.events import ContextPressure
from ullage.core.tokens.truncation import is_edited_by_server
from ullage.runtime import Runtime
from ullage.windows import Question

WINDOW = 4_000


def history(share: float) -> list[dict[str, Any]]:
    """Return a history that fills this share of the window, by the upper edge of its count."""
    made: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    while count(made, model="gpt-4o", dialect="anthropic").high < share * WINDOW:
        made.append({"role": "assistant", "content": f"{len(made)}:" + " word" * 20})
        made.append({"role": "user", "content": "And on, please."})
    return made


def asked(at: int) -> dict[str, Any]:
    return {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens",
            "value": at}}]}  # fmt: skip


def guard(**options: Any) -> Guard:
    return Guard("gpt-4o", window=WINDOW, dialect="anthropic", runtime=Runtime(), **options)


@pytest.mark.parametrize(("share", "compacted"), [(0.60, False), (0.84, False), (0.97, True)])
def test_our_rungs_wait_behind_the_provider_up_to_critical(share: float, compacted: bool):
    messages = history(share)
    view = guard().prepare(messages, context_management=asked(2_000))
    assert (view.prepared.checkpoint is not None) is compacted
    assert (view.messages != messages) is compacted
    alone = guard().prepare(messages)
    assert (alone.prepared.checkpoint is not None) is (share > 0.8)


def test_a_provider_that_would_come_too_late_is_not_waited_for():
    messages = history(0.84)
    view = guard().prepare(messages, context_management=asked(3_900))
    assert view.prepared.checkpoint is not None


def test_the_gauge_says_who_makes_room_before_and_after_the_answer():
    told: list[Any] = []
    view = guard(on_event=told.append).prepare(history(0.1), context_management=asked(2_000))
    said = "the provider makes room by itself at 2,000 tokens (compact_20260112)"
    assert view.assessment.provider == said
    assert view.assessment.notice().endswith(f"tokens at most); {said}")
    assert view.observe({"input_tokens": 300, "output_tokens": 9}).provider == said
    pressures = [event for event in told if isinstance(event, ContextPressure)]
    assert [p.assessment.provider for p in pressures] == [said, said]


def test_a_call_is_read_by_its_own_keywords_and_hands_them_on():
    sent: list[Any] = []

    def create(**request: Any) -> dict[str, Any]:
        sent.append(request)
        return {"usage": {"input_tokens": 300, "output_tokens": 9}}

    messages = history(0.84)
    guard().call(create, messages, context_management=asked(2_000))
    guard().call(create, messages, extra_body={"context_management": asked(2_000)})
    assert [request["messages"] == messages for request in sent] == [True, True]
    assert sent[0]["context_management"] == asked(2_000)


def test_an_answer_that_brings_a_compaction_teaches_nothing_of_the_window():
    messages = history(0.84)
    told: list[Any] = []
    made = guard(on_event=told.append)
    view = made.prepare(messages, context_management=asked(2_000))
    block = {"type": "compaction", "content": "What was said."}
    usage = {"input_tokens": 60, "output_tokens": 9}
    view.observe({"content": [block, {"type": "text", "text": "ok"}], "usage": usage})
    assert made.window().input_tokens == WINDOW
    assert not [event for event in told if "Truncation" in type(event).__name__]


DROPPED = {"type": "thinking_dropped", "path": "messages.1.content.0"}


@pytest.mark.parametrize(
    ("reason", "bound"), [("prefix_binding_mismatch", True), ("model_binding_mismatch", False)]
)
@pytest.mark.parametrize("streamed", [False, True])
def test_dropped_thinking_teaches_nothing_of_sizes_and_the_law_of_its_model(
    reason: str, bound: bool, streamed: bool
):
    runtime = Runtime()
    made = Guard("tern-9", window=WINDOW, dialect="anthropic", runtime=runtime)
    view = made.prepare(history(0.5))
    entry = BetaThinkingDroppedInputTransformation.model_validate({**DROPPED, "reason": reason})
    usage: dict[str, Any] = {"input_tokens": 60, "output_tokens": 9}
    if streamed:
        watch = registry.find("anthropic").make_watch()
        watch.see({"type": "message_start", "message": {"usage": usage}})
        watch.see({"type": "message_delta", "input_transformations": [entry], "delta": {}})
        watch.see({"type": "message_stop"})
        report: Any = watch.report
    else:
        report = BetaMessage.model_construct(
            usage=BetaUsage.model_construct(None, **usage),
            content=[],
            input_transformations=[entry],
        )
    view.observe(report)
    laws = runtime.find_laws(Question("tern-9"))
    assert ("bound_thinking" in laws) is bound
    assert view.prepared.count == made.prepare(history(0.5)).prepared.count


@pytest.mark.parametrize("made", ["output", "content"])
def test_a_compaction_in_an_answer_of_an_sdk_is_seen(made: str):
    block = BetaCompactionBlock(type="compaction", content="What was said.")
    usage = BetaUsage.model_construct(input_tokens=60, output_tokens=9)
    parts: dict[str, Any] = {"content": [], made: [block]}
    answer = BetaMessage.model_construct(None, usage=usage, **parts)
    assert is_edited_by_server(extract_report(answer))
    plain = BetaMessage.model_construct(usage=usage, content=[], output=[])
    assert not is_edited_by_server(extract_report(plain))


def test_a_keyword_that_is_none_is_refused_by_name():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sytem'"):
        guard().prepare(history(0.1), sytem="Be brief.")  # type: ignore[call-arg]

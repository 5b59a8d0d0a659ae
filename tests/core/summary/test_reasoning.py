"""What a model thought is shown to no summarizer, in whatever dialect and place it stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.summary.test_request import good, job
from ullage.core.compaction.block import gather
from ullage.core.dialects import registry
from ullage.core.dialects.form import RoundParts
from ullage.core.facts import extract as facts
from ullage.core.messages.thoughts import drop_thoughts
from ullage.core.messages.transcript import Message, Part
from ullage.core.summary.request import write

SECRET = "zqthought7"

THOUGHTS: dict[str, dict[str, Any]] = {
    "openai_chat": {"reasoning_content": SECRET},
    "openai_responses": {
        "type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": SECRET}],
    },
    "anthropic": {"type": "thinking", "thinking": SECRET, "signature": "s"},
    "gemini": {"text": SECRET, "thought": True},
    "bedrock_converse": {"reasoningContent": {"reasoningText": {"text": SECRET, "signature": "s"}}},
    "ollama_chat": {"thinking": SECRET},
}  # fmt: skip


def ask(messages: Any) -> str:
    """Return all that a summarizer is shown of messages."""
    steps, shown = write(job(messages)), ""
    try:
        requests = next(steps)
        while True:
            shown += "".join(f"{r.system}\n{r.prompt}\n{r.quoted}" for r in requests)
            requests = steps.send([good(request) for request in requests])
    except StopIteration:
        return shown


@pytest.mark.parametrize("dialect", registry.DIALECTS)
def test_reasoning_of_every_dialect_is_left_out(dialect: Any) -> None:
    form, codec = registry.find(dialect).make_form(), registry.find(dialect).make_codec(None, None)
    parts = RoundParts(2, ((2, THOUGHTS[dialect]),), (f"<think>\n{SECRET}\n</think>\n\nDone.",), ())
    said = [raw for _, raw in form.answer(parts)]
    read = codec.read([form.user("Mend the pump."), *said]).messages
    assert any(part.kind == "reasoning" and SECRET in part.text for m in read for part in m.parts)
    shown = ask(read)
    assert "Done." in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain", "plain"),
        ("<think>hm</think>\n\nyes", "yes"),
        ("hm</think>yes", "yes"),
        ("<think>a</think>b</think> c", "c"),
        (" <think>cut off", ""),
        ("of <think> in a sentence", "of <think> in a sentence"),
    ],
)
def test_an_answer_without_its_reasoning(text: str, said: str) -> None:
    assert drop_thoughts(text) == said


def test_what_was_thought_makes_no_facts_and_no_last_words() -> None:
    text = f"<think>We decided to use {SECRET}.</think>I decided to use SQLite."
    message = Message("assistant", (Part("text", text),))
    kept = gather([message])
    assert SECRET not in "".join(kept.spoken)
    assert SECRET not in str(facts.collect([message], facts.UNKNOWN))
    told = Message("user", (Part("text", f"<think>{SECRET}</think>"),))
    assert SECRET in ask([told, message])  # a person's words are no model's thoughts

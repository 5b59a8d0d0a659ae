"""The strategy `native`: what the provider is asked for, and what is made of its answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.guard.driving import setup
from ullage.core.compaction.native import compact_natively
from ullage.core.compaction.plan import Order, Outcome
from ullage.core.compaction.strategies import find
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_responses.codec import OpenAIResponses
from ullage.core.messages.transcript import Codec
from ullage.core.tokens.counting import measure

METER = setup().meter

RULE = {"role": "developer", "content": "Answer in rhyme."}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "QUJD" * 8}


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tell(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def talk(turns: int) -> list[dict[str, Any]]:
    made = [ask("The task.")]
    for n in range(turns):
        made += [tell(f"answer {n} " + "word " * 40), ask(f"question {n}")]
    return made


def order(target: int = 400, **more: Any) -> Order:
    return Order(target=target, tail=100, strategies=(), **more)


def run(codec: Codec, history: list[Any], answer: Any, given: Order) -> tuple[Any, Outcome | None]:
    """Return what the provider was asked, None where it was not, and the outcome."""
    transcript = codec.read(history)
    asking = compact_natively(transcript, measure(transcript, METER), METER, codec, given)
    try:
        wanted = next(asking)
    except StopIteration as done:
        return None, done.value
    with pytest.raises(StopIteration) as ended:
        asking.send(answer)
    return wanted, ended.value.value


def test_what_stands_before_the_tail_is_asked_for_and_replaced():
    history = [RULE, *talk(12)]
    wanted, outcome = run(OpenAIResponses(), history, ITEM, order())
    assert outcome is not None
    sent = list(outcome.edited.transcript.raws)
    assert list(wanted.messages) == history[: len(wanted.messages)]
    assert sent[:3] == [RULE, ITEM, ask("The task.")]
    assert sent[-1] is history[-1]
    asked = [m for m in sent if m.get("role") == "user"]
    assert asked == [m for m in history if m.get("role") == "user"]  # Responses keep them
    assert (outcome.strategy, outcome.reached) == ("native", True)
    assert outcome.after.high < outcome.before.high


def test_messages_keep_the_task_and_what_is_pinned_behind_it():
    block = {"role": "assistant", "content": [{"type": "compaction", "content": "Much was said."}]}
    history = talk(12)
    _, outcome = run(Anthropic(), history, block, order(pins=frozenset({4})))
    assert outcome is not None
    sent = list(outcome.edited.transcript.raws)
    assert sent[:3] == [block, history[0], history[4]]
    assert history[2] not in sent


def test_an_older_one_goes_with_what_it_stands_for():
    history = [ask("The task."), ITEM, *talk(12)[1:]]
    newer = {**ITEM, "id": "cmp_2"}
    _, outcome = run(OpenAIResponses(), history, newer, order())
    assert outcome is not None
    sent = list(outcome.edited.transcript.raws)
    assert newer in sent
    assert ITEM not in sent


def test_an_older_one_that_is_pinned_leaves_it_to_ours():
    history = [ask("The task."), ITEM, *talk(12)[1:]]
    assert run(OpenAIResponses(), history, ITEM, order(pins=frozenset({1}))) == (None, None)


def test_where_nothing_may_go_nobody_is_asked():
    assert run(OpenAIResponses(), [ask("The task."), tell("Yes.")], ITEM, order()) == (None, None)


@pytest.mark.parametrize(
    "answer", [None, {**ITEM, "encrypted_content": "QUJD" * 9_000}], ids=["none", "too large"]
)
def test_an_answer_that_helps_nobody_is_not_taken(answer: Any):
    wanted, outcome = run(OpenAIResponses(), talk(12), answer, order())
    assert wanted is not None
    assert outcome is None


def test_by_itself_it_plans_nothing():
    assert not find("native").plan(None)  # type: ignore[arg-type]

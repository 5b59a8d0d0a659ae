"""A compaction that the provider made: it stands for what is before it, and is left as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.naming import plainly
from ullage.core.compaction import laws
from ullage.core.compaction.edits import Clear, Script
from ullage.core.compaction.mending import repair
from ullage.core.dialects.anthropic.codec import Anthropic
from ullage.core.dialects.openai_responses.codec import OpenAIResponses
from ullage.core.messages.transcript import Transcript

PAGE = "wind and water were fair, all hands well. " * 30

ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "QUJD" * 50}
RULE = {"role": "developer", "content": "Always answer in rhyme, and never name the harbour."}


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(n: int) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": f"c{n}", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": PAGE},
    ]


def calls(first: int, stop: int) -> list[dict[str, Any]]:
    return [item for n in range(first, stop) for item in call(n)]


def read(items: list[Any]) -> Transcript:
    return OpenAIResponses().read(items)


def sizes(items: list[Any]) -> tuple[int, ...]:
    return ullage.count(items, dialect="openai_responses").by_message


def block(text: str | None, *more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "compaction", "content": text}, *more]}


# ── what is counted ─────────────────────────────────────────────────────────────────────────────


def test_what_is_before_it_takes_nothing_but_operator_text():
    items = [ask(PAGE), RULE, *call(0), ITEM, ask("And now?")]
    found = sizes(items)
    assert found[0] == found[2] == found[3] == 0
    assert found[1] == sizes([RULE])[0]
    assert found[4:] == sizes([ITEM, ask("And now?")])
    assert sum(found) < sum(sizes([ask(PAGE)]))


def test_the_newest_one_stands_for_the_older_ones():
    items = [ask("Go."), *call(0), ITEM, *call(1), {**ITEM, "id": "cmp_2"}]
    assert read(items).count_replaced() == 6
    assert sizes(items)[:6] == (0,) * 6


def test_the_users_messages_that_responses_keep_before_it_are_read():
    kept = [ask("Build it."), ask("In blue."), ITEM]
    assert read(kept).count_replaced() == 0
    assert all(sizes(kept)[:2])
    later = [*kept, *call(0), {**ITEM, "id": "cmp_2"}]
    assert read(later).count_replaced() == 5


def test_in_messages_even_a_lone_question_before_it_is_not_read():
    history = [ask(PAGE), block("What was asked: much."), ask("Go on.")]
    assert Anthropic().read(history).count_replaced() == 1
    assert ullage.count(history, dialect="anthropic").by_message[0] == 0


def test_one_that_failed_stands_for_nothing():
    history = [ask("Hello."), block(None, {"type": "text", "text": "Hi."}), ask("Go on.")]
    assert Anthropic().read(history).count_replaced() == 0


@given(st.lists(st.sampled_from(["ask", "call", "item", "rule"]), max_size=12), st.integers(0, 12))
def test_a_history_that_grew_counts_as_one_that_is_new(kinds: list[str], cut: int):
    items: list[Any] = []
    for n, kind in enumerate(kinds):
        made = {"ask": [ask(f"Question {n}")], "call": call(n), "item": [ITEM], "rule": [RULE]}
        items += made[kind]
    grown, new = (ullage.Guard("gpt-4o", window=10**5, dialect="openai_responses") for _ in "ab")
    grown.prepare(items[:cut])
    assert grown.prepare(items).prepared.count == new.prepare(items).prepared.count


def test_ciphertext_is_no_text():
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "QUJD" * 1000}
    found = ullage.count([ask("Go."), sealed], dialect="openai_responses", model="gpt-4o")
    bare = ullage.count([ask("Go.")], dialect="openai_responses", model="gpt-4o")
    assert found.low - bare.low < 10
    assert 600 < found.tokens - bare.tokens < 1000
    assert found.high - bare.high < 1600


# ── what is compacted ───────────────────────────────────────────────────────────────────────────


def test_what_is_before_it_goes_first_and_no_block_stands_for_it():
    rule = ask("Rule: the budget is 4,711 euros, never more.")
    items = [ask("Go."), *call(0), rule, *call(1), ITEM, *calls(2, 12), ask("And now?")]
    made = ullage.compact(items, dialect="openai_responses", target_tokens=1200)
    assert made.reached
    assert "replaced" in made.strategy
    assert rule not in made.messages
    assert "4,711" not in str(made.messages)
    assert ITEM in made.messages
    before = made.messages[: made.messages.index(ITEM)]
    assert before == [ask("Go.")]


def test_it_is_pinned_and_never_compacted_a_second_time():
    big = {**ITEM, "encrypted_content": "QUJD" * 2000}
    items = [ask("Go."), *call(0), big, *calls(1, 6), ask("And now?")]
    made = ullage.compact(items, dialect="openai_responses", target_tokens=200)
    assert not made.reached
    assert big in made.messages
    assert plainly(made.obstacle or "")


def test_its_text_can_be_read():
    message = Anthropic().read([ask("x"), block("The budget is 4,711 euros.")]).messages[1]
    assert message.text == "The budget is 4,711 euros."


def test_a_plan_cannot_shorten_it():
    def plan(situation: Any) -> Any:
        return Script.of([Clear(1, 0, -1, "short")])

    history = [ask("Go."), block(PAGE), ask(PAGE), block(PAGE), ask("On.")]
    policy = ullage.Policy(rungs=(ullage.Rung(0.1, 0.05, (ullage.Strategy("mine", plan),)),))
    made = ullage.compact(history, policy=policy, dialect="anthropic", target_tokens=50)
    assert any("of kind 'compaction'" in flaw for flaw in made.flaws)


# ── laws ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", [Anthropic(), OpenAIResponses()])
def test_it_may_open_a_history(codec: Any):
    first = [block("What was said.")] if isinstance(codec, Anthropic) else [ITEM]
    found = codec.read([*first, ask("Go on.")])
    assert laws.protocol(found) == []
    assert repair(found, codec).repairs == ()


def test_a_repair_elsewhere_puts_nothing_in_front_of_it():
    orphan = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    history = [block("What was said."), {"role": "user", "content": [orphan]}, ask("Go on.")]
    codec = Anthropic()
    mended = repair(codec.read(history), codec)
    assert [r.fault for r in mended.repairs] == ["orphan_result"]
    assert mended.messages[0] == history[0]


def test_it_is_no_part_of_the_calls_behind_it():
    found = read([ask("Go."), ITEM, *call(0)])
    assert [*laws.units(found)] == [range(1), range(1, 2), range(2, 4)]

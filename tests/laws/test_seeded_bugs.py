"""A bug seeded into the planner, one for each law, is found: at run time or by the law's test.

Laws 1 to 5 are proven on every result, so a seeded strategy must end in `law_broken` (or
`would_inflate`) with nothing changed. Laws 6 to 9 are properties of the planner: the comparison
that `test_laws_hold` and `test_chains_hold` make must differ.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ullage
from tests.laws import test_chains_hold as chains_hold
from tests.support.transcripts import anthropic, responses
from ullage.core.compaction import block as carried
from ullage.core.compaction import draft, laws
from ullage.core.compaction.block import Carried, gather
from ullage.core.compaction.draft import PlanDraft
from ullage.core.compaction.edits import Clear, Drop, Edited, Script, apply, reference
from ullage.core.compaction.packing import SaidWords
from ullage.core.compaction.policy import DETERMINISTIC
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies import trim_oldest as trim
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.messages.transcript import SUMMARY_MARK, summarises

Plan = Callable[[Situation], Script]


def history(steps: int = 30) -> list[dict[str, Any]]:
    """Return an autonomous run: one task, then steps of two parallel calls."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Find the leak and mend it."},
    ]
    for step in range(steps):
        names = [f"c{step}a", f"c{step}b"]
        calls = [
            {
                "id": n,
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a"}'},
            }
            for n in names
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": n, "content": f"line {step} of output " * 30}
            for n in names
        ]
    return messages


def half(strategy: Plan, monkeypatch: pytest.MonkeyPatch) -> ullage.Compaction:
    """Compact to half with this strategy and no other."""
    monkeypatch.setattr(draft, "find_flaw", lambda *_: None)  # the laws alone have to see it
    monkeypatch.setattr(draft, "find_growth", lambda *_: None)
    return ullage.compact(history(), target_tokens=1500, model="gpt-4o", policy=seeded(strategy))


def seeded(strategy: Plan) -> ullage.Policy:
    """Return a policy with this strategy alone."""
    rung = ullage.Rung(0.8, 0.6, (ullage.Strategy("seeded", strategy),))
    return ullage.Policy(name="seeded", rungs=(rung,))


def test_the_planner_without_a_bug_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert half(trim.plan, monkeypatch).reached


def test_law_1_a_response_dropped_without_its_results_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def responses_only(situation: Situation) -> Script:
        calls = {i for i, m in enumerate(situation.transcript.messages) if m.calls}
        return Script(trim.plan(situation).drops & calls)

    made = half(responses_only, monkeypatch)
    assert made.reason == "law_broken"
    assert made.violations[0].law == "protocol"
    assert made.messages == history()


@pytest.mark.parametrize("write", [responses, anthropic])
@pytest.mark.parametrize("kind", ["calls", "results"])
def test_law_1_half_a_unit_of_another_dialect_dropped_is_found(
    write: Callable[[list[Any]], list[Any]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(situation: Situation) -> Script:
        messages = situation.transcript.messages
        half_of = {i for i, m in enumerate(messages) if getattr(m, kind)}
        return Script(trim.plan(situation).drops & half_of)

    monkeypatch.setattr(draft, "find_flaw", lambda *_: None)
    raws = write(history())
    made = ullage.compact(raws, target_tokens=1500, model="gpt-4o", policy=seeded(torn))
    assert (made.reason, made.messages) == ("law_broken", raws)
    assert made.violations[0].law == "protocol"


def test_law_2_a_placeholder_longer_than_the_text_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def inflate(situation: Situation) -> Script:
        return Script.of([Clear(4, 0, -1, "so much more " * 3000)])

    made = half(inflate, monkeypatch)
    assert (made.reason, made.changed) == ("would_inflate", False)
    assert laws.prove_size(10, 10, None, reached=False)[0].law == "smaller"


def test_law_3_a_result_over_the_target_that_claims_to_fit_is_found() -> None:
    assert [v.law for v in laws.prove_size(100, 60, 50, reached=True)] == ["fits"]
    assert laws.prove_size(100, 50, 50, reached=True) == []


@pytest.mark.parametrize("pinned", [0, 1])
def test_law_4_a_dropped_pin_is_found(pinned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(situation: Situation) -> Script:
        return trim.plan(situation) | Script(frozenset({pinned}))

    made = half(greedy, monkeypatch)
    assert made.reason == "law_broken"
    assert "pins" in {v.law for v in made.violations}


def test_law_4_a_rewritten_pin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def reword(situation: Situation) -> Script:
        return trim.plan(situation) | Script.of([Clear(0, 0, -1, "You are.")])

    made = half(reword, monkeypatch)
    assert {v.law for v in made.violations} == {"pins"}


def test_law_5_a_copied_message_is_found() -> None:
    codec = OpenAIChat()
    before = codec.read(history(2))
    script = Script.of([Drop(5), Drop(6), Drop(7)])
    edited = apply(before, script, codec)
    assert laws.prove(before, script, edited, {0, 1}) == []
    copies = replace(edited.transcript, raws=tuple(dict(m) for m in edited.transcript.raws))
    found = laws.prove(before, script, Edited(copies, edited.origin), {0, 1})
    assert {v.law for v in found} == {"untouched"}


def test_law_6_a_strategy_that_shrinks_each_time_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def halve(situation: Situation) -> Script:
        text = situation.transcript.messages[4].parts[0].text
        return Script.of([Clear(4, 0, -1, text[: len(text) // 2])])

    first = half(halve, monkeypatch)
    again = ullage.compact(first.messages, target_tokens=1500, model="gpt-4o")
    assert again.messages != first.messages


def test_law_7_a_strategy_with_a_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = itertools.count()

    def moody(situation: Situation) -> Script:
        mood = Clear(len(history()) - 1, 0, -1, f"run {next(runs)}")
        return trim.plan(situation) | Script.of([mood])

    assert half(moody, monkeypatch).messages != half(moody, monkeypatch).messages


# --- laws 8 and 9, as test_chains_hold judges them ------------------------------------------------

PARTS = [[{"role": "user", "content": f"part {n}"}] for n in range(3)]
PLAN = chains_hold.Plan(0.5, DETERMINISTIC, None, {"carry": 0.9})


def law_8() -> None:
    """Judge a chain as law 8 does: a cleared result, and a block."""
    parts = [[*part, *_steps(n), *chains_hold.padding(n)] for n, part in enumerate(PARTS)]
    for ratio in (0.9, 0.4):
        plans = [replace(PLAN, ratio=ratio)] * 3
        chains_hold.check_law_8(CHAT, chains_hold.chained(CHAT, parts, plans))


def _steps(part: int) -> list[dict[str, Any]]:
    """Return two steps with long results and call ids of their own."""
    text = json.dumps(history(2)[2:])
    return [
        {**m, "content": m["content"] * 4} if m["role"] == "tool" else m
        for m in json.loads(re.sub(r'"c(\d)', rf'"p{part}c\1', text))
    ]


def law_9() -> None:
    chains_hold.survived(CHAT, PARTS, [PLAN] * 3)


CHAT = chains_hold.CHAT


def test_laws_8_and_9_hold_without_a_bug() -> None:
    law_8()
    law_9()


def test_law_8_a_name_of_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def misnamed(self: Situation, mark: str, text: str) -> str:
        return f"{mark[:-1]}; recall {reference(text[1:])}]"

    monkeypatch.setattr(Situation, "referring", misnamed)
    with pytest.raises((AssertionError, KeyError)):
        law_8()


def test_law_8_an_original_that_was_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanDraft, "name_originals", lambda *_: {})
    with pytest.raises((AssertionError, KeyError)):
        law_8()


def test_law_8_a_placeholder_that_names_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Situation, "referring", lambda self, mark, text: mark)
    with pytest.raises((AssertionError, ValueError)):
        law_8()


@pytest.mark.parametrize("lost", ["constraints", "files"])
def test_law_9_a_block_that_forgets_is_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(messages: Any, *_: Any, **__: Any) -> Carried:
        kept = gather(messages)
        return replace(kept, facts=replace(kept.facts, **{lost: ()}), words=SaidWords())

    monkeypatch.setattr(carried, "gather", forgetful)
    with pytest.raises(AssertionError):
        law_9()


def test_law_9_a_block_that_is_not_taken_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_new_ones(messages: Any, *_: Any, **__: Any) -> Carried:
        return gather([m for m in messages if not summarises(m)])

    monkeypatch.setattr(carried, "gather", of_the_new_ones)
    with pytest.raises(AssertionError):
        law_9()


def test_law_9_a_block_with_what_a_tool_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def telling(kept: Carried, tokens: int, *_: Any, **__: Any) -> carried.Block:
        return carried.Block(SUMMARY_MARK + "1 earlier messages]\n" + "never stop " * 200)

    monkeypatch.setattr(carried, "write_block", telling)
    with pytest.raises(AssertionError):
        chains_hold.bounded(
            CHAT, PARTS, [chains_hold.Plan(0.5, ("trim_oldest",), None, {})] * 3, 9_000
        )

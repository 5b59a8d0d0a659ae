"""Knowledge goes first: oldest first, never what must stay, results cleared and not dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.compaction.situations import (
    CODEC,
    said,
    situation,
    situations,
    tool_step,
    total_after,
    words,
)
from tests.core.compaction.test_plan import run
from ullage.core.compaction import laws
from ullage.core.compaction.edits import Clear, Drop, Edit, Script, apply, reference
from ullage.core.compaction.plan import Order
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategies import knowledge

Held = tuple[Situation, frozenset[int]]


def planned(held: Held) -> tuple[Edit, ...]:
    found, places = held
    return knowledge.leave_out(places).plan(found).edits()


def held(raws: list[dict[str, Any]], target: int, *places: int, pins: Any = ()) -> Held:
    return situation(raws, target, pins=frozenset(pins)), frozenset(places)


DOCS = [said("user", "Mend it."), *(said("user", words(50, f"doc{n}")) for n in range(4))]


def test_a_situation_on_target_loses_nothing() -> None:
    assert planned(held(DOCS, 10_000, 1, 2, 3)) == ()


def test_the_oldest_goes_first_and_no_more_than_must() -> None:
    whole = situation(DOCS, 0).total
    assert planned(held(DOCS, whole - 1, 3, 2, 1)) == (Drop(1),)
    assert planned(held(DOCS, whole - 60, 3, 2, 1)) == (Drop(1), Drop(2))
    assert planned(held(DOCS, 0, 3, 2, 1)) == (Drop(1), Drop(2), Drop(3))


def test_what_is_pinned_stays() -> None:
    assert planned(held(DOCS, 0, 1, 2, 3, pins=[2])) == (Drop(1), Drop(3))


def test_a_result_is_cleared_and_its_call_keeps_it() -> None:
    raws = [said("user", "Look it up."), *tool_step("a", words(80)), said("user", "So?")]
    found, places = held(raws, 0, 1, 2)
    (edit,) = planned((found, places))
    assert isinstance(edit, Clear)
    assert (edit.message, edit.part, edit.text) == (2, 0, knowledge.MARK.format(tokens=80))
    edited = apply(found.transcript, Script.of([edit]), CODEC)
    assert laws.protocol(edited.transcript) == []
    again = replace(found, transcript=edited.transcript)
    assert planned((again, places)) == ()


def test_a_result_smaller_than_its_mark_is_left() -> None:
    raws = [said("user", "Look it up."), *tool_step("a", "none"), said("user", "So?")]
    assert planned(held(raws, 0, 2)) == ()


@st.composite
def marked(draw: st.DrawFn) -> Held:
    found = draw(situations())
    places = st.integers(0, len(found.transcript) - 1)
    return found, draw(st.frozensets(places))


@given(marked())
def test_nothing_but_knowledge_goes_and_the_protocol_holds(case: Held) -> None:
    (found, places), edits = case, planned(case)
    touched = [e.message for e in edits if isinstance(e, Drop | Clear)]
    assert len(touched) == len(edits)
    assert set(touched) <= places - found.pins
    edited = apply(found.transcript, Script.of(edits), CODEC)
    assert laws.protocol(edited.transcript) == []
    dropped = {e.message for e in edits if isinstance(e, Drop)}
    for index in dropped:
        assert not found.transcript.messages[index].calls
    assert total_after(found, edits) <= found.total
    if found.total <= found.target:
        assert edits == ()


# --- in a compaction ------------------------------------------------------------------------------


def talked(turns: int = 10) -> list[dict[str, Any]]:
    said_so = [said(role, words(40, f"turn{n}")) for n in range(turns) for role in ROLES]
    return [
        said("system", "Be brief."),
        said("user", "The task."),
        *said_so,
        said("user", "Go on."),
    ]


ROLES = ("assistant", "user")


def test_knowledge_goes_before_any_of_the_conversation() -> None:
    raws = talked()
    places = frozenset({5, 7, 9, 11})
    whole = situation(raws, 0).total
    made = run(
        raws, Order(whole - 100, 50, ("clear", "trim_oldest"), first=(knowledge.leave_out(places),))
    )
    assert (made.reached, made.strategy) == (True, "knowledge")
    assert made.script.drops == {5, 7, 9}


def test_conversation_goes_when_knowledge_is_not_enough() -> None:
    raws = talked()
    made = run(
        raws,
        Order(300, 50, ("clear", "trim_oldest"), first=(knowledge.leave_out(frozenset({21})),)),
    )
    assert made.reached
    assert made.strategy.startswith("knowledge+")
    assert 21 in made.script.drops


def test_operator_text_task_and_request_stay_though_marked() -> None:
    raws = talked()
    everything = frozenset(range(len(raws)))
    order = Order(1, 0, (), first=(knowledge.leave_out(everything, 10_000),))
    made = run(raws, order)
    assert made.edited.origin == (0, 1, len(raws) - 1)


def test_alone_nothing_else_is_touched_even_where_it_does_not_fit() -> None:
    raws = [*talked(), said("assistant", words(2_000)), said("user", "And?")]
    made = run(raws, Order(10, 0, (), first=(knowledge.leave_out(frozenset({4}), 10),)))
    assert made.script.drops == {4}
    assert not made.script.clears
    assert (made.reached, made.reason) == (False, "cannot_compact")


def test_the_surplus_goes_also_where_the_target_asks_for_less() -> None:
    raws = talked()
    whole = situation(raws, 0).total
    places = frozenset({5, 7, 9})
    order = Order(whole - 1, 50, ("clear",), first=(knowledge.leave_out(places, 100),))
    assert run(raws, order).script.drops == {5, 7, 9}


def test_a_rule_in_a_document_is_not_the_users_word() -> None:
    raws = talked()
    raws[5] = said("user", "Never delete this text. " + words(80))
    made = run(raws, Order(400, 0, ("trim_oldest",), first=(knowledge.leave_out(frozenset({5})),)))
    assert 5 in made.script.drops
    assert "summary of" in made.block
    assert "Never delete" not in made.block
    kept = run(raws, Order(400, 0, ("trim_oldest",)))
    assert any("Never delete this text." in m.text for m in kept.edited.transcript.messages)


def test_a_clear_of_knowledge_names_what_can_be_read_back() -> None:
    raws = [said("user", "Look it up."), *tool_step("a", words(80)), said("user", "So?")]
    found, places = held(raws, 0, 1, 2)
    (edit,) = planned((replace(found, name_of=reference), places))
    assert isinstance(edit, Clear)
    assert edit.text == f"[ullage: knowledge left out, 80 tokens; recall {reference(words(80))}]"

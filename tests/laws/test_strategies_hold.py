"""The laws hold for every strategy that there is, alone: those of the package and a user's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.core.compaction.test_plan import run
from tests.support.transcripts import histories
from ullage.core.compaction import laws, strategies
from ullage.core.compaction.edits import Clear, Drop, Insert, Script
from ullage.core.compaction.plan import Order
from ullage.core.compaction.policy import Rung
from ullage.core.compaction.situation import Situation
from ullage.core.compaction.strategy import Strategy
from ullage.core.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "ullage" / "core" / "compaction" / "strategies"
OUTSIDE = {"knowledge"}
"""Files whose strategy is made for positions that a caller names, and that no rung names."""


def recipe() -> Strategy:
    """Return the strategy of the recipe, as the page has it."""
    page = (ROOT / "docs" / "recipes" / "strategy.md").read_text("utf-8")
    (code, *_) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    made = names["traces"]
    assert isinstance(made, Strategy)
    return made


EVERY = [*map(strategies.find, strategies.FILES), recipe()]


def test_every_file_is_registered() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files == {*strategies.FILES, *OUTSIDE}


@pytest.mark.parametrize("name", strategies.FILES)
def test_a_strategy_is_called_as_its_file_is(name: str) -> None:
    found = strategies.find(name)
    assert found.name == name
    assert found.prose is strategies.wants_prose(name)
    assert strategies.find(found) is found


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
@given(history=histories(max_turns=4), ratio=st.floats(0.05, 0.95))
def test_a_strategy_alone_keeps_every_law(
    strategy: Strategy, history: list[Any], ratio: float
) -> None:
    whole = run(history, Order(10**9, 0, (strategy,))).before.high
    target = max(int(whole * ratio), 1)
    made = run(history, Order(target, target // 4, (strategy,), named=True))
    assert made.flaws == ()
    assert made.violations == ()
    if not made.changed:
        assert made.edited.transcript.raws == tuple(history)
        return
    assert made.was is not None
    assert made.after.high < made.before.high
    assert laws.prove(made.was, made.script, made.edited, frozenset(), frozenset()) == []
    again = run(
        list(made.edited.transcript.raws), Order(target, target // 4, (strategy,), named=True)
    )
    if made.reached:
        assert not again.changed
    same = run(history, Order(target, target // 4, (strategy,), named=True))
    assert same.script == made.script


# --- a strategy that is wrong ---------------------------------------------------------------------


def talk(turns: int = 30) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "user", "content": "The task."}]
    for n in range(turns):
        made.append({"role": "assistant", "content": f"answer {n} " * 20})
        made.append({"role": "user", "content": f"question {n} " * 20})
    return made


def _raise(_: Situation) -> Script:
    raise KeyError("lost")


WRONG: list[tuple[Callable[[Situation], Any], str]] = [
    (_raise, "raised KeyError: 'lost'"),
    (lambda _: None, "returned NoneType: a plan returns a Script"),
    (lambda _: Script(inserts=(Insert(1, "user", "hi"),)), "inserts messages"),
    (lambda _: Script.of([Clear(10**6, 0, -1, "x")]), "shortens message 1000000"),
    (lambda _: Script.of([Clear(1, 7, -1, "x")]), "shortens a part that message 1 does not have"),
    (lambda _: Script.of([Clear(1, -1, 3, "x")]), "shortens a part that message 1 does not have"),
    (lambda _: Script.of([Clear(1, -1, -1, "x")]), "shortens a part that message 1 does not have"),
    (lambda _: Script.of([Clear(1, 0, -2, "x")]), "shortens a part that message 1 does not have"),
    (lambda _: Script.of([Clear(1, 0, -1, None)]), "has the edit Clear(message=1, part=0, call=-1"),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script.of([Clear("1", 0, -1, "x")]), "has the edit Clear(message='1'"),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script(clears=("x",)), "has the edit 'x'"),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script(clears=[Clear(1, 0, -1, "x")]), "has clears [Clear("),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script(drops=[3]), "has drops [3]"),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script(drops=frozenset({"a"})), "has drops frozenset({'a'})"),  # type: ignore[arg-type]  # a wrong plan
    (lambda _: Script(clears=(Clear(1, 0, -1, "x"), Clear(1, 0, -1, "y"))), "edits a text twice"),
    (lambda _: Script(frozenset({1}), (Clear(1, 0, -1, "x"),)), "edits a text twice, or one that"),
    (lambda _: Script.of([Clear(1, 0, -1, " ")]), "puts an empty text into message 1"),
    (lambda s: Script.of([Clear(len(s.sizes) - 1, 0, -1, "x")]), "shortens message 60, which is"),
    (lambda _: Script.of([Clear(59, 0, -1, "more " * 999)]), "makes the request larger: "),
    (lambda _: Script.of([Clear(5, 0, -1, "x")]), "shortens message 5, which is pinned"),
    (lambda _: Script.of([Drop(10**6)]), "leaves out a part of a unit"),
    (lambda _: Script.of([Drop(0)]), "leaves out message 0, which must stay"),
]


@pytest.mark.parametrize(("plan", "flaw"), WRONG, ids=[flaw for _, flaw in WRONG])
def test_the_next_strategy_runs_where_one_is_wrong(plan: Any, flaw: str) -> None:
    mine = Strategy("mine", plan)
    made = run(talk(), Order(900, 200, (mine, "trim_oldest"), pins=frozenset({5})))
    assert made.reached
    assert made.strategy == "trim_oldest"
    (said,) = made.flaws
    assert said.startswith(f"strategy mine {flaw}")


def work() -> list[dict[str, Any]]:
    """Return a talk with operator text, a call and reasoning at its end."""
    function = {"name": "run", "arguments": '{"command": "make"}'}
    call = {"id": "c1", "type": "function", "function": function}
    end = {"role": "assistant", "content": None, "reasoning": "Hm, so.", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "done " * 9}
    return [{"role": "system", "content": "Be brief."}, *talk(), end, result]


PLACES: list[tuple[Clear, str]] = [
    (Clear(0, 0, -1, "x"), "shortens message 0, which is pinned"),
    (Clear(62, 0, -1, "x"), "shortens a part of kind 'reasoning' in message 62"),
    (Clear(62, -1, 0, "not JSON"), "puts 'not JSON' for the arguments of a call"),
    (Clear(62, -1, 0, "[" * 99_999), "puts '[[[[[["),
    (Clear(62, -1, 0, "7"), "puts '7' for the arguments of a call: give a JSON object"),
]


@pytest.mark.parametrize(("edit", "flaw"), PLACES, ids=[flaw for _, flaw in PLACES])
def test_what_no_provider_would_take_is_never_sent(edit: Clear, flaw: str) -> None:
    rung = ullage.Rung(0.5, 0.4, (Strategy("mine", lambda _: Script.of([edit])), "trim_oldest"))
    told: list[Any] = []
    policy = ullage.Policy(rungs=(rung,))
    guard = ullage.Guard("gpt-4o", window=3_000, policy=policy, on_event=told.append)
    history = work()
    history[1] = {"role": "user", "content": flaw}  # a history of its own: stores are shared
    sent = guard.prepare(history).messages
    assert len(sent) < len(history)
    assert (sent[0], *sent[-2:]) == (history[0], *history[-2:])
    notices = [event.text for event in told if isinstance(event, ullage.events.Notice)]
    assert any(text.startswith(f"strategy mine {flaw}") for text in notices)


def test_lawful_edits_of_ones_own_are_made() -> None:
    edits = [
        Clear(1, 0, -1, "The job."),  # the task may be shortened, where it is no pin
        Clear(62, -1, 0, "{}"),
        Clear(63, 0, -1, "ok"),
    ]
    mine = Strategy("mine", lambda _: Script.of(edits), drops=False)
    made = run(work(), Order(1_500, 200, (mine, "trim_oldest")))
    assert (made.flaws, made.strategy) == ((), "mine+trim_oldest")
    assert made.script.clears == tuple(edits)


def test_an_edit_of_what_is_left_out_already_frees_nothing() -> None:
    def gone(_: Situation) -> Script:
        return Script.of([Clear(3, 0, -1, "x")])

    order = ("trim_oldest", Strategy("mine", gone, always=True), "clear")
    made = run(talk(), Order(900, 200, order))
    assert (made.flaws, made.reached) == ((), True)
    first = Strategy("first", lambda _: Script.of([Drop(3)]))
    again = Strategy("again", gone)
    made = run(talk(), Order(900, 200, ("trim_oldest",), first=(first, again)))
    assert (made.flaws, made.reached) == ((), True)
    assert (
        made.edited.transcript.raws
        == run(talk(), Order(900, 200, ("trim_oldest",), first=(first,))).edited.transcript.raws
    )


def test_what_is_wrong_is_told_once_however_often_it_runs() -> None:
    made = run(talk(), Order(60, 200, (Strategy("mine", _raise), "trim_oldest")))
    assert made.flaws == ("strategy mine raised KeyError: 'lost'",)


def test_a_guard_tells_of_a_strategy_that_is_wrong() -> None:
    told: list[Any] = []
    rung = ullage.Rung(0.5, 0.4, (ullage.Strategy("mine", _raise), "trim_oldest"))
    policy = ullage.Policy(rungs=(rung,))
    guard = ullage.Guard("gpt-4o", window=2_000, policy=policy, on_event=told.append)
    assert len(guard.prepare(talk()).messages) < len(talk())
    notices = [event.text for event in told if isinstance(event, ullage.events.Notice)]
    assert "strategy mine raised KeyError: 'lost'" in notices
    made = ullage.compact(talk(), target_tokens=900, policy=policy)
    assert made.flaws == ("strategy mine raised KeyError: 'lost'",)


def _generator(_: Situation) -> Any:
    yield Script()


class Calling:
    """A plan that is an object."""

    def twice(self, _: Situation, __: Situation) -> Script:
        return Script()

    def __call__(self, _: Situation) -> Script:
        return Script()

    def method(self, _: Situation) -> Script:
        return Script()


def _none() -> Script:
    return Script()


def _two(_: Situation, __: int) -> Script:
    return Script()


async def _async(_: Situation) -> Script:
    return Script()


@pytest.mark.parametrize(
    ("name", "plan", "words"),
    [
        ("", len, "give a word"),
        ("a+b", len, "without '+'"),
        ("mine", None, "the plan of the strategy 'mine' is None"),
        ("mine", "clear", "give a function of a Situation"),
        ("mine", _two, "cannot be called with one argument (missing a required argument"),
        ("mine", _none, "cannot be called with one argument (too many positional arguments)"),
        ("mine", partial(_none), "cannot be called with one argument"),
        ("mine", Calling().twice, "cannot be called with one argument"),
        ("mine", _generator, "is async or a generator"),
        ("mine", _async, "is async"),
    ],
)
def test_half_a_strategy_is_refused_when_it_is_made(name: str, plan: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        Strategy(name, plan)


@pytest.mark.parametrize("plan", [Calling(), Calling().method, lambda *_: Script(), len, max])
def test_whatever_can_be_called_with_a_situation_is_a_plan(plan: Any) -> None:
    assert repr(Strategy("mine", plan)) == "Strategy('mine')"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("claer",), "did you mean 'clear'?"),
        ((7,), "unknown strategy 7: known are clear"),
        (("clear", "clear"), "the strategy 'clear' is in one rung twice"),
        ("clear", "give a tuple of them"),
        (("knowledge",), "unknown strategy 'knowledge'"),
    ],
)
def test_a_rung_refuses_strategies_that_there_are_not(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        Rung(0.8, 0.6, given)


def test_a_rung_takes_a_list_and_names_values_among_names() -> None:
    mine = Strategy("mine", Calling())
    rung = Rung(0.8, 0.6, [mine, "clear"])  # type: ignore[arg-type]  # a list will do
    assert rung.strategies == (mine, "clear")
    assert not rung.summarises
    assert replace(rung, strategies=(replace(mine, prose=True),)).summarises
    assert "0.8 to 0.6 mine+clear" in repr(ullage.Policy(rungs=(rung,)))


def test_a_strategy_that_always_runs_does_so_where_the_target_is_met_without_it() -> None:
    seen: list[int] = []

    def watch(situation: Situation) -> Script:
        seen.append(situation.total - situation.target)
        return Script()

    run(talk(), Order(900, 200, ("trim_oldest", Strategy("mine", watch))))
    assert all(over > 0 for over in seen)
    seen.clear()
    run(talk(), Order(900, 200, ("trim_oldest", Strategy("mine", watch, always=True))))
    assert any(over <= 0 for over in seen)


SECRET = "s3cr3t-Wombat-77"


def _hide(situation: Situation) -> Script:
    """Put a mark in the place of each text with the secret in it."""
    return Script.of(
        Clear(index, part, -1, piece.text.replace(SECRET, "(hidden)"))
        for index, message in enumerate(situation.transcript.messages)
        for part, piece in enumerate(message.parts)
        if SECRET in piece.text and (index == 0 or index not in situation.pins)
    )


ORDERS = [
    ("hide", "clear", "trim_oldest"),
    ("clear", "hide", "trim_oldest"),
    ("hide", "summarise_middle"),
    ("hide", "excerpt", "trim_oldest"),
]


@pytest.mark.parametrize("target", range(300, 1_501, 200))
@pytest.mark.parametrize("carry", [0.0, 1.0])
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
@pytest.mark.parametrize("drops", [False, True])
def test_what_a_strategy_hides_comes_back_nowhere(
    target: int, carry: float, order: tuple[str, ...], *, drops: bool
) -> None:
    history = talk()
    history[0]["content"] += f" The task has it, too: {SECRET}. " + "And so on. " * 60
    for place in (4, 22, 40, 58):
        said = f"The password of the staging server is {SECRET}, never share it with support."
        history[place] = {"role": "user", "content": said}
    result = f"password: {SECRET}\n" * 3 + "line of a log\n" * 40
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    history[30:30] = [asked, {"role": "tool", "tool_call_id": "c1", "content": result}]
    mine = Strategy("hide", _hide, drops=drops, always=True)
    runs = tuple(mine if name == "hide" else name for name in order)
    made = run(history, Order(target, 200, runs, carry=carry))
    assert (made.flaws, made.changed) == ((), True)
    assert SECRET not in json.dumps(made.edited.transcript.raws)


def test_a_strategy_of_ones_own_has_a_name_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="is named 'clear', as one of the package is"):
        Rung(0.8, 0.6, (Strategy("clear", _hide),))
    assert Rung(0.8, 0.6, (strategies.find("clear"),)).strategies

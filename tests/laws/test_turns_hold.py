"""What is compacted for a template whose roles alternate is rendered by it, whatever was said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.guard.driving import World, setup, window
from tests.laws import judge
from tests.support.templates import STRICT, TOOLS, Refused, render
from tests.support.transcripts import histories
from ullage.core.errors import ContextTooLargeError
from ullage.core.guard import machine as guard
from ullage.core.guard.request import Request


def turns(steps: list[tuple[int, bool]], *, tools: bool) -> list[dict[str, Any]]:
    """Return a history that a strict template takes: so many words a turn, some with a call."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for n, (words, calls) in enumerate(steps):
        history.append({"role": "user", "content": f"question {n} " + "q " * words})
        if tools and calls:
            function = {"name": "look", "arguments": "{}"}
            call = {"id": f"c{n}", "type": "function", "function": function}
            history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            text = f"found {n} " + "r " * words
            history.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
        history.append({"role": "assistant", "content": f"answer {n} " + "a " * words})
    return [*history, {"role": "user", "content": "and now?"}]


STEPS = st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=6, max_size=40)


@pytest.mark.parametrize(("template", "tools"), [(STRICT, False), (TOOLS, False), (TOOLS, True)])
@given(steps=STEPS, bound=st.integers(500, 1500), pins=st.sets(st.integers(1, 12), max_size=2))
def test_no_compaction_breaks_the_turns(
    template: str, tools: bool, steps: list[tuple[int, bool]], bound: int, pins: set[int]
) -> None:
    history, given = turns(steps, tools=tools), setup(alternates=True)
    render(template, history)
    try:
        request = Request(history, pins=frozenset(p for p in pins if p < len(history)))
        made = World(window(bound)).drive(guard.prepare(given, request))
    except ContextTooLargeError:
        return
    prompt = render(template, made.messages)
    assert "and now?" in prompt
    assert not judge.pairing_faults(made.messages)
    again = World(window(bound)).drive(guard.prepare(given, request))
    assert again.messages == made.messages


@given(histories(max_turns=12), st.integers(300, 3000))
def test_any_lawful_history_is_rendered(history: list[Any], bound: int) -> None:
    operator = [m for m in history if m["role"] in ("system", "developer")]
    said = [m for m in history if m not in operator]
    try:
        given, asked = setup(alternates=True), Request([*operator[:1], *said])
        made = World(window(bound)).drive(guard.prepare(given, asked))
    except ContextTooLargeError:
        return
    render(TOOLS, [{**m, "role": "system"} if m in operator else m for m in made.messages])


def test_without_it_the_first_compaction_is_refused() -> None:
    history = turns([(20, False)] * 30, tools=False)
    made = World(window(1000)).drive(guard.prepare(setup(), Request(history)))
    with pytest.raises(Refused, match="must alternate"):
        render(STRICT, made.messages)

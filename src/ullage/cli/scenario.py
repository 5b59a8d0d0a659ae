"""The demo's scripted conversation: user messages, tool results, later questions.

It is pure data and a seeded generator, so that every run sends the same words. The module knows no
server and no guard.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

How = Literal["as a rule", "in passing", "in a tool result"]

SYSTEM: Final = (
    "You are the duty assistant of a small harbour. Answer in one or two short sentences. "
    "Use what the harbour log and the user told you."
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that is said once, early, and asked for much later.

    `value` is the text that must still be in the request (and, better, in the answer).
    """

    value: str
    told: str
    asked: str
    how: How

    @property
    def turn(self) -> int:
        """The turn in which it is said, from 1 on: one fact in each turn, from the second on."""
        return 2 + FACTS.index(self)


FACTS: Final[Sequence[Fact]] = (
    Fact(
        "heron-42",
        "Remember: the gate code word is heron-42.",
        "What is the gate code word?",
        "as a rule",
    ),
    Fact(
        "Mira Voss",
        "Important: the harbour master is Mira Voss.",
        "Who is the harbour master?",
        "as a rule",
    ),
    Fact(
        "channel 73",
        "Always call the pilot on channel 73.",
        "On which channel do we call the pilot?",
        "as a rule",
    ),
    Fact(
        "berth 9",
        "Never put a ferry at berth 9.",
        "Which berth must never get a ferry?",
        "as a rule",
    ),
    Fact(
        "red lantern",
        "By the way, the tug moored with a red lantern.",
        "Which lantern did the tug moor with?",
        "in passing",
    ),
    Fact(
        "4711",
        "The crane's last inspection had the number 4711.",
        "What was the crane's inspection number?",
        "in passing",
    ),
    Fact(
        "Q-815",
        "",
        "What was the invoice number in the first log sheet?",
        "in a tool result",
    ),
)

SHIPS: Final = ("Alma", "Borea", "Cygnet", "Dorada", "Elster", "Fulmar", "Gannet", "Halcyon")
CARGO: Final = ("timber", "grain", "salt", "cement", "herring", "coal", "wool", "machine parts")
ASKS: Final = (
    """The {ship} came in with {cargo} at {hour:02d}:{minute:02d} and wants a berth for {n} nights.
The agent says she draws {draft} metres and needs shore power. What should I tell the agent, and
which papers does the mate have to bring to the office before the night watch locks up?""",
    """The wind went round to the north and the {ship} is dragging her anchor a little. Her mate
asks for a second line and {n} fenders before the tide turns at {hour:02d}:{minute:02d}, and the
pilot boat is still out with the {cargo} barge. What do we do first, and whom do I wake?""",
    """The {ship} unloaded {n}0 tonnes of {cargo} and the scale shows {draft} tonnes more than the
papers. The customs officer comes at {hour:02d}:{minute:02d} and wants one clean line in the log,
signed by the foreman of the shift. How shall I write that down so that nobody is blamed?""",
    """Please plan the crane for the {ship}: {n} hours of {cargo}, starting at
{hour:02d}:{minute:02d}, with a break when the ferry passes and one man fewer than usual. The
owner pays for the idle time above {draft} hours. What is a sensible order of work?""",
)


@dataclass(frozen=True, slots=True)
class ScenarioTurn:
    """One turn: the messages added before the model answers, and the fact that is asked for."""

    messages: tuple[dict[str, Any], ...]
    asks: Fact | None = None


def script(turns: int, seed: int = 7) -> list[ScenarioTurn]:
    """Return `turns` turns: the first ones tell the facts, the last ones ask for them.

    Every third turn has a tool call with its result, some three times as long as a question.
    """
    draw = random.Random(seed)  # noqa: S311 - a script, not a secret
    last = turns - len(FACTS)
    told = {fact.turn - 1: fact for fact in FACTS}
    found = []
    for number in range(turns):
        if number >= last:
            fact = FACTS[number - last]
            found.append(ScenarioTurn(({"role": "user", "content": fact.asked},), fact))
            continue
        fact_now = told.get(number)
        text = _ask(draw)
        if fact_now is not None and fact_now.told:
            text = f"{fact_now.told} {text}"
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        sheet = fact_now is not None and fact_now.how == "in a tool result"
        if sheet or number % 3 == 2:
            invoice = fact_now.value if sheet and fact_now is not None else f"Q-{100 + number}"
            messages += _tool(draw, number, invoice)
        found.append(ScenarioTurn(tuple(messages)))
    return found


def _ask(draw: random.Random) -> str:
    return draw.choice(ASKS).format(
        ship=draw.choice(SHIPS),
        cargo=draw.choice(CARGO),
        hour=draw.randrange(24),
        minute=draw.randrange(60),
        n=draw.randrange(2, 9),
        draft=round(draw.uniform(1.5, 9.0), 1),
    )


def _tool(draw: random.Random, number: int, invoice: str) -> list[dict[str, Any]]:
    """Return a call of the harbour log and its result."""
    rows = [
        {
            "ship": draw.choice(SHIPS),
            "cargo": draw.choice(CARGO),
            "berth": draw.randrange(1, 9),
            "tonnes": draw.randrange(20, 900),
        }
        for _ in range(6)
    ]
    call = f"call_{number}"
    asked = {"name": "harbour_log", "arguments": json.dumps({"sheet": number})}
    result = json.dumps({"invoice": invoice, "rows": rows})
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": asked}],
        },
        {"role": "tool", "tool_call_id": call, "content": result},
    ]

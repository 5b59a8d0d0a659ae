"""A loop of 500 turns keeps a provider's cache: it is lost to compactions alone.

The cache is imitated by the published rule: it holds the last request, and what the next one reads
is the beginning that both have, message for message, in steps of 128 tokens (OpenAI, prompt
caching).
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

import ullage
from ullage.core.guard.events import CacheBust, Compacted, Event
from ullage.runtime import Runtime

TURNS = 500
STEP = 128
COUNT_LINE = "the cellar is dry and the casks are full; cask {n} holds {m} litres of wine. "


def grow(history: list[dict[str, Any]], turn: int) -> None:
    """Add what a turn of an agent adds: a question or a call with its result."""
    if turn % 5 == 0:
        history.append({"role": "user", "content": f"Look at cask {turn}, please."})
    function = {"name": "look", "arguments": json.dumps({"cask": turn})}
    call = {"id": f"c{turn}", "type": "function", "function": function}
    history.append({"role": "assistant", "content": None, "tool_calls": [call]})
    text = "".join(COUNT_LINE.format(n=turn, m=turn * 7 + line) for line in range(turn % 7 + 1))
    history.append({"role": "tool", "tool_call_id": f"c{turn}", "content": text})
    if turn % 5 == 4:
        history.append({"role": "assistant", "content": f"Cask {turn} is full."})


def read_cache(before: list[Any], now: list[Any]) -> int:
    """Return the tokens that a request reads from a cache that holds the one before it."""
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    held = int(ullage.count(now[:same], model="gpt-4o").tokens) if same else 0
    return held - held % STEP


def run(turns: int, edit: int | None = None) -> list[Event]:
    """Run a loop, observe every answer, and return what was told; `edit` changes the task then."""
    events: list[Event] = []
    guard = ullage.Guard("gpt-4o", window=6_000, runtime=Runtime(), on_event=events.append)
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You keep a cellar."},
        {"role": "user", "content": "Go through all casks, and never open cask 13."},
    ]
    before: list[Any] = []
    for turn in range(turns):
        grow(history, turn)
        if turn == edit:
            history[0] = {"role": "system", "content": "You keep two cellars."}
        view = guard.prepare(history)
        sent = view.messages
        total = int(ullage.count(sent, model="gpt-4o").tokens)
        used = {"prompt_tokens": total, "completion_tokens": 20}
        cached = {"prompt_tokens_details": {"cached_tokens": read_cache(before, sent)}}
        view.observe({"usage": {**used, **cached}})
        before = list(sent)
    return events


def test_a_loop_of_500_turns_loses_its_cache_to_compactions_alone() -> None:
    events = run(TURNS)
    made = [n for n, event in enumerate(events) if isinstance(event, Compacted)]
    assert len(made) > 5
    assert min(b - a for a, b in pairwise(made)) > 5  # events: none follows at once
    assert [event for event in events if isinstance(event, CacheBust)] == []


@pytest.mark.parametrize("turn", [20, 24])
def test_an_edit_of_the_beginning_is_told(turn: int) -> None:
    (found,) = [event for event in run(26, edit=turn) if isinstance(event, CacheBust)]
    assert found.kind == "edited"
    assert found.tokens > 1_024

"""A window that is compacted with every second answer is too small for the work: it is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ullage import Guard
from ullage.core.guard.events import Event, WindowCramped
from ullage.storage import MemoryStore


def work(window: int, result: int, turns: int = 24) -> tuple[int, list[WindowCramped], list[int]]:
    """Return how often an agent was compacted whose results have so many lines, and what it heard.

    The last are the windows that were said to be needed, for each request that told one.
    """
    heard: list[Event] = []
    guard = Guard("gpt-4o", window=window, store=MemoryStore(), on_event=heard.append)
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "Repair the export of invoices."},
    ]
    compacted, needed = 0, list[int]()
    for turn in range(turns):
        call = {"name": "bash", "arguments": json.dumps({"command": f"cat part-{turn}"})}
        asked = {"id": f"c{turn}", "type": "function", "function": call}
        lines = [f"row {turn}-{n} of the export has {turn * n} cents more" for n in range(result)]
        history += [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(lines)},
        ]
        prepared = guard.prepare(history, max_tokens=400).prepared
        compacted += prepared.checkpoint is not None
        needed += [prepared.cramped.needed] if prepared.cramped is not None else []
    return compacted, [event for event in heard if isinstance(event, WindowCramped)], needed


@pytest.mark.parametrize("lines", [110, 160, 260])
def test_a_window_that_is_compacted_with_each_second_answer_is_said_to_be_too_small(lines: int):
    compacted, told, needed = work(8_000, lines)
    assert compacted >= 8
    assert len(told) == 1
    assert "too small for the work" in told[0].text
    assert needed
    assert f"Serve a window of {needed[0]:,}" in told[0].text
    again, told, _ = work(needed[0], lines)
    assert told == []
    assert again <= compacted / 2


def test_a_window_in_which_compactions_last_is_not():
    compacted, told, needed = work(8_000, 30)
    assert compacted >= 2
    assert (told, needed) == ([], [])

"""After a compaction: what is asked for again is told once, kept for a while, and counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import ullage
from ullage.core.guard.events import CompactionFault, Event, WindowCramped
from ullage.runtime import Runtime

WINDOW = 8_000
RULE = "Never touch the accordion of the harbour museum before noon, whatever happens."


def step(n: int, path: str, words: int = 150) -> list[dict[str, Any]]:
    """Return the reading of a file, and what is in it."""
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    call = {"id": f"c{n}", "type": "function", "function": function}
    text = f"content of {path}: " + f"w{n} " * words
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": text},
    ]


class Talk:
    """A conversation that is prepared step by step, and what was told meanwhile."""

    def __init__(self, **options: Any) -> None:
        self.told: list[Event] = []
        options = {"window": WINDOW, "store": ullage.open_store("memory:"), **options}
        self.guard = ullage.Guard(
            "nobody's-model", runtime=Runtime(), on_event=self.told.append, **options
        )
        self.history: list[dict[str, Any]] = [
            {"role": "user", "content": "Find the leak in all of these files."}
        ]

    def go(self, *messages: dict[str, Any]) -> ullage.View:
        self.history += messages
        return self.guard.prepare(self.history)

    def fill(self, first: int = 0) -> int:
        """Read files until a compaction is made; return how many were read."""
        for n in range(first, first + 200):
            if self.go(*step(n, f"file{n}.py")).compaction is not None:
                return n
        raise AssertionError("nothing was compacted")

    @property
    def faults(self) -> list[CompactionFault]:
        return [event for event in self.told if isinstance(event, CompactionFault)]


def test_a_file_that_is_read_again_is_told_once():
    talk = Talk()
    last = talk.fill()
    assert talk.faults == []
    talk.go(*step(1_000, "file0.py"))
    talk.guard.prepare(talk.history)
    assert [(fault.kind, fault.label) for fault in talk.faults] == [("call", "read file0.py")]
    assert talk.faults[0].message == len(talk.history) - 2
    talk.go(*step(1_001, "new.py"))
    talk.go(*step(1_002, f"file{last}.py"))  # still there
    assert len(talk.faults) == 1


def test_what_was_asked_for_again_outlives_the_next_compaction():
    talk = Talk()
    talk.fill()
    talk.go(*step(1_000, "file0.py"), *step(1_001, "new.py"))
    for first in (300, 400, 500):
        talk.fill(first)
    sent = json.dumps(talk.guard.prepare(talk.history).messages)
    assert "w1000 w1000" in sent
    assert "w1001 w1001" not in sent


def test_what_was_asked_for_again_gives_way_where_it_does_not_fit():
    talk = Talk()
    talk.fill()
    talk.go(*step(1_000, "file0.py", 1_200))
    talk.fill(300)
    assert talk.guard.prepare(talk.history).assessment.tier != "overflow"


def test_a_rule_that_is_said_again_is_told():
    talk = Talk(policy=replace(ullage.Policy.ladder(), carry_share=0.0))
    talk.history[0]["content"] = "Find the leak."
    talk.go({"role": "assistant", "content": "Yes."}, {"role": "user", "content": RULE})
    for n in range(60):
        answer = {"role": "assistant", "content": f"file {n}: " + f"w{n} " * 150}
        talk.go(answer, {"role": "user", "content": f"And file {n + 1}?"})
    talk.go({"role": "assistant", "content": "Done."}, {"role": "user", "content": RULE})
    assert [fault.kind for fault in talk.faults] == ["said"]


def test_faults_are_counted_and_traced():
    metrics = ullage.metrics.Metrics("m")
    metrics.on_event(CompactionFault("call", "read a.py", 3))
    assert metrics.faults.value(kind="call") == 1


@pytest.mark.parametrize("window", [2_000])
def test_one_compaction_soon_after_another_goes_deeper_or_says_so(window: int):
    """Each step takes a quarter of the window: a compaction at every other one is refused."""
    talk = Talk(window=window)
    made = 0
    for n in range(40):
        made += talk.go(*step(n, f"file{n}.py", 170)).compaction is not None
    assert made <= 20 or any(isinstance(event, WindowCramped) for event in talk.told)

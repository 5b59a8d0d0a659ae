"""A session of 500 turns in which everything goes wrong in turn, and nothing that matters is lost.

The provider is a function, so that each fault comes when it is wanted: errors have the shape that
the SDKs give theirs. Every request is judged without the package's own code.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import ullage
from tests.laws import judge
from ullage import events
from ullage.guard.driver import Pause
from ullage.runtime import Runtime

TURNS = 500
WINDOW = 8_000
RULES = (
    "Never touch vault.py.",
    "From now on, every query goes to the replica db-4821.",
    "Keep each reply under 37 words.",
)
PINNED = "The launch code of the simulator is QX-77-ALBA, exactly as written."
FAULTS = (
    "none", "overflow", "cut", "reset", "stall", "rate limit", "no usage", "garbage",
    "server error", "media",
)  # fmt: skip


HELPLESS = ("stall", "rate limit", "server error", "media")
"""Faults that the guard need not mend (`media`: where no image is left that may go). After each
other one, whichever were drawn, the turn is answered."""


class RefusedError(Exception):
    """An error response, as the SDKs raise it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status_code = status
        self.body = {"error": {"message": message, "code": code, "type": "invalid_request_error"}}


@dataclass
class Rough:
    """A provider with a window of its own, which fails on demand and judges what it is sent."""

    rng: random.Random
    fault: str = "none"
    calls: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    must: list[str] = field(default_factory=list)
    bound: Callable[[], int | None] = lambda: WINDOW

    def create(self, messages: list[Any], max_tokens: int | None = None, **_: Any) -> Any:
        self.calls += 1
        size = judge.size(messages)
        assert size <= (self.bound() or 0)
        assert judge.pairing_faults(messages) == []
        said = json.dumps(messages, ensure_ascii=False)
        assert [fact for fact in self.must if fact not in said] == []
        fault, self.fault = self.fault, "none"
        self.failed[fault] += 1
        if fault == "overflow":
            limit = WINDOW - 500
            raise RefusedError(
                400,
                f"This model's maximum context length is {limit} tokens. However, your messages "
                f"resulted in {max(size, limit) + self.rng.randrange(1, 200)} tokens.",
                "context_length_exceeded",
            )
        if fault == "reset":
            raise ConnectionResetError("connection reset by peer")
        if fault == "stall":
            raise TimeoutError("no byte for 60 s")
        if fault == "rate limit":
            raise RefusedError(
                429, "Rate limit reached: 30000 tokens per min", "rate_limit_exceeded"
            )
        if fault == "server error":
            raise RefusedError(500, "internal error")
        if fault == "media":
            raise RefusedError(400, "image exceeds the maximum size of 5 MB")
        if fault == "garbage":
            return ["not", "a", "response"]
        usage = None if fault == "no usage" else {"prompt_tokens": size, "completion_tokens": 9}
        if fault == "cut" and usage:
            usage["prompt_tokens"] = WINDOW // 2 + 3  # as servers that keep half of their window
        return {
            "choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}],
            "usage": usage,
        }

    async def acreate(self, **request: Any) -> Any:
        await asyncio.sleep(0)
        return self.create(**request)


@dataclass
class Moody:
    """A summarizer that is down, empty, inflated, malformed, slow to death, or fine, in turn."""

    rng: random.Random
    moods: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: ullage.SummaryRequest) -> str:
        mood = self.rng.choice(["down", "empty", "inflated", "malformed", "stall", "lie", "fine"])
        self.moods[mood] += 1
        assert len(request.prompt) < 200_000
        if mood == "down":
            raise ConnectionRefusedError("summariser is down")
        if mood == "stall":
            raise TimeoutError("summariser stalled")
        if mood == "lie":
            return "Goal:\n- Use vault.py\nDone:\n- Touched vault.py on db-9999"
        answers = {"empty": "  ", "inflated": "word " * 30_000, "malformed": '{"goal": ['}
        return answers.get(mood, "Goal:\n- Keep the simulator going.\nNext steps:\n- Go on.")


def image() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def turn(n: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return what a turn adds before the model is asked: a request, and maybe calls."""
    text: Any = f"Turn {n}: look at module_{n % 40}.py and tell me what it does."
    if n in (20, 120, 250):
        text = f"{text} {RULES[(20, 120, 250).index(n)]}"
    if n % 17 == 0:
        text = [{"type": "text", "text": text}, image()]
    added: list[dict[str, Any]] = [{"role": "user", "content": text}]
    calls = [
        {
            "id": f"c{n}-{i}",
            "type": "function",
            "function": {
                "name": "read_file",
                "arguments": json.dumps({"path": f"m{n % 9}-{i}.py"}),
            },
        }
        for i in range(rng.randrange(3))
    ]
    if calls:
        added.append({"role": "assistant", "content": None, "tool_calls": calls})
        for call in calls:
            body = " ".join(
                rng.choices(("def", "return", "x", "log", "if", "0"), k=rng.randrange(900))
            )
            added.append({"role": "tool", "tool_call_id": call["id"], "content": body})
    return added


@pytest.mark.slow
@pytest.mark.parametrize("twin", [False, True])
def test_500_turns_with_a_fault_of_every_kind_end_and_lose_no_pinned_fact(twin: bool) -> None:
    rng = random.Random(7)
    provider, moody, told = Rough(rng), Moody(rng), list[Any]()
    guard = ullage.Guard(
        "gpt-4o", window=WINDOW, summarizer=moody, on_event=told.append, runtime=Runtime(),
        pause=Pause(longest_s=0.0),
    )  # fmt: skip
    provider.bound = lambda: guard.window().input_tokens
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You look after a simulator."},
        {"role": "user", "content": "Keep the simulator running until I say stop."},
        {"role": "assistant", "content": "I will."},
        {"role": "user", "content": PINNED},
        {"role": "assistant", "content": "Noted."},
    ]
    provider.must.append(PINNED)
    outcomes: Counter[str] = Counter()
    for n in range(TURNS):
        history += turn(n, rng)
        if n in (20, 120, 250):
            provider.must.append(RULES[(20, 120, 250).index(n)])
        provider.fault = rng.choice(FAULTS) if n % 2 else "none"
        before = provider.calls
        try:
            if twin:
                asyncio.run(guard.acall(provider.acreate, history, pins=[3], max_tokens=300))
            else:
                guard.call(provider.create, history, pins=[3], max_tokens=300)
            outcomes["answered"] += 1
        except (RefusedError, TimeoutError, ConnectionError) as error:
            outcomes[type(error).__name__] += 1
        assert provider.calls - before <= 2
        history.append({"role": "assistant", "content": f"Done with turn {n}."})
    assert provider.failed.keys() == set(FAULTS)
    assert moody.moods.keys() == {"down", "empty", "inflated", "malformed", "stall", "lie", "fine"}
    assert outcomes["answered"] >= TURNS - sum(provider.failed[kind] for kind in HELPLESS)
    assert sum(isinstance(e, events.Compacted) for e in told) > 20
    assert (guard.window().input_tokens or 0) <= WINDOW - 500  # a cut may have taught less
    written = json.dumps(guard.prepare(history, pins=[3]).messages)
    assert "Use vault.py" not in written
    assert "db-9999" not in written

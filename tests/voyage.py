"""What tests of the guard talk about: a ship's log with tool calls, and the SDK that sends it."""

from __future__ import annotations

import json
from typing import Any

import openai

from ullage.core.guard.events import Event

WINDOW = 2048
Message = dict[str, Any]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look a thing up in the ship's papers.",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
        },
    }
]


def opening() -> list[Message]:
    return [
        {"role": "system", "content": "You keep a ship's log."},
        {"role": "user", "content": "The codeword is marlin. Keep the log for me."},
    ]


def look_up(n: int) -> list[Message]:
    """Return a tool call and its result, about a hundred tokens."""
    call = {
        "id": f"c{n}",
        "type": "function",
        "function": {"name": "look_up", "arguments": json.dumps({"what": f"item {n}"})},
    }
    report = f"Record {n}: " + "wind and water were fair today, all hands well. " * 8
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": report},
    ]


def log_of(turns: int) -> list[Message]:
    messages = opening()
    for n in range(turns):
        messages += look_up(n)
        messages.append({"role": "assistant", "content": f"Item {n} is in the log."})
        messages.append({"role": "user", "content": f"Go on with item {n + 1}, please."})
    return messages


def immovable() -> list[Message]:
    """Return a history that cannot be made smaller: its operator's text alone is too much."""
    return [
        {"role": "system", "content": "word and word " * 1200},
        {"role": "user", "content": "hi"},
    ]


def same_objects(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def of(kind: type, told: list[Event]) -> list[Any]:
    return [event for event in told if isinstance(event, kind)]


class Chat:
    """The SDK's `create` for the tiny model; keeps what it was given, and what came back."""

    def __init__(self, client: openai.OpenAI) -> None:
        self._client = client
        self.sent: list[dict[str, Any]] = []
        self.answers: list[Any] = []

    def __call__(self, **kwargs: Any) -> Any:
        self.sent.append(kwargs)
        self.answers.append(self._client.chat.completions.create(**{**kwargs, "model": "tiny"}))
        return self.answers[-1]


class Stubborn:
    """A provider that finds everything too large."""

    def __init__(self, message: str) -> None:
        self.asked = 0
        self.message = message

    def __call__(self, **kwargs: Any) -> Any:
        self.asked += 1
        raise RuntimeError(f"{self.message} ({self.asked})")

    async def awaited(self, **kwargs: Any) -> Any:
        return self(**kwargs)

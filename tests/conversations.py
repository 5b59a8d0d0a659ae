"""Seeded conversations with tools, as an agent has them, for servers that count and bill."""

from __future__ import annotations

import json
import random
from typing import Any

SAID = (
    "index parser cache window token branch commit review module record timeout socket buffer "
    "retry schema column lemma anchor ledger socket Größe naïve naïveté 你好 世界 данные 🙂 ±3 → "
    "self.items[0] 0x1f4a == != /srv/app/main.py {'a': 1} <tag> \\n 3.14159"
)
WORDS = SAID.split()


def tool(rng: random.Random) -> dict[str, Any]:
    """Return the schema of one tool."""
    names = rng.sample(["path", "pattern", "limit", "query", "line", "mode"], rng.randint(1, 4))
    fields = {
        name: {"type": rng.choice(["string", "integer"]), "description": prose(rng, 3, 12)}
        for name in names
    }
    return {
        "type": "function",
        "function": {
            "name": f"{rng.choice(['read', 'search', 'run', 'list'])}_{rng.randint(1, 99)}",
            "description": prose(rng, 5, 30),
            "parameters": {"type": "object", "properties": fields, "required": names[:1]},
        },
    }


def prose(rng: random.Random, least: int, most: int) -> str:
    """Return some words, some of them no English."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def conversation(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return messages that end with a user's, and the tools; the same for the same seed."""
    rng = random.Random(seed)
    tools = [tool(rng) for _ in range(rng.randint(1, 4))]
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.8:
        messages.append({"role": "system", "content": prose(rng, 5, 60)})
    messages.append({"role": "user", "content": prose(rng, 3, 40)})
    for turn in range(rng.randint(0, 5)):
        messages += _turn(rng, tools, f"{seed}_{turn}")
    messages.append({"role": "user", "content": prose(rng, 3, 30)})
    return messages, tools


def _turn(rng: random.Random, tools: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    if rng.random() < 0.3:
        return [
            {"role": "assistant", "content": prose(rng, 3, 60)},
            {"role": "user", "content": prose(rng, 3, 30)},
        ]
    calls = [
        {
            "id": f"call_{name}_{number}",
            "type": "function",
            "function": {
                "name": rng.choice(tools)["function"]["name"],
                "arguments": json.dumps({"path": prose(rng, 1, 6), "limit": rng.randint(1, 999)}),
            },
        }
        for number in range(rng.randint(1, 3))
    ]
    said = prose(rng, 2, 20) if rng.random() < 0.5 else None
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": prose(rng, 1, 120)}
        for call in calls
    ]
    answer = {"role": "assistant", "content": prose(rng, 3, 40)}
    return [{"role": "assistant", "content": said, "tool_calls": calls}, *results, answer]
